//! Traces: the inputs and outputs of one shard of a node, one line of JSON per step, and the judge
//! of the traces of a whole cell.
//!
//! [`TracedShard`] replaces the core's shard. It records every input with its outputs before it
//! hands the outputs out. [`Judge`] replays the inputs in a fresh core, which must produce the same
//! outputs, and checks the outputs against the rules of docs/protocol.md and docs/membership.md.
//! This crate states the rules a second time on purpose: the judge must not repeat a mistake of the
//! core.
//!
//! A node writes traces only if it was built with the feature `trace`, which no release has.

mod cell;
mod input;
mod line;
mod model;
mod recorder;
mod register;
mod report;
mod run;

pub use cell::Judge;
pub use line::{Header, Line, StartState, Step};
pub use recorder::{Sink, TracedShard};
pub use report::{Clocks, Report};

#[cfg(test)]
mod tests;
