//! One daemon, its certificate, and clients that speak TLS or do not.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use paxoslease_node::Tls;
use paxoslease_server::{Access, Config, Server, TokenHash, Verb};
use paxoslease_tls::Authority;
use paxoslease_wire::resp::{Value, put_command};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use sha2::{Digest as _, Sha256};

/// How long a test waits for what must come. Never what it waits for.
const PATIENCE: Duration = Duration::from_secs(30);

/// A daemon that is a whole cell.
pub(crate) fn daemon(with: impl FnOnce(&mut Config)) -> Server {
    let node = paxoslease_node::Config::new("test", 1).peer(1, "127.0.0.1:7401").listen("off");
    let mut config = Config::new(node.ephemeral().shards(2)).listen("127.0.0.1:0", "127.0.0.1:0");
    with(&mut config);
    let server = Server::start(config).expect("starts");
    paxoslease_node::block_on(server.node().ready()).expect("it is its own majority");
    server
}

pub(crate) fn entry(token: &str, names: &[&str], may: &[Verb]) -> Access {
    let names = names.iter().map(|name| name.parse().expect("a pattern"));
    let hash = TokenHash::new(Sha256::digest(token).into());
    let mut entry = Access::new(hash, names, may.iter().copied());
    entry.name = Some(format!("{token}'s"));
    entry
}

/// `jobs` may do everything under `jobs/`, `reader` may look there, `ops` may look after the cell
/// and look at everything.
pub(crate) fn three_tokens() -> Vec<Access> {
    vec![
        entry("jobs", &["jobs/*"], &[Verb::Acquire, Verb::Read]),
        entry("reader", &["jobs/*"], &[Verb::Read]),
        entry("ops", &["*"], &[Verb::Admin, Verb::Read]),
    ]
}

/// A daemon with [`three_tokens`].
pub(crate) fn guarded() -> Server {
    daemon(|config| config.access = three_tokens())
}

/// What is published now of the series that begin like this.
pub(crate) fn metric(server: &Server, connect: impl Fn(SocketAddr) -> Wire, series: &str) -> f64 {
    let wire = connect(server.http().expect("listens"));
    let (status, page) = ask_http(wire, "GET /metrics", Some("ops"), None);
    assert_eq!(status, 200, "{page}");
    let lines = page.lines().filter(|line| line.starts_with(series));
    let values = lines.filter_map(|line| line.rsplit_once(' '));
    values.map(|(_, value)| value.parse::<f64>().expect("a number")).sum()
}

/// Waits until [`metric`] is at least so much.
pub(crate) fn wait_for_metric(
    server: &Server,
    connect: impl Fn(SocketAddr) -> Wire,
    series: &str,
    least: f64,
) {
    while metric(server, &connect, series) < least {
        std::thread::yield_now();
    }
}

/// Files for node 1 on loopback, written anew.
pub(crate) fn files(authority: &Authority) -> Tls {
    let [cert, key, ca] = authority.files(&["node-1.test.paxoslease", "127.0.0.1"], |_| {});
    Tls::new(cert, key, ca)
}

trait Duplex: Read + Write {}
impl<T: Read + Write> Duplex for T {}

/// One end of a connection.
pub(crate) struct Wire(Box<dyn Duplex>);

impl Wire {
    pub(crate) fn plain(address: SocketAddr) -> Self {
        Self(Box::new(connect(address)))
    }

    /// Speaks TLS as soon as something is said.
    pub(crate) fn tls(address: SocketAddr, config: &Arc<ClientConfig>) -> Self {
        let name = ServerName::from(address.ip());
        let connection = ClientConnection::new(Arc::clone(config), name).expect("a client");
        Self(Box::new(StreamOwned::new(connection, connect(address))))
    }
}

pub(crate) fn connect(address: SocketAddr) -> TcpStream {
    let socket = TcpStream::connect(address).expect("connects");
    socket.set_read_timeout(Some(PATIENCE)).expect("not zero");
    socket
}

impl Read for Wire {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.read(into)
    }
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// A client that speaks RESP. Replies are shown as texts.
pub(crate) struct Client {
    wire: Wire,
    unread: Vec<u8>,
}

