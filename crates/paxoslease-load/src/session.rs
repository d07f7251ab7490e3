//! The load without its sockets: bytes and the time go in, bytes come out. It reads no clock and
//! blocks on nothing, so a script can play the server.
//!
//! A *slot* is one client with one request under way, bound to one connection; a *link* is the
//! conversation on a connection, whose answers come in the order of its requests. Slots that are
//! free begin an operation when one is due ([`Pace`]).

mod link;
mod phase;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use paxoslease_core::Rng;
use paxoslease_wire::resp::Value;

use self::link::Link;
use self::phase::Phase;
use crate::dialect::{Answer, BadGreeting, Speaker, text_of};
use crate::pace::Pace;
use crate::plan::{Dialect, Extent, Plan, Workload};
use crate::report::{Progress, Report};
use crate::tally::{Kind, Tally, first_word};

/// Names that pairs go through before they begin again, so that a long load has a bound.
const NAMES: u32 = 1_000_000;
/// How long a client of Redis waits before it tries again, give or take a half. Lock libraries
/// wait longer, and hand over less often.
const RETRY_AFTER: Duration = Duration::from_millis(1);
/// For how long nobody may answer: longer than a server makes anyone wait.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
/// The same once nothing counts any more.
const PATIENCE_IN_THE_END: Duration = Duration::from_secs(2);

/// Errors that would come again for the same request: no use in going on.
const LASTING: &[&[u8]] =
    &[b"ERR", b"NAME", b"NOAUTH", b"NOPERM", b"NOPROTO", b"NOSCRIPT", b"TTL", b"WRONGPASS"];

/// Why a load cannot go on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Failure {
    Greeting(BadGreeting),
    Refused(String),
    Garbled(String),
    Fill(String),
    Taken(String),
    Silent,
}

pub(crate) struct Session {
    speaker: Speaker,
    workload: Workload,
    dialect: Dialect,
    extent: Extent,
    warmup: Duration,
    phase: Phase,
    pace: Pace,
    tally: Tally,
    rng: Rng,
    slots: Vec<Slot>,
    links: Vec<Link>,
    free: VecDeque<u32>,
    /// Clients that try again, the first one at the top.
    retries: BinaryHeap<Reverse<(Duration, u32)>>,
    /// Slots that are not free.
    busy: u32,
    /// Operations begun since it counts.
    begun: u64,
    /// Fences of the leases that are renewed; zero for one that is not held.
    leases: Vec<u64>,
    /// The lease whose turn it is; when filling, the name.
    cursor: usize,
    /// Tokens handed out so far.
    tokens: u64,
    /// When an answer came last, or nobody owed one.
    heard_at: Duration,
    /// Links that have something to send.
    pending: Vec<u32>,
    /// For how long it counted, and how many operations were not begun.
    measured: (Duration, u64),
    shares_links: bool,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    link: u32,
    step: Step,
    /// Of the name.
    number: u32,
    /// How many names this slot has gone through.
    round: u32,
    /// Of the grant; before it, the token asked with.
    fence: u64,
    /// When the operation under way was due.
    began_at: Duration,
    /// When the request under way should have been sent.
    due_at: Duration,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Free,
    Acquire,
    /// An acquire that will be answered by a push.
    Queued,
    /// An acquire that will be sent again.
    Retry,
    Renew,
    Release,
}

impl Session {
    /// Every link has its greeting to send.
    pub(crate) fn new(plan: &Plan) -> Self {
        let slot = |index| Slot {
            link: index % plan.connections,
            step: Step::Free,
            number: 0,
            round: 0,
            fence: 0,
            began_at: Duration::ZERO,
            due_at: Duration::ZERO,
        };
        let leases = if let Workload::Renew { leases } = plan.workload { leases } else { 0 };
        let is_handover = plan.workload == Workload::Handover;
        let per_link = plan.in_flight.div_ceil(plan.connections);
        let mut session = Self {
            speaker: Speaker::new(plan),
            workload: plan.workload,
            dialect: plan.dialect,
            extent: plan.extent,
            warmup: plan.warmup,
            phase: Phase::Greeting,
            pace: Pace::new(plan.rate),
            tally: Tally::new(if is_handover { plan.in_flight } else { 0 }),
            rng: Rng::seeded(1),
            slots: (0..plan.in_flight).map(slot).collect(),
            links: (0..plan.connections).map(|_| Link::new(per_link as usize)).collect(),
            free: (0..plan.in_flight).collect(),
            retries: BinaryHeap::with_capacity(plan.in_flight as usize),
            busy: 0,
            begun: 0,
            leases: vec![0; leases as usize],
            cursor: 0,
            tokens: 0,
            heard_at: Duration::ZERO,
            pending: Vec::with_capacity(plan.connections as usize),
            measured: (Duration::ZERO, 0),
            shares_links: is_handover && plan.connections < plan.in_flight,
        };
        for link in 0..session.links.len() {
            session.greet(link);
        }
        session
    }

