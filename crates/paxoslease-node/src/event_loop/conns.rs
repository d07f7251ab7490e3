//! The connections of one shard's thread, to peers and to clients: what is read ahead, what is
//! broken, what belongs to another shard.

mod deadlines;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use mio::event::Event;
use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use paxoslease_core::{Instant, NodeId};
use slab::Slab;
use socket2::{SockRef, TcpKeepalive};

use super::Post;
use super::conn::{CLIENT_INPUT, Conn, End, Input, Kind};
use super::crew::Crew;
use super::resolve::{Asks, resolve};
use crate::driver::{ConnId, Sockets};
use crate::log_throttle::LogThrottle;
use crate::mailbox::Mailbox;
use crate::tls::{CurrentTls, Stream};

pub(super) const WAKER: Token = Token(usize::MAX);
pub(super) const LISTENER: Token = Token(usize::MAX - 1);
pub(super) const CLIENTS: Token = Token(usize::MAX - 2);

const SPARE_INPUTS_MAX: usize = 256;
/// The kernel's own check of an idle connection, behind the heartbeats of ours.
const KEEPALIVE: Duration = Duration::from_secs(10);

/// TLS handshakes of clients that go on in one turn, and as many of peers. Each costs more than
/// thousands of requests do, and those of others must not wait for a flood of them. Nor may a peer
/// wait for a flood of clients: its handshake has a deadline.
const HANDSHAKES_PER_TURN: usize = 8;

/// How a peer's name is looked up: one at a time, since a name server may take its time.
#[derive(Default)]
struct Lookup {
    attempt: usize,
    under_way: bool,
    /// An answer that came too late for the dial that asked; the next one has it.
    found: Option<SocketAddr>,
}

pub(crate) struct Conns {
    registry: Registry,
    slab: Slab<Conn>,
    serials: u64,
    tls: CurrentTls,
    /// What to say to a client that does not speak TLS where it must.
    not_tls: &'static [u8],
    /// The clock, as it was read for this turn.
    now: Instant,
    /// Clients that are to have got over their handshake by then, or to be gone; the first first.
    deadlines: VecDeque<(Instant, ConnId, u64)>,
    /// How many clients are leaving.
    leaving: usize,
    refusals: LogThrottle,
    /// By shard, to hand connections over.
    pub(super) mailboxes: Vec<Arc<Mailbox<Post>>>,
    own: usize,
    lookups: BTreeMap<NodeId, Lookup>,
    /// Connections with something new.
    ready: Vec<usize>,
    /// Lends `ready` its memory while that is worked off.
    spare: Vec<usize>,
    /// Connections accepted since the last turn.
    fresh: Vec<ConnId>,
    broken: Vec<(ConnId, u64, String)>,
    handed_over: Option<(Stream, u16)>,
    /// Buffers no client needs just now.
    spare_inputs: Vec<Vec<u8>>,
    /// What TLS connections read into, one after the other.
    spare_tls: Vec<u8>,
    /// Something was told after everything was sent: another turn is due.
    turn_again: bool,
}

impl Conns {
    pub(crate) fn new(
        registry: Registry,
        (tls, not_tls): (CurrentTls, &'static [u8]),
        mailboxes: Vec<Arc<Mailbox<Post>>>,
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
            lookups: BTreeMap::new(),
            ready: Vec::new(),
            spare: Vec::new(),
            fresh: Vec::new(),
            broken: Vec::new(),
            handed_over: None,
            spare_inputs: Vec::new(),
            spare_tls: Vec::new(),
            turn_again: false,
        }
    }

    fn insert(&mut self, stream: Option<Stream>, node: Option<NodeId>, kind: Kind) -> ConnId {
        self.serials += 1;
        ConnId(self.slab.insert(Conn {
            stream,
            node,
            kind,
            held: false,
            in_sight: false,
            pending: true,
            serial: self.serials,
            input: Input::default(),
            readable: false,
            ending: false,
            ending_told: false,
            end: End::Ahead,
            listed: false,
            writable: false,
            closed: None,
            refused: false,
        }))
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
        self.add(stream, Kind::Peer);
    }

    pub(super) fn accepted_client(&mut self, tcp: TcpStream) {
        let Ok(stream) = self.tls.accept_client(tcp, self.not_tls) else { return };
        self.add(stream, Kind::Client);
    }

    fn add(&mut self, stream: Stream, kind: Kind) {
        let conn = self.insert(Some(stream), None, kind);
        match self.register(conn) {
            Ok(()) => self.fresh.push(conn),
            Err(error) => {
                tracing::debug!(%error, "a connection was gone as it was accepted");
                self.slab.remove(conn.0);
            }
        }
    }

