//! One shard whose peers are the fuzzer: every possible message in any order, between any commands,
//! pauses, disk writes and restarts.
//!
//! Peers that lie can break every promise to holders; [`crate::cell`] checks those promises. Here
//! is checked what must hold in spite of lies: no panic, all bounds and promises kept, silence in
//! quarantine, exactly one answer to every request, and a lease once the lies have ended.

use std::collections::BTreeMap;
use std::time::Duration;

use arbitrary::{Arbitrary, Unstructured};
use paxoslease_core::{
    Acquire, Ballot, Cell, Config, Drift, Event, Hint, Holder, Instant, Label, Lasts, Limits,
    MemberSet, Message, Name, NodeId, Record, ReleaseId, Renew, Reply, Request, Seen, Shard, Start,
    Tenure, Token, Ttl,
};
use paxoslease_sim::algorithm::View;

const STEPS_MAX: usize = 512;
const NAMES: [&str; 4] = ["a", "jobs/nightly", "jobs/hourly", LONG];
/// Longer than an entry stores inline.
const LONG: &str = "a name that is far too long to be kept in place, and so has to go to the heap";
const LIMITS: Limits = Limits {
    entries_max: 3,
    text_bytes_max: 256,
    rounds_max: 6,
    waiters_max: 5,
    deferred_max: 4,
    registers_max: 2,
};
/// The most messages and events that one call may cause. A release informs every waiter, and a
/// completed write answers every request that waited for it.
const OUTPUTS_MAX: usize = 256;

/// The first bound on counters, far from zero and from the limit, and how far the bound grows in a
/// minute (R5). An acceptor takes ballots this far above the bound.
const BOUND: u64 = Ballot::COUNTER_LIMIT / 3;
const MINUTE: u64 = 60_000 << 10;

#[derive(Arbitrary, Debug)]
enum ShardStep {
    Hear { from: u8, message: PeerMessage },
    Observe(Number),
    Pass { millis: u16 },
    Acquire { name: u8, ttl: u16, wait: u16 },
    Abandon { which: u8 },
    Renew { name: u8, fence: Number, ttl: u16 },
    Release { name: u8, fence: Number, patience: u16 },
    Inspect { name: u8 },
    AcquireDurable { name: u8, lasts: u16 },
    Keep { name: u8, fence: Number, lasts: u16 },
    ReleaseDurable { name: u8, fence: Number, patience: u16 },
    DurableWritten { sequence: u8 },
    DurableRoom(bool),
    Note { name: u8, text: u8 },
    Written,
    Sweep { slots: u8 },
    KeepUp { slots: u8 },
    Reachable(u8),
    RoundTrip(u16),
    Watched(bool),
    Crash,
    Restart,
}

/// A message with numbers in place of names and ballots.
#[derive(Arbitrary, Debug)]
enum PeerMessage {
    Prepare { name: u8, ballot: Number },
    Propose { name: u8, ballot: Number, ttl: u32, holder: u8 },
    Renew { name: u8, tenure: Number, ballot: Number, ttl: u32 },
    Heal { name: u8, tenure: Number, ballot: Number, ttl: u32, holder: u8 },
    Release { name: u8, tenure: Number, id: u8 },
    Inspect { name: u8, query: u8 },
    Promise { ballot: Number, seen: Option<ReportedLease> },
    Accept { ballot: Number },
    Reject { ballot: Number, promised: Number, seen: Option<ReportedLease> },
    NotHeld { ballot: Number, promised: Number },
    Released { tenure: Number, by: Option<u8> },
    Inspected { query: u8, seen: Option<ReportedLease> },
    Held { name: u8, seen: ReportedLease },
    Freed { name: u8 },
    Note { name: u8, text: u8 },
}

#[derive(Arbitrary, Debug)]
struct ReportedLease {
    tenure: Number,
    remaining: u32,
    holder: u8,
}

/// A ballot, often a meaningful one: that of a round under way, or a counter that is small, near
/// the highest one seen, or near the highest possible one.
#[derive(Arbitrary, Clone, Copy, Debug)]
enum Number {
    OfRound(u8),
    Small { counter: u8, node: u8 },
    Near { back: i8, node: u8 },
    Huge { back: u8, node: u8 },
    Any(u64),
}

