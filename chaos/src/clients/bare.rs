//! A holder for protocols without a library of ours. It renews, releases, and computes its belief
//! as in docs/migrating.md.
//!
//! Only the clock and the holder end its belief, so it logs the end of the belief in advance.

use std::time::Duration;

use anyhow::{Result, bail};
use paxoslease_clock::machine_span;

use super::ClientOptions;
use super::worker::{AcquirePlan, Ending, Held, Worker};
use crate::check::nanos;
use crate::log::{Belief, EndReason, Nanos, Operation, now};

/// A request to the cell.
#[derive(Clone, Copy)]
pub(super) enum Question<'a> {
    Acquire(&'a AcquirePlan),
    Renew(&'a Belief, u64),
    Release(&'a Belief),
}

pub(super) enum Reply {
    Granted {
        fence: u64,
        waited: Duration,
    },
    Denied {
        by: Option<u64>,
    },
    /// Renewed or released.
    Done,
    /// The tenure was over.
    Over,
}

/// Why there is no answer. Not an error of the client.
pub(super) type Failure = String;

/// A protocol. After a failure the next request goes to the next node.
pub(super) trait Protocol {
    fn ask(&mut self, question: Question<'_>, timeout: Duration) -> Result<Reply, Failure>;
    /// Sends an acquire and disconnects after a while.
    fn abandon(&mut self, plan: &AcquirePlan, after: Duration);
    fn rule(&self) -> ClockRule;
}

pub(super) struct Endpoints {
    endpoints: Vec<String>,
    /// How often the client has gone to the next node.
    left: usize,
}

impl Endpoints {
    pub(super) fn of(options: &ClientOptions) -> Self {
        // Clients begin at different nodes.
        let left = options.seed as usize % options.endpoints.len();
        Self { endpoints: options.endpoints.clone(), left }
    }

    pub(super) fn endpoint(&self) -> &str {
        &self.endpoints[self.left % self.endpoints.len()]
    }

    pub(super) const fn leave(&mut self) {
        self.left += 1;
    }
}

/// The clock rule T2 for clients: drift and granularity of the cell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ClockRule {
    pub(super) drift_ppm: u32,
    pub(super) granularity_us: u32,
}

impl ClockRule {
    pub(super) const fn of(options: &ClientOptions) -> Self {
        Self { drift_ppm: options.drift_ppm, granularity_us: 1000 }
    }

    /// The end of the belief in a lease requested at `sent_at`, in the host's time.
    fn ends_at(self, sent_at: Nanos, ttl: Duration, waited: Duration) -> Nanos {
        let span = Duration::from_nanos(self.span(nanos(ttl), nanos(waited)));
        // A slow clock takes longer for the same span.
        sent_at + nanos(machine_span(span))
    }

    /// The duration of the belief after the request, as in docs/migrating.md.
    fn span(self, span: Nanos, waited: Nanos) -> Nanos {
        if is_without("BeliefKeepsDriftMargin") {
            return waited + span;
        }
        let granule = u64::from(self.granularity_us) * 1000;
        let credit = self.shrink(waited).saturating_sub(granule);
        credit + self.shrink(span).saturating_sub(2 * granule)
    }

    /// Divides by r = (1 + e) / (1 - e).
    fn shrink(self, span: Nanos) -> Nanos {
        let (less, more) = (1_000_000 - self.drift_ppm, 1_000_000 + self.drift_ppm);
        (u128::from(span) * u128::from(less) / u128::from(more)) as Nanos
    }
}

/// Whether the mutant lacks this rule, which clients share.
fn is_without(rule: &str) -> bool {
    std::env::var_os("PAXOSLEASE_WITHOUT_RULE").is_some_and(|missing| missing == rule)
}

/// Acquires, holds and releases without end.
pub(super) fn work(worker: &mut Worker, mut protocol: impl Protocol) -> Result<()> {
    loop {
        let plan = worker.ask()?;
        if let Ending::Abandon(after) = plan.ending {
            protocol.abandon(&plan, after);
            worker.failed(&plan.request, Operation::Acquire, "abandoned")?;
            continue;
        }
        let sent_at = now();
        let timeout = worker.timeout() + Duration::from_millis(plan.request.wait_ms);
        match protocol.ask(Question::Acquire(&plan), timeout) {
            Ok(Reply::Denied { by }) => worker.denied(&plan, sent_at, by)?,
            Ok(Reply::Granted { fence, waited }) => {
                let held = worker.granted(&plan, fence, now());
                hold(worker, &mut protocol, held, &plan, (sent_at, waited))?;
            }
            Ok(Reply::Done | Reply::Over) => bail!("an acquire got the reply to a renewal"),
            Err(why) => {
                worker.failed(&plan.request, Operation::Acquire, why)?;
                worker.rest(20, 200);
            }
        }
    }
}

/// Holds a lease whose request left at `sent_at`, and which the node queued for a while.
fn hold(
    worker: &mut Worker,
    protocol: &mut impl Protocol,
    mut held: Held,
    plan: &AcquirePlan,
    (sent_at, waited): (Nanos, Duration),
) -> Result<()> {
    let ttl = Duration::from_millis(plan.request.ttl_ms);
    held.belief.until = protocol.rule().ends_at(sent_at, ttl, waited);
    worker.believe(&held)?;
    let mut renew_at = sent_at + nanos(waited + ttl / 3);
    loop {
        let at = now();
        if at >= held.belief.until {
            worker.ended(&held, held.belief.until, EndReason::Expired)?;
            return worker.store_late(&held);
        }
        if at >= held.ends_at {
            match held.ending {
                Ending::Release => return release(worker, protocol, &held, plan),
                Ending::Crash => return worker.crash(&held),
                Ending::Forget | Ending::Abandon(_) => renew_at = Nanos::MAX,
            }
        }
        worker.store(&held)?;
        let timeout = (ttl / 4).max(Duration::from_millis(50));
        if now() >= renew_at {
            let sent_at = now();
            match protocol.ask(Question::Renew(&held.belief, plan.request.ttl_ms), timeout) {
                // A late renewal does not revive a belief.
                Ok(Reply::Done) if now() < held.belief.until => {
                    let until = protocol.rule().ends_at(sent_at, ttl, Duration::ZERO);
                    held.belief.until = held.belief.until.max(until);
                    held.belief.renewals += 1;
                    renew_at = sent_at + nanos(ttl / 3);
                    worker.believe(&held)?;
                }
                Ok(Reply::Done) => {}
                Ok(Reply::Granted { .. } | Reply::Denied { .. }) => {
                    bail!("a renewal got the reply to an acquire")
                }
                Ok(Reply::Over) => {
                    worker.over(&held, Operation::Renew, sent_at)?;
                    worker.ended(&held, now().min(held.belief.until), EndReason::Lost)?;
                    return worker.store_late(&held);
                }
                Err(why) => {
                    worker.failed(&plan.request, Operation::Renew, why)?;
                    renew_at = now() + nanos(ttl / 10);
                }
            }
        }
        worker.rest(5, 40);
    }
}

fn release(
    worker: &mut Worker,
    protocol: &mut impl Protocol,
    held: &Held,
    plan: &AcquirePlan,
) -> Result<()> {
    // P6: the belief ends first.
    worker.ended(held, now().min(held.belief.until), EndReason::Released)?;
    let sent_at = now();
    match protocol.ask(Question::Release(&held.belief), worker.timeout()) {
        Ok(Reply::Over) => worker.over(held, Operation::Release, sent_at)?,
        Ok(_) => worker.released(held)?,
        Err(why) => worker.failed(&plan.request, Operation::Release, why)?,
    }
    worker.rest(0, 50);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rule_is_the_one_of_the_core() {
        use paxoslease_core::{Drift, Instant, Ttl};
        for (ppm, granule, ttl, waited) in
            [(0, 0, 50, 0), (1000, 1000, 2000, 700), (100_000, 20, 60_000, 3), (1, 1, 1234, 99_999)]
        {
            let rule = ClockRule { drift_ppm: ppm, granularity_us: granule };
            let drift = Drift::new(ppm, Duration::from_micros(granule.into())).expect("in bounds");
            let waited = Duration::from_millis(waited);
            let span = Ttl::from_millis(ttl).expect("not zero");
            let expected = drift.remote_belief_ends_at(Instant::from_nanos(7), waited, span);
            assert_eq!(rule.ends_at(7, span.as_duration(), waited), expected.as_nanos());
        }
    }
}
