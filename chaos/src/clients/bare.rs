//! A holder by hand, for protocols without a library of ours: it counts its time as docs/resp.md
//! tells everybody to, renews, and gives back.
//!
//! Nothing but the clock and the holder itself ends its belief, so the belief is logged up to its
//! end in advance.

use std::time::Duration;

use anyhow::Result;
use paxoslease_clock::machine_span;

use super::Options;
use super::scene::{Ending, Held, Scene, Wish};
use crate::check::nanos;
use crate::log::{Belief, Deed, End, Nanos, now};

/// What a node said to an acquire.
pub(super) enum Answer {
    Granted { fence: u64, waited: Duration },
    Denied { by: Option<u64> },
}

/// What a node said about a tenure.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Tenancy {
    /// Renewed, or released.
    Done,
    /// It was over.
    Over,
}

/// Why there is no answer; the cell's own business, never an error of the client.
pub(super) type Failure = String;

/// A way to speak to a cell. After a failure the next question goes to the next node.
pub(super) trait Way {
    fn acquire(&mut self, wish: &Wish, patience: Duration) -> Result<Answer, Failure>;
    fn renew(&mut self, held: &Belief, ttl_ms: u64, patience: Duration)
    -> Result<Tenancy, Failure>;
    fn release(&mut self, held: &Belief, patience: Duration) -> Result<Tenancy, Failure>;
    /// Sends an acquire and leaves after a while, whatever comes.
    fn abandon(&mut self, wish: &Wish, after: Duration);
    fn rule(&self) -> Rule;
}

/// Which node to ask.
pub(super) struct Nodes {
    endpoints: Vec<String>,
    /// How many were left so far.
    left: usize,
}

impl Nodes {
    pub(super) fn of(options: &Options) -> Self {
        // Not all at the first.
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

/// The clock rule T2, as told to clients: drift and granularity of the cell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Rule {
    pub(super) drift_ppm: u32,
    pub(super) granularity_us: u32,
}

impl Rule {
    pub(super) const fn of(options: &Options) -> Self {
        let Options { drift_ppm, granularity_us, .. } = *options;
        Self { drift_ppm, granularity_us }
    }

    /// Until when a lease is held that was asked for at `sent_at`, in the host's time.
    fn ends_at(self, sent_at: Nanos, ttl: Duration, waited: Duration) -> Nanos {
        let span = Duration::from_nanos(self.span(nanos(ttl), nanos(waited)));
        // A clock that is too slow needs longer to count that far.
        sent_at + nanos(machine_span(span))
    }

    /// For how long after it was asked for a lease is held, as docs/resp.md has it.
    fn span(self, span: Nanos, waited: Nanos) -> Nanos {
        if is_without("BeliefKeepsDriftMargin") {
            return waited + span;
        }
        let granule = u64::from(self.granularity_us) * 1000;
        let credit = self.shrink(waited).saturating_sub(granule);
        credit + self.shrink(span).saturating_sub(2 * granule)
    }

