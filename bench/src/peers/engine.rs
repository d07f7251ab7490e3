//! Clients that each have one operation under way, whatever the protocol: what they ask next, by
//! the rules of the product's load generator. It reads no clock and has no sockets.
//!
//! What an operation takes on the wire is the business of a [`Protocol`], which is asked and
//! later says what came of it.

use std::collections::VecDeque;
use std::time::Duration;

use anyhow::{Result, bail};
use paxoslease_core::Rng;
use paxoslease_load::Workload;

use super::measure::Measure;
use super::names::Names;
use super::wire::Conversation;
use super::{Load, Loaded};

/// How long a client that polls waits before it tries again, as the product's generator does with
/// Redis. Libraries wait longer, Redlock's two hundred milliseconds, and hand over less often.
const RETRY_AFTER: Duration = Duration::from_millis(1);
/// How long to wait for servers that are not needed, since one may be dead.
const OPENING_MAX: Duration = Duration::from_secs(1);
/// For how long nothing may come of anything, once it no longer counts.
const PATIENCE_IN_THE_END: Duration = Duration::from_secs(5);

/// What a client asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ask {
    Acquire,
    Renew,
    Release,
}

/// What came of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    Yes,
    /// Held by another, or no longer held.
    No,
    Failed(&'static str),
}

/// How operations are spoken.
pub(super) trait Protocol {
    /// Whether all that is held is given back by closing the connections.
    const CLOSE_RELEASES: bool;

    /// What there is to send.
    fn links(&mut self) -> &mut Links;

    /// A connection came about.
    fn connected(&mut self, link: usize);

    /// A connection broke.
    fn lost(&mut self, link: usize, now: Duration);

    /// Bytes that came. Says how many of them were whole answers.
    fn received(&mut self, link: usize, bytes: &[u8], now: Duration) -> Result<usize>;

    /// Whether this client can ask anything.
    fn is_ready(&self, client: u32) -> bool;

    /// Whether every connection is there, also those that clients can do without.
    fn is_whole(&self) -> bool;

    /// Asks something about the lease of this number, with a token of the client's choice.
    fn ask(&mut self, client: u32, ask: Ask, number: u32, token: u64, now: Duration);

    /// What came of something that a client had asked.
    fn next_outcome(&mut self) -> Option<(u32, Outcome)>;

    /// Says goodbye where that is the custom.
    fn close(&mut self);

    /// Whether that was heard, and everything else that was asked.
    fn is_closed(&self) -> bool;
}

/// What is to be sent on each connection.
#[derive(Debug)]
pub(super) struct Links {
    out: Vec<Vec<u8>>,
    pending: Vec<usize>,
}

impl Links {
    pub(super) fn new(links: usize) -> Self {
        Self { out: vec![Vec::new(); links], pending: Vec::with_capacity(links) }
    }

    /// Where more is to be written to.
    pub(super) fn say(&mut self, link: usize) -> &mut Vec<u8> {
        if self.out[link].is_empty() {
            self.pending.push(link);
        }
        &mut self.out[link]
    }

    /// What was not sent will never be.
    pub(super) fn clear(&mut self, link: usize) {
        self.out[link].clear();
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Opening,
    /// Takes the leases that will be renewed.
    Filling,
    Running,
    /// Begins nothing new, gives back what is held.
    Draining,
    Closing,
    Done,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Free,
    Asked(Ask),
    /// Will ask for the same again.
    Polling,
    /// Something failed; it pauses so that failures do not become the load.
    Resting,
}

#[derive(Clone, Copy, Debug)]
struct Client {
    step: Step,
    number: u32,
    token: u64,
    began_at: Duration,
    /// Whether the operation under way is one of the load's.
    is_measured: bool,
}

/// A load on whatever speaks this protocol.
pub(super) struct Engine<P> {
    protocol: P,
    workload: Workload,
    measure: Measure,
    names: Names,
    phase: Phase,
    clients: Vec<Client>,
    free: VecDeque<u32>,
    /// Clients that poll or rest, and until when.
    pauses: VecDeque<(Duration, u32)>,
    /// Clients that are not free.
    busy: u32,
    /// Leases that were asked for, or in the end given back.
    cursor: u32,
    /// Leases that are no longer held although they should be.
    lost: Vec<u32>,
    tokens: u64,
    rng: Rng,
    heard_at: Duration,
}

impl<P: Protocol> Engine<P> {
    pub(super) fn new(protocol: P, load: &Load) -> Self {
        let client = Client {
            step: Step::Free,
            number: 0,
            token: 0,
            began_at: Duration::ZERO,
            is_measured: false,
        };
        Self {
            protocol,
            workload: load.workload,
            measure: Measure::new(load),
            names: Names::new(load),
            phase: Phase::Opening,
            clients: vec![client; load.in_flight as usize],
            free: (0..load.in_flight).collect(),
            pauses: VecDeque::with_capacity(load.in_flight as usize),
            busy: 0,
            cursor: 0,
            lost: Vec::new(),
            tokens: 0,
            rng: Rng::seeded(2),
            heard_at: Duration::ZERO,
        }
    }

