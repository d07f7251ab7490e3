//! The load without its sockets: outcomes and the time go in, requests come out. It reads no clock
//! and never blocks, so a test can script the server.
//!
//! A *slot* is one client with one request in flight. A free slot begins an operation when one is
//! due ([`ArrivalSchedule`]). The [`Protocol`] encodes the requests.

mod phase;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use paxoslease_core::Rng;

use self::phase::Phase;
use crate::arrivals::ArrivalSchedule;
use crate::counters::{Counters, Kind};
use crate::plan::{Extent, Plan, Workload};
use crate::protocol::{Connections, Failure, LeaseRequest, Names, Outcome, Outgoing, Protocol};
use crate::report::{Progress, Report};
use crate::resp::{first_word, text_of};

/// The number of names of pairs, after which they repeat.
const NAMES: u32 = 1_000_000;
/// The average pause of a client that polls; each pause is between a half and one and a half of it.
/// Lock libraries pause longer, and hand over less often.
const RETRY_AFTER: Duration = Duration::from_millis(1);
/// The longest time without an answer: longer than a wait at the server.
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(10);
/// The longest time without an answer after the measurement.
const SILENCE_MAX_AT_END: Duration = Duration::from_secs(2);

/// A load with any protocol.
#[derive(Debug)]
pub struct Session<P> {
    protocol: P,
    names: Names,
    workload: Workload,
    extent: Extent,
    warmup: Duration,
    phase: Phase,
    arrivals: ArrivalSchedule,
    counters: Counters,
    rng: Rng,
    slots: Vec<Slot>,
    free: VecDeque<u32>,
    /// Clients that retry, the earliest first.
    retries: BinaryHeap<Reverse<(Duration, u32)>>,
    /// Slots that are not free.
    busy: u32,
    /// Operations that began during the measurement.
    begun: u64,
    /// Fences of the renewed leases; zero if not held.
    leases: Vec<u64>,
    /// The next lease to renew, or the next name to fill.
    cursor: usize,
    /// The last token.
    tokens: u64,
    /// The time of the last answer, or when no request was in flight.
    heard_at: Duration,
    /// The measured time, and the due operations that did not begin.
    measured: (Duration, u64),
    /// Whether a free slot was not ready.
    has_unready: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    step: Step,
    /// Of the name.
    number: u32,
    /// How many names this slot has used.
    round: u32,
    /// The fence of the grant, or the token of the acquire.
    fence: u64,
    /// When the current operation was due.
    began_at: Duration,
    /// When the current request was due.
    due_at: Duration,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Step {
    #[default]
    Free,
    Acquire,
    /// An acquire that will be sent again.
    Retry,
    Renew,
    Release,
}

impl Step {
    const fn is_waiting(self) -> bool {
        matches!(self, Self::Acquire | Self::Retry)
    }
}

impl<P: Protocol> Session<P> {
    /// A load before its first request.
    pub fn new(plan: &Plan, protocol: P) -> Self {
        let leases = if let Workload::Renew { leases } = plan.workload { leases } else { 0 };
        let is_handover = plan.workload == Workload::Handover;
        Self {
            protocol,
            names: Names::new(&plan.names),
            workload: plan.workload,
            extent: plan.extent,
            warmup: plan.warmup,
            phase: Phase::Opening,
            arrivals: ArrivalSchedule::new(plan.rate),
            counters: Counters::new(if is_handover { plan.in_flight } else { 0 }),
            rng: Rng::seeded(1),
            slots: vec![Slot::default(); plan.in_flight as usize],
            free: (0..plan.in_flight).collect(),
            retries: BinaryHeap::with_capacity(plan.in_flight as usize),
            busy: 0,
            begun: 0,
            leases: vec![0; leases as usize],
            cursor: 0,
            tokens: 0,
            heard_at: Duration::ZERO,
            measured: (Duration::ZERO, 0),
            has_unready: false,
        }
    }

    pub(crate) fn silence_max(&self) -> Duration {
        self.protocol.silence_max()
    }

    fn take_outcomes(&mut self, now: Duration) -> Result<(), Failure> {
        while let Some((slot, outcome)) = self.protocol.next_outcome() {
            self.heard_at = now;
            self.answered(slot as usize, outcome, now)?;
        }
        Ok(())
    }

