//! One round of a proposer: counting answers, and what they amount to (protocol section 4, P1 to
//! P5; paper, section 3 steps 3 and 5).
//!
//! Pure: it sends nothing and knows no name. Its timer is the pair of instants fixed when it
//! began (P3), compared with `now` on every answer, so a late wake-up cannot hurt.

use alloc::vec::Vec;
use core::time::Duration;

use crate::rules::Rule;
use crate::{Ballot, Cell, Instant, MemberSet, Tenure, Ttl};

/// Where a round stands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Phase {
    /// Waiting for Promises.
    Preparing,
    /// Waiting for Accepts of a Propose.
    Proposing,
    /// Waiting for Accepts of a Renew.
    Renewing,
    /// A majority renewed in time; only acceptors to heal are left.
    Renewed,
}

/// What an answer amounts to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// Nothing yet, or nothing more.
    Wait,
    /// A majority is open: send Propose under the same ballot.
    Propose,
    /// A majority accepted in time.
    Won,
    /// A majority can no longer be had, or came too late.
    Lost,
}

/// A round in flight.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Round {
    /// Its number.
    pub ballot: Ballot,
    /// The tenure it begins or renews.
    pub tenure: Tenure,
    /// How long others are to be excluded.
    pub ttl: Ttl,
    /// When it was begun, before anything was sent.
    pub started_at: Instant,
    /// When a belief from it ends: `started_at + Tp`. A majority from then on counts for nothing.
    pub ends_at: Instant,
    /// Where it stands.
    pub phase: Phase,
    /// Acceptors that promised and reported no lease.
    pub open: MemberSet,
    /// Acceptors that accepted.
    pub accepted: MemberSet,
    /// Acceptors that refused in this phase.
    pub refused: MemberSet,
    accepts: u32,
    reports: Vec<Report>,
}

/// The one tenure that a majority reported, and when the last of them is free of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct HeldBy {
    pub(crate) tenure: Tenure,
    pub(crate) free_at: Instant,
}

