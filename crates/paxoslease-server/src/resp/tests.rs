//! Sessions of a real node with shorter time limits than usual.

#[path = "../../tests/daemon/harness/until.rs"]
mod until;

mod steps;

use std::io::{BufRead as _, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use paxoslease_node::Node;
use paxoslease_node::front::Service;
use sha2::{Digest as _, Sha256};
use socket2::{Domain, SockRef, Socket, Type};
use until::{PATIENCE, until};

use super::*;
use crate::config::{Access, TokenHash};
use crate::metrics::Metrics;

/// The smallest buffer of a socket; the system makes a few kilobytes of it.
const NARROW: usize = 1;
const BRIEF: Duration = Duration::from_millis(20);
const UNAUTHENTICATED: &str = "-NOAUTH a token is required, and no valid one was sent for 20ms; \
     connect again and begin with AUTH and the token; the connection is closed\r\n";

/// A cell of one node.
struct Impatient {
    node: Node,
    server: Arc<ServerContext>,
    clients: SocketAddr,
    metrics: Metrics,
}

impl Impatient {
    fn start(with: impl FnOnce(&mut ServerContext)) -> Self {
        let socket = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let clients = socket.local_addr().expect("bound");
        // So that unread replies stay in the node. Connections inherit the option.
        SockRef::from(&socket).set_send_buffer_size(NARROW).expect("an option of every socket");
        let config = paxoslease_node::Config::new("test", 1).peer(1, "127.0.0.1:7401");
        let config = config.listen("off").ephemeral().shards(1);
        let mut server = ServerContext::new(&Config::new(config.clone()));
        with(&mut server);
        let server = Arc::new(server);
        let (shared, metrics) = (Arc::clone(&server), Metrics::new());
        let front =
            Box::new(move |_| Box::new(Sessions::new(Arc::clone(&shared))) as Box<dyn FrontEnd>);
        let recorder = Some(metrics.recorder());
        let service = Service { clients: Some(socket), client_tls: None, front, recorder };
        let node = paxoslease_node::block_on(Node::start_with(config, None, service));
        Self { node: node.expect("starts"), server, clients, metrics }
    }

    /// Requires one of these tokens.
    fn with_tokens(tokens: &[&str], with: impl FnOnce(&mut ServerContext)) -> Self {
        Self::start(|server| {
            server.gate = Gate::new(&entries(tokens));
            with(server);
        })
    }

    fn connect(&self) -> TcpStream {
        let client = TcpStream::connect(self.clients).expect("connects");
        client.set_read_timeout(Some(PATIENCE)).expect("not zero");
        client.set_write_timeout(Some(PATIENCE)).expect("not zero");
        client
    }

    /// A client whose socket buffers next to nothing.
    fn connect_narrowly(&self) -> TcpStream {
        let client = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        client.set_recv_buffer_size(NARROW).expect("an option of every socket");
        client.set_write_timeout(Some(PATIENCE)).expect("not zero");
        client.connect(&self.clients.into()).expect("connects");
        client.into()
    }

    /// A client that has sent its token in time. A busy machine may take several attempts.
    fn authenticated(&self) -> TcpStream {
        let mut authenticated = None;
        until("a token arrives in time", || {
            let (mut client, mut reply) = (self.connect(), [0; 5]);
            let is_sent = client.write_all(b"AUTH good\r\n").is_ok();
            if is_sent && client.read_exact(&mut reply).is_ok() && &reply == b"+OK\r\n" {
                authenticated = Some(client);
            }
            authenticated.is_some()
        });
        authenticated.expect("it is there")
    }

    /// Replaces the tokens in every session.
    fn replace_tokens(&self, tokens: &[&str]) {
        self.server.gate.change(&entries(tokens));
        paxoslease_node::block_on(self.node.status()).expect("runs");
    }

    fn published(&self, series: &str) -> u64 {
        let (rendered, series) = (self.metrics.render(), format!("{series} "));
        let line = rendered.lines().find_map(|line| line.strip_prefix(&series));
        line.map_or(0, |count| count.parse().expect("a number"))
    }

    fn wait_for_limit(&self, limit: &str, count: u64) {
        let series = format!("paxoslease_limited_total{{limit=\"{limit}\"}}");
        until(&format!("{series} is {count}"), || self.published(&series) >= count);
    }

    fn wait_for_connections(&self, count: usize) {
        let connections = || self.server.connections.load(Ordering::Relaxed);
        until(&format!("{count} connections are left"), || connections() <= count);
    }
}

fn entries(tokens: &[&str]) -> Vec<Access> {
    let entry = |token: &&str| {
        let hash = TokenHash::new(Sha256::digest(token).into());
        Access::new(hash, ["*".parse().expect("a pattern")], [Verb::Read])
    };
    tokens.iter().map(entry).collect()
}

/// What comes until the connection is closed.
fn read_to_close(client: &mut TcpStream) -> String {
    let mut text = String::new();
    client.read_to_string(&mut text).expect("closed in good order");
    text
}

/// Sends a command, and compares the reply.
fn ask(client: &mut TcpStream, command: &str, expected: &str) {
    client.write_all(format!("{command}\r\n").as_bytes()).expect("sends");
    let mut reply = vec![0; expected.len()];
    client.read_exact(&mut reply).expect("a reply");
    assert_eq!(String::from_utf8_lossy(&reply), expected, "to {command}");
}

fn ping(client: &mut TcpStream) {
    ask(client, "PING", "+PONG\r\n");
}

/// Sends a command again and again, and reads no reply, until the connection is closed.
fn flood(mut client: TcpStream, command: &str) {
    let commands = format!("{command}\r\n").repeat(100);
    while client.write_all(commands.as_bytes()).is_ok() {}
}

fn long_echo() -> String {
    format!("ECHO {}", "x".repeat(4000))
}

#[test]
fn a_client_that_never_finishes_a_request_is_disconnected() {
    let node = Impatient::start(|server| server.partial_request_after = BRIEF);
    let mut client = node.connect();
    client.write_all(b"PING\r\n*2\r\n$4\r\nECHO\r\n$1\r\n").expect("sends");
    let expected = "+PONG\r\n-ERR the request was not finished 20ms after it began; send it at \
                    once, the connection is closed\r\n";
    assert_eq!(read_to_close(&mut client), expected);
    node.wait_for_connections(0);
    node.wait_for_limit("half_request", 1);
}

#[test]
fn a_client_that_never_reads_is_disconnected() {
    let node = Impatient::start(|server| server.slow_reader_after = BRIEF);
    let mut client = node.connect();
    ping(&mut client);
    assert_eq!(node.server.connections.load(Ordering::Relaxed), 1);
    flood(client, &long_echo());
    node.wait_for_connections(0);
    node.wait_for_limit("slow_reader", 1);
}

#[test]
fn a_crowd_that_never_reads_does_not_fill_the_log() {
    let path = std::env::temp_dir().join(format!("paxoslease-log-{}", std::process::id()));
    let log = std::fs::File::create(&path).expect("a file");
    // The node has its own threads. Other tests of this process have other clients.
    tracing_subscriber::fmt().with_max_level(tracing::Level::WARN).with_writer(log).init();
    let node = Impatient::start(|server| server.slow_reader_after = BRIEF);
    let crowd: Vec<TcpStream> = (0..8).map(|_| node.connect()).collect();
    let address = |client: &TcpStream| client.local_addr().expect("connected").to_string();
    let addresses: Vec<String> = crowd.iter().map(address).collect();
    std::thread::scope(|scope| {
        for client in crowd {
            scope.spawn(|| flood(client, &long_echo()));
        }
    });
    node.wait_for_connections(0);
    let log = std::fs::read_to_string(&path).expect("text");
    let _left = std::fs::remove_file(path);
    let lines = addresses.iter().filter(|client| log.contains(*client)).count();
    // One in ten seconds.
    assert!((1..addresses.len()).contains(&lines), "{lines} lines");
}

#[test]
fn a_client_without_a_token_is_told_and_disconnected() {
    let node = Impatient::with_tokens(&["good"], |server| server.unauthenticated_after = BRIEF);
    let mut known = node.authenticated();
    // The next two come later, so their time is over after that of the first would have been.
    assert_eq!(read_to_close(&mut node.connect()), UNAUTHENTICATED);
    // Unread replies do not keep the connection open.
    flood(node.connect(), "PING");
    ping(&mut known);
    known.write_all(b"RESET\r\n").expect("sends");
    let expected = format!("+RESET\r\n{UNAUTHENTICATED}");
    assert_eq!(read_to_close(&mut known), expected, "it has no token any more");
    node.wait_for_connections(0);
    let series = "paxoslease_refused_total{reason=\"no_token\"}";
    until("all are counted", || node.published(series) >= 3);
}

#[test]
fn a_client_whose_token_was_removed_needs_another() {
    let tokens = ["good", "other"];
    let node = Impatient::with_tokens(&tokens, |server| server.unauthenticated_after = BRIEF);
    let (mut lost, mut kept) = (node.authenticated(), node.authenticated());
    ask(&mut kept, "AUTH other", "+OK\r\n");
    node.replace_tokens(&["other"]);
    assert_eq!(read_to_close(&mut lost), UNAUTHENTICATED);
    ping(&mut kept);
}

#[test]
fn a_client_needs_a_token_once_tokens_are_required() {
    let node = Impatient::start(|server| server.unauthenticated_after = Duration::ZERO);
    let mut client = node.connect();
    ping(&mut client);
    ping(&mut client);
    node.replace_tokens(&["good"]);
    assert!(read_to_close(&mut client).starts_with("-NOAUTH a token is required"));
    node.wait_for_connections(0);
}

#[test]
fn a_client_without_a_token_may_leave_less_unread() {
    let node = Impatient::with_tokens(&["good"], |server| server.slow_reader_after = BRIEF);
    flood(node.connect_narrowly(), "PING");
    node.wait_for_limit("slow_reader", 1);
    let pongs = node.published("paxoslease_commands_total{command=\"ping\"}");
    let unread = pongs * b"+PONG\r\n".len() as u64;
    // 16 KiB, and what the sockets hold.
    assert!(unread < 64 << 10, "{unread} bytes");
}

#[test]
fn unread_pages_stay_within_the_bound_of_unread_bytes() {
    let node = Impatient::start(|server| server.slow_reader_after = BRIEF);
    let mut client = node.connect();
    for number in 0..300 {
        let acquire = format!("LEASE.ACQUIRE {number:x<512} 60000 HOLDER {}", "h".repeat(256));
        ask(&mut client, &acquire, "*3\r\n");
        // The rest of the reply: three numbers.
        let mut rest = std::io::BufReader::new(&mut client);
        (0..3).for_each(|_| drop(rest.read_line(&mut String::new())));
    }
    client.write_all(b"LEASE.LIST 0 COUNT 1000\r\nQUIT\r\n").expect("sends");
    let page = read_to_close(&mut client).len() as u64;
    flood(node.connect_narrowly(), "LEASE.LIST 0 COUNT 1000");
    node.wait_for_limit("slow_reader", 1);
    let lists = node.published("paxoslease_commands_total{command=\"lease.list\"}");
    let unread = (lists - 1) * page;
    // 256 KiB, and what the sockets hold.
    assert!(unread < 300 << 10, "{unread} bytes in pages of {page}");
}

#[test]
fn patterns_are_limited_by_shard_until_one_is_no_longer_watched() {
    let node = Impatient::start(|server| {
        assert_eq!(server.watched_max, 1024, "docs/resp.md says so");
        server.watched_max = 3;
    });
    let ok = "+OK\r\n";
    let refused = "-BUSY watchers: 3 patterns are watched in this shard of the node, its limit; ask another \
                   node, or LEASE.UNWATCH some\r\n";
    let (mut first, mut second) = (node.connect(), node.connect());
    ask(&mut first, "LEASE.WATCH a*", ok);
    ask(&mut second, "LEASE.WATCH a*", ok);
    ask(&mut second, "LEASE.WATCH b*", ok);
    ask(&mut second, "LEASE.WATCH c*", refused);
    ask(&mut first, "LEASE.WATCH b*", refused);
    ask(&mut first, "LEASE.WATCH a*", ok);
    node.wait_for_limit("watchers", 2);
    for (leave, reply) in [("LEASE.UNWATCH b*", ok), ("LEASE.UNWATCH", ok), ("RESET", "+RESET\r\n")]
    {
        ask(&mut second, leave, reply);
        ask(&mut first, "LEASE.WATCH b*", ok);
        ask(&mut first, "LEASE.UNWATCH b*", ok);
        ask(&mut second, "LEASE.WATCH a*", ok);
        ask(&mut second, "LEASE.WATCH b*", ok);
        ask(&mut first, "LEASE.WATCH b*", refused);
    }
    drop(second);
    node.wait_for_connections(1);
    ask(&mut first, "LEASE.WATCH b*", ok);
    ask(&mut first, "LEASE.WATCH c*", ok);
    ask(&mut first, "LEASE.WATCH d*", refused);
}

#[test]
fn waits_for_free_locks_are_limited_by_connection() {
    let node = Impatient::start(|server| {
        assert_eq!(server.waits_max, 64, "docs/redis.md says so");
        server.waits_max = 2;
    });
    let (mut holder, mut waiter) = (node.connect(), node.connect());
    ask(&mut holder, "SET lock:a x NX PX 60000", "+OK\r\n");
    let wait = "BLPOP lock-signal:a 0\r\n";
    waiter.write_all(wait.repeat(3).as_bytes()).expect("sends");
    node.wait_for_limit("waiters", 1);
    ask(&mut holder, "DEL lock:a", ":1\r\n");
    let told = "*2\r\n$13\r\nlock-signal:a\r\n$1\r\n1\r\n";
    let refused = "-BUSY waiters: 2 commands of this connection wait for a free lock, its limit; \
                   replies come in order, so give each waiter a connection\r\n";
    let mut replies = vec![0; 2 * told.len() + refused.len()];
    waiter.read_exact(&mut replies).expect("replies");
    assert_eq!(String::from_utf8_lossy(&replies), [told, told, refused].concat());
    // Those that ended make room.
    ask(&mut waiter, wait.trim_end(), told);
    ask(&mut waiter, wait.trim_end(), told);
    ask(&mut waiter, wait.trim_end(), told);
}
