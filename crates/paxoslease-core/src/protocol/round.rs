//! One round of a proposer: it counts answers and decides (protocol section 4, P1 to P5; paper,
//! section 3 steps 3 and 5).
//!
//! It sends nothing and knows no name. Its timer is `ends_at`, set when the round begins (P3) and
//! compared with `now` on every answer, so a late wake-up does no harm.

use alloc::vec::Vec;
use core::time::Duration;

use crate::rules::Rule;
use crate::{Ballot, Cell, Instant, MemberSet, Tenure, Ttl};

/// What a round waits for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Phase {
    /// Promises of a majority.
    Preparing,
    /// Accepts of a Propose.
    Proposing,
    /// Accepts of a Renew.
    Renewing,
    /// In a joint epoch: a majority of the old set accepted, and the new set has to store the lease
    /// (J1).
    Storing,
    /// A majority renewed in time; the round only waits for acceptors to heal.
    Renewed,
}

/// What the proposer has to do after an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// Nothing: the round goes on, or is already decided.
    Wait,
    /// A majority promised and reported no lease: send Propose under the same ballot.
    Propose,
    /// J1: a majority of the old set accepted: heal these acceptors under the same ballot.
    Store(MemberSet),
    /// A majority accepted in time.
    Won,
    /// A majority is impossible, or came too late.
    Lost,
}

/// A round in flight.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Round {
    /// The ballot; every answer names it.
    pub ballot: Ballot,
    /// The tenure it begins or renews.
    pub tenure: Tenure,
    /// How long acceptors are asked to exclude other tenures.
    pub ttl: Ttl,
    /// When it began, before any message was sent.
    pub started_at: Instant,
    /// `started_at + Tp`: the end of the belief it gives. A later majority counts for nothing.
    pub ends_at: Instant,
    /// What it waits for.
    pub phase: Phase,
    /// Acceptors that promised and reported no other lease.
    pub open: MemberSet,
    /// Acceptors that accepted.
    pub accepted: MemberSet,
    /// Acceptors that refused in this phase.
    pub refused: MemberSet,
    /// Acceptors of the new set that stored the lease.
    pub stored: MemberSet,
    /// Its request was repeated: an acceptor that refused it once may have accepted it since.
    pub(crate) repeated: bool,
    accepts: u32,
    pub(crate) reports: Vec<Report>,
}

/// The one tenure that a majority reported, and when the last of them is free of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct HeldBy {
    pub(crate) tenure: Tenure,
    pub(crate) free_at: Instant,
}

/// A lease of another tenure that an acceptor reported.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Report {
    pub(crate) member: MemberSet,
    tenure: Tenure,
    free_at: Instant,
}

impl Round {
    pub(crate) fn new(
        cell: &Cell,
        now: Instant,
        ballot: Ballot,
        tenure: Tenure,
        ttl: Ttl,
        phase: Phase,
    ) -> Self {
        Self {
            ballot,
            tenure,
            ttl,
            started_at: now,
            ends_at: cell.drift().belief_ends_at(now, ttl),
            phase,
            open: MemberSet::EMPTY,
            accepted: MemberSet::EMPTY,
            refused: MemberSet::EMPTY,
            stored: MemberSet::EMPTY,
            repeated: false,
            accepts: 0,
            reports: Vec::new(),
        }
    }

    /// P2: counts an acceptor that promised and reported no other lease.
    pub(crate) fn on_promise(&mut self, cell: &Cell, now: Instant, member: MemberSet) -> Step {
        self.open = self.open.with(member);
        let majority = self.open.len() >= cell.quorum();
        match self.phase {
            Phase::Preparing if majority && now < self.ends_at => {
                self.phase = Phase::Proposing;
                self.refused = MemberSet::EMPTY;
                self.reports.clear();
                Step::Propose
            }
            // The paper's step 3 sets its timer again on every response beyond the majority; this
            // is its mutant.
            Phase::Proposing if majority && !cell.rules().on(Rule::TimerIsArmedOnce) => {
                self.started_at = now;
                self.ends_at = cell.drift().belief_ends_at(now, self.ttl);
                Step::Propose
            }
            _ => Step::Wait,
        }
    }

    /// P1, P3, P5: counts an acceptor that accepted.
    pub(crate) fn on_accept(&mut self, cell: &Cell, now: Instant, member: MemberSet) -> Step {
        if self.phase == Phase::Preparing {
            return Step::Wait;
        }
        self.accepted = self.accepted.with(member);
        self.accepts = if cell.rules().on(Rule::AcceptsAreDistinct) {
            self.accepted.len()
        } else {
            self.accepts + 1
        };
        let is_confirmed = matches!(self.phase, Phase::Storing | Phase::Renewed);
        if self.accepts < cell.quorum() || is_confirmed {
            return Step::Wait;
        }
        if now >= self.ends_at && cell.rules().on(Rule::LateMajorityCountsForNothing) {
            return Step::Lost;
        }
        if cell.is_joint() && cell.rules().on(Rule::NewSetStores) {
            return self.store(cell);
        }
        self.won()
    }

    /// J1: step 2. The members of the old set that have not accepted are healed too, as by P5.
    #[cold]
    pub(crate) fn store(&mut self, cell: &Cell) -> Step {
        self.phase = Phase::Storing;
        self.refused = MemberSet::EMPTY;
        self.reports.clear();
        Step::Store(cell.new_set().with(cell.old_set().without(self.accepted)))
    }

