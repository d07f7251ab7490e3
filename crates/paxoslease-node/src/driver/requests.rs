//! Requests of all callers on their way into the core, and answers on their way out.
//!
//! A request and its answer are counted here and nowhere else. The answers to callers of this
//! process go to their tickets (`callers`); all others go through [`Driver::take_answers`].

use std::time::Duration;

use paxoslease_core::{
    Acquire, Durability, Event, Instant, Label, Name, Renew, StoreRefusal, Tenure, Token,
};
use paxoslease_holder::transport::Span;
use paxoslease_holder::{Change, Status};
use paxoslease_wire::ShardId;

use super::Driver;
use super::counters::Outcome;
use super::semaphores::PermitAcquire;
use crate::request::{Answer, Hint, NotKept, ReplyTo, Request, RequestKind};

impl Driver {
    pub(crate) fn shard_index(&self) -> u16 {
        self.peers.identity.shard.index()
    }

    pub(crate) const fn shard_id(&self) -> ShardId {
        self.peers.identity.shard
    }

    pub(crate) fn shard_count(&self) -> u16 {
        self.peers.identity.shard.count()
    }

    /// The status of the whole node, with the latest of this shard.
    pub(crate) fn node_status(&self, now: Instant) -> Status {
        self.board.status(self.shard_index(), self.status(now))
    }

    /// Passes a request to the core. A front-end gets the answer later, never within this call.
    pub(crate) fn request(&mut self, now: Instant, from: ReplyTo, request: Request<'_>) {
        let token = from.token(request.kind());
        self.messages_since_sweep += 1;
        if self.is_leaving() && !request.is_ending() {
            return self.reply(now, token, Answer::Stopping);
        }
        let refused = match request {
            Request::Acquire { lease, ttl, wait, permits: Some(permits), .. } => {
                let label = Label::new(lease.name(), lease.holder());
                let acquire = PermitAcquire::new(token, label, permits, ttl);
                return self.acquire_permit(now, acquire, wait);
            }
            Request::Acquire { lease, wait, permits: None, lasts: Some(lasts), .. } => {
                let (name, holder, ttl) = (lease.name(), lease.holder(), Duration::ZERO);
                let acquire = Acquire { token, name, holder, ttl, wait };
                self.shard.acquire_durable(now, acquire, lasts).err()
            }
            Request::Acquire { lease, ttl, wait, permits: None, .. } => {
                let (name, holder) = (lease.name(), lease.holder());
                self.shard.acquire(now, Acquire { token, name, holder, ttl, wait }).err()
            }
            Request::Abandon { lease } => {
                return self.withdraw(now, from, lease.name(), Answer::Abandoned);
            }
            Request::Renew { lease, fence, ttl } => match Tenure::from_fence(fence) {
                None => return self.reply(now, token, Answer::NotHeld),
                Some(tenure) => {
                    let (name, holder) = (lease.name(), lease.holder());
                    self.shard.renew(now, Renew { token, name, holder, tenure, ttl }).err()
                }
            },
            Request::Keep { lease, fence, lasts } => match Tenure::from_fence(fence) {
                None => return self.reply(now, token, Answer::NotHeld),
                Some(tenure) => {
                    let label = Label::new(lease.name(), lease.holder());
                    self.shard.keep(now, token, label, tenure, lasts).err()
                }
            },
            Request::Release { lease, fence, is_durable } => match Tenure::from_fence(fence) {
                None => {
                    let never = Answer::Released { held: Some(false), confirmed: true };
                    return self.reply(now, token, never);
                }
                Some(tenure) => {
                    self.counters.released();
                    let patience = self.shard.config().request_timeout;
                    let name = lease.name();
                    if is_durable {
                        self.shard.release_durable(now, token, name, tenure, patience).err()
                    } else {
                        self.shard.release(now, token, name, tenure, patience).err()
                    }
                }
            },
            Request::Inspect { lease } => self.shard.inspect(now, token, lease.name()).err(),
            Request::Peek { lease } => {
                let seen = self.shard.lease(now, lease.name());
                return self.reply(now, token, Answer::Inspected(seen.map(Box::new)));
            }
            Request::Note { lease } => return self.shard.note(lease.name(), lease.holder()),
            Request::Members(request) => return self.change_members(now, token, *request),
            Request::List { cursor, prefix, filter, max } => {
                if let Err(answer) = self.lists.add(from, cursor.slot, prefix, filter, max) {
                    self.reply(now, token, answer);
                }
                None
            }
        };
        if let Some(error) = refused {
            self.reply(now, token, error.into());
        }
    }

