//! Inspections (P10): which tenure of a name a majority stores. They change nothing.
//!
//! An inspection that asks after a grant was answered reports that grant, until it ends: every
//! acceptor of the grant's majority that answers reports its tenure. What a lost round left in a
//! minority is reported only while a missing acceptor could make it a majority.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::{Env, Proposer};
use crate::outbox::{Body, LiveLease, Sighting, Token};
use crate::{Cell, Event, Holder, Instant, Label, MemberSet, Seen, Standing, Ttl};

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Inspection {
    token: Token,
    label: Label,
    started_at: Instant,
    deadline: Instant,
    answered: MemberSet,
    /// Acceptors that reported no live lease.
    free: MemberSet,
    /// One report per tenure.
    held: Vec<Report>,
}

/// A live lease, and the acceptors that reported it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Report {
    by: MemberSet,
    lease: LiveLease,
}

impl Inspection {
    fn note(&mut self, member: MemberSet, accepted: Option<Seen<'_>>, standing: Option<Standing>) {
        if self.answered.contains(member) {
            return;
        }
        self.answered = self.answered.with(member);
        let Some(Seen { tenure, remaining, holder }) = accepted else {
            self.free = self.free.with(member);
            return;
        };
        match self.held.iter_mut().find(|report| report.lease.seen.tenure == tenure) {
            Some(Report { by, lease: LiveLease { seen, standing: known } }) => {
                *by = by.with(member);
                seen.remaining = seen.remaining.max(remaining);
                if seen.label.holder() == Holder::NONE {
                    seen.label = seen.label.with_holder(holder);
                }
                // The end with the highest version; of equal ones, the latest.
                let rank = |standing: &Standing| (standing.version, standing.lasts);
                *known = known.take().into_iter().chain(standing).max_by_key(rank);
            }
            None => {
                let label = self.label.with_holder(holder);
                let seen = Sighting { tenure, remaining, label };
                self.held.push(Report { by: member, lease: LiveLease { seen, standing } });
            }
        }
    }

    /// What a majority stores; `None` while an acceptor that may answer could change that. The
    /// acceptors in `silent` will not answer.
    fn verdict(&self, cell: &Cell, silent: MemberSet) -> Option<Option<&LiveLease>> {
        let quorum = cell.quorum();
        let missing = cell.everyone().without(self.answered);
        let with_majority = |absent: MemberSet| {
            let could_have = |report: &&Report| report.by.with(absent).len() >= quorum;
            let held = self.held.iter().filter(could_have).map(|report| &report.lease);
            held.max_by_key(|lease| lease.seen.tenure)
        };
        if let Some(lease) = with_majority(MemberSet::EMPTY) {
            return Some(Some(lease));
        }
        if self.free.len() >= quorum {
            return Some(None);
        }
        let is_last = silent.contains(missing) && self.answered.len() >= quorum;
        is_last.then(|| with_majority(missing))
    }
}

impl Proposer {
    pub(crate) fn inspect(&mut self, env: &mut Env<'_>, now: Instant, token: Token, label: Label) {
        self.inspections_begun += 1;
        let query = self.inspections_begun;
        let inspection = Inspection {
            token,
            label: label.clone(),
            started_at: now,
            deadline: self.deadline(env.config, now, core::time::Duration::ZERO, Ttl::MAX),
            answered: MemberSet::EMPTY,
            free: MemberSet::EMPTY,
            held: Vec::new(),
        };
        let check_at = now.after(self.attempt_timeout(env.config)).min(inspection.deadline);
        self.inspections.insert(query, inspection);
        self.inspection_ends.push(check_at, query);
        env.broadcast(Body::Inspect { label, query });
    }

    pub(super) fn on_inspected(
        &mut self,
        env: &mut Env<'_>,
        member: MemberSet,
        query: u64,
        accepted: Option<Seen<'_>>,
        standing: Option<Standing>,
    ) {
        if let Some(inspection) = self.inspections.get_mut(&query) {
            inspection.note(member, accepted, standing);
            self.conclude_inspection(env, query, self.silent);
        }
    }

    /// Answers the inspection, if the acceptors outside `silent` have decided it.
    fn conclude_inspection(&mut self, env: &mut Env<'_>, query: u64, silent: MemberSet) {
        let Some(inspection) = self.inspections.get(&query) else { return };
        if let Some(verdict) = inspection.verdict(env.cell(), silent) {
            let (token, accepted) = (inspection.token, verdict.cloned().map(Box::new));
            env.out.emit(Event::Inspected { token, accepted });
            self.inspections.remove(&query);
        }
    }

    /// Acceptors became unreachable: inspections that wait only for them are decided.
    pub(super) fn conclude_inspections(&mut self, env: &mut Env<'_>) {
        for query in self.queries() {
            self.conclude_inspection(env, query, self.silent);
        }
    }

    fn queries(&self) -> Vec<u64> {
        let mut queries: Vec<u64> = self.inspections.keys().copied().collect();
        queries.sort_unstable();
        queries
    }

    /// Repeats the Inspect to the acceptors that have not answered, until the deadline.
    pub(super) fn inspection_timed_out(&mut self, env: &mut Env<'_>, now: Instant, query: u64) {
        let Some(inspection) = self.inspections.get(&query) else { return };
        let Inspection { token, started_at, deadline, .. } = *inspection;
        if now < deadline {
            let again_at = now.after(self.pause_since(env.config, now, started_at));
            self.inspection_ends.push(again_at.min(deadline), query);
            return self.resend_inspection(env, query, env.cell().everyone().without(self.silent));
        }
        self.conclude_inspection(env, query, env.cell().everyone());
        if self.inspections.remove(&query).is_some() {
            env.out.emit(Event::NoQuorum { token });
        }
    }

    fn resend_inspection(&self, env: &mut Env<'_>, query: u64, members: MemberSet) {
        let Some(inspection) = self.inspections.get(&query) else { return };
        let members = members.without(inspection.answered);
        if !members.is_empty() {
            env.send(members, Body::Inspect { label: inspection.label.clone(), query });
        }
    }

    /// These acceptors are connected again, and may have missed an Inspect.
    pub(super) fn resend_inspections(&self, env: &mut Env<'_>, back: MemberSet) {
        for query in self.queries() {
            self.resend_inspection(env, query, back);
        }
    }
}