    /// Divided by r = (1 + e) / (1 - e).
    fn shrink(self, span: Nanos) -> Nanos {
        let (less, more) = (1_000_000 - self.drift_ppm, 1_000_000 + self.drift_ppm);
        (u128::from(span) * u128::from(less) / u128::from(more)) as Nanos
    }
}

/// Whether this run is about a cell that lacks a rule which clients share.
fn is_without(rule: &str) -> bool {
    std::env::var_os("PAXOSLEASE_WITHOUT_RULE").is_some_and(|missing| missing == rule)
}

/// Asks, holds, gives back, for ever.
pub(super) fn work(scene: &mut Scene, mut way: impl Way) -> Result<()> {
    loop {
        let wish = scene.ask()?;
        if let Ending::Abandon(after) = wish.ending {
            way.abandon(&wish, after);
            scene.failed(&wish.ask, Deed::Acquire, "abandoned")?;
            continue;
        }
        let sent_at = now();
        match way.acquire(&wish, scene.patience() + Duration::from_millis(wish.ask.wait_ms)) {
            Err(why) => {
                scene.failed(&wish.ask, Deed::Acquire, why)?;
                scene.rest(20, 200);
            }
            Ok(Answer::Denied { by }) => scene.denied(&wish, sent_at, by)?,
            Ok(Answer::Granted { fence, waited }) => {
                let held = scene.granted(&wish, fence, now());
                hold(scene, &mut way, held, &wish, (sent_at, waited))?;
            }
        }
    }
}

fn hold(
    scene: &mut Scene,
    way: &mut impl Way,
    mut held: Held,
    wish: &Wish,
    (sent_at, waited): (Nanos, Duration),
) -> Result<()> {
    let ttl = Duration::from_millis(wish.ask.ttl_ms);
    held.belief.until = way.rule().ends_at(sent_at, ttl, waited);
    scene.believe(&held)?;
    let mut renew_at = sent_at + nanos(waited + ttl / 3);
    loop {
        let at = now();
        if at >= held.belief.until {
            scene.ended(&held, held.belief.until, End::Expired)?;
            return scene.store_late(&held);
        }
        if at >= held.ends_at {
            match held.ending {
                Ending::Release => return release(scene, way, &held, wish),
                Ending::Crash => return scene.crash(&held),
                Ending::Forget | Ending::Abandon(_) => renew_at = Nanos::MAX,
            }
        }
        scene.store(&held)?;
        let patience = (ttl / 4).max(Duration::from_millis(50));
        if now() >= renew_at {
            let sent_at = now();
            match way.renew(&held.belief, wish.ask.ttl_ms, patience) {
                // What is over stays over.
                Ok(Tenancy::Done) if now() < held.belief.until => {
                    let until = way.rule().ends_at(sent_at, ttl, Duration::ZERO);
                    held.belief.until = held.belief.until.max(until);
                    held.belief.renewals += 1;
                    renew_at = sent_at + nanos(ttl / 3);
                    scene.believe(&held)?;
                }
                Ok(Tenancy::Done) => {}
                Ok(Tenancy::Over) => {
                    scene.over(&held, Deed::Renew, sent_at)?;
                    scene.ended(&held, now().min(held.belief.until), End::Lost)?;
                    return scene.store_late(&held);
                }
                Err(why) => {
                    scene.failed(&wish.ask, Deed::Renew, why)?;
                    renew_at = now() + nanos(ttl / 10);
                }
            }
        }
        scene.rest(5, 40);
    }
}

fn release(scene: &mut Scene, way: &mut impl Way, held: &Held, wish: &Wish) -> Result<()> {
    // P6: the belief goes first.
    scene.ended(held, now().min(held.belief.until), End::Released)?;
    let sent_at = now();
    match way.release(&held.belief, scene.patience()) {
        Ok(Tenancy::Done) => scene.released(held)?,
        Ok(Tenancy::Over) => scene.over(held, Deed::Release, sent_at)?,
        Err(why) => scene.failed(&wish.ask, Deed::Release, why)?,
    }
    scene.rest(0, 50);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: Rule = Rule { drift_ppm: 1000, granularity_us: 1000 };

    #[test]
    fn a_belief_ends_before_the_ttl_is_over_by_drift_and_granularity() {
        let ttl = Duration::from_secs(10);
        let ends_at = RULE.ends_at(5, ttl, Duration::ZERO);
        // 10 s * 0.999 / 1.001 - 2 ms, rounded down.
        assert_eq!(ends_at, 5 + 9_980_019_980 - 2_000_000);
    }

    #[test]
    fn a_wait_is_credited_less_drift_and_granularity() {
        let (ttl, waited) = (Duration::from_secs(10), Duration::from_secs(1));
        let credit = RULE.ends_at(5, ttl, waited) - RULE.ends_at(5, ttl, Duration::ZERO);
        assert_eq!(credit, 998_001_998 - 1_000_000);
    }

    #[test]
    fn the_rule_is_the_one_of_the_core() {
        use paxoslease_core::{Drift, Instant, Ttl};
        for (ppm, granule, ttl, waited) in
            [(0, 0, 50, 0), (1000, 1000, 2000, 700), (100_000, 20, 60_000, 3), (1, 1, 1234, 99_999)]
        {
            let rule = Rule { drift_ppm: ppm, granularity_us: granule };
            let drift = Drift::new(ppm, Duration::from_micros(granule.into())).expect("in bounds");
            let waited = Duration::from_millis(waited);
            let span = Ttl::from_millis(ttl).expect("not zero");
            let expected = drift.remote_belief_ends_at(Instant::from_nanos(7), waited, span);
            assert_eq!(rule.ends_at(7, span.as_duration(), waited), expected.as_nanos());
        }
    }
}
