//! The operation by which a holder sets the end of its lease (S1, S6): one round of Stand under a
//! fresh version.
//!
//! A majority has to store this very version. An acceptor that has stored or promised a higher
//! ballot reports it, and the operation begins anew above that. So of two operations of which the
//! second began after the first was answered, the second has the higher version.
//!
//! In a joint epoch a majority of the new set has to store it as well, in dated records (J2).

use alloc::vec::Vec;

use crate::outbox::{Body, Token};
use crate::protocol::proposer::{Env, Proposer};
use crate::rules::Rule;
use crate::{Ballot, Event, Instant, Label, Lasts, MemberSet, Tenure, Ttl};

/// How often an operation begins anew above a version that it has learnt.
const TRIES_MAX: u8 = 16;

/// An operation in flight.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Operation {
    token: Token,
    label: Label,
    tenure: Tenure,
    lasts: Lasts,
    /// When its first Stand was sent: the belief counts from here.
    started_at: Instant,
    deadline: Instant,
    /// Acceptors that store this version.
    stored: MemberSet,
    /// In a joint epoch, those of them that count in the new set: their records are dated.
    dated: MemberSet,
    /// Acceptors without the tenure.
    refused: MemberSet,
    tries: u8,
}

impl Operation {
    fn body(&self, version: Ballot) -> Body {
        let Self { label, tenure, lasts, .. } = self;
        let (label, tenure, lasts) = (label.clone(), *tenure, *lasts);
        Body::Stand { label, tenure, version, lasts, is_relayed: false }
    }

    fn forget_answers(&mut self) {
        (self.stored, self.dated) = (MemberSet::EMPTY, MemberSet::EMPTY);
        self.refused = MemberSet::EMPTY;
    }
}

impl Proposer {
    pub(crate) fn stand(
        &mut self,
        env: &mut Env<'_>,
        now: Instant,
        token: Token,
        label: Label,
        tenure: Tenure,
        lasts: Lasts,
    ) {
        if self.is_released(tenure) {
            return env.out.emit(Event::NotHeld { token, tenure });
        }
        let operation = Operation {
            token,
            label,
            tenure,
            lasts,
            started_at: now,
            deadline: self.deadline(env.config, now, core::time::Duration::ZERO, Ttl::MAX),
            stored: MemberSet::EMPTY,
            dated: MemberSet::EMPTY,
            refused: MemberSet::EMPTY,
            tries: 0,
        };
        self.try_to_stand(env, now, operation);
    }

    fn try_to_stand(&mut self, env: &mut Env<'_>, now: Instant, mut operation: Operation) {
        operation.tries += 1;
        operation.forget_answers();
        let fresh = if operation.tries > TRIES_MAX { None } else { self.next_tenure(env, now) };
        let Some(fresh) = fresh else {
            return env.out.emit(Event::NoQuorum { token: operation.token });
        };
        let version = fresh.ballot();
        let body = operation.body(version);
        let check_at = now.after(self.attempt_timeout(env.config)).min(operation.deadline);
        self.operation_ends.push(check_at, version);
        self.operations.insert(version, operation);
        env.broadcast(body);
    }

    pub(crate) fn on_stood(
        &mut self,
        env: &mut Env<'_>,
        now: Instant,
        (member, dated): (MemberSet, MemberSet),
        (version, stored): (Ballot, Ballot),
        held: bool,
    ) {
        self.observe(stored.counter());
        let by_majority = env.rules().on(Rule::StandNeedsMajority);
        let cell = env.config.cell;
        let Some(operation) = self.operations.get_mut(&version) else { return };
        let Operation { token, tenure, started_at, .. } = *operation;
        if !held {
            // A newcomer may not store the lease yet: it is asked again.
            operation.refused = operation.refused.with(member.within(cell.old_set()));
            if cell.old_set().without(operation.refused).len() < cell.quorum() {
                self.operations.remove(&version);
                env.out.emit(Event::NotHeld { token, tenure });
            }
        } else if stored == version || !env.rules().on(Rule::StandFollowsVersion) {
            operation.stored = operation.stored.with(member);
            // J2: a record that is not dated ends with the joint epoch. Its acceptor counts in the
            // old set only, and is asked again: the members renew the lease soon (C10).
            operation.dated = operation.dated.with(dated);
            let is_stored =
                cell.is_confirmed_by(operation.stored) && cell.is_stored_by(operation.dated);
            if is_stored || !by_majority {
                let lasts = operation.lasts;
                self.operations.remove(&version);
                // As P1: an acceptor that stored it first may have ended the lease by now.
                let ends_at = env.cell().drift().belief_ends_at(started_at, lasts.capped(Ttl::MAX));
                let is_late = now >= ends_at && env.rules().on(Rule::LateMajorityCountsForNothing);
                env.out.emit(if is_late {
                    Event::NoQuorum { token }
                } else {
                    Event::Stood { token, tenure, lasts, started_at }
                });
            }
        } else if let Some(operation) = self.operations.remove(&version) {
            self.try_to_stand(env, now, operation);
        }
    }

    /// Repeats the Stand to the acceptors that have not answered, until the deadline.
    pub(crate) fn operation_timed_out(&mut self, env: &mut Env<'_>, now: Instant, version: Ballot) {
        let Some(operation) = self.operations.get(&version) else { return };
        let Operation { token, deadline, started_at, .. } = *operation;
        if now >= deadline {
            self.operations.remove(&version);
            return env.out.emit(Event::NoQuorum { token });
        }
        let pause = self.pause_since(env.config, now, started_at);
        self.operation_ends.push(now.after(pause).min(deadline), version);
        self.resend_operation(env, version, env.cell().everyone().without(self.silent));
    }

    fn resend_operation(&self, env: &mut Env<'_>, version: Ballot, members: MemberSet) {
        let Some(operation) = self.operations.get(&version) else { return };
        let undated = env.cell().new_set().without(operation.dated);
        let done = operation.stored.without(undated).with(operation.refused);
        let members = members.without(done);
        if !members.is_empty() {
            let body = operation.body(version);
            env.send(members, body);
        }
    }

    /// J3: the members of another epoch have to store the end.
    pub(crate) fn stand_again(&mut self, env: &mut Env<'_>) {
        for operation in self.operations.values_mut() {
            operation.forget_answers();
        }
        self.resend_operations(env, env.cell().everyone());
    }

    /// These acceptors are connected again, and may have missed a Stand.
    pub(crate) fn resend_operations(&self, env: &mut Env<'_>, back: MemberSet) {
        let mut versions: Vec<Ballot> = self.operations.keys().copied().collect();
        versions.sort_unstable();
        for version in versions {
            self.resend_operation(env, version, back);
        }
    }

    /// The versions of the operations in flight.
    #[cfg(feature = "digest")]
    pub(crate) fn versions(&self) -> Vec<Ballot> {
        let mut versions: Vec<Ballot> = self.operations.keys().copied().collect();
        versions.sort_unstable();
        versions
    }

    /// Hashes the operations in the order of their versions, with every set of acceptors mapped.
    #[cfg(feature = "digest")]
    pub(crate) fn operations_digest(
        &self,
        place: impl Fn(MemberSet) -> MemberSet,
        hasher: &mut impl core::hash::Hasher,
    ) {
        for version in self.versions() {
            let mut operation = self.operations[&version].clone();
            operation.stored = place(operation.stored);
            operation.dated = place(operation.dated);
            operation.refused = place(operation.refused);
            core::hash::Hash::hash(&(version, operation), hasher);
        }
    }
}
