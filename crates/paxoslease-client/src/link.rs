//! Connections: dials a node, reads its greeting, and sends and receives RESP values. Their
//! meaning is in `engine::protocol`.

mod stream;

use std::cell::RefCell;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use paxoslease_wire::resp::{RespError, Value};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::builder::Builder;
use crate::engine::protocol::{Greeting, Refusal, put_hello};
use crate::tls::Tls;
use paxoslease_holder::AskError;
use stream::{Stream, TlsStream};

/// How a port with TLS answers a client without it: a node with this error, others with an alert.
const SPEAKS_TLS: &[u8] = b"ERR this port requires TLS";
const TLS_ALERT: &[u8] = &[21, 3];

/// How many bytes one read takes at most.
const READ_LEN: usize = 64 * 1024;

/// Dials nodes, and checks that they are of one cell.
#[derive(Debug)]
pub(crate) struct Dialler {
    pub(crate) config: Builder,
    /// The cell of the first node. Leases of two cells do not exclude each other, so the client
    /// refuses endpoints of different cells.
    cell: RefCell<Option<String>>,
}

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LinkError {
    #[error("the connection was closed")]
    Closed,
    #[error("{0}")]
    Io(io::Error),
    #[error("{0}")]
    Tls(String),
    #[error("it requires TLS on this port")]
    TlsRequired,
    #[error("without TLS others could read the token")]
    TokenInClear,
    #[error("the reply is not valid RESP: {0}")]
    Resp(#[from] RespError),
    #[error("no answer in time")]
    Timeout,
    #[error("{0}")]
    Refused(AskError),
}

impl From<io::Error> for LinkError {
    fn from(error: io::Error) -> Self {
        match Tls::explain(&error) {
            Some(problem) => Self::Tls(problem),
            None => Self::Io(error),
        }
    }
}

impl LinkError {
    /// Whether the other end closed the connection without an error message.
    fn is_silent_close(&self) -> bool {
        match self {
            Self::Closed => true,
            Self::Io(error) => error.kind() == io::ErrorKind::ConnectionReset,
            _ => false,
        }
    }
}

impl Dialler {
    pub(crate) const fn new(config: Builder) -> Self {
        Self { config, cell: RefCell::new(None) }
    }

    /// Connects and reads the greeting, within the connect timeout.
    pub(crate) async fn dial(&self, endpoint: &str) -> Result<(Link, Greeting), AskError> {
        self.dial_within(endpoint, self.config.connect_timeout).await
    }

    /// Like [`Self::dial`], with this timeout.
    pub(crate) async fn dial_within(
        &self,
        endpoint: &str,
        span: Duration,
    ) -> Result<(Link, Greeting), AskError> {
        let dialled = timeout(span, self.greet(endpoint)).await;
        let error = match dialled.unwrap_or(Err(LinkError::Timeout)) {
            Ok((link, greeting)) => match self.check_cell(&greeting) {
                Ok(()) => return Ok((link, greeting)),
                Err(problem) => problem,
            },
            Err(LinkError::Refused(AskError::Protocol(what))) => {
                return Err(AskError::Protocol(format!("{endpoint}: {what}")));
            }
            Err(LinkError::Resp(error)) => {
                return Err(AskError::Protocol(format!("{endpoint}: {error}")));
            }
            Err(LinkError::Tls(problem)) => {
                return Err(AskError::Tls { endpoint: endpoint.to_owned(), problem });
            }
            Err(LinkError::TlsRequired) => {
                return Err(AskError::TlsRequired { endpoint: endpoint.to_owned() });
            }
            Err(LinkError::TokenInClear) => {
                return Err(AskError::TokenInClear { endpoint: endpoint.to_owned() });
            }
            Err(LinkError::Refused(error)) => return Err(error),
            Err(error) if error.is_silent_close() => {
                "it closed the connection without a greeting; a port for peers does so, and a \
                 port that requires TLS"
                    .to_owned()
            }
            Err(error) => error.to_string(),
        };
        Err(AskError::Unreachable { endpoints: vec![endpoint.to_owned()], problem: error })
    }

    async fn greet(&self, endpoint: &str) -> Result<(Link, Greeting), LinkError> {
        let stream = TcpStream::connect(endpoint).await?;
        stream.set_nodelay(true)?;
        let Builder { token, name, tls, token_in_clear, .. } = &self.config;
        let stream = match tls {
            Some(tls) => {
                let conn = tls.connection(endpoint).map_err(LinkError::Tls)?;
                Stream::Tls(Box::new(TlsStream::begin(conn, stream).await?))
            }
            None if token.is_some() && !token_in_clear && is_exposed(stream.peer_addr()?) => {
                return Err(LinkError::TokenInClear);
            }
            None => Stream::Plain(stream),
        };
        let mut link = Link { stream, inbox: Vec::new() };
        let mut out = Vec::new();
        let mut handshake = Handshake::begin(&mut out, token.as_deref(), name.as_deref());
        link.send(&out).await?;
        let greeting = loop {
            if let Some(greeting) = link.reply(|reply| handshake.reply(reply)).await?? {
                break greeting;
            }
        };
        Ok((link, greeting))
    }

    fn check_cell(&self, greeting: &Greeting) -> Result<(), String> {
        let mut cell = self.cell.borrow_mut();
        let cell = cell.get_or_insert_with(|| greeting.cell.clone());
        if *cell == greeting.cell {
            return Ok(());
        }
        Err(format!("it is of the cell {:?}, others are of {cell:?}", greeting.cell))
    }
}

/// Whether others could read unencrypted bytes on their way to this address.
fn is_exposed(address: SocketAddr) -> bool {
    !address.ip().to_canonical().is_loopback()
}

/// Fails if the node requires TLS.
fn check_clear(reply: Value<'_>) -> Result<(), LinkError> {
    match reply {
        Value::Error(text) if text.starts_with(SPEAKS_TLS) => Err(LinkError::TlsRequired),
        _ => Ok(()),
    }
}

/// A node without tokens answers AUTH with another error, and serves the client all the same.
fn check_auth(reply: Value<'_>) -> Result<(), LinkError> {
    check_clear(reply)?;
    let Value::Error(text) = reply else { return Ok(()) };
    match Refusal::new(text) {
        Refusal::Final(error @ (AskError::Unauthenticated(_) | AskError::Denied(_))) => {
            Err(LinkError::Refused(error))
        }
        _ => Ok(()),
    }
}

/// The first requests on a connection, and the replies to them.
#[derive(Debug)]
pub(crate) struct Handshake {
    /// Whether the reply to AUTH comes next.
    awaits_auth: bool,
    has_name: bool,
    /// The greeting of a node that has not yet replied to the client's name.
    greeting: Option<Greeting>,
}

impl Handshake {
    /// Puts the first requests out.
    pub(crate) fn begin(out: &mut Vec<u8>, token: Option<&str>, name: Option<&str>) -> Self {
        put_hello(out, token, name);
        Self { awaits_auth: token.is_some(), has_name: name.is_some(), greeting: None }
    }

    /// Takes the next reply. Returns the greeting with the last one.
    pub(crate) fn reply(&mut self, reply: Value<'_>) -> Result<Option<Greeting>, LinkError> {
        if std::mem::take(&mut self.awaits_auth) {
            return check_auth(reply).map(|()| None);
        }
        if let Some(greeting) = self.greeting.take() {
            // The client does not depend on its name, so it ignores an error.
            return Ok(Some(greeting));
        }
        check_clear(reply)?;
        let greeting = Greeting::new(reply).map_err(LinkError::Refused)?;
        Ok(if self.has_name {
            self.greeting = Some(greeting);
            None
        } else {
            Some(greeting)
        })
    }
}

pub(crate) struct Link {
    stream: Stream,
    /// Received bytes that are not used yet.
    inbox: Vec<u8>,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").finish_non_exhaustive()
    }
}