    fn greet(&mut self, link: usize) {
        self.links[link].reset();
        let Link { out, greetings, .. } = &mut self.links[link];
        *greetings = self.speaker.greet(out);
        self.pend(link);
    }

    fn pend(&mut self, link: usize) {
        if !std::mem::replace(&mut self.links[link].is_pending, true) {
            self.pending.push(link as u32);
        }
    }

    /// A link that has something to send, each once.
    pub(crate) fn next_pending(&mut self) -> Option<usize> {
        let link = self.pending.pop()? as usize;
        self.links[link].is_pending = false;
        Some(link)
    }

    /// What a link has to send. What was sent is to be taken out.
    pub(crate) fn outgoing(&mut self, link: usize) -> &mut Vec<u8> {
        &mut self.links[link].out
    }

    /// Whether the server at the other end has introduced itself.
    pub(crate) fn is_greeted(&self, link: usize) -> bool {
        self.links[link].greetings == 0
    }

    /// A link that waits for an answer, if any does.
    pub(crate) fn waiting_link(&self) -> Option<usize> {
        self.links.iter().position(|link| link.greetings > 0 || !link.asked.is_empty())
    }

    /// Bytes that came on a link. Says how many of them were whole answers.
    pub(crate) fn received(
        &mut self,
        link: usize,
        bytes: &[u8],
        now: Duration,
    ) -> Result<usize, Failure> {
        let mut read = 0;
        loop {
            match Value::parse(&bytes[read..]) {
                Ok(Some((value, len))) => {
                    self.hear(link, value, now)?;
                    read += len;
                }
                Ok(None) => return Ok(read),
                Err(error) => return Err(Failure::Garbled(error.to_string())),
            }
        }
    }

    /// A connection broke, and its requests with it. Another one will begin with the greeting.
    pub(crate) fn lost(&mut self, link: usize, now: Duration) -> Result<(), Failure> {
        for index in 0..self.slots.len() {
            let Slot { link: own, step, .. } = self.slots[index];
            if own as usize == link && !matches!(step, Step::Free | Step::Retry) {
                self.failed(index, b"disconnected", now)?;
            }
        }
        self.greet(link);
        Ok(())
    }

    fn hear(&mut self, link: usize, value: Value<'_>, now: Duration) -> Result<(), Failure> {
        self.heard_at = now;
        if matches!(value, Value::Push(_)) {
            let Some((slot, answer)) = Answer::of_push(value) else { return Ok(()) };
            return match self.slots.get(slot as usize) {
                Some(Slot { step: Step::Queued, .. }) => self.answered(slot as usize, answer, now),
                _ => Err(Failure::Garbled(format!("nobody waits as number {slot}"))),
            };
        }
        if self.links[link].greetings > 0 {
            self.links[link].greetings -= 1;
            let left = self.links[link].greetings;
            return self.speaker.greeted(left, value).map_err(Failure::Greeting);
        }
        let garbled = |text: &str| Failure::Garbled(text.to_owned());
        let asked = self.links[link].asked.pop_front();
        let slot = asked.ok_or_else(|| garbled("an answer to nothing"))?;
        let answer = Answer::of(value).ok_or_else(|| garbled("an answer of another kind"))?;
        self.answered(slot as usize, answer, now)
    }

