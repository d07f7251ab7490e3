//! Callers of this process: handles and guards, which share tickets with their shard.
//!
//! A lease whose caller has left is released (P8). A belief is dropped before anything is sent
//! about it (P6).

use std::sync::Arc;

use paxoslease_core::{Belief, Drift, Instant, Label, Lasts, Name, Renew, Tenure, Ttl};
use paxoslease_holder::transport::{
    self, AcquireRequest, Caller, Guard, GuardId, ReleaseOutcome, Span, Ticket,
};
use paxoslease_holder::{AcquireError, AskError, Quarantine, ReleaseError, RenewError};
use slab::Slab;

use super::counters::Outcome;
use super::{Driver, FAREWELL_MAX};
use crate::request::{Answer, ReplyTo, Request, RequestKind};

/// The most releases under way of a node that stops.
const HANDED_OVER_MAX: usize = 4096;

type Reply<T, E> = oneshot::Sender<Result<T, E>>;

/// A request that the core has not answered yet. A lease that is `renewed` gets a guard. No caller
/// waits for a release in the background.
pub(super) enum Pending {
    Acquire { caller: Caller, label: Label, span: Span, renewed: bool },
    RenewGuard(GuardId),
    ReleaseGuard(Caller),
    RenewTenure { label: Label, tenure: Tenure, reply: Reply<(Belief, Ttl), RenewError> },
    KeepTenure(KeepTenure),
    ReleaseTenure { label: Label, tenure: Tenure, reply: Reply<(), ReleaseError> },
    Background,
}

/// A request to keep a tenure.
pub(super) struct KeepTenure {
    label: Label,
    tenure: Tenure,
    lasts: Lasts,
    /// The guard of the tenure, if it has one.
    guard: Option<GuardId>,
    reply: Reply<Belief, RenewError>,
}

/// The requests that the core has not answered yet. When the shard ends, their callers are told so.
pub(super) type Callers = Slab<Pending>;

const fn reply_to(slot: u64) -> ReplyTo {
    ReplyTo { origin: ReplyTo::EMBEDDED, id: slot }
}

impl Driver {
    fn expect(&mut self, pending: Pending) -> ReplyTo {
        reply_to(self.callers.insert(pending) as u64)
    }

    /// A handle or a guard of this process asks for something.
    pub(super) fn serve(&mut self, now: Instant, request: transport::Request) {
        match request {
            transport::Request::Acquire(acquire) => self.acquire(now, acquire),
            transport::Request::Abandon(ticket) => self.abandon(now, &ticket),
            transport::Request::Release(caller) => self.release(now, caller),
            transport::Request::RenewTenure { label, tenure, ttl, reply } => {
                let name = label.clone();
                let from = self.expect(Pending::RenewTenure { label, tenure, reply });
                let (lease, fence) = (name.name().into(), tenure.fence());
                self.request(now, from, Request::Renew { lease, fence, ttl: ttl.as_duration() });
            }
            transport::Request::KeepTenure { label, tenure, lasts, reply } => {
                let ends_at = Span::durable(lasts).belief_ends_at(self.drift(), now);
                let guard = self.guards.keep(label.name(), tenure, lasts, ends_at);
                let name = label.clone();
                let keep = KeepTenure { label, tenure, lasts, guard, reply };
                let from = self.expect(Pending::KeepTenure(keep));
                let (lease, fence) = (name.name().into(), tenure.fence());
                self.request(now, from, Request::Keep { lease, fence, lasts });
            }
            transport::Request::ReleaseTenure { label, tenure, is_durable: false, reply: None } => {
                self.give_back(now, label.name(), tenure);
            }
            transport::Request::ReleaseTenure { label, tenure, is_durable, reply } => {
                let name = label.clone();
                let from = self.expect(match reply {
                    Some(reply) => Pending::ReleaseTenure { label, tenure, reply },
                    None => Pending::Background,
                });
                let (lease, fence) = (name.name().into(), tenure.fence());
                self.request(now, from, Request::Release { lease, fence, is_durable });
            }
        }
    }

