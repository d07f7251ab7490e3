//! How a node sees itself and its cell, for people and programs that monitor it. All of it is a
//! hint: a moment old when it is read.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize, Serializer};

use crate::error::{AskError, Quarantine};

/// A node's view of the cell.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Status {
    /// The cell's name.
    pub cell: String,
    /// The node.
    pub node: u16,
    /// What it does in the cell.
    pub role: Role,
    /// The members of the cell. While they change, those before the change.
    pub members: Vec<u16>,
    /// How the members can change.
    pub membership: Membership,
    /// How many times the members of the cell were decided.
    pub epoch: u32,
    /// The change of the members that is under way.
    pub change: Option<ChangeStatus>,
    /// Where clients reach the node, if anywhere.
    pub clients: Option<String>,
    /// The longest lease that the cell grants.
    #[serde(rename = "max_lease_ms", serialize_with = "millis")]
    pub max_lease: Duration,
    /// Whether the node votes, if it is a member, reaches a majority of members that vote, itself
    /// included, and can issue ballots. A node in quarantine is not ready, although it may find a
    /// majority of others.
    pub ready: bool,
    /// How long the node does not vote yet after its start.
    #[serde(rename = "quarantine_remaining_ms", serialize_with = "millis")]
    pub quarantine_remaining: Duration,
    /// Whether the node found its stable record when it started. It has none when it starts for the
    /// first time.
    pub has_record: bool,
    /// Its peers.
    pub peers: Vec<PeerStatus>,
    /// Names that its acceptor keeps, idle ones included.
    pub leases: u64,
    /// Heap bytes of these names.
    pub acceptor_bytes: u64,
    /// Durable leases among them, which are on its disk.
    pub durable: u64,
    /// Durable names of which it does not know that every member has them: a member is away, or
    /// they were changed a moment ago.
    pub durable_unsettled: u64,
    /// Names whose durable lease is over, kept until every member knows that.
    pub durable_free: u64,
    /// Requests that wait for a lease at the node.
    pub waiters: u64,
    /// Some of the names that they wait for, those with the most waiters first.
    pub waiting: Vec<QueuedName>,
    /// Leases held by guards of the node.
    pub guards: u64,
    /// Rounds in flight.
    pub rounds_in_flight: u64,
    /// What the node did for its users lately, per second.
    pub rates: Rates,
    /// The longest time that a thread of the node took between two looks at its sockets, since the
    /// start.
    #[serde(rename = "longest_turn_us", serialize_with = "micros")]
    pub longest_turn: Duration,
    /// How many threads share the names.
    pub shards: u16,
    /// The problem of the data folder, if there is one.
    pub disk_problem: Option<String>,
    /// Why the node cannot begin rounds, if it cannot.
    pub ballot_problem: Option<String>,
    /// How much of the space of ballot counters is left: 1 for all of it, 0 for none.
    pub ballots_remaining_ratio: f64,
}

impl Status {
    /// The quarantine of this node, if it is in one.
    #[must_use]
    pub fn quarantine(&self) -> Option<Quarantine> {
        let Self { quarantine_remaining: remaining, has_record, .. } = *self;
        (!remaining.is_zero()).then_some(Quarantine { remaining, has_record })
    }

    /// Why this node finds no majority, as far as it can tell by itself.
    #[must_use]
    pub fn no_majority(&self) -> AskError {
        AskError::no_majority(self.membership, self.quarantine(), self.disk_problem.as_deref())
    }
}

/// What a node does in its cell.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// It votes on leases, and takes them.
    #[default]
    Member,
    /// It only takes leases, in one round trip straight from the members.
    Proposer,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Member => "member",
            Self::Proposer => "proposer",
        })
    }
}

impl FromStr for Role {
    type Err = UnknownRole;

    fn from_str(text: &str) -> Result<Self, UnknownRole> {
        match text {
            "member" => Ok(Self::Member),
            "proposer" => Ok(Self::Proposer),
            _ => Err(UnknownRole { text: text.to_owned() }),
        }
    }
}

/// A text that is not a role.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{text:?} is not a role; expected member or proposer")]
pub struct UnknownRole {
    /// The text.
    pub text: String,
}