    fn answered(&mut self, slot: usize, answer: Answer<'_>, now: Duration) -> Result<(), Failure> {
        let Slot { step, number, due_at, .. } = self.slots[slot];
        let took = now.saturating_sub(due_at);
        match (step, answer) {
            (Step::Acquire, Answer::Queued) => self.slots[slot].step = Step::Queued,
            (Step::Acquire | Step::Queued, Answer::Yes(fence)) => {
                self.note(|tally| tally.time(Kind::Acquire, took));
                self.granted(slot, fence, now);
            }
            (Step::Acquire | Step::Queued, Answer::No) => self.refused(slot, now)?,
            (Step::Renew, Answer::Yes(_)) => {
                self.note(|tally| tally.time(Kind::Renew, took));
                self.succeeded(slot, now);
            }
            (Step::Release, Answer::Yes(_)) => {
                self.note(|tally| tally.time(Kind::Release, took));
                if let Some(lease) = self.leases.get_mut(number as usize) {
                    *lease = 0;
                }
                self.succeeded(slot, now);
            }
            (Step::Renew | Step::Release, Answer::No) => {
                self.failed(slot, b"NOTHELD its ttl was over", now)?;
            }
            (_, Answer::Error(text)) => self.failed(slot, text, now)?,
            (step, Answer::Queued | Answer::Yes(_) | Answer::No) => {
                let text = format!("no answer to {step:?}: {answer:?}");
                return Err(Failure::Garbled(text));
            }
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
                    self.note(|tally| tally.grant(slot as u32));
                }
                self.slots[slot].fence = fence;
                self.slots[slot].due_at = now;
                self.ask(slot, Step::Release);
            }
        }
    }

    /// Somebody else holds it.
    fn refused(&mut self, slot: usize, now: Duration) -> Result<(), Failure> {
        let number = self.slots[slot].number;
        match (self.workload, self.dialect) {
            (Workload::Renew { .. }, _) if self.phase == Phase::Filling => {
                return Err(Failure::Taken(text_of(self.speaker.name(number))));
            }
            (Workload::Handover, Dialect::Redis) if self.phase.is_running() => {
                self.slots[slot].step = Step::Retry;
                // Clients that met once are not to meet again and again.
                let after = RETRY_AFTER / 2 + self.rng.below(RETRY_AFTER);
                self.retries.push(Reverse((now + after, slot as u32)));
            }
            _ => {
                self.note(|tally| tally.held += 1);
                self.finish(slot, now);
            }
        }
        Ok(())
    }

    fn succeeded(&mut self, slot: usize, now: Duration) {
        let took = now.saturating_sub(self.slots[slot].began_at);
        self.note(|tally| tally.succeeded(now, took));
        self.finish(slot, now);
    }

    fn failed(&mut self, slot: usize, text: &[u8], now: Duration) -> Result<(), Failure> {
        let kind = first_word(text);
        if LASTING.contains(&kind) {
            return Err(Failure::Refused(text_of(text)));
        }
        if self.phase == Phase::Filling {
            return Err(Failure::Fill(text_of(text)));
        }
        let Slot { step, number, .. } = self.slots[slot];
        // Never asked for again while renewing goes on; whether it was released, nobody knows.
        let is_over = kind == b"NOTHELD" || step == Step::Release;
        if let Some(lease) = self.leases.get_mut(number as usize).filter(|_| is_over) {
            *lease = 0;
        }
        self.note(|tally| tally.error(text));
        self.finish(slot, now);
        Ok(())
    }

    /// Counts it, if it counts.
    fn note(&mut self, count: impl FnOnce(&mut Tally)) {
        if matches!(self.phase, Phase::Measuring { .. }) {
            count(&mut self.tally);
        }
    }

    fn finish(&mut self, slot: usize, now: Duration) {
        self.slots[slot].step = Step::Free;
        self.busy -= 1;
        self.free.push_back(slot as u32);
        self.note(|tally| tally.finished += 1);
        if self.extent == Extent::Count(self.tally.finished) {
            self.end_measuring(now);
        }
    }

    /// Begins what is due. To be called whenever something came, and at [`Session::wake_at`].
    pub(crate) fn pump(&mut self, now: Duration) -> Result<(), Failure> {
        self.advance(now)?;
        while let Some(Reverse((at, slot))) = self.retries.peek().copied() {
            if at > now {
                break;
            }
            self.retries.pop();
            self.ask(slot as usize, Step::Acquire);
        }
        while let Some(slot) = self.free.front().copied() {
            let Some(due_at) = self.take_due(now) else { break };
            self.free.pop_front();
            if self.busy == 0 {
                self.heard_at = now;
            }
            self.busy += 1;
            self.begun += 1;
            self.begin(slot as usize, due_at);
        }
        Ok(())
    }

    fn begin(&mut self, slot: usize, due_at: Duration) {
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
        self.ask(slot, step);
    }

    /// A name that no other slot uses.
    fn take_name(&mut self, slot: usize, first: u32) -> Step {
        let slots = self.slots.len() as u32;
        let Slot { round, number, .. } = &mut self.slots[slot];
        *number = first + slot as u32 + slots * *round;
        *round = (*round + 1) % (NAMES / slots);
        Step::Acquire
    }

    fn ask(&mut self, slot: usize, step: Step) {
        let notify = self.shares_links.then_some(slot as u32);
        let Slot { link, number, fence, .. } = self.slots[slot];
        self.slots[slot].step = step;
        let Link { out, asked, .. } = &mut self.links[link as usize];
        asked.push_back(slot as u32);
        match step {
            Step::Acquire => {
                self.tokens += 1;
                self.slots[slot].fence = self.tokens;
                self.speaker.acquire(out, number, self.tokens, notify);
            }
            Step::Renew => self.speaker.renew(out, number, fence),
            Step::Release => self.speaker.release(out, number, fence),
            Step::Free | Step::Queued | Step::Retry => unreachable!("nothing is asked then"),
        }
        self.pend(link as usize);
    }
}

#[cfg(test)]
mod tests;
