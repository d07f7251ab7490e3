//! Real daemons, each a cell of its own, on loopback sockets: started once per process, for all
//! bytes that come through one of their ports. One is open to everybody, one asks for tokens.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use paxoslease::{Access, Config, Verb};
use paxoslease_server::Server;
use signal_hook::consts::SIGPIPE;

use crate::panics;

pub(crate) const CELL: &str = "fuzzed";
pub(crate) const MAX_LEASE: Duration = Duration::from_secs(1);

/// How long a reply may take before nobody waits for it any more. What is asked may well wait for
/// a lease, so that it comes late is no fault; a bound on what one input costs.
pub(crate) const PATIENCE: Duration = Duration::from_millis(20);

/// The SHA-256 of `all` and of `few`.
const OF_ALL: &str = "5ef5ef0364b6939c4ca61f34b393f7b368d1be8619647aaf83d5b395919ab629";
const OF_FEW: &str = "fa95e5080882f52bd40ccab2dee9c88c4d1fad7ad1093f93a0edcd8fb42d2bee";

pub(crate) struct Rig {
    _server: Server,
    pub(crate) clients: SocketAddr,
    pub(crate) http: SocketAddr,
    pub(crate) peers: SocketAddr,
}

/// How a conversation went.
pub(crate) struct Heard {
    pub(crate) bytes: Vec<u8>,
    pub(crate) end: End,
}

impl Heard {
    /// Whether the other side said all it wanted to.
    pub(crate) fn is_whole(&self) -> bool {
        self.end == End::Closed
    }
}

/// How it ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    Closed,
    /// The other side had not read all of it when it hung up.
    Reset,
    /// Nobody waited any longer.
    Impatience,
}

/// The one that is open.
pub(crate) fn rig() -> &'static Rig {
    static OPEN: OnceLock<Rig> = OnceLock::new();
    OPEN.get_or_init(|| Rig::start(Vec::new()))
}

/// The one that knows two tokens: `all` may do everything, `few` may look at names from `f` on.
pub(crate) fn guarded() -> &'static Rig {
    static GUARDED: OnceLock<Rig> = OnceLock::new();
    let entry = |hash: &str, names: &str, may: &[Verb]| {
        let names = names.parse().expect("a pattern");
        Access::new(hash.parse().expect("a hash"), [names], may.iter().copied())
    };
    GUARDED.get_or_init(|| {
        Rig::start(vec![
            entry(OF_ALL, "*", &[Verb::Acquire, Verb::Read, Verb::Admin]),
            entry(OF_FEW, "f*", &[Verb::Read]),
        ])
    })
}

impl Rig {
    fn start(access: Vec<Access>) -> Self {
        panics::listen();
        // To write to a connection that was closed is an error in a program of ours, and the end
        // of one whose `main` is not Rust's, as libFuzzer's.
        signal_hook::flag::register(SIGPIPE, Arc::default()).expect("it can be caught");
        let socket = TcpListener::bind("127.0.0.1:0").expect("a port");
        let peers = socket.local_addr().expect("bound");
        let mut config = Config::new(CELL, 1)
            .peer(1, peers.to_string())
            .max_lease(MAX_LEASE)
            .ephemeral()
            .shards(1);
        config.listen.clients = Some("127.0.0.1:0".to_owned());
        config.listen.http = Some("127.0.0.1:0".to_owned());
        config.limits.leases = 1000;
        config.access = access;
        config.listen.peers_out_of_reach = true;
        let server = Server::start_on(config, Some(socket)).expect("starts");
        paxoslease::block_on(server.node().ready()).expect("it is its own majority");
        let clients = server.clients().expect("listens");
        let http = server.http().expect("listens");
        Self { _server: server, clients, http, peers }
    }
}

/// Whether the daemons still serve: whatever their ports were given must not have harmed them.
#[must_use]
pub fn is_served() -> bool {
    [rig(), guarded()].iter().all(|rig| {
        let pong = converse(rig.clients, b"PING\r\n", true, PATIENCE);
        pong.bytes == b"+PONG\r\n"
    })
}

/// Says all of it, and hears what comes back while there is patience for the next of it. `ends`
/// says no more then.
///
/// # Panics
/// When anything in this process did.
pub(crate) fn converse(address: SocketAddr, bytes: &[u8], ends: bool, patience: Duration) -> Heard {
    let mut socket = TcpStream::connect(address).expect("it listens");
    socket.set_nodelay(true).expect("an option of every socket");
    socket.set_read_timeout(Some(patience)).expect("not zero");
    socket.set_write_timeout(Some(patience)).expect("not zero");
    // Who is sent away in the middle of a sentence cannot finish it.
    let _sent_away = socket.write_all(bytes);
    if ends {
        let _sent_away = socket.shutdown(Shutdown::Write);
    }
    let mut heard = Vec::new();
    let end = match socket.read_to_end(&mut heard) {
        Ok(_) => End::Closed,
        Err(error) => match error.kind() {
            ErrorKind::ConnectionReset => End::Reset,
            ErrorKind::WouldBlock | ErrorKind::TimedOut => End::Impatience,
            _ => panic!("loopback broke: {error}"),
        },
    };
    panics::check();
    Heard { bytes: heard, end }
}
