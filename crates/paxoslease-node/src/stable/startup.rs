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
    /// Without leases; `reset` if the operator asked for that (R6).
    Empty { start: Start, reset: bool },
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
        let start = match (loaded, snapshot) {
            // A readable record still counts: a reset makes nothing less safe.
            (Some(Loaded::Record(record)), _) if reset => Start::NoRecord {
                counter: counter.max(record.ballot_ceiling),
                longest: record.lease_ceiling.map_or(longest, |ceiling| longest.max(ceiling)),
                disk,
            },
            (Some(Loaded::Record(record)), Some(leases)) => return Self::Snapshot(record, leases),
            (Some(Loaded::Record(record)), None) => Start::Crash(record),
            (Some(Loaded::Fresh) | None, _) if new_cell && !(reset && disk) => {
                Start::NewCell { counter, disk }
            }
            (Some(Loaded::Fresh) | None, _) => Start::NoRecord { counter, longest, disk },
        };
        Self::Empty { start, reset: reset && disk }
    }

    /// Ballots begin above this. It grows with every start, so it numbers the boots of a node: a
    /// start with a folder raises the recorded ceiling first, and one without a folder uses the
    /// wall clock (R5).
    pub(crate) const fn counter(&self) -> u64 {
        match *self {
            Self::Empty { start: Start::NewCell { counter, .. }, .. }
            | Self::Empty { start: Start::NoRecord { counter, .. }, .. } => counter,
            Self::Empty { start: Start::Crash(record), .. } | Self::Snapshot(record, _) => {
                record.ballot_ceiling
            }
        }
    }

    /// Whether the folder had a record, so that this is not the first start with it. A node without
    /// a folder cannot tell.
    pub(crate) const fn has_record(&self) -> bool {
        let is_first = matches!(
            self,
            Self::Empty { start: Start::NoRecord { disk: true, .. }, reset: false }
                | Self::Empty { start: Start::NewCell { .. }, .. }
        );
        !is_first
    }

    /// The record that every shard begins with; `None` without a folder.
    pub(crate) fn record(&self) -> Option<Record> {
        let start = match *self {
            Self::Snapshot(record, _) => return Some(record),
            Self::Empty { start, .. } => start,
        };
        match start {
            Start::NewCell { disk: false, .. } | Start::NoRecord { disk: false, .. } => None,
            Start::NewCell { counter, disk: true } => {
                Some(Record { ballot_ceiling: counter, lease_ceiling: None })
            }
            Start::NoRecord { counter, longest, disk: true } => {
                Some(Record { ballot_ceiling: counter, lease_ceiling: Some(longest) })
            }
            Start::Crash(record) => Some(record),
        }
    }

    /// Starts a shard with the leases of the names it owns.
    pub(crate) fn shard(
        &self,
        config: Config,
        now: Instant,
        owns: impl Fn(Name<'_>) -> bool,
    ) -> Shard {
        match self {
            Self::Empty { start, .. } => Shard::start(config, now, *start),
            Self::Snapshot(record, bytes) => {
                let leases = SnapshotReader::new(config.node, bytes).expect("it was checked");
                let owned = leases.filter(|lease| owns(lease.name));
                Shard::start_from_snapshot(config, now, *record, owned)
            }
        }
    }

    /// Logs the start, as a warning if safety depends on more than the protocol.
    pub(crate) fn log(&self) {
        match self {
            Self::Empty { reset: true, .. }
            | Self::Empty { start: Start::NewCell { .. }, .. }
            | Self::Empty { start: Start::NoRecord { disk: false, .. }, .. } => {
                tracing::warn!("{self}");
            }
            Self::Empty { .. } | Self::Snapshot(..) => tracing::info!("{self}"),
        }
    }
}

impl fmt::Display for Startup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (start, reset) = match self {
            Self::Snapshot(..) => {
                return write!(f, "clean stop: leases restored from the snapshot, voting at once");
            }
            Self::Empty { start, reset } => (start, *reset),
        };
        match start {
            Start::NewCell { .. } => {
                write!(f, "new cell: voting at once. Right only if no node of this cell ran before")
            }
            Start::Crash(Record { lease_ceiling: None, .. }) => {
                write!(f, "stable record found, with no lease accepted so far: voting at once")
            }
            Start::Crash(Record { lease_ceiling: Some(longest), .. }) => write!(
                f,
                "no snapshot of a clean stop: waiting for the longest lease that may be held \
                 ({longest}) before voting"
            ),
            Start::NoRecord { longest, disk: true, .. } if reset => write!(
                f,
                "stable record reset: waiting max_lease ({longest}) before voting. Exclusion \
                 depends on a wall clock that is ahead of every ballot which this node used \
                 before. Remove the request for a reset once this node runs"
            ),
            Start::NoRecord { longest, disk: true, .. } => {
                write!(
                    f,
                    "this node has no record: it votes after max_lease ({longest}), because leases \
                     that it granted may still be held. If no node of this cell ever ran, start \
                     each node with --new-cell (in Rust: new_cell(true)) to skip the wait"
                )
            }
            Start::NoRecord { longest, disk: false, .. } => write!(
                f,
                "no data folder: waiting max_lease ({longest}) before voting, at this and every \
                 start. Exclusion depends on a wall clock that does not go back across a restart. \
                 Fences can fall if another node's wall clock is ahead. Set data_dir to avoid both \
                 risks"
            ),
        }
    }
}
