//! Who wants a name at this node: first come, first served, one contender per name at a time
//! (protocol section 7).
//!
//! Keeps the queues and their states; deciding when to start a round is the proposer's.

use alloc::vec::Vec;
use core::hash::BuildHasher;

use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashTable};

use crate::outbox::{Sighting, Token};
use crate::queueing::queue::Queue;
use crate::{Ballot, Instant, Label, Name, Ttl};

/// One client's wish.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Want {
    pub(crate) token: Token,
    pub(crate) label: Label,
    pub(crate) ttl: Ttl,
    pub(crate) asked_at: Instant,
    /// From then on a report of a holder is the answer.
    pub(crate) patient_until: Instant,
    /// From then on there is an answer in any case.
    pub(crate) deadline: Instant,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum State {
    /// A round is in flight for the first in the queue.
    Racing(Ballot),
    /// The vote was split or nobody answered: try again then.
    BackingOff(Instant),
    /// Another client holds it, as far as is known, or another node has its turn first (`None`):
    /// try again then, or on a hint.
    Waiting { until: Instant, by: Option<Sighting> },
}

/// A name somebody wants. Never without a want.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Contender {
    pub(crate) first: Want,
    pub(crate) rest: Queue,
    /// None of the rest is out of patience before that, so that nobody looks through a long queue
    /// at every grant.
    pub(crate) rest_patient_until: Instant,
    pub(crate) state: State,
    /// Rounds lost in a row to split votes and silence.
    pub(crate) splits: u32,
    /// Others contend for it too, or are likely to: prepare first (P2).
    pub(crate) contested: bool,
    /// It was released while the round was under way: what answers say of a holder may be over.
    pub(crate) freed: bool,
    /// When the last round began.
    pub(crate) tried_at: Instant,
    /// What is known of the holder is true of that instant or later: the beginning of the round
    /// that found it, or its grant here. It denies no request that was made later.
    pub(crate) known_at: Instant,
}

impl Contender {
    pub(crate) fn new(first: Want, state: State) -> Self {
        let (rest, rest_patient_until) = (Queue::default(), Instant::MAX);
        let (splits, contested, freed) = (0, false, false);
        let (tried_at, known_at) = (Instant::ZERO, Instant::ZERO);
        Self {
            first,
            rest,
            rest_patient_until,
            state,
            splits,
            contested,
            freed,
            tried_at,
            known_at,
        }
    }

    /// Whether the patience of any request is over.
    pub(crate) fn is_impatient(&self, now: Instant) -> bool {
        now >= self.first.patient_until || now >= self.rest_patient_until
    }

    /// All who want it, the first first.
    pub(crate) fn wants(&self) -> impl Iterator<Item = &Want> {
        core::iter::once(&self.first).chain(self.rest.iter())
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct ContenderId(u32);

#[derive(Clone, Debug)]
pub(crate) struct Contenders {
    slots: Vec<Option<Contender>>,
    vacant: Vec<u32>,
    by_name: HashTable<u32>,
    hasher: FixedState,
    /// The places of those who queue, by their tokens.
    places: HashMap<Token, u64, FixedState>,
    wants: usize,
}

impl Contenders {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            slots: Vec::new(),
            vacant: Vec::new(),
            by_name: HashTable::new(),
            hasher: FixedState::with_seed(seed),
            places: HashMap::with_hasher(FixedState::with_seed(seed)),
            wants: 0,
        }
    }

    pub(crate) fn find(&self, name: Name<'_>) -> Option<ContenderId> {
        let hash = self.hasher.hash_one(name.as_bytes());
        let same = |slot: &u32| name_in(&self.slots, *slot) == Some(name);
        self.by_name.find(hash, same).map(|slot| ContenderId(*slot))
    }

