//! What requests ask of durable leases, and what they may leave behind: the same for RESP and HTTP.

use paxoslease_node::front::Lasts;

/// How long a durable lease lasts, from milliseconds. Zero means for ever. Like a ttl, it has at
/// least 50 ms.
pub(crate) fn lasting(millis: u64) -> Lasts {
    let shortest = if millis == 0 { 0 } else { 50 };
    Lasts::from_millis(millis.max(shortest)).unwrap_or(Lasts::FOREVER)
}

/// What a request asks of a durable lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DurableRequest {
    /// A lease that lasts this long.
    Acquire(Lasts),
    /// Another end.
    Keep,
}

impl DurableRequest {
    /// How long the lease of an acquire lasts.
    pub(crate) const fn acquired(self) -> Option<Lasts> {
        match self {
            Self::Acquire(lasts) => Some(lasts),
            Self::Keep => None,
        }
    }

    /// What a request may have changed that members refused, as the end of an error.
    pub(crate) const fn refused(self) -> &'static str {
        match self {
            Self::Acquire(_) => "; nothing is held",
            Self::Keep => self.left_behind(),
        }
    }

    /// What the request may have changed although it failed, as the end of an error.
    pub(crate) const fn left_behind(self) -> &'static str {
        match self {
            Self::Acquire(_) => {
                "; nothing is held, and what members may have stored is released once a majority \
                 answers"
            }
            Self::Keep => {
                "; the end before or the new one may be in force: rely on the shorter time from now \
                 on, or release the lease"
            }
        }
    }
}
