//! A network of byte streams with the faults of a real one: it is slow, splits writes, blocks one
//! direction, cuts connections, or lets one side of a connection die unnoticed.
//!
//! The network models what sockets promise and no more: bytes arrive in order, in any pieces, or
//! not at all; a sender has room for a window of unread bytes. It does not know their meaning.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use paxoslease_node::simulation::{EndId, Ended, News, Port};
use paxoslease_sim::Rng;

use crate::agenda::{Agenda, Event, NetworkEvent};
use crate::world::At;

/// The properties of the network.
#[derive(Clone, Debug)]
pub(crate) struct Conditions {
    /// The shortest and the longest delay.
    pub(crate) delay: (Duration, Duration),
    /// How many deliveries in a thousand take longer, and by how much at most.
    pub(crate) spike: (u32, Duration),
    /// How many writes in a thousand are split in two.
    pub(crate) chop: u32,
    /// How many dials in a thousand fail.
    pub(crate) dial_failure: u32,
    /// The range of the bytes in flight; a greeting must fit.
    pub(crate) window: (u64, u64),
}

impl Conditions {
    /// Everything arrives whole, at once.
    pub(crate) const PERFECT: Self = Self {
        delay: (Duration::ZERO, Duration::ZERO),
        spike: (0, Duration::ZERO),
        chop: 0,
        dial_failure: 0,
        window: (1 << 20, 1 << 20),
    };
}

/// What answers at a host's address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Presence {
    Listening,
    /// The machine is up, and no process listens.
    Refusing,
    /// The machine is gone.
    Silent,
}

/// The time until a blocked delivery is tried again.
const RETRIED_NANOS: u64 = 20_000_000;

enum Parcel {
    Bytes(Vec<u8>),
    /// The sender closed.
    End,
}

struct End {
    host: usize,
    /// The shard that reads; `None` before it accepts and after it closes.
    shard: Option<usize>,
    received: Vec<u8>,
    established: bool,
    writable: bool,
    ended: Option<Ended>,
    /// In flight to the other end.
    parcels: VecDeque<(At, Parcel)>,
    /// Sent, and not known to be read.
    unread: usize,
    wants_room: bool,
}

impl End {
    const fn new(host: usize, shard: Option<usize>) -> Self {
        Self {
            host,
            shard,
            received: Vec::new(),
            established: false,
            writable: false,
            ended: None,
            parcels: VecDeque::new(),
            unread: 0,
            wants_room: false,
        }
    }
}

struct Pipe {
    ends: [End; 2],
    port: Port,
    window: usize,
    /// Everything that is sent vanishes.
    is_dead: bool,
}

pub(crate) struct Network {
    pub(crate) conditions: Conditions,
    /// The links, from host to host, on which nothing arrives.
    pub(crate) blocked: BTreeSet<(usize, usize)>,
    /// The links that lose whole writes although the connection stays open, as a full queue loses
    /// messages.
    pub(crate) swallowed: BTreeSet<(usize, usize)>,
    addresses: BTreeMap<String, (usize, Port)>,
    hosts: Vec<HostState>,
    pipes: BTreeMap<u64, Pipe>,
    dials: u64,
    rng: Rng,
    /// Ends with news for their shards.
    ready: Vec<EndId>,
    /// What the host of each end sent to its peer, for checkers.
    pub(crate) tap: Option<Vec<(EndId, usize, Vec<u8>)>>,
    /// The events of the whole world.
    pub(crate) agenda: Agenda,
}

/// A host as the network knows it.
struct HostState {
    presence: Presence,
    /// How many shards share its clients.
    shards: usize,
    /// How many clients it has accepted.
    accepted: usize,
}

const fn other(end: EndId) -> EndId {
    EndId { side: 1 - end.side, ..end }
}