    /// P8: withdraws an acquire, unless its answer is on its way already.
    pub(super) fn withdraw(&mut self, now: Instant, from: ReplyTo, name: Name<'_>, answer: Answer) {
        for kind in [RequestKind::Acquire, RequestKind::Try] {
            let token = from.token(kind);
            if let Some(slot) = self.semaphores.slot_of(token) {
                return self.permit_decided(now, slot, answer);
            }
            if self.shard.abandon(now, name, token) {
                return self.reply(now, token, answer);
            }
        }
    }

    /// Works off the events of the core: answers requests, collects records and hints.
    pub(crate) fn act(&mut self, now: Instant) {
        while let Some(event) = self.shard.poll_event() {
            match event {
                Event::Granted { token, tenure, ttl, started_at, waited } => {
                    self.counters.round_took(now.since(started_at));
                    let permit = None;
                    let granted = Answer::Granted { tenure, ttl, waited, started_at, permit };
                    self.reply(now, token, granted);
                }
                Event::Denied { token, by } => self.reply(now, token, Answer::Held(by)),
                Event::NoQuorum { token } => self.reply(now, token, Answer::NoQuorum),
                Event::Renewed { token, ttl, started_at, .. } => {
                    self.counters.round_took(now.since(started_at));
                    self.reply(now, token, Answer::Renewed { ttl, started_at });
                }
                Event::NotHeld { token, .. } => self.reply(now, token, Answer::NotHeld),
                Event::Released { token, held, confirmed } => {
                    self.reply(now, token, Answer::Released { held, confirmed });
                }
                Event::Inspected { token, accepted } => {
                    self.reply(now, token, Answer::Inspected(accepted));
                }
                Event::Kept { token, fence, lasts, started_at } => {
                    self.counters.round_took(now.since(started_at));
                    self.reply(now, token, Answer::Kept { fence, lasts, started_at });
                }
                Event::NotKept { token, why } => {
                    self.reply(now, token, Answer::NotKept(self.not_kept(why)));
                }
                Event::Durable { sequence, write } => {
                    self.durable_writes.push((sequence, *write));
                }
                Event::NoteHint(label) => self.hint_to_fronts(|| Hint::Note(label)),
                Event::Persist(record) => self.records.push(record),
                Event::HeldHint(seen) => {
                    self.hint_to_fronts(|| Hint::Held(seen.clone()));
                    self.announce(seen.label.name(), || Change::Held(seen.clone().into()));
                }
                Event::FreedHint { label, tenure } => {
                    let fence = tenure.map(Tenure::fence);
                    self.hint_to_fronts(|| Hint::Freed { label: label.clone(), fence });
                    let name = || label.name().to_string();
                    self.announce(label.name(), || Change::Freed { name: name() });
                }
                Event::ExpiredHint { label, tenure } => {
                    let fence = tenure.fence();
                    self.hint_to_fronts(|| Hint::Expired { label: label.clone(), fence });
                    let name = || label.name().to_string();
                    self.announce(label.name(), || Change::Expired { name: name(), fence });
                }
            }
        }
        self.hand_over(now);
    }

    /// K14: why the members do not take a durable lease. They agree on the setting.
    fn not_kept(&self, why: StoreRefusal) -> NotKept {
        let max_lease = self.shard.config().cell.max_lease().as_duration();
        match why {
            StoreRefusal::NoRoom => NotKept::NoRoom,
            StoreRefusal::NoDisk if self.peers.identity.durable_leases == Durability::Refused => {
                NotKept::SwitchedOff { max_lease }
            }
            StoreRefusal::NoDisk => NotKept::NoDisk { max_lease },
        }
    }

