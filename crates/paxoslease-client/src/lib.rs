//! A client of a PaxosLease cell: leases that renew themselves, held by a process that is no node
//! of the cell.
//!
//! ```no_run
//! use std::time::Duration;
//! use paxoslease_client::Client;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::connect("10.0.0.1:7400,10.0.0.2:7400,10.0.0.3:7400")?;
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
//! - [`Client::acquire`] waits, [`Client::try_acquire`] does not; options are set on the way.
//! - A [`LeaseGuard`] renews itself until it is dropped, and computes [`LeaseGuard::is_held`] from
//!   the clock on every call.
//! - [`Election`] is a lease whose holder text is the leader's address, and a way to follow it.
//! - Everything is `Send + Sync`, every future is cancel-safe and runs on any executor, and every
//!   async call has a blocking twin. A client owns one thread, so leases stay renewed whatever the
//!   program's own runtime is busy with.
//!
//! # What is the truth, and what is a hint
//! Only the holder knows that it holds. [`LeaseGuard::is_held`] and [`Grant::is_held`] are the
//! truth at the moment they are asked: computed from this machine's clock, counted from before the
//! request was sent, less what clocks may drift. No answer of a server, late, repeated or wrong,
//! makes a lease last longer than the time it was asked for, counted so.
//!
//! What happens *after* the answer is covered by nothing: a process may be paused between the
//! question and the deed. Where that matters, pass the fence along and let the resource refuse
//! lower ones.
//!
//! [`Client::get`], [`Client::list`], [`Client::watch`], [`Client::status`] and
//! [`Election::leader`] are hints: what nodes said a moment ago. Show them; build no decision that
//! must be safe on them.
//!
//! # Who may ask
//! [`Builder::tls`] encrypts, and makes sure that it is the cell that answers; [`Builder::token`]
//! says who asks. Nodes say which of them they want. [`AskError::Unauthenticated`],
//! [`AskError::Denied`] and [`AskError::Tls`] are told at once and to everybody who waits, since
//! trying again is in vain; only guards go on for as long as their leases last, because one node
//! that was set up wrongly need not cost a lease.
//!
//! # When nodes and connections fail
//! A client keeps one connection, to the first endpoint that answers, and moves to the next when
//! it breaks, stalls, or its node has no majority. Renewals, releases and questions under way are
//! asked again there: any node can serve them. A renewal that is not answered within about a
//! tenth of the ttl is tried at another node, so that one that is frozen or cut off costs no
//! lease. A wait goes on at the new node, at the end of its queue, and outlasts a cell that is
//! without a majority for a while. If the answer that granted a lease was lost with its
//! connection, nobody knows of that tenure any more: the name looks held, by this client's own
//! holder text, until its ttl is over.

mod builder;
mod client;
mod command;
mod driver;
mod election;
mod engine;
mod error;
mod link;
mod list;
mod onlookers;
mod route;
mod status;
#[cfg(any(test, feature = "test-util"))]
pub mod test_util;
mod tls;

pub use builder::Builder;
pub use client::Client;
pub use election::{Election, Leader, Leadership, Observer};
pub use error::StartError;
pub use list::List;
pub use paxoslease_holder::{
    Acquire, AcquireError, Acquiring, AskError, Change, Detached, Grant, LeaseGuard, LeaseInfo,
    LeaseState, PeerStatus, QueuedName, Rates, ReleaseError, RenewError, Role, Status, TextError,
    TtlError, Watch, block_on,
};
pub use paxoslease_tls::PemError;
pub use status::{NodeStatus, Value};
pub use tls::{Tls, TlsError};
