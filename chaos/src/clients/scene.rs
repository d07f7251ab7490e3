//! What a worker does, drawn from its seed, and how it writes that down.
//!
//! Owns the log, the way to the fenced store and the draws. Deliberately lacks any way to the cell.

use std::time::Duration;

use anyhow::{Context as _, Result};
use paxoslease_rig::clock;
use paxoslease_sim::Rng;
use rustix::process::{Signal, getpid, kill_process};

use super::{Manner, Options};
use crate::log::{Ask, Belief, Deed, End, Kind, Log, Nanos, What, now};
use crate::store::{self, Writer};

/// What to ask for, and how it ends.
#[derive(Clone, Debug)]
pub(super) struct Wish {
    pub(super) ask: Ask,
    /// Unique, so that a refusal that names the holder names the tenure.
    pub(super) holder: String,
    /// How long it is to be held; renewed, if that is longer than the ttl.
    pub(super) hold: Duration,
    pub(super) ending: Ending,
}

/// How a tenure, or the wish for one, ends if nothing else ends it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ending {
    /// Given back, and the confirmation waited for.
    Release,
    /// Not renewed any more.
    Forget,
    /// The process dies.
    Crash,
    /// The client leaves after this long, in the middle of the request.
    Abandon(Duration),
}

/// A tenure being held.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) belief: Belief,
    pub(super) ending: Ending,
    /// When the holder means to end it.
    pub(super) ends_at: Nanos,
}

/// A worker's draws, log and store.
#[derive(Debug)]
pub(super) struct Scene {
    pub(super) options: Options,
    pub(super) rng: Rng,
    log: Log,
    store: Writer,
    attempts: u64,
}

impl Scene {
    pub(super) fn begin(options: &Options) -> Result<Self> {
        let (rng, id) = (Rng::new(options.seed, 1), options.id.clone());
        let mut log = Log::create(&options.log).context("cannot make a log")?;
        let folder = options.log.parent().context("the log has no folder")?;
        let store = Writer::connect(&store::socket(folder), &id).context("no fenced store")?;
        let Options { kind, seed, through, .. } = *options;
        log.write(What::Began { client: id, kind, seed, through })?;
        Ok(Self { options: options.clone(), rng, log, store, attempts: 0 })
    }

    /// Draws what to do next, and writes down that it is asked for.
    pub(super) fn ask(&mut self) -> Result<Wish> {
        self.attempts += 1;
        let wish = match self.options.manner {
            Manner::Contend => self.contend(),
            Manner::Wait => self.wait(),
            Manner::Probe => self.probe(),
        };
        self.log.write(What::Asked(wish.ask.clone()))?;
        Ok(wish)
    }

