//! The few keys that all clients use at once. Each is retired after some operations, and goes to
//! the judge once all of them are over: an order of many more would take too long to search.

use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, MutexGuard};

use paxoslease_sim::Rng;

use super::history::{Doubt, Operation, Outcome, Reply, Value};
use crate::log::{Nanos, now};

/// Operations without a known outcome may happen at any later time, so each doubles the search.
const DOUBTS_MAX: usize = 6;
/// How many operations follow each other without a rest, on a key whose leases expire.
const BURST: usize = 8;
/// The longest rest, in microseconds: some leases expire meanwhile.
const REST_MAX: u64 = 250_000;

/// How long the leases of a key last.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Life {
    /// They expire while the key is in use.
    Short,
    /// They do not, and are no longer than the longest lease of the cell.
    Long,
    /// Longer than that, or without an end.
    Beyond,
}

/// The commands that clients use on a key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Dialect {
    Redis,
    Native,
    Both,
}

/// A key whose operations are over.
#[derive(Debug)]
pub struct Retired {
    pub name: String,
    pub life: Life,
    pub dialect: Dialect,
    pub operations: Vec<Operation>,
}

#[derive(Debug)]
pub(super) struct Key {
    pub(super) name: String,
    pub(super) life: Life,
    pub(super) dialect: Dialect,
    use_: Mutex<Use>,
}

#[derive(Debug, Default)]
struct Use {
    /// How many operations clients began, or are about to.
    taken: usize,
    is_retired: bool,
    doubts: usize,
    rests_until: Nanos,
    operations: Vec<Operation>,
    seen: Seen,
}

/// The last tenure that any client saw.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    pub(super) value: Option<Value>,
    pub(super) fence: Option<u64>,
}

/// What new keys are like.
#[derive(Clone, Debug)]
pub struct KeyPlan {
    pub count: usize,
    pub operations: usize,
    pub lives: Vec<Life>,
    pub dialects: Vec<Dialect>,
}

pub(super) struct Keys {
    plan: KeyPlan,
    slots: Vec<Mutex<Slot>>,
    retired: SyncSender<Retired>,
}

struct Slot {
    key: Arc<Key>,
    rng: Rng,
    /// How many keys this slot has had.
    made: u64,
}

impl Key {
    fn lock(&self) -> MutexGuard<'_, Use> {
        self.use_.lock().expect("no client panics while it holds the key")
    }

    pub(super) fn seen(&self) -> Seen {
        self.lock().seen
    }
}

impl Keys {
    pub(super) fn new(plan: KeyPlan, seed: u64, retired: SyncSender<Retired>) -> Self {
        let slot = |number: usize| {
            let mut rng = Rng::new(seed, 0x5107 + number as u64);
            let key = Arc::new(new_key(&plan, number, 0, &mut rng));
            Mutex::new(Slot { key, rng, made: 1 })
        };
        let slots = (0..plan.count).map(slot).collect();
        Self { plan, slots, retired }
    }

    /// A key for one operation. `None` while all keys rest.
    pub(super) fn take(&self, first: usize) -> Option<Arc<Key>> {
        let count = self.slots.len();
        (first..first + count).find_map(|number| self.take_from(number % count))
    }

    fn take_from(&self, number: usize) -> Option<Arc<Key>> {
        let mut slot = self.slots[number].lock().expect("no client panics while it holds it");
        let Slot { key, rng, made } = &mut *slot;
        if key.lock().is_retired {
            *key = Arc::new(new_key(&self.plan, number, *made, rng));
            *made += 1;
        }
        let mut state = key.lock();
        if now() < state.rests_until {
            return None;
        }
        state.taken += 1;
        state.is_retired = state.taken >= self.plan.operations;
        if key.life == Life::Short && state.taken.is_multiple_of(BURST) {
            state.rests_until = now() + 1000 * rng.below(REST_MAX);
        }
        drop(state);
        Some(Arc::clone(key))
    }

    /// Notes what became of an operation. The last one of a retired key brings it to the judge.
    pub(super) fn note(&self, key: &Key, operation: Operation) {
        let mut state = key.lock();
        let is_unknown = matches!(operation.outcome, Outcome::Unknown(_));
        state.doubts += usize::from(is_unknown && !operation.command.only_reads());
        state.is_retired |= state.doubts >= DOUBTS_MAX;
        state.see(&operation);
        state.operations.push(operation);
        self.send_if_over(key, &mut state);
    }

    /// Gives back a key without an operation.
    pub(super) fn put_back(&self, key: &Key) {
        let mut state = key.lock();
        state.taken -= 1;
        self.send_if_over(key, &mut state);
    }

    /// Retires all keys. The caller has ended all clients.
    pub(super) fn retire_all(&self) {
        for slot in &self.slots {
            let slot = slot.lock().expect("no client panics while it holds it");
            let mut state = slot.key.lock();
            let is_sent = state.is_retired;
            state.is_retired = true;
            if !is_sent {
                self.send_if_over(&slot.key, &mut state);
            }
        }
    }

    fn send_if_over(&self, key: &Key, state: &mut Use) {
        if !state.is_retired || state.operations.len() < state.taken {
            return;
        }
        let operations = std::mem::take(&mut state.operations);
        let Key { name, life, dialect, .. } = key;
        let retired = Retired { name: name.clone(), life: *life, dialect: *dialect, operations };
        // Without a judge the run has failed, and its error is reported.
        let _sent = self.retired.send(retired);
    }
}

impl Use {
    fn see(&mut self, operation: &Operation) {
        let Outcome::Reply(reply) = operation.outcome else {
            // A client that got no reply may have acquired the key all the same.
            let is_gone = operation.outcome == Outcome::Unknown(Doubt::Gone);
            let value = operation.command.sets().filter(|_| is_gone);
            self.seen.value = value.or(self.seen.value);
            return;
        };
        match reply {
            Reply::Held { value, fence, .. } => {
                self.seen = Seen { value: Some(value), fence: Some(fence) };
            }
            Reply::Granted { fence } => {
                self.seen = Seen { value: operation.command.sets(), fence: Some(fence) };
            }
            Reply::Ok => self.seen.value = operation.command.sets().or(self.seen.value),
            Reply::Value(value) => self.seen.value = Some(value),
            Reply::Nil | Reply::Number(_) | Reply::NotHeld | Reply::Conflict => {}
        }
    }
}

fn new_key(plan: &KeyPlan, slot: usize, made: u64, rng: &mut Rng) -> Key {
    let name = format!("linear/{slot}/{made}");
    // A slot keeps its kind of lease, so that there are always some of each.
    let life = plan.lives[slot % plan.lives.len()];
    // A native ttl has the longest lease as its bound.
    let dialects = if life == Life::Beyond { &[Dialect::Redis][..] } else { &plan.dialects };
    let dialect = rng.pick(dialects);
    Key { name, life, dialect, use_: Mutex::default() }
}
