//! The proposer of one shard: its ballots and its rounds in flight (protocol section 4; paper,
//! section 3 steps 1, 3 and 5, and sections 5 to 7).
//!
//! After a grant it keeps nothing: the holder keeps name, fence and deadline, and any node can
//! renew or release for it. Ballots and the handling of replies are here; acquires, renewals,
//! and releases are in the folder beside, inspections in `inspection.rs`, waiting is in `queueing`.

mod acquire;
mod release;
mod renew;

use alloc::collections::{BTreeMap, BTreeSet};
use core::time::Duration;

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use crate::cell::PLACES_MAX;
use crate::durable::change::Changes;
use crate::inspection::Inspection;
use crate::outbox::{Body, Outbox, Sighting, To};
use crate::protocol::record::{BALLOT_BLOCK, Ceilings};
use crate::protocol::round::{Phase, Round, Step};
use crate::queueing::contender::{ContenderId, Contenders, Wake};
use crate::rng::Rng;
use crate::rules::{Rule, Rules};
use crate::timers::Timers;
use crate::{Ballot, Cell, Config, Instant, Label, MemberSet, NodeId, Reply, Seen, Tenure, Ttl};

use release::Releasing;
pub(crate) use renew::Renewal;

/// What a proposer works with but does not own.
pub(crate) struct Env<'a> {
    pub(crate) config: &'a Config,
    pub(crate) ceilings: &'a mut Ceilings,
    pub(crate) out: &'a mut Outbox,
    /// Nodes that only propose and want to hear of grants and releases.
    pub(crate) learners: &'a [NodeId],
    /// Whether clients of this node want hints.
    pub(crate) watched: bool,
}

impl Env<'_> {
    pub(crate) fn rules(&self) -> Rules {
        self.config.rules
    }

    pub(crate) fn cell(&self) -> &Cell {
        &self.config.cell
    }

    pub(crate) fn send(&mut self, members: MemberSet, body: Body) {
        self.out.send(To::Members(members), body);
    }

    /// To the acceptors of both sets.
    pub(crate) fn broadcast(&mut self, body: Body) {
        self.send(self.config.cell.everyone(), body);
    }

    /// To the acceptors that confirm rounds (J1).
    pub(crate) fn ask(&mut self, body: Body) {
        self.send(self.config.cell.old_set(), body);
    }
}

/// The attempt timeout in round trips, as recent rounds took them.
const ROUND_TRIPS_PER_ATTEMPT: u32 = 8;
/// The shortest attempt timeout in round trips of the network: a prepared round needs two.
const NETWORK_TRIPS_PER_ATTEMPT: u32 = 4;

/// The longest pause before a request is repeated, unless an attempt takes longer.
const RESEND_PAUSE_MAX: Duration = Duration::from_millis(250);

/// A request has time for at least this many attempts.
const ATTEMPTS_PER_REQUEST: u32 = 4;

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct InFlight {
    pub(crate) round: Round,
    pub(crate) owner: Owner,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Owner {
    Contender(ContenderId),
    Renewal(Renewal),
}

/// How many rounds of each kind were begun.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RoundCounts {
    /// Direct rounds (P1).
    pub direct: u64,
    /// Prepared rounds (P2).
    pub prepared: u64,
    /// Renewals (P5).
    pub renewals: u64,
}

/// A1: the bounds of two nodes differ like their wall clocks. So a counter is learnt only if it is
/// this far below the bound, and a request is refused only if it is this far above. A peer that
/// drives counters to the bound then neither stops ballots nor separates nodes. One minute of R5.
const COUNTER_SLACK: u64 = 60_000 << 10;

/// R5: a node without a record may have issued any ballot before, and its old leases may still be
/// held. It issues no ballot until enough members told it their counters. Without a disk, a member
/// issues ballots after its quarantine as well: it may be the only one.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct BallotHold {
    until: Instant,
    /// Nodes that told their counters since the start, while they remembered.
    heard: BTreeSet<NodeId>,
    /// Whether enough members of this epoch told theirs.
    is_over: bool,
    /// How far above these counters the first ballot is.
    jump: u64,
}

