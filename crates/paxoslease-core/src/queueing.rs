//! Waiting for a name, and the order in which waiters are served (protocol section 7).
//!
//! Nothing here is needed for safety: an error in this folder costs time or fairness only.

pub(crate) mod contender;
mod hints;
pub(crate) mod queue;
