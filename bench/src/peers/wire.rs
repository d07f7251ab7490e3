//! The sockets and the clock around a conversation: one thread, and nothing that blocks but the
//! wait for something to do.
//!
//! It turns as the product's load generator does, so that no peer has a slower client: one turn
//! per connection that is ready, which reads what it has, *then* the clock, lets the conversation
//! answer and writes once. A connection that breaks is dialled again, at its next address.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Registry, Token};

use paxoslease_rig::clock;

const BUFFER_LEN: usize = 64 * 1024;
/// Between two tries to connect, so that servers that are busy with an election can have one.
const REDIAL_AFTER: Duration = Duration::from_millis(5);
/// For how long nobody may say anything.
const PATIENCE: Duration = Duration::from_secs(30);
/// Somebody looks at the clock at least so often.
const TURN_MAX: Duration = Duration::from_millis(100);

/// The load without its sockets: bytes and the time go in, bytes come out.
pub(super) trait Conversation {
    /// A connection came about; what it begins with is to be sent.
    fn connected(&mut self, link: usize, now: Duration);

    /// A connection broke, and what was asked there will not be answered.
    fn lost(&mut self, link: usize, now: Duration);

    /// Bytes that came. Says how many of them were whole answers.
    fn received(&mut self, link: usize, bytes: &[u8], now: Duration) -> Result<usize>;

    /// Begins what is due.
    fn pump(&mut self, now: Duration) -> Result<()>;

    /// A link that has something to send, each once, and what; what was sent is to be taken out.
    fn next_pending(&mut self) -> Option<usize>;

    /// What a link has to send. What was sent is to be taken out.
    fn outgoing(&mut self, link: usize) -> &mut Vec<u8>;

    /// When to pump again, even if nothing comes.
    fn wake_at(&self) -> Option<Duration>;

    /// Whether it is all over.
    fn is_done(&self) -> bool;
}

/// Holds a conversation over as many connections as there are lists of addresses.
pub(super) fn converse(
    addresses: Vec<Vec<SocketAddr>>,
    conversation: &mut dyn Conversation,
) -> Result<()> {
    let poll = Poll::new()?;
    let sockets = addresses.into_iter().map(Socket::new).collect();
    let started_at = clock::now();
    let mut wire = Wire { poll, sockets, conversation, started_at, heard_at: Duration::ZERO };
    wire.run()
}

struct Wire<'a> {
    poll: Poll,
    sockets: Vec<Socket>,
    conversation: &'a mut dyn Conversation,
    started_at: Instant,
    heard_at: Duration,
}

impl Wire<'_> {
    fn run(&mut self) -> Result<()> {
        let mut events = Events::with_capacity(1024);
        loop {
            let now = self.now();
            self.dial_again(now);
            self.pump(now)?;
            if self.conversation.is_done() {
                return Ok(());
            }
            let silence = now.saturating_sub(self.heard_at);
            ensure!(silence < PATIENCE, "nobody has answered for {} s", silence.as_secs());
            self.wait(&mut events, now)?;
            for event in &events {
                let link = event.token().0;
                if event.is_writable() {
                    self.writable(link);
                }
                if event.is_readable() {
                    self.receive(link)?;
                }
            }
        }
    }

    fn now(&self) -> Duration {
        clock::now() - self.started_at
    }

    fn wait(&mut self, events: &mut Events, now: Duration) -> io::Result<()> {
        let redial_at = self.sockets.iter().filter_map(|socket| socket.redial_at).min();
        let due = [self.conversation.wake_at(), redial_at].into_iter().flatten().min();
        let span = due.map_or(TURN_MAX, |at| at.saturating_sub(now).min(TURN_MAX));
        match self.poll.poll(events, Some(span)) {
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
            waited => waited,
        }
    }

    fn receive(&mut self, link: usize) -> Result<()> {
        loop {
            let socket = &mut self.sockets[link];
            let Ok(is_full) = socket.read() else {
                self.lose(link);
                return Ok(());
            };
            let now = self.now();
            let socket = &mut self.sockets[link];
            let read = self.conversation.received(link, socket.input(), now)?;
            if read > 0 {
                self.heard_at = now;
            }
            socket.consume(read);
            self.pump(now)?;
            if !is_full {
                return Ok(());
            }
        }
    }

    fn pump(&mut self, now: Duration) -> Result<()> {
        self.conversation.pump(now)?;
        while let Some(link) = self.conversation.next_pending() {
            if self.sockets[link].write(self.conversation.outgoing(link)).is_err() {
                self.lose(link);
            }
        }
        Ok(())
    }

    /// A connection came about or did not, or one takes something again.
    fn writable(&mut self, link: usize) {
        let now = self.now();
        match self.sockets[link].connected() {
            Ok(true) => self.conversation.connected(link, now),
            Ok(false) => {}
            Err(_) => return self.lose(link),
        }
        if self.sockets[link].write(self.conversation.outgoing(link)).is_err() {
            self.lose(link);
        }
    }

    fn lose(&mut self, link: usize) {
        let now = self.now();
        let socket = &mut self.sockets[link];
        if socket.is_connected {
            self.conversation.lost(link, now);
        }
        socket.close(now + REDIAL_AFTER);
    }

    fn dial_again(&mut self, now: Duration) {
        for link in 0..self.sockets.len() {
            if self.sockets[link].redial_at.is_some_and(|at| at <= now)
                && self.sockets[link].dial(self.poll.registry(), Token(link)).is_err()
            {
                self.lose(link);
            }
        }
    }
}