    fn acquire(&mut self, now: Instant, acquire: AcquireRequest) {
        let AcquireRequest { caller, label, span, wait, permits, renewed } = acquire;
        if caller.has_left() && !self.is_leaving() {
            return;
        }
        caller.ticket().lock().slot = self.callers.vacant_key() as u64;
        let from = self.expect(Pending::Acquire { caller, label: label.clone(), span, renewed });
        let (lease, ttl) = ((label.name(), label.holder()).into(), span.ttl.as_duration());
        let (is_retried, lasts) = (false, span.lasts);
        self.request(now, from, Request::Acquire { lease, ttl, wait, permits, is_retried, lasts });
    }

    /// P8: the caller left. A lease that was granted meanwhile is released.
    fn abandon(&mut self, now: Instant, ticket: &Arc<Ticket>) {
        let slot = ticket.lock().slot;
        let Some(Pending::Acquire { caller, label, .. }) = self.callers.get(slot as usize) else {
            return;
        };
        if Arc::ptr_eq(caller.ticket(), ticket) {
            let lease = label.clone();
            let request = Request::Abandon { lease: lease.name().into() };
            self.request(now, reply_to(slot), request);
        }
    }

    /// The core answered a request of this process. Returns whether the caller was still there.
    pub(super) fn answer_caller(&mut self, now: Instant, slot: u64, answer: Answer) -> bool {
        if matches!(answer, Answer::Released { confirmed: true, .. })
            && let Some(until) = &mut self.leaving_until
        {
            *until = now.after(FAREWELL_MAX);
        }
        let Some(pending) = self.callers.try_remove(slot as usize) else { return true };
        match pending {
            Pending::Acquire { caller, label, span, renewed } => {
                return self.acquired(now, caller, label, (span, renewed), answer);
            }
            Pending::KeepTenure(keep) => self.tenure_kept(now, keep, answer),
            Pending::RenewGuard(guard) => self.guard_answered(now, guard, &answer),
            Pending::ReleaseGuard(caller) => {
                let outcome = release_outcome(answer, self.no_majority(now));
                self.wakers.extend(caller.released(outcome));
            }
            Pending::RenewTenure { label, tenure, reply } => {
                let outcome = match answer {
                    Answer::Renewed { ttl, started_at } => {
                        let ends_at = self.belief_ends_at(started_at, ttl);
                        Ok((Belief::granted(tenure, ends_at), ttl))
                    }
                    Answer::Kept { fence, lasts, started_at } => {
                        let ttl = lasts.capped(Ttl::MAX);
                        let ends_at = self.belief_ends_at(started_at, ttl);
                        Ok((Belief::granted(fence, ends_at), ttl))
                    }
                    Answer::NotHeld => {
                        let (name, fence) = (label.name().to_string(), tenure.fence());
                        Err(RenewError::NotHeld { name, fence })
                    }
                    Answer::Ttl(error) => Err(RenewError::Ttl(error)),
                    answer => Err(answer.into_ask_error(self.no_majority(now)).into()),
                };
                let _left = reply.send(outcome);
            }
            Pending::ReleaseTenure { label, tenure, reply } => {
                let outcome = release_outcome(answer, self.no_majority(now));
                let _left = reply.send(outcome.into_result(label.name(), tenure.fence()));
            }
            Pending::Background => {}
        }
        true
    }

    /// The core answered the renewal of a guard's lease.
    fn guard_answered(&mut self, now: Instant, id: GuardId, answer: &Answer) {
        let is_kept = match *answer {
            Answer::Renewed { ttl, started_at } => {
                let is_durable = |guard: &Guard| guard.is_durable();
                // K10: a renewal from before that proves nothing any more.
                if self.guards.get(id).is_none_or(is_durable) {
                    return;
                }
                let ends_at = self.belief_ends_at(started_at, ttl);
                self.guards.renewed(id, ttl, started_at, ends_at)
            }
            // Maybe another client that knows the fence made the lease durable. The guard goes on
            // as before, except if its fence is too low now.
            Answer::Kept { fence, started_at, .. } => {
                fence == id.tenure && self.guards.kept(id, self.drift(), started_at)
            }
            Answer::NotHeld => false,
            _ => return self.guards.renewal_failed(id, now),
        };
        if !is_kept {
            self.lose(now, id);
        }
    }

