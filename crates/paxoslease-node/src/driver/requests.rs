//! Requests of handles and guards of this process, and their answers.
//!
//! A lease whose caller has left is released (P8). A belief is dropped before anything is sent
//! about it (P6).

use std::sync::Arc;
use std::time::Duration;

use paxoslease_core::{
    Acquire, Belief, CommandError, Holder, Instant, Label, Renew, Sighting, Tenure, Token, Ttl,
};
use paxoslease_holder::transport::{
    AcquireRequest, Caller, GuardId, ReleaseOutcome, Request, Ticket,
};
use paxoslease_holder::{AcquireError, AskError, LeaseInfo, ReleaseError, RenewError};
use slab::Slab;

use super::Driver;
use super::FAREWELL_MAX;
use super::counters::Outcome;

/// How many leases are given back at a time.
const HANDED_OVER_MAX: usize = 4096;

type Reply<T, E> = oneshot::Sender<Result<T, E>>;

/// A request that the core has not answered yet.
pub(super) enum Pending {
    Acquire {
        caller: Caller,
        label: Label,
        /// Whether the lease gets a guard.
        renewed: bool,
    },
    RenewGuard(GuardId),
    ReleaseGuard(Caller),
    RenewTenure {
        label: Label,
        reply: Reply<(Belief, Ttl), RenewError>,
    },
    ReleaseTenure {
        label: Label,
        tenure: Tenure,
        reply: Reply<(), ReleaseError>,
    },
    /// A release that no caller waits for.
    Background,
    Inspect(Reply<Option<LeaseInfo>, AskError>),
}

/// The requests that the core has not answered yet. When the shard ends, their callers are told.
pub(super) type Requests = Slab<Pending>;

impl Driver {
    fn token(&mut self, pending: Pending) -> Token {
        Token(self.requests.insert(pending) as u64)
    }

    fn take(&mut self, token: Token) -> Option<Pending> {
        self.requests.try_remove(usize::try_from(token.0).ok()?)
    }

    /// A handle or a guard of this process asks for something.
    pub(super) fn request(&mut self, now: Instant, request: Request) {
        match request {
            Request::Acquire(acquire) => self.acquire(now, acquire),
            Request::Abandon(ticket) => self.abandon(now, &ticket),
            Request::Release(caller) => self.release(now, caller),
            Request::RenewTenure { label, tenure, ttl, reply } => {
                let token = self.token(Pending::RenewTenure { label: label.clone(), reply });
                let (name, holder, ttl) = (label.name(), Holder::NONE, ttl.as_duration());
                let renew = Renew { token, name, holder, tenure, ttl };
                if let Err(error) = self.shard.renew(now, renew)
                    && let Some(Pending::RenewTenure { reply, .. }) = self.take(token)
                {
                    self.counters.renewed(Outcome::Refused);
                    let _left = reply.send(Err(renew_error(error)));
                }
            }
            Request::ReleaseTenure { label, tenure, reply: None } => {
                let ttl = self.shard.config().cell.max_lease();
                self.release_in_background(now, &label, tenure, ttl);
            }
            Request::ReleaseTenure { label, tenure, reply: Some(reply) } => {
                self.counters.released();
                let patience = self.shard.config().request_timeout;
                let pending = Pending::ReleaseTenure { label: label.clone(), tenure, reply };
                let token = self.token(pending);
                if let Err(error) = self.shard.release(now, token, label.name(), tenure, patience)
                    && let Some(Pending::ReleaseTenure { reply, .. }) = self.take(token)
                {
                    let _left = reply.send(Err(AskError::Busy(error.to_string()).into()));
                }
            }
        }
    }

    fn acquire(&mut self, now: Instant, acquire: AcquireRequest) {
        let AcquireRequest { caller, label, ttl, wait, renewed } = acquire;
        let ttl = ttl.as_duration();
        if self.leaving_until.is_some() {
            return self.refuse(caller, AskError::Stopped.into());
        }
        if caller.has_left() {
            return;
        }
        caller.ticket().lock().slot = self.requests.vacant_key() as u64;
        let token = self.token(Pending::Acquire { caller, label: label.clone(), renewed });
        let (name, holder) = (label.name(), label.holder());
        let refused = self.shard.acquire(now, Acquire { token, name, holder, ttl, wait }).err();
        if let Some(error) = refused
            && let Some(Pending::Acquire { caller, .. }) = self.take(token)
        {
            self.refuse(caller, error.into());
        }
    }

    fn refuse(&mut self, caller: Caller, error: AcquireError) {
        self.counters.acquired(match error {
            AcquireError::Held { .. } => Outcome::Held,
            AcquireError::Ask(AskError::NoQuorum(_)) => Outcome::NoQuorum,
            _ => Outcome::Refused,
        });
        self.wakers.extend(caller.refuse(error));
    }

