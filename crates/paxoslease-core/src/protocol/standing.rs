//! Standing leases (protocol section 7, S1 to S6).

use crate::{Ballot, Lasts};

/// The end of a standing lease, as an acceptor stores it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Standing {
    /// What is left, rounded up.
    pub lasts: Lasts,
    /// The ballot of the operation that set the end.
    pub version: Ballot,
}
