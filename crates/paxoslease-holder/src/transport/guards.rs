//! The leases that guards hold: when to renew them, when to report that a renewal is late, and when
//! to give them up, before another holder can have them.
//!
//! The belief is in the ticket; this module only decides when to act. `now` is always an argument.
//! A guard costs one entry and one alarm.

use std::sync::Arc;
use std::time::Duration;

use paxoslease_core::{Drift, Instant, Label, Lasts, Name, Rng, Tenure, Ttl};
use slab::Slab;

use super::Span;
use super::ticket::{Stage, Ticket};
use super::wheel::Wheel;

/// The longest pause after a renewal that failed.
const RETRY_MAX: Duration = Duration::from_millis(250);
/// A lease is given up this long before its belief ends, at most.
const GIVE_UP_EARLY_MAX: Duration = Duration::from_millis(100);

/// A lease that a guard holds.
#[derive(Debug)]
pub struct Guard {
    /// Shared with the guard.
    pub ticket: Arc<Ticket>,
    /// The name, and the holder text.
    pub label: Label,
    /// The tenure.
    pub tenure: Tenure,
    /// What it is renewed with. K10: once durable, it is only prolonged as a durable lease.
    pub span: Span,
    /// K10: the shortest time that was asked for without an answer. It may still take effect.
    unanswered: Option<Lasts>,
    times: Times,
    /// When the renewal under way was sent.
    sent_at: Instant,
    /// How often a renewal was sent since the last one that succeeded.
    tries: u32,
    serial: u32,
}

impl Guard {
    /// The ttl that it is renewed with.
    #[must_use]
    pub const fn ttl(&self) -> Ttl {
        self.span.ttl
    }

    /// K10: whether its holder ever asked for a durable lease.
    #[must_use]
    pub const fn is_durable(&self) -> bool {
        self.span.lasts.is_some()
    }

    /// K10: a request to keep the lease may take effect although it was not answered.
    fn unanswered(&mut self) {
        if let Some(lasts) = self.span.lasts {
            self.unanswered = Some(self.unanswered.map_or(lasts, |least| least.min(lasts)));
        }
    }

    const fn id(&self, slot: u32) -> GuardId {
        GuardId { slot, tenure: self.tenure, serial: self.serial }
    }
}

/// A guard. The serial number distinguishes it from a later guard in the same slot. The tenure does
/// not: names of different shards may have the same one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GuardId {
    /// Its place among the guards.
    pub slot: u32,
    /// Its tenure.
    pub tenure: Tenure,
    serial: u32,
}

#[derive(Clone, Copy, Debug)]
struct Times {
    /// Shortly before the belief ends, so that a caller that waits for the loss is told in time.
    give_up_at: Instant,
    /// When to send a renewal; `MAX` while one is under way.
    renew_at: Instant,
    /// When the renewal under way is late; `MAX` without one, and once that was reported.
    late_at: Instant,
    /// When to report that the lease is in danger; `MAX` once that was reported.
    jeopardy_at: Instant,
}

impl Times {
    /// P5: renewed after about a third of the ttl. The jitter keeps guards apart that began
    /// together.
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

/// Whether a lease whose belief ends at `ends_at` would not be given up at once.
#[must_use]
pub fn is_worthwhile(now: Instant, ttl: Ttl, ends_at: Instant) -> bool {
    now.after(Wheel::tick()) < give_up_at(ttl, ends_at)
}

/// What a guard needs now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Due {
    /// Send a renewal.
    Renew,
    /// The renewal that was sent then is not answered yet.
    Late {
        /// When the renewal was sent.
        sent_at: Instant,
    },
    /// Give the lease up.
    Lose,
}

/// All guards of one serving thread.
#[derive(Debug)]
pub struct Guards {
    slab: Slab<Guard>,
    wheel: Wheel,
    rng: Rng,
    /// The serial number of the next guard.
    serials: u32,
}

impl Guards {
    /// No guards. The seed is that of the jitter.
    #[must_use]
    pub fn new(seed: u64, now: Instant) -> Self {
        Self { slab: Slab::new(), wheel: Wheel::new(now), rng: Rng::seeded(seed), serials: 0 }
    }

