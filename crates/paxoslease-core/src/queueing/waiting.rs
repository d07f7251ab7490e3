//! What a contender does between two rounds: it waits for a holder, for its turn, or for its own
//! deadline (protocol section 7).
//!
//! These are methods of the proposer, because every decision here ends in a round or an answer.
//! No decision here is needed for safety.

use alloc::vec::Vec;
use core::time::Duration;

use super::contender::{Contender, ContenderId, State, Wake};
use super::queue::Waiter;
use crate::outbox::{Sighting, Token};
use crate::protocol::proposer::{Env, Proposer};
use crate::{Config, Event, Instant, Name};

/// The shortest time for which a node leaves its turn to another.
const TURN_MIN: Duration = Duration::from_micros(200);
/// Waiters that retry together are spread over this time, or over this time each if they are many.
const RETRY_WITHIN: Duration = Duration::from_millis(100);
const RETRY_SPACING: Duration = Duration::from_micros(20);
/// Bounds on the time after which a waiter retries although no hint came.
const RETRY_MIN: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(3);
/// Stale wake-ups that may pile up before they are cleared.
const STALE_WAKES_MAX: usize = 1024;

/// A name that requests at this node wait for.
#[derive(Clone, Copy, Debug)]
pub struct WaitedName<'a> {
    /// The name; each appears once.
    pub name: Name<'a>,
    /// How many requests wait for it, at least one.
    pub waiters: usize,
    /// The last known holder; `None` while no majority has reported one.
    pub held_by: Option<&'a Sighting>,
}

/// A name may be free.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Freed {
    /// It was released through this node.
    pub(crate) released_here: bool,
    /// The nodes that have their turn before this one.
    pub(crate) nodes_before: usize,
    /// The acceptors reserve the name for this node.
    pub(crate) is_turn: bool,
}

impl Proposer {
    /// Queues a request behind earlier ones for the same name, or begins a round at once. Where the
    /// acceptor here reserves the name for other nodes, the request waits until `reserved_until`.
    ///
    /// A request that does not wait makes the first in the queue try again: the holder that is
    /// known may have released the name before this request was made.
    pub(crate) fn acquire(
        &mut self,
        env: &mut Env<'_>,
        now: Instant,
        waiter: Waiter,
        reserved_until: Option<Instant>,
    ) {
        let Some(id) = self.contenders.find(waiter.label.name()) else {
            let id = self.contenders.insert(Contender::new(waiter, State::BackingOff(now)));
            return match reserved_until {
                Some(until) => self.wait_for_turn(env, now, id, until),
                None => self.race(env, now, id),
            };
        };
        let (wait_ends_at, token) = (waiter.wait_ends_at, waiter.token);
        self.contenders.enqueue(id, waiter);
        self.wake_at(wait_ends_at, Wake::Waiter(id, token));
        if now >= wait_ends_at {
            self.deny_or_race(env, now, id);
        }
    }

    fn wait_for_turn(&mut self, env: &Env<'_>, now: Instant, id: ContenderId, until: Instant) {
        let until = until.after(self.rng.below(self.turn_span(env.config)));
        let settled = self.settled_span(env.config);
        let Some(contender) = self.contenders.get_mut(id) else { return };
        (contender.contested, contender.tried_at) = (true, now);
        // The turns of other nodes must not cost a request its own round.
        let deadline = &mut contender.first.deadline;
        *deadline = until.after(settled).max(*deadline);
        contender.state = State::Waiting { until, by: None };
        self.wake_at(until, Wake::Contender(id));
    }

    /// Waits for a known holder, whose lease ends at `until` unless it is renewed.
    pub(crate) fn wait(
        &mut self,
        env: &mut Env<'_>,
        now: Instant,
        id: ContenderId,
        until: Instant,
        by: Sighting,
    ) {
        let free_at = until.max(now).after(self.rng.below(env.config.stagger_max));
        let settled = self.settled_span(env.config);
        let retry_at = self.retry_at(settled, now, until);
        let Some(contender) = self.contenders.get_mut(id) else { return };
        // A round that the deadline would cut short finds out nothing.
        let has_time = retry_at.after(settled) <= contender.first.deadline;
        let until = if has_time { free_at.min(retry_at) } else { free_at };
        contender.state = State::Waiting { until, by: Some(by) };
        let Waiter { token, wait_ends_at, .. } = contender.first;
        self.wake_at(until, Wake::Contender(id));
        if wait_ends_at > now && wait_ends_at < until {
            self.wake_at(wait_ends_at, Wake::Waiter(id, token));
        }
        self.deny_or_race(env, now, id);
    }

