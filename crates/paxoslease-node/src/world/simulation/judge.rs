//! Shows the simulator's checkers what happens in a world of nodes: what acceptors store, what
//! guards believe by their own clocks, who was granted what, and what travels.
//!
//! Adds the promises that only guards make: `lost()` resolves before anybody else believes.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use paxoslease_core::{Drift, Message, Name, NodeId, Tenure, Ttl};
use paxoslease_sim::algorithm::Packet;
use paxoslease_sim::trace::TrueTime;
use paxoslease_sim::{Check, Checker, Checks, Claim, Stored};
use paxoslease_wire::{FrameKind, FrameReader, ShardId, split_frame};

use crate::stable::{DataFile, Disk};
use crate::world::network::EndId;
use crate::world::{At, HostClock, World};
use paxoslease_holder::LeaseGuard;

/// A lease as its holder has it.
struct Held {
    host: usize,
    name: usize,
    guard: Rc<LeaseGuard>,
    /// `lost()` has resolved.
    told: bool,
    until: At,
}

pub(crate) struct Judge {
    checker: Checker,
    names: Vec<String>,
    members: usize,
    clocks: Vec<HostClock>,
    drift: Drift,
    /// By client.
    held: BTreeMap<u32, Held>,
    running: Vec<bool>,
    paused: BTreeSet<usize>,
    /// When releases were confirmed to their holders, by name and fence.
    confirmed_at: BTreeMap<(String, u64), At>,
    /// What was sent and is not yet a whole frame.
    streams: BTreeMap<EndId, Vec<u8>>,
    now: At,
    pub(crate) grants: u64,
    pub(crate) losses: u64,
}

impl Judge {
    /// Hosts are members first, in order of their ids from 1.
    pub(crate) fn new(
        names: Vec<String>,
        members: u16,
        clocks: Vec<HostClock>,
        drift: Drift,
    ) -> Self {
        // Within one turn a lease can be given back and the next one stored: only the last is
        // seen here, so nobody can tell whether a foreign lease was replaced.
        let checks = Checks::ALL.without(Check::ForeignLeaseKept);
        Self {
            checker: Checker::new(checks, members, clocks.len(), names.len()),
            names,
            members: usize::from(members),
            running: vec![false; clocks.len()],
            clocks,
            drift,
            held: BTreeMap::new(),
            paused: BTreeSet::new(),
            confirmed_at: BTreeMap::new(),
            streams: BTreeMap::new(),
            now: 0,
            grants: 0,
            losses: 0,
        }
    }

    pub(crate) fn names(&self) -> &[String] {
        &self.names
    }

    pub(crate) fn verdict(&self) -> Vec<String> {
        self.checker.violations().iter().map(ToString::to_string).collect()
    }

    pub(crate) fn broken(&mut self, check: Check, text: impl FnOnce() -> String) {
        self.checker.broken(TrueTime(self.now), check, text);
    }

    /// Something happened, perhaps on a host.
    pub(crate) fn see(&mut self, world: &mut World, host: Option<usize>) {
        self.now = world.now();
        for (end, host, bytes) in world.network.tap.as_mut().map(std::mem::take).unwrap_or_default()
        {
            self.hear(end, host, &bytes);
        }
        let Some(host) = host.filter(|host| *host < self.clocks.len()) else { return };
        // A belief ends before its lease is given back, and begins after it was stored.
        let (over, live): (Vec<u32>, _) =
            self.listen(host).into_iter().partition(|client| self.held[client].until <= self.now);
        over.into_iter().for_each(|client| self.claim(client));
        match (self.running[host], world.is_running(host)) {
            (true, false) => self.ended(world, host),
            (false, true) => self.started(world, host),
            (true, true) => self.look(world, host),
            (false, false) => {}
        }
        live.into_iter().for_each(|client| self.claim(client));
    }

    fn stored(&self, world: &World, host: usize, name: usize) -> Option<Stored> {
        let process = world.host(host).process.as_ref()?;
        let name_text = Name::new(&self.names[name]).expect("a name");
        let place = ShardId::of(name_text, process.shards.len() as u16).index();
        let shard = process.shards[usize::from(place)].as_ref()?.driver.shard();
        let register = shard.register(name_text).unwrap_or_default();
        let lease = register.accepted.map(|accepted| {
            let until = self.clocks[host].first_shows(accepted.expires_at);
            (accepted.tenure, TrueTime(until))
        });
        // A lease that expired is no lease; the record of it may stay or go.
        let before = self.checker.stored(host, name).lease;
        let lease = lease.filter(|(_, until)| until.0 > self.now || lease == before);
        Some(Stored { promised: register.promised.max(shard.floor()?), lease })
    }

    fn look(&mut self, world: &World, host: usize) {
        for name in 0..self.names.len() {
            if let Some(stored) = self.stored(world, host, name).filter(|_| host < self.members)
                && stored != self.checker.stored(host, name)
            {
                self.checker.stores(TrueTime(self.now), host, name, stored);
            }
        }
    }

    fn started(&mut self, world: &World, host: usize) {
        self.running[host] = true;
        if host < self.members {
            let names = 0..self.names.len();
            let stored: Vec<Stored> =
                names.map(|name| self.stored(world, host, name).unwrap_or_default()).collect();
            self.checker.started(TrueTime(self.now), host, &stored);
        }
    }

    fn ended(&mut self, world: &World, host: usize) {
        self.running[host] = false;
        self.paused.remove(&host);
        let disk = world.host(host).disk.as_ref();
        let snapshot = disk.and_then(|disk| disk.read(DataFile::Snapshot).expect("in memory"));
        self.checker.ended(TrueTime(self.now), host, snapshot.is_none());
    }

