//! Shows the simulator's checker what happens in a world: what acceptors store, what guards believe
//! by their own clocks, which users were granted what, and what nodes send each other.
//!
//! Adds the promise that only guards make: `lost()` resolves before another user is granted the
//! name. Records a trace for transcripts and diagrams.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use paxoslease_core::{
    Ballot, Configuration, Drift, Instant, Member, Message, Name, NodeId, Tenure, Ttl,
};
use paxoslease_sim::algorithm::{Packet, View};
use paxoslease_sim::trace::{TraceEvent, Tracer, TrueTime};
use paxoslease_sim::{Check, Checker, Checks, Claim, Counts, Keep, Stored, Violation};
use paxoslease_wire::{FrameKind, FrameReader, ShardId, split_frame};

use paxoslease_holder::LeaseGuard;
use paxoslease_node::simulation::{EndId, Process, VolatileFiles};

use super::Setup;
use super::durable::Durable;
use super::members::MembersSeen;
use crate::clock::HostClock;
use crate::world::{At, World};

/// The lease of a user.
struct Held {
    host: usize,
    name: usize,
    guard: Rc<LeaseGuard>,
    /// `lost()` has resolved.
    told: bool,
    until: At,
}

pub(crate) struct Judge {
    pub(super) checker: Checker,
    pub(super) names: Vec<String>,
    /// How many nodes are members, or may become members.
    acceptors: usize,
    pub(crate) members: MembersSeen,
    pub(super) clocks: Vec<HostClock>,
    pub(super) drift: Drift,
    /// By the number of the user.
    held: BTreeMap<u32, Held>,
    /// By the number of the holder.
    pub(super) durable: BTreeMap<u32, Durable>,
    /// How many durable leases users have asked for.
    pub(super) asked_durable: u32,
    /// The users that look after a durable lease: the text of its holder, and their host.
    pub(super) keepers: BTreeMap<String, usize>,
    /// When the releases of durable leases were confirmed, by the text of the holder.
    pub(super) freed_at: BTreeMap<String, At>,
    /// By host and name: what the register holds there, for the trace.
    pub(super) registers: BTreeMap<(usize, usize), String>,
    running: Vec<bool>,
    /// By host: the epoch of the node at its last event.
    epochs: Vec<u32>,
    /// By host and name: the highest fence that the node granted.
    pub(super) granted: BTreeMap<(usize, String), u64>,
    /// By host, if its data folder was lost: the epoch at that time, and what it had granted.
    forgotten: BTreeMap<usize, (u32, BTreeMap<String, u64>)>,
    paused: BTreeSet<usize>,
    /// When releases were confirmed to their holders, by name and fence.
    confirmed_at: BTreeMap<(String, u64), At>,
    /// The bytes of frames that are not complete yet.
    streams: BTreeMap<EndId, Vec<u8>>,
    pub(super) now: At,
    pub(crate) counts: Counts,
    pub(crate) losses: u64,
    pub(super) keep: Keep,
    tracer: Tracer,
}

impl Judge {
    /// The hosts of members come first, in order of their ids from 1.
    pub(crate) fn new(setup: &Setup, clocks: Vec<HostClock>, drift: Drift) -> Self {
        // Within one turn a lease can be released and the next one stored. The judge sees only the
        // last one, so it cannot tell whether a foreign lease was replaced.
        let checks = Checks::ALL.without(Check::ForeignLeaseKept);
        let names = setup.names.clone();
        let acceptors = setup.acceptors();
        Self {
            checker: Checker::new(checks, setup.members, clocks.len(), names.len()),
            names,
            acceptors,
            members: MembersSeen::new(setup.nodes()),
            running: vec![false; clocks.len()],
            epochs: vec![0; clocks.len()],
            granted: BTreeMap::new(),
            forgotten: BTreeMap::new(),
            clocks,
            drift,
            held: BTreeMap::new(),
            durable: BTreeMap::new(),
            asked_durable: 0,
            keepers: BTreeMap::new(),
            freed_at: BTreeMap::new(),
            registers: BTreeMap::new(),
            paused: BTreeSet::new(),
            confirmed_at: BTreeMap::new(),
            streams: BTreeMap::new(),
            now: 0,
            counts: Counts::default(),
            losses: 0,
            keep: setup.keep,
            tracer: Tracer::new(setup.keep),
        }
    }

    pub(crate) fn names(&self) -> &[String] {
        &self.names
    }