    /// When a waiter retries although no hint came, because the one message that would tell it may
    /// be lost. After a quarter of the time the holder has left, within bounds; later where very
    /// many wait, or where rounds take so long that waiters would disturb each other.
    fn retry_at(&mut self, settled: Duration, now: Instant, free_at: Instant) -> Instant {
        let waiting = u32::try_from(self.contenders.waiter_count()).unwrap_or(u32::MAX);
        let quarter = (free_at.since(now) / 4).clamp(RETRY_MIN, RETRY_MAX);
        let rounds = settled.saturating_mul(2);
        let span = quarter.max(rounds).max(RETRY_SPACING.saturating_mul(waiting));
        now.after(span).after(self.rng.below(span / 4))
    }

    /// The deadline of the first waiter has passed. It is denied if the holder is known; otherwise
    /// it learns that there is no quorum.
    pub(crate) fn give_up(&mut self, env: &mut Env<'_>, now: Instant, id: ContenderId) {
        self.deny_ended_waits(env, now, id);
        match self.contenders.get(id) {
            None => return,
            Some(next) if now < next.first.deadline => return self.race(env, now, id),
            Some(_) => {}
        }
        loop {
            let (waiter, others_wait) = self.contenders.pop_first(id);
            env.out.emit(Event::NoQuorum { token: waiter.token });
            if !others_wait {
                return;
            }
            if self.contenders.get(id).is_some_and(|next| now < next.first.deadline) {
                return self.race(env, now, id);
            }
        }
    }

    /// A wake-up for a contender: the lease it waits for may be over, or its pause is.
    pub(crate) fn try_again(&mut self, env: &mut Env<'_>, now: Instant, id: ContenderId) {
        let Some(contender) = self.contenders.get(id) else { return };
        match &contender.state {
            State::BackingOff(until) | State::Waiting { until, .. } if *until <= now => {
                if now >= contender.first.deadline {
                    self.give_up(env, now, id);
                } else {
                    self.race(env, now, id);
                }
            }
            State::BackingOff(_) | State::Waiting { .. } | State::Racing(_) => {}
        }
    }

    /// The first node tries now. If the name was released through this node, it tries at once, so
    /// that Release and Propose share a frame. Every other node waits for its turn and then
    /// prepares.
    pub(crate) fn on_freed(
        &mut self,
        env: &mut Env<'_>,
        now: Instant,
        name: Name<'_>,
        Freed { released_here, nodes_before, is_turn }: Freed,
    ) {
        let Some(id) = self.contenders.find(name) else { return };
        let step = (nodes_before > 0).then(|| self.turn_span(env.config));
        let Some(contender) = self.contenders.get_mut(id) else { return };
        match &mut contender.state {
            State::Racing(_) => contender.freed = true,
            // Its turn would end before its pause does.
            State::BackingOff(until) if is_turn => {
                *until = now;
                self.wake_at(now, Wake::Contender(id));
            }
            State::BackingOff(_) => {}
            State::Waiting { .. } if released_here && nodes_before == 0 => self.race(env, now, id),
            State::Waiting { until, .. } => {
                if let Some(step) = step {
                    contender.contested = true;
                    let turns = u32::try_from(nodes_before).unwrap_or(u32::MAX);
                    let turn_at = now.after(step.saturating_mul(turns)).after(self.rng.below(step));
                    *until = turn_at.min(*until);
                } else {
                    *until = now;
                }
                let until = *until;
                self.wake_at(until, Wake::Contender(id));
            }
        }
    }

    /// A peer is connected again, and messages from it were lost, perhaps a Release. Every waiter
    /// retries soon, unless it tried a moment ago. Without a majority no round could answer; the
    /// peer that completes the majority will call this again.
    pub(crate) fn retry_waiters(&mut self, env: &Env<'_>, now: Instant) {
        let cell = env.cell();
        if !cell.is_quorum(cell.everyone().without(self.silent)) {
            return;
        }
        let waiting = self.contenders.iter().filter_map(|(id, contender)| {
            matches!(contender.state, State::Waiting { .. }).then_some(id)
        });
        let waiting: Vec<ContenderId> = waiting.collect();
        let count = u32::try_from(waiting.len()).unwrap_or(u32::MAX);
        let within = RETRY_WITHIN.max(RETRY_SPACING.saturating_mul(count));
        let settled = self.settled_span(env.config);
        // Both ends of the connection have to be ready.
        let from = now.after(env.config.attempt_timeout_min);
        for id in waiting {
            let drawn = from.after(self.rng.below(within));
            let Some(contender) = self.contenders.get_mut(id) else { continue };
            let retry_at = drawn.max(contender.tried_at.after(settled));
            if let State::Waiting { until, .. } = &mut contender.state
                && retry_at < *until
            {
                *until = retry_at;
                self.wake_at(retry_at, Wake::Contender(id));
            }
        }
    }