    /// How many guards there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slab.len()
    }

    /// Whether there are no guards.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slab.is_empty()
    }

    /// The slot of the next guard.
    #[must_use]
    pub fn next_slot(&self) -> u32 {
        self.slab.vacant_key() as u32
    }

    /// Adds a lease that was granted by a round that began at `started_at`; its belief ends at
    /// `ends_at`.
    pub fn add(
        &mut self,
        ticket: Arc<Ticket>,
        label: Label,
        granted: (Tenure, Span),
        started_at: Instant,
        ends_at: Instant,
    ) {
        let (tenure, span) = granted;
        let times = Times::new(&mut self.rng, span.ttl, started_at, ends_at);
        let (sent_at, tries, serial) = (started_at, 0, self.serials);
        self.serials = serial.wrapping_add(1);
        let unanswered = None;
        let guard =
            Guard { ticket, label, tenure, span, unanswered, times, sent_at, tries, serial };
        let slot = self.slab.insert(guard) as u32;
        self.wheel.set(slot, times.next_at());
    }

    /// The guard, unless it is gone.
    #[must_use]
    pub fn get(&self, id: GuardId) -> Option<&Guard> {
        self.slab.get(id.slot as usize).filter(|guard| guard.serial == id.serial)
    }

    /// The guard of this ticket, unless it is gone.
    #[must_use]
    pub fn of(&self, ticket: &Arc<Ticket>) -> Option<GuardId> {
        let slot = u32::try_from(ticket.lock().slot).ok()?;
        let guard = self.slab.get(slot as usize)?;
        Arc::ptr_eq(&guard.ticket, ticket).then(|| guard.id(slot))
    }

    /// The guard of a tenure, which is about to be kept for so long: `ends_at` is the end of a
    /// belief in that. K10: the belief beyond it ends now, and the guard prolongs the lease only as
    /// a durable one from now on. It sends no renewal until [`Self::kept`] or
    /// [`Self::renewal_failed`].
    pub fn keep(
        &mut self,
        name: Name<'_>,
        tenure: Tenure,
        lasts: Lasts,
        ends_at: Instant,
    ) -> Option<GuardId> {
        let is_its = |guard: &Guard| guard.tenure == tenure && guard.label.name() == name;
        let (slot, guard) = self.slab.iter_mut().find(|(_, guard)| is_its(guard))?;
        if guard.tries > 0 {
            guard.unanswered();
        }
        guard.span = Span::durable(lasts);
        guard.tries += 1;
        if let Some(belief) = &mut guard.ticket.lock().belief {
            belief.limit(ends_at);
        }
        let early = give_up_at(guard.span.ttl, ends_at);
        guard.times.give_up_at = guard.times.give_up_at.min(early);
        (guard.times.renew_at, guard.times.late_at) = (Instant::MAX, Instant::MAX);
        self.wheel.set(slot as u32, guard.times.next_at());
        Some(guard.id(slot as u32))
    }

    /// A request to keep the lease, sent at `started_at`, succeeded. As [`Self::renewed`].
    #[must_use]
    pub fn kept(&mut self, id: GuardId, drift: Drift, started_at: Instant) -> bool {
        let Some(guard) = self.get(id) else { return true };
        let lasts = guard.span.lasts.into_iter().chain(guard.unanswered).min();
        let span = lasts.map_or(guard.span, Span::durable);
        let ends_at = span.belief_ends_at(drift, started_at);
        self.renewed(id, span.ttl, started_at, ends_at)
    }

    /// The next guard that needs something.
    pub fn due(&mut self, now: Instant) -> Option<(GuardId, Due)> {
        while let Some(slot) = self.wheel.ring(now) {
            let guard = &mut self.slab[slot as usize];
            let due = guard.due(now.after(Wheel::tick()));
            self.wheel.set(slot, guard.times.next_at());
            if let Some(due) = due {
                return Some((guard.id(slot), due));
            }
        }
        None
    }

    /// A renewal is sent now, and late after `patience`, which is asked for the ttl and the number
    /// of tries. `None` if the guard is gone.
    pub fn renewing(
        &mut self,
        id: GuardId,
        now: Instant,
        patience: impl FnOnce(Ttl, u32) -> Duration,
    ) -> Option<&Guard> {
        let guard = find(&mut self.slab, id)?;
        if guard.tries > 0 {
            guard.unanswered();
        }
        guard.tries += 1;
        guard.sent_at = now;
        guard.times.late_at = now.after(patience(guard.span.ttl, guard.tries));
        self.wheel.set(id.slot, guard.times.next_at());
        Some(guard)
    }

    /// A round that began at `started_at` renewed the lease for `ttl`, so that its belief ends at
    /// `ends_at`. `false` when the holder no longer believes: a reading of the clock found the
    /// lease over, and it stays over.
    #[must_use]
    pub fn renewed(
        &mut self,
        id: GuardId,
        ttl: Ttl,
        started_at: Instant,
        ends_at: Instant,
    ) -> bool {
        let Some(guard) = find(&mut self.slab, id) else { return true };
        let mut state = guard.ticket.lock();
        state.renewals += 1;
        if let Some(belief) = &mut state.belief {
            belief.renewed(id.tenure, ends_at);
            // A holder that dropped the belief itself has sent a release, or is about to.
            if belief.is_released() && state.stage != Stage::Releasing {
                return false;
            }
        }
        if state.stage == Stage::Jeopardy {
            state.stage = Stage::Held;
        }
        drop(state);
        guard.ticket.changed.notify(usize::MAX);
        guard.times = Times::new(&mut self.rng, ttl, started_at, ends_at);
        guard.tries = 0;
        self.wheel.set(id.slot, guard.times.next_at());
        true
    }

    /// A renewal failed. The next one follows soon, as long as there is time.
    pub fn renewal_failed(&mut self, id: GuardId, now: Instant) {
        let Some(guard) = find(&mut self.slab, id) else { return };
        let pause = (guard.span.ttl.as_duration() / 20).min(RETRY_MAX);
        // Not within this tick of the wheel. Without a majority a renewal fails at once, and the
        // thread would do nothing else.
        let pause = Wheel::tick() * 2 + pause / 2 + self.rng.below(pause);
        guard.times.renew_at = now.after(pause);
        guard.times.late_at = Instant::MAX;
        self.wheel.set(id.slot, guard.times.next_at());
    }

    /// Removes a guard: its lease was released or lost.
    pub fn remove(&mut self, id: GuardId) -> Option<Guard> {
        self.get(id)?;
        self.wheel.clear(id.slot);
        self.slab.try_remove(id.slot as usize)
    }

    /// Ends every belief, for a thread that stops. The caller releases the leases.
    pub fn give_up(&mut self) -> Vec<Guard> {
        for (slot, guard) in &self.slab {
            self.wheel.clear(slot as u32);
            guard.ticket.lose();
        }
        self.slab.drain().collect()
    }

    /// Forgets every guard without ending its belief, as a process that is killed does.
    pub fn orphan(&mut self) -> Vec<Arc<Ticket>> {
        self.slab.drain().map(|guard| guard.ticket).collect()
    }

    /// The shortest ttl of all guards.
    #[must_use]
    pub fn ttl_min(&self) -> Option<Ttl> {
        self.slab.iter().map(|(_, guard)| guard.span.ttl).min()
    }

    /// When [`Self::due`] has something to say, at the earliest.
    #[must_use]
    pub fn next_at(&self) -> Option<Instant> {
        self.wheel.next_at()
    }
}

