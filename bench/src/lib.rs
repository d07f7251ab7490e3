//! What the benchmarks share: services to compare, and figures for people and for machines.
#![expect(missing_docs, reason = "not shipped: a comment that repeats a name is left out")]

pub mod cores;
pub mod page;
pub mod peers;
pub mod plot;