    /// Notes what the poll said of a connection.
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
        !self.ready.is_empty() || !self.fresh.is_empty() || self.turn_again
    }

    /// Shows nothing more of a connection for now.
    pub(crate) fn hold(&mut self, id: ConnId, in_sight: bool) {
        if let Some(conn) = self.slab.get_mut(id.0) {
            (conn.held, conn.in_sight) = (true, in_sight);
        }
    }

    /// Shows on, beginning with what was not consumed.
    pub(crate) fn resume(&mut self, id: ConnId) {
        if let Some(conn) = self.slab.get_mut(id.0)
            && std::mem::take(&mut conn.held)
        {
            conn.readable = true;
            self.list(id.0);
        }
    }

    pub(crate) fn address(&self, id: ConnId) -> Option<SocketAddr> {
        self.slab.get(id.0)?.stream.as_ref()?.tcp().peer_addr().ok()
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
                        Kind::Peer => &mut of_peers,
                        Kind::Client | Kind::Leaving => &mut of_clients,
                    };
                    *handshakes += 1;
                    if *handshakes > HANDSHAKES_PER_TURN {
                        continue;
                    }
                }
                if conn.kind == Kind::Client && conn.input.bytes.is_empty() {
                    conn.input.bytes = self.spare_inputs.pop().unwrap_or_default();
                }
                conn.read(&mut self.spare_tls);
                // TLS may have come with nothing in it for anybody else.
                if conn.kind == Kind::Client && conn.input.unread().is_empty() {
                    keep(&mut self.spare_inputs, std::mem::take(&mut conn.input));
                }
            }
        }
    }

    /// Shows the driver what was read, who came and who went.
    pub(super) fn deliver(&mut self, crew: &mut Crew<'_>, now: Instant) {
        self.turn_again = false;
        self.now = now;
        for id in std::mem::take(&mut self.fresh) {
            let Some(conn) = self.slab.get(id.0) else { continue };
            let kind = conn.kind;
            if kind == Kind::Client && conn.is_handshaking() {
                self.expect(id, conn.serial);
            }
            crew.accepted(self, now, kind, id);
        }
        self.look_at_deadlines();
        let spare = std::mem::take(&mut self.spare);
        let mut ready = std::mem::replace(&mut self.ready, spare);
        for index in ready.drain(..) {
            let Some(conn) = self.slab.get_mut(index) else { continue };
            conn.listed = false;
            self.advance(crew, now, ConnId(index));
            if self.slab.get(index).is_some_and(Conn::may_read) {
                self.list(index);
            }
        }
        self.spare = ready;
    }

    fn advance(&mut self, crew: &mut Crew<'_>, now: Instant, id: ConnId) {
        let conn = &mut self.slab[id.0];
        if conn.kind == Kind::Leaving {
            // Whether it is told all or is gone, that is the end of it.
            if conn.flush().is_err() || !conn.stream.as_ref().is_some_and(Stream::wants_write) {
                self.left(id);
            }
            return;
        }
        if conn.pending {
            match conn.connect() {
                Ok(true) => {
                    conn.pending = false;
                    if conn.node.is_some() {
                        crew.driver.connected(self, now, id);
                    }
                }
                Ok(false) if conn.closed.is_none() => return,
                Ok(false) => {}
                Err(error) => conn.closed = Some(error.to_string()),
            }
        }
        let Some(conn) = self.slab.get_mut(id.0) else { return };
        if let Err(error) = conn.flush() {
            conn.closed.get_or_insert_with(|| error.to_string());
        }
        let kind = conn.kind;
        if std::mem::take(&mut conn.writable) {
            crew.writable(self, now, kind, id);
        }
        self.show(crew, now, id);
        self.tell_end(crew, now, id);
        if let Some(conn) = self.slab.get_mut(id.0)
            && let Some(why) = conn.closed.take()
        {
            let conn = self.slab.remove(id.0);
            if conn.refused && kind == Kind::Client {
                let from = conn.stream.and_then(|stream| stream.tcp().peer_addr().ok());
                self.refuse(from, &why);
            }
            crew.closed(self, now, kind, id, &why);
        }
    }

    /// Tells of a client's end: of one that is held as soon as it is known, whatever is unread.
    fn tell_end(&mut self, crew: &mut Crew<'_>, now: Instant, id: ConnId) {
        let Some(conn) = self.slab.get_mut(id.0) else { return };
        let (clients, driver) = (&mut *crew.clients, &mut *crew.driver);
        if !conn.held && conn.end == End::Read {
            conn.end = End::Told;
            clients.ended(driver, self, now, id);
        } else if conn.held && conn.ending && !std::mem::replace(&mut conn.ending_told, true) {
            clients.ending(driver, self, now, id);
        } else if conn.held && conn.is_full() && std::mem::take(&mut conn.in_sight) {
            clients.out_of_sight(driver, self, now, id);
        }
    }

    /// Shows what was read to whom it concerns.
    fn show(&mut self, crew: &mut Crew<'_>, now: Instant, id: ConnId) {
        let Some(conn) = self.slab.get_mut(id.0) else { return };
        if conn.held || conn.input.unread().is_empty() {
            return;
        }
        let (serial, kind) = (conn.serial, conn.kind);
        let mut input = std::mem::take(&mut conn.input);
        input.start += crew.received(self, now, kind, (id, input.unread()));
        if let Some((stream, shard)) = self.handed_over.take() {
            let adopt = Post::Adopt { stream, unread: input.unread().to_vec() };
            // A shard that left needs no connections.
            let _left = self.mailboxes[usize::from(shard)].post(adopt);
        } else if kind == Kind::Client && input.unread().is_empty() {
            keep(&mut self.spare_inputs, input);
        } else if let Some(conn) = self.slab.get_mut(id.0).filter(|conn| conn.serial == serial) {
            conn.input = input;
        }
    }

    /// Takes over a connection that another shard accepted.
    pub(super) fn adopt(
        &mut self,
        crew: &mut Crew<'_>,
        now: Instant,
        stream: Stream,
        unread: Vec<u8>,
    ) {
        let id = self.insert(Some(stream), None, Kind::Peer);
        let conn = &mut self.slab[id.0];
        conn.pending = false;
        conn.input = Input { start: 0, end: unread.len(), bytes: unread };
        if let Err(error) = self.register(id) {
            tracing::debug!(%error, "a connection was gone as it was handed over");
            self.slab.remove(id.0);
            return;
        }
        crew.accepted(self, now, Kind::Peer, id);
        self.show(crew, now, id);
    }

    /// A look-up of a peer's name has ended.
    pub(super) fn looked_up(
        &mut self,
        peer: NodeId,
        (id, serial): (ConnId, u64),
        outcome: io::Result<SocketAddr>,
    ) {
        let lookup = self.lookups.entry(peer).or_default();
        lookup.under_way = false;
        if self.slab.get(id.0).is_some_and(|conn| conn.serial == serial) {
            self.resolved(id, serial, outcome);
        } else {
            lookup.found = outcome.ok();
        }
    }

    /// The address of a peer is known, or will not be.
    fn resolved(&mut self, id: ConnId, serial: u64, outcome: io::Result<SocketAddr>) {
        let Some(conn) = self.slab.get_mut(id.0).filter(|conn| conn.serial == serial) else {
            return;
        };
        let node = conn.node;
        let stream = outcome.and_then(TcpStream::connect).and_then(|tcp| match node {
            Some(node) => self.tls.dial(tcp, node),
            None => Ok(Stream::Plain(tcp)),
        });
        let connected = stream.and_then(|stream| {
            self.slab[id.0].stream = Some(stream);
            self.register(id)
        });
        if let Err(error) = connected {
            self.broken.push((id, serial, error.to_string()));
        }
    }

    /// Tells of connections found broken while everybody was busy.
    pub(super) fn bury(&mut self, crew: &mut Crew<'_>, now: Instant) {
        for (id, serial, why) in std::mem::take(&mut self.broken) {
            if let Some(conn) = self.slab.get(id.0).filter(|conn| conn.serial == serial) {
                let kind = conn.kind;
                if kind == Kind::Leaving {
                    self.left(id);
                    continue;
                }
                self.slab.remove(id.0);
                crew.closed(self, now, kind, id, &why);
                self.turn_again = true;
            }
        }
    }
}