    /// Gives an answer to its caller, and counts it.
    pub(super) fn reply(&mut self, now: Instant, token: Token, answer: Answer) {
        let (to, kind) = ReplyTo::of(token);
        if to.origin == ReplyTo::PERMITS {
            return self.permit_answered(now, to.id, answer);
        }
        let outcome = outcome_of(&answer);
        let is_heard = if to.origin == ReplyTo::EMBEDDED {
            self.answer_caller(now, to.id, answer)
        } else {
            // A full cell does not answer either, and that is the more helpful error.
            let is_acquire = matches!(kind, RequestKind::Acquire | RequestKind::Try);
            let is_full = is_acquire && answer == Answer::NoQuorum && self.shard.is_full();
            self.answers.push((to, if is_full { Answer::Full } else { answer }));
            true
        };
        match (kind, outcome) {
            (RequestKind::Acquire, Some(_)) if !is_heard => {
                self.counters.acquired(Outcome::Abandoned);
            }
            (RequestKind::Acquire, Some(outcome))
            | (
                RequestKind::Try,
                Some(outcome @ (Outcome::Granted | Outcome::Refused | Outcome::Abandoned)),
            ) => self.counters.acquired(outcome),
            (RequestKind::Renew, Some(outcome)) => self.counters.renewed(outcome),
            _ => {}
        }
    }

    /// Answers a request that could not be passed to its shard.
    pub(crate) fn refuse(&mut self, to: ReplyTo, answer: Answer) {
        self.answers.push((to, answer));
    }

    /// Loads the core's entries of these names into the caches, since requests for them follow.
    pub(crate) fn prefetch<'a>(&self, names: impl IntoIterator<Item = &'a [u8]>) {
        self.shard.prefetch(names);
    }

    /// Sets whether the front-end of a shard, maybe another, wants hints.
    pub(crate) fn hint(&mut self, origin: u16, on: bool) {
        self.hinted.retain(|known| *known != origin);
        if on {
            self.hinted.push(origin);
        }
        self.set_watched();
    }

    /// The shards whose front-ends want hints, and the hints since the last call.
    pub(crate) fn take_hints(&mut self) -> (Vec<u16>, Vec<Hint>) {
        if self.hints.is_empty() {
            return (Vec::new(), Vec::new());
        }
        (self.hinted.clone(), std::mem::take(&mut self.hints))
    }

    pub(crate) const fn has_answers(&self) -> bool {
        !self.answers.is_empty()
    }

    /// The answers since the last call. `into` is empty and lends its memory.
    pub(crate) fn take_answers(&mut self, into: &mut Vec<(ReplyTo, Answer)>) {
        std::mem::swap(&mut self.answers, into);
    }

    /// P8: releases a lease whose caller has left.
    pub(crate) fn give_back(&mut self, now: Instant, name: Name<'_>, tenure: Tenure) {
        let longest = self.shard.config().cell.max_lease();
        let span = Span { ttl: longest, lasts: None };
        self.release_in_background(now, name, tenure, span);
    }

    fn hint_to_fronts(&mut self, hint: impl FnOnce() -> Hint) {
        if !self.hinted.is_empty() {
            self.hints.push(hint());
        }
    }
}

/// The outcome that an answer to an acquire or a renewal counts as.
const fn outcome_of(answer: &Answer) -> Option<Outcome> {
    match answer {
        Answer::Granted { .. } | Answer::Renewed { .. } | Answer::Kept { .. } => {
            Some(Outcome::Granted)
        }
        Answer::Held(_) => Some(Outcome::Held),
        Answer::NotHeld => Some(Outcome::NotHeld),
        Answer::NoQuorum | Answer::Full => Some(Outcome::NoQuorum),
        Answer::Abandoned => Some(Outcome::Abandoned),
        Answer::Ttl(_) | Answer::Name(_) | Answer::Busy(_) | Answer::NotKept(_) => {
            Some(Outcome::Refused)
        }
        Answer::Released { .. }
        | Answer::Inspected(_)
        | Answer::Listed { .. }
        | Answer::Members(_)
        | Answer::TooManyLists(_)
        | Answer::Stopping => None,
    }
}