struct Socket {
    stream: Option<TcpStream>,
    is_connected: bool,
    redial_at: Option<Duration>,
    addresses: Vec<SocketAddr>,
    /// How often it was dialled.
    dials: usize,
    buffer: Vec<u8>,
    /// How much of the buffer is filled.
    len: usize,
}

impl Socket {
    fn new(addresses: Vec<SocketAddr>) -> Self {
        Self {
            stream: None,
            is_connected: false,
            redial_at: Some(Duration::ZERO),
            addresses,
            dials: 0,
            buffer: vec![0; BUFFER_LEN],
            len: 0,
        }
    }

    fn dial(&mut self, registry: &Registry, token: Token) -> Result<()> {
        let address = self.addresses.get(self.dials % self.addresses.len());
        self.dials += 1;
        self.redial_at = None;
        let stream = TcpStream::connect(*address.context("an address")?)?;
        let stream = self.stream.insert(stream);
        Ok(registry.register(stream, token, Interest::READABLE | Interest::WRITABLE)?)
    }

    /// Whether the connection has just come about.
    fn connected(&mut self) -> io::Result<bool> {
        let Some(stream) = self.stream.as_ref().filter(|_| !self.is_connected) else {
            return Ok(false);
        };
        if let Some(error) = stream.take_error()? {
            return Err(error);
        }
        match stream.peer_addr() {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotConnected => return Ok(false),
            Err(error) => return Err(error),
        }
        stream.set_nodelay(true)?;
        self.is_connected = true;
        Ok(true)
    }

    fn close(&mut self, redial_at: Duration) {
        self.stream = None;
        self.is_connected = false;
        self.len = 0;
        self.redial_at = Some(redial_at);
    }

    /// Reads once. Says whether there may be more.
    fn read(&mut self) -> io::Result<bool> {
        let Some(stream) = self.stream.as_mut().filter(|_| self.is_connected) else {
            return Ok(false);
        };
        if self.len == self.buffer.len() {
            self.buffer.resize(2 * self.len, 0);
        }
        let room = &mut self.buffer[self.len..];
        match stream.read(room) {
            Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
            Ok(len) => {
                let is_full = len == room.len();
                self.len += len;
                Ok(is_full)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(true),
            Err(error) => Err(error),
        }
    }

    fn input(&self) -> &[u8] {
        &self.buffer[..self.len]
    }

    fn consume(&mut self, len: usize) {
        self.buffer.copy_within(len..self.len, 0);
        self.len -= len;
    }

    /// Writes what the socket takes; the rest waits until it is writable again.
    fn write(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        let Some(stream) = self.stream.as_mut().filter(|_| self.is_connected) else {
            return Ok(());
        };
        while !out.is_empty() {
            match stream.write(out) {
                Ok(len) if len == out.len() => out.clear(),
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