    /// For a name that has no contender yet.
    pub(crate) fn insert(&mut self, contender: Contender) -> ContenderId {
        let hash = self.hasher.hash_one(contender.first.label.name().as_bytes());
        self.wants += 1;
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
            hasher.hash_one(
                name_in(slots, *slot).expect("only occupied slots are indexed").as_bytes(),
            )
        });
        ContenderId(slot)
    }

    pub(crate) fn enqueue(&mut self, id: ContenderId, want: Want) {
        let Some(contender) = slot_mut(&mut self.slots, id) else { return };
        let until = &mut contender.rest_patient_until;
        *until = want.patient_until.min(*until);
        let token = want.token;
        self.places.insert(token, contender.rest.push(want));
        self.wants += 1;
    }

    /// A want of a contender, the first or one that queues.
    pub(crate) fn want(&self, id: ContenderId, token: Token) -> Option<&Want> {
        let contender = self.get(id)?;
        if contender.first.token == token {
            return Some(&contender.first);
        }
        let queued = contender.rest.get(*self.places.get(&token)?);
        queued.filter(|want| want.token == token)
    }

    pub(crate) fn get(&self, id: ContenderId) -> Option<&Contender> {
        self.slots.get(id.0 as usize)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, id: ContenderId) -> Option<&mut Contender> {
        slot_mut(&mut self.slots, id)
    }

    /// Takes the first want. Whether the contender remains, led by the next.
    pub(crate) fn pop_first(&mut self, id: ContenderId) -> (Want, bool) {
        let contender = self.get_mut(id).expect("a contender lives while it has wants");
        let (first, remains) = match contender.rest.pop() {
            Some(next) => {
                let token = next.token;
                let first = core::mem::replace(&mut contender.first, next);
                self.places.remove(&token);
                (first, true)
            }
            None => (self.remove(id).first, false),
        };
        self.wants -= 1;
        (first, remains)
    }

    /// Takes a want that is not the first.
    pub(crate) fn remove_queued(&mut self, id: ContenderId, token: Token) -> Option<Want> {
        let place = *self.places.get(&token)?;
        let contender = slot_mut(&mut self.slots, id)?;
        contender.rest.get(place).filter(|want| want.token == token)?;
        let want = contender.rest.remove(place)?;
        self.places.remove(&token);
        self.wants -= 1;
        self.close_gaps(id);
        Some(want)
    }

    fn close_gaps(&mut self, id: ContenderId) {
        if let Some(contender) = slot_mut(&mut self.slots, id)
            && contender.rest.is_sparse()
        {
            for (place, want) in contender.rest.close_gaps() {
                self.places.insert(want.token, place);
            }
        }
    }

    /// Takes all whose patience is over and which what is known of the holder may deny.
    pub(crate) fn take_impatient(&mut self, id: ContenderId, now: Instant) -> Vec<Want> {
        let Some(contender) = slot_mut(&mut self.slots, id) else { return Vec::new() };
        let known_at = contender.known_at;
        let impatient = |want: &Want| now >= want.patient_until && want.asked_at <= known_at;
        let first_gone = impatient(&contender.first);
        let mut gone = Vec::new();
        if now >= contender.rest_patient_until {
            gone = contender.rest.take_if(impatient);
            let patience = contender.rest.iter().map(|want| want.patient_until);
            contender.rest_patient_until = patience.min().unwrap_or(Instant::MAX);
        }
        for want in &gone {
            self.places.remove(&want.token);
        }
        self.wants -= gone.len();
        self.close_gaps(id);
        let mut taken = Vec::new();
        if first_gone {
            taken.push(self.pop_first(id).0);
        }
        taken.extend(gone);
        taken
    }

    fn remove(&mut self, id: ContenderId) -> Contender {
        let contender = self.slots[id.0 as usize].take().expect("removed once");
        let hash = self.hasher.hash_one(contender.first.label.name().as_bytes());
        if let Ok(found) = self.by_name.find_entry(hash, |slot| *slot == id.0) {
            found.remove();
        }
        self.vacant.push(id.0);
        contender
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (ContenderId, &Contender)> {
        let numbered = (0..).map(ContenderId).zip(&self.slots);
        numbered.filter_map(|(id, slot)| Some((id, slot.as_ref()?)))
    }

    /// As many contenders as there ever were at a time.
    pub(crate) fn slot_count(&self) -> usize {
        self.slots.len()
    }

    /// Requests waiting or racing.
    pub(crate) const fn wants(&self) -> usize {
        self.wants
    }
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
    use crate::Holder;
    use alloc::format;
    use alloc::string::String;

    fn want(token: u64, name: &str, patient_until: u64) -> Want {
        let until = Instant::from_nanos(patient_until);
        Want {
            token: Token(token),
            label: Label::new(Name::new(name).expect("a name"), Holder::NONE),
            ttl: Ttl::MIN,
            asked_at: Instant::ZERO,
            patient_until: until,
            deadline: until,
        }
    }
    fn contender(want: Want) -> Contender {
        let state = State::BackingOff(Instant::ZERO);
        Contender::new(want, state)
    }
    fn tokens(wants: &[Want]) -> Vec<u64> {
        wants.iter().map(|want| want.token.0).collect()
    }
    /// One name, wants 1 to 4 with patience until 10, 40, 20 and 30.
    fn queue() -> (Contenders, ContenderId) {
        let mut contenders = Contenders::new(1);
        let id = contenders.insert(contender(want(1, "a", 10)));
        for (token, patience) in [(2, 40), (3, 20), (4, 30)] {
            contenders.enqueue(id, want(token, "a", patience));
        }
        (contenders, id)
    }

    #[test]
    fn wants_leave_in_the_order_in_which_they_came() {
        let (mut contenders, id) = queue();
        for (token, remains) in [(1, true), (2, true), (3, true), (4, false)] {
            let (want, others) = contenders.pop_first(id);
            assert_eq!((want.token.0, others), (token, remains));
        }
        assert_eq!(contenders.wants(), 0);
        assert_eq!(contenders.find(Name::new("a").expect("a name")), None);
        assert!(contenders.get(id).is_none());
    }

    #[test]
    fn a_queued_want_leaves_from_the_middle_and_the_first_does_not() {
        let (mut contenders, id) = queue();
        assert_eq!(contenders.remove_queued(id, Token(3)).map(|want| want.token), Some(Token(3)));
        assert!(contenders.remove_queued(id, Token(3)).is_none());
        assert!(contenders.remove_queued(id, Token(1)).is_none());
        assert_eq!(contenders.wants(), 3);
    }

    #[test]
    fn the_impatient_are_taken_and_the_rest_keeps_its_order() {
        let (mut contenders, id) = queue();
        let taken = contenders.take_impatient(id, Instant::from_nanos(20));
        assert_eq!(tokens(&taken), [1, 3]);
        assert_eq!(contenders.get(id).map(|c| c.first.token), Some(Token(2)));
        assert_eq!(contenders.wants(), 2);
        let taken = contenders.take_impatient(id, Instant::from_nanos(40));
        assert_eq!(tokens(&taken), [2, 4]);
        assert_eq!(contenders.wants(), 0);
        assert!(contenders.get(id).is_none(), "a contender without a want is none");
        assert!(contenders.take_impatient(id, Instant::MAX).is_empty());
    }

    #[test]
    fn those_who_join_later_may_be_the_first_to_lose_patience() {
        let (mut contenders, id) = queue();
        assert!(contenders.take_impatient(id, Instant::from_nanos(9)).is_empty());
        contenders.enqueue(id, want(5, "a", 5));
        assert_eq!(tokens(&contenders.take_impatient(id, Instant::from_nanos(9))), [5]);
        contenders.remove_queued(id, Token(3));
        assert_eq!(tokens(&contenders.take_impatient(id, Instant::from_nanos(25))), [1]);
        contenders.enqueue(id, want(6, "a", 35));
        assert_eq!(tokens(&contenders.take_impatient(id, Instant::from_nanos(39))), [4, 6]);
    }

    #[test]
    fn slots_are_reused_and_every_name_finds_its_own() {
        let mut contenders = Contenders::new(7);
        let names: Vec<String> = (0..100).map(|number| format!("name/{number}")).collect();
        for round in 0..3 {
            for (token, name) in (0..).zip(&names) {
                contenders.insert(contender(want(token, name, round)));
            }
            for (token, name) in (0..).zip(&names) {
                let id = contenders.find(Name::new(name).expect("a name")).expect("inserted");
                assert_eq!(contenders.pop_first(id).0.token, Token(token));
            }
        }
        assert_eq!(contenders.slots.len(), 100);
        assert_eq!(contenders.wants(), 0);
    }

    #[test]
    fn whoever_stays_keeps_its_place_however_many_leave() {
        let mut contenders = Contenders::new(1);
        let id = contenders.insert(contender(want(0, "a", 10)));
        for token in 1..1000 {
            contenders.enqueue(id, want(token, "a", 10));
        }
        let stays = |token: u64| token.is_multiple_of(10);
        for token in (1..1000).filter(|token| !stays(*token)) {
            assert!(contenders.remove_queued(id, Token(token)).is_some());
            assert!(contenders.want(id, Token(token)).is_none());
        }
        // A number that was given back may come again, at the end.
        contenders.enqueue(id, want(5, "a", 10));
        assert_eq!(contenders.wants(), 101);
        let expected = (0..1000).filter(|token| stays(*token)).chain([5]);
        for token in expected {
            assert!(contenders.want(id, Token(token)).is_some());
            assert_eq!(contenders.pop_first(id).0.token.0, token);
        }
        assert!(contenders.places.is_empty());
    }

    #[test]
    fn to_queue_behind_nobody_changes_nothing() {
        let (mut contenders, id) = queue();
        for _ in 0..4 {
            contenders.pop_first(id);
        }
        contenders.enqueue(id, want(9, "a", 1));
        assert_eq!(contenders.wants(), 0);
    }
}
