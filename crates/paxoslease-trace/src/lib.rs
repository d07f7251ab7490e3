//! Traces: what one shard of a node was told and what it did, one line of JSON per step, and the
//! judge of the traces of a whole cell.
//!
//! [`Shard`] stands in for the core's own and writes down every input with the outputs that it led
//! to, before these leave. [`Judge`] replays the inputs through a fresh core, which must do the
//! same again, and holds what it did against the rules of docs/protocol.md. The rules are written
//! here a second time on purpose: a mistake in the core must not be repeated by its judge.
//!
//! A node writes traces only if it was built with the feature `trace`, which no release has.

mod cell;
mod input;
mod line;
mod model;
mod recorder;
mod report;
mod run;

pub use cell::Judge;
pub use line::{Begin, Beginning, Line, Step};
pub use recorder::{Shard, Sink};
pub use report::{Clocks, Report};

#[cfg(test)]
mod tests;