    fn answered(&mut self, slot: usize, outcome: Outcome, now: Duration) -> Result<(), Failure> {
        let Slot { step, number, due_at, .. } = self.slots[slot];
        let took = now.saturating_sub(due_at);
        match (step, outcome) {
            (Step::Free | Step::Retry, outcome) => {
                return Err(Failure::Garbled(format!("nothing was asked: {outcome:?}")));
            }
            (Step::Acquire, Outcome::Yes(fence)) => {
                self.note(|counters| counters.time(Kind::Acquire, took));
                self.granted(slot, fence, now);
            }
            (Step::Acquire, Outcome::No) => self.refused(slot, now)?,
            (Step::Renew, Outcome::Yes(_)) => {
                self.note(|counters| counters.time(Kind::Renew, took));
                self.succeeded(slot, now);
            }
            (Step::Release, Outcome::Yes(_)) => {
                self.note(|counters| counters.time(Kind::Release, took));
                if let Some(lease) = self.leases.get_mut(number as usize) {
                    *lease = 0;
                }
                self.succeeded(slot, now);
            }
            (Step::Renew | Step::Release, Outcome::No) => {
                self.failed(slot, "NOTHELD its ttl was over", now)?;
            }
            (_, Outcome::Failed(text)) => self.failed(slot, &text, now)?,
        }
        Ok(())
    }

    fn granted(&mut self, slot: usize, fence: Option<u64>, now: Duration) {
        let Slot { number, fence: token, .. } = self.slots[slot];
        let fence = fence.unwrap_or(token);
        match self.workload {
            Workload::Renew { .. } => {
                self.leases[number as usize] = fence;
                self.finish(slot, now);
            }
            Workload::Fill => self.succeeded(slot, now),
            Workload::Pairs | Workload::Mixed { .. } | Workload::Handover => {
                if self.workload == Workload::Handover {
                    self.note(|counters| counters.grant(slot as u32));
                }
                self.slots[slot].fence = fence;
                self.slots[slot].due_at = now;
                self.request(slot, Step::Release, now);
            }
        }
    }

    /// Another client holds the name.
    fn refused(&mut self, slot: usize, now: Duration) -> Result<(), Failure> {
        let number = self.slots[slot].number;
        match self.workload {
            Workload::Renew { .. } if self.phase == Phase::Filling => {
                return Err(Failure::Taken(text_of(self.names.get(number))));
            }
            Workload::Handover if !self.protocol.queues() && self.phase.is_running() => {
                self.slots[slot].step = Step::Retry;
                // A random delay keeps clients from colliding again.
                let after = RETRY_AFTER / 2 + self.rng.below(RETRY_AFTER);
                self.retries.push(Reverse((now + after, slot as u32)));
            }
            _ => {
                self.note(|counters| counters.held += 1);
                self.finish(slot, now);
            }
        }
        Ok(())
    }

    fn succeeded(&mut self, slot: usize, now: Duration) {
        let took = now.saturating_sub(self.slots[slot].began_at);
        self.note(|counters| counters.succeeded(now, took));
        self.finish(slot, now);
    }

    fn failed(&mut self, slot: usize, text: &str, now: Duration) -> Result<(), Failure> {
        if self.phase == Phase::Filling {
            return Err(Failure::Fill(text.to_owned()));
        }
        let Slot { step, number, .. } = self.slots[slot];
        // The load does not renew it any more. A failed release may have worked.
        let is_over = first_word(text.as_bytes()) == b"NOTHELD" || step == Step::Release;
        if let Some(lease) = self.leases.get_mut(number as usize).filter(|_| is_over) {
            *lease = 0;
        }
        self.note(|counters| counters.error(text.as_bytes()));
        self.finish(slot, now);
        Ok(())
    }

    /// Counts during the measurement only.
    fn note(&mut self, count: impl FnOnce(&mut Counters)) {
        if matches!(self.phase, Phase::Measuring { .. }) {
            count(&mut self.counters);
        }
    }

    fn finish(&mut self, slot: usize, now: Duration) {
        self.slots[slot].step = Step::Free;
        self.busy -= 1;
        self.free.push_back(slot as u32);
        self.note(|counters| counters.finished += 1);
        if self.extent == Extent::Count(self.counters.finished) {
            self.end_measuring(now);
        }
    }

