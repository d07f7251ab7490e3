//! A node in this process whose turns are measured.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use paxoslease_node::front::{Answer, ConnId, FrontEnd, Hint, Instant, Service, ShardHandle};
use paxoslease_node::{Node, Spin};
use paxoslease_rig::clock;
use paxoslease_server::{Config, Gate};
use paxoslease_wire::resp::{Value, put_command};

use super::input::{NAME_LEN, Words};

/// Leases of the longest names. There is a tenth as many short ones.
const LEASES: usize = 2000;
/// How long an input may go without a reply, as those do that wait.
const PATIENCE: Duration = Duration::from_millis(100);
const MARKER: &[u8] = b"all replies before this were read";

/// What an input took.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cost {
    /// The longest turn.
    pub(super) turn: Duration,
    /// All turns.
    pub(super) whole: Duration,
}

impl Cost {
    /// The one with the shorter turn.
    pub(super) fn min(self, other: Self) -> Self {
        if other.turn < self.turn { other } else { self }
    }
}

/// A command or one of its subcommands, as `COMMAND DOCS` describes it.
pub(super) struct Spec {
    pub(super) name: String,
    /// In capitals in the summary.
    pub(super) subcommand: Option<String>,
    pub(super) arguments: Vec<Argument>,
}

#[derive(Clone)]
pub(super) struct Argument {
    pub(super) name: String,
    pub(super) token: Option<String>,
    pub(super) is_optional: bool,
}

pub(super) struct Measured {
    _node: Node,
    address: SocketAddr,
    turns: Arc<Turns>,
    /// Publishes, acquires and releases after each input, so that watching has its price.
    other: Client,
    subscribers: Vec<Client>,
    /// The node knows only this script before each input, so that all others are recognised.
    script: Option<Vec<u8>>,
}

impl Measured {
    pub(super) fn start() -> Result<Self> {
        let clients = TcpListener::bind("127.0.0.1:0")?;
        let address = clients.local_addr()?;
        let node = paxoslease_node::Config::new("search", 1).peer(1, "127.0.0.1:7401");
        let node = node.listen("off").ephemeral().shards(1).spin(Spin::Off);
        let mut config = Config::new(node.max_lease(Duration::from_secs(3600)));
        config.redis.testing = true;
        let turns = Arc::new(Turns::default());
        let mut front = paxoslease_server::front_ends(&config, &Gate::default());
        let shared = Arc::clone(&turns);
        let service = Service {
            clients: Some(clients),
            client_tls: None,
            front: Box::new(move |shard| {
                let (front, turns) = (front(shard), Arc::clone(&shared));
                Box::new(Timed { front, turns, began: None })
            }),
            recorder: None,
        };
        let node = paxoslease_node::block_on(Node::start_with(config.node, None, service))?;
        let other = Client::connect(address)?;
        Ok(Self { _node: node, address, turns, other, subscribers: Vec::new(), script: None })
    }

    /// The commands of the node, which is not told to do anything with its members.
    pub(super) fn commands(&mut self) -> Result<Vec<Spec>> {
        let reply = self.other.ask(&[b"COMMAND", b"DOCS"])?;
        let (value, _) = Value::parse(&reply)?.context("a whole reply")?;
        let mut items = value.items().context("names and descriptions")?;
        let mut specs = Vec::new();
        while let (Some(name), Some(docs)) = (items.next(), items.next()) {
            let mut arguments = Vec::new();
            for argument in field(docs, "arguments").and_then(Value::items).into_iter().flatten() {
                let has_flags = field(argument, "flags").is_some();
                arguments.push(Argument {
                    name: text(field(argument, "name").context("a name")?),
                    token: field(argument, "token").map(text),
                    is_optional: has_flags,
                });
            }
            let name = text(name);
            let has_subcommands = arguments.first().is_some_and(|first| first.name == "subcommand");
            if !has_subcommands {
                specs.push(Spec { name, subcommand: None, arguments });
                continue;
            }
            arguments.remove(0);
            let summary = field(docs, "summary").map(text).unwrap_or_default();
            let words = summary.split(|byte: char| !byte.is_ascii_alphabetic());
            let is_subcommand =
                |word: &&str| word.len() > 1 && word.bytes().all(|byte| byte.is_ascii_uppercase());
            for word in words.filter(is_subcommand) {
                let subcommand = Some(word.to_owned());
                specs.push(Spec { name: name.clone(), subcommand, arguments: arguments.clone() });
            }
        }
        ensure!(!specs.is_empty(), "the node described no command");
        Ok(specs)
    }

