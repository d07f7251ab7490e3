//! Those who wait for an answer of this shard, and what they are told.
//!
//! A lease that nobody waits for any more is given back (P8); a belief is dropped before anything
//! is sent about it (P6).

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use paxoslease_core::{
    Acquire, Belief, CommandError, Instant, Label, Renew, Sighting, Tenure, Token, Ttl,
};
use slab::Slab;

use super::Driver;
use super::FAREWELL_MAX;
use super::counters::Outcome;
use crate::error::{AcquireError, AskError, ReleaseError};
use crate::ticket::{Stage, Ticket};
use crate::watch;

/// How many leases are given back at a time.
const HANDED_OVER_MAX: usize = 4096;

type InspectReply = oneshot::Sender<Result<Option<watch::Sighting>, AskError>>;

/// Who asked.
pub(super) enum Request {
    Acquire {
        ticket: Arc<Ticket>,
        label: Label,
    },
    Renew {
        guard: u32,
    },
    Release {
        ticket: Arc<Ticket>,
    },
    /// Nobody waits for this one.
    Background,
    Inspect(InspectReply),
}

/// Who waits for which answer. Nobody is left waiting for a shard that is gone.
#[derive(Default)]
pub(super) struct Requests(Slab<Request>);

impl Deref for Requests {
    type Target = Slab<Request>;

    fn deref(&self) -> &Slab<Request> {
        &self.0
    }
}

impl DerefMut for Requests {
    fn deref_mut(&mut self) -> &mut Slab<Request> {
        &mut self.0
    }
}

impl Drop for Requests {
    fn drop(&mut self) {
        for request in self.0.drain() {
            let (ticket, stage) = match request {
                Request::Acquire { ticket, .. } => (ticket, Stage::Refused(AcquireError::Stopped)),
                Request::Release { ticket } => {
                    (ticket, Stage::Released(Err(ReleaseError::Stopped)))
                }
                // The other end of a reply notices by itself.
                Request::Renew { .. } | Request::Background | Request::Inspect(_) => continue,
            };
            ticket.settle(stage);
        }
    }
}

impl Driver {
    fn token(&mut self, request: Request) -> Token {
        Token(self.requests.insert(request) as u64)
    }

    fn take(&mut self, token: Token) -> Option<Request> {
        self.requests.try_remove(usize::try_from(token.0).ok()?)
    }

    pub(super) fn acquire(
        &mut self,
        now: Instant,
        ticket: Arc<Ticket>,
        label: Label,
        ttl: Duration,
        wait: Duration,
    ) {
        if self.leaving_until.is_some() {
            return self.refuse(ticket, AcquireError::Stopped);
        }
        {
            let mut state = ticket.lock();
            if state.stage != Stage::Asked {
                return;
            }
            state.slot = self.requests.vacant_key() as u32;
        }
        let token = self.token(Request::Acquire { ticket, label: label.clone() });
        let (name, holder) = (label.name(), label.holder());
        let refused = self.shard.acquire(now, Acquire { token, name, holder, ttl, wait }).err();
        if let Some(error) = refused
            && let Some(Request::Acquire { ticket, .. }) = self.take(token)
        {
            self.refuse(ticket, acquire_error(error));
        }
    }

    fn refuse(&mut self, ticket: Arc<Ticket>, error: AcquireError) {
        self.counters.acquired(match error {
            AcquireError::Held { .. } => Outcome::Held,
            AcquireError::NoQuorum => Outcome::NoQuorum,
            _ => Outcome::Refused,
        });
        self.answer(ticket, Stage::Refused(error));
    }

    fn answer(&mut self, ticket: Arc<Ticket>, stage: Stage) {
        let waker = ticket.lock().answer(stage);
        // Before the wake-up, so that the caller finds the ticket unshared.
        drop(ticket);
        self.wakers.extend(waker);
    }

