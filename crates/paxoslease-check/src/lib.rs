//! Exhaustive checker: every schedule of small cells, run on the core that ships.
//!
//! The protocol here is [`paxoslease_core::Shard`], not a model of it. The world around it is
//! modelled: a network that keeps every message for ever and may deliver it at any time, clients,
//! crashes, disks, time in ticks. [`search`] visits every state within [`Bounds`]. [`profiles`]
//! lists the bounds that we search and, for every safety rule, bounds in which the protocol without
//! that rule does harm.
//!
//! Clock drift, waiting and liveness are missing here: the simulator covers them.

mod bounds;
mod decisions;
mod node;
pub mod profiles;
mod search;
mod world;

pub use bounds::{Bounds, Client, Crashing, TICK};
pub use decisions::{DecisionBounds, DecisionHarm, DecisionReport, Want, search_decisions};
pub use search::{Checks, Report, search};
pub use world::Harm;
