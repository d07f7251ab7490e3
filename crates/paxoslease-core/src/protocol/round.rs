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
        if self.accepts < cell.quorum() || self.phase == Phase::Renewed {
            return Step::Wait;
        }
        if now >= self.ends_at && cell.rules().on(Rule::LateMajorityCountsForNothing) {
            return Step::Lost;
        }
        if self.phase == Phase::Renewing {
            self.phase = Phase::Renewed;
        }
        Step::Won
    }

    /// Counts an acceptor that refused. The acceptors in `silent` cannot be reached.
    pub(crate) fn on_refusal(&mut self, cell: &Cell, silent: MemberSet, member: MemberSet) -> Step {
        self.refused = self.refused.with(member);
        self.verdict(cell, silent)
    }

    /// A fresh round is lost once an acceptor refused, a majority is impossible, and the answers
    /// suffice to tell a holder from a split vote. Giving up early is always safe (P4). A renewal
    /// also waits for silent acceptors, because they may store its tenure.
    pub(crate) fn verdict(&self, cell: &Cell, silent: MemberSet) -> Step {
        let (everyone, quorum) = (cell.everyone(), cell.quorum());
        let answered = self.refused.with(self.accepted).with(self.open);
        let silent = match self.phase {
            Phase::Preparing | Phase::Proposing => silent.without(answered),
            Phase::Renewing | Phase::Renewed => MemberSet::EMPTY,
        };
        let is_impossible = everyone.without(self.refused).without(silent).len() < quorum;
        let is_conclusive =
            self.refused.len() >= quorum || answered.with(silent).contains(everyone);
        let lost = match self.phase {
            Phase::Preparing | Phase::Proposing => is_impossible && is_conclusive,
            Phase::Renewing => is_impossible,
            Phase::Renewed => false,
        };
        if lost && !self.refused.is_empty() { Step::Lost } else { Step::Wait }
    }

    /// Whether this is a renewal that won and that every acceptor has answered.
    pub(crate) fn is_done(&self, cell: &Cell) -> bool {
        let answered = self.accepted.with(self.refused);
        self.phase == Phase::Renewed && answered.contains(cell.everyone())
    }

    /// Acceptors that have not answered in this phase.
    pub(crate) fn unanswered(&self, cell: &Cell) -> MemberSet {
        let answered = self.accepted.with(self.refused);
        let answered = match self.phase {
            Phase::Preparing => answered.with(self.open),
            Phase::Proposing | Phase::Renewing | Phase::Renewed => answered,
        };
        cell.everyone().without(answered)
    }

    /// How long each round trip of a decided round took. A prepared round has two.
    pub(crate) fn round_trip(&self, now: Instant) -> Duration {
        let round_trips = if self.open.is_empty() { 1 } else { 2 };
        now.since(self.started_at) / round_trips
    }

    /// Notes the lease that an acceptor reported, unless it is of this round's tenure.
    pub(crate) fn note_foreign(&mut self, member: MemberSet, tenure: Tenure, free_at: Instant) {
        if tenure != self.tenure && !self.reports.iter().any(|report| report.member == member) {
            self.reports.push(Report { member, tenure, free_at });
        }
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
            Phase::Proposing if self.repeated => cell.everyone(),
            Phase::Proposing => cell.everyone().without(self.refused),
            Phase::Preparing | Phase::Renewing | Phase::Renewed => MemberSet::EMPTY,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Drift, NodeId};

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }
    fn tenure(counter: u64, id: u16) -> Tenure {
        Tenure::of(Ballot::new(counter, NodeId::new(id).expect("an id"))).expect("a tenure")
    }

    /// A round of a cell that began at 0 ms, for 100 ms.
    #[derive(Clone)]
    struct Running {
        cell: Cell,
        round: Round,
    }

    impl Running {
        fn new(members: u16, phase: Phase) -> Self {
            let ids: Vec<NodeId> = (1..=members).filter_map(NodeId::new).collect();
            let ttl = |millis| Ttl::from_millis(millis).expect("not zero");
            let cell = Cell::new(&ids, ttl(1000), Drift::NONE).expect("valid");
            let tenure = tenure(5, 1);
            let round = Round::new(&cell, at(0), tenure.ballot(), tenure, ttl(100), phase);
            Self { cell, round }
        }
        fn member(&self, id: u16) -> MemberSet {
            self.cell.member(NodeId::new(id).expect("an id")).expect("a member")
        }
        fn accept(&mut self, millis: u64, id: u16) -> Step {
            self.round.on_accept(&self.cell, at(millis), self.member(id))
        }
        fn promise(&mut self, millis: u64, id: u16) -> Step {
            self.round.on_promise(&self.cell, at(millis), self.member(id))
        }
        fn refuse(&mut self, id: u16) -> Step {
            self.refuse_while_silent(MemberSet::EMPTY, id)
        }
        fn refuse_while_silent(&mut self, silent: MemberSet, id: u16) -> Step {
            self.round.on_refusal(&self.cell, silent, self.member(id))
        }
        fn report(&mut self, id: u16, tenure: Tenure, millis: u64) -> Option<HeldBy> {
            self.round.note_foreign(self.member(id), tenure, at(millis));
            self.round.held_by(&self.cell)
        }
    }

    #[test]
    fn a_majority_of_distinct_accepts_wins_once() {
        let mut fresh = Running::new(5, Phase::Proposing);
        let steps = [1, 1, 2, 2, 3].map(|id| fresh.accept(99, id));
        assert_eq!(steps, [Step::Wait, Step::Wait, Step::Wait, Step::Wait, Step::Won]);
        let mut renewal = Running::new(5, Phase::Renewing);
        let steps = [1, 2, 3, 4].map(|id| renewal.accept(0, id));
        assert_eq!(steps, [Step::Wait, Step::Wait, Step::Won, Step::Wait]);
        assert_eq!(renewal.round.phase, Phase::Renewed);
    }

    #[test]
    fn a_majority_at_the_end_of_the_timer_is_late() {
        for phase in [Phase::Proposing, Phase::Renewing] {
            let mut running = Running::new(3, phase);
            assert_eq!(running.accept(0, 1), Step::Wait);
            assert_eq!(running.accept(100, 2), Step::Lost);
        }
        let mut preparing = Running::new(3, Phase::Preparing);
        assert_eq!(preparing.promise(0, 1), Step::Wait);
        assert_eq!(preparing.promise(100, 2), Step::Wait);
        assert_eq!(preparing.round.phase, Phase::Preparing, "a late promise proposes nothing");
    }

    #[test]
    fn a_majority_of_promises_proposes_once_and_keeps_the_timer() {
        let mut running = Running::new(3, Phase::Preparing);
        let ends_at = running.round.ends_at;
        let steps = [1, 2, 3].map(|id| running.promise(id.into(), id));
        assert_eq!(steps, [Step::Wait, Step::Propose, Step::Wait]);
        assert_eq!((running.round.phase, running.round.ends_at), (Phase::Proposing, ends_at));
    }

    #[test]
    fn a_round_is_lost_when_refusals_rule_out_a_majority() {
        let mut fresh = Running::new(4, Phase::Proposing);
        assert_eq!(fresh.refuse(2), Step::Wait, "3 may still accept");
        assert_eq!(fresh.refuse(3), Step::Wait, "a split vote, or a holder?");
        assert_eq!(fresh.refuse(4), Step::Lost);
        let mut renewal = Running::new(4, Phase::Renewing);
        renewal.refuse(2);
        assert_eq!(renewal.refuse(3), Step::Lost, "a renewal need not find the holder");
    }

    #[test]
    fn a_fresh_round_does_not_wait_for_silent_acceptors() {
        let mut fresh = Running::new(3, Phase::Proposing);
        let (two, three) = (fresh.member(2), fresh.member(3));
        let verdict = fresh.round.verdict(&fresh.cell, two.with(three));
        assert_eq!(verdict, Step::Wait, "no acceptor refused");
        assert_eq!(fresh.accept(0, 1), Step::Wait);
        assert_eq!(fresh.clone().refuse(2), Step::Wait);
        assert_eq!(fresh.refuse_while_silent(three, 2), Step::Lost);
        let mut renewal = Running::new(3, Phase::Renewing);
        renewal.accept(0, 1);
        let step = renewal.refuse_while_silent(three, 2);
        assert_eq!(step, Step::Wait, "three may store the tenure");
    }

    #[test]
    fn a_renewal_that_won_cannot_be_lost() {
        let mut renewal = Running::new(3, Phase::Renewing);
        renewal.accept(0, 1);
        renewal.accept(0, 2);
        assert_eq!([1, 2, 3].map(|id| renewal.refuse(id)), [Step::Wait; 3]);
    }

    #[test]
    fn a_holder_needs_a_majority_that_reports_one_tenure() {
        let mut running = Running::new(5, Phase::Proposing);
        let (holder, other, own) = (tenure(3, 2), tenure(4, 3), running.round.tenure);
        for (id, tenure, free_at) in [(1, holder, 70), (2, holder, 90), (3, other, 99)] {
            assert_eq!(running.report(id, tenure, free_at), None);
        }
        assert_eq!(running.report(1, holder, 70), None, "two of five");
        assert_eq!(running.report(4, own, 99), None, "its own tenure does not count");
        let held_by = HeldBy { tenure: holder, free_at: at(90) };
        assert_eq!(running.report(5, holder, 80), Some(held_by));
    }

    #[test]
    fn only_a_round_that_proposed_has_to_be_undone() {
        let traces =
            [Phase::Preparing, Phase::Proposing, Phase::Renewing, Phase::Renewed].map(|phase| {
                let Running { cell, round } = Running::new(3, phase);
                round.traces(&cell).len()
            });
        assert_eq!(traces, [0, 3, 0, 0]);
    }

    #[test]
    fn a_round_is_not_undone_at_acceptors_that_refused_it() {
        let mut running = Running::new(3, Phase::Proposing);
        running.refuse(2);
        let traces = running.round.traces(&running.cell);
        assert_eq!(traces, running.member(1).with(running.member(3)));
    }
}
