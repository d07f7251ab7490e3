//! Semaphores: acquires of one of several permits, each of which is a lease of its own (`gpu#2`).
//!
//! All permits of a semaphore are in one shard. An acquire tries one permit after the other. If all
//! are held and it may wait, it queues for each of them, and withdraws from the others with its
//! first grant. Every queue has the waiters of this node in the same order, so they are served in
//! that order. Exclusion is that of the leases: an error here costs time, or a permit until its ttl
//! ends, but a permit never has two holders.

use std::collections::BTreeMap;
use std::num::NonZeroU8;
use std::time::Duration;

use paxoslease_core::{Acquire, Instant, Label, Permits, Sighting, Token};
use slab::Slab;

use super::Driver;
use crate::request::{Answer, ReplyTo, RequestKind};

/// The acquires of permits that have no answer, or whose requests have none.
#[derive(Default)]
pub(super) struct Semaphores {
    acquires: Slab<PermitAcquire>,
    /// The slots of those whose caller waits for an answer.
    pub(super) by_token: BTreeMap<u64, usize>,
    /// How many queue for each semaphore, by its name.
    waiting: BTreeMap<Box<[u8]>, usize>,
    /// Where the next acquire begins, so that acquires spread over the permits.
    next: u8,
}

/// An acquire of a permit.
struct PermitAcquire {
    /// The token of the caller's request.
    token: Token,
    /// The name of the semaphore, and the holder.
    label: Label,
    permits: Permits,
    ttl: Duration,
    asked_at: Instant,
    wait_until: Instant,
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
    fn permit(&self, number: NonZeroU8) -> Label {
        self.label.permit(number).expect("the longest name was made first")
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
    pub(super) fn acquire_permit(
        &mut self,
        now: Instant,
        token: Token,
        label: Label,
        permits: Permits,
        (ttl, wait): (Duration, Duration),
    ) {
        if let Err(error) = label.permit(permits.count()) {
            return self.reply(now, token, Answer::Name(error));
        }
        let semaphores = &mut self.semaphores;
        semaphores.next = semaphores.next.wrapping_add(1);
        // Behind others that wait, there is nothing to try.
        let is_crowded = semaphores.waiting.contains_key(label.name().as_bytes());
        let slot = semaphores.acquires.insert(PermitAcquire {
            token,
            label,
            permits,
            ttl,
            asked_at: now,
            wait_until: now.after(wait),
            first: semaphores.next % permits.count(),
            tried: 0,
            requested: 0,
            is_waiting: false,
            is_decided: false,
            held: None,
        });
        semaphores.by_token.insert(token.0, slot);
        if is_crowded && !wait.is_zero() {
            self.wait_for_permits(now, slot);
        } else {
            self.try_next_permit(now, slot);
        }
    }

    fn try_next_permit(&mut self, now: Instant, slot: usize) {
        let acquire = &mut self.semaphores.acquires[slot];
        let place = (acquire.first + acquire.tried) % acquire.permits.count();
        acquire.tried += 1;
        self.request_permit(now, slot, NonZeroU8::MIN.saturating_add(place), Duration::ZERO);
    }

    fn wait_for_permits(&mut self, now: Instant, slot: usize) {
        let acquire = &mut self.semaphores.acquires[slot];
        acquire.is_waiting = true;
        let (permits, wait) = (acquire.permits, acquire.wait_until.since(now));
        let name = acquire.label.name().as_bytes().into();
        *self.semaphores.waiting.entry(name).or_default() += 1;
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
                let first = acquire.held.take_if(|known| known.remaining <= by.remaining);
                let held = acquire.held.insert(first.unwrap_or(by));
                if acquire.is_waiting && acquire.requested != 0 {
                    // The other requests end now, too, or have ended with a grant.
                } else if !acquire.is_waiting && acquire.tried < acquire.permits.count().get() {
                    self.try_next_permit(now, slot);
                } else if !acquire.is_waiting && now < acquire.wait_until {
                    self.wait_for_permits(now, slot);
                } else {
                    let held = held.clone();
                    self.permit_decided(now, slot, Answer::Held(held));
                }
            }
            // Without a majority for one permit, there is none for the others.
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
            let name = acquire.label.name().as_bytes();
            let count = semaphores.waiting.get_mut(name).expect("it is counted");
            *count -= 1;
            if *count == 0 {
                semaphores.waiting.remove(name);
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