    /// P8: the caller left. If it was granted meanwhile, it is given back.
    pub(super) fn abandon(&mut self, now: Instant, ticket: &Arc<Ticket>) {
        let slot = ticket.lock().slot;
        let Some(Pending::Acquire { caller, label, .. }) = self.requests.get(slot as usize) else {
            return;
        };
        if Arc::ptr_eq(caller.ticket(), ticket) {
            let token = Token(slot);
            if self.shard.abandon(now, label.name(), token) {
                self.take(token);
                self.counters.acquired(Outcome::Abandoned);
            }
        }
    }

    pub(super) fn granted(
        &mut self,
        now: Instant,
        token: Token,
        (tenure, ttl): (Tenure, Ttl),
        started_at: Instant,
        waited: Duration,
    ) {
        let Some(Pending::Acquire { caller, label, renewed }) = self.take(token) else { return };
        let ends_at = self.belief_ends_at(started_at, ttl);
        let slot = if renewed { u64::from(self.guards.next_slot()) } else { u64::MAX };
        let granted = caller.grant(Belief::granted(tenure, ends_at), slot, waited);
        let Some((ticket, waker)) = granted else {
            self.counters.acquired(Outcome::Abandoned);
            return self.release_in_background(now, &label, tenure, ttl);
        };
        self.counters.acquired(Outcome::Granted);
        if renewed {
            self.guards.add(ticket, label, (tenure, ttl), started_at, ends_at);
        }
        self.wakers.extend(waker);
    }

    fn belief_ends_at(&self, started_at: Instant, ttl: Ttl) -> Instant {
        self.shard.config().cell.drift().belief_ends_at(started_at, ttl)
    }

    /// Whether the next lease can be given back already.
    pub(super) fn may_hand_over(&self) -> bool {
        !self.handing_over.is_empty() && self.requests.len() < HANDED_OVER_MAX
    }

    /// Gives back what a node that leaves held, a batch at a time: the next when most of the last
    /// is confirmed.
    pub(super) fn hand_over(&mut self, now: Instant) {
        while self.may_hand_over()
            && let Some(guard) = self.handing_over.pop()
        {
            self.release_in_background(now, &guard.label, guard.tenure, guard.ttl);
        }
    }

    /// A full shard forgets it, and the lease runs out by itself.
    pub(super) fn release_in_background(
        &mut self,
        now: Instant,
        label: &Label,
        tenure: Tenure,
        ttl: Ttl,
    ) {
        let token = self.token(Pending::Background);
        if self.shard.release(now, token, label.name(), tenure, ttl.as_duration()).is_err() {
            self.take(token);
        }
    }

    pub(super) fn denied(&mut self, token: Token, by: Sighting) {
        let Some(Pending::Acquire { caller, label, .. }) = self.take(token) else { return };
        let (name, holder) = (label.name().to_string(), Some(by.into()));
        self.refuse(caller, AcquireError::Held { name, holder });
    }

    pub(super) fn no_quorum(&mut self, now: Instant, token: Token) {
        match self.take(token) {
            Some(Pending::Acquire { caller, .. }) => {
                self.refuse(caller, AskError::NO_MAJORITY.into());
            }
            Some(Pending::RenewGuard(guard)) => {
                self.counters.renewed(Outcome::NoQuorum);
                self.guards.renewal_failed(guard, now);
            }
            Some(Pending::RenewTenure { reply, .. }) => {
                self.counters.renewed(Outcome::NoQuorum);
                let _left = reply.send(Err(AskError::NO_MAJORITY.into()));
            }
            Some(Pending::Inspect(reply)) => {
                let _left = reply.send(Err(AskError::NO_MAJORITY));
            }
            Some(
                Pending::ReleaseGuard(_) | Pending::ReleaseTenure { .. } | Pending::Background,
            )
            | None => {}
        }
    }

    pub(super) fn renew(&mut self, now: Instant, id: GuardId) {
        let token = self.token(Pending::RenewGuard(id));
        let Some(guard) = self.guards.get(id) else {
            self.take(token);
            return;
        };
        let (name, holder) = (guard.label.name(), guard.label.holder());
        let (tenure, ttl) = (guard.tenure, guard.ttl.as_duration());
        if self.shard.renew(now, Renew { token, name, holder, tenure, ttl }).is_err() {
            self.take(token);
            self.counters.renewed(Outcome::Refused);
            self.guards.renewal_failed(id, now);
        }
    }

