//! The yardstick: a message there and another back over TCP, in a loop of the same kind as the
//! node's, with nothing else to do.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use paxoslease_bench::clock::now;
use paxoslease_core::{Ballot, Holder, Message, Name, NodeId, Reply, Request, Ttl};
use paxoslease_wire::FrameWriter;

use crate::load::{HOLDER, write_name};
use crate::orders::{Pinging, Spans, histogram};

const ONLY: Token = Token(0);

/// As many bytes as an acquire sends to a peer, and as many as that answers.
pub(crate) fn as_an_acquire(spin: Duration) -> Pinging {
    let sender = NodeId::new(1).expect("not zero");
    let ballot = Ballot::new(1, sender);
    let mut name = String::new();
    write_name(&mut name, "load", sender.get(), 0);
    let frame_len = |message: Message<'_>| {
        let mut writer = FrameWriter::new(sender);
        assert!(writer.push(&message), "the first message has room");
        writer.finish(0).len()
    };
    let propose = Request::Propose {
        name: Name::new(&name).expect("a name of ours"),
        ballot,
        ttl: Ttl::MIN,
        holder: Holder::new(HOLDER).expect("a holder of ours"),
    };
    Pinging {
        ping_len: frame_len(Message::Request(propose)),
        pong_len: frame_len(Message::Reply(Reply::Accept { ballot })),
        spin,
    }
}

/// One end of a connection.
struct End {
    poll: Poll,
    events: Events,
    stream: TcpStream,
    spin: Duration,
    buffer: Vec<u8>,
}

impl End {
    fn new(mut stream: TcpStream, spin: Duration) -> io::Result<Self> {
        let poll = Poll::new()?;
        let both = Interest::READABLE | Interest::WRITABLE;
        poll.registry().register(&mut stream, ONLY, both)?;
        let events = Events::with_capacity(16);
        Ok(Self { poll, events, stream, spin, buffer: vec![0; 64 * 1024] })
    }

    fn wait(&mut self) -> io::Result<()> {
        if !self.spin.is_zero() {
            let began_at = now();
            while began_at.elapsed() < self.spin {
                self.poll.poll(&mut self.events, Some(Duration::ZERO))?;
                if !self.events.is_empty() {
                    return Ok(());
                }
                thread::yield_now();
            }
        }
        self.poll.poll(&mut self.events, None)
    }

    /// Waits for this many bytes; `false` at the end of the stream.
    fn receive(&mut self, len: usize) -> io::Result<bool> {
        let mut received = 0;
        while received < len {
            self.wait()?;
            match self.stream.read(&mut self.buffer) {
                Ok(0) => return Ok(false),
                Ok(read) => received += read,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    fn send(&mut self, len: usize) -> io::Result<()> {
        self.stream.write_all(&self.buffer[..len])
    }
}

/// Answers pings of one process after the other, on a thread of its own.
pub(crate) fn echo(pinging: Pinging) -> Result<SocketAddr> {
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    let serve = move || -> io::Result<()> {
        loop {
            let (stream, _) = listener.accept()?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            let mut end = End::new(TcpStream::from_std(stream), pinging.spin)?;
            while end.receive(pinging.ping_len)? {
                end.send(pinging.pong_len)?;
            }
        }
    };
    let serve = move || {
        if let Err(error) = serve() {
            eprintln!("pings are answered no more: {error}");
        }
    };
    thread::Builder::new().name("echo".to_owned()).spawn(serve)?;
    Ok(address)
}

/// Times pings.
pub(crate) fn ping(at: SocketAddr, count: u32, pinging: Pinging) -> Result<Spans> {
    let stream = std::net::TcpStream::connect(at).context("nobody answers pings")?;
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    let mut end = End::new(TcpStream::from_std(stream), pinging.spin)?;
    let mut nanos = histogram();
    for _ in 0..count {
        let sent_at = now();
        end.send(pinging.ping_len)?;
        if !end.receive(pinging.pong_len)? {
            break;
        }
        nanos.saturating_record(sent_at.elapsed().as_nanos() as u64);
    }
    Ok(Spans::of(&nanos))
}
