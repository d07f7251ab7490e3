//! What the benchmarks share: services to compare, and figures for people and for machines.

pub mod cores;
pub mod page;
pub mod peers;
pub mod plot;
