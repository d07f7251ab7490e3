//! How long an answer usually takes, and how long to wait for one on which a lease depends.

use std::time::Duration;

use paxoslease_core::Ttl;

/// No machine is so idle, and no network so quick, that less would mean anything.
const PATIENCE_MIN: Duration = Duration::from_millis(30);
/// After so many renewals in vain it may be the cell that is slow, not a node.
const QUICK_TRIES: u32 = 3;

#[derive(Debug)]
pub(super) struct Pace {
    request_timeout: Duration,
    /// How long a majority takes to answer, by and large.
    usual: Option<Duration>,
}

impl Pace {
    pub(super) const fn new(request_timeout: Duration) -> Self {
        Self { request_timeout, usual: None }
    }

    /// A majority took so long.
    pub(super) fn took(&mut self, span: Duration) {
        self.usual = Some(self.usual.map_or(span, |usual| (usual * 3 + span) / 4));
    }

    /// How long one of `endpoints` may take to renew a lease of this ttl, at the first, second and
    /// so on try, before another is asked. Renewals begin after 11/30 of the ttl at the latest (P5)
    /// and a lease is in danger after two thirds, so a twelfth leaves time for two more tries.
    /// Where answers take longer than that, leaving would mean never to hear any.
    pub(super) fn patience(&self, endpoints: usize) -> impl Fn(Ttl, u32) -> Duration + use<> {
        let (usual, most) = (self.usual.unwrap_or_default() * 2, self.request_timeout / 2);
        move |ttl, tries| {
            let ttl = ttl.as_duration();
            let patience = match tries {
                // The same node again: only when there is hardly time left.
                _ if endpoints == 1 => ttl / 3,
                0..=QUICK_TRIES => usual.clamp(ttl / 12, ttl / 6),
                _ => ttl / 5,
            };
            patience.max(PATIENCE_MIN).min(most)
        }
    }
}
