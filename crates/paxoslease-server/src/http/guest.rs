//! Whoever is at the other end of a connection, and how fast they may go.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use metrics::counter;
use paxoslease::front::Instant;

use super::Bounds;
use super::refusal::Refusal;
use crate::resp::pace::Pace;

/// The other end of one connection. Clones are the same.
#[derive(Clone)]
pub(super) struct Guest {
    pub(super) address: SocketAddr,
    came_at: tokio::time::Instant,
    acquires: Option<(u32, Arc<Mutex<Pace>>)>,
}

impl Guest {
    pub(super) fn new(address: SocketAddr, bounds: &Bounds) -> Self {
        let pace = |per_second| (per_second, Arc::new(Mutex::new(Pace::new(per_second))));
        let came_at = tokio::time::Instant::now();
        Self { address, came_at, acquires: bounds.acquires_per_second.map(pace) }
    }

    /// One more acquire, if that is not too fast.
    pub(super) fn acquires(&self) -> Result<(), Refusal> {
        let Some((per_second, pace)) = &self.acquires else { return Ok(()) };
        let nanos = u64::try_from(self.came_at.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let mut pace = pace.lock().unwrap_or_else(PoisonError::into_inner);
        if pace.admits(Instant::from_nanos(nanos)) {
            return Ok(());
        }
        limited("acquires_per_second");
        let problem = format!("more than {per_second} acquires a second on this connection");
        Err(Refusal::Busy(problem))
    }
}

/// Counts what ran into a limit.
pub(super) fn limited(limit: &'static str) {
    counter!("paxoslease_limited_total", "limit" => limit).increment(1);
}
