//! The errors of a configuration.
//!
//! Every message is complete: it says what is wrong, what was expected and what to do, so there is
//! no chain of causes to print. Nothing was started or changed.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use paxoslease_core::{CellError, Drift, MEMBERS_MAX, NodeId, TextError, Ttl};
use paxoslease_wire::CellName;
use thiserror::Error;

use super::settings::{PEER_QUEUE_BYTES_MIN, SHARDS_MAX};
use super::{AddressError, TomlError};

/// Why a configuration file could not be loaded.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The file cannot be read.
    #[error("cannot read the configuration {path:?}: {error}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The answer of the system.
        error: io::Error,
    },
    /// Its text cannot be parsed.
    #[error("{}: {error}", path.display())]
    Toml {
        /// The file.
        path: PathBuf,
        /// The problem, and its line.
        error: TomlError,
    },
}

/// Why a node cannot start with a configuration.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// `cell` is not set.
    #[error("no cell; set `cell` to the name that all its nodes share")]
    NoCell,
    /// The name of the cell is too long.
    #[error(
        "`cell` is {name:?}: {error}; expected the name that all nodes of the cell share, \
         1 to {} bytes",
        CellName::LEN_MAX
    )]
    CellName {
        /// The name.
        name: String,
        /// Its problem.
        error: TextError,
    },
    /// `node` is not set.
    #[error("no node id; set `node` to a number from 1 to {}, another for each node", NodeId::MAX)]
    NoNode,
    /// An id is out of bounds.
    #[error("`{key}` has the node id {node}; expected 1 to {}", NodeId::MAX)]
    NodeId {
        /// The key.
        key: &'static str,
        /// The id.
        node: u16,
    },
    /// `[peers]` is empty.
    #[error(
        "no peers; list the cell's members, 1 to {MEMBERS_MAX} of them, as `[peers]` with \
         lines such as 1 = \"10.0.0.1:7401\""
    )]
    NoPeers,
    /// This node is a member, but not listed as one.
    #[error(
        "node {node} is a member, but not in `[peers]`, which lists {listed}; add the line {node} = \
         \"HOST:PORT\" there (--peer {node}=HOST:PORT), or, if it joins a running cell, give it a \
         data_dir and `listen.peers` (--listen-peers); or correct `node`, or set role = \"proposer\""
    )]
    MemberNotListed {
        /// This node.
        node: NodeId,
        /// The members, for people.
        listed: String,
    },
    /// This node is not a member, but listed as one.
    #[error(
        "node {0} is a proposer, but in `[peers]`, which lists members only; give it an id \
         that is not there, or set role = \"member\""
    )]
    ProposerListed(NodeId),
    /// An address is malformed.
    #[error("`{key}` is {address:?}: {error}")]
    Address {
        /// The key.
        key: String,
        /// The address.
        address: String,
        /// Its problem.
        error: AddressError,
    },
    /// Two keys have the same address.
    #[error("`{first}` and `{second}` are both {address:?}; give each an address of its own")]
    SameAddress {
        /// The first key.
        first: String,
        /// The second key.
        second: String,
        /// The address, as the second key spells it.
        address: String,
    },
    /// Bytes in clear would leave this machine.
    #[error(
        "`{key}` is {address:?}, not a loopback address: other machines could read and change \
         unencrypted traffic to it; {remedy}, or set `listen.allow_plaintext` \
         (--insecure-plaintext) on a network that you trust"
    )]
    Plaintext {
        /// The key.
        key: String,
        /// The address.
        address: String,
        /// What to do instead.
        remedy: &'static str,
    },
    /// Other members could not connect.
    #[error(
        "`listen.peers` is \"off\", but the cell has {0} members, which must reach each \
         other; give an address, or list only this node in `[peers]`"
    )]
    PeersOff(usize),
    /// A proposer cannot listen for peers.
    #[error(
        "`listen.peers` is {0:?}, but a proposer connects to the members and listens for \
         none; remove it, or set role = \"member\""
    )]
    ProposerListens(String),
    /// M is out of bounds.
    #[error("`max_lease` is {:?}; expected {} to {}", .0, Ttl::MIN, Ttl::MAX)]
    MaxLease(Duration),
    /// The drift of the clocks is out of bounds.
    #[error("`clock_drift_ppm` is {}; expected 0 to {}", .0, Drift::PPM_MAX)]
    ClockDrift(u32),
    /// The members, M and the clocks do not fit together.
    #[error("{0}; correct `[peers]`, `clock_drift_ppm` or `clock_granularity`")]
    Cell(CellError),
    /// The number of shards is out of bounds.
    #[error("`shards` is {0}; expected 1 to {SHARDS_MAX}, the same in all nodes")]
    Shards(u16),
    /// A path is empty.
    #[error("`{0}` is empty; expected a path, or nothing at all")]
    EmptyPath(&'static str),
    /// A time is zero.
    #[error("`timing.{key}` is zero; expected a duration such as {expected:?}")]
    ZeroTime {
        /// The key.
        key: &'static str,
        /// The default.
        expected: Duration,
    },
    /// One late heartbeat would end the connection to a peer.
    #[error(
        "`timing.peer_timeout` is {peer_timeout:?}, less than two heartbeats of {heartbeat:?}; \
         raise it, or lower `timing.heartbeat`"
    )]
    PeerTimeout {
        /// The silence after which a connection is closed.
        peer_timeout: Duration,
        /// The interval of heartbeats.
        heartbeat: Duration,
    },
    /// A limit is zero.
    #[error("`limits.{0}` is zero; expected at least 1")]
    ZeroLimit(&'static str),
    /// The queue of a peer would not hold a few frames.
    #[error("`limits.peer_queue_bytes` is {0}; expected at least {PEER_QUEUE_BYTES_MIN}")]
    PeerQueue(usize),
    /// There is no record to reset.
    #[error("`reset_stable_record` is set, but there is no `data_dir`; set it, or do not reset")]
    NothingToReset,
    /// A reset waits until all leases are over, a new cell does not.
    #[error(
        "`reset_stable_record` and `new_cell` are both set; a new cell has no record to reset, \
         so give it an empty `data_dir`, or drop `new_cell`"
    )]
    ResetOfNewCell,
    /// The second start would look like the first.
    #[error(
        "`new_cell` is set, but there is no `data_dir`: a restarted node would vote at once, \
         and there might be two holders; set `data_dir`, or drop `new_cell`"
    )]
    NewCellForgets,
    /// An ephemeral cell leaves nothing behind.
    #[error("a cell is ephemeral or has a `data_dir`, not both; drop one of them")]
    EphemeralWithFolder,
}
