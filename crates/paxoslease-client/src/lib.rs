//! A client of a PaxosLease cell: leases that renew themselves, for a process that is not a node of
//! the cell.
//!
//! ```no_run
//! # extern crate paxoslease_client as paxoslease;
//! use std::time::Duration;
//! use paxoslease::Client;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::new("10.0.0.1:7400,10.0.0.2:7400,10.0.0.3:7400")?;
//! let lease = client.acquire("master", Duration::from_secs(5)).blocking()?; // Or `.await`.
//! println!("master with fence {}", lease.fence());
//! while lease.is_held() {
//!     // One more piece of work, with the fence passed along.
//! #   break;
//! }
//! lease.release_blocking()?;
//! # Ok(())
//! # }
//! ```
//!
//! - [`Client::acquire`] waits, [`Client::try_acquire`] does not. Both take options.
//! - A [`LeaseGuard`] renews itself until it is dropped, and computes [`LeaseGuard::is_held`] from
//!   the clock on every call.
//! - [`Election`] is a lease whose holder text is the leader's address, and a way to follow it.
//! - Everything is `Send + Sync`, every future is cancel-safe and runs on any executor, and every
//!   async call has a blocking twin. A client owns one thread, so it renews its leases even while
//!   the program's own runtime is busy.
//!
//! # What is the truth, and what is a hint
//! Only the holder knows that it holds. [`LeaseGuard::is_held`] and [`Grant::is_held`] are the
//! truth at the moment of the call. They use this machine's clock, count from before the request
//! was sent, and subtract the drift of the clocks. No reply of a server, late, repeated or wrong,
//! makes a lease last longer than its ttl counted so.
//!
//! They do not cover what happens *after* the call: the process may be paused before it acts on the
//! result. Where that matters, pass the fence along and let the resource refuse lower ones.
//!
//! [`Client::get`], [`Client::list`], [`Client::watch`], [`Client::status`] and
//! [`Election::leader`] are hints: what nodes reported a moment ago. Show them, but do not base a
//! decision on them that must be safe.
//!
//! # Authentication
//! [`Builder::tls`] encrypts and authenticates the nodes; [`Builder::token`] authenticates the
//! client. The configuration of the nodes decides which of them a client needs.
//! Errors with [`AskError::is_lack_of_trust`] fail all requests at once, because a retry would not
//! help. Only guards retry as long as their leases last, so that
//! one misconfigured node does not cost a lease.
//!
//! # Endpoints
//! The configured endpoints are for the first contact. Nodes tell the client where to reach the
//! members of the cell, and the client asks again every 30 s. It tries these addresses first and
//! the configured endpoints after them, so it keeps its leases even if all members are replaced. It
//! stays at a node as long as the connection works. Nodes that advertise no address change nothing.
//! With TLS, a certificate must be valid for the host of the address that the client dials, or for
//! [`Tls::with_server_name`].
//!
//! # When nodes and connections fail
//! A client keeps one connection, to the first endpoint that answers. It moves to the next endpoint
//! when the connection breaks or stalls, or its node has no majority. It repeats the requests in
//! flight there: any node can serve them. If a node does not answer a renewal within about a tenth
//! of the ttl, the client tries another node, so that a frozen or isolated node does not cost a
//! lease. A wait continues at the new node, at the end of its queue, and outlasts a cell without a
//! majority. If the reply that granted a lease was lost with its connection, no client knows that
//! tenure: the name looks held, with this client's own holder text, until its ttl is over.

mod builder;
mod client;
mod command;
mod connector;
mod driver;
mod election;
mod endpoints;
mod engine;
mod error;
mod follow;
mod link;
mod list;
mod members;
mod route;
#[cfg(feature = "simulation")]
#[doc(hidden)]
pub mod simulation;
mod status;
#[cfg(any(test, feature = "test-util"))]
pub mod test_util;
mod tls;

pub use builder::Builder;
pub use client::Client;
pub use election::{Election, Leader, LeaderChange, Observer};
pub use error::StartError;
pub use list::List;
pub use paxoslease_holder::{
    Acquire, AcquireError, Acquiring, AskError, Change, ChangeStatus, Detached, Grant, LeaseEnd,
    LeaseGuard, LeaseInfo, LeaseLost, LeaseState, LeaseView, Limit, MembersChange, MembersError,
    MembersPlan, MembersRequest, Membership, PeerStatus, Quarantine, QueuedName, Rates,
    ReleaseError, RenewError, Role, Status, TextError, TtlError, Watch, block_on, human_end,
    human_span,
};
pub use paxoslease_tls::PemError;
pub use status::NodeStatus;
pub use tls::{Tls, TlsError};
