//! The requests that wait for one name behind the first, in the order in which they came.
//!
//! A request that leaves from the middle leaves a gap, so leaving takes the same time in a queue
//! of any length.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::outbox::Token;
use crate::{Instant, Label, Lasts, Ttl};

/// Gaps that are not worth closing.
const GAPS_SPARE: usize = 32;

/// A client's request for a lease.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Waiter {
    pub(crate) token: Token,
    pub(crate) label: Label,
    pub(crate) ttl: Ttl,
    /// Set for a durable lease (K9): how long it lasts.
    pub(crate) lasts: Option<Lasts>,
    pub(crate) asked_at: Instant,
    /// From then on, a report of a holder denies the request.
    pub(crate) wait_ends_at: Instant,
    /// By then the request is answered in any case.
    pub(crate) deadline: Instant,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Queue {
    slots: VecDeque<Option<Waiter>>,
    /// The place of the first slot. Places count all requests since the queue was last empty.
    base: u64,
    gaps: usize,
}

impl Queue {
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.gaps
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Waiter> {
        self.slots.iter().flatten()
    }

    /// Returns the place of the new waiter.
    pub(crate) fn push(&mut self, waiter: Waiter) -> u64 {
        self.slots.push_back(Some(waiter));
        self.base + self.slots.len() as u64 - 1
    }

    pub(crate) fn pop(&mut self) -> Option<Waiter> {
        loop {
            let Some(slot) = self.slots.pop_front() else {
                self.base = 0;
                return None;
            };
            self.base += 1;
            match slot {
                Some(waiter) => return Some(waiter),
                None => self.gaps -= 1,
            }
        }
    }

    pub(crate) fn get(&self, place: u64) -> Option<&Waiter> {
        self.slots.get(self.slot(place)?)?.as_ref()
    }

    pub(crate) fn remove(&mut self, place: u64) -> Option<Waiter> {
        let slot = self.slot(place)?;
        let waiter = self.slots.get_mut(slot)?.take()?;
        self.gaps += 1;
        Some(waiter)
    }

    fn slot(&self, place: u64) -> Option<usize> {
        usize::try_from(place.checked_sub(self.base)?).ok()
    }

    /// Whether there are enough gaps for [`Self::close_gaps`] to pay.
    pub(crate) fn is_sparse(&self) -> bool {
        self.gaps > GAPS_SPARE.max(self.slots.len() / 2)
    }

    /// Closes all gaps. Returns the waiters with their new places.
    pub(crate) fn close_gaps(&mut self) -> impl Iterator<Item = (u64, &Waiter)> {
        self.slots.retain(Option::is_some);
        self.gaps = 0;
        (self.base..).zip(self.slots.iter().flatten())
    }

    /// Takes all waiters that meet a condition.
    pub(crate) fn take_if(&mut self, is_taken: impl Fn(&Waiter) -> bool) -> Vec<Waiter> {
        let mut taken = Vec::new();
        for slot in &mut self.slots {
            if slot.as_ref().is_some_and(&is_taken) {
                taken.extend(slot.take());
                self.gaps += 1;
            }
        }
        taken
    }
}
