//! How long a standing lease lasts.

use core::fmt;
use core::num::NonZeroU64;
use core::time::Duration;

use crate::{Instant, Ttl};

/// How long a standing lease lasts from now on: at least 1 ms, in whole milliseconds, or for ever.
/// Unlike a [`Ttl`], it may exceed M.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lasts(NonZeroU64);

impl Lasts {
    /// Until the lease is released.
    pub const FOREVER: Self = Self(NonZeroU64::MAX);

    /// From milliseconds; `None` for zero. The largest number means for ever.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Option<Self> {
        match NonZeroU64::new(millis) {
            Some(millis) => Some(Self(millis)),
            None => None,
        }
    }

    /// In milliseconds; `None` for ever.
    #[must_use]
    pub const fn as_millis(self) -> Option<u64> {
        if self.0.get() == u64::MAX { None } else { Some(self.0.get()) }
    }

    /// When it ends, counted from `now`; [`Instant::MAX`] for never.
    #[must_use]
    pub const fn ends_at(self, now: Instant) -> Instant {
        match self.as_millis() {
            Some(millis) => now.after(Duration::from_millis(millis)),
            None => Instant::MAX,
        }
    }

    /// What is left until `ends_at`, rounded up; `None` when nothing is.
    #[must_use]
    pub fn until(ends_at: Instant, now: Instant) -> Option<Self> {
        if ends_at == Instant::MAX {
            return Some(Self::FOREVER);
        }
        let nanos = ends_at.as_nanos().checked_sub(now.as_nanos())?;
        Self::from_millis(nanos.div_ceil(1_000_000))
    }

    /// A ttl that is no longer than this, nor than `longest`.
    #[must_use]
    pub fn capped(self, longest: Ttl) -> Ttl {
        let millis = u32::try_from(self.0.get()).unwrap_or(u32::MAX);
        Ttl::from_millis(millis).map_or(longest, |ttl| ttl.min(longest))
    }
}

impl fmt::Debug for Lasts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.as_millis() {
            Some(millis) => write!(f, "{millis}ms"),
            None => f.write_str("for ever"),
        }
    }
}
