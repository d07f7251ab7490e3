//! What the benchmarks share: clocks, and figures for people and for machines.

pub mod clock;
pub mod report;
