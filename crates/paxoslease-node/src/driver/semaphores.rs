//! Semaphores: acquires of one of several permits, each of which is a lease of its own (`gpu#2`).
//!
//! All permits of a semaphore are in one shard. An acquire tries one permit after the other. One
//! that may wait tries only those that look free at this node; if it gets none, it queues for all
//! of them, and withdraws from the others with its first grant. Every queue has the waiters of this
//! node in the same order, so they are served in that order. Exclusion is that of the leases: an
//! error here costs time, or a permit until its ttl ends, but a permit never has two holders.

use std::collections::BTreeMap;
use std::num::NonZeroU8;
use std::time::Duration;

use paxoslease_core::{Acquire, Instant, Label, Permits, Sighting, Token};
use paxoslease_wire::ShardId;
use slab::Slab;

use super::Driver;
use crate::request::{Answer, ReplyTo, RequestKind};

/// The acquires of permits that have no answer, or whose requests have none.
#[derive(Default)]
pub(super) struct Semaphores {
    acquires: Slab<PermitAcquire>,
    /// The slots of those whose caller waits for an answer.
    by_token: BTreeMap<u64, usize>,
    /// How many queue for each semaphore, by its name and number of permits.
    waiting: BTreeMap<(Box<[u8]>, NonZeroU8), usize>,
    /// Where the next acquire begins, so that acquires spread over the permits.
    next: u8,
}

/// An acquire of a permit.
pub(super) struct PermitAcquire {
    /// The token of the caller's request.
    token: Token,
    /// The name of the semaphore, and the holder.
    label: Label,
    permits: Permits,
    ttl: Duration,
    asked_at: Instant,
    wait_until: Instant,
    /// Whether a permit that looks held is not tried.
    is_hasty: bool,
    /// The place of the permit that it tries first, and how many it has tried.
    first: u8,
    tried: u8,
    /// The permits that it has requested without an answer, as bits.
    requested: u64,
    is_waiting: bool,
    is_decided: bool,
    /// The holder whose permit ends first.
    held: Option<Sighting>,
}

impl PermitAcquire {
    pub(super) const fn new(token: Token, label: Label, permits: Permits, ttl: Duration) -> Self {
        Self {
            token,
            label,
            permits,
            ttl,
            asked_at: Instant::ZERO,
            wait_until: Instant::ZERO,
            is_hasty: false,
            first: 0,
            tried: 0,
            requested: 0,
            is_waiting: false,
            is_decided: false,
            held: None,
        }
    }

    /// What other acquires of the same semaphore have in common with it.
    fn semaphore(&self) -> (Box<[u8]>, NonZeroU8) {
        (self.label.name().as_bytes().into(), self.permits.count())
    }

    /// Another client holds a permit. Keeps the holder whose permit ends first.
    fn denied_by(&mut self, by: Sighting) {
        let first = self.held.take_if(|known| known.remaining <= by.remaining);
        self.held = Some(first.unwrap_or(by));
    }

    fn permit(&self, number: NonZeroU8) -> Label {
        self.label.permit(number).expect("the longest name was made first")
    }
}

impl Semaphores {
    pub(super) fn slot_of(&self, token: Token) -> Option<usize> {
        self.by_token.get(&token.0).copied()
    }
}

/// The token of a request for one permit. It is not counted: the acquire is.
fn token_of(slot: usize, number: NonZeroU8) -> Token {
    let id = (slot as u64) << 6 | u64::from(number.get() - 1);
    ReplyTo { origin: ReplyTo::PERMITS, id }.token(RequestKind::Other)
}

const fn bit(number: NonZeroU8) -> u64 {
    1 << (number.get() - 1)
}

impl Driver {
    pub(super) fn acquire_permit(&mut self, now: Instant, acquire: PermitAcquire, wait: Duration) {
        if let Err(error) = acquire.label.permit(acquire.permits.count()) {
            return self.reply(now, acquire.token, Answer::Name(error));
        }
        // The shard checks it with each request. An acquire that finds all permits held makes none.
        if let Err(error) = self.shard.config().cell.ttl(acquire.ttl) {
            return self.reply(now, acquire.token, Answer::Ttl(error));
        }
        let semaphores = &mut self.semaphores;
        semaphores.next = semaphores.next.wrapping_add(1);
        let first = semaphores.next % acquire.permits.count();
        let (token, wait_until) = (acquire.token, now.after(wait));
        let is_retried = ReplyTo::of(token).1 == RequestKind::Try;
        // Behind others that wait, there is nothing to try.
        let is_crowded = semaphores.waiting.contains_key(&acquire.semaphore());
        let tried = if is_crowded { acquire.permits.count().get() - 1 } else { 0 };
        let is_hasty = is_retried || !wait.is_zero();
        let acquire =
            PermitAcquire { asked_at: now, wait_until, is_hasty, first, tried, ..acquire };
        let slot = semaphores.acquires.insert(acquire);
        semaphores.by_token.insert(token.0, slot);
        if is_crowded && !wait.is_zero() {
            self.wait_for_permits(now, slot);
        } else {
            self.try_next_permit(now, slot);
        }
    }

