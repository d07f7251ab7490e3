//! When operations are due: when another one ends, or at a fixed rate.
//!
//! The due time comes from the number of the operation. So rounding errors do not add up, and no
//! operation is forgotten while all slots are busy: a stalled server does not reduce the load that
//! shows the stall.

use std::time::Duration;

/// When operations are due.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ArrivalSchedule {
    /// Closed loop: when a slot is free.
    Closed,
    /// Open loop: at a fixed rate.
    Open { per_second: f64, began_at: Duration, begun: u64 },
}

impl ArrivalSchedule {
    pub(crate) fn new(rate: Option<f64>) -> Self {
        rate.map_or(Self::Closed, |per_second| Self::Open {
            per_second,
            began_at: Duration::ZERO,
            begun: 0,
        })
    }

    /// The first operation is due now.
    pub(crate) fn begin(&mut self, now: Duration) {
        if let Self::Open { began_at, begun, .. } = self {
            (*began_at, *begun) = (now, 0);
        }
    }

    /// The due time of the next operation, if it is due.
    pub(crate) fn take(&mut self, now: Duration) -> Option<Duration> {
        let due_at = self.next_at().unwrap_or(now);
        if due_at > now {
            return None;
        }
        if let Self::Open { begun, .. } = self {
            *begun += 1;
        }
        Some(due_at)
    }

    /// When the next operation is due; `None` in a closed loop.
    pub(crate) fn next_at(&self) -> Option<Duration> {
        match *self {
            Self::Closed => None,
            Self::Open { per_second, began_at, begun } => {
                Some(began_at + Duration::from_secs_f64(begun as f64 / per_second))
            }
        }
    }

    /// How many operations are due and not begun.
    pub(crate) fn behind(&self, now: Duration) -> u64 {
        match *self {
            Self::Closed => 0,
            Self::Open { per_second, began_at, begun } => {
                let due = now.saturating_sub(began_at).as_secs_f64() * per_second;
                (due as u64).saturating_sub(begun)
            }
        }
    }
}
