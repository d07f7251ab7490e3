//! The algorithms to compare PaxosLease with: the naive majority vote of the paper's introduction,
//! and the paper's algorithm taken literally. Both run in the same world, with the same messages.
//!
//! They are written for comparison with the paper, not for use. Where the paper leaves something
//! open (many clients at one node, when to retry), they do the simplest thing, and a comment says
//! so.

mod naive;
mod paper;

pub use naive::{Naive, NaiveNode};
pub use paper::{Paper, PaperNode};
