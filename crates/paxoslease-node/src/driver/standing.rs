//! Requests about standing leases. Each is a sequence of requests to the core: an acquire and the
//! operation that sets the end, or a renewal and that operation.
//!
//! The caller gets one answer, after the last step. Its answer counts from the first step, so no
//! holder believes longer than the members exclude others.

use std::collections::BTreeMap;
use std::time::Duration;

use paxoslease_core::{Acquire, Instant, Label, Lasts, Name, Renew, Tenure, Token, Ttl};
use slab::Slab;

use super::Driver;
use crate::request::{Answer, ReplyTo, RequestKind};

/// The record of a lease that ends soon lasts this much longer than the lease. The end that the
/// members store ends it on time, and no member has to renew the record.
const RECORD_MARGIN: Duration = Duration::from_secs(1);

/// The requests that have no answer, or whose last step has none.
#[derive(Default)]
pub(super) struct StandingRequests {
    requests: Slab<StandingRequest>,
    /// The slots of those whose caller waits for an answer.
    by_token: BTreeMap<u64, usize>,
}

struct StandingRequest {
    /// The token of the caller's request.
    token: Token,
    label: Label,
    lasts: Lasts,
    step: Step,
    /// Whether the caller left. A tenure that is granted all the same is released.
    is_withdrawn: bool,
}

/// What the request waits for.
enum Step {
    /// The grant of an acquire.
    Acquire,
    /// The end of a lease that was granted with this answer.
    StandGranted(Tenure, Answer),
    /// The renewal of a tenure whose end follows.
    Renew(Tenure),
    /// The end of a tenure whose renewal began then.
    Stand(Instant),
}

impl StandingRequests {
    pub(super) fn slot_of(&self, token: Token) -> Option<usize> {
        self.by_token.get(&token.0).copied()
    }
}

/// The token of a step. It is not counted: the request is.
fn token_of(slot: usize) -> Token {
    ReplyTo { origin: ReplyTo::STANDING, id: slot as u64 }.token(RequestKind::Other)
}

impl Driver {
    /// Acquires a lease, and then sets its end.
    pub(super) fn acquire_standing(
        &mut self,
        now: Instant,
        token: Token,
        label: Label,
        lasts: Lasts,
        wait: Duration,
    ) {
        let ttl = self.record_ttl(lasts);
        let slot = self.begin_standing(token, label.clone(), lasts, Step::Acquire);
        let (token, name, holder) = (token_of(slot), label.name(), label.holder());
        if let Err(error) = self.shard.acquire(now, Acquire { token, name, holder, ttl, wait }) {
            self.finish_standing(now, slot, error.into());
        }
    }

    /// Sets the end of a tenure. Its record is renewed first, unless it outlives the end here.
    pub(super) fn set_end(
        &mut self,
        now: Instant,
        token: Token,
        label: Label,
        tenure: Tenure,
        lasts: Lasts,
    ) {
        let stored = self.shard.register(label.name()).and_then(|register| register.live(now));
        let is_covered = stored
            .is_some_and(|live| live.tenure == tenure && live.expires_at >= lasts.ends_at(now));
        if is_covered {
            let slot = self.begin_standing(token, label, lasts, Step::Stand(now));
            return self.stand(now, slot, tenure);
        }
        let ttl = self.record_ttl(lasts);
        let slot = self.begin_standing(token, label.clone(), lasts, Step::Renew(tenure));
        let (token, name, holder) = (token_of(slot), label.name(), label.holder());
        if let Err(error) = self.shard.renew(now, Renew { token, name, holder, tenure, ttl }) {
            self.finish_standing(now, slot, error.into());
        }
    }

    /// The end to set in place of a plain renewal, if the tenure stands here and would end before
    /// that renewal does. Members that the renewal does not reach learn the later end as well.
    pub(super) fn later_end(
        &self,
        now: Instant,
        name: Name<'_>,
        tenure: Tenure,
        ttl: Duration,
    ) -> Option<Lasts> {
        if self.shard.standing_count() == 0 || self.shard.config().cell.ttl(ttl).is_err() {
            return None;
        }
        let (stands, ends_at, _) = self.shard.standing(name)?;
        let is_short = stands == tenure && ends_at < now.after(ttl);
        Lasts::until(now.after(ttl), now).filter(|_| is_short)
    }

