//! Waiting for a name, and the order in which waiters are served (protocol section 7).
//!
//! `contender` and `queue` keep the requests at this node, `waiting` decides when they try again.
//! `turns` keeps the order between nodes, `hints` tells them. Nothing here is needed for safety:
//! an error in this folder costs time or fairness.

pub(crate) mod contender;
pub(crate) mod hints;
pub(crate) mod queue;
pub(crate) mod turns;
pub(crate) mod waiting;