/// Runs one shard among peers that lie.
pub fn shard(bytes: &[u8]) {
    let mut input = Unstructured::new(bytes);
    let Ok(disk) = bool::arbitrary(&mut input) else { return };
    let mut subject = ShardUnderTest::new(disk);
    for _ in 0..STEPS_MAX {
        if input.is_empty() {
            break;
        }
        let Ok(step) = ShardStep::arbitrary(&mut input) else { break };
        subject.step(&step);
        subject.check_outputs();
    }
    subject.finish();
    subject.demand_lease();
}

struct ShardUnderTest {
    now: Instant,
    shard: Shard,
    disk: bool,
    /// The durable record, and the one that is being written.
    record: Record,
    writing: Option<Record>,
    tokens: u64,
    /// Open requests, and the name of each that can be abandoned.
    open: BTreeMap<u64, Option<Name<'static>>>,
    promised: [Ballot; NAMES.len()],
    /// The bound on counters. It grows as the wall clock does.
    bound: u64,
    grants: u64,
}

impl ShardUnderTest {
    fn new(disk: bool) -> Self {
        let now = Instant::from_nanos(1 << 40);
        let shard = Shard::start(config(), now, Start::NewCell { counter: 0, disk });
        let mut subject = Self {
            now,
            shard,
            disk,
            record: Record::default(),
            writing: None,
            tokens: 0,
            open: BTreeMap::new(),
            promised: [Ballot::ZERO; NAMES.len()],
            bound: BOUND,
            grants: 0,
        };
        subject.shard.set_counter_bound(BOUND);
        subject.check_outputs();
        subject
    }

    fn step(&mut self, step: &ShardStep) {
        let now = self.now;
        match *step {
            ShardStep::Hear { from, ref message } => self.hear(from, message),
            ShardStep::Observe(number) => {
                let seen = self.ballot(number).counter();
                // A refusal changes nothing.
                let _beyond = self.shard.observe_counter(seen);
            }
            ShardStep::Pass { millis: span } => self.pass(millis(span)),
            ShardStep::Acquire { name, ttl, wait } => {
                let (name, holder) = (name_of(name), Holder::NONE);
                let (ttl, wait) = (millis(ttl), millis(wait));
                self.ask(Some(name), |shard, token| {
                    shard.acquire(now, Acquire { token, name, holder, ttl, wait })
                });
            }
            ShardStep::Abandon { which } => {
                let mut open = self.open.iter().filter_map(|(id, name)| Some((*id, (*name)?)));
                if let Some((id, name)) = open.nth(usize::from(which) % LIMITS.waiters_max)
                    && self.shard.abandon(now, name, Token(id))
                {
                    self.open.remove(&id);
                }
            }
            ShardStep::Renew { name, fence, ttl } => {
                let Some(tenure) = Tenure::of(self.ballot(fence)) else { return };
                let (name, holder, ttl) = (name_of(name), Holder::NONE, millis(ttl));
                self.ask(None, |shard, token| {
                    shard.renew(now, Renew { token, name, holder, tenure, ttl })
                });
            }
            ShardStep::Release { name, fence, patience } => {
                let Some(tenure) = Tenure::of(self.ballot(fence)) else { return };
                let (name, patience) = (name_of(name), millis(patience));
                self.ask(None, |shard, token| shard.release(now, token, name, tenure, patience));
            }
            ShardStep::Inspect { name } => {
                self.ask(None, |shard, token| shard.inspect(now, token, name_of(name)));
            }
            ShardStep::AcquireDurable { name, lasts } => {
                let lasts = Lasts::from_millis(lasts.into()).unwrap_or(Lasts::FOREVER);
                let (name, holder, ttl, wait) =
                    (name_of(name), Holder::NONE, Duration::ZERO, Duration::ZERO);
                self.ask(None, |shard, token| {
                    let acquire = Acquire { token, name, holder, ttl, wait };
                    shard.acquire_durable(now, acquire, lasts)
                });
            }
            ShardStep::Keep { name, fence, lasts } => {
                let Some(tenure) = Tenure::of(self.ballot(fence)) else { return };
                let lasts = Lasts::from_millis(lasts.into()).unwrap_or(Lasts::FOREVER);
                let label = Label::new(name_of(name), Holder::NONE);
                self.ask(None, |shard, token| shard.keep(now, token, label, tenure, lasts));
            }
            ShardStep::ReleaseDurable { name, fence, patience } => {
                let Some(tenure) = Tenure::of(self.ballot(fence)) else { return };
                let (name, patience) = (name_of(name), millis(patience));
                self.ask(None, |shard, token| {
                    shard.release_durable(now, token, name, tenure, patience)
                });
            }
            ShardStep::DurableWritten { sequence } => {
                self.shard.durable_written(now, sequence.into());
            }
            ShardStep::DurableRoom(has_room) => self.shard.set_durable_room(has_room),
            ShardStep::Note { name, text } => self.shard.note(name_of(name), holder_of(text)),
            ShardStep::Written => self.written(),
            ShardStep::Sweep { slots } => self.shard.sweep(now, slots.into()),
            ShardStep::KeepUp { slots } => self.shard.keep_up(now, slots.into()),
            ShardStep::Reachable(bits) => {
                let cell = self.shard.config().cell;
                let members = [1, 2, 3].into_iter().filter(|id| bits >> id & 1 != 0);
                let reachable = members.filter_map(|id| cell.member(node(id)));
                self.shard.set_reachable(now, reachable.fold(MemberSet::EMPTY, MemberSet::with));
                self.shard.handle_reconnect(now, cell.everyone());
            }
            ShardStep::RoundTrip(micros) => {
                self.shard.set_round_trip(Duration::from_micros(micros.into()));
                self.shard.set_reclaim_trip(Duration::from_micros(micros.into()));
            }
            ShardStep::Watched(watched) => self.shard.set_watched(watched),
            ShardStep::Crash => self.start_again(None),
            ShardStep::Restart => {
                let snapshot = self.shard.clone().stop(now);
                self.start_again(snapshot.filter(|_| self.disk));
            }
        }
    }