fn find(slab: &mut Slab<Guard>, id: GuardId) -> Option<&mut Guard> {
    slab.get_mut(id.slot as usize).filter(|guard| guard.serial == id.serial)
}

impl Guard {
    fn due(&mut self, soon: Instant) -> Option<Due> {
        if soon >= self.times.give_up_at {
            return Some(Due::Lose);
        }
        if soon >= self.times.jeopardy_at {
            self.times.jeopardy_at = Instant::MAX;
            self.ticket.advance(&Stage::Held, Stage::Jeopardy);
        }
        if soon >= self.times.renew_at {
            self.times.renew_at = Instant::MAX;
            return Some(Due::Renew);
        }
        if soon >= self.times.late_at {
            self.times.late_at = Instant::MAX;
            return Some(Due::Late { sent_at: self.sent_at });
        }
        None
    }
}

/// A thread that has ended renews nothing, so its guards hold nothing.
impl Drop for Guards {
    fn drop(&mut self) {
        self.slab.iter().for_each(|(_, guard)| guard.ticket.lose());
    }
}

#[cfg(test)]
mod tests {
    use super::super::Caller;
    use super::*;
    use paxoslease_core::{Belief, Drift, Holder, Name};

    /// One guard of the shortest ttl, granted at zero.
    struct One {
        guards: Guards,
        ticket: Arc<Ticket>,
        id: GuardId,
    }