    /// What it came to, once it is done.
    pub(super) fn loaded(self) -> Loaded {
        self.measure.loaded()
    }

    fn leases(&self) -> u32 {
        if let Workload::Renew { leases } = self.workload { leases } else { 0 }
    }

    fn hear(&mut self, client: u32, outcome: Outcome, now: Duration) -> Result<()> {
        self.heard_at = now;
        let Client { step, number, began_at, is_measured, .. } = self.clients[client as usize];
        let Step::Asked(ask) = step else { bail!("nothing was asked, and came to {outcome:?}") };
        let took = now.saturating_sub(began_at);
        match (ask, outcome) {
            (Ask::Acquire, Outcome::Yes) => match self.workload {
                // Taken before the load begins, or anew after it was lost.
                Workload::Renew { .. } => self.finish(client, is_measured, now),
                Workload::Fill => self.succeed(client, took, now),
                Workload::Pairs | Workload::Mixed { .. } | Workload::Handover => {
                    self.measure.granted(client, now);
                    self.ask(client, Ask::Release, now);
                }
            },
            (Ask::Acquire, Outcome::No) => match self.workload {
                _ if self.phase == Phase::Filling => bail!("lease {number} is held by another"),
                Workload::Handover if self.phase == Phase::Running => {
                    self.pause(client, Step::Polling, now);
                }
                _ => self.finish(client, is_measured, now),
            },
            (Ask::Renew | Ask::Release, Outcome::Yes) if is_measured => {
                self.succeed(client, took, now);
            }
            (Ask::Renew | Ask::Release, Outcome::Yes) => self.finish(client, false, now),
            (ask @ (Ask::Renew | Ask::Release), Outcome::No) => {
                if ask == Ask::Renew {
                    self.lost.push(number);
                }
                self.fail(client, "it was no longer held", now)?;
            }
            (_, Outcome::Failed(why)) => self.fail(client, why, now)?,
        }
        Ok(())
    }

    fn succeed(&mut self, client: u32, took: Duration, now: Duration) {
        self.measure.succeeded(took, now);
        self.free(client);
    }

    /// It came to its end, and that is neither a success nor a failure.
    fn finish(&mut self, client: u32, is_measured: bool, now: Duration) {
        if is_measured {
            self.measure.refused(now);
        }
        self.free(client);
    }

    fn fail(&mut self, client: u32, why: &'static str, now: Duration) -> Result<()> {
        if self.phase == Phase::Filling {
            bail!("a lease to renew could not be taken: {why}");
        }
        if self.clients[client as usize].is_measured {
            self.measure.failed(why, now);
        }
        self.pause(client, Step::Resting, now);
        Ok(())
    }

    fn free(&mut self, client: u32) {
        self.clients[client as usize].step = Step::Free;
        self.free.push_back(client);
        self.busy -= 1;
    }

    /// Half to one and a half times as long as the usual pause, so that clients that met once do
    /// not meet again and again.
    fn pause(&mut self, client: u32, step: Step, now: Duration) {
        self.clients[client as usize].step = step;
        let pause = RETRY_AFTER / 2 + self.rng.below(RETRY_AFTER);
        self.pauses.push_back((now + pause, client));
    }

    fn ask(&mut self, client: u32, ask: Ask, now: Duration) {
        let is_kept = matches!(self.workload, Workload::Renew { .. } | Workload::Fill);
        self.tokens += 1;
        let Client { step, number, token, .. } = &mut self.clients[client as usize];
        *step = Step::Asked(ask);
        if is_kept {
            // Whoever renews it must know it, and nobody else wants the name.
            *token = u64::from(*number) + 1;
        } else if ask == Ask::Acquire {
            *token = self.tokens;
        }
        let (number, token) = (*number, *token);
        self.protocol.ask(client, ask, number, token, now);
    }

    /// Goes on as long as the phase it is in is over.
    fn advance(&mut self, now: Duration) {
        loop {
            let before = self.phase;
            self.leave_phase_if_over(now);
            if self.phase == before {
                return;
            }
        }
    }