    fn start_again(&mut self, snapshot: Option<paxoslease_core::Snapshot>) {
        // Time passes, also for a node that counts by the wall clock: beyond every ballot that it
        // may have promised (R5).
        self.now = self.now.after(Duration::from_millis(1));
        let (now, record, longest) = (self.now, self.record, max_lease());
        self.open.clear();
        self.writing = None;
        let counter = self.bound + MINUTE + 1;
        self.shard = match snapshot {
            Some(snapshot) => Shard::start_from_snapshot(config(), now, record, snapshot.leases()),
            None if self.disk => Shard::start(config(), now, Start::Crash(record)),
            None => Shard::start(config(), now, Start::NoRecord { counter, longest, disk: false }),
        };
        self.raise_bound();
    }

    fn raise_bound(&mut self) {
        self.bound += 3 * MINUTE;
        self.shard.set_counter_bound(self.bound);
    }

    fn pass(&mut self, span: Duration) {
        self.now = self.now.after(span);
        self.shard.handle_timeout(self.now);
    }

    fn written(&mut self) {
        if let Some(record) = self.writing.take() {
            self.record = record;
            self.shard.record_written(self.now, record);
        }
    }

    /// Sends a request with a new token. The request is open if the shard takes it.
    fn ask<E>(
        &mut self,
        name: Option<Name<'static>>,
        send: impl FnOnce(&mut Shard, Token) -> Result<(), E>,
    ) {
        self.tokens += 1;
        if send(&mut self.shard, Token(self.tokens)).is_ok() {
            self.open.insert(self.tokens, name);
        }
    }

    fn hear(&mut self, from: u8, message: &PeerMessage) {
        let from = node(u16::from(from % 4) + 2);
        if let Some(message) = self.message(message) {
            // The shard counts refusals; they are the right reaction to lies.
            let _refused = self.shard.handle_message(self.now, from, message);
        }
    }

