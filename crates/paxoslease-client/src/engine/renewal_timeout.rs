//! How long the client waits for the answer to a renewal before it asks another node.

use std::time::Duration;

use paxoslease_core::Ttl;

/// The lower bound of every timeout: a shorter one would measure the scheduler, not the node.
const TIMEOUT_MIN: Duration = Duration::from_millis(30);
/// After this many unanswered renewals the cell may be slow, not the node.
const QUICK_TRIES: u32 = 3;

#[derive(Debug)]
pub(super) struct RenewalTimeout {
    request_timeout: Duration,
    /// The moving average of the time that a majority takes to answer.
    average: Option<Duration>,
}

impl RenewalTimeout {
    pub(super) const fn new(request_timeout: Duration) -> Self {
        Self { request_timeout, average: None }
    }

    /// Adds the duration of one request that needed a majority.
    pub(super) fn record(&mut self, span: Duration) {
        self.average = Some(self.average.map_or(span, |average| (average * 3 + span) / 4));
    }

    /// The timeout of a renewal by ttl and number of tries, for a client with this many endpoints.
    ///
    /// Renewals begin after 11/30 of the ttl at the latest (P5), and a lease is in jeopardy after
    /// two thirds. So a timeout of a twelfth leaves time for two more tries. Where answers take
    /// longer than that, the timeout is longer: otherwise the client would never see an answer.
    pub(super) fn for_endpoints(&self, count: usize) -> impl Fn(Ttl, u32) -> Duration + use<> {
        let (usual, most) = (self.average.unwrap_or_default() * 2, self.request_timeout / 2);
        move |ttl, tries| {
            let ttl = ttl.as_duration();
            let timeout = match tries {
                // There is no other node, so the client asks again only shortly before the end.
                _ if count == 1 => ttl / 3,
                0..=QUICK_TRIES => usual.clamp(ttl / 12, ttl / 6),
                _ => ttl / 5,
            };
            timeout.max(TIMEOUT_MIN).min(most)
        }
    }
}