    /// For a name that everybody wants.
    fn contend(&mut self) -> Wish {
        let (rng, longest) = (&mut self.rng, self.options.ttl_max_ms);
        let shortest = match self.options.kind {
            Kind::Library | Kind::Resp | Kind::Http => longest / 4,
            // Its margin is a twentieth: what it has on a busy machine to end a command in time.
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
        self.wish(name, (ttl_ms, wait_ms), hold, ending)
    }

    /// How long an answer may take beyond what is waited for. Nodes give up after 2 s.
    pub(super) const fn patience(&self) -> Duration {
        match self.options.manner {
            Manner::Contend | Manner::Wait => Duration::from_secs(3),
            Manner::Probe => Duration::from_secs(1),
        }
    }

    /// For the name that is handed on. Its ttl is long, so that a waiter that sleeps until the end
    /// of a lease that was given back is noticed.
    fn wait(&mut self) -> Wish {
        let (name, longest) = (self.options.names[0].clone(), self.options.ttl_max_ms);
        let hold = self.rng.millis(20, 200);
        self.wish(name, (longest, 2 * longest), hold, Ending::Release)
    }

    /// For a name of its own, sometimes for long enough to renew it.
    fn probe(&mut self) -> Wish {
        let (name, ttl_ms) = (self.options.names[0].clone(), self.options.ttl_max_ms / 4);
        let hold_max = if self.rng.chance(100) { 2 * ttl_ms } else { 100 };
        let hold = self.rng.millis(0, hold_max);
        self.wish(name, (ttl_ms, 0), hold, Ending::Release)
    }

    fn wish(
        &self,
        name: String,
        (ttl_ms, wait_ms): (u64, u64),
        hold: Duration,
        ending: Ending,
    ) -> Wish {
        let (client, kind, attempt) = (self.options.id.clone(), self.options.kind, self.attempts);
        let holder = format!("{client}#{attempt}");
        let ask = Ask { client, kind, name, attempt, ttl_ms, wait_ms };
        Wish { ask, holder, hold, ending }
    }

    /// It was refused. `asked_at` was read before the request left.
    pub(super) fn denied(
        &mut self,
        wish: &Wish,
        asked_at: Nanos,
        fence: Option<u64>,
    ) -> Result<()> {
        self.log.write(What::Denied { ask: wish.ask.clone(), asked_at, fence })?;
        self.rest(20, 200);
        Ok(())
    }

    /// Nobody knows what became of it.
    pub(super) fn failed(&mut self, ask: &Ask, deed: Deed, why: impl ToString) -> Result<()> {
        let (client, name) = (ask.client.clone(), ask.name.clone());
        let why = why.to_string();
        Ok(self.log.write(What::Failed { client, name, attempt: ask.attempt, deed, why })?)
    }

    /// It was granted, which this worker learned at `from`. To be written down by
    /// [`Self::believe`] or [`Self::see`] before anything is done with it.
    pub(super) fn granted(&mut self, wish: &Wish, fence: u64, from: Nanos) -> Held {
        let Ask { client, kind, name, attempt, .. } = wish.ask.clone();
        let belief = Belief { client, kind, name, attempt, fence, from, until: from, renewals: 0 };
        let ends_at = from + wish.hold.as_nanos() as Nanos;
        Held { belief, ending: wish.ending, ends_at }
    }

    /// Writes down a belief that only the clock ends, at `belief.until`.
    pub(super) fn believe(&mut self, held: &Held) -> Result<()> {
        Ok(self.log.write_at(now(), What::Held(held.belief.clone()))?)
    }

    /// Writes down a belief that was seen to hold at `at`, and lasts until `until` if nothing more
    /// is heard.
    pub(super) fn see(&mut self, held: &mut Held, at: Nanos, until: Nanos) -> Result<()> {
        held.belief.until = held.belief.until.max(at).max(until);
        Ok(self.log.extend(at, held.belief.clone())?)
    }

    /// Writes down that a belief was over at `at`.
    pub(super) fn ended(&mut self, held: &Held, at: Nanos, why: End) -> Result<()> {
        let Belief { client, name, attempt, fence, .. } = held.belief.clone();
        Ok(self.log.write_at(at, What::Ended { client, name, attempt, fence, why })?)
    }

    /// The cell said that what was, or is, held was over, to a question that left at `asked_at`.
    pub(super) fn over(&mut self, held: &Held, deed: Deed, asked_at: Nanos) -> Result<()> {
        let Belief { client, name, attempt, fence, .. } = held.belief.clone();
        Ok(self.log.write(What::Over { client, name, attempt, fence, deed, asked_at })?)
    }

    /// The cell confirmed the release of what was held.
    pub(super) fn released(&mut self, held: &Held) -> Result<()> {
        let Belief { client, name, attempt, fence, .. } = held.belief.clone();
        Ok(self.log.write(What::ReleaseAcknowledged { client, name, attempt, fence })?)
    }

    /// Writes to the store under the fence of what is, or was, held.
    pub(super) fn store(&mut self, held: &Held) -> Result<bool> {
        let Belief { name, fence, .. } = &held.belief;
        self.store.write(name, *fence).context("the fenced store is gone")
    }

    /// Writes as somebody does who has not noticed that it is over, sometimes.
    pub(super) fn store_late(&mut self, held: &Held) -> Result<()> {
        if self.rng.chance(500) {
            self.store(held)?;
        }
        Ok(())
    }

    /// Does nothing for a while.
    pub(super) fn rest(&mut self, min_ms: u64, max_ms: u64) {
        clock::sleep(self.rng.millis(min_ms, max_ms));
    }

    /// Dies as by `kill -9`.
    pub(super) fn crash(&mut self, held: &Held) -> Result<()> {
        self.ended(held, now(), End::Crashed)?;
        kill_process(getpid(), Signal::KILL)?;
        // Which may take a moment to arrive.
        loop {
            self.rest(1000, 1000);
        }
    }
}
