//! The proposer of one shard: rounds in flight and those who wait (protocol sections 4 and 7;
//! paper, section 3 steps 1, 3 and 5, and sections 5 to 7).
//!
//! After a grant it keeps nothing: the holder keeps name, fence and deadline, and any node can
//! renew or release for it. Here are ballots and the ways of an acquire; renewals, releases and
//! inspections are in the folder beside.

mod acquire;
mod inspect;
mod release;
mod renew;

use alloc::collections::BTreeMap;
use core::time::Duration;

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use crate::outbox::{Body, Outbox, Sighting, To, Token};
use crate::protocol::cell::MEMBERS_MAX;
use crate::protocol::record::Ceilings;
use crate::protocol::round::{Phase, Round, Step};
use crate::queueing::contender::{ContenderId, Contenders, State};
use crate::rng::Rng;
use crate::rules::{Rule, Rules};
use crate::timers::Timers;
use crate::{
    Ballot, Cell, Config, Instant, Label, MemberSet, Name, NodeId, Reply, Seen, Tenure, Ttl,
};

use inspect::Inspection;
use release::Releasing;
pub(crate) use renew::Renewal;

/// What a proposer works with but does not own.
pub(crate) struct Env<'a> {
    pub(crate) config: &'a Config,
    pub(crate) ceilings: &'a mut Ceilings,
    pub(crate) out: &'a mut Outbox,
    /// Non-acceptors that asked to hear of grants and releases.
    pub(crate) learners: &'a [NodeId],
}

impl Env<'_> {
    fn rules(&self) -> Rules {
        self.config.rules
    }

    fn cell(&self) -> &Cell {
        &self.config.cell
    }

    fn send(&mut self, members: MemberSet, body: Body) {
        self.out.send(To::Members(members), body);
    }

    fn broadcast(&mut self, body: Body) {
        self.send(self.config.cell.everyone(), body);
    }
}

/// How many round trips a round is given, as recent rounds took them.
const ROUND_TRIPS_PER_ATTEMPT: u32 = 8;
/// How many round trips of the network a round is given at least: a prepared round needs two.
const NETWORK_TRIPS_PER_ATTEMPT: u32 = 4;

/// The longest pause before a request is repeated, where round trips are short.
const RESEND_PAUSE_MAX: Duration = Duration::from_millis(250);

/// How many rounds a request is given at least.
const ATTEMPTS_PER_REQUEST: u32 = 4;

/// What a wake-up is for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Wake {
    Contender(ContenderId),
    Want(ContenderId, Token),
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct InFlight {
    round: Round,
    owner: Owner,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Owner {
    Contender(ContenderId),
    Renewal(Renewal),
}

/// How many wake-ups may be left behind before anybody looks.
const WAITS_SPARE: usize = 1024;

/// Rounds by how they began, for metrics.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RoundCounts {
    /// One phase: Propose straight away.
    pub direct: u64,
    /// Two phases: Prepare first.
    pub prepared: u64,
    /// Renewals.
    pub renewals: u64,
}

/// R5: a node that has no record may have issued any ballot before, and others may still hold what
/// began with one. It issues none before enough members told it their counters, or that time is
/// over.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Ignorance {
    until: Instant,
    heard: MemberSet,
}