impl Client {
    pub(crate) const fn over(wire: Wire) -> Self {
        Self { wire, unread: Vec::new() }
    }

    pub(crate) fn of(server: &Server) -> Self {
        Self::over(Wire::plain(server.clients().expect("listens")))
    }

    /// As [`Self::of`], with a token.
    pub(crate) fn with(server: &Server, token: &str) -> Self {
        let mut client = Self::of(server);
        assert_eq!(client.ask(&format!("AUTH {token}")), "OK");
        client
    }

    pub(crate) fn send(&mut self, command: &str) -> io::Result<()> {
        let args: Vec<&[u8]> = command.split(' ').map(str::as_bytes).collect();
        let mut bytes = Vec::new();
        put_command(&mut bytes, &args);
        self.wire.write_all(&bytes)?;
        self.wire.flush()
    }

    /// What comes next, or how the connection ended.
    pub(crate) fn next(&mut self) -> io::Result<String> {
        loop {
            if let Some((value, consumed)) = Value::parse(&self.unread).expect("sound") {
                let shown = show(value);
                self.unread.drain(..consumed);
                return Ok(shown);
            }
            let mut bytes = [0; 64 * 1024];
            match self.wire.read(&mut bytes)? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                len => self.unread.extend_from_slice(&bytes[..len]),
            }
        }
    }

    /// Waits until the daemon has closed the connection. A daemon that only keeps silent fails.
    pub(crate) fn is_hung_up_on(&mut self) {
        let end = self.next().expect_err("nothing follows").kind();
        assert!(matches!(end, ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset), "{end}");
    }

    pub(crate) fn try_ask(&mut self, command: &str) -> io::Result<String> {
        self.send(command)?;
        self.next()
    }

    pub(crate) fn ask(&mut self, command: &str) -> String {
        self.try_ask(command).expect("the connection goes on")
    }

    /// Acquires what must be free, and says its fence.
    pub(crate) fn acquire(&mut self, name: &str) -> String {
        let granted = self.ask(&format!("LEASE.ACQUIRE {name} 15000"));
        let fence = granted.trim_start_matches('[').split(' ').next().expect("a fence").to_owned();
        assert!(fence.parse::<u64>().is_ok(), "{granted}");
        fence
    }
}

fn show(value: Value<'_>) -> String {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
    match value {
        Value::Simple(bytes) | Value::Error(bytes) | Value::Bulk(bytes) => text(bytes),
        Value::Integer(number) => number.to_string(),
        Value::Null => "nil".to_owned(),
        Value::Boolean(yes) => yes.to_string(),
        Value::Array(items) | Value::Push(items) => {
            format!("[{}]", items.map(show).collect::<Vec<_>>().join(" "))
        }
        Value::Map(items) => {
            let shown = items.pairs().map(|(key, value)| format!("{}:{}", show(key), show(value)));
            format!("{{{}}}", shown.collect::<Vec<_>>().join(" "))
        }
        other => panic!("no daemon says {other:?}"),
    }
}

/// Sends one request, with a token perhaps: status, then head and body.
pub(crate) fn ask_http(
    mut wire: Wire,
    what: &str,
    token: Option<&str>,
    body: Option<&str>,
) -> (u16, String) {
    let authorization =
        token.map(|token| format!("authorization: Bearer {token}\r\n")).unwrap_or_default();
    let body = body.unwrap_or_default();
    let len = body.len();
    let request = format!(
        "{what} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {len}\r\n{authorization}\r\n{body}"
    );
    wire.write_all(request.as_bytes()).expect("sends");
    wire.flush().expect("sends");
    let mut reply = Vec::new();
    // A daemon that closes a connection in TLS says so; in clear, what follows may cut it off.
    let _end = wire.read_to_end(&mut reply);
    let reply = String::from_utf8(reply).expect("text");
    let status = reply.split(' ').nth(1).and_then(|status| status.parse().ok());
    (status.unwrap_or_else(|| panic!("no status in {reply:?}")), reply)
}