    pub(crate) fn violations(&self) -> &[Violation] {
        self.checker.violations()
    }

    /// The part of the trace that was kept.
    pub(crate) fn take_trace(&mut self) -> Vec<paxoslease_sim::trace::Entry> {
        std::mem::replace(&mut self.tracer, Tracer::new(paxoslease_sim::Keep::Nothing))
            .into_entries()
    }

    pub(crate) fn broken(&mut self, check: Check, text: impl FnOnce() -> String) {
        self.checker.broken(TrueTime(self.now), check, text);
        self.note_violations();
    }

    /// Adds violations to the trace, each where it was found.
    fn note_violations(&mut self) {
        for violation in self.checker.unreported() {
            let text = || TraceEvent::Violation(violation.to_string());
            self.tracer.record(TrueTime(self.now), text);
        }
    }

    /// Adds an event to the trace.
    pub(crate) fn record(&mut self, event: impl FnOnce() -> TraceEvent) {
        self.tracer.record(TrueTime(self.now), event);
    }

    /// Sees what an event has changed, perhaps on a host.
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
        match (self.running[host], world.process(host).is_some()) {
            (true, false) => self.ended(world, host),
            (false, true) => self.started(world, host),
            (true, true) => self.look(world, host),
            (false, false) => {}
        }
        live.into_iter().for_each(|client| self.claim(client));
        self.note_violations();
    }

    fn stored(&self, world: &World, host: usize, name: usize) -> Option<Stored> {
        let process = world.process(host)?;
        let name_text = Name::new(&self.names[name]).expect("a name");
        let place = ShardId::of(name_text, process.shards() as u16).index();
        let view = View::of(process.core(usize::from(place))?, name_text)?;
        let before = self.checker.stored(host, name);
        Some(Stored::seen(Some(view), &self.clocks[host].plan, TrueTime(self.now), before))
    }

    fn look(&mut self, world: &World, host: usize) {
        self.look_at_members(world, host);
        self.look_at_registers(world, host);
        for name in 0..self.names.len() {
            if let Some(stored) = self.stored(world, host, name).filter(|_| host < self.acceptors)
                && stored != self.checker.stored(host, name)
            {
                self.record_stored(host, name, stored);
                self.checker.stores(TrueTime(self.now), host, name, stored);
            }
        }
    }

    fn look_at_members(&mut self, world: &World, host: usize) {
        let Some(found) = world.process(host).and_then(Process::configuration) else { return };
        let node = host as u16 + 1;
        if self.epochs[host] == found.epoch() {
            return;
        }
        self.epochs[host] = found.epoch();
        self.record(|| TraceEvent::Note { node, text: describe(found) });
        if self.members.latest().is_none_or(|latest| latest.epoch() < found.epoch()) {
            let members = found.old().iter().map(|member| usize::from(member.node.get()) - 1);
            self.checker.members_change(TrueTime(self.now), members);
        }
        if let Some(known) = self.members.found(found) {
            let text = format!("node {node} has {}, another {}", describe(found), describe(known));
            self.checker.broken(TrueTime(self.now), Check::OneConfiguration, || text);
        }
    }

    /// Whether a node knows the members of its cell, or their list is fixed.
    pub(crate) fn has_members(&self, host: usize) -> bool {
        self.epochs[host] > 0 || self.members.latest().is_none()
    }

    fn record_stored(&mut self, host: usize, name: usize, stored: Stored) {
        if stored.lease == self.checker.stored(host, name).lease {
            return;
        }
        let (node, name) = (host as u16 + 1, self.names[name].clone());
        self.record(|| match stored.lease {
            Some((tenure, until)) => {
                TraceEvent::Stored { node, name, fence: tenure.fence(), until }
            }
            None => TraceEvent::Cleared { node, name },
        });
    }

    fn started(&mut self, world: &World, host: usize) {
        self.running[host] = true;
        if let Some(birth) = world.process(host).and_then(Process::birth) {
            self.members.started(host, birth);
        }
        self.epochs[host] = 0;
        self.look_at_members(world, host);
        let core = world.process(host).and_then(|process| process.core(0));
        let remaining =
            core.map(|core| core.quarantine_remaining(self.clocks[host].read(self.now)));
        let until = remaining.filter(|span| !span.is_zero()).map(|span| {
            TrueTime(self.clocks[host].first_shows(self.clocks[host].read(self.now).after(span)))
        });
        let node = host as u16 + 1;
        self.record(|| TraceEvent::Started { node, quarantine_until: until });
        if host < self.acceptors {
            let names = 0..self.names.len();
            // A node that is not a member keeps its promises on disk alone.
            let no_member = |name| Stored { lease: None, ..self.checker.stored(host, name) };
            let stored: Vec<Stored> = names
                .map(|name| self.stored(world, host, name).unwrap_or_else(|| no_member(name)))
                .collect();
            if core.is_none_or(|core| core.floor().is_none()) {
                // Whatever it handed on counts for nothing while it is not a member.
                self.checker.ended(TrueTime(self.now), host, false);
            }
            self.checker.started(TrueTime(self.now), host, &stored);
        }
    }

    fn ended(&mut self, world: &World, host: usize) {
        self.running[host] = false;
        self.paused.remove(&host);
        let is_clean = world.files(host).is_some_and(VolatileFiles::has_snapshot);
        let node = host as u16 + 1;
        if is_clean {
            self.counts.stops += 1;
            self.record(|| TraceEvent::Stopped(node));
        } else {
            self.counts.crashes += 1;
            self.record(|| TraceEvent::Crashed(node));
        }
        self.checker.ended(TrueTime(self.now), host, !is_clean);
    }

    /// The data folder of a host is lost. Its process is gone.
    pub(crate) fn lost_disk(&mut self, host: usize) {
        self.counts.lost_disks += 1;
        self.counts.lost_members += u64::from(self.members.is_member(host));
        self.members.lost_disk(host);
        let node = host as u16 + 1;
        let own = self.granted.iter().filter(|((by, _), _)| *by == host);
        let granted = own.map(|((_, name), fence)| (name.clone(), *fence)).collect();
        let epoch = self.members.latest().map_or(0, Configuration::epoch);
        self.forgotten.insert(host, (epoch, granted));
        self.checker.lost_disk(TrueTime(self.now), host);
        self.record(|| TraceEvent::Note { node, text: "loses its data folder".to_owned() });
    }

    /// The process of a host is gone, with all users in it.
    pub(crate) fn process_gone(&mut self, host: usize) {
        let gone: Vec<u32> =
            self.held.iter().filter(|(_, held)| held.host == host).map(|(id, _)| *id).collect();
        gone.into_iter().for_each(|client| self.gives_up(client));
        self.keepers.retain(|_, own| *own != host);
    }

    pub(crate) fn set_paused(&mut self, host: usize, paused: bool) {
        if paused {
            self.paused.insert(host);
        } else {
            self.paused.remove(&host);
        }
    }

    /// Asks every guard of a host whether it holds, by its own clock. Returns the users whose
    /// answer has changed.
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
            return self.yields(name, client);
        }
        let ttl = Ttl::from_duration(held.guard.ttl()).expect("it was granted");
        let clock = &self.clocks[held.host];
        let span = self.drift.belief_span(ttl);
        let local_end = clock.read(held.until).as_nanos();
        let started_at = local_end.saturating_sub(span.as_nanos() as u64);
        let since = clock.first_shows(Instant::from_nanos(started_at));
        let (since, until) = (TrueTime(since), TrueTime(held.until));
        let claim = Claim { client, tenure, since, until, is_backed: true };
        // Users of a client do not know its node, but the tenure does.
        let (node, fence) = (tenure.ballot().node().map_or(0, NodeId::get), tenure.fence());
        let text = self.names[name].clone();
        self.record(|| TraceEvent::Believes { client, node, name: text, fence, until });
        self.checker.believes(TrueTime(self.now), name, claim);
    }

    pub(super) fn yields(&mut self, name: usize, client: u32) {
        let text = self.names[name].clone();
        self.record(|| TraceEvent::Yielded { client, name: text });
        self.checker.yields(name, client);
    }

    /// A client was granted a lease. The judge shares the guard until the client gives it up.
    pub(crate) fn granted(
        &mut self,
        client: u32,
        host: usize,
        name: usize,
        guard: LeaseGuard,
    ) -> Rc<LeaseGuard> {
        let guard = Rc::new(guard);
        self.note_grant(name, tenure_of(&guard));
        let unaware = |(_, other): &(&u32, &Held)| {
            other.name == name && !other.told && !self.paused.contains(&other.host)
        };
        if let Some((other, _)) = self.held.iter().find(unaware) {
            let text =
                format!("client {client} was granted before client {other} knew of its loss");
            self.checker.broken(TrueTime(self.now), Check::OneHolder, || text);
        }
        let shared = Rc::clone(&guard);
        self.held.insert(client, Held { host, name, guard: shared, told: false, until: 0 });
        self.listen(host).into_iter().for_each(|client| self.claim(client));
        guard
    }

    /// A client was granted a tenure.
    fn note_grant(&mut self, name: usize, tenure: Tenure) {
        self.counts.acquires += 1;
        self.checker.granted(TrueTime(self.now), name, tenure, true);
        self.note_fence(name, tenure);
    }

    /// A client was told this fence.
    pub(super) fn note_fence(&mut self, name: usize, tenure: Tenure) {
        if let Some(node) = tenure.ballot().node() {
            let by = usize::from(node.get()) - 1;
            let highest = self.granted.entry((by, self.names[name].clone())).or_default();
            *highest = tenure.fence().max(*highest);
        }
    }

    /// R5: after the loss of its data folder, a node must not use a ballot again that it granted.
    /// Messages of an epoch before the loss count for nothing (C1).
    fn check_ballot(&mut self, host: usize, epoch: u32, name: Name<'_>, round: Option<Ballot>) {
        let Some((lost_in, granted)) = self.forgotten.get(&host) else { return };
        let granted = granted.get(name.as_str()).filter(|_| epoch >= *lost_in);
        if let Some((ballot, granted)) = round.zip(granted)
            && ballot.as_u64() <= *granted
        {
            let text = || {
                let before = Tenure::from_fence(*granted).expect("a fence");
                format!(
                    "node {} lost its data folder after it had granted {before} of {}, and began \
                     {ballot}",
                    host + 1,
                    name
                )
            };
            self.checker.broken(TrueTime(self.now), Check::BallotsAreFresh, text);
        }
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
            self.yields(held.name, client);
        }
    }

    /// A client is about to drop or release its guard, which no other part of the test shares.
    pub(crate) fn return_guard(&mut self, client: u32, guard: Rc<LeaseGuard>) -> LeaseGuard {
        self.gives_up(client);
        Rc::into_inner(guard).expect("the judge has dropped it")
    }

    /// Releases a guard, and remembers when that was confirmed. Returns whether it was.
    pub(crate) async fn release(judge: &RefCell<Self>, guard: LeaseGuard) -> bool {
        let tenure = (guard.name().to_owned(), guard.fence());
        let is_confirmed = guard.release().await.is_ok();
        if is_confirmed {
            let mut judge = judge.borrow_mut();
            let now = judge.now;
            judge.confirmed_at.insert(tenure, now);
            judge.counts.releases += 1;
        }
        is_confirmed
    }

    pub(crate) const fn now(&self) -> At {
        self.now
    }

    /// A user was denied because of that tenure (promise 4).
    pub(crate) fn denied(&mut self, host: usize, asked_at: At, name: String, fence: u64) {
        self.counts.denials += 1;
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
        let mut stream = self.streams.remove(&end).unwrap_or_default();
        stream.extend_from_slice(bytes);
        let mut rest = stream.as_slice();
        while let Some((frame, after)) = split_frame(rest).expect("nodes send whole frames") {
            rest = after;
            if host >= self.clocks.len() || FrameKind::of(frame) != Ok(FrameKind::Messages) {
                continue;
            }
            let messages = FrameReader::new(frame).expect("a frame");
            let epoch = messages.header().epoch;
            for message in messages {
                self.counts.messages += 1;
                let message = message.expect("a message");
                let packet = Packet::new(NodeId::MAX, &message, Rc::default());
                if let Message::Request(request) = &message {
                    self.check_ballot(host, epoch, request.name(), packet.round);
                }
                self.checker.sent(TrueTime(self.now), host, &packet);
            }
        }
        let consumed = stream.len() - rest.len();
        stream.drain(..consumed);
        self.streams.insert(end, stream);
    }
}

fn describe(configuration: &Configuration) -> String {
    let list = |set: &[Member]| {
        let members =
            set.iter().map(|member| format!("{}:{:04x}", member.node, member.birth.0 >> 48));
        members.collect::<Vec<_>>().join(" ")
    };
    let new = configuration.new_set().map(|new| format!(" to {}", list(new)));
    let (epoch, old) = (configuration.epoch(), list(configuration.old()));
    format!("epoch {epoch} with {old}{}", new.unwrap_or_default())
}

fn tenure_of(guard: &LeaseGuard) -> Tenure {
    Tenure::from_fence(guard.fence()).expect("fences are tenures")
}
