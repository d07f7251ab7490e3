//! How a node starts (protocol section 6): the decision, from the content of the folder and the
//! settings of the operator, and its explanation for the log.
//!
//! Pure. Deliberately lacks the disk: the caller has read the folder and removed the snapshot.

use std::fmt;

use paxoslease_core::{Config, Instant, Name, Record, Shard, Start, Ttl};
use paxoslease_wire::SnapshotReader;

use super::Loaded;

/// The settings for a start, and the wall clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wishes {
    /// No node of this cell ever ran, so no lease can be held.
    pub(crate) new_cell: bool,
    /// R6: start without a record, whatever the folder contains.
    pub(crate) reset: bool,
    /// M, or an older and longer M.
    pub(crate) max_lease: Ttl,
    /// R5: the counter at which ballots begin without a record.
    pub(crate) counter: u64,
}

/// How a node starts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Startup {
    /// The cell is new: no quarantine.
    NewCell {
        /// Ballots begin above this.
        counter: u64,
        /// Whether there is a folder.
        disk: bool,
    },
    /// R3: the record is intact, the leases are lost.
    Crash(Record),
    /// R5, R6: there is no usable record.
    NoRecord {
        /// Ballots begin above this.
        counter: u64,
        /// No lease of the cell is longer.
        longest: Ttl,
        /// Whether there is a folder.
        disk: bool,
        /// Whether the operator asked for it.
        reset: bool,
    },
    /// R4: after a clean stop, with a valid snapshot.
    Snapshot(Record, Vec<u8>),
}

impl Startup {
    /// `loaded` is `None` without a data folder.
    pub(crate) fn decide(
        loaded: Option<Loaded>,
        snapshot: Option<Vec<u8>>,
        wishes: Wishes,
    ) -> Self {
        let Wishes { new_cell, reset, max_lease: longest, counter } = wishes;
        let disk = loaded.is_some();
        match (loaded, snapshot) {
            // A readable record still counts: a reset makes nothing less safe.
            (Some(Loaded::Record(record)), _) if reset => Self::NoRecord {
                counter: counter.max(record.ballot_ceiling),
                longest: record.lease_ceiling.map_or(longest, |ceiling| longest.max(ceiling)),
                disk,
                reset,
            },
            (Some(Loaded::Record(record)), None) => Self::Crash(record),
            (Some(Loaded::Record(record)), Some(leases)) => Self::Snapshot(record, leases),
            (Some(Loaded::Fresh), _) if reset => Self::NoRecord { counter, longest, disk, reset },
            (Some(Loaded::Fresh) | None, _) if new_cell => Self::NewCell { counter, disk },
            (Some(Loaded::Fresh) | None, _) => {
                Self::NoRecord { counter, longest, disk, reset: false }
            }
        }
    }

    /// Ballots begin above this. It grows with every start, so it numbers the boots of a node: a
    /// start with a folder raises the recorded ceiling first, and one without a folder uses the wall
    /// clock (R5).
    pub(crate) const fn counter(&self) -> u64 {
        match *self {
            Self::NewCell { counter, .. } | Self::NoRecord { counter, .. } => counter,
            Self::Crash(record) | Self::Snapshot(record, _) => record.ballot_ceiling,
        }
    }

    /// The record that every shard begins with; `None` without a folder.
    pub(crate) fn record(&self) -> Option<Record> {
        match *self {
            Self::NewCell { disk: false, .. } | Self::NoRecord { disk: false, .. } => None,
            Self::NewCell { counter, disk: true } => {
                Some(Record { ballot_ceiling: counter, lease_ceiling: None })
            }
            Self::NoRecord { counter, longest, disk: true, .. } => {
                Some(Record { ballot_ceiling: counter, lease_ceiling: Some(longest) })
            }
            Self::Crash(record) | Self::Snapshot(record, _) => Some(record),
        }
    }

    /// Starts a shard with the leases of the names it owns.
    pub(crate) fn shard(
        &self,
        config: Config,
        now: Instant,
        owns: impl Fn(Name<'_>) -> bool,
    ) -> Shard {
        let start = match *self {
            Self::NewCell { counter, disk } => Start::NewCell { counter, disk },
            Self::Crash(record) => Start::Crash(record),
            Self::NoRecord { counter, longest, disk, .. } => {
                Start::NoRecord { counter, longest, disk }
            }
            Self::Snapshot(record, ref bytes) => {
                let leases = SnapshotReader::new(config.node, bytes).expect("it was checked");
                let owned = leases.filter(|lease| owns(lease.name));
                return Shard::start_from_snapshot(config, now, record, owned);
            }
        };
        Shard::start(config, now, start)
    }

    /// Logs the start, as a warning if safety depends on more than the protocol.
    pub(crate) fn log(&self) {
        match self {
            Self::NewCell { .. }
            | Self::NoRecord { reset: true, .. }
            | Self::NoRecord { disk: false, .. } => tracing::warn!("{self}"),
            Self::NoRecord { .. } | Self::Crash(_) | Self::Snapshot(..) => tracing::info!("{self}"),
        }
    }
}

impl fmt::Display for Startup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NewCell { .. } => {
                write!(f, "new cell: voting at once. Right only if no node of this cell ran before")
            }
            Self::Crash(Record { lease_ceiling: None, .. }) => {
                write!(f, "stable record found, with no lease accepted so far: voting at once")
            }
            Self::Crash(Record { lease_ceiling: Some(longest), .. }) => write!(
                f,
                "no snapshot of a clean stop: waiting for the longest lease that may be out \
                 ({longest}) before voting"
            ),
            Self::NoRecord { longest, disk: true, reset: false, .. } => {
                write!(f, "no stable record: waiting max_lease ({longest}) before voting")
            }
            Self::NoRecord { longest, disk: true, reset: true, .. } => write!(
                f,
                "stable record reset: waiting max_lease ({longest}) before voting. That there is \
                 one holder at a time rests on the wall clock being ahead of every ballot this \
                 node used before. Take the wish to reset back once this node runs"
            ),
            Self::NoRecord { longest, disk: false, .. } => write!(
                f,
                "no data folder: waiting max_lease ({longest}) before voting, at this and every \
                 start. That there is one holder at a time rests on the wall clock not going back \
                 across a restart; that fences grow, on no other node's wall clock being ahead. \
                 Set data_dir to rest on neither"
            ),
            Self::Snapshot(..) => {
                write!(f, "clean stop: leases restored from the snapshot, voting at once")
            }
        }
    }
}