    /// The core answered a request to keep a tenure.
    fn tenure_kept(&mut self, now: Instant, keep: KeepTenure, answer: Answer) {
        let KeepTenure { label, tenure, lasts, guard, reply } = keep;
        if let Some(id) = guard {
            self.guard_answered(now, id, &answer);
        }
        let is_lost = guard.is_some_and(|id| self.guards.get(id).is_none());
        let outcome = match answer {
            Answer::Kept { fence, started_at, .. } if !is_lost => {
                let ends_at = Span::durable(lasts).belief_ends_at(self.drift(), started_at);
                Ok(Belief::granted(fence, ends_at))
            }
            Answer::Kept { .. } | Answer::NotHeld => {
                let (name, fence) = (label.name().to_string(), tenure.fence());
                Err(RenewError::NotHeld { name, fence })
            }
            answer => Err(answer.into_ask_error(self.no_majority(now)).into()),
        };
        let _left = reply.send(outcome);
    }

    fn acquired(
        &mut self,
        now: Instant,
        caller: Caller,
        label: Label,
        (span, renewed): (Span, bool),
        answer: Answer,
    ) -> bool {
        let label = answer.granted_label(&label).unwrap_or(label);
        let error = match answer {
            Answer::Granted { tenure, ttl, waited, started_at, permit } => {
                let span = if span.lasts.is_some() { span } else { Span { ttl, lasts: None } };
                let ends_at = span.belief_ends_at(self.drift(), started_at);
                let slot = if renewed { u64::from(self.guards.next_slot()) } else { u64::MAX };
                caller.ticket().lock().permit = permit;
                let granted = caller.grant(Belief::granted(tenure, ends_at), slot, waited);
                let Some((ticket, waker)) = granted else {
                    self.release_in_background(now, label.name(), tenure, span);
                    return false;
                };
                if renewed {
                    self.guards.add(ticket, label, (tenure, span), started_at, ends_at);
                }
                self.wakers.extend(waker);
                return true;
            }
            // The caller is gone, so there is nothing to tell.
            Answer::Abandoned => return true,
            Answer::Held(by) => {
                AcquireError::Held { name: label.name().to_string(), holder: Some(by.into()) }
            }
            Answer::Ttl(error) => AcquireError::Ttl(error),
            answer => answer.into_ask_error(self.no_majority(now)).into(),
        };
        if error == AcquireError::Ask(AskError::Stopped) {
            self.counters.acquired(Outcome::Refused);
        }
        self.wakers.extend(caller.refuse(error));
        true
    }

    /// Whether an acquire of this process is under way.
    pub(super) fn is_acquiring(&self) -> bool {
        self.callers.iter().any(|(_, pending)| matches!(pending, Pending::Acquire { .. }))
    }

    /// The quarantine of this node, if it is in one.
    pub(super) fn quarantine(&self, now: Instant) -> Option<Quarantine> {
        let remaining = self.shard.quarantine_remaining(now);
        let has_record = self.board.has_record;
        (!remaining.is_zero()).then_some(Quarantine { remaining, has_record })
    }

    /// Why this node finds no majority, as far as it can tell by itself.
    fn no_majority(&self, now: Instant) -> AskError {
        let disk_problem = self.board.record_problem();
        AskError::no_majority(self.membership(), self.quarantine(now), disk_problem.as_deref())
    }

    fn drift(&self) -> Drift {
        self.shard.config().cell.drift()
    }

