//! The leases this client's guards hold: renewed in time, reported when that is late, given up
//! before they could belong to anybody else.
//!
//! The belief is in the ticket; here is only when to act. There is one timer for all of them: an
//! ordered set of alarms, and whatever is due within the same few milliseconds goes out together.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use paxoslease_core::{Drift, Instant, Label, Rng, Tenure, Ttl};
use slab::Slab;

use crate::ticket::{Stage, Ticket};

/// Alarms this close together ring together.
pub(crate) const TICK: Duration = Duration::from_millis(4);
const RETRY_MAX: Duration = Duration::from_millis(250);
const GIVE_UP_EARLY_MAX: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(crate) struct Guard {
    pub(crate) ticket: Arc<Ticket>,
    pub(crate) label: Label,
    pub(crate) tenure: Tenure,
    pub(crate) ttl: Ttl,
    times: Times,
    /// What the set of alarms has for it.
    alarm_at: Instant,
    /// When the renewal under way was begun.
    renewing_at: Instant,
    /// How often a renewal was sent since the last one that succeeded.
    tries: u32,
}

#[derive(Clone, Copy, Debug)]
struct Times {
    /// A little before the belief ends unless it is renewed, so that whoever waits for the loss
    /// hears of it in time.
    give_up_at: Instant,
    /// When to ask for a renewal; `MAX` while one is under way.
    renew_at: Instant,
    /// When the renewal under way is late; `MAX` when there is none, or that was said.
    late_at: Instant,
    /// When to say that the lease is in danger; `MAX` once said.
    jeopardy_at: Instant,
}

impl Times {
    /// P5: renewed from about a third of the ttl, jittered, so that those who began together do
    /// not go on together.
    fn new(rng: &mut Rng, ttl: Ttl, started_at: Instant, ends_at: Instant) -> Self {
        let span = ttl.as_duration();
        Self {
            give_up_at: give_up_at(ttl, ends_at),
            renew_at: started_at.after(span * 3 / 10 + rng.below(span / 15)),
            late_at: Instant::MAX,
            jeopardy_at: started_at.after(span * 2 / 3),
        }
    }

    fn next_at(&self) -> Instant {
        self.give_up_at.min(self.renew_at).min(self.late_at).min(self.jeopardy_at)
    }
}

fn give_up_at(ttl: Ttl, ends_at: Instant) -> Instant {
    let early = (ttl.as_duration() / 50).min(GIVE_UP_EARLY_MAX).as_nanos() as u64;
    Instant::from_nanos(ends_at.as_nanos().saturating_sub(early))
}

/// Whether a lease that ends then is worth beginning.
pub(super) fn is_worthwhile(now: Instant, ttl: Ttl, ends_at: Instant) -> bool {
    now.after(TICK) < give_up_at(ttl, ends_at)
}

/// What is to be done about a guard whose alarm rang.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Due {
    Renew,
    /// The renewal begun then is late.
    Late {
        since: Instant,
    },
    /// Its time is up.
    Lose,
}

#[derive(Debug)]
pub(crate) struct Guards {
    slab: Slab<Guard>,
    alarms: BTreeSet<(Instant, usize)>,
    rng: Rng,
}

impl Guards {
    pub(crate) const fn new(seed: u64) -> Self {
        Self { slab: Slab::new(), alarms: BTreeSet::new(), rng: Rng::seeded(seed) }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.slab.is_empty()
    }

    /// Where the next guard will be.
    pub(crate) fn vacant(&self) -> usize {
        self.slab.vacant_key()
    }

    /// A lease was granted, by a round that began at `started_at`.
    pub(crate) fn add(
        &mut self,
        (ticket, label): (Arc<Ticket>, Label),
        ttl: Ttl,
        started_at: Instant,
    ) {
        let belief = ticket.lock().belief;
        let times = Times::new(&mut self.rng, ttl, started_at, belief.ends_at());
        let alarm_at = times.next_at();
        let tenure = belief.tenure();
        let renewing_at = started_at;
        let guard = Guard { ticket, label, tenure, ttl, times, alarm_at, renewing_at, tries: 0 };
        let slot = self.slab.insert(guard);
        self.alarms.insert((alarm_at, slot));
    }

    /// The guard of this tenure, unless it is gone.
    pub(crate) fn get_mut(&mut self, slot: usize, tenure: Tenure) -> Option<&mut Guard> {
        self.slab.get_mut(slot).filter(|guard| guard.tenure == tenure)
    }

