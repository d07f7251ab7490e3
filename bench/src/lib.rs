//! What the benchmarks share: services to compare, and figures for people and for machines.

pub mod cores;
pub mod page;
pub mod peers;
pub mod plot;
pub mod rigs;

/// The examples of the README compile: here, where node and client can be seen together.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
pub struct Readme;
