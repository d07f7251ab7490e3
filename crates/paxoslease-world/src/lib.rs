//! Whole cells on a virtual clock: the real clients, sessions, nodes and data folders around a
//! simulated network, disks that lose and fail, and clocks that drift. One thread, one seed: the
//! same seed gives the same run on every machine.
//!
//! - [`TestCell`] is for tests of what uses leases: nodes and clients, no sockets, no files, and
//!   time passes when the test says so.
//! - [`run`] draws a cell, its users and its faults from a seed, shows every event to the checker
//!   of `paxoslease-sim`, and demands progress once all faults have ended.

mod agenda;
mod clock;
mod network;
mod simulation;
mod swarm;
mod test_cell;
#[cfg(test)]
mod tests;
mod world;

pub use swarm::{run, run_with};
pub use test_cell::TestCell;
