//! Sessions of a real node that has less patience than usual.

use std::io::{BufRead as _, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Mutex;

use paxoslease_node::Node;
use paxoslease_node::front::Service;
use sha2::{Digest as _, Sha256};
use socket2::{Domain, SockRef, Socket, Type};
use tracing::field::{Field, Visit};
use tracing::span;

use super::*;
use crate::config::{Access, TokenHash};
use crate::metrics::Metrics;

/// How long a test waits for what must come. Never what it waits for.
const PATIENCE: Duration = Duration::from_secs(30);
/// As little as a socket may keep; the system makes a few kilobytes of it.
const NARROW: usize = 1;
/// What is too long for the node.
const BRIEF: Duration = Duration::from_millis(20);
const TOLD_TO_STRANGERS: &str = "-NOAUTH this node asks for a token, and you have shown none \
     that is good for 20ms; connect again and begin with AUTH and the token, the connection is \
     closed\r\n";

/// A cell of one.
struct Impatient {
    node: Node,
    server: Arc<ServerContext>,
    clients: SocketAddr,
    metrics: Metrics,
}

impl Impatient {
    fn start(with: impl FnOnce(&mut ServerContext)) -> Self {
        let listen = || {
            let socket = TcpListener::bind("127.0.0.1:0").expect("a port");
            let address = socket.local_addr().expect("bound");
            (socket, address)
        };
        let ((peers, address), (socket, clients)) = (listen(), listen());
        // So that what is not read stays with the node. Connections take after it.
        SockRef::from(&socket).set_send_buffer_size(NARROW).expect("an option of every socket");
        let config = paxoslease_node::Config::new("test", 1)
            .peer(1, address.to_string())
            .ephemeral()
            .shards(1);
        let mut server = ServerContext::new(&Config::new(config.clone()));
        with(&mut server);
        let server = Arc::new(server);
        let (shared, metrics) = (Arc::clone(&server), Metrics::new());
        let front =
            Box::new(move |_| Box::new(Sessions::new(Arc::clone(&shared))) as Box<dyn FrontEnd>);
        let (clients_socket, recorder) = (Some(socket), Some(metrics.recorder()));
        let service = Service { clients: clients_socket, client_tls: None, front, recorder };
        let node = paxoslease_node::block_on(Node::start_with(config, Some(peers), service));
        Self { node: node.expect("starts"), server, clients, metrics }
    }

    fn connect(&self) -> TcpStream {
        let client = TcpStream::connect(self.clients).expect("connects");
        client.set_read_timeout(Some(PATIENCE)).expect("not zero");
        client
    }

    /// A client whose side keeps next to nothing of what it does not read.
    fn connect_narrowly(&self) -> TcpStream {
        let client = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        client.set_recv_buffer_size(NARROW).expect("an option of every socket");
        client.connect(&self.clients.into()).expect("connects");
        client.into()
    }

    /// A client that has shown its token in time, however often that takes.
    fn authenticated(&self) -> TcpStream {
        loop {
            let mut client = self.connect();
            let mut told = [0; 5];
            if client.write_all(b"AUTH good\r\n").is_ok()
                && client.read_exact(&mut told).is_ok()
                && &told == b"+OK\r\n"
            {
                return client;
            }
        }
    }

    /// Takes over these tokens, in every session.
    fn knows(&self, tokens: &[&str]) {
        self.server.gate.change(&entries(tokens));
        paxoslease_node::block_on(self.node.status()).expect("runs");
    }

    /// Waits until so many clients ran into this limit.
    fn wait_for_limit(&self, limit: &str, count: u64) {
        let series = format!("paxoslease_limited_total{{limit=\"{limit}\"}}");
        while self.published(&series) < count {
            std::thread::yield_now();
        }
    }

    /// What is published of a series now.
    fn published(&self, series: &str) -> u64 {
        let (rendered, series) = (self.metrics.render(), format!("{series} "));
        let line = rendered.lines().find_map(|line| line.strip_prefix(&series));
        line.map_or(0, |count| count.parse().expect("a number"))
    }

    fn wait_until_empty(&self) {
        while self.server.connections.load(Ordering::Relaxed) > 0 {
            std::thread::yield_now();
        }
    }
}

fn entries(tokens: &[&str]) -> Vec<Access> {
    let entry = |token: &&str| {
        let hash = TokenHash::new(Sha256::digest(token).into());
        Access::new(hash, ["*".parse().expect("a pattern")], [Verb::Read])
    };
    tokens.iter().map(entry).collect()
}

/// What is heard until the connection is closed.
fn last_words(client: &mut TcpStream) -> String {
    let mut heard = String::new();
    client.read_to_string(&mut heard).expect("closed in good order");
    heard
}

/// Says so, and is told that.
fn hears(client: &mut TcpStream, said: &str, expected: &str) {
    client.write_all(format!("{said}\r\n").as_bytes()).expect("sends");
    let mut told = vec![0; expected.len()];
    client.read_exact(&mut told).expect("a reply");
    assert_eq!(String::from_utf8_lossy(&told), expected, "to {said}");
}

fn answers(client: &mut TcpStream) {
    hears(client, "PING", "+PONG\r\n");
}

/// Asks for what it does not read, until it is hung up on.
fn never_reads(mut client: TcpStream) {
    let echo = [b"ECHO ".to_vec(), vec![b'x'; 4000], b"\r\n".to_vec()].concat();
    while client.write_all(&echo).is_ok() {}
}

/// Whom the warnings in the log are about.
#[derive(Clone, Default)]
struct Warned(Arc<Mutex<Vec<String>>>);

impl tracing::Subscriber for Warned {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::WARN
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        event.record(&mut self.clone());
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

impl Visit for Warned {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "client" {
            self.0.lock().expect("no panic").push(value.to_owned());
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn std::fmt::Debug) {}
}

#[test]
fn a_client_that_never_finishes_a_request_is_told_and_given_up() {
    let node = Impatient::start(|server| server.partial_request_after = BRIEF);
    let mut client = node.connect();
    client.write_all(b"PING\r\n*2\r\n$4\r\nECHO\r\n$1\r\n").expect("sends");
    let expected = "+PONG\r\n-ERR the request was not finished 20ms after it began; send it at \
                    once, the connection is closed\r\n";
    assert_eq!(last_words(&mut client), expected);
    node.wait_until_empty();
    node.wait_for_limit("half_request", 1);
}

#[test]
fn a_client_that_never_reads_is_given_up() {
    let node = Impatient::start(|server| server.slow_reader_after = BRIEF);
    let mut client = node.connect();
    answers(&mut client);
    assert_eq!(node.server.connections.load(Ordering::Relaxed), 1);
    never_reads(client);
    node.wait_until_empty();
    node.wait_for_limit("slow_reader", 1);
}

#[test]
fn a_crowd_that_never_reads_does_not_fill_the_log() {
    let warned = Warned::default();
    // The node has threads of its own. Other tests of this process are told apart by their clients.
    tracing::subscriber::set_global_default(warned.clone()).expect("nobody else does");
    let node = Impatient::start(|server| server.slow_reader_after = BRIEF);
    let crowd: Vec<TcpStream> = (0..8).map(|_| node.connect()).collect();
    let address = |client: &TcpStream| client.local_addr().expect("connected").to_string();
    let addresses: Vec<String> = crowd.iter().map(address).collect();
    std::thread::scope(|scope| {
        for client in crowd {
            scope.spawn(|| never_reads(client));
        }
    });
    node.wait_until_empty();
    let warned = warned.0.lock().expect("no panic");
    let lines = warned.iter().filter(|client| addresses.contains(client)).count();
    // One in ten seconds.
    assert!((1..addresses.len()).contains(&lines), "{lines} lines");
}

#[test]
fn who_shows_no_token_where_one_is_asked_for_is_told_and_given_up() {
    let node = Impatient::start(|server| {
        server.unauthenticated_after = BRIEF;
        server.gate = Gate::new(&entries(&["good"]));
    });
    let mut known = node.authenticated();
    // These come later, and so are given up after the other would have been.
    assert_eq!(last_words(&mut node.connect()), TOLD_TO_STRANGERS);
    let mut unread = node.connect();
    // What was not read does not keep it; at the latest when it is closed, this fails.
    while unread.write_all(&b"PING\r\n".repeat(1000)).is_ok() {}
    answers(&mut known);
    known.write_all(b"RESET\r\n").expect("sends");
    assert_eq!(last_words(&mut known), format!("+RESET\r\n{TOLD_TO_STRANGERS}"), "nobody any more");
    node.wait_until_empty();
    while node.published("paxoslease_refused_total{reason=\"no_token\"}") < 3 {
        std::thread::yield_now();
    }
}

#[test]
fn who_has_lost_its_token_may_show_another_or_is_given_up() {
    let node = Impatient::start(|server| {
        server.unauthenticated_after = BRIEF;
        server.gate = Gate::new(&entries(&["good", "other"]));
    });
    let (mut lost, mut kept) = (node.authenticated(), node.authenticated());
    kept.write_all(b"AUTH other\r\n").expect("sends");
    kept.read_exact(&mut [0; 5]).expect("+OK");
    node.knows(&["other"]);
    assert_eq!(last_words(&mut lost), TOLD_TO_STRANGERS);
    answers(&mut kept);
}

#[test]
fn where_no_token_is_asked_for_nobody_is_a_stranger_until_one_is() {
    let node = Impatient::start(|server| server.unauthenticated_after = Duration::ZERO);
    let mut client = node.connect();
    answers(&mut client);
    answers(&mut client);
    node.knows(&["good"]);
    assert!(last_words(&mut client).starts_with("-NOAUTH this node asks for a token"));
    node.wait_until_empty();
}

#[test]
fn a_stranger_is_told_that_the_node_is_there_and_not_what_it_says_itself() {
    let node = Impatient::start(|server| server.gate = Gate::new(&entries(&["good"])));
    let mut client = node.connect();
    answers(&mut client);
    let refused = "-NOAUTH this node asks for a token";
    hears(&mut client, "PING hello", refused);
    let mut known = node.authenticated();
    hears(&mut known, "PING hello", "$5\r\nhello\r\n");
}

#[test]
fn a_stranger_may_leave_less_unread_than_others() {
    let node = Impatient::start(|server| {
        server.slow_reader_after = BRIEF;
        server.gate = Gate::new(&entries(&["good"]));
    });
    let mut stranger = node.connect_narrowly();
    while stranger.write_all(&b"PING\r\n".repeat(1000)).is_ok() {}
    node.wait_for_limit("slow_reader", 1);
    let pongs = node.published("paxoslease_commands_total{command=\"ping\"}");
    let unread = pongs * b"+PONG\r\n".len() as u64;
    // 16 KiB, and what the sockets hold.
    assert!(unread < 64 << 10, "{unread} bytes");
}

#[test]
fn lists_that_are_not_read_stay_within_what_may_be_left_unread() {
    let node = Impatient::start(|server| server.slow_reader_after = BRIEF);
    let mut client = node.connect();
    for number in 0..300 {
        let acquire = format!("LEASE.ACQUIRE {number:x<512} 60000 HOLDER {}", "h".repeat(256));
        hears(&mut client, &acquire, "*3\r\n");
        // The rest of the reply: three numbers.
        let mut rest = std::io::BufReader::new(&mut client);
        (0..3).for_each(|_| drop(rest.read_line(&mut String::new())));
    }
    client.write_all(b"LEASE.LIST 0 COUNT 1000\r\nQUIT\r\n").expect("sends");
    let page = last_words(&mut client).len() as u64;
    let lists = || node.published("paxoslease_commands_total{command=\"lease.list\"}");
    let mut narrow = node.connect_narrowly();
    while narrow.write_all(&b"LEASE.LIST 0 COUNT 1000\r\n".repeat(100)).is_ok() {}
    node.wait_for_limit("slow_reader", 1);
    let unread = (lists() - 1) * page;
    // 256 KiB, and what the sockets hold.
    assert!(unread < 300 << 10, "{unread} bytes in pages of {page}");
}

#[test]
fn patterns_are_limited_by_shard_and_room_is_made_when_one_is_watched_no_more() {
    let node = Impatient::start(|server| {
        assert_eq!(server.watched_max, 1024, "as docs/resp.md has it");
        server.watched_max = 3;
    });
    let ok = "+OK\r\n";
    let refused = "-BUSY 3 patterns are watched in this shard of the node, its limit; ask another \
                   node, or LEASE.UNWATCH some\r\n";
    let (mut first, mut second) = (node.connect(), node.connect());
    hears(&mut first, "LEASE.WATCH a*", ok);
    hears(&mut second, "LEASE.WATCH a*", ok);
    hears(&mut second, "LEASE.WATCH b*", ok);
    hears(&mut second, "LEASE.WATCH c*", refused);
    hears(&mut first, "LEASE.WATCH b*", refused);
    hears(&mut first, "LEASE.WATCH a*", ok);
    node.wait_for_limit("watchers", 2);
    // By each of the ways to watch less.
    for leave in ["LEASE.UNWATCH b*", "LEASE.UNWATCH", "RESET"] {
        let told = if leave == "RESET" { "+RESET\r\n" } else { ok };
        hears(&mut second, leave, told);
        hears(&mut first, "LEASE.WATCH b*", ok);
        hears(&mut first, "LEASE.UNWATCH b*", ok);
        hears(&mut second, "LEASE.WATCH a*", ok);
        hears(&mut second, "LEASE.WATCH b*", ok);
        hears(&mut first, "LEASE.WATCH b*", refused);
    }
    drop(second);
    while node.server.connections.load(Ordering::Relaxed) > 1 {
        std::thread::yield_now();
    }
    hears(&mut first, "LEASE.WATCH b*", ok);
    hears(&mut first, "LEASE.WATCH c*", ok);
    hears(&mut first, "LEASE.WATCH d*", refused);
}