    fn message(&self, message: &PeerMessage) -> Option<Message<'static>> {
        let request = |request| Some(Message::Request(request));
        let reply = |reply| Some(Message::Reply(reply));
        let ballot = |number| self.ballot(number);
        let tenure = |number| Tenure::of(self.ballot(number));
        let seen = |saw: &Option<ReportedLease>| saw.as_ref().and_then(|saw| self.seen(saw));
        match *message {
            PeerMessage::Prepare { name: n, ballot: b } => {
                request(Request::Prepare { name: name_of(n), ballot: ballot(b) })
            }
            PeerMessage::Propose { name: n, ballot: b, ttl, holder } => request(Request::Propose {
                name: name_of(n),
                ballot: ballot(b),
                ttl: Ttl::from_millis(ttl)?,
                holder: holder_of(holder),
            }),
            PeerMessage::Renew { name: n, tenure: t, ballot: b, ttl } => request(Request::Renew {
                name: name_of(n),
                tenure: tenure(t)?,
                ballot: ballot(b),
                ttl: Ttl::from_millis(ttl)?,
            }),
            PeerMessage::Heal { name: n, tenure: t, ballot: b, ttl, holder } => {
                request(Request::Heal {
                    name: name_of(n),
                    tenure: tenure(t)?,
                    ballot: ballot(b),
                    ttl: Ttl::from_millis(ttl)?,
                    holder: holder_of(holder),
                })
            }
            PeerMessage::Release { name: n, tenure: t, id } => {
                let id = ReleaseId::from_u64(id.into());
                request(Request::Release { name: name_of(n), tenure: tenure(t)?, id })
            }
            PeerMessage::Inspect { name: n, query } => {
                request(Request::Inspect { name: name_of(n), query: query.into() })
            }
            PeerMessage::Note { name: n, text } => {
                Some(Message::Hint(Hint::Note { name: name_of(n), text: holder_of(text) }))
            }
            PeerMessage::Promise { ballot: b, seen: ref s } => {
                reply(Reply::Promise { ballot: ballot(b), accepted: seen(s) })
            }
            PeerMessage::Accept { ballot: b } => reply(Reply::Accept { ballot: ballot(b) }),
            PeerMessage::Reject { ballot: b, promised, seen: ref s } => {
                let promised = ballot(promised);
                reply(Reply::Reject { ballot: ballot(b), promised, accepted: seen(s) })
            }
            PeerMessage::NotHeld { ballot: b, promised } => {
                reply(Reply::NotHeld { ballot: ballot(b), promised: ballot(promised) })
            }
            PeerMessage::Released { tenure: t, by } => {
                let by = by.map(|id| ReleaseId::from_u64(id.into()));
                reply(Reply::Released { tenure: tenure(t)?, by })
            }
            PeerMessage::Inspected { query, seen: ref s } => {
                reply(Reply::Inspected { query: query.into(), accepted: seen(s) })
            }
            PeerMessage::Held { name: n, seen: ref s } => {
                Some(Message::Hint(Hint::Held { name: name_of(n), seen: self.seen(s)? }))
            }
            PeerMessage::Freed { name: n } => {
                Some(Message::Hint(Hint::Freed { name: name_of(n), nodes_before: n }))
            }
        }
    }

    fn seen(&self, saw: &ReportedLease) -> Option<Seen<'static>> {
        Some(Seen {
            tenure: Tenure::of(self.ballot(saw.tenure))?,
            remaining: Ttl::from_millis(saw.remaining)?,
            holder: holder_of(saw.holder),
        })
    }

    fn ballot(&self, number: Number) -> Ballot {
        let node_of = |id: u8| node(u16::from(id % 5) + 1);
        let seen = self.shard.counter();
        match number {
            Number::OfRound(which) => {
                let mut rounds: Vec<Ballot> =
                    self.shard.rounds().map(|round| round.ballot).collect();
                rounds.sort_unstable();
                let place = usize::from(which) % rounds.len().max(1);
                rounds.get(place).copied().unwrap_or_default()
            }
            Number::Small { counter, node } => Ballot::new(counter.into(), node_of(node)),
            Number::Near { back, node } => {
                let counter = seen.saturating_add_signed(back.into());
                Ballot::new(counter.min(Ballot::COUNTER_MAX), node_of(node))
            }
            Number::Huge { back, node } => {
                let ends =
                    [Ballot::COUNTER_MAX, Ballot::COUNTER_LIMIT, self.shard.counter_bound() + 3];
                let counter = ends[usize::from(back % 3)] - u64::from(back / 3);
                Ballot::new(counter, node_of(node))
            }
            Number::Any(number) => Ballot::from_u64(number >> 1).expect("63 bits"),
        }
    }

    /// Takes the outputs of the shard, and checks them.
    fn check_outputs(&mut self) {
        let now = self.now;
        let quarantined = !self.shard.quarantine_remaining(now).is_zero();
        let mut outputs = 0;
        while let Some(transmit) = self.shard.poll_transmit() {
            outputs += 1;
            let is_reply = matches!(transmit.message(), Message::Reply(_));
            assert!(!(quarantined && is_reply), "A0: an answer in quarantine");
        }
        while let Some(event) = self.shard.poll_event() {
            outputs += 1;
            if let Event::Persist(record) = event {
                assert!(self.disk && self.writing.is_none(), "one write at a time");
                self.writing = Some(record);
            } else if let Some(Token(token)) = event.token() {
                assert!(self.open.remove(&token).is_some(), "{token} was answered: {event:?}");
                self.grants += u64::from(matches!(event, Event::Granted { .. }));
            }
        }
        assert!(outputs <= OUTPUTS_MAX, "{outputs} messages and events at once");
        assert!(self.shard.entries() <= LIMITS.entries_max);
        assert!(self.shard.waiters() <= LIMITS.waiters_max);
        assert!(self.shard.rounds().count() <= LIMITS.rounds_max + LIMITS.waiters_max);
        assert!(self.shard.counter() <= self.shard.counter_bound());
        for (place, before) in (0..).zip(&mut self.promised) {
            let promised = View::of(&self.shard, name_of(place)).expect("a member").promised;
            assert!(promised >= *before, "A7: {before:?} was promised, and now {promised:?}");
            *before = promised;
        }
    }

    /// Whatever the peers did, every request is answered before long.
    fn finish(&mut self) {
        for _ in 0..4096 {
            if self.open.is_empty() {
                return;
            }
            self.written();
            self.check_outputs();
            let span = self.shard.poll_timeout().map_or(Duration::ZERO, |at| at.since(self.now));
            self.pass(span.max(Duration::from_millis(1)));
            self.check_outputs();
        }
        panic!("still not answered: {:?}", self.open);
    }

    /// A1: no sequence of messages uses up the counters. Once the leases of the lies have expired
    /// and the bound has grown, the node is granted a lease with the votes of honest peers.
    fn demand_lease(&mut self) {
        let (peers, grants) = ([2, 3].map(node), self.grants);
        self.pass(Duration::from_secs(180));
        self.raise_bound();
        self.shard.set_reachable(self.now, self.shard.config().cell.everyone());
        peers.iter().for_each(|peer| self.shard.heard_counter(*peer, true));
        self.shard.sweep(self.now, 64);
        let (now, name, ttl) = (self.now, name_of(0), Duration::from_secs(1));
        let acquire = |token| Acquire { token, name, holder: Holder::NONE, ttl, wait: ttl };
        self.ask(Some(name), |shard, token| shard.acquire(now, acquire(token)));
        while !self.open.is_empty() {
            while let Some(transmit) = self.shard.poll_transmit() {
                let reply = match transmit.message() {
                    Message::Request(Request::Prepare { ballot, .. }) => {
                        Reply::Promise { ballot, accepted: None }
                    }
                    Message::Request(Request::Propose { ballot, .. }) => Reply::Accept { ballot },
                    _ => continue,
                };
                for peer in peers {
                    let _late = self.shard.handle_message(self.now, peer, Message::Reply(reply));
                }
            }
            self.check_outputs();
            self.written();
            self.pass(Duration::from_millis(1));
        }
        assert!(self.grants > grants, "A1: no lease is granted any more");
    }
}

fn config() -> Config {
    let members = [1, 2, 3].map(node);
    let drift = Drift::new(1000, Duration::from_millis(1)).expect("in bounds");
    let cell = Cell::new(&members, max_lease(), drift).expect("a cell");
    Config { limits: LIMITS, ..Config::new(node(1), cell, 7) }
}

fn max_lease() -> Ttl {
    Ttl::from_millis(10_000).expect("not zero")
}

pub(crate) fn node(id: u16) -> NodeId {
    NodeId::new(id).expect("in bounds")
}

fn millis(span: u16) -> Duration {
    Duration::from_millis(span.into())
}

fn name_of(place: u8) -> Name<'static> {
    Name::new(NAMES[usize::from(place) % NAMES.len()]).expect("in bounds")
}

fn holder_of(place: u8) -> Holder<'static> {
    let texts = ["", "me", LONG];
    Holder::new(texts[usize::from(place) % texts.len()]).expect("in bounds")
}
