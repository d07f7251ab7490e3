//! A PaxosLease node to embed in a service that has to agree, among its processes, on who may act:
//! a master, a job to run once, a shard to own.
//!
//! The nodes of the service *are* the cell: each embeds a [`Node`], a majority of them grants
//! leases, and no other service is needed. The protocol is that of the `paxoslease-core` crate;
//! here are the threads, sockets, clock and disk around it.
//!
//! ```no_run
//! # extern crate paxoslease_node as paxoslease;
//! use std::time::Duration;
//! use paxoslease::{Config, Node};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let config = Config::load("node.toml")?;
//! let node = Node::start_blocking(config)?; // Or `Node::start(config).await`, on any runtime.
//! let lease = node.acquire("master", Duration::from_secs(5)).blocking()?;
//! println!("master with fence {}", lease.fence());
//! lease.lost_blocking();
//! # Ok(())
//! # }
//! ```
//!
//! - [`Node::acquire`] waits, [`Node::try_acquire`] does not; options are set on the way.
//! - A [`LeaseGuard`] renews itself until it is dropped, and computes [`LeaseGuard::is_held`] from
//!   the clock on every call.
//! - Everything is `Send + Sync`, every future is cancel-safe and runs on any executor, or on a
//!   plain thread by [`block_on`]: a node owns its threads and needs no runtime.
//! - [`Node::inspect`], [`Node::watch`] and [`Node::status`] are hints, for people and machines
//!   that watch over a cell. Only a holder knows that it holds.
//!
//! What is guaranteed under pauses, drift, restarts and partitions is on one page of the
//! repository, `docs/guarantees.md`. Log lines go to `tracing`, numbers to `metrics`.

mod board;
#[cfg(feature = "chaos")]
mod chaos;
mod clock;
mod command;
pub mod config;
mod driver;
mod event_loop;
pub mod front;
mod log_throttle;
mod mailbox;
mod node;
mod request;
#[cfg(feature = "simulation")]
#[doc(hidden)]
pub mod simulation;
mod stable;
mod tls;
#[cfg(feature = "trace")]
mod trace;
mod turn;

pub use config::{
    AddressError, Config, ConfigError, Durability, DurationError, Limits, Listen, LoadError, Spin,
    SpinError, Timing, Tls, TomlError, parse_duration,
};
pub use node::{Asking, Node, Remote, StartError};
pub use paxoslease_holder::{
    Acquire, AcquireError, Acquiring, AskError, Change, ChangeStatus, Detached, Grant, LeaseEnd,
    LeaseGuard, LeaseInfo, LeaseLost, LeaseState, LeaseView, Limit, MembersChange, MembersError,
    MembersPlan, MembersRequest, Membership, PeerStatus, Quarantine, QueuedName, Rates,
    ReleaseError, RenewError, Role, Status, TextError, TtlError, UnknownRole, Watch, block_on,
};
pub use paxoslease_tls::PemError;
pub use stable::{DataDirCheck, StableError, check_data_dir};
pub use tls::{Exposure, TlsError};
