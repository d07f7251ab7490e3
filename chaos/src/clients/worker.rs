//! The actions of a worker, drawn from its seed, and their log.
//!
//! Owns the log and the connection to the fenced store. Deliberately lacks the protocols.

use std::time::Duration;

use anyhow::{Context as _, Result};
use paxoslease_rig::clock;
use paxoslease_sim::Rng;
use rustix::process::{Signal, getpid, kill_process};

use super::{Behaviour, ClientOptions};
use crate::log::{AcquireRequest, Belief, EndReason, EventKind, Kind, Log, Nanos, Operation, now};
use crate::store::{self, Writer};

#[derive(Clone, Debug)]
pub(super) struct AcquirePlan {
    pub(super) request: AcquireRequest,
    /// Unique, so that a refusal with the holder identifies the tenure.
    pub(super) holder: String,
    /// How long to hold it, with renewals if that is longer than the ttl.
    pub(super) hold: Duration,
    pub(super) ending: Ending,
}

/// How a tenure or a request ends, if nothing else ends it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ending {
    /// Released, with a wait for the confirmation.
    Release,
    Forget,
    Crash,
    /// The client disconnects after this long, during the request.
    Abandon(Duration),
}

#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) belief: Belief,
    pub(super) ending: Ending,
    pub(super) ends_at: Nanos,
}

/// The random choices, the log and the store of a worker.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) options: ClientOptions,
    pub(super) rng: Rng,
    log: Log,
    store: Writer,
    attempts: u64,
}

impl Worker {
    pub(super) fn begin(options: &ClientOptions) -> Result<Self> {
        let (rng, id) = (Rng::new(options.seed, 1), options.id.clone());
        let mut log = Log::create(&options.log).context("cannot make a log")?;
        let folder = options.log.parent().context("the log has no folder")?;
        let store = Writer::connect(&store::socket(folder), &id).context("no fenced store")?;
        let ClientOptions { kind, seed, through, .. } = *options;
        log.write(EventKind::Began { client: id, kind, seed, through })?;
        Ok(Self { options: options.clone(), rng, log, store, attempts: 0 })
    }

    /// Draws the next request and logs it.
    pub(super) fn ask(&mut self) -> Result<AcquirePlan> {
        self.attempts += 1;
        let plan = match self.options.behaviour {
            Behaviour::Contend => self.contend(),
            Behaviour::Wait => self.wait(),
            Behaviour::Probe => self.probe(),
        };
        self.log.write(EventKind::Asked(plan.request.clone()))?;
        Ok(plan)
    }

    fn contend(&mut self) -> AcquirePlan {
        let (rng, longest) = (&mut self.rng, self.options.ttl_max_ms);
        let shortest = match self.options.kind {
            Kind::Library | Kind::Resp | Kind::Http => longest / 4,
            // A twentieth of the ttl has to be enough to end a command on a busy machine.
            Kind::Lock => longest,
        };
        let ttl_ms = rng.between(shortest, longest);
        let place = rng.below(self.options.names.len() as u64) as usize;
        let wait_ms = if rng.chance(500) { 0 } else { rng.between(50, 2 * longest) };
        let hold = if rng.chance(500) { rng.millis(0, 100) } else { rng.millis(0, 2 * ttl_ms) };
        let ending = match rng.below(20) {
            0 => Ending::Crash,
            1 | 2 => Ending::Abandon(rng.millis(0, 50)),
            3..6 => Ending::Forget,
            _ => Ending::Release,
        };
        let name = self.options.names[place].clone();
        self.plan(name, ttl_ms, wait_ms, hold, ending)
    }

    /// The timeout of a request, without its wait. Nodes give up after 2 s.
    pub(super) const fn timeout(&self) -> Duration {
        match self.options.behaviour {
            Behaviour::Contend | Behaviour::Wait => Duration::from_secs(3),
            Behaviour::Probe => Duration::from_secs(1),
        }
    }

    /// The name that waiters hand over. Its ttl is long, to notice a waiter that sleeps until the
    /// end of a released lease.
    fn wait(&mut self) -> AcquirePlan {
        let (name, longest) = (self.options.names[0].clone(), self.options.ttl_max_ms);
        let hold = self.rng.millis(20, 200);
        self.plan(name, longest, 2 * longest, hold, Ending::Release)
    }