    /// How long a node leaves its turn to another: two of the longest round trips.
    pub(crate) fn turn_span(&self, config: &Config) -> Duration {
        let trip = self.network_trip.max(self.turn_trip);
        if !trip.is_zero() {
            return trip.saturating_mul(2).max(TURN_MIN);
        }
        let trips = self.round_trip.map(|trip| trip.saturating_mul(2).max(TURN_MIN));
        trips.unwrap_or(config.stagger_max).min(config.stagger_max)
    }

    /// The acceptor here accepted a proposal of another node, so a waiter that is about to try
    /// waits on: it would be rejected. It waits no longer than a round takes, counted from its last
    /// try: the proposal may still lose, and the acceptors may have forgotten the queue. `known_at`
    /// stays as it is: the proposal may be late, and its lease released before it arrived.
    pub(crate) fn on_taken(&mut self, env: &mut Env<'_>, now: Instant, by: &Sighting) {
        let Some(id) = self.contenders.find(by.label.name()) else { return };
        let settled = self.settled_span(env.config);
        let Some(contender) = self.contenders.get_mut(id) else { return };
        if matches!(contender.state, State::Waiting { by: None, .. }) {
            // It left its turn to other nodes, and now one of them holds the name.
            let until = now.after(by.remaining.as_duration());
            return self.wait(env, now, id, until, by.clone());
        }
        let State::Waiting { until, by: known } = &mut contender.state else { return };
        let retry_at = contender.tried_at.after(settled);
        if *until < retry_at {
            *until = retry_at;
            *known = Some(by.clone());
            let Waiter { token, wait_ends_at, .. } = contender.first;
            self.wake_at(retry_at, Wake::Contender(id));
            if wait_ends_at < retry_at {
                self.wake_at(wait_ends_at, Wake::Waiter(id, token));
            }
        }
    }

    /// Denies the requests whose wait has ended. If the known holder is out of date for some of
    /// them, the first in the queue begins a round, and they learn from that.
    fn deny_or_race(&mut self, env: &mut Env<'_>, now: Instant, id: ContenderId) {
        self.deny_ended_waits(env, now, id);
        if let Some(contender) = self.contenders.get(id)
            && matches!(contender.state, State::Waiting { by: Some(_), .. })
            && contender.has_ended_wait(now)
        {
            self.race(env, now, id);
        }
    }

    pub(crate) fn deny_ended_waits(&mut self, env: &mut Env<'_>, now: Instant, id: ContenderId) {
        let Some(contender) = self.contenders.get(id) else { return };
        let State::Waiting { by: Some(by), .. } = &contender.state else { return };
        let by = by.clone();
        let first = contender.first.token;
        for waiter in self.contenders.take_deniable(id, now) {
            env.out.emit(Event::Denied { token: waiter.token, by: by.clone() });
        }
        self.first_left(env, now, id, first);
    }

    /// The first waiter, `before`, may have left. It may have had no time to retry; the next one
    /// may have.
    pub(crate) fn first_left(
        &mut self,
        env: &Env<'_>,
        now: Instant,
        id: ContenderId,
        before: Token,
    ) {
        let Some(Contender { first, state: State::Waiting { until, .. }, .. }) =
            self.contenders.get(id)
        else {
            return;
        };
        if first.token == before {
            return;
        }
        let until = *until;
        let retry_at = self.retry_at(self.settled_span(env.config), now, until);
        if let Some(Contender { state: State::Waiting { until, .. }, .. }) =
            self.contenders.get_mut(id)
            && retry_at < *until
        {
            *until = retry_at;
            self.wake_at(retry_at, Wake::Contender(id));
        }
    }

