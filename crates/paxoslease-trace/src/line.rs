//! The lines of a trace: how a shard started, its steps, how it ended.

use std::time::Duration;

use paxoslease_core::{
    Cell, Config, Drift, Durability, Instant, Limits, Name, NodeId, Record, Rule, Rules, Sets,
    Shard, SnapshotLease, Start, Tenure, Ttl,
};
use serde::{Deserialize, Serialize};

use crate::input::Input;

/// One line.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Line {
    /// The first line.
    Begin(Box<Header>),
    /// One input and its outputs.
    Step(Step),
    /// The node stopped cleanly.
    Stop {
        /// The shard's clock, in nanoseconds.
        now: u64,
        /// The number of leases in its snapshot; `None` if it left no snapshot.
        leases: Option<usize>,
    },
    /// The trace reached its bound. The node continued.
    Full,
}

/// One input and its outputs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Step {
    /// The shard's clock, in nanoseconds.
    pub now: u64,
    pub(crate) input: Input,
    /// The outputs, in the `Debug` format of the core's types.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub out: Vec<String>,
}

/// How a shard started.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Header {
    /// The node's id.
    pub node: u16,
    /// The index of the shard.
    pub shard: u16,
    /// The shard's clock, in nanoseconds.
    pub now: u64,
    /// How many parts per million the shard's clock runs too fast, as set by the test.
    pub clock_ppm: i64,
    /// What the shard started from.
    pub start_state: StartState,
    settings: Settings,
}

/// What a shard starts from: the core's [`Start`], or a snapshot.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[expect(missing_docs, reason = "these are the fields of the core's `Start`")]
pub enum StartState {
    NewCell { counter: u64, disk: bool },
    Crash { ballot_ceiling: u64, lease_ceiling: Option<u32> },
    NoRecord { counter: u64, longest: u32, disk: bool },
    Snapshot { ballot_ceiling: u64, lease_ceiling: Option<u32>, leases: Vec<Lease> },
}

/// A lease of a snapshot.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Lease {
    pub(crate) name: String,
    holder: String,
    pub(crate) tenure: u64,
    pub(crate) remaining: u32,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_dated: bool,
}

/// The members of one epoch: the core's [`Cell`], without what never changes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub(crate) struct Epoch {
    pub(crate) number: u32,
    pub(crate) era: u32,
    pub(crate) old: Vec<u16>,
    /// Empty in a stable epoch.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) new: Vec<u16>,
}

impl Epoch {
    pub(crate) fn of(cell: &Cell) -> Self {
        let ids = |set| cell.nodes(set).map(NodeId::get).collect();
        let (old, new) = (ids(cell.old_set()), ids(cell.new_set()));
        Self { number: cell.epoch(), era: cell.era(), old, new }
    }

    /// This epoch of a cell; `None` when the trace is damaged.
    pub(crate) fn cell(&self, cell: Cell) -> Option<Cell> {
        let nodes = |ids: &[u16]| ids.iter().map(|id| NodeId::new(*id)).collect::<Option<Vec<_>>>();
        let (old, new) = (nodes(&self.old)?, nodes(&self.new)?);
        cell.in_epoch(self.number, self.era, Sets { old: &old, new: &new }).ok()
    }

    pub(crate) const fn is_joint(&self) -> bool {
        !self.new.is_empty()
    }

    pub(crate) fn has_member(&self, node: u16) -> bool {
        self.old.contains(&node) || self.new.contains(&node)
    }
}

/// The core's [`Config`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Settings {
    epoch: Epoch,
    knows_members: bool,
    asks_first: bool,
    max_lease: u32,
    drift_ppm: u32,
    granularity: Duration,
    seed: u64,
    direct_rounds: bool,
    timeouts: [Duration; 3],
    backoff: [Duration; 2],
    stagger_max: Duration,
    reclaim_after: Duration,
    durability: String,
    limits: [usize; 6],
    rule_off: Option<String>,
}

