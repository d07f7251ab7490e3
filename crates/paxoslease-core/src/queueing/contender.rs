//! The requests for each name at this node: first come, first served, with one contender per name
//! (protocol section 7).
//!
//! Keeps the queues and their states. The proposer decides when a round begins.

use alloc::vec::Vec;
use core::hash::{BuildHasher, Hasher};

use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashTable};

use crate::outbox::{Sighting, Token};
use crate::queueing::queue::{Queue, Waiter};
use crate::{Ballot, Instant, Name};

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum State {
    /// A round is in flight for the first waiter.
    Racing(Ballot),
    /// The vote was split or no acceptor answered: a round begins at this time.
    BackingOff(Instant),
    /// Another client holds the name, or another node has its turn first (`by` is `None`): a round
    /// begins at `until`, or on a hint.
    Waiting { until: Instant, by: Option<Sighting> },
}

/// A name that requests wait for; there is always a first one.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Contender {
    pub(crate) first: Waiter,
    pub(crate) rest: Queue,
    /// No wait in `rest` ends before this, so a grant need not search a long queue.
    pub(crate) rest_wait_ends_at: Instant,
    pub(crate) state: State,
    /// Rounds in a row that were lost without a holder: to a split vote or to silence.
    pub(crate) splits: u32,
    /// Other nodes contend for the name, or are likely to: the next round prepares (P2).
    pub(crate) contested: bool,
    /// The name was released during the round: the tenure that acceptors report may be over.
    pub(crate) freed: bool,
    /// When the last round began.
    pub(crate) tried_at: Instant,
    /// The known holder held the name at this instant or later: when the round that found it began,
    /// or when it was granted here. No request that was made later is denied because of it.
    pub(crate) known_at: Instant,
}

impl Contender {
    pub(crate) fn new(first: Waiter, state: State) -> Self {
        let (rest, rest_wait_ends_at) = (Queue::default(), Instant::MAX);
        let (splits, contested, freed) = (0, false, false);
        let (tried_at, known_at) = (Instant::ZERO, Instant::ZERO);
        Self { first, rest, rest_wait_ends_at, state, splits, contested, freed, tried_at, known_at }
    }

    /// Whether the wait of any request has ended.
    pub(crate) fn has_ended_wait(&self, now: Instant) -> bool {
        now >= self.first.wait_ends_at || now >= self.rest_wait_ends_at
    }

