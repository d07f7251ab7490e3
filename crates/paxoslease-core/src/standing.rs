//! Standing leases (protocol section 10, S1 to S6): leases that last longer than M, or for ever,
//! and leases whose holder set an earlier end.
//!
//! The record of a standing lease is an ordinary one. An acceptor keeps the end beside it
//! (`entries`), the members renew the record among themselves (`renewing`), and an operation of
//! the holder sets the end at a majority (`operation`).

pub(crate) mod entries;
pub(crate) mod lasts;
pub(crate) mod operation;
mod renewing;

use crate::{Ballot, Lasts};

/// The end of a standing lease, as an acceptor stores it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Standing {
    /// What is left, rounded up.
    pub lasts: Lasts,
    /// The ballot of the operation that set the end.
    pub version: Ballot,
}