impl From<Start> for StartState {
    fn from(start: Start) -> Self {
        match start {
            Start::NewCell { counter, disk } => Self::NewCell { counter, disk },
            Start::Crash(Record { ballot_ceiling, lease_ceiling }) => {
                Self::Crash { ballot_ceiling, lease_ceiling: lease_ceiling.map(Ttl::as_millis) }
            }
            Start::NoRecord { counter, longest, disk } => {
                Self::NoRecord { counter, longest: longest.as_millis(), disk }
            }
        }
    }
}

impl StartState {
    /// A start from a snapshot (R4), with the leases that the shard restored.
    #[must_use]
    pub fn snapshot(record: Record, shard: &Shard, now: Instant) -> Self {
        let slots = 0..shard.slot_count();
        let leases = slots.filter_map(|slot| shard.lease_in(now, slot, |_| true));
        let lease = |seen: paxoslease_core::LiveLease| Lease {
            name: seen.label.name().to_string(),
            holder: seen.label.holder().to_string(),
            tenure: seen.tenure.fence(),
            remaining: seen.remaining.as_millis(),
            is_dated: shard.is_dated(seen.label.name()),
        };
        Self::Snapshot {
            ballot_ceiling: record.ballot_ceiling,
            lease_ceiling: record.lease_ceiling.map(Ttl::as_millis),
            leases: leases.map(lease).collect(),
        }
    }

    /// The record that the shard started with; `None` without a disk.
    pub(crate) fn record(&self) -> Option<Record> {
        let record = |ballot_ceiling, lease: Option<u32>| {
            Some(Record { ballot_ceiling, lease_ceiling: lease.and_then(Ttl::from_millis) })
        };
        match *self {
            Self::NewCell { disk: false, .. } | Self::NoRecord { disk: false, .. } => None,
            Self::NewCell { counter, disk: true } => record(counter, None),
            Self::NoRecord { counter, longest, disk: true } => record(counter, Some(longest)),
            Self::Crash { ballot_ceiling, lease_ceiling }
            | Self::Snapshot { ballot_ceiling, lease_ceiling, .. } => {
                record(ballot_ceiling, lease_ceiling)
            }
        }
    }

    /// The counter of the shard's first ballot.
    pub(crate) fn counter(&self) -> u64 {
        match *self {
            Self::NewCell { counter, .. } | Self::NoRecord { counter, .. } => counter,
            Self::Crash { ballot_ceiling, .. } | Self::Snapshot { ballot_ceiling, .. } => {
                ballot_ceiling
            }
        }
    }

    /// R3: the longest lease that may still be held and was forgotten in a crash.
    pub(crate) fn longest_lost(&self) -> Duration {
        let millis = match *self {
            Self::NewCell { .. } | Self::Snapshot { .. } => 0,
            Self::Crash { lease_ceiling, .. } => lease_ceiling.unwrap_or(0),
            Self::NoRecord { longest, .. } => longest,
        };
        Duration::from_millis(millis.into())
    }
}

impl Header {
    /// The header of a shard that starts with these settings.
    #[must_use]
    pub fn new(
        config: &Config,
        shard: u16,
        now: Instant,
        clock_ppm: i64,
        start_state: StartState,
    ) -> Self {
        // Without `..`: a setting that is not recorded would not be replayed.
        let &Config {
            node,
            knows_members,
            asks_first,
            cell,
            seed,
            direct_rounds,
            attempt_timeout,
            attempt_timeout_min,
            request_timeout,
            backoff_min,
            backoff_max,
            stagger_max,
            reclaim_after,
            durability,
            limits,
            rules,
        } = config;
        let Limits {
            entries_max,
            text_bytes_max,
            rounds_max,
            waiters_max,
            deferred_max,
            registers_max,
        } = limits;
        let limits =
            [entries_max, text_bytes_max, rounds_max, waiters_max, deferred_max, registers_max];
        let off = Rule::ALL.into_iter().find(|rule| !rules.on(*rule));
        let settings = Settings {
            epoch: Epoch::of(&cell),
            knows_members,
            asks_first,
            max_lease: cell.max_lease().as_millis(),
            drift_ppm: cell.drift().ppm(),
            granularity: cell.drift().granularity(),
            seed,
            direct_rounds,
            timeouts: [attempt_timeout, attempt_timeout_min, request_timeout],
            backoff: [backoff_min, backoff_max],
            stagger_max,
            reclaim_after,
            durability: format!("{durability:?}"),
            limits,
            rule_off: off.map(|rule| format!("{rule:?}")),
        };
        Self { node: node.get(), shard, now: now.as_nanos(), clock_ppm, start_state, settings }
    }

