//! What a shard is told when it starts.

use core::fmt;
use core::time::Duration;

use crate::rules::Rules;
use crate::{Cell, NodeId};

/// A shard's settings. Only `cell` must agree between nodes; the rest is each node's own.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Config {
    /// This node. An acceptor if the cell lists it, else a proposer only.
    pub node: NodeId,
    /// The cell it belongs to.
    pub cell: Cell,
    /// Seeds every random delay and the hashing of names.
    pub seed: u64,
    /// Whether an acquire begins with a direct round (P1). If not, every round is prepared first,
    /// as in the paper.
    pub direct_rounds: bool,
    /// After this long without a majority a fresh round is given up, while nothing is known of
    /// round trips.
    pub attempt_timeout: Duration,
    /// Later it is given up after a few round trips, as recent rounds and the network took them,
    /// but not before this.
    pub attempt_timeout_min: Duration,
    /// How long an acquire or a renewal goes on trying before it reports that there is no quorum;
    /// longer where round trips are so long that this is no more than a few rounds.
    pub request_timeout: Duration,
    /// The first pause after a split vote; doubles with each, jittered.
    pub backoff_min: Duration,
    /// The longest such pause.
    pub backoff_max: Duration,
    /// How long a node leaves another to take its turn when a lease is freed, while nothing is
    /// known of round trips, and how much nodes spread out when one runs out.
    pub stagger_max: Duration,
    /// How long an idle entry is kept, so that ballots in flight meet their promises; one that was
    /// released goes after a few round trips, if these are known and that is sooner.
    pub reclaim_after: Duration,
    /// Bounds on memory.
    pub limits: Limits,
    /// All of them; tests of the tests switch one off.
    pub rules: Rules,
}

/// Why a shard cannot work with its settings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConfigError {
    /// Every round would be over as it begins, and begin again.
    AttemptTimeoutZero,
    /// Without a pause, a round that cannot begin yet would be tried again without end.
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

/// Bounds on what one shard keeps.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Limits {
    /// Names in the acceptor.
    pub entries_max: usize,
    /// Bytes of names and holders in the acceptor that are too long for their entries.
    pub text_bytes_max: usize,
    /// Rounds, releases and inspections in flight.
    pub rounds_max: usize,
    /// Requests waiting for a lease.
    pub waiters_max: usize,
    /// Requests of peers that wait for the stable record.
    pub deferred_max: usize,
}

impl Config {
    /// Settings that suit a local network.
    #[must_use]
    pub const fn new(node: NodeId, cell: Cell, seed: u64) -> Self {
        Self {
            node,
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
            limits: Limits {
                entries_max: 100_000_000,
                text_bytes_max: usize::MAX,
                rounds_max: 1_000_000,
                waiters_max: 1_000_000,
                deferred_max: 4096,
            },
            rules: Rules::ALL,
        }
    }

    /// Whether a shard can work with these settings: some would spin while time stands still.
    ///
    /// # Errors
    /// Names the first that cannot be.
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