    /// Holds leases for commands that list or change many.
    pub(super) fn fill(&mut self) -> Result<()> {
        let mut requests = Vec::new();
        for number in 0..LEASES + LEASES / 10 {
            let len = if number < LEASES { NAME_LEN - 4 } else { 1 };
            let name = format!("{}{number:04}", "a".repeat(len));
            put_command(&mut requests, &[b"SET", name.as_bytes(), b"v", b"NX", b"PX", b"3600000"]);
        }
        self.other.exchange(&requests, None)?;
        Ok(())
    }

    /// What an input takes, with what it leads to.
    pub(super) fn cost(&mut self, words: &Words) -> Result<Cost> {
        let mut client = Client::connect(self.address)?;
        let mut before = Vec::new();
        put_command(&mut before, &[b"SCRIPT", b"FLUSH"]);
        if let Some(script) = &self.script {
            put_command(&mut before, &[b"SCRIPT", b"LOAD", script]);
        }
        self.other.exchange(&before, None)?;
        self.turns.longest.store(0, Ordering::Relaxed);
        self.turns.whole.store(0, Ordering::Relaxed);
        let mut request = Vec::new();
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        put_command(&mut request, &words);
        client.exchange(&request, Some(PATIENCE))?;
        let mut then = Vec::new();
        let long = "a".repeat(NAME_LEN);
        put_command(&mut then, &[b"PUBLISH", long.as_bytes(), b"text"]);
        put_command(&mut then, &[b"SET", long.as_bytes(), b"v", b"NX", b"PX", b"3600000"]);
        put_command(&mut then, &[b"DEL", long.as_bytes()]);
        self.other.exchange(&then, None)?;
        for subscriber in &mut self.subscribers {
            subscriber.drain()?;
        }
        drop(client);
        self.other.exchange(b"", None)?;
        // The second turn tells what the first one took.
        self.other.exchange(b"", None)?;
        let nanos = |of: &AtomicU64| Duration::from_nanos(of.load(Ordering::Relaxed));
        Ok(Cost { turn: nanos(&self.turns.longest), whole: nanos(&self.turns.whole) })
    }

    /// Subscribes to these patterns on as many connections as the node admits, up to 16.
    pub(super) fn subscribe(&mut self, words: &Words) -> Result<()> {
        let mut request = Vec::new();
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        put_command(&mut request, &words);
        for _ in 0..16 {
            let mut client = Client::connect(self.address)?;
            client.exchange(&request, Some(PATIENCE))?;
            client.0.set_nonblocking(true)?;
            self.subscribers.push(client);
        }
        Ok(())
    }

    /// Has the node know a script from now on. Returns its hash.
    pub(super) fn know(&mut self, script: &[u8]) -> Result<Vec<u8>> {
        self.script = Some(script.to_vec());
        let reply = self.other.ask(&[b"SCRIPT", b"LOAD", script])?;
        let (value, _) = Value::parse(&reply)?.context("a whole reply")?;
        Ok(value.bytes().context("a hash")?.to_vec())
    }

    /// What the node itself counted, as far as it counts.
    pub(super) fn steps_max(&mut self) -> Result<String> {
        let info = String::from_utf8_lossy(&self.other.ask(&[b"INFO"])?).into_owned();
        let line = info.lines().find_map(|line| line.strip_prefix("turn_steps_max:"));
        Ok(line.unwrap_or("not counted").to_owned())
    }
}

struct Client(TcpStream);

impl Client {
    fn connect(address: SocketAddr) -> Result<Self> {
        Ok(Self(TcpStream::connect(address)?))
    }

