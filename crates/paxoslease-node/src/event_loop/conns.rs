//! The connections of one shard's thread, to peers and to clients.

mod deadlines;
mod delivery;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use mio::event::Event;
use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use paxoslease_core::{Instant, NodeId};
use paxoslease_holder::Role;
use slab::Slab;
use socket2::{SockRef, TcpKeepalive};

use super::conn::{CLIENT_INPUT, Conn, Input, InputEnd};
use super::resolve::{LookupId, resolve};
use super::{Post, SocketPost};
use crate::driver::{ConnId, Connections, Sockets};
use crate::log_throttle::LogThrottle;
use crate::tls::{CurrentTls, Stream};
use crate::turn::{ConnKind, Mailboxes};

pub(super) const WAKER: Token = Token(usize::MAX);
pub(super) const LISTENER: Token = Token(usize::MAX - 1);
pub(super) const CLIENTS: Token = Token(usize::MAX - 2);

const SPARE_INPUTS_MAX: usize = 256;
/// The kernel checks an idle connection after this time, besides our own heartbeats.
const KEEPALIVE: Duration = Duration::from_secs(10);

/// The most TLS handshakes of clients that go on in one turn, and as many of peers. A handshake
/// costs more than thousands of requests, which must not wait for a flood of handshakes. Nor may a
/// peer wait for a flood of clients: its handshake has a deadline.
const HANDSHAKES_PER_TURN: usize = 8;

/// The look-ups of one peer's host name, one at a time.
#[derive(Default)]
struct Lookup {
    attempt: usize,
    under_way: bool,
    /// An answer that came too late for its dial. The next dial uses it.
    found: Option<SocketAddr>,
}

pub(crate) struct Conns {
    registry: Registry,
    slab: Slab<Conn>,
    serials: u64,
    tls: CurrentTls,
    /// The bytes for a client that does not use TLS although it must.
    not_tls: &'static [u8],
    /// The reading of the clock for this turn.
    now: Instant,
    /// Handshake deadlines, earliest first. A client that has not finished by then is disconnected.
    deadlines: VecDeque<(Instant, ConnId, u64)>,
    /// The number of connections with [`ConnKind::Leaving`].
    leaving: usize,
    refusals: LogThrottle,
    /// By shard, to hand connections over.
    pub(super) mailboxes: Mailboxes<SocketPost>,
    own: usize,
    /// The shard that gets the next client.
    next_shard: usize,
    lookups: BTreeMap<NodeId, Lookup>,
    /// Connections with something new.
    ready: Vec<usize>,
    /// The second buffer for `ready`, in use while the first is worked off.
    spare: Vec<usize>,
    /// Connections accepted since the last turn.
    fresh: Vec<ConnId>,
    broken: Vec<(ConnId, u64, String)>,
    handed_over: Option<(Stream, u16)>,
    /// Buffers that no client needs now.
    spare_inputs: Vec<Vec<u8>>,
    /// The buffer that TLS connections read into, one after the other.
    spare_tls: Vec<u8>,
}

impl Conns {
    pub(crate) fn new(
        registry: Registry,
        tls: CurrentTls,
        not_tls: &'static [u8],
        mailboxes: Mailboxes<SocketPost>,
        own: usize,
    ) -> Self {
        Self {
            registry,
            slab: Slab::new(),
            serials: 0,
            tls,
            not_tls,
            now: Instant::ZERO,
            deadlines: VecDeque::new(),
            leaving: 0,
            refusals: LogThrottle::default(),
            mailboxes,
            own,
            next_shard: 0,
            lookups: BTreeMap::new(),
            ready: Vec::new(),
            spare: Vec::new(),
            fresh: Vec::new(),
            broken: Vec::new(),
            handed_over: None,
            spare_inputs: Vec::new(),
            spare_tls: Vec::new(),
        }
    }

    fn insert(&mut self, stream: Option<Stream>, node: Option<NodeId>, kind: ConnKind) -> ConnId {
        self.serials += 1;
        let (pending, serial) = (true, self.serials);
        let conn = Conn { stream, node, kind, pending, serial, ..Conn::default() };
        ConnId(self.slab.insert(conn))
    }