    /// All waiters, in the order of the queue.
    pub(crate) fn waiters(&self) -> impl Iterator<Item = &Waiter> {
        core::iter::once(&self.first).chain(self.rest.iter())
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct ContenderId(u32);

/// What a wake-up is for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Wake {
    Contender(ContenderId),
    Waiter(ContenderId, Token),
}

#[derive(Clone, Debug)]
pub(crate) struct Contenders {
    slots: Vec<Option<Contender>>,
    vacant: Vec<u32>,
    by_name: HashTable<u32>,
    hasher: FixedState,
    /// The places of all waiters except the first of each name.
    places: HashMap<Token, u64, FixedState>,
    waiter_count: usize,
}

impl Contenders {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            slots: Vec::new(),
            vacant: Vec::new(),
            by_name: HashTable::new(),
            hasher: FixedState::with_seed(seed),
            places: HashMap::with_hasher(FixedState::with_seed(seed)),
            waiter_count: 0,
        }
    }

    pub(crate) fn find(&self, name: Name<'_>) -> Option<ContenderId> {
        let hash = self.hash(name);
        let same = |slot: &u32| name_in(&self.slots, *slot) == Some(name);
        self.by_name.find(hash, same).map(|slot| ContenderId(*slot))
    }

    /// For a name that has no contender yet.
    pub(crate) fn insert(&mut self, contender: Contender) -> ContenderId {
        let hash = self.hash(contender.first.label.name());
        self.waiter_count += 1;
        let slot = match self.vacant.pop() {
            Some(slot) => {
                self.slots[slot as usize] = Some(contender);
                slot
            }
            None => {
                self.slots.push(Some(contender));
                u32::try_from(self.slots.len() - 1).expect("fewer contenders than waiters_max")
            }
        };
        let (slots, hasher) = (&self.slots, &self.hasher);
        self.by_name.insert_unique(hash, slot, |slot| {
            hash_of(hasher, name_in(slots, *slot).expect("only occupied slots are indexed"))
        });
        ContenderId(slot)
    }

    pub(crate) fn enqueue(&mut self, id: ContenderId, waiter: Waiter) {
        let Some(contender) = slot_mut(&mut self.slots, id) else { return };
        let until = &mut contender.rest_wait_ends_at;
        *until = waiter.wait_ends_at.min(*until);
        let token = waiter.token;
        self.places.insert(token, contender.rest.push(waiter));
        self.waiter_count += 1;
    }

    /// A waiter of a contender, the first or a queued one.
    pub(crate) fn waiter(&self, id: ContenderId, token: Token) -> Option<&Waiter> {
        let contender = self.get(id)?;
        if contender.first.token == token {
            return Some(&contender.first);
        }
        let queued = contender.rest.get(*self.places.get(&token)?);
        queued.filter(|waiter| waiter.token == token)
    }

    pub(crate) fn get(&self, id: ContenderId) -> Option<&Contender> {
        self.slots.get(id.0 as usize)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, id: ContenderId) -> Option<&mut Contender> {
        slot_mut(&mut self.slots, id)
    }

    /// Takes the first waiter. Returns also whether the contender remains, with the next one first.
    pub(crate) fn pop_first(&mut self, id: ContenderId) -> (Waiter, bool) {
        let contender = self.get_mut(id).expect("a contender lives as long as it has a waiter");
        let (first, remains) = match contender.rest.pop() {
            Some(next) => {
                let token = next.token;
                let first = core::mem::replace(&mut contender.first, next);
                self.places.remove(&token);
                (first, true)
            }
            None => (self.remove(id), false),
        };
        self.waiter_count -= 1;
        (first, remains)
    }

    /// Takes a waiter that is not the first.
    pub(crate) fn remove_queued(&mut self, id: ContenderId, token: Token) -> Option<Waiter> {
        let place = *self.places.get(&token)?;
        let contender = slot_mut(&mut self.slots, id)?;
        contender.rest.get(place).filter(|waiter| waiter.token == token)?;
        let waiter = contender.rest.remove(place)?;
        self.places.remove(&token);
        self.waiter_count -= 1;
        self.close_gaps(id);
        Some(waiter)
    }

    fn close_gaps(&mut self, id: ContenderId) {
        if let Some(contender) = slot_mut(&mut self.slots, id)
            && contender.rest.is_sparse()
        {
            for (place, waiter) in contender.rest.close_gaps() {
                self.places.insert(waiter.token, place);
            }
        }
    }

    /// Takes all waiters whose wait has ended and which the known holder denies.
    pub(crate) fn take_deniable(&mut self, id: ContenderId, now: Instant) -> Vec<Waiter> {
        let Some(contender) = slot_mut(&mut self.slots, id) else { return Vec::new() };
        let known_at = contender.known_at;
        let deniable = |waiter: &Waiter| now >= waiter.wait_ends_at && waiter.asked_at <= known_at;
        let first_gone = deniable(&contender.first);
        let mut gone = Vec::new();
        if now >= contender.rest_wait_ends_at {
            gone = contender.rest.take_if(deniable);
            let ends = contender.rest.iter().map(|waiter| waiter.wait_ends_at);
            contender.rest_wait_ends_at = ends.min().unwrap_or(Instant::MAX);
        }
        for waiter in &gone {
            self.places.remove(&waiter.token);
        }
        self.waiter_count -= gone.len();
        self.close_gaps(id);
        let mut taken = Vec::new();
        if first_gone {
            taken.push(self.pop_first(id).0);
        }
        taken.extend(gone);
        taken
    }

    /// Removes a contender whose only waiter is the first, and returns that one.
    fn remove(&mut self, id: ContenderId) -> Waiter {
        let name = name_in(&self.slots, id.0).expect("removed once");
        let hash = self.hash(name);
        if let Ok(found) = self.by_name.find_entry(hash, |slot| *slot == id.0) {
            found.remove();
        }
        self.vacant.push(id.0);
        let Contender { first, .. } = self.slots[id.0 as usize].take().expect("removed once");
        first
    }

    fn hash(&self, name: Name<'_>) -> u64 {
        hash_of(&self.hasher, name)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (ContenderId, &Contender)> {
        let numbered = (0..).map(ContenderId).zip(&self.slots);
        numbered.filter_map(|(id, slot)| Some((id, slot.as_ref()?)))
    }

    /// The most contenders there have been at one time.
    pub(crate) fn slot_count(&self) -> usize {
        self.slots.len()
    }

    /// All requests that have no answer yet.
    pub(crate) const fn waiter_count(&self) -> usize {
        self.waiter_count
    }
}