    /// Tries the next permit. After the last one, the acquire waits, or is over.
    fn try_next_permit(&mut self, now: Instant, slot: usize) {
        loop {
            let acquire = &mut self.semaphores.acquires[slot];
            if acquire.tried == acquire.permits.count().get() {
                break;
            }
            let place = (acquire.first + acquire.tried) % acquire.permits.count();
            let number = NonZeroU8::MIN.saturating_add(place);
            acquire.tried += 1;
            let seen = self.shard.lease(now, acquire.permit(number).name());
            match seen.filter(|_| acquire.is_hasty) {
                Some(lease) => acquire.denied_by(lease.seen),
                None => {
                    self.request_permit(now, slot, number, Duration::ZERO);
                    return;
                }
            }
        }
        let acquire = &self.semaphores.acquires[slot];
        match &acquire.held {
            // Its wait may be over by now. All the same only a round denies it, not a permit that
            // looked held here.
            _ if acquire.asked_at < acquire.wait_until => self.wait_for_permits(now, slot),
            Some(held) => {
                let held = Answer::Held(held.clone());
                self.permit_decided(now, slot, held);
            }
            None => self.permit_decided(now, slot, Answer::NoQuorum),
        }
    }

    fn wait_for_permits(&mut self, now: Instant, slot: usize) {
        let acquire = &mut self.semaphores.acquires[slot];
        acquire.is_waiting = true;
        // What this node's own acceptor stores may have been released: only later rounds count.
        acquire.held = None;
        let (permits, wait) = (acquire.permits, acquire.wait_until.since(now));
        let semaphore = acquire.semaphore();
        *self.semaphores.waiting.entry(semaphore).or_default() += 1;
        let mut numbers = (1..=permits.count().get()).filter_map(NonZeroU8::new);
        while let Some(number) = numbers.next()
            && self.request_permit(now, slot, number, wait)
        {}
    }

    /// Requests one permit. If the shard refuses that, the acquire is over, and the answer `false`.
    fn request_permit(
        &mut self,
        now: Instant,
        slot: usize,
        number: NonZeroU8,
        wait: Duration,
    ) -> bool {
        let acquire = &mut self.semaphores.acquires[slot];
        let (label, ttl) = (acquire.permit(number), acquire.ttl);
        let shard = self.peers.identity.shard;
        assert_eq!(ShardId::of(label.name(), shard.count()), shard, "a name has one shard");
        let (token, name, holder) = (token_of(slot, number), label.name(), label.holder());
        let asked = self.shard.acquire(now, Acquire { token, name, holder, ttl, wait });
        match asked {
            Ok(()) => acquire.requested |= bit(number),
            Err(error) => self.permit_decided(now, slot, error.into()),
        }
        asked.is_ok()
    }

    /// The core answered the request for one permit.
    pub(super) fn permit_answered(&mut self, now: Instant, id: u64, answer: Answer) {
        let (slot, place) = ((id >> 6) as usize, (id & 63) as u8);
        let number = NonZeroU8::MIN.saturating_add(place);
        let acquire = &mut self.semaphores.acquires[slot];
        acquire.requested &= !bit(number);
        if acquire.is_decided {
            let label = acquire.permit(number);
            if acquire.requested == 0 {
                self.semaphores.acquires.remove(slot);
            }
            if let Answer::Granted { tenure, .. } = answer {
                self.give_back(now, label.name(), tenure);
            }
            return;
        }
        match answer {
            Answer::Granted { tenure, ttl, started_at, .. } => {
                let (waited, permit) = (started_at.since(acquire.asked_at), Some(number));
                let granted = Answer::Granted { tenure, ttl, waited, started_at, permit };
                self.permit_decided(now, slot, granted);
            }
            Answer::Held(by) => {
                acquire.denied_by(by);
                let is_over = acquire.is_waiting && acquire.requested == 0;
                if let Some(held) = acquire.held.clone().filter(|_| is_over) {
                    self.permit_decided(now, slot, Answer::Held(held));
                } else if !acquire.is_waiting {
                    self.try_next_permit(now, slot);
                }
            }
            // A majority may come back while it waits.
            Answer::NoQuorum if !acquire.is_waiting && now < acquire.wait_until => {
                self.wait_for_permits(now, slot);
            }
            // A shard without a majority for one permit has no majority for the others.
            answer => self.permit_decided(now, slot, answer),
        }
    }

    /// Answers the caller, and withdraws the requests for other permits. A permit that is granted
    /// all the same is released when its answer comes.
    pub(super) fn permit_decided(&mut self, now: Instant, slot: usize, answer: Answer) {
        let semaphores = &mut self.semaphores;
        let acquire = &mut semaphores.acquires[slot];
        acquire.is_decided = true;
        semaphores.by_token.remove(&acquire.token.0);
        if acquire.is_waiting {
            let semaphore = acquire.semaphore();
            let count = semaphores.waiting.get_mut(&semaphore).expect("it is counted");
            *count -= 1;
            if *count == 0 {
                semaphores.waiting.remove(&semaphore);
            }
        }
        for number in (1..=acquire.permits.count().get()).filter_map(NonZeroU8::new) {
            if acquire.requested & bit(number) != 0
                && self.shard.abandon(now, acquire.permit(number).name(), token_of(slot, number))
            {
                acquire.requested &= !bit(number);
            }
        }
        let token = acquire.token;
        if acquire.requested == 0 {
            semaphores.acquires.remove(slot);
        }
        self.reply(now, token, answer);
    }
}
