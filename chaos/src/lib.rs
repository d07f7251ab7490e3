//! Cells of real processes, real faults, and a judge of what clients believed meanwhile.
//!
//! The arena (network, cell, nemeses, schedule) breaks things; the clients log what they believe
//! with the host's clock; the checker proves afterwards that no two beliefs met. Nothing here is
//! shipped.

pub mod cell;
pub mod check;
pub mod clients;
pub mod crowd;
pub mod directed;
pub mod log;
pub mod nemesis;
pub mod network;
pub mod report;
pub mod run;
pub mod schedule;
pub mod store;
pub mod traces;