impl Link {
    pub(crate) async fn send(&mut self, mut bytes: &[u8]) -> Result<(), LinkError> {
        while !bytes.is_empty() {
            match self.stream.write(bytes) {
                Ok(sent) => bytes = &bytes[sent..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.stream.writable().await?;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Sends as much as the socket takes, and removes it from `out`.
    pub(crate) fn flush(&mut self, out: &mut Vec<u8>) -> Result<(), LinkError> {
        while !out.is_empty() {
            match self.stream.write(out) {
                Ok(sent) => drop(out.drain(..sent)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(self.stream.flush()?)
    }

    /// Waits until the socket is readable, or writable if there are bytes to send. Cancel-safe.
    pub(crate) async fn ready(&self, to_send: bool) -> Result<(), LinkError> {
        Ok(self.stream.ready(to_send).await?)
    }

    /// Reads what has arrived. `use_up` gets all unused bytes, and returns how many it used.
    pub(crate) fn read_ready(
        &mut self,
        use_up: impl FnOnce(&[u8]) -> Result<usize, RespError>,
    ) -> Result<(), LinkError> {
        self.inbox.reserve(READ_LEN);
        match self.stream.read(&mut self.inbox) {
            Ok(0) => return Err(LinkError::Closed),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        let used = use_up(&self.inbox)?;
        self.inbox.drain(..used);
        Ok(())
    }

    /// Waits for the next value. Cancel-safe.
    pub(crate) async fn receive<T>(
        &mut self,
        read: impl FnOnce(Value<'_>) -> T,
    ) -> Result<T, LinkError> {
        loop {
            match Value::parse(&self.inbox) {
                Ok(Some((value, len))) => {
                    let read = read(value);
                    self.inbox.drain(..len);
                    return Ok(read);
                }
                Ok(None) => {}
                Err(_) if self.inbox.starts_with(TLS_ALERT) => return Err(LinkError::TlsRequired),
                Err(error) => return Err(error.into()),
            }
            self.stream.flush()?;
            self.stream.ready(false).await?;
            self.read_ready(|_| Ok(0))?;
        }
    }

    /// Waits for the next reply. Ignores pushes.
    pub(crate) async fn reply<T>(
        &mut self,
        read: impl FnOnce(Value<'_>) -> T,
    ) -> Result<T, LinkError> {
        let mut read = Some(read);
        loop {
            let reply = self.receive(|value| match value {
                Value::Push(_) => None,
                reply => read.take().map(|read| read(reply)),
            });
            if let Some(reply) = reply.await? {
                return Ok(reply);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_other_machines_are_exposed() {
        for (address, expected) in [
            ("127.0.0.1:7400", false),
            ("127.8.0.1:7400", false),
            ("[::1]:7400", false),
            ("[::ffff:127.0.0.1]:7400", false),
            ("10.0.0.1:7400", true),
            ("[fe80::1]:7400", true),
        ] {
            assert_eq!(is_exposed(address.parse().expect(address)), expected, "{address}");
        }
    }
}