    /// The next guard that something is to be done about.
    pub(crate) fn due(&mut self, now: Instant) -> Option<(usize, Tenure, Due)> {
        let soon = now.after(TICK);
        while let Some(&(at, slot)) = self.alarms.first() {
            if at > soon {
                return None;
            }
            let guard = &mut self.slab[slot];
            let due = guard.due(soon);
            let tenure = guard.tenure;
            self.set_alarm(slot);
            if let Some(due) = due {
                return Some((slot, tenure, due));
            }
        }
        None
    }

    fn set_alarm(&mut self, slot: usize) {
        let guard = &mut self.slab[slot];
        self.alarms.remove(&(guard.alarm_at, slot));
        guard.alarm_at = guard.times.next_at();
        self.alarms.insert((guard.alarm_at, slot));
    }

    /// A renewal succeeded that was sent at `started_at`. If a reading of the clock has found the
    /// lease over meanwhile, over it stays: the belief ends when it did, as the next alarm says.
    pub(crate) fn renewed(
        &mut self,
        (slot, tenure): (usize, Tenure),
        drift: Drift,
        ttl: Ttl,
        started_at: Instant,
    ) {
        let Some(guard) = self.slab.get_mut(slot).filter(|guard| guard.tenure == tenure) else {
            return;
        };
        let renewed_until = drift.belief_ends_at(started_at, ttl);
        let ends_at = {
            let mut state = guard.ticket.lock();
            state.belief.renewed(tenure, renewed_until);
            state.renewals += 1;
            state.belief.ends_at()
        };
        guard.ticket.changed.notify(usize::MAX);
        guard.ticket.pass(Stage::Jeopardy, Stage::Held);
        guard.times = Times::new(&mut self.rng, ttl, started_at, ends_at);
        guard.tries = 0;
        self.set_alarm(slot);
    }

    /// A renewal leaves now; its answer should come before it is late. `None` if the guard is gone.
    pub(crate) fn renewing(
        &mut self,
        (slot, tenure): (usize, Tenure),
        now: Instant,
        patience: impl FnOnce(Ttl, u32) -> Duration,
    ) -> Option<&Guard> {
        let guard = self.slab.get_mut(slot).filter(|guard| guard.tenure == tenure)?;
        guard.tries += 1;
        guard.renewing_at = now;
        guard.times.late_at = now.after(patience(guard.ttl, guard.tries));
        self.set_alarm(slot);
        self.slab.get(slot)
    }

    /// Whoever has the least time.
    pub(crate) fn ttl_min(&self) -> Option<Ttl> {
        self.slab.iter().map(|(_, guard)| guard.ttl).min()
    }

    /// A renewal was refused: again soon, as long as there is time.
    pub(crate) fn renewal_failed(&mut self, (slot, tenure): (usize, Tenure), now: Instant) {
        let Some(guard) = self.slab.get_mut(slot).filter(|guard| guard.tenure == tenure) else {
            return;
        };
        let pause = (guard.ttl.as_duration() / 20).min(RETRY_MAX);
        let pause = TICK * 2 + pause / 2 + self.rng.below(pause);
        guard.times.renew_at = now.after(pause);
        guard.times.late_at = Instant::MAX;
        self.set_alarm(slot);
    }

    /// The guard is gone: released or lost.
    pub(crate) fn remove(&mut self, slot: usize, tenure: Tenure) -> Option<Guard> {
        self.slab.get(slot).filter(|guard| guard.tenure == tenure)?;
        let guard = self.slab.remove(slot);
        self.alarms.remove(&(guard.alarm_at, slot));
        Some(guard)
    }

    /// Ends every belief, for a client that leaves; what was held is to be given back.
    pub(crate) fn give_up(&mut self) -> Vec<Guard> {
        self.alarms.clear();
        self.slab.iter().for_each(|(_, guard)| guard.ticket.lose());
        self.slab.drain().collect()
    }

    pub(crate) fn next_at(&self) -> Option<Instant> {
        self.alarms.first().map(|(at, _)| *at)
    }
}

impl Guard {
    fn due(&mut self, soon: Instant) -> Option<Due> {
        if soon >= self.times.give_up_at {
            return Some(Due::Lose);
        }
        if soon >= self.times.renew_at {
            self.times.renew_at = Instant::MAX;
            return Some(Due::Renew);
        }
        if soon >= self.times.jeopardy_at {
            self.times.jeopardy_at = Instant::MAX;
            self.ticket.pass(Stage::Held, Stage::Jeopardy);
        }
        if soon >= self.times.late_at {
            self.times.late_at = Instant::MAX;
            return Some(Due::Late { since: self.renewing_at });
        }
        None
    }
}

/// A thread that is gone renews nothing, so its guards hold nothing.
impl Drop for Guards {
    fn drop(&mut self) {
        self.slab.iter().for_each(|(_, guard)| guard.ticket.lose());
    }
}
