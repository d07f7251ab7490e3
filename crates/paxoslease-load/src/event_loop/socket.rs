//! One connection with or without TLS: dials, reads into a buffer that is reused, and writes.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::SocketAddr;
use std::time::Duration;

use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use paxoslease_tls::{flush, receive};
use rustls::{ClientConnection, Connection};

/// More than any reply to this load takes.
const BUFFER_LEN: usize = 64 * 1024;

#[derive(Debug, Default)]
pub(super) struct Socket {
    stream: Option<TcpStream>,
    tls: Option<Box<Connection>>,
    /// Until when a connection must come about; `None` once it has.
    pub(super) dial_ends_at: Option<Duration>,
    /// The end of the pause before the next attempt.
    redial_at: Option<Duration>,
    /// The addresses in order; the first is the current one.
    pub(super) candidates: VecDeque<usize>,
    /// Failed connections in a row.
    pub(super) failures: usize,
    buffer: Box<[u8]>,
    /// The filled part of the buffer.
    len: usize,
}

/// How much of the received bytes was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ReadResult {
    All,
    /// The buffer is full, and there may be more.
    Full,
}

impl Socket {
    pub(super) fn new(candidates: VecDeque<usize>) -> Self {
        let buffer = vec![0; BUFFER_LEN].into_boxed_slice();
        Self { candidates, buffer, ..Self::default() }
    }

    /// The index of the current address.
    pub(super) fn candidate(&self) -> usize {
        self.candidates[0]
    }

    /// Closes the connection and sets the time of the next attempt.
    pub(super) fn rest_until(&mut self, at: Duration) {
        (self.stream, self.tls, self.dial_ends_at) = (None, None, None);
        self.redial_at = Some(at);
    }

    pub(super) fn is_rested(&self, now: Duration) -> bool {
        self.redial_at.is_some_and(|at| at <= now)
    }

    /// When this connection needs attention without an event.
    pub(super) fn wake_at(&self) -> Option<Duration> {
        self.redial_at.or(self.dial_ends_at)
    }

    /// Begins a connection, with TLS if given. Closes the previous one.
    pub(super) fn dial(
        &mut self,
        address: SocketAddr,
        tls: Option<ClientConnection>,
        registry: &Registry,
        token: Token,
        ends_at: Duration,
    ) -> io::Result<()> {
        (self.len, self.redial_at) = (0, None);
        self.dial_ends_at = Some(ends_at);
        self.tls = tls.map(|tls| Box::new(tls.into()));
        let stream = self.stream.insert(TcpStream::connect(address)?);
        registry.register(stream, token, Interest::READABLE | Interest::WRITABLE)
    }

    /// Whether the connection attempt has succeeded.
    pub(super) fn connected(&mut self) -> io::Result<bool> {
        let Some(stream) = &self.stream else { return Ok(false) };
        if let Some(error) = stream.take_error()? {
            return Err(error);
        }
        match stream.peer_addr() {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotConnected => return Ok(false),
            Err(error) => return Err(error),
        }
        stream.set_nodelay(true)?;
        self.dial_ends_at = None;
        Ok(true)
    }

    /// Reads once. The end of the stream is an error.
    pub(super) fn read(&mut self) -> io::Result<ReadResult> {
        let Some(stream) = self.stream.as_mut().filter(|_| self.dial_ends_at.is_none()) else {
            return Ok(ReadResult::All);
        };
        let room = &mut self.buffer[self.len..];
        let read = match &mut self.tls {
            None => stream.read(room),
            Some(tls) => decrypt(tls, stream, room),
        };
        match read {
            Ok(0) => Err(io::Error::new(ErrorKind::UnexpectedEof, "the connection was closed")),
            Ok(len) => {
                let is_full = len == room.len();
                self.len += len;
                Ok(if is_full { ReadResult::Full } else { ReadResult::All })
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(ReadResult::All),
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(ReadResult::Full),
            Err(error) => Err(error),
        }
    }

    /// The bytes that were read and not consumed.
    pub(super) fn input(&self) -> &[u8] {
        &self.buffer[..self.len]
    }

    pub(super) fn consume(&mut self, len: usize) {
        self.buffer.copy_within(len..self.len, 0);
        self.len -= len;
    }

    /// Writes once, and removes what was written. The rest waits until the socket is writable.
    pub(super) fn write(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        let Some(stream) = self.stream.as_mut().filter(|_| self.dial_ends_at.is_none()) else {
            return Ok(());
        };
        if let Some(tls) = &mut self.tls {
            return encrypt(tls, stream, out);
        }
        while !out.is_empty() {
            match stream.write(out) {
                Ok(len) if len == out.len() => out.clear(),
                // The socket is full; the rest waits until it is writable.
                Ok(len) => {
                    out.drain(..len);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Fills the room as far as the socket allows, and sends what the handshake asks for.
fn decrypt(tls: &mut Connection, stream: &mut TcpStream, room: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    loop {
        match tls.reader().read(&mut room[filled..]) {
            // The buffer is full, or the other side sent close_notify.
            Ok(0) => return Ok(filled),
            Ok(len) => {
                filled += len;
                continue;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            // Closed without close_notify.
            Err(_) => return Ok(filled),
        }
        match receive(tls, stream) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock && filled > 0 => return Ok(filled),
            Err(error) => return Err(error),
        }
        flush(tls, stream)?;
    }
}

/// Takes as much as rustls keeps, and sends as much as the socket takes.
fn encrypt(tls: &mut Connection, stream: &mut TcpStream, out: &mut Vec<u8>) -> io::Result<()> {
    loop {
        let taken = tls.writer().write(out)?;
        out.drain(..taken);
        flush(tls, stream)?;
        if out.is_empty() || taken == 0 {
            return Ok(());
        }
    }
}
