//! The loop that the node has, with nothing around it: wait, read once from whatever is ready,
//! read the clock once, work everything off, write once to each connection. It spins before it
//! blocks, if told to, and pauses like the node's when that is no use.

use std::time::Duration;
use std::{io, thread};

use anyhow::Result;
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use paxoslease_bench::clock::now;

use crate::Conn;
use crate::link::Link;

/// A node always has something due later, so it never waits without an end.
const WAIT_MAX: Duration = Duration::from_secs(1);
/// As the node has them, in `event_loop/spin.rs`.
const YIELDED: Duration = Duration::from_micros(25);
const PAUSE_MAX: u32 = 1024;

struct Socket {
    stream: TcpStream,
    link: Link,
    /// There may be more to read.
    readable: bool,
    /// How much this turn read.
    read: usize,
    closed: bool,
}

pub(crate) fn run(conns: Vec<Conn>, spin: Duration) -> Result<Vec<Link>> {
    let mut poll = Poll::new()?;
    let mut sockets = Vec::new();
    for (index, Conn { stream, link }) in conns.into_iter().enumerate() {
        stream.set_nonblocking(true)?;
        let mut stream = TcpStream::from_std(stream);
        let both = Interest::READABLE | Interest::WRITABLE;
        poll.registry().register(&mut stream, Token(index), both)?;
        sockets.push(Socket { stream, link, readable: false, read: 0, closed: false });
    }
    let mut events = Events::with_capacity(256);
    let mut spin = Spin { most: spin, pausing: 0, pause: 1 };
    loop {
        for socket in &mut sockets {
            socket.write()?;
        }
        if sockets.iter().all(|socket| socket.closed || socket.link.is_done()) {
            return Ok(sockets.into_iter().map(|socket| socket.link).collect());
        }
        if sockets.iter().any(|socket| socket.readable) {
            poll.poll(&mut events, Some(Duration::ZERO))?;
        } else if !spin.find(&mut poll, &mut events)? {
            poll.poll(&mut events, Some(WAIT_MAX))?;
        }
        for event in &events {
            sockets[event.token().0].readable |= event.is_readable() || event.is_read_closed();
        }
        for socket in sockets.iter_mut().filter(|socket| socket.readable) {
            socket.read()?;
        }
        let now = now();
        for socket in sockets.iter_mut().filter(|socket| socket.read > 0) {
            socket.link.received(std::mem::take(&mut socket.read), now)?;
        }
    }
}

impl Socket {
    /// Reads once. A short read has drained the socket.
    fn read(&mut self) -> io::Result<()> {
        let room = self.link.room();
        let room_len = room.len();
        match io::Read::read(&mut self.stream, room) {
            Ok(0) => (self.readable, self.closed) = (false, true),
            Ok(len) => (self.readable, self.read) = (len == room_len, len),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.readable = false,
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Writes once. What the socket does not take now, it takes when it is writable again.
    fn write(&mut self) -> io::Result<()> {
        if self.link.output().is_empty() {
            return Ok(());
        }
        match io::Write::write(&mut self.stream, self.link.output()) {
            Ok(len) => self.link.sent(len),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

struct Spin {
    /// How long to look at most; zero for never.
    most: Duration,
    /// Waits to go without spinning.
    pausing: u32,
    /// How many there will be after the next failure.
    pause: u32,
}

impl Spin {
    /// Looks until something is ready or it is no use.
    fn find(&mut self, poll: &mut Poll, events: &mut Events) -> io::Result<bool> {
        if self.most.is_zero() || self.pausing > 0 {
            self.pausing = self.pausing.saturating_sub(1);
            return Ok(false);
        }
        let mut looked_at = now();
        let until = looked_at + self.most;
        loop {
            poll.poll(events, Some(Duration::ZERO))?;
            if !events.is_empty() {
                self.pause = 1;
                return Ok(true);
            }
            thread::yield_now();
            let again_at = now();
            if again_at - looked_at > YIELDED || again_at >= until {
                self.pausing = self.pause;
                self.pause = (self.pause * 2).min(PAUSE_MAX);
                return Ok(false);
            }
            looked_at = again_at;
        }
    }
}