/// Keeps an empty buffer for others.
fn keep(spares: &mut Vec<Vec<u8>>, input: Input) {
    if input.bytes.len() == CLIENT_INPUT && spares.len() < SPARE_INPUTS_MAX {
        spares.push(input.bytes);
    }
}

impl Sockets for Conns {
    fn dial(&mut self, peer: NodeId, address: &str) -> ConnId {
        let id = self.insert(None, Some(peer), Kind::Peer);
        let serial = self.serials;
        let lookup = self.lookups.entry(peer).or_default();
        lookup.attempt += 1;
        let asks = Asks { peer, conn: id, serial, attempt: lookup.attempt };
        let outcome = if let Some(found) = lookup.found.take() {
            Some(Ok(found))
        } else if lookup.under_way {
            Some(Err(io::Error::other("its name is still being looked up")))
        } else {
            resolve(address, asks, &self.mailboxes[self.own])
        };
        match outcome {
            Some(outcome) => self.resolved(id, serial, outcome),
            None => lookup.under_way = true,
        }
        id
    }

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
        // What a client was told may still be on its way through TLS, as it would be in the kernel.
        if !(unsent && conn.kind == Kind::Client && self.leaves(id)) {
            self.slab.remove(id.0);
        }
    }

    fn is_node(&self, id: ConnId, node: NodeId) -> bool {
        let stream = self.slab.get(id.0).and_then(|conn| conn.stream.as_ref());
        stream.is_some_and(|stream| stream.peer_is(node))
    }

    fn hand_over(&mut self, id: ConnId, shard: u16) {
        if let Some(mut stream) = self.slab.try_remove(id.0).and_then(|conn| conn.stream) {
            if let Err(error) = self.registry.deregister(stream.tcp_mut()) {
                tracing::debug!(%error, "a connection was gone as it was handed over");
            }
            self.handed_over = Some((stream, shard));
        }
    }
}
