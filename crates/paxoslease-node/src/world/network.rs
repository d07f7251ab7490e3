//! A network of byte streams, as bad as a real one: slow, chopped, blocked in one direction, cut,
//! or dead on one side without the other being told.
//!
//! Models what sockets promise and no more: bytes arrive in order, in any pieces, or not at all;
//! a sender has room for so much that was not read. Deliberately ignorant of what is sent.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use super::At;
use super::agenda::{Agenda, Happening};
use super::dice::Dice;

pub(crate) type PipeId = u64;

/// One end of a connection: 0 dialled, 1 was dialled.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct EndId(pub(crate) PipeId, pub(crate) usize);

impl EndId {
    pub(crate) const fn other(self) -> Self {
        Self(self.0, 1 - self.1)
    }
}

/// How the network is just now.
#[derive(Clone, Debug)]
pub(crate) struct Weather {
    pub(crate) delay: (Duration, Duration),
    /// How often something takes longer, in a thousand, and how much at most.
    pub(crate) spike: (u64, Duration),
    /// How often a write is cut in two, in a thousand.
    pub(crate) chop: u64,
    /// How often a dial fails, in a thousand.
    pub(crate) dial_failure: u64,
    /// How much may be on its way; a greeting must fit.
    pub(crate) window: (u64, u64),
}

