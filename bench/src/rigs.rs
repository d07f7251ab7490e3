//! Parts of a node that benchmarks drive, by time and by instructions alike: real code in the hands
//! of a caller that decides what comes when.
//!
//! All but [`served`] run on one thread without a network and without a clock, so that the same
//! calls do the same work in every run.

pub mod acceptor;
pub mod bytes;
pub mod cell;
pub mod names;
pub mod served;
