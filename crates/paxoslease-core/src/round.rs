//! One round of a proposer: counting answers, and what they amount to (protocol section 4, P1 to
//! P5; paper, section 3 steps 3 and 5).
//!
//! Pure: it sends nothing and knows no name. Its timer is the pair of instants fixed when it
//! began (P3), compared with `now` on every answer, so a late wake-up cannot hurt.

use alloc::vec::Vec;

use crate::rules::{Rule, Rules};
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

/// A foreign lease an acceptor reported.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Report {
    member: MemberSet,
    tenure: Tenure,
    free_at: Instant,
}

impl Round {
    pub(crate) fn new(
        rules: Rules,
        cell: &Cell,
        now: Instant,
        (ballot, tenure): (Ballot, Tenure),
        ttl: Ttl,
        phase: Phase,
    ) -> Self {
        Self {
            ballot,
            tenure,
            ttl,
            started_at: now,
            ends_at: cell.drift().belief_ends_at(rules, now, ttl),
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
    pub(crate) fn on_promise(
        &mut self,
        rules: Rules,
        cell: &Cell,
        now: Instant,
        member: MemberSet,
    ) -> Step {
        self.open = self.open.with(member);
        let majority = self.open.len() >= cell.quorum(rules);
        match self.phase {
            Phase::Preparing if majority && now < self.ends_at => {
                self.phase = Phase::Proposing;
                self.refused = MemberSet::EMPTY;
                self.reports.clear();
                Step::Propose
            }
            // The paper's step 3 sets its timer again on every response beyond the majority.
            Phase::Proposing if majority && !rules.on(Rule::TimerIsArmedOnce) => {
                self.ends_at = cell.drift().belief_ends_at(rules, now, self.ttl);
                Step::Propose
            }
            _ => Step::Wait,
        }
    }

    /// P1, P3, P5: counts an acceptor that accepted.
    pub(crate) fn on_accept(
        &mut self,
        rules: Rules,
        cell: &Cell,
        now: Instant,
        member: MemberSet,
    ) -> Step {
        if self.phase == Phase::Preparing {
            return Step::Wait;
        }
        self.accepted = self.accepted.with(member);
        self.accepts = if rules.on(Rule::AcceptsAreDistinct) {
            self.accepted.len()
        } else {
            self.accepts + 1
        };
        if self.accepts < cell.quorum(rules) || self.phase == Phase::Renewed {
            return Step::Wait;
        }
        if now >= self.ends_at && rules.on(Rule::LateMajorityCountsForNothing) {
            return Step::Lost;
        }
        if self.phase == Phase::Renewing {
            self.phase = Phase::Renewed;
        }
        Step::Won
    }

    /// Counts an acceptor that refused. The round is lost once no majority can be had any more and
    /// the answers suffice to tell a holder from a split vote.
    pub(crate) fn on_refusal(&mut self, rules: Rules, cell: &Cell, member: MemberSet) -> Step {
        self.refused = self.refused.with(member);
        let everyone = cell.everyone();
        let hopeless = everyone.without(self.refused).len() < cell.quorum(rules);
        let telling = self.refused.len() >= cell.quorum(rules)
            || self.refused.with(self.accepted).with(self.open).contains(everyone);
        if hopeless && (telling || self.phase == Phase::Renewing) && self.phase != Phase::Renewed {
            Step::Lost
        } else {
            Step::Wait
        }
    }

    /// Notes the foreign lease an acceptor reported.
    pub(crate) fn note_foreign(&mut self, member: MemberSet, tenure: Tenure, free_at: Instant) {
        if tenure != self.tenure && !self.reports.iter().any(|report| report.member == member) {
            self.reports.push(Report { member, tenure, free_at });
        }
    }

    /// P4: the tenure that a majority reports, if it is one and the same, and when enough
    /// acceptors may be free of it.
    pub(crate) fn held_by(&self, rules: Rules, cell: &Cell) -> Option<(Tenure, Instant)> {
        let quorum = cell.quorum(rules) as usize;
        self.reports.iter().find_map(|candidate| {
            let same = self.reports.iter().filter(|report| report.tenure == candidate.tenure);
            let free_at = same.clone().map(|report| report.free_at).max()?;
            (same.count() >= quorum).then_some((candidate.tenure, free_at))
        })
    }

    /// Whether an acceptor may keep a trace of this round that nobody wants once it is void. A
    /// renewal's trace belongs to a tenure that may be held (P5).
    pub(crate) fn leaves_trace(&self) -> bool {
        match self.phase {
            Phase::Proposing => true,
            Phase::Preparing | Phase::Renewing | Phase::Renewed => false,
        }
    }
}
