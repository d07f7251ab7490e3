//! Leases for programs in which exactly one process may act: a master, a job to run once, a shard
//! to own. A majority of a few nodes agrees on each lease (PaxosLease).
//!
//! There are two ways to use a cell of nodes, and a lease is the same [`LeaseGuard`] in both:
//!
//! | feature | entry point | for |
//! |---|---|---|
//! | `client`, on by default | `Client` | programs beside a cell of `paxoslease` daemons |
//! | `node` | `Node` | services whose own processes are the cell |
//! | `test-util` | `TestCell` | tests: a whole cell and its clients, on a virtual clock |
//!
//! ```no_run
//! use std::time::Duration;
//! use paxoslease::Client;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::new("10.0.0.1:7400,10.0.0.2:7400,10.0.0.3:7400")?;
//! let lease = client.acquire("jobs/nightly", Duration::from_secs(15)).blocking()?; // Or `.await`.
//! while lease.is_held() {
//!     // One more piece of work, with `lease.fence()` passed along.
//! #   break;
//! }
//! lease.release_blocking()?;
//! # Ok(())
//! # }
//! ```
//!
//! This crate has no code of its own. `client` and `node` are the crates `paxoslease-client`
//! and `paxoslease-node`.

#[cfg(feature = "client")]
pub use paxoslease_client as client;
#[cfg(feature = "client")]
pub use paxoslease_client::{Client, Election, Leader, LeaderChange};
pub use paxoslease_holder::{
    Acquire, AcquireError, Acquiring, AskError, Change, Detached, Filter, Grant, LeaseEnd,
    LeaseGuard, LeaseInfo, LeaseLost, LeaseState, LeaseView, Limit, PeerStatus, Quarantine,
    QueuedName, Rates, ReleaseError, RenewError, Role, Status, TextError, TtlError, Watch,
    block_on,
};
#[cfg(feature = "node")]
pub use paxoslease_node as node;
#[cfg(feature = "node")]
pub use paxoslease_node::{Config, Node};
#[cfg(feature = "test-util")]
pub use paxoslease_world::TestCell;

/// The example about fences compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/fences.md")]
struct Fences;