impl Weather {
    /// Everything arrives whole, at once.
    pub(crate) const CALM: Self = Self {
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
    /// The machine is up, and nobody listens.
    Refusing,
    /// The machine is gone.
    Dark,
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
    /// Who reads; `None` when nobody does any more, or not yet.
    shard: Option<usize>,
    received: Vec<u8>,
    established: bool,
    writable: bool,
    ended: Option<&'static str>,
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
    window: usize,
    /// Whatever is sent vanishes.
    dark: bool,
}

/// What is new at an end.
#[derive(Debug)]
pub(crate) struct News {
    pub(crate) established: bool,
    pub(crate) writable: bool,
    pub(crate) bytes: Vec<u8>,
    pub(crate) ended: Option<&'static str>,
}

pub(crate) struct Network {
    pub(crate) weather: Weather,
    /// From whom to whom nothing arrives.
    pub(crate) blocked: BTreeSet<(usize, usize)>,
    /// From whom to whom whole writes vanish while the connection stands, as messages do for
    /// which a full queue has no room.
    pub(crate) swallowed: BTreeSet<(usize, usize)>,
    addresses: BTreeMap<String, usize>,
    presence: Vec<Presence>,
    pipes: BTreeMap<PipeId, Pipe>,
    dials: PipeId,
    dice: Dice,
    /// Ends with news for their shards.
    ready: Vec<EndId>,
    /// Who sent which bytes, for those who look on.
    pub(crate) tap: Option<Vec<(EndId, usize, Vec<u8>)>>,
}

impl Network {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            weather: Weather::CALM,
            blocked: BTreeSet::new(),
            swallowed: BTreeSet::new(),
            addresses: BTreeMap::new(),
            presence: Vec::new(),
            pipes: BTreeMap::new(),
            dials: 0,
            dice: Dice::new(seed, 1),
            ready: Vec::new(),
            tap: None,
        }
    }

    /// A host, numbered in order; nobody listens there yet.
    pub(crate) fn add_host(&mut self, address: Option<String>) {
        if let Some(address) = address {
            self.addresses.entry(address).or_insert(self.presence.len());
        }
        self.presence.push(Presence::Refusing);
    }

    /// Which shards have news, since this was last asked.
    pub(crate) fn take_ready(&mut self) -> Vec<(usize, usize, EndId)> {
        let ready = std::mem::take(&mut self.ready);
        let reader = |id: EndId| {
            let end = self.end(id)?;
            end.shard.map(|shard| (end.host, shard, id))
        };
        ready.into_iter().filter_map(reader).collect()
    }

    fn end(&self, EndId(pipe, end): EndId) -> Option<&End> {
        self.pipes.get(&pipe).map(|pipe| &pipe.ends[end])
    }

    fn end_mut(&mut self, EndId(pipe, end): EndId) -> Option<&mut End> {
        self.pipes.get_mut(&pipe).map(|pipe| &mut pipe.ends[end])
    }

    fn delay(&mut self) -> u64 {
        let (min, max) = self.weather.delay;
        let (permille, longest) = self.weather.spike;
        let mut delay = self.dice.span(min, max);
        if self.dice.chance(permille) {
            delay += self.dice.span(Duration::ZERO, longest);
        }
        delay.as_nanos() as u64
    }

    /// Whether what travels to this end is held up on the way.
    fn is_blocked(&self, to: EndId) -> bool {
        let hosts = self.end(to.other()).zip(self.end(to)).map(|(from, to)| (from.host, to.host));
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
        let id = EndId(self.dials, 0);
        let (min, max) = self.weather.window;
        let window = self.dice.between(min, max) as usize;
        let target = self.addresses.get(address).copied();
        let ends = [End::new(host, Some(shard)), End::new(target.unwrap_or(host), None)];
        self.pipes.insert(self.dials, Pipe { ends, window, dark: false });
        let permille = self.weather.dial_failure;
        let failed = target.is_none() || self.dice.chance(permille);
        let delay = self.delay();
        let happening = if failed { Happening::Reset(id) } else { Happening::Dialled(self.dials) };
        agenda.add(now + delay, happening);
        id
    }

    /// Says how much there was room for.
    pub(crate) fn send(&mut self, agenda: &mut Agenda, now: At, id: EndId, bytes: &[u8]) -> usize {
        let Some(pipe) = self.pipes.get_mut(&id.0) else { return 0 };
        let link = (pipe.ends[id.1].host, pipe.ends[1 - id.1].host);
        if self.swallowed.contains(&link) {
            return bytes.len();
        }
        let end = &mut pipe.ends[id.1];
        let len = bytes.len().min(pipe.window.saturating_sub(end.unread));
        end.unread += len;
        end.wants_room |= len < bytes.len();
        let host = end.host;
        let bytes = &bytes[..len];
        if let Some(tap) = &mut self.tap {
            tap.push((id, host, bytes.to_vec()));
        }
        let chop = self.weather.chop;
        let cut = match len {
            2.. if self.dice.chance(chop) => self.dice.between(1, len as u64 - 1) as usize,
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
            agenda.add(at, Happening::Arrives(from.other()));
        }
        end.parcels.push_back((at, parcel));
    }

    /// A shard closes its end.
    pub(crate) fn close(&mut self, agenda: &mut Agenda, now: At, id: EndId) {
        let Some(end) = self.end_mut(id) else { return };
        if end.shard.take().is_some() {
            self.put(agenda, now, id, Parcel::End);
            self.remove_pipe(id.0);
        }
    }

    fn remove_pipe(&mut self, pipe: PipeId) {
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
        if let Some(sender) = self.end_mut(id.other()) {
            // It will be read once more.
            sender.unread += unread.len();
        }
    }

    /// What is new at an end, if that shard still reads there.
    pub(crate) fn news(
        &mut self,
        agenda: &mut Agenda,
        now: At,
        id: EndId,
        shard: usize,
    ) -> Option<News> {
        let delay = self.delay();
        let end = self.end_mut(id).filter(|end| end.shard == Some(shard))?;
        let bytes = std::mem::take(&mut end.received);
        if !bytes.is_empty() {
            agenda.add(now + delay, Happening::Room(id.other(), bytes.len()));
        }
        Some(News {
            established: std::mem::take(&mut end.established),
            writable: std::mem::take(&mut end.writable),
            bytes,
            ended: end.ended,
        })
    }

    /// A host's process began or ended. One that ended has closed its connections, unless the
    /// machine went dark with it.
    pub(crate) fn set_presence(
        &mut self,
        agenda: &mut Agenda,
        now: At,
        host: usize,
        presence: Presence,
    ) {
        self.presence[host] = presence;
        if presence == Presence::Listening {
            return;
        }
        let of_host = |(id, pipe): (&PipeId, &Pipe)| {
            (0..2).find(|end| pipe.ends[*end].host == host).map(|end| EndId(*id, end))
        };
        let ends: Vec<EndId> = self.pipes.iter().filter_map(of_host).collect();
        for id in ends {
            if presence == Presence::Refusing {
                self.close(agenda, now, id);
            } else if let Some(end) = self.end_mut(id) {
                end.shard = None;
                self.remove_pipe(id.0);
            }
        }
    }

    /// How often somebody dialled so far.
    pub(crate) const fn dials(&self) -> u64 {
        self.dials
    }

    /// Every connection that stands.
    pub(crate) fn pipes(&self) -> Vec<PipeId> {
        self.pipes.keys().copied().collect()
    }

    /// Cuts a connection: the ends given are told, the others never hear of it.
    pub(crate) fn cut(&mut self, pipe: PipeId, told: [bool; 2]) {
        let Some(cut) = self.pipes.get_mut(&pipe) else { return };
        cut.dark = true;
        for (place, end) in cut.ends.iter_mut().enumerate().filter(|(place, _)| told[*place]) {
            end.ended = Some("connection reset");
            self.ready.push(EndId(pipe, place));
        }
    }

    /// Something of the network's happens.
    pub(crate) fn happens(&mut self, agenda: &mut Agenda, now: At, happening: Happening) {
        let (to, held_up) = match happening {
            Happening::Dialled(pipe) => (EndId(pipe, 1), self.is_blocked(EndId(pipe, 1))),
            Happening::Answered(pipe) => (EndId(pipe, 0), self.is_blocked(EndId(pipe, 0))),
            Happening::Arrives(end) | Happening::Room(end, _) | Happening::Reset(end) => {
                (end, self.is_blocked(end))
            }
            _ => unreachable!("not the network's"),
        };
        if held_up {
            return agenda.add(now + RETRIED_EVERY.as_nanos() as u64, happening);
        }
        if self.pipes.get(&to.0).is_none_or(|pipe| pipe.dark) {
            return;
        }
        match happening {
            Happening::Dialled(pipe) => self.dial_arrives(agenda, now, pipe),
            Happening::Arrives(_) => self.arrives(agenda, now, to),
            Happening::Room(_, len) => self.room(to, len),
            Happening::Answered(_) => self.tell(to, |end| end.established = true),
            _ => self.tell(to, |end| end.ended = Some("connection refused or reset")),
        }
    }

    fn tell(&mut self, id: EndId, change: impl FnOnce(&mut End)) {
        if let Some(end) = self.end_mut(id) {
            change(end);
            self.ready.push(id);
        }
    }

    fn dial_arrives(&mut self, agenda: &mut Agenda, now: At, pipe: PipeId) {
        let delay = self.delay();
        let to = EndId(pipe, 1);
        let Some(end) = self.end_mut(to) else { return };
        let host = end.host;
        match self.presence[host] {
            Presence::Listening => {
                self.tell(to, |end| end.shard = Some(0));
                agenda.add(now + delay, Happening::Answered(pipe));
            }
            Presence::Refusing => agenda.add(now + delay, Happening::Reset(EndId(pipe, 0))),
            // The wish is repeated until whoever dialled gives up.
            Presence::Dark => {
                let retried_at = now + RETRIED_EVERY.as_nanos() as u64;
                agenda.add(retried_at, Happening::Dialled(pipe));
            }
        }
    }

    fn arrives(&mut self, agenda: &mut Agenda, now: At, to: EndId) {
        let delay = self.delay();
        let Some(pipe) = self.pipes.get_mut(&to.0) else { return };
        let [a, b] = &mut pipe.ends;
        let (from, end) = if to.1 == 1 { (a, b) } else { (b, a) };
        while let Some((_, parcel)) = from.parcels.pop_front_if(|(at, _)| *at <= now) {
            match parcel {
                Parcel::Bytes(bytes) => end.received.extend(bytes),
                Parcel::End => end.ended = end.ended.or(Some("it closed the connection")),
            }
        }
        if let Some((at, _)) = from.parcels.front() {
            agenda.add(*at, Happening::Arrives(to));
        }
        if end.shard.is_some() {
            self.ready.push(to);
        } else if self.presence[end.host] != Presence::Dark {
            agenda.add(now + delay, Happening::Reset(to.other()));
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