    pub(super) fn renewed(
        &mut self,
        now: Instant,
        token: Token,
        tenure: Tenure,
        ttl: Ttl,
        started_at: Instant,
    ) {
        let ends_at = self.belief_ends_at(started_at, ttl);
        match self.take(token) {
            Some(Pending::RenewGuard(guard)) => {
                self.counters.renewed(Outcome::Granted);
                if !self.guards.renewed(guard, ttl, started_at, ends_at) {
                    self.lose(now, guard);
                }
            }
            Some(Pending::RenewTenure { reply, .. }) => {
                self.counters.renewed(Outcome::Granted);
                let _left = reply.send(Ok((Belief::granted(tenure, ends_at), ttl)));
            }
            _ => {}
        }
    }

    pub(super) fn not_held(&mut self, now: Instant, token: Token, tenure: Tenure) {
        match self.take(token) {
            Some(Pending::RenewGuard(guard)) => {
                self.counters.renewed(Outcome::NotHeld);
                self.lose(now, guard);
            }
            Some(Pending::RenewTenure { label, reply }) => {
                self.counters.renewed(Outcome::NotHeld);
                let (name, fence) = (label.name().to_string(), tenure.fence());
                let _left = reply.send(Err(RenewError::NotHeld { name, fence }));
            }
            _ => {}
        }
    }

    /// Gives a guard up without its holder's doing: first the belief, then the release.
    pub(super) fn lose(&mut self, now: Instant, id: GuardId) {
        let Some(guard) = self.guards.remove(id) else { return };
        guard.ticket.lose();
        self.release_in_background(now, &guard.label, guard.tenure, guard.ttl);
    }

    /// P6: the holder dropped its belief.
    fn release(&mut self, now: Instant, caller: Caller) {
        let id = self.guards.of(caller.ticket());
        let Some(guard) = id.and_then(|id| self.guards.remove(id)) else {
            return self.wakers.extend(caller.released(ReleaseOutcome::NotHeld));
        };
        self.counters.released();
        let patience = guard.ttl.as_duration();
        drop(guard.ticket);
        let token = self.token(Pending::ReleaseGuard(caller));
        let asked = self.shard.release(now, token, guard.label.name(), guard.tenure, patience);
        if let Err(error) = asked
            && let Some(Pending::ReleaseGuard(caller)) = self.take(token)
        {
            let busy = AskError::Busy(error.to_string());
            self.wakers.extend(caller.released(ReleaseOutcome::Unconfirmed(busy)));
        }
    }

    pub(super) fn released(&mut self, now: Instant, token: Token, held: bool, confirmed: bool) {
        if confirmed && let Some(until) = &mut self.leaving_until {
            *until = now.after(FAREWELL_MAX);
        }
        let outcome = match (held, confirmed) {
            (_, false) => ReleaseOutcome::Unconfirmed(AskError::NO_MAJORITY),
            (true, true) => ReleaseOutcome::Confirmed,
            (false, true) => ReleaseOutcome::NotHeld,
        };
        match self.take(token) {
            Some(Pending::ReleaseGuard(caller)) => self.wakers.extend(caller.released(outcome)),
            Some(Pending::ReleaseTenure { label, tenure, reply }) => {
                let _left = reply.send(outcome.into_result(label.name(), tenure.fence()));
            }
            _ => {}
        }
    }

    pub(super) fn inspect(
        &mut self,
        now: Instant,
        label: &Label,
        reply: Reply<Option<LeaseInfo>, AskError>,
    ) {
        let token = self.token(Pending::Inspect(reply));
        if let Err(error) = self.shard.inspect(now, token, label.name())
            && let Some(Pending::Inspect(reply)) = self.take(token)
        {
            let _left = reply.send(Err(AskError::Busy(error.to_string())));
        }
    }

    pub(super) fn inspected(&mut self, token: Token, accepted: Option<Sighting>) {
        if let Some(Pending::Inspect(reply)) = self.take(token) {
            let _left = reply.send(Ok(accepted.map(Into::into)));
        }
    }

    /// The node leaves: acquires are withdrawn, and their callers are told.
    pub(super) fn turn_everybody_away(&mut self, now: Instant) {
        for slot in 0..self.requests.capacity() {
            let Some(Pending::Acquire { label, .. }) = self.requests.get(slot) else { continue };
            let token = Token(slot as u64);
            if self.shard.abandon(now, label.name(), token)
                && let Some(Pending::Acquire { caller, .. }) = self.take(token)
            {
                self.refuse(caller, AskError::Stopped.into());
            }
        }
    }
}

fn renew_error(error: CommandError) -> RenewError {
    match error {
        CommandError::Ttl(error) => RenewError::Ttl(error),
        error => AskError::Busy(error.to_string()).into(),
    }
}