/// Without the length, which a hasher of slices would add.
fn hash_of(hasher: &FixedState, name: Name<'_>) -> u64 {
    let mut hasher = hasher.build_hasher();
    hasher.write(name.as_bytes());
    hasher.finish()
}

fn slot_mut(slots: &mut [Option<Contender>], id: ContenderId) -> Option<&mut Contender> {
    slots.get_mut(id.0 as usize)?.as_mut()
}

fn name_in(slots: &[Option<Contender>], slot: u32) -> Option<Name<'_>> {
    slots.get(slot as usize)?.as_ref().map(|contender| contender.first.label.name())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Holder, Label, Ttl};
    use alloc::format;
    use alloc::string::String;

    fn waiter(token: u64, name: &str, wait_ends_at: u64) -> Waiter {
        let until = Instant::from_nanos(wait_ends_at);
        Waiter {
            token: Token(token),
            label: Label::new(Name::new(name).expect("a name"), Holder::NONE),
            ttl: Ttl::MIN,
            lasts: None,
            asked_at: Instant::ZERO,
            wait_ends_at: until,
            deadline: until,
        }
    }
    fn contender(waiter: Waiter) -> Contender {
        Contender::new(waiter, State::BackingOff(Instant::ZERO))
    }

    #[test]
    fn slots_are_reused_and_every_name_finds_its_own() {
        let mut contenders = Contenders::new(7);
        let names: Vec<String> = (0..100).map(|number| format!("name/{number}")).collect();
        for round in 0..3 {
            for (token, name) in (0..).zip(&names) {
                contenders.insert(contender(waiter(token, name, round)));
            }
            for (token, name) in (0..).zip(&names) {
                let id = contenders.find(Name::new(name).expect("a name")).expect("inserted");
                assert_eq!(contenders.pop_first(id).0.token, Token(token));
            }
        }
        assert_eq!(contenders.slots.len(), 100);
        assert_eq!(contenders.waiter_count(), 0);
    }

    #[test]
    fn a_waiter_keeps_its_place_however_many_others_leave() {
        let mut contenders = Contenders::new(1);
        let id = contenders.insert(contender(waiter(0, "a", 10)));
        for token in 1..1000 {
            contenders.enqueue(id, waiter(token, "a", 10));
        }
        let stays = |token: u64| token.is_multiple_of(10);
        for token in (1..1000).filter(|token| !stays(*token)) {
            assert!(contenders.remove_queued(id, Token(token)).is_some());
            assert!(contenders.waiter(id, Token(token)).is_none());
        }
        // A token may be used again, at the end of the queue.
        contenders.enqueue(id, waiter(5, "a", 10));
        assert_eq!(contenders.waiter_count(), 101);
        let expected = (0..1000).filter(|token| stays(*token)).chain([5]);
        for token in expected {
            assert!(contenders.waiter(id, Token(token)).is_some());
            assert_eq!(contenders.pop_first(id).0.token.0, token);
        }
        assert!(contenders.places.is_empty());
    }
}