    /// The ttl of the record of a lease that lasts so long.
    fn record_ttl(&self, lasts: Lasts) -> Duration {
        let base = self.shard.base_ttl();
        let margin = lasts.capped(base).as_duration() + RECORD_MARGIN;
        margin.min(base.as_duration())
    }

    fn begin_standing(&mut self, token: Token, label: Label, lasts: Lasts, step: Step) -> usize {
        let request = StandingRequest { token, label, lasts, step, is_withdrawn: false };
        let slot = self.standing.requests.insert(request);
        self.standing.by_token.insert(token.0, slot);
        slot
    }

    /// The last step of each request.
    fn stand(&mut self, now: Instant, slot: usize, tenure: Tenure) {
        let StandingRequest { label, lasts, .. } = &self.standing.requests[slot];
        let (label, lasts) = (label.clone(), *lasts);
        if let Err(error) = self.shard.stand(now, token_of(slot), label.name(), tenure, lasts) {
            self.standing_answered(now, slot as u64, error.into());
        }
    }

    /// The core answered a step.
    pub(super) fn standing_answered(&mut self, now: Instant, slot: u64, answer: Answer) {
        let slot = slot as usize;
        let Some(request) = self.standing.requests.get_mut(slot) else { return };
        let (label, lasts) = (request.label.clone(), request.lasts);
        if request.is_withdrawn {
            self.standing.requests.remove(slot);
            if let Answer::Granted { tenure, .. } = answer {
                self.give_back(now, label.name(), tenure);
            }
            return;
        }
        match (&request.step, answer) {
            (Step::Acquire, answer @ Answer::Granted { tenure, .. }) => {
                request.step = Step::StandGranted(tenure, answer);
                self.stand(now, slot, tenure);
            }
            (Step::StandGranted(_, granted), Answer::Renewed { .. }) => {
                let granted = granted.clone();
                self.finish_standing(now, slot, granted);
            }
            (Step::StandGranted(tenure, _), answer) => {
                let tenure = *tenure;
                self.give_back(now, label.name(), tenure);
                let answer = if answer == Answer::NotHeld { Answer::NoQuorum } else { answer };
                self.finish_standing(now, slot, answer);
            }
            (Step::Renew(tenure), Answer::Renewed { started_at, .. }) => {
                let tenure = *tenure;
                request.step = Step::Stand(started_at);
                self.stand(now, slot, tenure);
            }
            (Step::Stand(started_at), Answer::Renewed { .. }) => {
                let (started_at, ttl) = (*started_at, lasts.capped(Ttl::MAX));
                self.finish_standing(now, slot, Answer::Renewed { ttl, started_at });
            }
            (Step::Acquire | Step::Renew(_) | Step::Stand(_), answer) => {
                self.finish_standing(now, slot, answer);
            }
        }
    }

    fn finish_standing(&mut self, now: Instant, slot: usize, answer: Answer) {
        let StandingRequest { token, .. } = self.standing.requests.remove(slot);
        self.standing.by_token.remove(&token.0);
        self.reply(now, token, answer);
    }

    /// P8: the caller of an acquire left. What it was granted meanwhile is released.
    pub(super) fn withdraw_standing(&mut self, now: Instant, slot: usize, answer: Answer) {
        let request = &mut self.standing.requests[slot];
        request.is_withdrawn = true;
        let (token, label) = (request.token, request.label.clone());
        let granted = match request.step {
            Step::StandGranted(tenure, _) => Some(tenure),
            Step::Acquire | Step::Renew(_) | Step::Stand(_) => None,
        };
        let is_acquiring = matches!(request.step, Step::Acquire);
        self.standing.by_token.remove(&token.0);
        if let Some(tenure) = granted {
            self.give_back(now, label.name(), tenure);
        }
        if is_acquiring && self.shard.abandon(now, label.name(), token_of(slot)) {
            self.standing.requests.remove(slot);
        }
        self.reply(now, token, answer);
    }
}