    fn belief_ends_at(&self, started_at: Instant, ttl: Ttl) -> Instant {
        self.drift().belief_ends_at(started_at, ttl)
    }

    /// Whether the next release of a node that stops may begin.
    pub(super) fn may_hand_over(&self) -> bool {
        !self.handing_over.is_empty() && self.callers.len() < HANDED_OVER_MAX
    }

    /// Releases the leases of a node that stops, a bounded number at a time.
    pub(super) fn hand_over(&mut self, now: Instant) {
        while self.may_hand_over()
            && let Some(guard) = self.handing_over.pop()
        {
            self.release_in_background(now, guard.label.name(), guard.tenure, guard.span);
        }
    }

    /// No caller waits for this release. A full shard drops it, and the lease ends with its ttl.
    pub(super) fn release_in_background(
        &mut self,
        now: Instant,
        name: Name<'_>,
        tenure: Tenure,
        span: Span,
    ) {
        self.end_tenure(now, Pending::Background, name, tenure, span);
    }

    fn end_tenure(
        &mut self,
        now: Instant,
        pending: Pending,
        name: Name<'_>,
        tenure: Tenure,
        span: Span,
    ) {
        let token = self.expect(pending).token(RequestKind::Other);
        let asked = if span.lasts.is_some() {
            let patience = self.shard.config().request_timeout;
            self.shard.release_durable(now, token, name, tenure, patience)
        } else {
            self.shard.release(now, token, name, tenure, span.ttl.as_duration())
        };
        if let Err(error) = asked {
            self.reply(now, token, error.into());
        }
    }

    pub(super) fn renew(&mut self, now: Instant, id: GuardId) {
        let Some(guard) = self.guards.get(id) else { return };
        let slot = self.callers.insert(Pending::RenewGuard(id)) as u64;
        let token = reply_to(slot).token(RequestKind::Renew);
        let (name, holder) = (guard.label.name(), guard.label.holder());
        let (tenure, ttl) = (guard.tenure, guard.ttl().as_duration());
        let asked = match guard.span.lasts {
            Some(lasts) => self.shard.keep(now, token, guard.label.clone(), tenure, lasts),
            None => self.shard.renew(now, Renew { token, name, holder, tenure, ttl }),
        };
        if let Err(error) = asked {
            self.reply(now, token, error.into());
        }
    }

    /// Ends a guard whose holder did not: first its belief, then the lease.
    pub(super) fn lose(&mut self, now: Instant, id: GuardId) {
        let Some(guard) = self.guards.remove(id) else { return };
        guard.ticket.lose();
        self.release_in_background(now, guard.label.name(), guard.tenure, guard.span);
    }

    /// P6: the holder dropped its belief.
    fn release(&mut self, now: Instant, caller: Caller) {
        let id = self.guards.of(caller.ticket());
        let Some(guard) = id.and_then(|id| self.guards.remove(id)) else {
            return self.wakers.extend(caller.released(ReleaseOutcome::NotHeld));
        };
        self.counters.released();
        drop(guard.ticket);
        let pending = Pending::ReleaseGuard(caller);
        self.end_tenure(now, pending, guard.label.name(), guard.tenure, guard.span);
    }

    /// The node stops: withdraws the acquires that wait, and tells their callers.
    pub(super) fn refuse_waiting_acquires(&mut self, now: Instant) {
        for slot in 0..self.callers.capacity() {
            let Some(Pending::Acquire { label, .. }) = self.callers.get(slot) else { continue };
            let label = label.clone();
            self.withdraw(now, reply_to(slot as u64), label.name(), Answer::Stopping);
        }
    }
}

fn release_outcome(answer: Answer, no_majority: AskError) -> ReleaseOutcome {
    match answer {
        Answer::Released { held: Some(false), confirmed: true } => ReleaseOutcome::NotHeld,
        Answer::Released { confirmed: true, .. } => ReleaseOutcome::Confirmed,
        answer => ReleaseOutcome::Unconfirmed(answer.into_ask_error(no_majority)),
    }
}
