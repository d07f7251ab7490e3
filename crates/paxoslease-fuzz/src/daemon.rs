//! Real daemons on loopback sockets, each a cell of its own, started once per process. One is open
//! to every client, one requires tokens.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use paxoslease_server::{Access, Config, Server, Verb};
use signal_hook::consts::SIGPIPE;

use crate::panics;

pub(crate) const CELL: &str = "fuzzed";
pub(crate) const MAX_LEASE: Duration = Duration::from_secs(1);

/// How long to wait for a reply. A late reply is not an error, because a request may wait for a
/// lease; this bounds the cost of one input.
pub(crate) const REPLY_TIMEOUT: Duration = Duration::from_millis(20);

/// The SHA-256 of `all` and of `few`.
const OF_ALL: &str = "5ef5ef0364b6939c4ca61f34b393f7b368d1be8619647aaf83d5b395919ab629";
const OF_FEW: &str = "fa95e5080882f52bd40ccab2dee9c88c4d1fad7ad1093f93a0edcd8fb42d2bee";

pub(crate) struct Daemon {
    _server: Server,
    pub(crate) clients: SocketAddr,
    pub(crate) http: SocketAddr,
    pub(crate) peers: SocketAddr,
}

/// The reply of a daemon.
pub(crate) struct Reply {
    pub(crate) bytes: Vec<u8>,
    pub(crate) end: End,
}

impl Reply {
    /// Whether the daemon sent everything and closed the connection.
    pub(crate) fn is_whole(&self) -> bool {
        self.end == End::Closed
    }
}

/// How a connection ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    Closed,
    /// The daemon closed the connection before it had read everything.
    Reset,
    /// No further bytes came in time.
    Timeout,
}

/// The daemon without tokens.
pub(crate) fn open_daemon() -> &'static Daemon {
    static OPEN: OnceLock<Daemon> = OnceLock::new();
    OPEN.get_or_init(|| Daemon::start(Vec::new()))
}

/// The daemon with two tokens: `all` permits everything, `few` permits to read names that begin
/// with `f`.
pub(crate) fn token_daemon() -> &'static Daemon {
    static GUARDED: OnceLock<Daemon> = OnceLock::new();
    let entry = |hash: &str, names: &str, may: &[Verb]| {
        let names = names.parse().expect("a pattern");
        Access::new(hash.parse().expect("a hash"), [names], may.iter().copied())
    };
    GUARDED.get_or_init(|| {
        Daemon::start(vec![
            entry(OF_ALL, "*", &[Verb::Acquire, Verb::Read, Verb::Admin]),
            entry(OF_FEW, "f*", &[Verb::Read]),
        ])
    })
}

impl Daemon {
    fn start(access: Vec<Access>) -> Self {
        panics::install_hook();
        // SIGPIPE would end the process when it writes to a closed connection: only Rust's `main`
        // ignores the signal, and libFuzzer has its own `main`.
        signal_hook::flag::register(SIGPIPE, Arc::default()).expect("it can be caught");
        let socket = TcpListener::bind("127.0.0.1:0").expect("a port");
        let peers = socket.local_addr().expect("bound");
        let mut node = paxoslease_node::Config::new(CELL, 1)
            .peer(1, peers.to_string())
            .max_lease(MAX_LEASE)
            .ephemeral()
            .shards(1);
        node.limits.leases = 1000;
        let mut config = Config::new(node).listen("127.0.0.1:0", "127.0.0.1:0");
        config.access = access;
        config.listen.peers_out_of_reach = true;
        let server = Server::start_on(config, Some(socket)).expect("starts");
        paxoslease_node::block_on(server.node().ready()).expect("it is its own majority");
        let clients = server.clients().expect("listens");
        let http = server.http().expect("listens");
        Self { _server: server, clients, http, peers }
    }
}

/// Whether the daemons still answer: no input may have harmed them.
#[must_use]
pub fn daemons_answer() -> bool {
    [open_daemon(), token_daemon()].iter().all(|daemon| {
        let pong = exchange(daemon.clients, b"PING\r\n", true, REPLY_TIMEOUT);
        pong.bytes == b"+PONG\r\n"
    })
}

/// Sends the bytes and reads the reply, as long as each part of it arrives in time. `ends` closes
/// the sending side.
///
/// # Panics
/// When any thread of this process panicked.
pub(crate) fn exchange(address: SocketAddr, bytes: &[u8], ends: bool, timeout: Duration) -> Reply {
    let mut socket = TcpStream::connect(address).expect("it listens");
    socket.set_nodelay(true).expect("an option of every socket");
    socket.set_read_timeout(Some(timeout)).expect("not zero");
    socket.set_write_timeout(Some(timeout)).expect("not zero");
    // A daemon that closes the connection early causes an error here.
    let _closed = socket.write_all(bytes);
    if ends {
        let _closed = socket.shutdown(Shutdown::Write);
    }
    let mut reply = Vec::new();
    let end = match socket.read_to_end(&mut reply) {
        Ok(_) => End::Closed,
        Err(error) => match error.kind() {
            ErrorKind::ConnectionReset => End::Reset,
            ErrorKind::WouldBlock | ErrorKind::TimedOut => End::Timeout,
            _ => panic!("loopback broke: {error}"),
        },
    };
    panics::check();
    Reply { bytes: reply, end }
}