#[derive(Clone, Debug)]
pub(crate) struct Proposer {
    /// The counter of the last ballot issued or seen.
    counter: u64,
    /// A1: no counter above this is learnt or issued.
    counter_bound: u64,
    ignorance: Option<Ignorance>,
    rounds: HashMap<Ballot, InFlight, FixedState>,
    releases: HashMap<Tenure, Releasing, FixedState>,
    /// How many of these are not answered yet, and the requests that joined them.
    releases_open: usize,
    /// Acceptors that were sent a Heal of a tenure: a Release of it that passes through another
    /// node may overtake the Heal, and has to be repeated behind it.
    healed: BTreeMap<Tenure, MemberSet>,
    inspections: HashMap<u64, Inspection, FixedState>,
    inspections_begun: u64,
    contenders: Contenders,
    /// How many of the rounds are renewals.
    renewals: usize,
    /// When rounds, releases and inspections are given up or tried again, by kind: most of a kind
    /// are armed with the same timeout, and few come out of order.
    round_ends: Timers<Ballot>,
    release_ends: Timers<Tenure>,
    inspection_ends: Timers<u64>,
    /// Of contenders and their wants: as far ahead as clients care to wait.
    waits: Timers<Wake>,
    rng: Rng,
    /// How long recent rounds took to be decided, per round trip; `None` before the first.
    round_trip: Option<Duration>,
    /// The longest round trip to another member, as the network measured it; zero while unknown.
    network_trip: Duration,
    /// The longest round trip to any node, in the same way.
    turn_trip: Duration,
    counts: RoundCounts,
    /// Acceptors that cannot answer now, as far as the network knows.
    silent: MemberSet,
    /// By place: this node's counter when that acceptor fell silent. It has heard of no tenure
    /// that this node began later.
    silent_since: [u64; MEMBERS_MAX],
}

impl Proposer {
    /// Without a record, `ignorant_until` is when all leases of the past are over.
    pub(crate) fn new(seed: u64, counter: u64, ignorant_until: Option<Instant>) -> Self {
        let heard = MemberSet::EMPTY;
        Self {
            counter,
            counter_bound: counter + Ballot::COUNTER_LIMIT.saturating_sub(counter) / 2,
            ignorance: ignorant_until.map(|until| Ignorance { until, heard }),
            rounds: HashMap::with_hasher(FixedState::with_seed(seed)),
            releases: HashMap::with_hasher(FixedState::with_seed(seed)),
            releases_open: 0,
            healed: BTreeMap::new(),
            inspections: HashMap::with_hasher(FixedState::with_seed(seed)),
            inspections_begun: 0,
            contenders: Contenders::new(seed),
            renewals: 0,
            round_ends: Timers::new(),
            release_ends: Timers::new(),
            inspection_ends: Timers::new(),
            waits: Timers::new(),
            rng: Rng::seeded(seed),
            round_trip: None,
            network_trip: Duration::ZERO,
            turn_trip: Duration::ZERO,
            counts: RoundCounts::default(),
            silent: MemberSet::EMPTY,
            silent_since: [0; MEMBERS_MAX],
        }
    }

    /// Stays above every ballot seen, so that the next round is not below a promise.
    pub(crate) fn observe(&mut self, counter: u64) {
        if counter <= self.counter_bound {
            self.counter = self.counter.max(counter);
        }
    }

    pub(crate) const fn counter(&self) -> u64 {
        self.counter
    }

    pub(crate) const fn counter_bound(&self) -> u64 {
        self.counter_bound
    }

    pub(crate) fn set_counter_bound(&mut self, bound: u64) {
        self.counter_bound = bound.min(Ballot::COUNTER_LIMIT);
    }

    /// R5: a member told its counter, and has forgotten nothing itself. Whatever this node issued
    /// before and a majority may have accepted, one of enough others has seen.
    pub(crate) fn heard_counter(&mut self, env: &Env<'_>, member: MemberSet) {
        let Some(ignorance) = &mut self.ignorance else { return };
        ignorance.heard = ignorance.heard.with(member);
        let cell = env.cell();
        let enough = cell.everyone().len() - cell.quorum() + 1;
        if ignorance.heard.len() >= enough {
            self.ignorance = None;
        }
    }

    /// A ballot never used before; `None` while the counter is at its bound (A1), the stable
    /// record has no room for one (R1), or this node may not know which it used (R5).
    fn next_ballot(&mut self, env: &mut Env<'_>, now: Instant) -> Option<(Ballot, Tenure)> {
        if let Some(Ignorance { until, .. }) = self.ignorance
            && env.rules().on(Rule::RecordlessNodeAsksFirst)
        {
            if now < until {
                return None;
            }
            self.ignorance = None;
        }
        let counter = self.counter + 1;
        if counter > self.counter_bound || !env.ceilings.admits_counter(counter) {
            return None;
        }
        self.counter = counter;
        let ballot = Ballot::new(counter, env.config.node);
        Some((ballot, Tenure::of(ballot).expect("a node's ballot names a tenure")))
    }