    fn ends_at(started_at: Instant) -> Instant {
        let drift = Drift::new(1000, Duration::from_millis(1)).expect("in bounds");
        drift.belief_ends_at(started_at, Ttl::MIN)
    }

    /// Adds a lease that was granted at zero.
    fn add(guards: &mut Guards, tenure: Tenure) -> Arc<Ticket> {
        let label = Label::new(Name::new("x").expect("a name"), Holder::NONE);
        let (ticket, ends_at) = (Arc::new(Ticket::default()), ends_at(Instant::ZERO));
        let belief = Belief::granted(tenure, ends_at);
        let granted = Caller::new(&ticket).grant(belief, 0, Duration::ZERO);
        assert!(granted.is_some());
        let span = Span { ttl: Ttl::MIN, lasts: None };
        guards.add(Arc::clone(&ticket), label, (tenure, span), Instant::ZERO, ends_at);
        ticket
    }

    fn one(seed: u64) -> One {
        let tenure = Tenure::from_fence(1 << 10 | 1).expect("a tenure");
        let mut guards = Guards::new(seed, Instant::ZERO);
        let ticket = add(&mut guards, tenure);
        One { guards, ticket, id: GuardId { slot: 0, tenure, serial: 0 } }
    }

    impl One {
        fn renewed(&mut self, started_at: Instant) -> bool {
            self.guards.renewed(self.id, Ttl::MIN, started_at, ends_at(started_at))
        }

        /// What is due next, and when.
        fn next(&mut self, mut now: Instant) -> (Instant, Due) {
            loop {
                if let Some((_, due)) = self.guards.due(now) {
                    return (now, due);
                }
                now = self.guards.next_at().expect("a guard is there").max(now);
            }
        }
    }

    #[test]
    fn a_renewal_does_not_revive_a_lease_that_was_over() {
        let mut one = one(1);
        let later = Instant::from_nanos(10);
        assert!(one.renewed(later));
        one.ticket.lock().drop_belief();
        assert!(!one.renewed(later));
        assert!(!one.ticket.lock().belief.expect("granted").is_held(later));
    }

    #[test]
    fn a_late_answer_does_not_renew_the_next_guard_of_its_slot() {
        let One { mut guards, id, .. } = one(1);
        assert!(guards.remove(id).is_some());
        // A name of another shard may have the same tenure.
        let ticket = add(&mut guards, id.tenure);
        assert_eq!(guards.of(&ticket).map(|next| next.slot), Some(id.slot));
        let later = Instant::from_nanos(10);
        assert!(guards.renewed(id, Ttl::MIN, later, ends_at(later)));
        let belief = ticket.lock().belief.expect("granted");
        assert_eq!(belief.ends_at(), ends_at(Instant::ZERO));
    }

    #[test]
    fn a_failed_renewal_is_not_repeated_before_time_passes() {
        for seed in 0..100 {
            let mut one = one(seed);
            let (now, due) = one.next(Instant::ZERO);
            assert_eq!(due, Due::Renew);
            one.guards.renewal_failed(one.id, now);
            assert_eq!(one.guards.due(now), None);
            assert!(one.guards.next_at().is_some_and(|at| at > now));
        }
    }

    #[test]
    fn a_late_renewal_is_reported_once_and_the_lease_is_lost() {
        let mut one = one(1);
        let (sent_at, due) = one.next(Instant::ZERO);
        assert_eq!(due, Due::Renew);
        one.guards.renewing(one.id, sent_at, |_, tries| Duration::from_millis(5) * tries);
        let (late_at, due) = one.next(sent_at);
        assert_eq!(due, Due::Late { sent_at });
        let (lost_at, due) = one.next(late_at);
        assert_eq!(due, Due::Lose);
        assert_eq!(one.ticket.lock().stage, Stage::Jeopardy, "it was reported before");
        assert!(lost_at < ends_at(Instant::ZERO));
    }

    #[test]
    fn the_guards_of_a_thread_that_has_ended_hold_nothing() {
        let One { guards, ticket, .. } = one(1);
        let is_held = || ticket.lock().belief.expect("granted").is_held(Instant::ZERO);
        assert!(is_held());
        drop(guards);
        assert!(!is_held());
        assert_eq!(ticket.lock().stage, Stage::Lost);
    }
}