/// R5: a node that is no member draws its first ballot from this many: half a block, for which the
/// record of a node with a disk has room.
const FIRST_BALLOT_SPREAD: u64 = BALLOT_BLOCK / 2;

/// A1: no honest peer sends a counter above this, unless wall clocks are far apart.
pub(crate) fn refused_above(counter_bound: u64) -> u64 {
    counter_bound.saturating_add(COUNTER_SLACK).min(Ballot::COUNTER_LIMIT)
}

/// A1: no counter above this is learnt.
pub(crate) const fn learnt_up_to(counter_bound: u64) -> u64 {
    counter_bound.saturating_sub(COUNTER_SLACK)
}

#[derive(Clone, Debug)]
pub(crate) struct Proposer {
    /// The counter of the last ballot issued or seen.
    counter: u64,
    /// A1: no counter above this is issued, and none close to it is learnt.
    counter_bound: u64,
    /// A1: a peer that sends a counter above this is disconnected.
    counter_refused_above: u64,
    ballot_hold: Option<BallotHold>,
    pub(crate) rounds: HashMap<Ballot, InFlight, FixedState>,
    releases: HashMap<Tenure, Releasing, FixedState>,
    /// Counts them, from a random number.
    releases_begun: u64,
    /// Releases that are not answered yet, plus the callers that joined them.
    releases_open: usize,
    /// Acceptors that were sent a Heal. A Release through another node may overtake the Heal, and
    /// is then repeated behind it (P6).
    pub(crate) healed: BTreeMap<Tenure, MemberSet>,
    /// Tenures that other nodes released during renewals here; cleared when no renewal is left.
    released_elsewhere: BTreeSet<Tenure>,
    pub(crate) inspections: HashMap<u64, Inspection, FixedState>,
    pub(crate) inspections_begun: u64,
    /// The changes of registers (K6).
    pub(crate) changes: Changes,
    pub(crate) contenders: Contenders,
    /// How many of `rounds` are renewals.
    renewals: usize,
    /// Wake-ups by kind: most of a kind have the same timeout, so few come out of order.
    round_ends: Timers<Ballot>,
    release_ends: Timers<Tenure>,
    pub(crate) inspection_ends: Timers<u64>,
    /// Wake-ups of contenders and waiters, as far ahead as clients wait.
    pub(crate) waits: Timers<Wake>,
    pub(crate) rng: Rng,
    /// How long recent rounds took per round trip; `None` before the first.
    pub(crate) round_trip: Option<Duration>,
    /// The longest measured round trip to another member; zero while unknown.
    pub(crate) network_trip: Duration,
    /// The longest measured round trip to any node; zero while unknown.
    pub(crate) turn_trip: Duration,
    counts: RoundCounts,
    /// Acceptors that the network cannot reach now.
    pub(crate) silent: MemberSet,
    /// By place: this node's counter when that acceptor became unreachable. The acceptor has heard
    /// of no tenure that this node began later.
    pub(crate) silent_since: [u64; PLACES_MAX],
}

impl Proposer {
    pub(crate) fn new(seed: u64, counter: u64) -> Self {
        let counter_bound = counter + Ballot::COUNTER_LIMIT.saturating_sub(counter) / 2;
        Self {
            counter,
            counter_bound,
            counter_refused_above: refused_above(counter_bound),
            ballot_hold: None,
            rounds: HashMap::with_hasher(FixedState::with_seed(seed)),
            releases: HashMap::with_hasher(FixedState::with_seed(seed)),
            // The counter grows from start to start, so each start has other numbers.
            releases_begun: Rng::seeded(seed ^ counter).bits(),
            releases_open: 0,
            healed: BTreeMap::new(),
            released_elsewhere: BTreeSet::new(),
            inspections: HashMap::with_hasher(FixedState::with_seed(seed)),
            inspections_begun: 0,
            changes: Changes::new(seed),
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
            silent_since: [0; PLACES_MAX],
        }
    }