    /// P4: a few round trips. Before anything is known of them, what the settings say. There is
    /// no upper bound: where round trips are long, only a long round can win.
    fn attempt_timeout(&self, config: &Config) -> Duration {
        let trips = self.round_trip.map(|trip| trip.saturating_mul(ROUND_TRIPS_PER_ATTEMPT));
        let recent = trips.unwrap_or(config.attempt_timeout).max(config.attempt_timeout_min);
        recent.max(self.network_trip.saturating_mul(NETWORK_TRIPS_PER_ATTEMPT))
    }

    /// How long after a request of a round it is repeated: each time after twice as long, up to a
    /// bound.
    fn resend_pause(&self, config: &Config, now: Instant, round: &Round) -> Duration {
        now.since(round.started_at).min(self.attempt_timeout(config).max(RESEND_PAUSE_MAX))
    }

    /// After this long what was asked before is decided, or lost.
    fn settled_span(&self, config: &Config) -> Duration {
        self.attempt_timeout(config).max(config.attempt_timeout)
    }

    /// A round was decided by answers, one way or the other. Follows slower rounds at once and
    /// faster ones by and by. A round that took longer than an attempt was held up by lost messages
    /// or a pause, and says no more than that. Attempts as long as a whole request are enough: a
    /// node without work for a while would keep longer ones.
    fn note_decided(&mut self, config: &Config, took: Duration) {
        let most = config.request_timeout / ROUND_TRIPS_PER_ATTEMPT;
        let took = took.min(self.attempt_timeout(config)).min(most);
        let last = self.round_trip.unwrap_or(took);
        self.round_trip = Some(took.max((last * 3 + took) / 4));
    }

    /// A round that was refused by some found no majority in time: the network or the cell may have
    /// become slower. Answers that come too late measure nothing, so the next round gets twice the
    /// time, up to that of a whole request.
    fn note_timeout(&mut self, config: &Config) {
        let most = config.request_timeout / ROUND_TRIPS_PER_ATTEMPT;
        let least = config.attempt_timeout_min / ROUND_TRIPS_PER_ATTEMPT;
        let last = self.round_trip.unwrap_or(config.attempt_timeout / ROUND_TRIPS_PER_ATTEMPT);
        self.round_trip = Some(last.max(least).saturating_mul(2).min(most).max(last));
    }

    /// The longest round trip to another member.
    pub(crate) fn set_round_trip(&mut self, longest: Duration) {
        self.network_trip = longest;
    }

    /// The longest round trip to any node.
    pub(crate) fn set_turn_trip(&mut self, longest: Duration) {
        self.turn_trip = longest;
    }

    /// How long a request may go on without an answer: its own patience, or what the settings
    /// allow a round to find its majority, or a few rounds where those take longer; never past
    /// the ttl.
    pub(crate) fn deadline(
        &self,
        config: &Config,
        now: Instant,
        wait: Duration,
        ttl: Ttl,
    ) -> Instant {
        let trying = config.request_timeout.max(
            self.network_trip.saturating_mul(NETWORK_TRIPS_PER_ATTEMPT * ATTEMPTS_PER_REQUEST),
        );
        now.after(wait.max(trying.min(ttl.as_duration())))
    }