    /// The epoch in which the shard started.
    pub(crate) const fn epoch(&self) -> &Epoch {
        &self.settings.epoch
    }

    fn config(&self) -> Option<Config> {
        let settings = &self.settings;
        let drift = Drift::new(settings.drift_ppm, settings.granularity)?;
        let max_lease = Ttl::from_millis(settings.max_lease)?;
        let cell = Cell::new(&[NodeId::MAX], max_lease, drift).ok()?;
        let [attempt_timeout, attempt_timeout_min, request_timeout] = settings.timeouts;
        let [backoff_min, backoff_max] = settings.backoff;
        let [entries_max, text_bytes_max, rounds_max, waiters_max, deferred_max, registers_max] =
            settings.limits;
        let limits = Limits {
            entries_max,
            text_bytes_max,
            rounds_max,
            waiters_max,
            deferred_max,
            registers_max,
        };
        Some(Config {
            node: NodeId::new(self.node)?,
            knows_members: settings.knows_members,
            asks_first: settings.asks_first,
            cell: settings.epoch.cell(cell)?,
            seed: settings.seed,
            direct_rounds: settings.direct_rounds,
            attempt_timeout,
            attempt_timeout_min,
            request_timeout,
            backoff_min,
            backoff_max,
            stagger_max: settings.stagger_max,
            reclaim_after: settings.reclaim_after,
            durability: durability(&settings.durability)?,
            limits,
            rules: rules(settings.rule_off.as_deref())?,
        })
    }

    /// A fresh shard that starts the same way. `None` when the trace is damaged, or when a rule was
    /// off and this build has no mutants.
    pub(crate) fn start(&self) -> Option<Shard> {
        let (config, now) = (self.config()?, Instant::from_nanos(self.now));
        let start = match self.start_state {
            StartState::NewCell { counter, disk } => Start::NewCell { counter, disk },
            StartState::Crash { .. } => Start::Crash(self.start_state.record()?),
            StartState::NoRecord { counter, longest, disk } => {
                Start::NoRecord { counter, longest: Ttl::from_millis(longest)?, disk }
            }
            StartState::Snapshot { ref leases, .. } => {
                let restored = |lease: &'_ Lease| -> Option<(Tenure, Ttl)> {
                    Some((Tenure::from_fence(lease.tenure)?, Ttl::from_millis(lease.remaining)?))
                };
                let mut given = Vec::new();
                for lease in leases {
                    let (tenure, remaining) = restored(lease)?;
                    let name = Name::new(&lease.name).ok()?;
                    let holder = paxoslease_core::Holder::new(&lease.holder).ok()?;
                    let is_dated = lease.is_dated;
                    given.push(SnapshotLease { name, holder, tenure, remaining, is_dated });
                }
                let record = self.start_state.record()?;
                return Some(Shard::start_from_snapshot(config, now, record, given));
            }
        };
        Some(Shard::start(config, now, start))
    }
}

fn durability(text: &str) -> Option<Durability> {
    let all = [Durability::Disk, Durability::Volatile, Durability::Refused];
    all.into_iter().find(|durability| format!("{durability:?}") == text)
}

#[cfg(feature = "mutants")]
fn rules(off: Option<&str>) -> Option<Rules> {
    let Some(off) = off else { return Some(Rules::ALL) };
    Rule::ALL.into_iter().find(|rule| format!("{rule:?}") == off).map(Rules::without)
}

#[cfg(not(feature = "mutants"))]
fn rules(off: Option<&str>) -> Option<Rules> {
    off.is_none().then_some(Rules::ALL)
}