    /// Raises the counter to one that was seen, so that the next round is not below a promise.
    pub(crate) fn observe(&mut self, counter: u64) {
        if counter <= learnt_up_to(self.counter_bound) {
            self.counter = self.counter.max(counter);
        }
    }

    pub(crate) const fn counter(&self) -> u64 {
        self.counter
    }

    pub(crate) const fn counter_bound(&self) -> u64 {
        self.counter_bound
    }

    /// See [`refused_above`].
    pub(crate) const fn counter_refused_above(&self) -> u64 {
        self.counter_refused_above
    }

    pub(crate) fn set_counter_bound(&mut self, bound: u64) {
        self.counter_bound = bound.min(Ballot::COUNTER_LIMIT);
        self.counter_refused_above = refused_above(self.counter_bound);
    }

    /// R5: issues no ballot until enough members told their counters, or until this time.
    pub(crate) fn hold_ballots(&mut self, until: Instant) {
        let heard = BTreeSet::new();
        self.ballot_hold = Some(BallotHold { until, heard, is_over: false, jump: 0 });
    }

    /// R5: a ballot of its past that only a minority accepted may be above every counter that is
    /// told, so the first ballot is a random one. A member without a disk must not do this: it
    /// begins at the wall clock, and after a restart would be below its own promises.
    pub(crate) fn draw_first_ballot(&mut self) {
        if let Some(hold) = &mut self.ballot_hold {
            hold.jump = self.rng.bits() % FIRST_BALLOT_SPREAD;
        }
    }

    /// R5: the members of a new epoch have to be heard. For a node that became a member, the floor
    /// of the configuration covers what its id granted before (C4).
    pub(crate) fn hold_in_next_epoch(&mut self, is_member: bool) {
        if is_member {
            self.ballot_hold = None;
        } else if let Some(hold) = &mut self.ballot_hold {
            hold.is_over = false;
        }
    }

    /// R5: a node that has lost nothing told its counter.
    pub(crate) fn heard_counter(&mut self, from: NodeId) {
        if let Some(hold) = &mut self.ballot_hold {
            hold.heard.insert(from);
        }
    }

    /// R5: whether old ballots of this node may be in use. A majority that accepted one of them
    /// shares a member with any set that is large enough.
    fn holds_ballots(&self, cell: &Cell, now: Instant) -> bool {
        let Some(BallotHold { until, heard, .. }) = &self.ballot_hold else { return false };
        let told = heard.iter().filter_map(|node| cell.member(*node));
        let told = told.fold(MemberSet::EMPTY, MemberSet::with).within(cell.old_set());
        told.len() < cell.old_set().len() - cell.quorum() + 1 && now < *until
    }

    /// The tenure of a ballot that was never used before. `None` while the members are not known,
    /// the counter is at its bound (A1), the stable record has no room (R1), or old ballots may be
    /// in use (R5).
    pub(crate) fn next_tenure(&mut self, env: &mut Env<'_>, now: Instant) -> Option<Tenure> {
        if !env.config.knows_members {
            return None;
        }
        if self.ballot_hold.as_ref().is_some_and(|hold| !hold.is_over)
            && env.rules().on(Rule::RecordlessNodeAsksFirst)
        {
            if self.holds_ballots(env.cell(), now) {
                return None;
            }
            if let Some(hold) = &mut self.ballot_hold {
                hold.is_over = true;
                self.counter += core::mem::take(&mut hold.jump);
            }
        }
        let counter = self.counter + 1;
        if counter > self.counter_bound || !env.ceilings.admits_counter(counter) {
            return None;
        }
        self.counter = counter;
        let tenure = Tenure::of(Ballot::new(counter, env.config.node));
        Some(tenure.expect("a node's ballot names a tenure"))
    }