    fn register(&mut self, conn: ConnId) -> io::Result<()> {
        let Some(stream) = self.slab[conn.0].stream.as_mut() else { return Ok(()) };
        let tcp = stream.tcp_mut();
        let both = Interest::READABLE | Interest::WRITABLE;
        self.registry.register(tcp, Token(conn.0), both)?;
        tcp.set_nodelay(true)?;
        let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE / 4);
        SockRef::from(&*tcp).set_tcp_keepalive(&keepalive)
    }

    pub(super) fn accepted(&mut self, tcp: TcpStream) {
        let Ok(stream) = self.tls.accept(tcp) else { return };
        self.add(stream, ConnKind::Peer);
    }

    pub(super) fn accepted_client(&mut self, tcp: TcpStream) {
        let Ok(stream) = self.tls.accept_client(tcp, self.not_tls) else { return };
        self.add(stream, ConnKind::Client);
    }

    /// Gives each client that connects to the next shard in turn.
    pub(super) fn distribute(&mut self, tcp: TcpStream) {
        let shard = self.next_shard % self.mailboxes.len();
        self.next_shard += 1;
        if shard == self.own {
            self.accepted_client(tcp);
        } else {
            // A shard that left needs no clients.
            let _left = self.mailboxes[shard].post(Post::Sockets(SocketPost::Client(tcp)));
        }
    }

    fn add(&mut self, stream: Stream, kind: ConnKind) {
        let conn = self.insert(Some(stream), None, kind);
        match self.register(conn) {
            Ok(()) => self.fresh.push(conn),
            Err(error) => {
                tracing::debug!(%error, "a connection broke while it was accepted");
                self.slab.remove(conn.0);
            }
        }
    }

    /// Takes note of an event of a connection.
    pub(super) fn note(&mut self, token: Token, event: &Event) {
        let Some(conn) = self.slab.get_mut(token.0) else { return };
        conn.ending |= event.is_read_closed() || event.is_error();
        conn.readable |= event.is_readable() || conn.ending;
        conn.writable |= event.is_writable();
        self.list(token.0);
    }

    fn list(&mut self, index: usize) {
        if let Some(conn) = self.slab.get_mut(index)
            && !std::mem::replace(&mut conn.listed, true)
        {
            self.ready.push(index);
        }
    }

    /// Whether there is more to do without waiting.
    pub(super) fn unfinished(&self) -> bool {
        !self.ready.is_empty() || !self.fresh.is_empty()
    }

    /// Reads once from every connection that may have something.
    pub(super) fn read_ready(&mut self) {
        let (mut of_clients, mut of_peers) = (0, 0);
        for index in &self.ready {
            if let Some(conn) = self.slab.get_mut(*index)
                && conn.may_read()
            {
                if conn.is_handshaking() {
                    let handshakes = match conn.kind {
                        ConnKind::Peer => &mut of_peers,
                        ConnKind::Client | ConnKind::Leaving => &mut of_clients,
                    };
                    *handshakes += 1;
                    if *handshakes > HANDSHAKES_PER_TURN {
                        continue;
                    }
                }
                if conn.kind == ConnKind::Client && conn.input.bytes.is_empty() {
                    conn.input.bytes = self.spare_inputs.pop().unwrap_or_default();
                }
                conn.read(&mut self.spare_tls);
                // The bytes may have been for TLS itself.
                if conn.kind == ConnKind::Client && conn.input.unread().is_empty() {
                    keep(&mut self.spare_inputs, std::mem::take(&mut conn.input));
                }
            }
        }
    }

    /// The look-up of a peer's host name has ended.
    pub(super) fn looked_up(&mut self, id: LookupId, outcome: io::Result<SocketAddr>) {
        let lookup = self.lookups.entry(id.peer).or_default();
        lookup.under_way = false;
        if self.slab.get(id.conn.0).is_some_and(|conn| conn.serial == id.serial) {
            self.resolved(id, outcome);
        } else {
            lookup.found = outcome.ok();
        }
    }

    /// Connects to a peer whose address was found, or fails the dial.
    fn resolved(&mut self, id: LookupId, outcome: io::Result<SocketAddr>) {
        let LookupId { peer, conn, serial } = id;
        let stream = outcome.and_then(TcpStream::connect).and_then(|tcp| self.tls.dial(tcp, peer));
        let connected = stream.and_then(|stream| {
            self.slab[conn.0].stream = Some(stream);
            self.register(conn)
        });
        if let Err(error) = connected {
            self.broken.push((conn, serial, error.to_string()));
        }
    }
}

/// Keeps an empty buffer for other clients.
fn keep(spares: &mut Vec<Vec<u8>>, input: Input) {
    if input.bytes.len() == CLIENT_INPUT && spares.len() < SPARE_INPUTS_MAX {
        spares.push(input.bytes);
    }
}

impl Connections for Conns {
    fn send(&mut self, id: ConnId, bytes: &[u8]) -> usize {
        let Some(conn) = self.slab.get_mut(id.0) else { return 0 };
        let Some(stream) = &mut conn.stream else { return 0 };
        loop {
            match stream.write(bytes) {
                Ok(sent) => return sent,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return 0,
                Err(error) => {
                    self.broken.push((id, conn.serial, error.to_string()));
                    return 0;
                }
            }
        }
    }

    fn close(&mut self, id: ConnId) {
        let Some(conn) = self.slab.get_mut(id.0) else { return };
        let mut unsent = false;
        if let Some(stream) = &mut conn.stream {
            stream.close_notify();
            unsent = stream.wants_write() && !stream.is_handshaking();
        }
        // The last bytes for a client may still wait in TLS, as they would wait in the kernel.
        if !(unsent && conn.kind == ConnKind::Client && self.leaves(id)) {
            self.slab.remove(id.0);
        }
    }
}

impl Sockets for Conns {
    fn dial(&mut self, peer: NodeId, address: &str) -> ConnId {
        let conn = self.insert(None, Some(peer), ConnKind::Peer);
        let id = LookupId { peer, conn, serial: self.serials };
        let lookup = self.lookups.entry(peer).or_default();
        lookup.attempt += 1;
        let outcome = if let Some(found) = lookup.found.take() {
            Some(Ok(found))
        } else if lookup.under_way {
            Some(Err(io::Error::other("the look-up of its host name is still under way")))
        } else {
            resolve(address, id, lookup.attempt, &self.mailboxes[self.own])
        };
        match outcome {
            Some(outcome) => self.resolved(id, outcome),
            None => lookup.under_way = true,
        }
        conn
    }

    fn is_node(&self, id: ConnId, node: NodeId, role: Role) -> bool {
        let stream = self.slab.get(id.0).and_then(|conn| conn.stream.as_ref());
        stream.is_some_and(|stream| stream.peer_is(node, role))
    }

    fn hand_over(&mut self, id: ConnId, shard: u16) {
        if let Some(mut stream) = self.slab.try_remove(id.0).and_then(|conn| conn.stream) {
            if let Err(error) = self.registry.deregister(stream.tcp_mut()) {
                tracing::debug!(%error, "a connection broke while it was handed over");
            }
            self.handed_over = Some((stream, shard));
        }
    }
}