    /// An acceptor answered. Stale and duplicated replies are normal and change nothing.
    pub(crate) fn handle_reply(
        &mut self,
        env: &mut Env<'_>,
        now: Instant,
        member: MemberSet,
        reply: Reply<'_>,
    ) {
        let cell = &env.config.cell;
        match reply {
            Reply::Promise { ballot, accepted } => {
                let Some(flight) = self.rounds.get_mut(&ballot) else { return };
                let step = match accepted {
                    Some(seen) if seen.tenure != flight.round.tenure => {
                        if flight.round.phase != Phase::Preparing {
                            // Late, and no answer to the Propose: that may be accepted still.
                            return;
                        }
                        note_foreign(&mut flight.round, now, member, &seen);
                        flight.round.on_refusal(cell, self.silent, member)
                    }
                    _ => flight.round.on_promise(cell, now, member),
                };
                self.step(env, now, ballot, step, accepted);
            }
            Reply::Accept { ballot } => {
                let Some(flight) = self.rounds.get_mut(&ballot) else { return };
                let step = flight.round.on_accept(cell, now, member);
                if step != Step::Wait || flight.round.is_done(cell) {
                    self.step(env, now, ballot, step, None);
                }
            }
            Reply::Reject { ballot, promised, accepted } => {
                self.observe(promised.counter());
                let Some(flight) = self.rounds.get_mut(&ballot) else { return };
                if let Some(seen) = accepted {
                    note_foreign(&mut flight.round, now, member, &seen);
                }
                let step = flight.round.on_refusal(cell, self.silent, member);
                self.step(env, now, ballot, step, accepted);
            }
            Reply::NotHeld { ballot, promised } => {
                self.observe(promised.counter());
                self.on_not_held(env, now, member, ballot);
            }
            Reply::Released { tenure, held } => self.on_released(env, member, tenure, held),
            Reply::Inspected { query, accepted } => {
                self.on_inspected(env, member, query, accepted);
            }
        }
    }

    /// Does what an answer to a round amounts to. `seen` is the lease it reported, if any.
    fn step(
        &mut self,
        env: &mut Env<'_>,
        now: Instant,
        ballot: Ballot,
        step: Step,
        seen: Option<Seen<'_>>,
    ) {
        let Some(flight) = self.rounds.get(&ballot) else { return };
        match (step, &flight.owner) {
            (Step::Wait, Owner::Contender(_)) => {}
            (Step::Wait, Owner::Renewal(_)) => self.forget_if_done(env, ballot),
            (Step::Propose, Owner::Contender(id)) => self.propose(env, ballot, *id),
            (Step::Won, Owner::Contender(id)) => self.granted(env, now, ballot, *id),
            (Step::Lost, Owner::Contender(id)) => {
                let (id, took) = (*id, flight.round.round_trip(now));
                let verdict = flight.round.held_by(env.cell());
                self.note_decided(env.config, took);
                self.lost(env, now, ballot, id, verdict, seen);
            }
            (Step::Won, Owner::Renewal(_)) => self.renewed(env, now, ballot),
            (Step::Lost, Owner::Renewal(_)) => self.renewal_failed(env, ballot),
            (Step::Propose, Owner::Renewal(_)) => {
                unreachable!("a renewal has no prepare phase")
            }
        }
    }

    /// Who can answer has changed: a vote that was split among the rest is lost now.
    pub(crate) fn set_silent(&mut self, env: &mut Env<'_>, now: Instant, silent: MemberSet) {
        let before = core::mem::replace(&mut self.silent, silent);
        if before.contains(silent) {
            return;
        }
        for (place, since) in self.silent_since.iter_mut().enumerate() {
            if silent.without(before).has_place(place) {
                *since = self.counter;
            }
        }
        let cell = env.config.cell;
        let lost = |flight: &InFlight| flight.round.verdict(&cell, silent) == Step::Lost;
        let mut ballots: alloc::vec::Vec<Ballot> = self
            .rounds
            .iter()
            .filter_map(|(ballot, flight)| lost(flight).then_some(*ballot))
            .collect();
        ballots.sort_unstable();
        for ballot in ballots {
            self.step(env, now, ballot, Step::Lost, None);
        }
    }

