//! The choice of the next endpoint, and of the pause before it. There is no connection here, only
//! how connections ended.

use std::time::Duration;

use paxoslease_core::{Instant, Rng};

use paxoslease_holder::AskError;

use crate::endpoints::Endpoints;

/// The pause after all endpoints have failed: at first, and at most.
const PAUSE: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// How long the client prefers other endpoints after one has failed.
const AVOID: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct Route {
    endpoints: Endpoints,
    /// The endpoints that failed a moment ago, and until when the client avoids them.
    avoided: Vec<(String, Instant)>,
    /// The endpoint in use, or the next one to try. It may have left the list.
    pub(crate) next: String,
    /// How many endpoints have failed since one worked.
    failures: usize,
    best_error: Option<AskError>,
    pub(crate) retry_at: Instant,
    pause: Duration,
    /// How many times all endpoints have failed since one worked.
    pub(crate) passes: u32,
    rng: Rng,
}

impl Route {
    pub(crate) fn new(endpoints: Endpoints, seed: u64) -> Self {
        Self {
            next: endpoints.first(),
            endpoints,
            avoided: Vec::new(),
            failures: 0,
            best_error: None,
            retry_at: Instant::ZERO,
            pause: PAUSE,
            passes: 0,
            rng: Rng::seeded(seed),
        }
    }

    /// The endpoint in use has worked until now. Chooses another one.
    pub(crate) fn advance(&mut self, now: Instant) {
        self.move_on(now);
        self.failures = 0;
        self.best_error = None;
        self.pause = PAUSE;
        self.passes = 0;
    }

    /// An endpoint failed. Once all have failed, returns why, and sets a pause before the next try:
    /// longer each time, but at most `most`.
    pub(crate) fn fail(&mut self, now: Instant, why: AskError, most: Duration) -> Option<AskError> {
        let best_error = match (self.best_error.take(), why) {
            // Any other error tells the user more than "unreachable".
            (Some(best), AskError::Unreachable { .. }) => best,
            (_, why) => why,
        };
        self.best_error = Some(best_error);
        self.move_on(now);
        self.failures += 1;
        if self.failures < self.endpoints.len() {
            return None;
        }
        self.failures = 0;
        self.passes = self.passes.saturating_add(1);
        let pause = self.pause / 2 + self.rng.below(self.pause);
        self.retry_at = now.after(pause.min(most));
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        self.best_error.take()
    }

    /// Round robin. Members come before other endpoints. Endpoints that failed a moment ago come
    /// last.
    fn move_on(&mut self, now: Instant) {
        let Self { endpoints, avoided, next, .. } = self;
        avoided.retain(|(endpoint, until)| *until > now && endpoint != next);
        avoided.push((next.clone(), now.after(AVOID)));
        let avoided_until = |endpoint: &str| {
            let known = avoided.iter().find(|(avoided, _)| avoided == endpoint);
            known.map_or(now, |(_, until)| *until)
        };
        *next = endpoints.best_after(next, |candidate| {
            (avoided_until(candidate.endpoint), !candidate.is_member)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route() -> Route {
        Route::new(Endpoints::new(["n0:1", "n1:1", "n2:1"].map(str::to_owned).to_vec()), 7)
    }

    fn unreachable() -> AskError {
        AskError::Unreachable { endpoints: Vec::new(), problem: "refused".into() }
    }

    #[test]
    fn a_failed_endpoint_is_avoided_for_a_while() {
        let mut route = route();
        let mut now = Instant::ZERO.after(Duration::from_secs(1));
        let mut tried = vec![route.next.clone()];
        for _ in 0..5 {
            now = now.after(Duration::from_millis(1));
            route.advance(now);
            tried.push(route.next.clone());
        }
        let turn = ["n0:1", "n1:1", "n2:1"];
        assert_eq!(tried, [turn, turn].concat(), "round robin when all have failed");
        now = now.after(AVOID);
        route.advance(now);
        assert_eq!(route.next, "n0:1");
        now = now.after(AVOID / 2);
        route.advance(now);
        assert_eq!(route.next, "n1:1", "not the one that was left before");
        route.advance(now.after(AVOID / 2));
        assert_eq!(route.next, "n2:1", "it is not avoided any more");
    }

    #[test]
    fn when_all_have_failed_the_most_specific_error_is_returned() {
        let mut route = route();
        let (now, alone) = (Instant::ZERO, AskError::NoQuorum("alone".into()));
        let most = Duration::from_millis(1);
        for _ in 0..3 {
            assert_eq!(route.fail(now, unreachable(), most), None);
            assert_eq!(route.fail(now, alone.clone(), most), None);
            assert_eq!(route.fail(now, unreachable(), most), Some(alone.clone()));
            assert!(route.retry_at <= now.after(most), "the pause has an upper bound");
        }
    }
}
