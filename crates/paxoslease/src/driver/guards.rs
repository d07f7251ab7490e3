//! The leases this node's guards hold: renewed in time, reported when that is late, given up
//! before they could belong to anybody else.
//!
//! The belief is in the ticket; here is only when to act. A guard costs one entry and one alarm.

use std::sync::Arc;
use std::time::Duration;

use paxoslease_core::{Drift, Instant, Label, Rng, Tenure, Ttl};
use slab::Slab;

use super::wheel::Wheel;
use crate::ticket::{Stage, Ticket};

#[derive(Debug)]
pub(crate) struct Guard {
    pub(crate) ticket: Arc<Ticket>,
    pub(crate) label: Label,
    pub(crate) tenure: Tenure,
    pub(crate) ttl: Ttl,
    times: Times,
}

#[derive(Clone, Copy, Debug)]
struct Times {
    /// A little before the belief ends unless it is renewed, so that whoever waits for the loss
    /// hears of it in time.
    give_up_at: Instant,
    /// When to ask for a renewal; `MAX` while one is under way.
    renew_at: Instant,
    /// When to say that it is late; `MAX` once said.
    jeopardy_at: Instant,
}

impl Times {
    /// P5: renewed from about a third of the ttl, jittered, so that those who began together do
    /// not go on together.
    fn new(rng: &mut Rng, ttl: Ttl, started_at: Instant, ends_at: Instant) -> Self {
        let span = ttl.as_duration();
        let early = (span / 50).min(GIVE_UP_EARLY_MAX).as_nanos() as u64;
        Self {
            give_up_at: Instant::from_nanos(ends_at.as_nanos().saturating_sub(early)),
            renew_at: started_at.after(span * 3 / 10 + rng.below(span / 15)),
            jeopardy_at: started_at.after(span * 2 / 3),
        }
    }

    fn next_at(&self) -> Instant {
        self.give_up_at.min(self.renew_at).min(self.jeopardy_at)
    }
}

/// What is to be done about a guard whose alarm rang.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Due {
    Renew,
    /// Its time is up.
    Lose,
}

#[derive(Debug)]
pub(crate) struct Guards {
    slab: Slab<Guard>,
    wheel: Wheel,
    drift: Drift,
    rng: Rng,
}

impl Guards {
    pub(crate) fn new(drift: Drift, seed: u64, now: Instant) -> Self {
        Self { slab: Slab::new(), wheel: Wheel::new(now), drift, rng: Rng::seeded(seed) }
    }

    pub(crate) fn len(&self) -> usize {
        self.slab.len()
    }

    /// Where the next guard will be.
    pub(crate) fn vacant(&self) -> u32 {
        self.slab.vacant_key() as u32
    }

    /// A lease was granted.
    pub(crate) fn add(
        &mut self,
        (ticket, label): (Arc<Ticket>, Label),
        tenure: Tenure,
        ttl: Ttl,
        (started_at, ends_at): (Instant, Instant),
    ) {
        let times = Times::new(&mut self.rng, ttl, started_at, ends_at);
        let slot = self.slab.insert(Guard { ticket, label, tenure, ttl, times }) as u32;
        self.wheel.set(slot, times.next_at());
    }

    pub(crate) fn get(&self, slot: u32) -> Option<&Guard> {
        self.slab.get(slot as usize)
    }

    /// The next guard that something is to be done about.
    pub(crate) fn due(&mut self, now: Instant) -> Option<(u32, Due)> {
        while let Some(slot) = self.wheel.ring(now) {
            let guard = &mut self.slab[slot as usize];
            let soon = now.after(Wheel::tick());
            if soon >= guard.times.give_up_at {
                return Some((slot, Due::Lose));
            }
            if soon >= guard.times.jeopardy_at {
                guard.times.jeopardy_at = Instant::MAX;
                guard.tell_jeopardy();
            }
            let renew = soon >= guard.times.renew_at;
            if renew {
                guard.times.renew_at = Instant::MAX;
            }
            self.wheel.set(slot, guard.times.next_at());
            if renew {
                return Some((slot, Due::Renew));
            }
        }
        None
    }

    /// A renewal succeeded. `false` when its holder has stopped believing meanwhile: a reading of
    /// the clock found it over, and over it stays.
    #[must_use]
    pub(crate) fn renewed(
        &mut self,
        slot: u32,
        tenure: Tenure,
        ttl: Ttl,
        started_at: Instant,
    ) -> bool {
        let Some(guard) = self.slab.get_mut(slot as usize) else { return true };
        if guard.tenure != tenure {
            return true;
        }
        let ends_at = self.drift.belief_ends_at(started_at, ttl);
        {
            let mut state = guard.ticket.lock();
            if let Some(belief) = &mut state.belief {
                belief.renewed(tenure, ends_at);
                // A holder that gave it up itself has told the shard, or is about to.
                if belief.is_released() && state.stage != Stage::Releasing {
                    return false;
                }
            }
            if state.stage == Stage::Jeopardy {
                state.stage = Stage::Held;
                drop(state);
                guard.ticket.changed.notify(usize::MAX);
            }
        }
        guard.times = Times::new(&mut self.rng, ttl, started_at, ends_at);
        self.wheel.set(slot, guard.times.next_at());
        true
    }