    /// These acceptors can be heard again, and what was sent to them before may be lost: the same
    /// requests go out again. To an acceptor that did get one it is a duplicate.
    pub(crate) fn resend(&mut self, env: &mut Env<'_>, now: Instant, back: MemberSet) {
        if back.is_empty() {
            return;
        }
        let mut ballots: alloc::vec::Vec<Ballot> = self.rounds.keys().copied().collect();
        ballots.sort_unstable();
        for ballot in ballots {
            let InFlight { round, owner } = &self.rounds[&ballot];
            let members = round.unanswered(env.cell()).within(back);
            if members.is_empty() || now >= round.ends_at {
                continue;
            }
            match (owner, round.phase) {
                (Owner::Renewal(_), Phase::Renewed) => self.heal(env, now, ballot, members),
                (Owner::Renewal(_), _) => self.resend_renewal(env, ballot, members),
                (Owner::Contender(id), phase) => {
                    self.resend_attempt(env, (ballot, phase), *id, members);
                }
            }
        }
        self.resend_releases(env, back);
    }

    /// Wakes whatever is due.
    pub(crate) fn handle_timeout(&mut self, env: &mut Env<'_>, now: Instant) {
        while let Some(ballot) = self.round_ends.pop(now) {
            match self.rounds.get(&ballot).map(|flight| &flight.owner) {
                Some(Owner::Contender(id)) => self.attempt_timed_out(env, now, ballot, *id),
                Some(Owner::Renewal(_)) => self.renewal_timed_out(env, now, ballot),
                None => {}
            }
        }
        while let Some(tenure) = self.release_ends.pop(now) {
            self.release_timed_out(env, now, tenure);
        }
        while let Some(query) = self.inspection_ends.pop(now) {
            self.inspection_timed_out(env, query);
        }
        while let Some(wake) = self.waits.pop(now) {
            match wake {
                Wake::Contender(id) => self.try_again(env, now, id),
                Wake::Want(id, token) => self.out_of_patience(env, now, id, token),
            }
        }
        let Self { rounds, releases, round_ends, release_ends, .. } = self;
        round_ends.forget(|ballot| !rounds.contains_key(&ballot));
        release_ends.forget(|tenure| !releases.contains_key(&tenure));
    }

    /// Wakes a contender or one of its wants then, by what the contender says already. Those who
    /// leave leave their wake-ups behind; once these outnumber the rest, all are made anew, so that
    /// whoever asks for long waits and leaves, over and over, does not fill the memory.
    fn wake_at(&mut self, at: Instant, wake: Wake) {
        self.waits.push(at, wake);
        let size = self.contenders.wants().max(self.contenders.slot_count());
        if self.waits.len() <= 4 * size + WAITS_SPARE {
            return;
        }
        self.waits.clear();
        for (id, contender) in self.contenders.iter() {
            match contender.state {
                State::BackingOff(until) | State::Waiting { until, .. } => {
                    self.waits.push(until, Wake::Contender(id));
                }
                State::Racing(_) => {}
            }
            for want in contender.wants() {
                self.waits.push(want.patient_until, Wake::Want(id, want.token));
            }
        }
    }

    pub(crate) fn next_wake_at(&self) -> Option<Instant> {
        let ends = [
            self.round_ends.next_at(),
            self.release_ends.next_at(),
            self.inspection_ends.next_at(),
            self.waits.next_at(),
        ];
        ends.into_iter().flatten().min()
    }

    pub(crate) fn rounds(&self) -> impl Iterator<Item = &Round> {
        self.rounds.values().map(|flight| &flight.round)
    }

    #[cfg(feature = "digest")]
    pub(crate) const fn contenders(&self) -> &Contenders {
        &self.contenders
    }

    /// Who owns the rounds, in the order of their ballots.
    #[cfg(feature = "digest")]
    pub(crate) fn owners_digest(&self, hasher: &mut impl core::hash::Hasher) {
        let mut owners: alloc::vec::Vec<_> =
            self.rounds.iter().map(|(ballot, flight)| (ballot, &flight.owner)).collect();
        owners.sort_unstable_by_key(|(ballot, _)| **ballot);
        core::hash::Hash::hash(&owners, hasher);
    }

