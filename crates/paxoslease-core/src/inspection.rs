//! Inspections (P10): which tenure of a name a majority stores. They change nothing.
//!
//! An inspection that asks after a grant was answered reports that grant, until it ends: every
//! acceptor of the grant's majority that answers reports its tenure. While a missing acceptor could
//! decide between a tenure and none, the inspection asks again, and in the end it has no answer.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use crate::outbox::{Body, LiveLease, Sighting, Token};
use crate::protocol::proposer::{Env, Proposer};
use crate::rules::Rule;
use crate::{Ballot, Cell, Config, Event, Holder, Instant, Label, Lasts, MemberSet, Seen, Ttl};

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Inspection {
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
    /// When the record of each of them ends, the latest first.
    ends: Vec<Instant>,
    seen: Sighting,
    /// The end that the change with the highest ballot stored.
    durable: Option<DurableEnd>,
    /// How many of them report that change.
    same: u32,
}

/// What a register has left, and the change that stored it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct DurableEnd {
    pub(crate) ballot: Ballot,
    pub(crate) lasts: Lasts,
}

/// Ends that differ by less are equal: acceptors receive a request at different times.
const SAME_END: Duration = Duration::from_millis(1);

impl Report {
    /// When the lease ends: until then a majority stores it. `None` while the acceptors that have
    /// not answered could change that. The end of a durable lease is that of its last change.
    fn ends_at(&self, quorum: u32, missing: u32) -> Option<Instant> {
        let nth = |count: u32| self.ends.get(count.checked_sub(1)? as usize).copied();
        let at_least = nth(quorum)?;
        let at_most = quorum.checked_sub(missing).and_then(nth).unwrap_or(Instant::MAX);
        let is_known = match self.durable {
            None => at_most.since(at_least) <= SAME_END,
            Some(_) => self.same >= quorum || missing == 0,
        };
        is_known.then_some(at_least)
    }
}

impl Inspection {
    fn note(
        &mut self,
        now: Instant,
        member: MemberSet,
        accepted: Option<Seen<'_>>,
        reported: Option<DurableEnd>,
    ) {
        if self.answered.contains(member) {
            return;
        }
        self.answered = self.answered.with(member);
        let Some(Seen { tenure, remaining, holder }) = accepted else {
            self.free = self.free.with(member);
            return;
        };
        let ends_at = now.after(remaining.as_duration());
        match self.held.iter_mut().find(|report| report.seen.tenure == tenure) {
            Some(Report { by, ends, seen, durable, same }) => {
                *by = by.with(member);
                ends.insert(ends.partition_point(|later| *later >= ends_at), ends_at);
                seen.remaining = seen.remaining.max(remaining);
                if seen.label.holder() == Holder::NONE {
                    seen.label = seen.label.with_holder(holder);
                }
                let ballot = |end: &Option<DurableEnd>| end.map(|end| end.ballot);
                *same = match ballot(&reported).cmp(&ballot(durable)) {
                    core::cmp::Ordering::Less => *same,
                    core::cmp::Ordering::Equal => *same + 1,
                    core::cmp::Ordering::Greater => 1,
                };
                // Of the same change, the latest end.
                *durable = (*durable).max(reported);
            }
            None => {
                let label = self.label.with_holder(holder);
                let seen = Sighting { tenure, remaining, label };
                let (durable, same) = (reported, 1);
                self.held.push(Report { by: member, ends: vec![ends_at], seen, durable, same });
            }
        }
    }

    /// What a majority stores; `None` while the acceptors that have not answered could change that.
    /// Those in `absent` will not answer. Then the end is what a majority of the others tells.
    fn verdict(&self, cell: &Cell, now: Instant, absent: MemberSet) -> Option<Option<LiveLease>> {
        let quorum = cell.quorum();
        let missing = cell.old_set().without(self.answered);
        let has_majority = |report: &&Report| report.by.len() >= quorum;
        if let Some(report) = self.held.iter().find(has_majority) {
            let ends_at = report.ends_at(quorum, missing.without(absent).len())?;
            let mut seen = report.seen.clone();
            if report.durable.is_none() && cell.rules().on(Rule::EndNeedsMajority) {
                seen.remaining = Ttl::from_duration(ends_at.since(now)).unwrap_or(Ttl::MIN);
            }
            return Some(Some(LiveLease { seen, durable: report.durable.map(|end| end.lasts) }));
        }
        // Members may report one durable lease by several fences, while its fence rises (K7).
        let could_have =
            |report: &Report| report.durable.is_some() || report.by.with(missing).len() >= quorum;
        let is_free = self.free.len() >= quorum
            || self.answered.len() >= quorum && !self.held.iter().any(could_have);
        is_free.then_some(None)
    }