    /// A renewal found no majority: again soon, as long as there is time.
    pub(crate) fn renewal_failed(&mut self, slot: u32, now: Instant) {
        let Some(guard) = self.slab.get_mut(slot as usize) else { return };
        let pause = (guard.ttl.as_duration() / 20).min(RETRY_MAX);
        // Not within this tick of the wheel: where a majority is known to be out of reach a
        // renewal fails at once, and the shard would do nothing else any more.
        let pause = Wheel::tick() + pause / 2 + self.rng.below(pause);
        guard.times.renew_at = now.after(pause);
        self.wheel.set(slot, guard.times.next_at());
    }

    /// The guard is gone: released or lost.
    pub(crate) fn remove(&mut self, slot: u32) -> Option<Guard> {
        self.wheel.clear(slot);
        self.slab.try_remove(slot as usize)
    }

    /// Ends every belief, for a node that leaves; what was held is to be given back.
    pub(crate) fn give_up(&mut self) -> Vec<Guard> {
        for (slot, guard) in &self.slab {
            self.wheel.clear(slot as u32);
            guard.ticket.lose();
        }
        self.slab.drain().collect()
    }

    /// Leaves every belief to its holder.
    #[cfg(any(test, feature = "test-util"))]
    pub(crate) fn orphan(&mut self) -> Vec<Arc<Ticket>> {
        self.slab.drain().map(|guard| guard.ticket).collect()
    }

    pub(crate) fn next_at(&self) -> Option<Instant> {
        self.wheel.next_at()
    }
}

/// A shard that is gone renews nothing, so its guards hold nothing.
impl Drop for Guards {
    fn drop(&mut self) {
        self.slab.iter().for_each(|(_, guard)| guard.ticket.lose());
    }
}

const RETRY_MAX: Duration = Duration::from_millis(250);

impl Guard {
    fn tell_jeopardy(&self) {
        let mut state = self.ticket.lock();
        if state.stage == Stage::Held {
            state.stage = Stage::Jeopardy;
            drop(state);
            self.ticket.changed.notify(usize::MAX);
        }
    }
}

const GIVE_UP_EARLY_MAX: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;
    use paxoslease_core::{Belief, Holder, Name};

    #[test]
    fn a_renewal_does_not_bring_back_what_was_seen_to_be_over() {
        let drift = Drift::new(1000, Duration::from_millis(1)).expect("in bounds");
        let label = Label::new(Name::new("x").expect("a name"), Holder::NONE);
        let tenure = Tenure::from_fence(1 << 10 | 1).expect("a tenure");
        let mut guards = Guards::new(drift, 1, Instant::ZERO);
        let ticket = Arc::new(Ticket::new());
        let ends_at = drift.belief_ends_at(Instant::ZERO, Ttl::MIN);
        {
            let mut state = ticket.lock();
            state.stage = Stage::Held;
            state.belief = Some(Belief::granted(tenure, ends_at));
        }
        guards.add((Arc::clone(&ticket), label), tenure, Ttl::MIN, (Instant::ZERO, ends_at));
        let later = Instant::from_nanos(10);
        assert!(guards.renewed(0, tenure, Ttl::MIN, later));
        ticket.lock().belief.as_mut().expect("granted").release();
        assert!(!guards.renewed(0, tenure, Ttl::MIN, later));
        assert!(!ticket.lock().belief.expect("granted").is_held(later));
    }

    #[test]
    fn a_renewal_that_failed_is_not_tried_again_before_time_passes() {
        let drift = Drift::new(1000, Duration::from_millis(1)).expect("in bounds");
        let label = Label::new(Name::new("x").expect("a name"), Holder::NONE);
        let tenure = Tenure::from_fence(1 << 10 | 1).expect("a tenure");
        for seed in 0..100 {
            let mut guards = Guards::new(drift, seed, Instant::ZERO);
            let ticket = Arc::new(Ticket::new());
            let ends_at = drift.belief_ends_at(Instant::ZERO, Ttl::MIN);
            guards.add((ticket, label.clone()), tenure, Ttl::MIN, (Instant::ZERO, ends_at));
            let mut now = Instant::ZERO;
            while guards.due(now).is_none() {
                now = guards.next_at().expect("a guard is there");
            }
            guards.renewal_failed(0, now);
            assert_eq!(guards.due(now), None);
            assert!(guards.next_at().is_some_and(|at| at > now));
        }
    }

    #[test]
    fn the_guards_of_a_shard_that_is_gone_hold_nothing() {
        let label = Label::new(Name::new("x").expect("a name"), Holder::NONE);
        let tenure = Tenure::from_fence(1 << 10 | 1).expect("a tenure");
        let (now, ends_at) = (Instant::ZERO, Instant::MAX);
        let mut guards = Guards::new(Drift::NONE, 1, now);
        let ticket = Arc::new(Ticket::new());
        {
            let mut state = ticket.lock();
            state.stage = Stage::Held;
            state.belief = Some(Belief::granted(tenure, ends_at));
        }
        guards.add((Arc::clone(&ticket), label), tenure, Ttl::MAX, (now, ends_at));
        assert!(ticket.lock().belief.expect("granted").is_held(now));
        drop(guards);
        assert!(!ticket.lock().belief.expect("granted").is_held(now));
    }
}
