//! PaxosLease as a pure state machine: proposers and acceptors that agree on leases, diskless on
//! the hot path, with no synchronised clocks.
//!
//! Bring a clock, a network and a little disk; [`Shard`] brings the protocol. Commands and
//! `handle_*` go in, `poll_*` comes out, `now` is always an argument. Same inputs, same outputs.
//! There is no I/O here, no clock, no randomness but a seeded generator, no logging, no threads;
//! `no_std` is the proof.
//!
//! ```
//! use core::time::Duration;
//! use paxoslease_core::*;
//!
//! // A cell of one node is its own majority: an acquire is answered at once.
//! let node = NodeId::new(1).unwrap();
//! let max_lease = Ttl::from_millis(60_000).unwrap();
//! let drift = Drift::new(1000, Duration::from_millis(1)).unwrap();
//! let cell = Cell::new(&[node], max_lease, drift)?;
//! let start = Start::NewCell { counter: 0, disk: false };
//! let mut shard = Shard::start(Config::new(node, cell, 7), Instant::ZERO, start);
//!
//! let acquire = Acquire {
//!     token: Token(1),
//!     name: Name::new("jobs/nightly")?,
//!     holder: Holder::new("me")?,
//!     ttl: Duration::from_secs(15),
//!     wait: Duration::ZERO,
//! };
//! shard.acquire(Instant::ZERO, acquire)?;
//! let Some(Event::Granted { tenure, ttl, started_at, .. }) = shard.poll_event() else {
//!     panic!("granted")
//! };
//! let belief = Belief::granted(tenure, drift.belief_ends_at(Rules::ALL, started_at, ttl));
//! assert!(belief.is_held(Instant::ZERO.after(Duration::from_secs(14))));
//! assert!(!belief.is_held(Instant::ZERO.after(Duration::from_secs(15))));
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! ```
#![no_std]

extern crate alloc;

mod acceptor;
mod ballot;
mod belief;
mod cell;
mod config;
mod contender;
#[cfg(feature = "digest")]
mod digest;
mod message;
mod outbox;
mod proposer;
mod queue;
mod record;
mod register;
mod rng;
mod round;
mod rules;
mod shard;
mod table;
mod text;
mod time;
mod timers;

pub use acceptor::{Refusal, SnapshotLease};
pub use ballot::{Ballot, BallotProblem, NodeId, Tenure};
pub use belief::Belief;
pub use cell::{Cell, CellError, MEMBERS_MAX, MemberSet, TtlError};
pub use config::{Config, ConfigError, Limits};
#[cfg(feature = "digest")]
pub use digest::Lens;
pub use message::{Hint, Message, Reply, Request, Seen};
pub use outbox::{Event, Sighting, To, Token, Transmit};
pub use proposer::RoundCounts;
pub use record::{BALLOT_BLOCK, Record};
pub use register::{Accepted, Register};
pub use rng::Rng;
pub use round::{Phase, Round};
pub use rules::{Rule, Rules};
pub use shard::{Acquire, CommandError, Shard, Snapshot, Start};
pub use text::{Holder, Label, Name, TextError};
pub use time::{Drift, Instant, Ttl};