impl Network {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            conditions: Conditions::PERFECT,
            blocked: BTreeSet::new(),
            swallowed: BTreeSet::new(),
            addresses: BTreeMap::new(),
            hosts: Vec::new(),
            pipes: BTreeMap::new(),
            dials: 0,
            rng: Rng::new(seed, 1),
            ready: Vec::new(),
            tap: None,
            agenda: Agenda::default(),
        }
    }

    /// Adds a host that does not listen yet. Hosts are numbered in this order.
    pub(crate) fn add_host(&mut self) -> usize {
        self.hosts.push(HostState { presence: Presence::Refusing, shards: 1, accepted: 0 });
        self.hosts.len() - 1
    }

    /// Gives a host an address. The first host with an address keeps it.
    pub(crate) fn add_address(&mut self, host: usize, address: String, port: Port) {
        self.addresses.entry(address).or_insert((host, port));
    }

    /// How many shards of a host share its clients.
    pub(crate) fn set_shards(&mut self, host: usize, shards: usize) {
        self.hosts[host].shards = shards;
    }

    /// The shards that have news since the last call.
    pub(crate) fn take_ready(&mut self) -> Vec<(usize, usize, EndId)> {
        let ready = std::mem::take(&mut self.ready);
        let reader = |id: EndId| {
            let end = self.end(id)?;
            end.shard.map(|shard| (end.host, shard, id))
        };
        ready.into_iter().filter_map(reader).collect()
    }

    fn end(&self, EndId { pipe, side }: EndId) -> Option<&End> {
        self.pipes.get(&pipe).map(|pipe| &pipe.ends[side])
    }

    fn end_mut(&mut self, EndId { pipe, side }: EndId) -> Option<&mut End> {
        self.pipes.get_mut(&pipe).map(|pipe| &mut pipe.ends[side])
    }

    fn delay(&mut self) -> u64 {
        let (permille, longest) = self.conditions.spike;
        let mut delay = self.rng.span(self.conditions.delay);
        if self.rng.chance(permille) {
            delay += self.rng.up_to(longest);
        }
        delay.as_nanos() as u64
    }

    /// Whether deliveries to this end are blocked.
    fn is_blocked(&self, to: EndId) -> bool {
        let hosts = self.end(other(to)).zip(self.end(to)).map(|(from, to)| (from.host, to.host));
        hosts.is_some_and(|link| self.blocked.contains(&link))
    }

    pub(crate) fn dial(&mut self, host: usize, shard: usize, address: &str) -> EndId {
        self.dials += 1;
        let id = EndId { pipe: self.dials, side: 0 };
        let (min, max) = self.conditions.window;
        let window = self.rng.between(min, max) as usize;
        let target = self.addresses.get(address).copied();
        let (to, port) = target.unwrap_or((host, Port::Peers));
        let ends = [End::new(host, Some(shard)), End::new(to, None)];
        self.pipes.insert(self.dials, Pipe { ends, port, window, is_dead: false });
        let permille = self.conditions.dial_failure;
        let failed = target.is_none() || self.rng.chance(permille);
        let delay = self.delay();
        let dialled = NetworkEvent::Dialled { pipe: self.dials };
        self.add_in(delay, if failed { NetworkEvent::Reset(id) } else { dialled });
        id
    }

    /// Sends as many bytes as there is room for. Returns their number.
    pub(crate) fn send(&mut self, id: EndId, bytes: &[u8]) -> usize {
        let Some(pipe) = self.pipes.get_mut(&id.pipe) else { return 0 };
        let link = (pipe.ends[id.side].host, pipe.ends[1 - id.side].host);
        if self.swallowed.contains(&link) {
            return bytes.len();
        }
        let end = &mut pipe.ends[id.side];
        let len = bytes.len().min(pipe.window.saturating_sub(end.unread));
        end.unread += len;
        end.wants_room |= len < bytes.len();
        let host = end.host;
        let bytes = &bytes[..len];
        if let Some(tap) = self.tap.as_mut().filter(|_| pipe.port == Port::Peers) {
            tap.push((id, host, bytes.to_vec()));
        }
        let chop = self.conditions.chop;
        let cut = match len {
            2.. if self.rng.chance(chop) => self.rng.between(1, len as u64 - 1) as usize,
            _ => len,
        };
        let (first, second) = bytes.split_at(cut);
        for part in [first, second].into_iter().filter(|part| !part.is_empty()) {
            self.put(id, Parcel::Bytes(part.to_vec()));
        }
        len
    }

    /// Sends a parcel from an end, behind the parcels in flight.
    fn put(&mut self, from: EndId, parcel: Parcel) {
        let earliest = self.agenda.now + self.delay();
        let Some(end) = self.end_mut(from) else { return };
        let at = end.parcels.back().map_or(0, |(at, _)| *at).max(earliest);
        end.parcels.push_back((at, parcel));
        if end.parcels.len() == 1 {
            self.agenda.add(at, Event::Network(NetworkEvent::Arrives(other(from))));
        }
    }

    /// A shard closes its end.
    pub(crate) fn close(&mut self, id: EndId) {
        let Some(end) = self.end_mut(id) else { return };
        if end.shard.take().is_some() {
            self.put(id, Parcel::End);
            self.remove_pipe(id.pipe);
        }
    }

    fn remove_pipe(&mut self, pipe: u64) {
        let over = |pipe: &Pipe| pipe.ends.iter().all(|end| end.shard.is_none());
        if self.pipes.get(&pipe).is_some_and(over) {
            self.pipes.remove(&pipe);
        }
    }

    /// Another shard of the host reads this end from now on, beginning with the `unread` bytes.
    pub(crate) fn hand_over(&mut self, id: EndId, shard: usize, unread: &[u8]) {
        if let Some(end) = self.end_mut(id) {
            end.shard = Some(shard);
            end.received.splice(0..0, unread.iter().copied());
            self.ready.push(id);
        }
        if let Some(sender) = self.end_mut(other(id)) {
            // These bytes will be read again.
            sender.unread += unread.len();
        }
    }

    /// Reports an end with unread bytes again.
    pub(crate) fn resume(&mut self, id: EndId) {
        self.ready.push(id);
    }

    /// The news of an end, if that shard still has it. Without `reads`, the bytes stay.
    pub(crate) fn news(&mut self, id: EndId, shard: usize, reads: bool) -> Option<News> {
        let delay = self.delay();
        let port = self.pipes.get(&id.pipe)?.port;
        let end = self.end_mut(id).filter(|end| end.shard == Some(shard))?;
        let bytes = if reads { std::mem::take(&mut end.received) } else { Vec::new() };
        let news = News {
            end: id,
            port: if id.side == 0 { Port::Peers } else { port },
            established: std::mem::take(&mut end.established),
            writable: std::mem::take(&mut end.writable),
            bytes,
            ended: end.ended,
        };
        if !news.bytes.is_empty() {
            self.add_in(delay, NetworkEvent::Room(other(id), news.bytes.len()));
        }
        Some(news)
    }

    /// A host's process started or ended. A machine closes the connections of a process that ended,
    /// unless the machine is gone too.
    pub(crate) fn set_presence(&mut self, host: usize, presence: Presence) {
        self.hosts[host].presence = presence;
        if presence == Presence::Listening {
            return;
        }
        let of_host = |(number, pipe): (&u64, &Pipe)| {
            let side = (0..2).find(|side| pipe.ends[*side].host == host)?;
            Some(EndId { pipe: *number, side })
        };
        let ends: Vec<EndId> = self.pipes.iter().filter_map(of_host).collect();
        for id in ends {
            if presence == Presence::Refusing {
                self.close(id);
            } else if let Some(end) = self.end_mut(id) {
                end.shard = None;
                self.remove_pipe(id.pipe);
            }
        }
    }

    /// The number of dials so far.
    #[cfg(test)]
    pub(crate) const fn dials(&self) -> u64 {
        self.dials
    }

    /// Every connection.
    pub(crate) fn pipes(&self) -> Vec<u64> {
        self.pipes.keys().copied().collect()
    }

    /// Cuts a connection. Only the ends that are `told` learn of it.
    pub(crate) fn cut(&mut self, pipe: u64, told: [bool; 2]) {
        let Some(cut) = self.pipes.get_mut(&pipe) else { return };
        cut.is_dead = true;
        for (side, end) in cut.ends.iter_mut().enumerate().filter(|(side, _)| told[*side]) {
            end.ended = Some(Ended::Reset);
            self.ready.push(EndId { pipe, side });
        }
    }

    /// Handles an event of the network.
    pub(crate) fn happens(&mut self, event: NetworkEvent) {
        let to = match event {
            NetworkEvent::Dialled { pipe } => EndId { pipe, side: 1 },
            NetworkEvent::Answered { pipe } => EndId { pipe, side: 0 },
            NetworkEvent::Arrives(end) | NetworkEvent::Room(end, _) | NetworkEvent::Reset(end) => {
                end
            }
        };
        if self.is_blocked(to) {
            return self.add_in(RETRIED_NANOS, event);
        }
        if self.pipes.get(&to.pipe).is_none_or(|pipe| pipe.is_dead) {
            return;
        }
        match event {
            NetworkEvent::Dialled { pipe } => self.dial_arrives(pipe),
            NetworkEvent::Arrives(_) => self.arrives(to),
            NetworkEvent::Room(_, len) => self.room(to, len),
            NetworkEvent::Answered { .. } => self.tell(to, |end| end.established = true),
            NetworkEvent::Reset(_) => self.tell(to, |end| end.ended = Some(Ended::Reset)),
        }
    }

    fn add_in(&mut self, nanos: u64, event: NetworkEvent) {
        self.agenda.add_in(nanos, Event::Network(event));
    }

    fn tell(&mut self, id: EndId, change: impl FnOnce(&mut End)) {
        if let Some(end) = self.end_mut(id) {
            change(end);
            self.ready.push(id);
        }
    }

    fn dial_arrives(&mut self, pipe: u64) {
        let delay = self.delay();
        let to = EndId { pipe, side: 1 };
        let Some(end) = self.end_mut(to) else { return };
        let host = end.host;
        match self.hosts[host].presence {
            Presence::Listening => {
                let shard = self.accepting_shard(to);
                self.tell(to, |end| end.shard = Some(shard));
                self.add_in(delay, NetworkEvent::Answered { pipe });
            }
            Presence::Refusing => self.add_in(delay, NetworkEvent::Reset(EndId { pipe, side: 0 })),
            // The request is repeated until the dialling host gives up.
            Presence::Silent => self.add_in(RETRIED_NANOS, NetworkEvent::Dialled { pipe }),
        }
    }

    /// The first shard accepts peers. Clients go to all shards in turn.
    fn accepting_shard(&mut self, id: EndId) -> usize {
        let Some(pipe) = self.pipes.get(&id.pipe).filter(|pipe| pipe.port == Port::Clients) else {
            return 0;
        };
        let host = &mut self.hosts[pipe.ends[id.side].host];
        host.accepted += 1;
        host.accepted % host.shards
    }

    fn arrives(&mut self, to: EndId) {
        let delay = self.delay();
        let Some(pipe) = self.pipes.get_mut(&to.pipe) else { return };
        let [a, b] = &mut pipe.ends;
        let (from, end) = if to.side == 1 { (a, b) } else { (b, a) };
        while let Some((_, parcel)) = from.parcels.pop_front_if(|(at, _)| *at <= self.agenda.now) {
            match parcel {
                Parcel::Bytes(bytes) => end.received.extend(bytes),
                Parcel::End => end.ended = end.ended.or(Some(Ended::Closed)),
            }
        }
        if let Some((at, _)) = from.parcels.front() {
            self.agenda.add(*at, Event::Network(NetworkEvent::Arrives(to)));
        }
        if end.shard.is_some() {
            self.ready.push(to);
        } else if self.hosts[end.host].presence != Presence::Silent {
            self.add_in(delay, NetworkEvent::Reset(other(to)));
        }
    }

    fn room(&mut self, id: EndId, len: usize) {
        let Some(end) = self.end_mut(id) else { return };
        end.unread -= len;
        if std::mem::take(&mut end.wants_room) {
            self.tell(id, |end| end.writable = true);
        }
    }
}
