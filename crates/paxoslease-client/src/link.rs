//! Connections: dialling a node, greeting it, and talking to it where one question follows the
//! other. What is asked and what it means is for others.

use std::cell::RefCell;
use std::io;
use std::time::Duration;

use paxoslease_wire::resp::{RespError, Value};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::builder::Builder;
use crate::engine::speech::{Greeting, Refusal, put_hello};
use crate::error::AskError;

/// How much is read at once.
const READ_LEN: usize = 64 * 1024;

/// Dials nodes, and sees to it that they are of one cell.
#[derive(Debug)]
pub(crate) struct Dialler {
    pub(crate) config: Builder,
    /// The cell of the first node that was greeted. Leases of two cells exclude nobody, so a list
    /// of endpoints that mixes them must not go unnoticed.
    cell: RefCell<Option<String>>,
}

/// Why a connection is over.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LinkError {
    #[error("the connection was closed")]
    Closed,
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("it does not speak RESP: {0}")]
    Resp(#[from] RespError),
    #[error("no answer in time")]
    Timeout,
    #[error("{0}")]
    Refused(AskError),
}

impl LinkError {
    /// The other end went away, and said nothing about it.
    fn is_silence(&self) -> bool {
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

    /// Connects and greets, all within the connect timeout.
    pub(crate) async fn dial(&self, endpoint: &str) -> Result<(Link, Greeting), AskError> {
        self.dial_within(endpoint, self.config.connect_timeout).await
    }

    /// As [`Self::dial`], for at most so long.
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
            Err(LinkError::Refused(error)) => return Err(error),
            Err(error) if error.is_silence() => {
                "it closed the connection without a greeting, as a port for peers does".to_owned()
            }
            Err(error) => error.to_string(),
        };
        Err(AskError::Unreachable { endpoints: vec![endpoint.to_owned()], problem: error })
    }

    async fn greet(&self, endpoint: &str) -> Result<(Link, Greeting), LinkError> {
        let stream = TcpStream::connect(endpoint).await?;
        stream.set_nodelay(true)?;
        let mut link = Link { stream, inbox: Vec::new() };
        let mut out = Vec::new();
        let Builder { token, name, .. } = &self.config;
        let (before, after) = put_hello(&mut out, token.as_deref(), name.as_deref());
        link.send(&out).await?;
        for _ in 0..before {
            link.receive(check_auth).await??;
        }
        let greeting = link.receive(Greeting::new).await?.map_err(LinkError::Refused)?;
        for _ in 0..after {
            // A node that does not want to know our name is good enough.
            link.receive(|_| ()).await?;
        }
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

/// A node that asks for no token refuses one with a word of its own, and goes on.
fn check_auth(reply: Value<'_>) -> Result<(), LinkError> {
    let Value::Error(text) = reply else { return Ok(()) };
    match Refusal::new(text) {
        Refusal::Final(error @ AskError::Denied(_)) => Err(LinkError::Refused(error)),
        _ => Ok(()),
    }
}

/// A connection that was made.
#[derive(Debug)]
pub(crate) struct Link {
    stream: TcpStream,
    /// What was received and not used yet.
    inbox: Vec<u8>,
}

impl Link {
    /// Sends all of it.
    pub(crate) async fn send(&mut self, mut bytes: &[u8]) -> Result<(), LinkError> {
        while !bytes.is_empty() {
            self.stream.writable().await?;
            match self.stream.try_write(bytes) {
                Ok(sent) => bytes = &bytes[sent..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Sends what there is room for, and removes it.
    pub(crate) fn flush(&mut self, out: &mut Vec<u8>) -> Result<(), LinkError> {
        while !out.is_empty() {
            match self.stream.try_write(out) {
                Ok(sent) => drop(out.drain(..sent)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Waits until something can be received, or sent if that is wanted. Cancel-safe.
    pub(crate) async fn ready(&self, to_send: bool) -> Result<(), LinkError> {
        let mut interest = tokio::io::Interest::READABLE;
        if to_send {
            interest |= tokio::io::Interest::WRITABLE;
        }
        self.stream.ready(interest).await?;
        Ok(())
    }

    /// Takes in what is there, and lets `use_up` say how much of all that is unused it used.
    pub(crate) fn take_in(
        &mut self,
        use_up: impl FnOnce(&[u8]) -> Result<usize, RespError>,
    ) -> Result<(), LinkError> {
        self.inbox.reserve(READ_LEN);
        match self.stream.try_read_buf(&mut self.inbox) {
            Ok(0) => return Err(LinkError::Closed),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        let used = use_up(&self.inbox)?;
        self.inbox.drain(..used);
        Ok(())
    }

    /// The next value, whatever it answers. Cancel-safe.
    pub(crate) async fn receive<T>(
        &mut self,
        read: impl FnOnce(Value<'_>) -> T,
    ) -> Result<T, LinkError> {
        loop {
            if let Some((value, len)) = Value::parse(&self.inbox)? {
                let read = read(value);
                self.inbox.drain(..len);
                return Ok(read);
            }
            self.stream.readable().await?;
            self.take_in(|_| Ok(0))?;
        }
    }

    /// As [`Self::receive`], for at most so long.
    pub(crate) async fn receive_within<T>(
        &mut self,
        span: Duration,
        read: impl FnOnce(Value<'_>) -> T,
    ) -> Result<T, LinkError> {
        timeout(span, self.receive(read)).await.unwrap_or(Err(LinkError::Timeout))
    }
}