    /// P4: a few round trips, or the configured time while they are unknown. There is no upper
    /// bound: where round trips are long, only a long round can win.
    pub(crate) fn attempt_timeout(&self, config: &Config) -> Duration {
        let trips = self.round_trip.map(|trip| trip.saturating_mul(ROUND_TRIPS_PER_ATTEMPT));
        let recent = trips.unwrap_or(config.attempt_timeout).max(config.attempt_timeout_min);
        recent.max(self.network_trip.saturating_mul(NETWORK_TRIPS_PER_ATTEMPT))
    }

    /// The pause before a round's request is repeated; it doubles each time, up to a bound.
    fn resend_pause(&self, config: &Config, now: Instant, round: &Round) -> Duration {
        now.since(round.started_at).min(self.resend_pause_max(config))
    }

    pub(crate) fn resend_pause_max(&self, config: &Config) -> Duration {
        self.attempt_timeout(config).max(RESEND_PAUSE_MAX)
    }

    /// After this time, a round that began before is decided or lost.
    pub(crate) fn settled_span(&self, config: &Config) -> Duration {
        self.attempt_timeout(config).max(config.attempt_timeout)
    }

    /// Measures a round that was won or lost by answers. The average follows slower rounds at once
    /// and faster ones gradually. A round that took longer than an attempt was delayed by lost
    /// messages or a pause, so it counts as an attempt. No attempt needs to be longer than a whole
    /// request; an idle node would keep a longer average for a long time.
    fn note_decided(&mut self, config: &Config, took: Duration) {
        let most = config.request_timeout / ROUND_TRIPS_PER_ATTEMPT;
        let took = took.min(self.attempt_timeout(config)).min(most);
        let last = self.round_trip.unwrap_or(took);
        self.round_trip = Some(took.max((last * 3 + took) / 4));
    }

    /// A round that some acceptor refused found no majority in time, so the network may have become
    /// slower. Late answers are not measured; instead the next round gets twice the time, up to
    /// that of a whole request.
    fn note_timeout(&mut self, config: &Config) {
        let most = config.request_timeout / ROUND_TRIPS_PER_ATTEMPT;
        let least = config.attempt_timeout_min / ROUND_TRIPS_PER_ATTEMPT;
        let last = self.round_trip.unwrap_or(config.attempt_timeout / ROUND_TRIPS_PER_ATTEMPT);
        self.round_trip = Some(last.max(least).saturating_mul(2).min(most).max(last));
    }

