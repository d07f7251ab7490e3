//! A deterministic world around the real core and codec: true time, bad clocks, a bad network,
//! crashes and disks, clients of every kind, and a checker of every event.
//!
//! [`run`] generates a whole world from a seed and reports the result. [`World`] is for scripted
//! schedules. Any [`Algorithm`] runs in it. The same seed gives the same trace on every machine:
//! nothing here reads a clock, uses ambient randomness or depends on an address.

pub mod algorithm;
pub mod baseline;
mod checker;
mod client;
mod clock;
pub mod diagram;
mod named;
mod network;
mod packet;
mod paxoslease;
mod rng;
pub mod scenario;
mod swarm;
pub mod trace;
pub mod transcript;
mod world;

pub use algorithm::{Algorithm, Process};
pub use checker::{Check, Checker, Checks, Claim, Stored, Violation};
pub use client::Habits;
pub use clock::Clock;
pub use network::{Action, FilterId, Link, Network, Pattern};
pub use paxoslease::{Node, PaxosLease};
pub use rng::Rng;
pub use swarm::{Faults, Options, Report, UnknownFaults, run, run_with};
pub use trace::Keep;
pub use world::{ClientId, Counts, Setup, World};