    /// A majority answered, and the rest could decide either way. What they answered may be over by
    /// now, so they are asked anew.
    fn begin_anew(&mut self) {
        (self.answered, self.free) = (MemberSet::EMPTY, MemberSet::EMPTY);
        self.held.clear();
    }
}

impl Proposer {
    /// The pause before an inspection, or a change of a register, is repeated; it began at
    /// `started_at`.
    pub(crate) fn pause_since(
        &self,
        config: &Config,
        now: Instant,
        started_at: Instant,
    ) -> Duration {
        let least = config.attempt_timeout_min;
        now.since(started_at).min(self.resend_pause_max(config)).max(least)
    }

    pub(crate) fn inspect(&mut self, env: &mut Env<'_>, now: Instant, token: Token, label: Label) {
        self.inspections_begun += 1;
        let query = self.inspections_begun;
        let inspection = Inspection {
            token,
            label: label.clone(),
            started_at: now,
            deadline: self.deadline(env.config, now, Duration::ZERO, Ttl::MAX),
            answered: MemberSet::EMPTY,
            free: MemberSet::EMPTY,
            held: Vec::new(),
        };
        let check_at = now.after(self.attempt_timeout(env.config)).min(inspection.deadline);
        self.inspections.insert(query, inspection);
        self.inspection_ends.push(check_at, query);
        env.ask(Body::Inspect { label, query });
    }

    pub(crate) fn on_inspected(
        &mut self,
        env: &mut Env<'_>,
        now: Instant,
        member: MemberSet,
        query: u64,
        accepted: Option<Seen<'_>>,
        end: Option<DurableEnd>,
    ) {
        if let Some(inspection) = self.inspections.get_mut(&query) {
            inspection.note(now, member, accepted, end);
            self.settle_inspection(env, now, query, self.silent);
        }
    }

    /// Answers an inspection, if the acceptors that are not absent have told enough.
    fn settle_inspection(
        &mut self,
        env: &mut Env<'_>,
        now: Instant,
        query: u64,
        absent: MemberSet,
    ) -> bool {
        let Some(inspection) = self.inspections.get(&query) else { return true };
        let Some(verdict) = inspection.verdict(env.cell(), now, absent) else { return false };
        let (token, accepted) = (inspection.token, verdict.map(Box::new));
        env.out.emit(Event::Inspected { token, accepted });
        self.inspections.remove(&query);
        true
    }

    fn queries(&self) -> Vec<u64> {
        let mut queries: Vec<u64> = self.inspections.keys().copied().collect();
        queries.sort_unstable();
        queries
    }

    /// Repeats the Inspect to the acceptors that have not answered, until the deadline. If a
    /// majority has answered, all are asked anew: the others may be connected and never answer, as
    /// in quarantine. If that majority stores one tenure, its end is enough.
    pub(crate) fn inspection_timed_out(&mut self, env: &mut Env<'_>, now: Instant, query: u64) {
        let reachable = env.cell().old_set().without(self.silent);
        if self.settle_inspection(env, now, query, env.cell().old_set()) {
            return;
        }
        let Some(inspection) = self.inspections.get_mut(&query) else { return };
        let Inspection { token, started_at, deadline, .. } = *inspection;
        if now >= deadline {
            self.inspections.remove(&query);
            return env.out.emit(Event::NoQuorum { token });
        }
        if env.cell().is_confirmed_by(inspection.answered) {
            inspection.begin_anew();
        }
        let again_at = now.after(self.pause_since(env.config, now, started_at));
        self.inspection_ends.push(again_at.min(deadline), query);
        self.resend_inspection(env, query, reachable);
    }

    fn resend_inspection(&self, env: &mut Env<'_>, query: u64, members: MemberSet) {
        let Some(inspection) = self.inspections.get(&query) else { return };
        let members = members.without(inspection.answered);
        if !members.is_empty() {
            env.send(members, Body::Inspect { label: inspection.label.clone(), query });
        }
    }

    /// J3: the members of another epoch have to answer.
    pub(crate) fn inspect_again(&mut self, env: &mut Env<'_>) {
        self.inspections.values_mut().for_each(Inspection::begin_anew);
        self.resend_inspections(env, env.cell().old_set());
    }

    /// These acceptors are connected again, and may have missed an Inspect.
    pub(crate) fn resend_inspections(&self, env: &mut Env<'_>, back: MemberSet) {
        let back = back.within(env.cell().old_set());
        for query in self.queries() {
            self.resend_inspection(env, query, back);
        }
    }
}
