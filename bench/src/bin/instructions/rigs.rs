//! Parts of a node that the paths drive. All except [`served`] run on one thread without a network
//! and without a clock, so that the same calls do the same work in every run.

pub(crate) mod acceptor;
pub(crate) mod bytes;
pub(crate) mod cell;
pub(crate) mod names;
pub(crate) mod served;
