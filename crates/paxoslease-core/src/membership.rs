//! Changes of the members of a cell: configurations, and the Paxos on disk that decides them.
//!
//! [`Decider`](decision::Decider) is one machine per node, beside the shards. It votes for the next
//! configuration, coordinates decisions, and tells the shards to adopt what was decided. It knows
//! nothing of leases except the three numbers that a node passes in.

pub(crate) mod configuration;
pub(crate) mod coordinator;
pub(crate) mod decision;
pub(crate) mod message;
#[cfg(test)]
mod tests;