/// One peer, as a node sees it.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct PeerStatus {
    /// The peer's id.
    pub node: u16,
    /// The peer's address, if the node knows one.
    pub address: Option<String>,
    /// Whether it is connected, with all its shards.
    pub up: bool,
    /// The recent round trip.
    #[serde(rename = "rtt_us", serialize_with = "maybe_micros")]
    pub rtt: Option<Duration>,
    /// How long the peer does not vote yet after its restart, as it says.
    #[serde(rename = "quarantine_remaining_ms", serialize_with = "millis")]
    pub quarantine_remaining: Duration,
    /// The last problem, if it is not connected.
    pub problem: Option<String>,
    /// Where clients reach it, as it said when it was connected last.
    pub clients: Option<String>,
}

/// How the members of a cell can change, as one node sees it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Membership {
    /// They cannot: the node has no data_dir, and its list is fixed.
    #[default]
    Fixed,
    /// They are not decided yet: the cell is founded when all nodes of the list are up.
    Founding,
    /// The node is not a member of any cell yet.
    Blank,
    /// The node is a member.
    Member,
    /// The node is not a member, and serves its clients through the members.
    Outside,
    /// The node's id belongs to a member with another data folder.
    DiskLost,
}

impl Membership {
    /// Why the node takes no part in a cell, and what to do; `None` if it does.
    #[must_use]
    pub const fn problem(self) -> Option<&'static str> {
        match self {
            Self::Fixed | Self::Member | Self::Outside => None,
            Self::Founding => Some(
                "the cell is not founded yet: start all nodes of its list with --new-cell (in \
                 Rust: new_cell(true))",
            ),
            Self::Blank => Some(
                "this node is not a member of a cell yet: add it with `paxoslease members add`; \
                 or, if no node of this cell ever ran, start all of them with --new-cell (in Rust: \
                 new_cell(true))",
            ),
            Self::DiskLost => Some(
                "the member with the id of this node has another data folder: give this node an id \
                 that was never used and an empty data_dir, and add it with `paxoslease members \
                 replace`",
            ),
        }
    }
}

/// A change of the members that is under way: the old members confirm leases, and the new ones
/// store them.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct ChangeStatus {
    /// The members after the change.
    pub to: Vec<u16>,
    /// How long the node still waits for leases from before the change to end or to be renewed.
    #[serde(rename = "wait_remaining_ms", serialize_with = "millis")]
    pub wait_remaining: Duration,
    /// Registers of durable leases that have not moved to the new members yet.
    pub registers: u64,
    /// Whether the node coordinates the change.
    pub leads: bool,
    /// The members that have adopted the change, as far as the node that coordinates it knows.
    pub adopted: Vec<u16>,
}

/// A name that requests of a node wait for.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct QueuedName {
    /// The name.
    pub name: String,
    /// How many requests wait for it at the node.
    pub waiters: u64,
    /// The holder text of its lease, as far as the node knows: a hint.
    pub holder: Option<String>,
    /// The fence of that tenure.
    #[serde(serialize_with = "maybe_text")]
    pub fence: Option<u64>,
}

/// What a node did for its users, per second.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Rates {
    /// Leases granted.
    pub acquires: u64,
    /// Leases renewed.
    pub renewals: u64,
    /// Leases released.
    pub releases: u64,
}

pub(crate) fn millis<S: Serializer>(span: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(u64::try_from(span.as_millis()).unwrap_or(u64::MAX))
}

fn micros<S: Serializer>(span: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(u64::try_from(span.as_micros()).unwrap_or(u64::MAX))
}

/// As a text: some JSON parsers round numbers as large as fences.
fn maybe_text<S: Serializer>(fence: &Option<u64>, serializer: S) -> Result<S::Ok, S::Error> {
    match fence {
        Some(fence) => serializer.collect_str(fence),
        None => serializer.serialize_none(),
    }
}

fn maybe_micros<S: Serializer>(span: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    match span {
        Some(span) => micros(span, serializer),
        None => serializer.serialize_none(),
    }
}
