//! A client that speaks RESP and shows replies as texts.

use std::io::{self, ErrorKind, Read as _, Write as _};

use paxoslease_wire::resp::{Value, put_command};

use super::{Daemon, Wire};

pub(crate) struct Client {
    pub(crate) wire: Wire,
    unread: Vec<u8>,
}

impl Daemon {
    pub(crate) fn client(&self) -> Client {
        Client::over(Wire::connect(self.resp()))
    }

    /// A client that speaks RESP3.
    pub(crate) fn client3(&self) -> Client {
        let mut client = self.client();
        assert!(client.ask("HELLO 3").starts_with('{'));
        client
    }

    pub(crate) fn client_with(&self, token: &str) -> Client {
        let mut client = self.client();
        assert_eq!(client.ask(&format!("AUTH {token}")), "+OK");
        client
    }
}

impl Client {
    pub(crate) const fn over(wire: Wire) -> Self {
        Self { wire, unread: Vec::new() }
    }

    /// Another handle of the same connection, to write while this one reads.
    pub(crate) fn another_handle(&self) -> Self {
        Self::over(Wire::Clear(self.wire.socket().try_clone().expect("a handle")))
    }

    /// Sends a command. Its arguments are separated by spaces, and `""` is an empty one.
    pub(crate) fn send(&mut self, command: &str) {
        self.try_send(command).expect("sends");
    }

    fn try_send(&mut self, command: &str) -> io::Result<()> {
        let args = command.split(' ').map(|arg| if arg == "\"\"" { "" } else { arg }.as_bytes());
        let mut bytes = Vec::new();
        put_command(&mut bytes, &args.collect::<Vec<_>>());
        self.wire.write_all(&bytes)?;
        self.wire.flush()
    }

    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) {
        self.wire.write_all(bytes).expect("sends");
    }

    /// The next reply or push, or how the connection ended.
    pub(crate) fn try_next(&mut self) -> io::Result<String> {
        loop {
            if let Some((value, consumed)) = Value::parse(&self.unread).expect("valid RESP") {
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

    pub(crate) fn next(&mut self) -> String {
        self.try_next().expect("the connection stays open")
    }

    pub(crate) fn try_ask(&mut self, command: &str) -> io::Result<String> {
        self.try_send(command)?;
        self.try_next()
    }

    pub(crate) fn ask(&mut self, command: &str) -> String {
        self.send(command);
        self.next()
    }

    /// Acquires a free name for a minute, and returns the fence.
    pub(crate) fn acquire(&mut self, name: &str) -> u64 {
        fence(&self.ask(&format!("LEASE.ACQUIRE {name} 60000")))
    }

    /// Releases a lease that is held.
    pub(crate) fn release(&mut self, name: &str, fence: u64) {
        assert_eq!(self.ask(&format!("LEASE.RELEASE {name} {fence}")), ":1");
    }

    /// Waits until the daemon closes the connection. A daemon that is only silent fails the test.
    pub(crate) fn expect_close(&mut self) {
        let end = self.try_next().expect_err("nothing follows").kind();
        assert!(matches!(end, ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset), "{end}");
    }
}

/// The fence of a grant: the first number of the array or push.
pub(crate) fn fence(grant: &str) -> u64 {
    let words = grant.split([':', ' ', '[', ']']).filter(|_| !grant.starts_with('-'));
    let number = words.filter_map(|word| word.parse().ok()).next();
    number.unwrap_or_else(|| panic!("{grant} is not a grant"))
}

/// `+simple`, `-error`, `:1`, `bulk`, `nil`, `#true`, `[an array]`, `>[a push]`, `{a:map}`.
fn show(value: Value<'_>) -> String {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("UTF-8");
    let all = |items: Vec<String>| items.join(" ");
    match value {
        Value::Simple(bytes) => format!("+{}", text(bytes)),
        Value::Error(bytes) => format!("-{}", text(bytes)),
        Value::Bulk(bytes) => text(bytes),
        Value::Integer(number) => format!(":{number}"),
        Value::Null => "nil".to_owned(),
        Value::Boolean(yes) => format!("#{yes}"),
        Value::Array(items) => format!("[{}]", all(items.map(show).collect())),
        Value::Push(items) => format!(">[{}]", all(items.map(show).collect())),
        Value::Map(items) => {
            let shown = items.pairs().map(|(key, value)| format!("{}:{}", show(key), show(value)));
            format!("{{{}}}", all(shown.collect()))
        }
        other => panic!("no daemon sends {other:?}"),
    }
}
