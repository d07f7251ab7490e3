//! Linearizability: many clients use few keys of a service at once, and a checker that was not
//! written for us decides whether some serial order of all commands explains every reply.
//!
//! [`history`] is what the clients record, [`model`] says what commands do, [`judge`] asks the
//! outside checker. [`classify`] and [`shrink`] describe what it rejects. The rest runs the
//! workload: on a cell under faults, or on a Redis server as the control.

pub mod args;
pub mod classify;
mod clients;
mod commands;
pub mod history;
pub mod judge;
pub mod keys;
pub mod model;
mod reduce;
pub mod report;
pub mod run;
mod service;
pub mod shrink;
#[cfg(test)]
mod tests;