    /// When a request is answered at the latest: after its own wait, or after the configured time
    /// to find a majority (longer where a few rounds take longer, and never past the ttl).
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
        reply: &Reply<'_>,
    ) {
        let cell = &env.config.cell;
        match *reply {
            Reply::Promise { ballot, accepted } => {
                let Some(flight) = self.rounds.get_mut(&ballot) else { return };
                let step = match accepted {
                    Some(seen) if seen.tenure != flight.round.tenure => {
                        if flight.round.phase != Phase::Preparing {
                            // Late: this does not answer the Propose, which may be accepted.
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
                if step != Step::Wait {
                    self.step(env, now, ballot, step, None);
                } else if flight.round.is_done(cell) {
                    self.forget_renewal(ballot);
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
            Reply::Healed { ballot } => {
                let Some(flight) = self.rounds.get_mut(&ballot) else { return };
                let step = flight.round.on_stored(cell, now, member);
                self.step(env, now, ballot, step, None);
            }
            Reply::NotHealed { ballot, promised } => {
                self.observe(promised.counter());
                self.on_not_healed(env, now, member, ballot, promised);
            }
            Reply::Released { tenure, by } => self.on_released(env, member, tenure, by),
            Reply::Inspected { query, accepted } => {
                self.on_inspected(env, now, member, query, accepted, None);
            }
        }
    }

    /// Acts on the state of a round after an answer. `seen` is the lease that the answer reported.
    pub(crate) fn step(
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
            (Step::Store(members), _) => self.store(env, ballot, members),
            (Step::Won, Owner::Contender(id)) => self.granted(env, now, ballot, *id),
            (Step::Lost, Owner::Contender(id)) => {
                let (id, took) = (*id, flight.round.round_trip(now));
                let held_by = flight.round.held_by(env.cell());
                self.note_decided(env.config, took);
                self.lost(env, now, ballot, id, held_by, seen);
            }
            (Step::Won, Owner::Renewal(_)) => self.renewed(env, now, ballot),
            // A later ballot may do what this one could not (J2): see `renewal_timed_out`.
            (Step::Lost, Owner::Renewal(_))
                if flight.round.phase == Phase::Storing && now < flight.round.ends_at => {}
            (Step::Lost, Owner::Renewal(_)) => self.renewal_failed(env, ballot),
            (Step::Propose, Owner::Renewal(_)) => {
                unreachable!("a renewal has no prepare phase")
            }
        }
    }

    /// Sets the acceptors that cannot be reached. A vote that was split among the others is lost.
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

    /// The acceptors `back` are connected again, and earlier messages to them may be lost. Requests
    /// that they have not answered are repeated; an acceptor takes them for duplicates.
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
                (_, Phase::Storing) => self.store(env, ballot, members),
                (Owner::Renewal(_), Phase::Renewed) => self.heal(env, now, ballot, members),
                (Owner::Renewal(_), _) => self.resend_renewal(env, ballot, members),
                (Owner::Contender(_), _) => self.resend_attempt(env, ballot, members),
            }
        }
        self.resend_releases(env, back);
        self.resend_inspections(env, back);
        self.resend_changes(env, back);
    }

    /// Acts on all wake-ups that are due.
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
            self.inspection_timed_out(env, now, query);
        }
        self.changes_timed_out(env, now);
        while let Some(wake) = self.waits.pop(now) {
            match wake {
                Wake::Contender(id) => self.try_again(env, now, id),
                Wake::Waiter(id, token) => self.wait_ended(env, now, id, token),
            }
        }
        let Self { rounds, releases, inspections, round_ends, release_ends, .. } = self;
        round_ends.drop_stale(|ballot| !rounds.contains_key(&ballot));
        release_ends.drop_stale(|tenure| !releases.contains_key(&tenure));
        self.inspection_ends.drop_stale(|query| !inspections.contains_key(&query));
    }

    /// When the next wake-up fires; [`Instant::MAX`] for never.
    pub(crate) fn next_wake_at(&self) -> Instant {
        let ends = [
            self.round_ends.next_at(),
            self.release_ends.next_at(),
            self.inspection_ends.next_at(),
            self.changes.next_at(),
            self.waits.next_at(),
        ];
        ends.into_iter().fold(Instant::MAX, Instant::min)
    }

    pub(crate) fn rounds(&self) -> impl Iterator<Item = &Round> {
        self.rounds.values().map(|flight| &flight.round)
    }

    /// Hashes the owners of the rounds, in the order of their ballots.
    #[cfg(feature = "digest")]
    pub(crate) fn owners_digest(&self, hasher: &mut impl core::hash::Hasher) {
        let mut owners: alloc::vec::Vec<_> =
            self.rounds.iter().map(|(ballot, flight)| (ballot, &flight.owner)).collect();
        owners.sort_unstable_by_key(|(ballot, _)| **ballot);
        core::hash::Hash::hash(&owners, hasher);
    }

    /// Rounds, unanswered releases, inspections and changes of registers.
    pub(crate) fn in_flight(&self) -> usize {
        let asked = self.inspections.len() + self.changes.len();
        self.rounds.len() + self.releases_open + asked
    }

    /// Whether this node remembers any Heal that it sent.
    pub(crate) fn has_healed(&self) -> bool {
        !self.healed.is_empty()
    }

    /// Whether Releases of other nodes matter: tenures were healed through this node, or may be.
    pub(crate) fn follows_releases(&self) -> bool {
        self.renewals > 0 || self.has_healed()
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
