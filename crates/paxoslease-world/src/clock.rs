//! The clocks of hosts: those of the simulator, shown to nodes and guards.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use paxoslease_clock::Clock;
use paxoslease_core::Instant;
use paxoslease_sim::trace::TrueTime;

use crate::world::At;

/// The clock of a host.
#[derive(Clone, Debug)]
pub(crate) struct HostClock {
    pub(crate) plan: paxoslease_sim::Clock,
    shown: Arc<AtomicU64>,
}

impl HostClock {
    /// Shows `offset` nanoseconds when the world begins, and runs `ppm` too fast.
    pub(crate) fn new(offset: u64, ppm: i32) -> Self {
        let plan = paxoslease_sim::Clock::new(Duration::from_nanos(offset), ppm, Duration::ZERO);
        Self { plan, shown: Arc::new(AtomicU64::new(offset)) }
    }

    /// The clock that nodes, clients and guards read.
    pub(crate) fn handle(&self) -> Clock {
        Clock::manual(Arc::clone(&self.shown))
    }

    /// Shows what it shows at this true time.
    pub(crate) fn show(&self, at: At) {
        self.shown.store(self.read(at).as_nanos(), Ordering::SeqCst);
    }

    pub(crate) fn read(&self, at: At) -> Instant {
        self.plan.read(TrueTime(at))
    }

    /// When it first shows `instant` or later; the end of time if never.
    pub(crate) fn first_shows(&self, instant: Instant) -> At {
        self.plan.first_shows(instant).0
    }
}