    /// J1: counts an acceptor that stored the lease in step 2.
    #[cold]
    pub(crate) fn on_stored(&mut self, cell: &Cell, now: Instant, member: MemberSet) -> Step {
        self.stored = self.stored.with(member);
        self.refused = self.refused.without(member);
        if self.phase != Phase::Storing || !cell.is_stored_by(self.stored) {
            return Step::Wait;
        }
        if now >= self.ends_at && cell.rules().on(Rule::LateMajorityCountsForNothing) {
            return Step::Lost;
        }
        self.won()
    }

    fn won(&mut self) -> Step {
        if self.tenure.ballot() != self.ballot || self.phase == Phase::Renewing {
            self.phase = Phase::Renewed;
        }
        Step::Won
    }

    /// Counts an acceptor that refused. The acceptors in `silent` cannot be reached.
    pub(crate) fn on_refusal(&mut self, cell: &Cell, silent: MemberSet, member: MemberSet) -> Step {
        if self.phase == Phase::Storing {
            // Late: this answers the first step.
            return Step::Wait;
        }
        self.refused = self.refused.with(member);
        self.verdict(cell, silent)
    }

    /// J1: counts an acceptor that refused step 2.
    #[cold]
    pub(crate) fn on_not_stored(&mut self, cell: &Cell, member: MemberSet) -> Step {
        if self.phase != Phase::Storing {
            return Step::Wait;
        }
        self.refused = self.refused.with(member);
        self.verdict(cell, MemberSet::EMPTY)
    }

    /// A fresh round is lost once an acceptor refused, a majority is impossible, and the answers
    /// suffice to tell a holder from a split vote: refusals that name different tenures do not.
    /// Giving up early is always safe (P4). A renewal also waits for silent acceptors, because they
    /// may store its tenure.
    pub(crate) fn verdict(&self, cell: &Cell, silent: MemberSet) -> Step {
        let (everyone, quorum) = (cell.old_set(), cell.quorum());
        let answered = self.refused.with(self.accepted).with(self.open);
        let silent = match self.phase {
            Phase::Preparing | Phase::Proposing => silent.without(answered),
            Phase::Renewing | Phase::Renewed => MemberSet::EMPTY,
            Phase::Storing => {
                let is_possible = cell.is_stored_by(cell.new_set().without(self.refused));
                return if is_possible { Step::Wait } else { Step::Lost };
            }
        };
        let is_impossible = everyone.without(self.refused).without(silent).len() < quorum;
        let is_told = !self.reports_differ() || self.held_by(cell).is_some();
        let is_conclusive =
            self.refused.len() >= quorum && is_told || answered.with(silent).contains(everyone);
        let lost = match self.phase {
            Phase::Preparing | Phase::Proposing => is_impossible && is_conclusive,
            Phase::Renewing => is_impossible,
            Phase::Storing | Phase::Renewed => false,
        };
        if lost && !self.refused.is_empty() { Step::Lost } else { Step::Wait }
    }

    /// Whether this is a renewal that won and has no acceptor left to heal. In a joint epoch, step
    /// 2 has healed all of them.
    pub(crate) fn is_done(&self, cell: &Cell) -> bool {
        let answered = self.accepted.with(self.refused);
        self.phase == Phase::Renewed && (answered.contains(cell.old_set()) || cell.is_joint())
    }

    /// Acceptors that have not answered in this phase.
    pub(crate) fn unanswered(&self, cell: &Cell) -> MemberSet {
        let answered = self.accepted.with(self.refused);
        let answered = match self.phase {
            Phase::Preparing => answered.with(self.open),
            Phase::Proposing | Phase::Renewing | Phase::Renewed => answered,
            Phase::Storing => return cell.new_set().without(self.stored).without(self.refused),
        };
        cell.old_set().without(answered)
    }

    /// How long each round trip of a decided round took. Preparing and storing take one each.
    pub(crate) fn round_trip(&self, now: Instant) -> Duration {
        let round_trips = 1 + u32::from(!self.open.is_empty()) + u32::from(!self.stored.is_empty());
        now.since(self.started_at) / round_trips
    }

    /// Notes the lease that an acceptor reported, unless it is of this round's tenure.
    pub(crate) fn note_foreign(&mut self, member: MemberSet, tenure: Tenure, free_at: Instant) {
        if tenure != self.tenure && !self.reports.iter().any(|report| report.member == member) {
            self.reports.push(Report { member, tenure, free_at });
        }
    }

    /// Whether acceptors reported more than one tenure.
    fn reports_differ(&self) -> bool {
        let first = self.reports.first().map(|report| report.tenure);
        self.reports.iter().any(|report| Some(report.tenure) != first)
    }

    /// P4: the holder, if a majority reported one and the same tenure.
    pub(crate) fn held_by(&self, cell: &Cell) -> Option<HeldBy> {
        let quorum = cell.quorum() as usize;
        self.reports.iter().find_map(|Report { tenure, .. }| {
            let same = self.reports.iter().filter(|report| report.tenure == *tenure);
            let free_at = same.clone().map(|report| report.free_at).max()?;
            (same.count() >= quorum).then_some(HeldBy { tenure: *tenure, free_at })
        })
    }

    /// The acceptors at which a void round has to be undone: all that did not refuse its Propose.
    /// A renewal is not undone, because its tenure may be held (P5).
    pub(crate) fn traces(&self, cell: &Cell) -> MemberSet {
        match self.phase {
            Phase::Proposing if self.repeated => cell.old_set(),
            Phase::Proposing => cell.old_set().without(self.refused),
            Phase::Storing if self.tenure.ballot() == self.ballot => cell.everyone(),
            Phase::Preparing | Phase::Renewing | Phase::Renewed | Phase::Storing => {
                MemberSet::EMPTY
            }
        }
    }
}