    /// A name that no other client wants, sometimes for long enough to renew it.
    fn probe(&mut self) -> AcquirePlan {
        let (name, ttl_ms) = (self.options.names[0].clone(), self.options.ttl_max_ms / 4);
        let hold_max = if self.rng.chance(100) { 2 * ttl_ms } else { 100 };
        let hold = self.rng.millis(0, hold_max);
        self.plan(name, ttl_ms, 0, hold, Ending::Release)
    }

    fn plan(
        &self,
        name: String,
        ttl_ms: u64,
        wait_ms: u64,
        hold: Duration,
        ending: Ending,
    ) -> AcquirePlan {
        let (client, kind, attempt) = (self.options.id.clone(), self.options.kind, self.attempts);
        let holder = format!("{client}#{attempt}");
        let request = AcquireRequest { client, kind, name, attempt, ttl_ms, wait_ms };
        AcquirePlan { request, holder, hold, ending }
    }

    pub(super) fn denied(
        &mut self,
        plan: &AcquirePlan,
        asked_at: Nanos,
        fence: Option<u64>,
    ) -> Result<()> {
        self.log.write(EventKind::Denied { ask: plan.request.clone(), asked_at, fence })?;
        self.rest(20, 200);
        Ok(())
    }

    pub(super) fn failed(
        &mut self,
        ask: &AcquireRequest,
        operation: Operation,
        why: impl ToString,
    ) -> Result<()> {
        let (ask, why) = (ask.clone(), why.to_string());
        Ok(self.log.write(EventKind::Failed { ask, operation, why })?)
    }

    /// The worker learned of the grant at `from`. [`Self::believe`] or [`Self::see`] has to log it
    /// before the worker acts on it.
    pub(super) fn granted(&mut self, plan: &AcquirePlan, fence: u64, from: Nanos) -> Held {
        let AcquireRequest { client, kind, name, attempt, .. } = plan.request.clone();
        let belief = Belief { client, kind, name, attempt, fence, from, until: from, renewals: 0 };
        let ends_at = from + plan.hold.as_nanos() as Nanos;
        Held { belief, ending: plan.ending, ends_at }
    }

    /// Logs a belief that only the clock ends, at `belief.until`.
    pub(super) fn believe(&mut self, held: &Held) -> Result<()> {
        Ok(self.log.write_at(now(), EventKind::Held(held.belief.clone()))?)
    }

    /// Logs a belief that held at `at`, and lasts until `until` without further events.
    pub(super) fn see(&mut self, held: &mut Held, at: Nanos, until: Nanos) -> Result<()> {
        held.belief.until = held.belief.until.max(at).max(until);
        Ok(self.log.extend(at, held.belief.clone())?)
    }

    pub(super) fn ended(&mut self, held: &Held, at: Nanos, why: EndReason) -> Result<()> {
        Ok(self.log.write_at(at, EventKind::Ended { tenure: held.belief.tenure(), why })?)
    }

    pub(super) fn over(
        &mut self,
        held: &Held,
        operation: Operation,
        asked_at: Nanos,
    ) -> Result<()> {
        let tenure = held.belief.tenure();
        Ok(self.log.write(EventKind::Over { tenure, operation, asked_at })?)
    }

    pub(super) fn released(&mut self, held: &Held) -> Result<()> {
        Ok(self.log.write(EventKind::ReleaseAcknowledged(held.belief.tenure()))?)
    }

    pub(super) fn store(&mut self, held: &Held) -> Result<bool> {
        let Belief { name, fence, .. } = &held.belief;
        self.store.write(name, *fence).context("the fenced store is gone")
    }

    /// Sometimes writes like a holder that has not noticed the end of its lease.
    pub(super) fn store_late(&mut self, held: &Held) -> Result<()> {
        if self.rng.chance(500) {
            self.store(held)?;
        }
        Ok(())
    }

    pub(super) fn rest(&mut self, min_ms: u64, max_ms: u64) {
        clock::sleep(self.rng.millis(min_ms, max_ms));
    }

    pub(super) fn crash(&mut self, held: &Held) -> Result<()> {
        self.ended(held, now(), EndReason::Crashed)?;
        kill_process(getpid(), Signal::KILL)?;
        // The signal may take a moment.
        loop {
            self.rest(1000, 1000);
        }
    }
}
