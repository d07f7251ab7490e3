//! The settings of a shard.

use core::fmt;
use core::time::Duration;

use crate::rules::Rules;
use crate::{Cell, NodeId};

/// Where the shard keeps the registers of durable leases (K14). All members of a cell do the same.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Durability {
    /// On disk: no number of crashes loses a lease.
    #[default]
    Disk,
    /// In memory. A majority that restarts between two checks loses a lease.
    Volatile,
    /// Nowhere: the node has no disk, so it refuses to store them.
    Refused,
}

/// As the setting is written.
impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Disk => "disk",
            Self::Volatile => "volatile",
            Self::Refused => "refuse",
        })
    }
}

/// A shard's settings. Only `cell` must be the same on all nodes.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Config {
    /// This node. It is an acceptor if it is one of the members; otherwise it only proposes.
    pub node: NodeId,
    /// Whether `cell` lists the members, and this node with its birth if it lists its id. It does
    /// not before the cell is founded, or before this node has heard of the members (U2). Until
    /// then this node neither votes nor issues ballots.
    pub knows_members: bool,
    /// R5: whether this node may have issued ballots that its record does not know, because it
    /// lost an earlier record and was no member. It then asks the members before its first ballot,
    /// however long that takes.
    pub asks_first: bool,
    /// The cell, the same on all its nodes.
    pub cell: Cell,
    /// Seed of all random delays and of the hashes of names.
    pub seed: u64,
    /// Whether an acquire begins with a direct round (P1). If not, every round is prepared (P2), as
    /// in the paper.
    pub direct_rounds: bool,
    /// A fresh round without a majority is given up after this time (P4), while round trips are
    /// unknown. Not zero.
    pub attempt_timeout: Duration,
    /// Once round trips are known, it is given up after a few of them, but not before this time.
    /// Not zero.
    pub attempt_timeout_min: Duration,
    /// An acquire or a renewal reports that there is no quorum after this time, or after a few
    /// rounds where those take longer.
    pub request_timeout: Duration,
    /// The first pause after a split vote. It is random and doubles with each split. Not zero.
    pub backoff_min: Duration,
    /// The longest such pause. Not zero.
    pub backoff_max: Duration,
    /// How long a node leaves its turn to another when a name is freed, while round trips are
    /// unknown; and the time over which nodes spread their rounds when a lease expires.
    pub stagger_max: Duration,
    /// How long an idle entry is kept, so that messages in flight meet its promise. An entry that
    /// was released is reclaimed after a few round trips, if that is sooner.
    pub reclaim_after: Duration,
    /// Where registers of durable leases are kept.
    pub durability: Durability,
    /// Bounds on the memory of the shard.
    pub limits: Limits,
    /// All rules, except in tests that switch one off.
    pub rules: Rules,
}

/// Which settings a shard cannot work with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConfigError {
    /// Every round would end as it begins, without end.
    AttemptTimeoutZero,
    /// A round that cannot begin yet would be tried again without end.
    BackoffZero,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AttemptTimeoutZero => "attempt_timeout or attempt_timeout_min is zero",
            Self::BackoffZero => "backoff_min or backoff_max is zero",
        })
    }
}

impl core::error::Error for ConfigError {}

/// Bounds on the memory of one shard.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Limits {
    /// Names in the acceptor, idle ones included.
    pub entries_max: usize,
    /// Heap bytes of labels in the acceptor that do not fit into their entries.
    pub text_bytes_max: usize,
    /// Rounds, unanswered releases and inspections.
    pub rounds_max: usize,
    /// Requests that wait for a lease.
    pub waiters_max: usize,
    /// Peers' requests that wait for the stable record.
    pub deferred_max: usize,
    /// Registers of durable names. Beyond that, no further name becomes durable.
    pub registers_max: usize,
}

impl Config {
    /// Settings for a local network.
    #[must_use]
    pub const fn new(node: NodeId, cell: Cell, seed: u64) -> Self {
        Self {
            node,
            knows_members: true,
            asks_first: false,
            cell,
            seed,
            direct_rounds: true,
            attempt_timeout: Duration::from_millis(100),
            attempt_timeout_min: Duration::from_millis(10),
            request_timeout: Duration::from_secs(2),
            backoff_min: Duration::from_millis(1),
            backoff_max: Duration::from_millis(200),
            stagger_max: Duration::from_millis(1),
            reclaim_after: Duration::from_secs(1),
            durability: Durability::Disk,
            limits: Limits {
                entries_max: 100_000_000,
                text_bytes_max: usize::MAX,
                rounds_max: 1_000_000,
                waiters_max: 1_000_000,
                deferred_max: 4096,
                registers_max: 1_000_000,
            },
            rules: Rules::ALL,
        }
    }

    /// Checks that a shard with these settings cannot loop while its clock stands still.
    ///
    /// # Errors
    /// Names the first setting that is zero and must not be.
    pub const fn check(&self) -> Result<(), ConfigError> {
        if self.attempt_timeout.is_zero() || self.attempt_timeout_min.is_zero() {
            return Err(ConfigError::AttemptTimeoutZero);
        }
        if self.backoff_min.is_zero() || self.backoff_max.is_zero() {
            return Err(ConfigError::BackoffZero);
        }
        Ok(())
    }
}