    fn leave_phase_if_over(&mut self, now: Duration) {
        match self.phase {
            Phase::Opening => {
                let mut clients = 0..self.clients.len() as u32;
                let is_whole = self.protocol.is_whole() || now >= OPENING_MAX;
                if is_whole && clients.all(|client| self.protocol.is_ready(client)) {
                    self.phase = Phase::Filling;
                }
            }
            Phase::Filling if self.busy == 0 && self.cursor == self.leases() => {
                self.measure.warm_up(now);
                self.phase = Phase::Running;
            }
            Phase::Running if self.measure.is_over(now) => {
                self.phase = Phase::Draining;
                self.heard_at = now;
                self.cursor = if P::CLOSE_RELEASES { self.leases() } else { 0 };
                self.end_pauses(now);
            }
            Phase::Draining
                if (self.busy == 0 && self.cursor == self.leases())
                    || now.saturating_sub(self.heard_at) >= PATIENCE_IN_THE_END =>
            {
                self.phase = Phase::Closing;
                // What was filled is to stay.
                if self.workload != Workload::Fill {
                    self.protocol.close();
                }
            }
            Phase::Closing
                if self.protocol.is_closed()
                    || now.saturating_sub(self.heard_at) >= 2 * PATIENCE_IN_THE_END =>
            {
                self.phase = Phase::Done;
            }
            Phase::Filling | Phase::Running | Phase::Draining | Phase::Closing | Phase::Done => {}
        }
    }

    fn end_pauses(&mut self, now: Duration) {
        while let Some((_, client)) = self.pauses.pop_front() {
            let is_polling = self.clients[client as usize].step == Step::Polling;
            self.finish(client, is_polling, now);
        }
    }

    /// Those whose pause is over go on.
    fn go_on(&mut self, now: Duration) {
        for _ in 0..self.pauses.len() {
            let Some((at, client)) = self.pauses.pop_front() else { return };
            let step = self.clients[client as usize].step;
            if at > now || !self.protocol.is_ready(client) {
                self.pauses.push_back((at.max(now), client));
            } else if step == Step::Polling {
                self.ask(client, Ask::Acquire, now);
            } else {
                self.free(client);
            }
        }
    }

    fn begin_some(&mut self, now: Duration) {
        for _ in 0..self.free.len() {
            let Some(client) = self.free.pop_front() else { return };
            if !self.protocol.is_ready(client) {
                self.free.push_back(client);
                continue;
            }
            let Some((ask, number, is_measured)) = self.take_due(client, now) else {
                self.free.push_front(client);
                return;
            };
            self.busy += 1;
            let client_now = &mut self.clients[client as usize];
            (client_now.number, client_now.began_at) = (number, now);
            client_now.is_measured = is_measured;
            self.ask(client, ask, now);
        }
    }

    /// What a client may do now: of which lease, and whether it is part of the load.
    fn take_due(&mut self, client: u32, now: Duration) -> Option<(Ask, u32, bool)> {
        match self.phase {
            Phase::Filling | Phase::Draining if self.cursor < self.leases() => {
                self.cursor += 1;
                let is_filling = self.phase == Phase::Filling;
                let ask = if is_filling { Ask::Acquire } else { Ask::Release };
                Some((ask, self.cursor - 1, false))
            }
            Phase::Running if self.measure.begin(now) => match self.workload {
                Workload::Renew { .. } => match self.lost.pop() {
                    Some(number) => Some((Ask::Acquire, number, true)),
                    None => Some((Ask::Renew, self.names.next(client), true)),
                },
                Workload::Pairs | Workload::Mixed { .. } | Workload::Handover | Workload::Fill => {
                    Some((Ask::Acquire, self.names.next(client), true))
                }
            },
            _ => None,
        }
    }
}

impl<P: Protocol> Conversation for Engine<P> {
    fn connected(&mut self, link: usize, _: Duration) {
        self.protocol.connected(link);
    }

    fn lost(&mut self, link: usize, now: Duration) {
        self.protocol.lost(link, now);
    }

    fn received(&mut self, link: usize, bytes: &[u8], now: Duration) -> Result<usize> {
        self.protocol.received(link, bytes, now)
    }

    fn pump(&mut self, now: Duration) -> Result<()> {
        while let Some((client, outcome)) = self.protocol.next_outcome() {
            self.hear(client, outcome, now)?;
        }
        self.advance(now);
        self.go_on(now);
        self.begin_some(now);
        Ok(())
    }

    fn next_pending(&mut self) -> Option<usize> {
        self.protocol.links().pending.pop()
    }

    fn outgoing(&mut self, link: usize) -> &mut Vec<u8> {
        &mut self.protocol.links().out[link]
    }

    fn wake_at(&self) -> Option<Duration> {
        let pause_ends_at = self.pauses.iter().map(|(at, _)| *at).min();
        [self.measure.wake_at(), pause_ends_at].into_iter().flatten().min()
    }

    fn is_done(&self) -> bool {
        self.phase == Phase::Done
    }
}
