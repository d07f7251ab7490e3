//! Exhaustive checker: every schedule of small cells, run on the core that ships.
//!
//! The protocol here is [`paxoslease_core::Shard`], not a model of it; what is modelled is the
//! world around it: a network that keeps every message for ever and delivers it at will, clients,
//! crashes, disks, time in ticks. [`search`] walks all of it within [`Bounds`]; [`profiles`] lists
//! the bounds we search and, for every safety rule, the bounds within which its absence does harm.
//!
//! It lacks clock drift, waiting and liveness: the simulator has those.

mod bounds;
mod local;
pub mod profiles;
mod search;
mod world;

pub use bounds::{Bounds, Crashing, TICK, Wish};
pub use search::{Look, Report, search};
pub use world::Harm;
