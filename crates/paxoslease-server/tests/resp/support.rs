//! A client that says exactly what it is told to.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use paxoslease_wire::resp::{Protocol, Value, put_command};

#[path = "../cell/mod.rs"]
mod cell;

pub(crate) use cell::Cell;

/// How long a test waits for what must come. Never what it waits for.
const PATIENCE: Duration = Duration::from_secs(30);
/// A server that takes nothing for this long does not listen.
const STUCK_AFTER: Duration = Duration::from_secs(1);

impl Cell {
    /// A client of one of them.
    pub(crate) fn client(&self, node: usize) -> Client {
        Client::connect(self.address(node))
    }

    /// As [`Self::client`], in the second version of the protocol.
    pub(crate) fn client3(&self, node: usize) -> Client {
        let mut client = self.client(node);
        assert!(matches!(client.ask(&["HELLO", "3"]), Reply::Map(_)));
        client
    }
}

/// A reply, owned.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Reply {
    Simple(String),
    Error(String),
    Integer(i64),
    Bulk(String),
    Null,
    Boolean(bool),
    Array(Vec<Reply>),
    Map(Vec<(Reply, Reply)>),
    Push(Vec<Reply>),
}

impl Reply {
    fn of(value: Value<'_>) -> Self {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
        match value {
            Value::Simple(bytes) => Self::Simple(text(bytes)),
            Value::Error(bytes) => Self::Error(text(bytes)),
            Value::Integer(number) => Self::Integer(number),
            Value::Bulk(bytes) => Self::Bulk(text(bytes)),
            Value::Null => Self::Null,
            Value::Boolean(yes) => Self::Boolean(yes),
            Value::Array(items) => Self::Array(items.map(Self::of).collect()),
            Value::Push(items) => Self::Push(items.map(Self::of).collect()),
            Value::Map(items) => Self::Map(
                items.pairs().map(|(key, value)| (Self::of(key), Self::of(value))).collect(),
            ),
            other => panic!("no daemon says {other:?}"),
        }
    }

    pub(crate) fn bulk(text: &str) -> Self {
        Self::Bulk(text.to_owned())
    }

    pub(crate) fn ok() -> Self {
        Self::Simple("OK".to_owned())
    }

    /// The items of an array or a push.
    pub(crate) fn items(&self) -> &[Self] {
        match self {
            Self::Array(items) | Self::Push(items) => items,
            other => panic!("{other:?} has no items"),
        }
    }

    pub(crate) fn integer(&self) -> i64 {
        let Self::Integer(number) = self else { panic!("{self:?} is no number") };
        *number
    }

    pub(crate) fn error(&self) -> &str {
        let Self::Error(text) = self else { panic!("{self:?} is no error") };
        text
    }

    /// What a map, or the array in its place, has under this key.
    pub(crate) fn field(&self, name: &str) -> &Self {
        let found = match self {
            Self::Map(pairs) => pairs.iter().find(|(key, _)| *key == Self::bulk(name)),
            other => {
                let place = other.items().chunks(2).position(|pair| pair[0] == Self::bulk(name));
                return place.map_or_else(
                    || panic!("{self:?} lacks {name}"),
                    |place| &other.items()[place * 2 + 1],
                );
            }
        };
        found.map_or_else(|| panic!("{self:?} lacks {name}"), |(_, value)| value)
    }

    /// The fence of a grant.
    pub(crate) fn fence(&self) -> i64 {
        self.items()[0].integer()
    }
}

pub(crate) struct Client {
    socket: TcpStream,
    unread: Vec<u8>,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let socket = TcpStream::connect(address).expect("connects");
        socket.set_nodelay(true).expect("an option of every socket");
        socket.set_read_timeout(Some(PATIENCE)).expect("not zero");
        Self { socket, unread: Vec::new() }
    }

    /// Another handle of the same connection, to write while this one reads.
    pub(crate) fn another_handle(&self) -> Self {
        Self { socket: self.socket.try_clone().expect("a handle"), unread: Vec::new() }
    }

    pub(crate) fn local_address(&self) -> String {
        self.socket.local_addr().expect("connected").to_string()
    }

    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).expect("sends");
    }

    /// Sends until nothing was taken for a while; says how much was.
    pub(crate) fn send_until_stuck(&mut self, bytes: &[u8]) -> usize {
        self.socket.set_write_timeout(Some(STUCK_AFTER)).expect("not zero");
        let mut said = 0;
        while said < bytes.len() {
            match self.socket.write(&bytes[said..]) {
                Ok(len) => said += len,
                Err(error)
                    if [ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&error.kind()) =>
                {
                    break;
                }
                Err(error) => panic!("sends: {error}"),
            }
        }
        self.socket.set_write_timeout(None).expect("an option of every socket");
        said
    }

    pub(crate) fn send(&mut self, command: &[&str]) {
        let args: Vec<&[u8]> = command.iter().map(|arg| arg.as_bytes()).collect();
        let mut bytes = Vec::new();
        put_command(&mut bytes, &args);
        self.send_bytes(&bytes);
    }

    /// What comes next; `None` at the end of the connection.
    pub(crate) fn next(&mut self) -> Option<Reply> {
        loop {
            if let Some((value, consumed)) = Value::parse(&self.unread).expect("sound") {
                let reply = Reply::of(value);
                self.unread.drain(..consumed);
                return Some(reply);
            }
            let mut bytes = [0; 64 * 1024];
            match self.socket.read(&mut bytes) {
                Ok(0) => return None,
                Ok(len) => self.unread.extend_from_slice(&bytes[..len]),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("nothing came: {error}"),
            }
        }
    }

    pub(crate) fn expect(&mut self) -> Reply {
        self.next().expect("the connection goes on")
    }

    pub(crate) fn ask(&mut self, command: &[&str]) -> Reply {
        self.send(command);
        self.expect()
    }

    /// The next push, if nothing else comes first.
    pub(crate) fn expect_push(&mut self) -> Vec<Reply> {
        match self.expect() {
            Reply::Push(items) => items,
            other => panic!("expected a push, not {other:?}"),
        }
    }

    /// Acquires what must be free, and says its fence.
    pub(crate) fn acquire(&mut self, name: &str, ttl_ms: u64) -> i64 {
        self.ask(&["LEASE.ACQUIRE", name, &ttl_ms.to_string()]).fence()
    }

    /// Says no more, but listens.
    pub(crate) fn close_own_side(&self) {
        self.socket.shutdown(Shutdown::Write).expect("connected");
    }

    /// Whether the other side has closed the connection.
    pub(crate) fn is_closed(&mut self) -> bool {
        self.next().is_none()
    }
}

/// Both versions.
pub(crate) const PROTOCOLS: [Protocol; 2] = [Protocol::Resp2, Protocol::Resp3];