    /// The wait or the deadline of a request has ended. The first in the queue needs this wake-up
    /// only while it waits: its rounds and pauses end by its deadline.
    pub(crate) fn wait_ended(
        &mut self,
        env: &mut Env<'_>,
        now: Instant,
        id: ContenderId,
        token: Token,
    ) {
        self.deny_or_race(env, now, id);
        let Some(waiter) = self.contenders.waiter(id, token) else { return };
        let deadline = waiter.deadline;
        let Some(contender) = self.contenders.get(id) else { return };
        if contender.first.token == token {
            return;
        }
        if now < deadline {
            return self.wake_at(deadline, Wake::Waiter(id, token));
        }
        // The round in flight may name a holder.
        let answer_by = deadline.after(self.settled_span(env.config));
        if now < answer_by && matches!(contender.state, State::Racing(_)) {
            return self.wake_at(answer_by, Wake::Waiter(id, token));
        }
        self.contenders.remove_queued(id, token);
        env.out.emit(Event::NoQuorum { token });
    }

    /// Wakes a contender or one of its waiters at the time that its state gives. A waiter that
    /// leaves does not take its wake-up along. Once stale wake-ups outnumber the others, all are
    /// made anew, so that clients that ask for long waits and leave cannot fill the memory.
    pub(crate) fn wake_at(&mut self, at: Instant, wake: Wake) {
        self.waits.push(at, wake);
        let size = self.contenders.waiter_count().max(self.contenders.slot_count());
        if self.waits.len() <= 4 * size + STALE_WAKES_MAX {
            return;
        }
        self.waits.clear();
        for (id, contender) in self.contenders.iter() {
            match contender.state {
                State::BackingOff(until) | State::Waiting { until, .. } => {
                    self.waits.push(until, Wake::Contender(id));
                }
                State::Racing(_) => {}
            }
            for waiter in contender.waiters() {
                self.waits.push(waiter.wait_ends_at, Wake::Waiter(id, waiter.token));
            }
        }
    }

    pub(crate) fn waited_names(&self) -> impl Iterator<Item = WaitedName<'_>> {
        self.contenders.iter().filter_map(|(_, contender)| {
            let held_by = match &contender.state {
                State::Waiting { by, .. } => by.as_ref(),
                // A request whose first round is under way does not wait yet.
                State::Racing(_) | State::BackingOff(_) if contender.rest.is_empty() => {
                    return None;
                }
                State::Racing(_) | State::BackingOff(_) => None,
            };
            let (name, waiters) = (contender.first.label.name(), 1 + contender.rest.len());
            Some(WaitedName { name, waiters, held_by })
        })
    }

    /// Whether any request at this node waits for a name.
    pub(crate) fn has_waiters(&self, name: Name<'_>) -> bool {
        self.contenders.waiter_count() > 0 && self.contenders.find(name).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outbox::Outbox;
    use crate::protocol::record::Ceilings;
    use crate::{Cell, Drift, Holder, Label, NodeId, Ttl};

    #[test]
    fn abandoned_waits_leave_no_wake_ups_behind() {
        let members: Vec<NodeId> = (1..=3).filter_map(NodeId::new).collect();
        let cell = Cell::new(&members, Ttl::MAX, Drift::NONE).expect("valid");
        let config = Config::new(members[0], cell, 1);
        let (mut ceilings, mut out) = (Ceilings::none(Instant::ZERO), Outbox::default());
        let env = &mut Env {
            config: &config,
            ceilings: &mut ceilings,
            out: &mut out,
            learners: &[],
            watched: false,
        };
        let mut proposer = Proposer::new(1, 0);
        let name = Name::new("a").expect("a name");
        let until = Instant::from_nanos(3_600_000_000_000);
        let waiter = |token| Waiter {
            token: Token(token),
            label: Label::new(name, Holder::NONE),
            ttl: Ttl::MAX,
            lasts: None,
            asked_at: Instant::ZERO,
            wait_ends_at: until,
            deadline: until,
        };
        proposer.acquire(env, Instant::ZERO, waiter(1), None);
        proposer.acquire(env, Instant::ZERO, waiter(2), None);
        for token in 3..100_000 {
            proposer.acquire(env, Instant::ZERO, waiter(token), None);
            assert!(proposer.abandon(env, Instant::ZERO, name, Token(token)));
        }
        let wakes = proposer.waits.len();
        assert!(wakes <= 2 * STALE_WAKES_MAX, "{wakes} wake-ups");
        // The clients that stayed are still woken.
        let mut now = Instant::ZERO;
        while proposer.next_wake_at() < Instant::MAX {
            now = proposer.next_wake_at().max(now).after(Duration::from_secs(1));
            proposer.handle_timeout(env, now);
        }
        let answers = core::iter::from_fn(|| env.out.pop_event());
        let answered: Vec<Token> = answers
            .filter_map(|event| match event {
                Event::NoQuorum { token } => Some(token),
                _ => None,
            })
            .collect();
        assert_eq!(answered, [Token(1), Token(2)]);
    }
}
