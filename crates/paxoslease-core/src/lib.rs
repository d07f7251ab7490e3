//! PaxosLease as a pure state machine: proposers and acceptors agree on leases, without the disk on
//! the hot path and without synchronised clocks.
//!
//! The caller brings a clock, a network and a little disk; [`Shard`] brings the protocol. Commands
//! and `handle_*` are its inputs, `poll_*` its outputs, and `now` is always an argument. The same
//! inputs give the same outputs. The crate does no I/O, reads no clock, logs nothing, starts no
//! thread, and draws random numbers only from a seeded generator; `no_std` is the proof.
//!
//! `protocol` is the paper with the rules of docs/protocol.md, `queueing` orders the requests that
//! wait, and `storage` keeps many names in little memory. `membership` decides who the members of
//! the cell are: [`Decider`], one per node, beside its shards.
//!
//! ```
//! use core::time::Duration;
//! use paxoslease_core::*;
//!
//! // One node is a majority of a cell of one, so an acquire is answered at once.
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
//! let belief = Belief::granted(tenure, drift.belief_ends_at(started_at, ttl));
//! assert!(belief.is_held(Instant::ZERO.after(Duration::from_secs(14))));
//! assert!(!belief.is_held(Instant::ZERO.after(Duration::from_secs(15))));
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! ```
#![no_std]

extern crate alloc;

mod bits;
mod cell;
mod config;
#[cfg(feature = "digest")]
mod digest;
mod ended;
mod epochs;
mod inspection;
mod kinds;
mod listed;
mod membership;
mod message;
mod outbox;
mod protocol;
mod queueing;
mod reclaiming;
mod refusal;
mod rng;
mod rules;
mod shard;
mod standing;
mod storage;
mod timers;

pub use cell::{Cell, CellError, MEMBERS_MAX, MemberSet, Sets, TtlError};
pub use config::{Config, ConfigError, Limits};
#[cfg(feature = "digest")]
pub use digest::Lens;
pub use membership::configuration::{
    ADDRESS_BYTES_MAX, Birth, Change, ChangeError, Configuration, EPOCHS_MISSED_MAX, Member,
    Members,
};
pub use membership::decision::{Decider, DeciderConfig};
pub use membership::message::{
    ConfigRefusal, DecisionNumber, MembershipEvent, MembershipMessage, NodeView, PeerState,
    StableConfiguration, Vote,
};
pub use message::{Hint, Message, Reply, Request, Seen};
pub use outbox::{Event, LiveLease, Sighting, To, Token, Transmit};
pub use protocol::acceptor::SnapshotLease;
pub use protocol::ballot::{Ballot, NodeId, Tenure};
pub use protocol::belief::Belief;
pub use protocol::proposer::RoundCounts;
pub use protocol::record::{BALLOT_BLOCK, Record};
pub use protocol::register::{Accepted, Register};
pub use protocol::round::{Phase, Round};
pub use protocol::time::{Drift, Instant, Ttl};
pub use queueing::waiting::WaitedName;
pub use refusal::{BallotProblem, CommandError, Refusal};
pub use rng::Rng;
pub use rules::{Rule, Rules};
pub use shard::{Acquire, Renew, Shard, Snapshot, Start};
pub use standing::Standing;
pub use standing::lasts::Lasts;
pub use storage::permits::Permits;
pub use storage::text::{Holder, Label, Name, Text, TextError};