    /// P8: the caller left. If it was granted meanwhile, it is given back.
    pub(super) fn abandon(&mut self, now: Instant, ticket: &Arc<Ticket>) {
        let slot = ticket.lock().slot;
        let Some(Request::Acquire { ticket: asked, label }) = self.requests.get(slot as usize)
        else {
            return;
        };
        if Arc::ptr_eq(asked, ticket) {
            let token = Token(u64::from(slot));
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
        tenure: Tenure,
        ttl: Ttl,
        started_at: Instant,
    ) {
        let Some(Request::Acquire { ticket, label }) = self.take(token) else { return };
        let drift = self.shard.config().cell.drift();
        let ends_at = drift.belief_ends_at(started_at, ttl);
        let mut state = ticket.lock();
        if state.stage == Stage::Asked {
            self.counters.acquired(Outcome::Granted);
            state.belief = Some(Belief::granted(tenure, ends_at));
            state.slot = self.guards.vacant();
            let waker = state.answer(Stage::Held);
            drop(state);
            self.guards.add((ticket, label), tenure, ttl, (started_at, ends_at));
            self.wakers.extend(waker);
        } else {
            drop(state);
            self.counters.acquired(Outcome::Abandoned);
            self.release_in_background(now, &label, tenure, ttl);
        }
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
        let token = self.token(Request::Background);
        if self.shard.release(now, token, label.name(), tenure, ttl.as_duration()).is_err() {
            self.take(token);
        }
    }

    pub(super) fn denied(&mut self, token: Token, by: Sighting) {
        let Some(Request::Acquire { ticket, .. }) = self.take(token) else { return };
        let watch::Sighting { name, holder, fence, remaining } = by.into();
        self.refuse(ticket, AcquireError::Held { name, holder, fence, remaining });
    }

    pub(super) fn no_quorum(&mut self, now: Instant, token: Token) {
        match self.take(token) {
            Some(Request::Acquire { ticket, .. }) => self.refuse(ticket, AcquireError::NoQuorum),
            Some(Request::Renew { guard }) => {
                self.counters.renewed(Outcome::NoQuorum);
                self.guards.renewal_failed(guard, now);
            }
            Some(Request::Inspect(reply)) => {
                let _gone = reply.send(Err(AskError::NoQuorum));
            }
            Some(Request::Release { .. } | Request::Background) | None => {}
        }
    }

    pub(super) fn renew(&mut self, now: Instant, slot: u32) {
        let token = self.token(Request::Renew { guard: slot });
        let Some(guard) = self.guards.get(slot) else {
            self.take(token);
            return;
        };
        let (name, holder) = (guard.label.name(), guard.label.holder());
        let (tenure, ttl) = (guard.tenure, guard.ttl.as_duration());
        if self.shard.renew(now, Renew { token, name, holder, tenure, ttl }).is_err() {
            self.take(token);
            self.counters.renewed(Outcome::Refused);
            self.guards.renewal_failed(slot, now);
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
        if let Some(Request::Renew { guard }) = self.take(token) {
            self.counters.renewed(Outcome::Granted);
            if !self.guards.renewed(guard, tenure, ttl, started_at) {
                self.lose(now, guard);
            }
        }
    }

    pub(super) fn not_held(&mut self, now: Instant, token: Token, tenure: Tenure) {
        if let Some(Request::Renew { guard }) = self.take(token) {
            self.counters.renewed(Outcome::NotHeld);
            if self.guards.get(guard).is_some_and(|held| held.tenure == tenure) {
                self.lose(now, guard);
            }
        }
    }

    /// Gives a guard up against its holder's wish: the belief first, then the word to others.
    pub(super) fn lose(&mut self, now: Instant, slot: u32) {
        let Some(guard) = self.guards.remove(slot) else { return };
        guard.ticket.lose();
        self.release_in_background(now, &guard.label, guard.tenure, guard.ttl);
    }

    /// P6: the holder dropped its belief.
    pub(super) fn release(&mut self, now: Instant, ticket: Arc<Ticket>) {
        let slot = ticket.lock().slot;
        let guarded =
            self.guards.get(slot).is_some_and(|guard| Arc::ptr_eq(&guard.ticket, &ticket));
        let Some(guard) = guarded.then(|| self.guards.remove(slot)).flatten() else {
            return self.answer(ticket, Stage::Released(Err(ReleaseError::NotHeld)));
        };
        self.counters.released();
        let patience = guard.ttl.as_duration();
        drop(guard.ticket);
        let token = self.token(Request::Release { ticket });
        let asked = self.shard.release(now, token, guard.label.name(), guard.tenure, patience);
        if asked.is_err()
            && let Some(Request::Release { ticket }) = self.take(token)
        {
            self.answer(ticket, Stage::Released(Err(ReleaseError::Unconfirmed)));
        }
    }

    pub(super) fn released(&mut self, now: Instant, token: Token, held: bool, confirmed: bool) {
        if confirmed && let Some(until) = &mut self.leaving_until {
            *until = now.after(FAREWELL_MAX);
        }
        if let Some(Request::Release { ticket }) = self.take(token) {
            let result = match (held, confirmed) {
                (_, false) => Err(ReleaseError::Unconfirmed),
                (true, true) => Ok(()),
                (false, true) => Err(ReleaseError::NotHeld),
            };
            self.answer(ticket, Stage::Released(result));
        }
    }

    pub(super) fn inspect(&mut self, now: Instant, label: &Label, reply: InspectReply) {
        let token = self.token(Request::Inspect(reply));
        if let Err(error) = self.shard.inspect(now, token, label.name())
            && let Some(Request::Inspect(reply)) = self.take(token)
        {
            let _gone = reply.send(Err(AskError::Busy(error.to_string())));
        }
    }

    pub(super) fn inspected(&mut self, token: Token, accepted: Option<Sighting>) {
        if let Some(Request::Inspect(reply)) = self.take(token) {
            let _gone = reply.send(Ok(accepted.map(Into::into)));
        }
    }

    /// The node leaves: acquires are taken back, and whoever asked is told.
    pub(super) fn turn_everybody_away(&mut self, now: Instant) {
        for slot in 0..self.requests.capacity() {
            let Some(Request::Acquire { label, .. }) = self.requests.get(slot) else { continue };
            let token = Token(slot as u64);
            if self.shard.abandon(now, label.name(), token)
                && let Some(Request::Acquire { ticket, .. }) = self.take(token)
            {
                self.refuse(ticket, AcquireError::Stopped);
            }
        }
    }
}

fn acquire_error(error: CommandError) -> AcquireError {
    match error {
        CommandError::Ttl(error) => AcquireError::Ttl(error),
        CommandError::TooManyRounds(_) | CommandError::TooManyWaiters(_) => {
            AcquireError::Busy(error.to_string())
        }
    }
}
