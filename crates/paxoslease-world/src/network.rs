//! A network of byte streams, as bad as a real one: slow, chopped, blocked in one direction, cut,
//! or dead on one side without a word to the other.
//!
//! Models what sockets promise and no more: bytes arrive in order, in any pieces, or not at all;
//! a sender has room for a window of unread bytes. Does not know what the bytes mean.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use paxoslease_node::simulation::{EndId, Ended, News, Port};
use paxoslease_sim::{Rng, SpanRange};

use crate::agenda::{Agenda, Event};
use crate::world::At;

/// How good the network is at a time.
#[derive(Clone, Debug)]
pub(crate) struct Conditions {
    /// The shortest and the longest delay.
    pub(crate) delay: (Duration, Duration),
    /// How often something takes longer, in a thousand, and how much at most.
    pub(crate) spike: (u32, Duration),
    /// How often a write is cut in two, in a thousand.
    pub(crate) chop: u32,
    /// How often a dial fails, in a thousand.
    pub(crate) dial_failure: u32,
    /// How many bytes may be on their way; a greeting must fit.
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

/// How often what is blocked is tried again.
const RETRIED_EVERY: Duration = Duration::from_millis(20);

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
    /// On the way to the other end.
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
    /// From which host to which nothing arrives.
    pub(crate) blocked: BTreeSet<(usize, usize)>,
    /// From which host to which whole writes vanish while the connection stands, like messages
    /// that a full queue has no room for.
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
        let (min, max) = self.conditions.delay;
        let (permille, longest) = self.conditions.spike;
        let mut delay = SpanRange::new(min, max).draw(&mut self.rng);
        if self.rng.chance(permille) {
            delay += SpanRange::new(Duration::ZERO, longest).draw(&mut self.rng);
        }
        delay.as_nanos() as u64
    }

    /// Whether what travels to this end is held up on the way.
    fn is_blocked(&self, to: EndId) -> bool {
        let hosts = self.end(other(to)).zip(self.end(to)).map(|(from, to)| (from.host, to.host));
        hosts.is_some_and(|link| self.blocked.contains(&link))
    }

    pub(crate) fn dial(
        &mut self,
        agenda: &mut Agenda,
        now: At,
        host: usize,
        shard: usize,
        address: &str,
    ) -> EndId {
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
        let dialled = Event::Dialled { pipe: self.dials };
        agenda.add(now + delay, if failed { Event::Reset(id) } else { dialled });
        id
    }

    /// Sends what there is room for. Returns how many bytes that was.
    pub(crate) fn send(&mut self, agenda: &mut Agenda, now: At, id: EndId, bytes: &[u8]) -> usize {
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
            self.put(agenda, now, id, Parcel::Bytes(part.to_vec()));
        }
        len
    }

    /// Puts something on its way from an end, behind what is on its way already.
    fn put(&mut self, agenda: &mut Agenda, now: At, from: EndId, parcel: Parcel) {
        let delay = self.delay();
        let Some(end) = self.end_mut(from) else { return };
        let at = end.parcels.back().map_or(0, |(at, _)| *at).max(now + delay);
        if end.parcels.is_empty() {
            agenda.add(at, Event::Arrives(other(from)));
        }
        end.parcels.push_back((at, parcel));
    }

    /// A shard closes its end.
    pub(crate) fn close(&mut self, agenda: &mut Agenda, now: At, id: EndId) {
        let Some(end) = self.end_mut(id) else { return };
        if end.shard.take().is_some() {
            self.put(agenda, now, id, Parcel::End);
            self.remove_pipe(id.pipe);
        }
    }

    fn remove_pipe(&mut self, pipe: u64) {
        let over = |pipe: &Pipe| pipe.ends.iter().all(|end| end.shard.is_none());
        if self.pipes.get(&pipe).is_some_and(over) {
            self.pipes.remove(&pipe);
        }
    }

    /// Another shard of the host reads from now on, first of all what is given back.
    pub(crate) fn hand_over(&mut self, id: EndId, shard: usize, unread: &[u8]) {
        if let Some(end) = self.end_mut(id) {
            end.shard = Some(shard);
            end.received.splice(0..0, unread.iter().copied());
            self.ready.push(id);
        }
        if let Some(sender) = self.end_mut(other(id)) {
            // It will be read once more.
            sender.unread += unread.len();
        }
    }

    /// Reports an end again, whose bytes were not read.
    pub(crate) fn resume(&mut self, id: EndId) {
        self.ready.push(id);
    }

    /// What is new at an end, if that shard still has it. Without `reads`, its bytes stay.
    pub(crate) fn news(
        &mut self,
        agenda: &mut Agenda,
        now: At,
        id: EndId,
        shard: usize,
        reads: bool,
    ) -> Option<News> {
        let delay = self.delay();
        let port = self.pipes.get(&id.pipe)?.port;
        let end = self.end_mut(id).filter(|end| end.shard == Some(shard))?;
        let bytes = if reads { std::mem::take(&mut end.received) } else { Vec::new() };
        if !bytes.is_empty() {
            agenda.add(now + delay, Event::Room(other(id), bytes.len()));
        }
        Some(News {
            end: id,
            port: if id.side == 0 { Port::Peers } else { port },
            established: std::mem::take(&mut end.established),
            writable: std::mem::take(&mut end.writable),
            bytes,
            ended: end.ended,
        })
    }

    /// A host's process began or ended. One that ended has closed its connections, unless the
    /// machine is gone with it.
    pub(crate) fn set_presence(
        &mut self,
        agenda: &mut Agenda,
        now: At,
        host: usize,
        presence: Presence,
    ) {
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
                self.close(agenda, now, id);
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
    pub(crate) fn happens(&mut self, agenda: &mut Agenda, now: At, event: Event) {
        let to = match event {
            Event::Dialled { pipe } => EndId { pipe, side: 1 },
            Event::Answered { pipe } => EndId { pipe, side: 0 },
            Event::Arrives(end) | Event::Room(end, _) | Event::Reset(end) => end,
            _ => unreachable!("not an event of the network"),
        };
        if self.is_blocked(to) {
            return agenda.add(now + RETRIED_EVERY.as_nanos() as u64, event);
        }
        if self.pipes.get(&to.pipe).is_none_or(|pipe| pipe.is_dead) {
            return;
        }
        match event {
            Event::Dialled { pipe } => self.dial_arrives(agenda, now, pipe),
            Event::Arrives(_) => self.arrives(agenda, now, to),
            Event::Room(_, len) => self.room(to, len),
            Event::Answered { .. } => self.tell(to, |end| end.established = true),
            _ => self.tell(to, |end| end.ended = Some(Ended::Reset)),
        }
    }

    fn tell(&mut self, id: EndId, change: impl FnOnce(&mut End)) {
        if let Some(end) = self.end_mut(id) {
            change(end);
            self.ready.push(id);
        }
    }

    fn dial_arrives(&mut self, agenda: &mut Agenda, now: At, pipe: u64) {
        let delay = self.delay();
        let to = EndId { pipe, side: 1 };
        let Some(end) = self.end_mut(to) else { return };
        let host = end.host;
        match self.hosts[host].presence {
            Presence::Listening => {
                let shard = self.accepting_shard(to);
                self.tell(to, |end| end.shard = Some(shard));
                agenda.add(now + delay, Event::Answered { pipe });
            }
            Presence::Refusing => agenda.add(now + delay, Event::Reset(EndId { pipe, side: 0 })),
            // The request is repeated until the dialling host gives up.
            Presence::Silent => {
                let retried_at = now + RETRIED_EVERY.as_nanos() as u64;
                agenda.add(retried_at, Event::Dialled { pipe });
            }
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

    fn arrives(&mut self, agenda: &mut Agenda, now: At, to: EndId) {
        let delay = self.delay();
        let Some(pipe) = self.pipes.get_mut(&to.pipe) else { return };
        let [a, b] = &mut pipe.ends;
        let (from, end) = if to.side == 1 { (a, b) } else { (b, a) };
        while let Some((_, parcel)) = from.parcels.pop_front_if(|(at, _)| *at <= now) {
            match parcel {
                Parcel::Bytes(bytes) => end.received.extend(bytes),
                Parcel::End => end.ended = end.ended.or(Some(Ended::Closed)),
            }
        }
        if let Some((at, _)) = from.parcels.front() {
            agenda.add(*at, Event::Arrives(to));
        }
        if end.shard.is_some() {
            self.ready.push(to);
        } else if self.hosts[end.host].presence != Presence::Silent {
            agenda.add(now + delay, Event::Reset(other(to)));
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
