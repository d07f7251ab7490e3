//! Linearizability: many clients use few keys of a service at once, and a checker that was not
//! written for us decides whether some serial order of all commands explains every reply.
//!
//! [`history`] is what the clients record, [`model`] says what commands do, [`judge`] asks the
//! outside checker. [`classify`] and [`shrink`] describe what it rejects.

pub mod classify;
pub mod history;
pub mod judge;
pub mod model;
mod reduce;
pub mod shrink;
#[cfg(test)]
mod tests;
