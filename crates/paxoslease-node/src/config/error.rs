//! What can be wrong with a configuration.
//!
//! Every message is whole: it says what is wrong, what was expected and what to do, so there is no
//! chain of causes to print. Nothing has been started or changed when one is returned.

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
    /// It cannot be read.
    #[error("cannot read the configuration {path:?}: {error}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// It can be read, but not understood.
    #[error("{}: {error}", path.display())]
    Toml {
        /// The file.
        path: PathBuf,
        /// What is wrong, and in which line.
        error: TomlError,
    },
}

/// Why a node cannot start with a configuration.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// Nobody said which cell this is.
    #[error("no cell; set `cell` to the name that all its nodes share")]
    NoCell,
    /// The cell has too long a name.
    #[error(
        "`cell` is {name:?}: {error}; expected the name that all nodes of the cell share, \
             1 to {} bytes",
        CellName::LEN_MAX
    )]
    CellName {
        /// The name.
        name: String,
        /// What is wrong with it.
        error: TextError,
    },
    /// Nobody said who this node is.
    #[error("no node id; set `node` to a number from 1 to {}, another for each node", NodeId::MAX)]
    NoNode,
    /// An id is out of bounds.
    #[error("`{key}` has the node id {node}; expected 1 to {}", NodeId::MAX)]
    NodeId {
        /// Where.
        key: &'static str,
        /// The id.
        node: u16,
    },
    /// Nobody said who the members are.
    #[error(
        "no peers; list the cell's members, 1 to {MEMBERS_MAX} of them, as `[peers]` with \
             lines such as 1 = \"10.0.0.1:7401\""
    )]
    NoPeers,
    /// A member is not among the members.
    #[error(
        "node {node} is a member, but not in `[peers]`, which lists {listed}; add its address \
             there, correct `node`, or set role = \"proposer\""
    )]
    MemberNotListed {
        /// This node.
        node: NodeId,
        /// The members, for people.
        listed: String,
    },
    /// A node that votes on nothing is among the members.
    #[error(
        "node {node} is a proposer, but in `[peers]`, which lists members only; give it an id \
             that is not there, or set role = \"member\""
    )]
    ProposerListed {
        /// This node.
        node: NodeId,
    },
    /// An address is none.
    #[error("`{key}` is {address:?}: {error}")]
    Address {
        /// Where.
        key: String,
        /// The address.
        address: String,
        /// What is wrong with it.
        error: AddressError,
    },
    /// Two things have one address.
    #[error("`{first}` and `{second}` are both {address:?}; give each an address of its own")]
    SameAddress {
        /// Where.
        first: String,
        /// Where else.
        second: String,
        /// The address, as the second has it.
        address: String,
    },
    /// Bytes in clear would leave this machine.
    #[error(
        "`{key}` is {address:?}, not a loopback address, and what is said there would be in clear \
             for everybody on the way to read and change; {remedy}, or set \
             `listen.allow_plaintext` (--insecure-plaintext) on a network that you trust"
    )]
    Plaintext {
        /// Where.
        key: String,
        /// The address.
        address: String,
        /// What to do instead.
        remedy: &'static str,
    },
    /// Other members could not connect.
    #[error(
        "`listen.peers` is \"off\", but the cell has {members} members, which must reach each \
             other; give an address, or list only this node in `[peers]`"
    )]
    PeersOff {
        /// How many members `[peers]` has.
        members: usize,
    },
    /// A proposer is to listen for peers.
    #[error(
        "`listen.peers` is {address:?}, but a proposer connects to the members and listens for \
             none; remove it, or set role = \"member\""
    )]
    ProposerListens {
        /// The address.
        address: String,
    },
    /// M is out of bounds.
    #[error("`max_lease` is {max_lease:?}; expected {} to {}", Ttl::MIN, Ttl::MAX)]
    MaxLease {
        /// M as configured.
        max_lease: Duration,
    },
    /// The clocks are assumed to be worse than the protocol is made for.
    #[error("`clock_drift_ppm` is {ppm}; expected 0 to {}", Drift::PPM_MAX)]
    ClockDrift {
        /// The drift as configured.
        ppm: u32,
    },
    /// The members, M and the clocks make no cell.
    #[error("{0}; correct `[peers]`, `clock_drift_ppm` or `clock_granularity`")]
    Cell(CellError),
    /// There are too few or too many shards.
    #[error("`shards` is {shards}; expected 1 to {SHARDS_MAX}, the same in all nodes")]
    Shards {
        /// The number as configured.
        shards: u16,
    },
    /// A path is empty.
    #[error("`{key}` is empty; expected a path, or nothing at all")]
    EmptyPath {
        /// Where.
        key: &'static str,
    },
    /// Waiting for no time at all.
    #[error("`timing.{key}` is zero; expected a duration such as {expected:?}")]
    ZeroTime {
        /// Where.
        key: &'static str,
        /// The default.
        expected: Duration,
    },
    /// A peer would be given up for one late heartbeat.
    #[error(
        "`timing.peer_timeout` is {peer_timeout:?}, less than two heartbeats of {heartbeat:?}; \
             raise it, or lower `timing.heartbeat`"
    )]
    PeerTimeout {
        /// When a peer is given up.
        peer_timeout: Duration,
        /// How often it is heard from.
        heartbeat: Duration,
    },
    /// Room for nothing.
    #[error("`limits.{key}` is zero; expected at least 1")]
    ZeroLimit {
        /// Where.
        key: &'static str,
    },
    /// A peer's queue would not hold a few frames.
    #[error("`limits.peer_queue_bytes` is {bytes}; expected at least {PEER_QUEUE_BYTES_MIN}")]
    PeerQueue {
        /// The bound as configured.
        bytes: usize,
    },
    /// There is no record to reset.
    #[error("`reset_stable_record` is set, but there is no `data_dir`; set it, or do not reset")]
    NothingToReset,
    /// Resetting waits until all leases are over, a new cell does not.
    #[error(
        "`reset_stable_record` and `new_cell` are both set; a new cell has no record to reset, \
             so give it an empty `data_dir`, or drop `new_cell`"
    )]
    ResetOfNewCell,
    /// Nothing would tell the second start from the first.
    #[error(
        "`new_cell` is set, but there is no `data_dir`: a restarted node would vote at once, \
             and there might be two holders; set `data_dir`, or drop `new_cell`"
    )]
    NewCellForgets,
    /// An ephemeral cell leaves nothing behind.
    #[error("a cell is ephemeral or has a `data_dir`, not both; drop one of them")]
    EphemeralWithFolder,
}