    /// Handles outcomes and begins due operations. The caller calls this after every event, and at
    /// [`Session::wake_at`].
    /// Fails when the load cannot go on.
    pub fn pump(&mut self, now: Duration) -> Result<(), Failure> {
        self.take_outcomes(now)?;
        self.advance(now)?;
        while let Some(Reverse((at, slot))) = self.retries.peek().copied() {
            if at > now || !self.protocol.is_ready(slot) {
                break;
            }
            self.retries.pop();
            self.request(slot as usize, Step::Acquire, now);
        }
        self.has_unready = false;
        for _ in 0..self.free.len() {
            let Some(slot) = self.free.pop_front() else { break };
            if !self.protocol.is_ready(slot) {
                self.has_unready = true;
                self.free.push_back(slot);
                continue;
            }
            let Some(due_at) = self.take_due(now) else {
                self.free.push_front(slot);
                break;
            };
            if self.busy == 0 {
                self.heard_at = now;
            }
            self.busy += 1;
            self.begun += 1;
            self.begin(slot as usize, due_at, now);
        }
        Ok(())
    }

    fn begin(&mut self, slot: usize, due_at: Duration, now: Duration) {
        self.slots[slot].began_at = due_at;
        self.slots[slot].due_at = due_at;
        let step = match self.workload {
            Workload::Renew { .. } => {
                let lease = self.cursor;
                let fence = self.leases[lease];
                self.cursor += 1;
                self.slots[slot].number = lease as u32;
                self.slots[slot].fence = fence;
                match self.phase {
                    Phase::Draining => Step::Release,
                    _ if fence == 0 => Step::Acquire,
                    _ => Step::Renew,
                }
            }
            Workload::Pairs => self.take_name(slot, 0),
            Workload::Fill => {
                self.slots[slot].number = self.cursor as u32;
                self.cursor += 1;
                Step::Acquire
            }
            Workload::Mixed { hot_names, hot_share } => {
                let drawn = self.rng.bits();
                if (drawn as f64) < hot_share * u64::MAX as f64 {
                    self.slots[slot].number = (self.rng.bits() % u64::from(hot_names)) as u32;
                    Step::Acquire
                } else {
                    self.take_name(slot, hot_names)
                }
            }
            Workload::Handover => {
                self.slots[slot].number = 0;
                Step::Acquire
            }
        };
        self.request(slot, step, now);
    }

    /// A name that no other slot uses.
    fn take_name(&mut self, slot: usize, first: u32) -> Step {
        let slots = self.slots.len() as u32;
        let Slot { round, number, .. } = &mut self.slots[slot];
        *number = first + slot as u32 + slots * *round;
        *round = (*round + 1) % (NAMES / slots);
        Step::Acquire
    }

    fn request(&mut self, slot: usize, step: Step, now: Duration) {
        self.slots[slot].step = step;
        let Slot { number, fence, .. } = self.slots[slot];
        let request = match step {
            Step::Acquire => {
                self.tokens += 1;
                self.slots[slot].fence = self.tokens;
                LeaseRequest::Acquire { token: self.tokens }
            }
            Step::Renew => LeaseRequest::Renew { fence },
            Step::Release => LeaseRequest::Release { fence },
            Step::Free | Step::Retry => unreachable!("nothing is asked then"),
        };
        self.protocol.request(slot as u32, number, request, now);
    }
}

impl<P: Connections> Session<P> {
    pub(crate) fn protocol(&mut self) -> &mut P {
        &mut self.protocol
    }

    pub fn outgoing(&mut self) -> &mut Outgoing {
        self.protocol.outgoing()
    }

    /// Handles received bytes, and returns how many of them were complete answers.
    /// Fails when the load cannot go on.
    pub fn received(&mut self, link: usize, bytes: &[u8], now: Duration) -> Result<usize, Failure> {
        let read = self.protocol.received(link, bytes, now)?;
        if read > 0 {
            self.heard_at = now;
        }
        self.take_outcomes(now)?;
        Ok(read)
    }

    /// A connection broke, and its requests failed.
    /// Fails when the load cannot go on.
    pub fn lost(&mut self, link: usize, now: Duration) -> Result<(), Failure> {
        self.protocol.lost(link, now);
        self.take_outcomes(now)
    }
}

#[cfg(test)]
mod tests;