    /// Sends requests, and reads until all replies came, the node closed the connection, or the
    /// patience is over.
    fn exchange(&mut self, requests: &[u8], patience: Option<Duration>) -> Result<Vec<u8>> {
        self.0.set_read_timeout(Some(patience.unwrap_or(Duration::from_secs(20))))?;
        let mut bytes = requests.to_vec();
        put_command(&mut bytes, &[b"PING", MARKER]);
        // The node may have closed the connection already.
        let _closed = self.0.write_all(&bytes);
        let (mut replies, mut buffer) = (Vec::new(), vec![0; 64 * 1024]);
        let until = clock::now() + patience.unwrap_or(Duration::from_secs(20));
        loop {
            let from = replies.len().saturating_sub(2 * MARKER.len());
            match self.0.read(&mut buffer) {
                Ok(0) => return Ok(replies),
                Ok(len) => replies.extend_from_slice(&buffer[..len]),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ok(replies),
                Err(_) if patience.is_some() => return Ok(replies),
                Err(error) => return Err(error.into()),
            }
            let is_over = patience.is_some() && clock::now() > until;
            if is_over || replies[from..].windows(MARKER.len()).any(|end| end == MARKER) {
                return Ok(replies);
            }
        }
    }

    /// Reads what has come.
    fn drain(&mut self) -> Result<()> {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            match self.0.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn ask(&mut self, words: &[&[u8]]) -> Result<Vec<u8>> {
        let mut request = Vec::new();
        put_command(&mut request, words);
        self.exchange(&request, None)
    }
}

fn field<'a>(map: Value<'a>, name: &str) -> Option<Value<'a>> {
    let mut items = map.items()?;
    while let (Some(key), Some(value)) = (items.next(), items.next()) {
        if key.bytes() == Some(name.as_bytes()) {
            return Some(value);
        }
    }
    None
}

fn text(value: Value<'_>) -> String {
    String::from_utf8_lossy(value.bytes().unwrap_or_default()).into_owned()
}

/// Nanoseconds of processor time since they were last set to zero.
#[derive(Default)]
struct Turns {
    longest: AtomicU64,
    whole: AtomicU64,
}

/// Measures from tick to tick. There is one in each turn, and processor time does not count waits.
struct Timed {
    front: Box<dyn FrontEnd>,
    turns: Arc<Turns>,
    began: Option<Duration>,
}

impl FrontEnd for Timed {
    fn tick(&mut self, shard: &mut ShardHandle<'_>) {
        let now = clock::thread_time();
        if let Some(began) = self.began.replace(now) {
            let nanos = (now - began).as_nanos() as u64;
            self.turns.longest.fetch_max(nanos, Ordering::Relaxed);
            self.turns.whole.fetch_add(nanos, Ordering::Relaxed);
        }
        self.front.tick(shard);
    }

    fn accepted(&mut self, shard: &mut ShardHandle<'_>, conn: ConnId) {
        self.front.accepted(shard, conn);
    }

    fn received(&mut self, shard: &mut ShardHandle<'_>, conn: ConnId, bytes: &[u8]) -> usize {
        self.front.received(shard, conn, bytes)
    }

    fn writable(&mut self, shard: &mut ShardHandle<'_>, conn: ConnId) {
        self.front.writable(shard, conn);
    }

    fn ending(&mut self, shard: &mut ShardHandle<'_>, conn: ConnId) {
        self.front.ending(shard, conn);
    }

    fn read_ahead_full(&mut self, shard: &mut ShardHandle<'_>, conn: ConnId) {
        self.front.read_ahead_full(shard, conn);
    }

    fn ended(&mut self, shard: &mut ShardHandle<'_>, conn: ConnId) {
        self.front.ended(shard, conn);
    }

    fn closed(&mut self, shard: &mut ShardHandle<'_>, conn: ConnId) {
        self.front.closed(shard, conn);
    }

    fn answered(&mut self, shard: &mut ShardHandle<'_>, id: u64, answer: Answer) {
        self.front.answered(shard, id, answer);
    }

    fn hinted(&mut self, shard: &mut ShardHandle<'_>, hint: &Hint) {
        self.front.hinted(shard, hint);
    }

    fn flush(&mut self, shard: &mut ShardHandle<'_>) {
        self.front.flush(shard);
    }

    fn next_at(&self) -> Option<Instant> {
        self.front.next_at()
    }

    fn leave(&mut self, shard: &mut ShardHandle<'_>) {
        self.front.leave(shard);
    }

    fn is_done(&self) -> bool {
        self.front.is_done()
    }

    fn not_tls(&self) -> &'static [u8] {
        self.front.not_tls()
    }
}