    /// The process of a host is gone, and everybody in it.
    pub(crate) fn process_gone(&mut self, host: usize) {
        let gone: Vec<u32> =
            self.held.iter().filter(|(_, held)| held.host == host).map(|(id, _)| *id).collect();
        gone.into_iter().for_each(|client| self.gives_up(client));
    }

    pub(crate) fn set_paused(&mut self, host: usize, paused: bool) {
        if paused {
            self.paused.insert(host);
        } else {
            self.paused.remove(&host);
        }
    }

    /// Asks every guard of a host whether it holds, by its own clock. Says whose answers changed.
    fn listen(&mut self, host: usize) -> Vec<u32> {
        let local = self.clocks[host].read(self.now);
        let mut changed = Vec::new();
        for (client, held) in self.held.iter_mut().filter(|(_, held)| held.host == host) {
            let ends_at = local.after(held.guard.remaining());
            let until = if held.guard.is_held() {
                self.clocks[host].first_shows(ends_at)
            } else {
                self.now
            };
            if until != held.until {
                held.until = until;
                changed.push(*client);
            }
        }
        changed
    }

    fn claim(&mut self, client: u32) {
        let held = &self.held[&client];
        let (name, tenure) = (held.name, tenure_of(&held.guard));
        if held.until <= self.now {
            self.checker.released(name, tenure);
            return self.checker.yields(name, client);
        }
        let ttl = Ttl::from_duration(held.guard.ttl()).expect("it was granted");
        let clock = &self.clocks[held.host];
        let span = self.drift.belief_span(ttl);
        let local_end = clock.read(held.until).as_nanos();
        let started_at = local_end.saturating_sub(span.as_nanos() as u64);
        let since = clock.first_shows(paxoslease_core::Instant::from_nanos(started_at));
        let (since, until) = (TrueTime(since), TrueTime(held.until));
        let claim = Claim { client, tenure, since, until };
        self.checker.believes(TrueTime(self.now), name, claim);
    }

    /// A client was granted a lease.
    pub(crate) fn granted(&mut self, client: u32, host: usize, name: usize, guard: Rc<LeaseGuard>) {
        self.grants += 1;
        let tenure = tenure_of(&guard);
        self.checker.granted(TrueTime(self.now), name, tenure, true);
        let unaware = |(_, other): &(&u32, &Held)| {
            other.name == name && !other.told && !self.paused.contains(&other.host)
        };
        if let Some((other, _)) = self.held.iter().find(unaware) {
            let text =
                format!("client {client} was granted before client {other} knew of its loss");
            self.checker.broken(TrueTime(self.now), Check::OneHolder, || text);
        }
        self.held.insert(client, Held { host, name, guard, told: false, until: 0 });
        self.listen(host).into_iter().for_each(|client| self.claim(client));
    }

    /// A client's `lost()` has resolved.
    pub(crate) fn told_lost(&mut self, client: u32) {
        self.losses += 1;
        if let Some(held) = self.held.get_mut(&client) {
            held.told = true;
        }
    }

    /// A client is about to drop or release its guard.
    pub(crate) fn gives_up(&mut self, client: u32) {
        if let Some(held) = self.held.remove(&client) {
            self.checker.released(held.name, tenure_of(&held.guard));
            self.checker.yields(held.name, client);
        }
    }

    /// Gives a guard back, and remembers when that was confirmed. Says whether it was.
    pub(crate) async fn release(judge: &RefCell<Self>, guard: LeaseGuard) -> bool {
        let tenure = (guard.name().to_owned(), guard.fence());
        let is_confirmed = guard.release().await.is_ok();
        if is_confirmed {
            let mut judge = judge.borrow_mut();
            let now = judge.now;
            judge.confirmed_at.insert(tenure, now);
        }
        is_confirmed
    }

    pub(crate) const fn now(&self) -> At {
        self.now
    }

    /// Somebody asked and was denied because of that tenure (promise 4).
    pub(crate) fn denied(&mut self, host: usize, asked_at: At, name: String, fence: u64) {
        let confirmed_at = self.confirmed_at.get(&(name, fence)).copied();
        let Some(at) = confirmed_at.filter(|at| *at < asked_at) else { return };
        let text = || {
            let late = Duration::from_nanos(asked_at - at);
            format!(
                "node {} denied a request because of fence {fence}, whose release had been \
                 confirmed {late:?} before",
                host + 1
            )
        };
        self.checker.broken(TrueTime(self.now), Check::ReleaseFrees, text);
    }

    fn hear(&mut self, end: EndId, host: usize, bytes: &[u8]) {
        let stream = self.streams.entry(end).or_default();
        stream.extend_from_slice(bytes);
        let mut rest = stream.as_slice();
        while let Some((frame, after)) = split_frame(rest).expect("nodes send whole frames") {
            rest = after;
            if host >= self.clocks.len() || FrameKind::of(frame) != Ok(FrameKind::Messages) {
                continue;
            }
            for message in FrameReader::new(frame).expect("a frame") {
                let packet = packet(&message.expect("a message"));
                self.checker.sent(TrueTime(self.now), host, &packet);
            }
        }
        let consumed = stream.len() - rest.len();
        stream.drain(..consumed);
    }
}

fn tenure_of(guard: &LeaseGuard) -> Tenure {
    Tenure::from_fence(guard.fence()).expect("fences are tenures")
}

fn packet(message: &Message<'_>) -> Packet {
    Packet {
        to: NodeId::MAX,
        kind: message.kind(),
        is_reply: matches!(message, Message::Reply(_)),
        round: match message {
            Message::Request(request) => request.ballot(),
            Message::Reply(_) | Message::Hint(_) => None,
        },
        bytes: Rc::default(),
    }
}