    /// Rounds, releases and inspections under way.
    pub(crate) fn in_flight(&self) -> usize {
        self.rounds.len() + self.releases_open + self.inspections.len()
    }

    pub(crate) fn wanted(&self) -> impl Iterator<Item = (Name<'_>, usize, Option<&Sighting>)> {
        self.contenders.iter().filter_map(|(_, contender)| {
            let by = match &contender.state {
                State::Waiting { by, .. } => by.as_ref(),
                // One that has just asked does not wait yet.
                State::Racing(_) | State::BackingOff(_) if contender.rest.is_empty() => {
                    return None;
                }
                State::Racing(_) | State::BackingOff(_) => None,
            };
            Some((contender.first.label.name(), 1 + contender.rest.len(), by))
        })
    }

    /// Whether any tenure was healed through this node lately.
    pub(crate) fn has_healed(&self) -> bool {
        !self.healed.is_empty()
    }

    /// Whether anybody here wants a name.
    pub(crate) fn wants(&self, name: Name<'_>) -> bool {
        self.contenders.wants() > 0 && self.contenders.find(name).is_some()
    }

    pub(crate) const fn waiters(&self) -> usize {
        self.contenders.wants()
    }

    pub(crate) const fn counts(&self) -> RoundCounts {
        self.counts
    }
}

fn note_foreign(round: &mut Round, now: Instant, member: MemberSet, seen: &Seen<'_>) {
    round.note_foreign(member, seen.tenure, now.after(seen.remaining.as_duration()));
}

fn sighting(label: &Label, tenure: Tenure, remaining: Ttl) -> Sighting {
    Sighting { tenure, remaining, label: label.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queueing::contender::Want;
    use crate::{Drift, Event, Holder, Name};
    use core::time::Duration;

    #[test]
    fn those_who_ask_for_long_waits_and_leave_leave_nothing_behind() {
        let members: alloc::vec::Vec<NodeId> = (1..=3).filter_map(NodeId::new).collect();
        let cell = Cell::new(&members, Ttl::MAX, Drift::NONE).expect("valid");
        let config = Config::new(members[0], cell, 1);
        let (mut ceilings, mut out) = (Ceilings::none(Instant::ZERO), Outbox::default());
        let env =
            &mut Env { config: &config, ceilings: &mut ceilings, out: &mut out, learners: &[] };
        let mut proposer = Proposer::new(1, 0, None);
        let name = Name::new("a").expect("a name");
        let until = Instant::from_nanos(3_600_000_000_000);
        let want = |token| Want {
            token: Token(token),
            label: Label::new(name, Holder::NONE),
            ttl: Ttl::MAX,
            asked_at: Instant::ZERO,
            patient_until: until,
            deadline: until,
        };
        proposer.acquire(env, Instant::ZERO, want(1), None);
        proposer.acquire(env, Instant::ZERO, want(2), None);
        for token in 3..100_000 {
            proposer.acquire(env, Instant::ZERO, want(token), None);
            assert!(proposer.abandon(env, Instant::ZERO, name, Token(token)));
        }
        assert!(proposer.waits.len() <= 2 * WAITS_SPARE, "{} wake-ups", proposer.waits.len());
        // Whoever stayed is still woken.
        let mut now = Instant::ZERO;
        while let Some(wake_at) = proposer.next_wake_at() {
            now = wake_at.max(now).after(Duration::from_secs(1));
            proposer.handle_timeout(env, now);
        }
        let answers = core::iter::from_fn(|| env.out.pop_event());
        let answered: alloc::vec::Vec<Token> = answers
            .filter_map(|event| match event {
                Event::NoQuorum { token } => Some(token),
                _ => None,
            })
            .collect();
        assert_eq!(answered, [Token(1), Token(2)]);
    }
}