/// A lease of another tenure that an acceptor reported.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Report {
    member: MemberSet,
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
            accepts: 0,
            reports: Vec::new(),
        }
    }

    /// The same round with every set of acceptors mapped.
    #[cfg(feature = "digest")]
    pub(crate) fn placed(&self, place: impl Fn(MemberSet) -> MemberSet) -> Self {
        let mut reports: Vec<Report> = self
            .reports
            .iter()
            .map(|report| Report { member: place(report.member), ..*report })
            .collect();
        reports.sort_unstable_by_key(|report| report.member);
        Self {
            open: place(self.open),
            accepted: place(self.accepted),
            refused: place(self.refused),
            reports,
            ..*self
        }
    }

    /// P2: counts an open acceptor.
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
            // The paper's step 3 sets its timer again on every response beyond the majority.
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

    /// Counts an acceptor that refused. `silent` are those that cannot answer, as far as anybody
    /// knows.
    pub(crate) fn on_refusal(&mut self, cell: &Cell, silent: MemberSet, member: MemberSet) -> Step {
        self.refused = self.refused.with(member);
        self.verdict(cell, silent)
    }

    /// The round is lost once somebody refused, no majority can be had any more, and the answers
    /// suffice to tell a holder from a split vote. Giving up early is always safe (P4); whoever is
    /// silent may still know of a renewed tenure, so a renewal waits for them.
    pub(crate) fn verdict(&self, cell: &Cell, silent: MemberSet) -> Step {
        let (everyone, quorum) = (cell.everyone(), cell.quorum());
        let answered = self.refused.with(self.accepted).with(self.open);
        let silent = match self.phase {
            Phase::Preparing | Phase::Proposing => silent.without(answered),
            Phase::Renewing | Phase::Renewed => MemberSet::EMPTY,
        };
        let hopeless = everyone.without(self.refused).without(silent).len() < quorum;
        let telling = self.refused.len() >= quorum || answered.with(silent).contains(everyone);
        let lost = match self.phase {
            Phase::Preparing | Phase::Proposing => hopeless && telling,
            Phase::Renewing => hopeless,
            Phase::Renewed => false,
        };
        if lost && !self.refused.is_empty() { Step::Lost } else { Step::Wait }
    }

    /// Whether it was a renewal that a majority granted, and everybody has answered: nothing is
    /// left to heal.
    pub(crate) fn is_done(&self, cell: &Cell) -> bool {
        let answered = self.accepted.with(self.refused);
        self.phase == Phase::Renewed && answered.contains(cell.everyone())
    }

    /// The acceptors that have not answered in this phase.
    pub(crate) fn unanswered(&self, cell: &Cell) -> MemberSet {
        let answered = self.accepted.with(self.refused);
        let answered = match self.phase {
            Phase::Preparing => answered.with(self.open),
            Phase::Proposing | Phase::Renewing | Phase::Renewed => answered,
        };
        cell.everyone().without(answered)
    }

    /// How long each of its round trips took, now that it is decided: a prepared round has two.
    pub(crate) fn round_trip(&self, now: Instant) -> Duration {
        let round_trips = if self.open.is_empty() { 1 } else { 2 };
        now.since(self.started_at) / round_trips
    }

    /// Notes the foreign lease an acceptor reported.
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

    /// The acceptors that may keep a trace of this round that nobody wants once it is void: all
    /// that did not refuse it. A renewal's trace belongs to a tenure that may be held (P5).
    pub(crate) fn traces(&self, cell: &Cell) -> MemberSet {
        match self.phase {
            Phase::Proposing => cell.everyone().without(self.refused),
            Phase::Preparing | Phase::Renewing | Phase::Renewed => MemberSet::EMPTY,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Drift, NodeId};

    fn cell(count: u16) -> Cell {
        let members: Vec<NodeId> = (1..=count).filter_map(NodeId::new).collect();
        Cell::new(&members, Ttl::from_millis(1000).expect("not zero"), Drift::NONE).expect("valid")
    }
    fn member(cell: &Cell, id: u16) -> MemberSet {
        cell.member(NodeId::new(id).expect("an id")).expect("a member")
    }
    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }
    fn tenure(counter: u64, id: u16) -> Tenure {
        Tenure::of(Ballot::new(counter, NodeId::new(id).expect("an id"))).expect("a tenure")
    }
    /// Begun at 0 for 100 ms.
    fn round(cell: &Cell, phase: Phase) -> Round {
        let tenure = tenure(5, 1);
        let ttl = Ttl::from_millis(100).expect("not zero");
        Round::new(cell, at(0), tenure.ballot(), tenure, ttl, phase)
    }

    #[test]
    fn a_majority_of_distinct_accepts_wins_once() {
        let cell = cell(5);
        let mut round = round(&cell, Phase::Proposing);
        for (id, expected) in
            [(1, Step::Wait), (1, Step::Wait), (2, Step::Wait), (2, Step::Wait), (3, Step::Won)]
        {
            assert_eq!(round.on_accept(&cell, at(99), member(&cell, id)), expected);
        }
        let mut renewal = self::round(&cell, Phase::Renewing);
        for (id, expected) in [(1, Step::Wait), (2, Step::Wait), (3, Step::Won), (4, Step::Wait)] {
            assert_eq!(renewal.on_accept(&cell, at(0), member(&cell, id)), expected);
        }
        assert_eq!(renewal.phase, Phase::Renewed);
    }

    #[test]
    fn a_majority_at_the_end_of_the_timer_is_late() {
        let cell = cell(3);
        for phase in [Phase::Proposing, Phase::Renewing] {
            let mut round = round(&cell, phase);
            assert_eq!(round.on_accept(&cell, at(0), member(&cell, 1)), Step::Wait);
            assert_eq!(round.on_accept(&cell, at(100), member(&cell, 2)), Step::Lost);
        }
        let mut round = round(&cell, Phase::Preparing);
        assert_eq!(round.on_promise(&cell, at(0), member(&cell, 1)), Step::Wait);
        assert_eq!(round.on_promise(&cell, at(100), member(&cell, 2)), Step::Wait);
        assert_eq!(round.phase, Phase::Preparing, "nothing is proposed any more");
    }

    #[test]
    fn a_majority_of_promises_proposes_once_and_arms_no_timer() {
        let cell = cell(3);
        let mut round = round(&cell, Phase::Preparing);
        let ends_at = round.ends_at;
        assert_eq!(round.on_promise(&cell, at(1), member(&cell, 1)), Step::Wait);
        assert_eq!(round.on_promise(&cell, at(2), member(&cell, 2)), Step::Propose);
        assert_eq!(round.on_promise(&cell, at(3), member(&cell, 3)), Step::Wait);
        assert_eq!((round.phase, round.ends_at), (Phase::Proposing, ends_at));
    }

    #[test]
    fn an_accept_means_nothing_before_anything_was_proposed() {
        let cell = cell(1);
        let mut round = round(&cell, Phase::Preparing);
        assert_eq!(round.on_accept(&cell, at(0), member(&cell, 1)), Step::Wait);
        assert!(round.accepted.is_empty());
    }

    #[test]
    fn a_round_is_lost_when_no_majority_is_left_and_the_answers_tell_why() {
        let cell = cell(4);
        let mut round = round(&cell, Phase::Proposing);
        assert_eq!(
            round.on_refusal(&cell, MemberSet::EMPTY, member(&cell, 2)),
            Step::Wait,
            "3 may still accept"
        );
        assert_eq!(
            round.on_refusal(&cell, MemberSet::EMPTY, member(&cell, 3)),
            Step::Wait,
            "hopeless, but why?"
        );
        assert_eq!(round.on_refusal(&cell, MemberSet::EMPTY, member(&cell, 4)), Step::Lost);
        let mut renewal = self::round(&cell, Phase::Renewing);
        renewal.on_refusal(&cell, MemberSet::EMPTY, member(&cell, 2));
        let lost = renewal.on_refusal(&cell, MemberSet::EMPTY, member(&cell, 3));
        assert_eq!(lost, Step::Lost, "a renewal need not know why");
    }

    #[test]
    fn a_split_vote_is_not_waited_for_where_the_rest_is_silent() {
        let cell = cell(3);
        let [one, two, three] = [1, 2, 3].map(|id| member(&cell, id));
        let mut round = round(&cell, Phase::Proposing);
        assert_eq!(round.verdict(&cell, two.with(three)), Step::Wait, "no one refused");
        assert_eq!(round.on_accept(&cell, at(0), one), Step::Wait);
        assert_eq!(round.clone().on_refusal(&cell, MemberSet::EMPTY, two), Step::Wait);
        assert_eq!(round.on_refusal(&cell, three, two), Step::Lost);
        let mut renewal = self::round(&cell, Phase::Renewing);
        renewal.on_accept(&cell, at(0), one);
        assert_eq!(renewal.on_refusal(&cell, three, two), Step::Wait, "three may have it");
    }

    #[test]
    fn a_renewal_that_won_cannot_be_lost_any_more() {
        let cell = cell(3);
        let mut renewal = round(&cell, Phase::Renewing);
        renewal.on_accept(&cell, at(0), member(&cell, 1));
        renewal.on_accept(&cell, at(0), member(&cell, 2));
        for id in 1..=3 {
            assert_eq!(renewal.on_refusal(&cell, MemberSet::EMPTY, member(&cell, id)), Step::Wait);
        }
    }

    #[test]
    fn a_holder_is_named_only_by_a_majority_that_reports_the_same() {
        let cell = cell(5);
        let mut round = round(&cell, Phase::Proposing);
        let (holder, other) = (tenure(3, 2), tenure(4, 3));
        round.note_foreign(member(&cell, 1), holder, at(70));
        round.note_foreign(member(&cell, 2), holder, at(90));
        round.note_foreign(member(&cell, 3), other, at(99));
        round.note_foreign(member(&cell, 1), holder, at(70));
        assert_eq!(round.held_by(&cell), None, "two of five, however often");
        round.note_foreign(member(&cell, 4), round.tenure, at(99));
        assert_eq!(round.held_by(&cell), None, "its own tenure is not foreign");
        round.note_foreign(member(&cell, 5), holder, at(80));
        assert_eq!(round.held_by(&cell), Some(HeldBy { tenure: holder, free_at: at(90) }));
    }

    #[test]
    fn only_a_round_that_proposed_leaves_something_to_undo() {
        let cell = cell(3);
        let traces = [Phase::Preparing, Phase::Proposing, Phase::Renewing, Phase::Renewed]
            .map(|phase| round(&cell, phase).traces(&cell).len());
        assert_eq!(traces, [0, 3, 0, 0]);
    }

    #[test]
    fn whoever_refused_a_round_has_nothing_of_it_to_undo() {
        let cell = cell(3);
        let mut round = round(&cell, Phase::Proposing);
        let members: Vec<MemberSet> =
            cell.members().iter().filter_map(|node| cell.member(*node)).collect();
        round.on_refusal(&cell, MemberSet::EMPTY, members[1]);
        assert_eq!(round.traces(&cell), members[0].with(members[2]));
    }
}
