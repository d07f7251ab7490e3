//! How a node starts (protocol section 6, membership section 6): the decision, from the content of
//! the folder and the settings of the operator, and its explanation for the log.
//!
//! Pure. Deliberately lacks the disk: the caller has read the folder and removed the snapshot.

use std::fmt;

use paxoslease_core::{
    Birth, Config, Configuration, Durability, DurableRegister, Instant, Members, Name, NodeId,
    Record, Shard, StableConfiguration, Start, Ttl, Vote,
};
use paxoslease_wire::{ListUse, SnapshotReader, StableRecord};

use super::Loaded;
use super::file_time::RunStart;

/// The settings for a start, the wall clock, and randomness.
#[derive(Clone, Debug)]
pub(crate) struct Wishes {
    /// No node of this cell ever ran, so no lease can be held. With a folder, this node founds the
    /// cell with the other members of its list (U2).
    pub(crate) new_cell: bool,
    /// R6: start with a new birth if the record is lost or damaged.
    pub(crate) reset: bool,
    /// M, or an older and longer M.
    pub(crate) max_lease: Ttl,
    /// R5: the counter at which ballots begin without a record.
    pub(crate) counter: u64,
    /// The birth of the folder, if it is new.
    pub(crate) birth: Birth,
    /// The members in the settings.
    pub(crate) list: Members,
    /// Whether this node only proposes.
    pub(crate) proposes: bool,
    /// K12: how to keep durable leases, if the node keeps them on disk.
    pub(crate) durable: Option<DurableWish>,
}

/// How to keep durable leases.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct DurableWish {
    /// When the run begins.
    pub(crate) start: RunStart,
    /// With this many names in the file, no lease more is stored.
    pub(crate) registers_max: usize,
}

/// How a node starts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Startup {
    pub(crate) leases: Leases,
    /// Who the members are, and who this node is among them.
    pub(crate) membership: Membership,
    /// Whether the folder had a usable record, so that this is not the first start with it. A node
    /// without a folder cannot tell.
    pub(crate) has_record: bool,
    /// The durable leases on disk, with ends of this run's clock (K12).
    pub(crate) registers: Vec<DurableRegister>,
    /// Whether the folder has a file of durable leases.
    has_durable: bool,
    /// Whether the operator asked for a reset, and there was something to reset (R6).
    was_reset: bool,
}

/// The leases that a node starts with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Leases {
    None(Start),
    /// R4: after a clean stop, with a valid snapshot.
    Snapshot(Record, Vec<u8>),
}

/// The members that a node starts with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Membership {
    pub(crate) birth: Birth,
    /// What the list in the settings means to the node.
    pub(crate) list: ListUse,
    /// Whether the record has no configuration.
    is_blank: bool,
    pub(crate) stable: StableConfiguration,
}

impl Membership {
    fn new(birth: Birth, stable: Option<StableConfiguration>, wishes: &Wishes) -> Self {
        let list = match &stable {
            _ if wishes.proposes => ListUse::Follows,
            Some(stable) if stable.configuration.epoch() == 0 => ListUse::Founding,
            _ => ListUse::Contact,
        };
        let is_blank = stable.is_none();
        let stable = stable.unwrap_or_else(|| unfounded(&wishes.list));
        Self { birth, list, is_blank, stable }
    }

    /// Without a folder the list is fixed; a node that only proposes follows the members.
    fn without_folder(wishes: &Wishes) -> Self {
        let list = if wishes.proposes { ListUse::Follows } else { ListUse::Fixed };
        let stable = unfounded(&wishes.list);
        Self { birth: Birth::UNKNOWN, list, is_blank: true, stable }
    }

    /// R5: a data folder of this id may have been lost, and its ballots are known to the members
    /// alone. A member that loses its folder is refused instead. Every start asks, because the one
    /// before may have crashed before it heard them.
    fn asks_first(&self, node: NodeId) -> bool {
        let is_member = self.stable.configuration.is_member(node, self.birth);
        matches!(self.list, ListUse::Contact | ListUse::Follows) && !is_member
    }

    /// Whether the configuration lists the members. In epoch 0 only a fixed list does.
    pub(crate) fn knows_members(&self) -> bool {
        self.stable.configuration.epoch() > 0 || self.list == ListUse::Fixed
    }
}

fn unfounded(list: &Members) -> StableConfiguration {
    let configuration = Configuration::unfounded(list);
    StableConfiguration { configuration, vote: Vote::default() }
}

impl Startup {
    /// The record to write before anything else, for a node with a folder. Every start raises the
    /// ballot ceiling, so that no two runs have the same one, and the snapshot of an earlier run is
    /// known by its ceiling if it reappears (R4).
    pub(super) fn record_to_write(loaded: &Loaded, wishes: &Wishes) -> StableRecord {
        let mut record = match loaded {
            Loaded::Record(record) => record.clone(),
            Loaded::Fresh => StableRecord {
                birth: wishes.birth,
                ceilings: Record { ballot_ceiling: wishes.counter, lease_ceiling: None },
                configuration: None,
                has_durable: false,
            },
        };
        record.has_durable |= wishes.durable.is_some();
        if matches!(loaded, Loaded::Record(_)) {
            let ceiling = &mut record.ceilings.ballot_ceiling;
            *ceiling = ceiling.saturating_add(1);
        }
        match &mut record.configuration {
            None if wishes.new_cell && !wishes.proposes => {
                record.configuration = Some(unfounded(&wishes.list));
            }
            // Nothing was accepted for an earlier list, so the operator may correct it.
            Some(stable) if stable.configuration.epoch() == 0 && stable.vote.accepted.is_none() => {
                stable.configuration = Configuration::unfounded(&wishes.list);
            }
            _ => {}
        }
        record
    }

    /// With a folder: `record` is on disk.
    pub(super) fn with_folder(
        loaded: &Loaded,
        was_reset: bool,
        record: StableRecord,
        snapshot: Option<Vec<u8>>,
        registers: Vec<DurableRegister>,
        wishes: &Wishes,
    ) -> Self {
        let ceilings = record.ceilings;
        let leases = match (loaded, snapshot) {
            // C8: this birth has forgotten nothing.
            (Loaded::Fresh, _) => {
                let counter = ceilings.ballot_ceiling;
                Leases::None(Start::NewCell { counter, disk: true })
            }
            (Loaded::Record(_), Some(leases)) => Leases::Snapshot(ceilings, leases),
            (Loaded::Record(_), None) => Leases::None(Start::Crash(ceilings)),
        };
        let has_durable = record.has_durable;
        let membership = Membership::new(record.birth, record.configuration, wishes);
        let has_record = matches!(loaded, Loaded::Record(_));
        Self { leases, membership, has_record, registers, has_durable, was_reset }
    }

    pub(crate) fn without_folder(wishes: &Wishes) -> Self {
        let Wishes { new_cell, max_lease: longest, counter, .. } = *wishes;
        let start = if new_cell {
            Start::NewCell { counter, disk: false }
        } else {
            Start::NoRecord { counter, longest, disk: false }
        };
        Self {
            leases: Leases::None(start),
            membership: Membership::without_folder(wishes),
            has_record: !new_cell,
            registers: Vec::new(),
            has_durable: false,
            was_reset: false,
        }
    }

    /// Ballots begin above this. It grows with every start, so it numbers the boots of a node: a
    /// start with a folder raises the recorded ceiling first, and one without a folder uses the
    /// wall clock (R5).
    pub(crate) const fn counter(&self) -> u64 {
        match self.leases {
            Leases::None(Start::NewCell { counter, .. } | Start::NoRecord { counter, .. }) => {
                counter
            }
            Leases::None(Start::Crash(record)) | Leases::Snapshot(record, _) => {
                record.ballot_ceiling
            }
        }
    }

    /// The record on disk, with which every shard begins; `None` without a folder.
    pub(crate) fn record(&self) -> Option<StableRecord> {
        let ceilings = match self.leases {
            Leases::None(Start::NewCell { disk: false, .. } | Start::NoRecord { .. }) => {
                return None;
            }
            Leases::None(Start::NewCell { counter, disk: true }) => {
                Record { ballot_ceiling: counter, lease_ceiling: None }
            }
            Leases::None(Start::Crash(record)) | Leases::Snapshot(record, _) => record,
        };
        let Membership { birth, is_blank, stable, .. } = &self.membership;
        let configuration = (!is_blank).then(|| stable.clone());
        let has_durable = self.has_durable;
        Some(StableRecord { birth: *birth, ceilings, configuration, has_durable })
    }

    /// Starts a shard with the leases of the names it owns.
    pub(crate) fn shard(
        &self,
        mut config: Config,
        now: Instant,
        owns: impl Fn(Name<'_>) -> bool,
    ) -> Shard {
        config.cell = self.membership.stable.configuration.cell(&config.cell);
        config.knows_members = self.membership.knows_members();
        config.asks_first = self.membership.asks_first(config.node);
        if config.durability == Durability::Disk && !self.has_durable {
            config.durability = Durability::Refused;
        }
        let mut shard = match &self.leases {
            Leases::None(start) => Shard::start(config, now, *start),
            Leases::Snapshot(record, bytes) => {
                let leases = SnapshotReader::new(config.node, bytes).expect("it was checked");
                let owned = leases.filter(|lease| owns(lease.name));
                Shard::start_from_snapshot(config, now, *record, owned)
            }
        };
        for register in self.registers.iter().filter(|register| owns(register.name())) {
            shard.restore_durable(now, register.clone());
        }
        shard
    }

    /// Logs the start, as a warning if safety depends on more than the protocol.
    pub(crate) fn log(&self) {
        let is_new = matches!(self.leases, Leases::None(Start::NewCell { .. }));
        let has_no_folder = self.membership.list == ListUse::Fixed;
        if self.was_reset || has_no_folder || is_new && self.founds() {
            tracing::warn!("{self}");
        } else {
            tracing::info!("{self}");
        }
    }

    fn founds(&self) -> bool {
        self.membership.list == ListUse::Founding
    }
}

impl fmt::Display for Startup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.was_reset {
            return write!(
                f,
                "stable record reset: this node is no longer the member that it was. Give it an id \
                 that was never used, and make it a member by `paxoslease members replace`"
            );
        }
        if self.founds() {
            return write!(
                f,
                "new cell: it grants leases once all nodes of its list are up. Right only if no \
                 node of this cell ran before"
            );
        }
        let epoch = self.membership.stable.configuration.epoch();
        let start = match &self.leases {
            Leases::Snapshot(..) => {
                return write!(f, "clean stop: leases restored from the snapshot, voting at once");
            }
            Leases::None(start) => start,
        };
        match start {
            Start::NewCell { disk: true, .. } => write!(
                f,
                "this node has an empty data folder and is no member of a cell yet. If no node of \
                 this cell ever ran, start each node with --new-cell (in Rust: new_cell(true)). If \
                 the cell runs, add this node with `paxoslease members add`"
            ),
            Start::Crash(_) if epoch == 0 => {
                write!(f, "stable record found; this node is no member of a cell yet")
            }
            Start::NewCell { disk: false, .. } => {
                write!(
                    f,
                    "new cell without data folders: voting at once. Start each node only once"
                )
            }
            Start::Crash(Record { lease_ceiling: None, .. }) => {
                write!(f, "stable record found, with no lease accepted so far: voting at once")
            }
            Start::Crash(Record { lease_ceiling: Some(longest), .. }) => write!(
                f,
                "no snapshot of a clean stop: waiting for the longest lease that may be held \
                 ({longest}) before voting"
            ),
            Start::NoRecord { longest, .. } => write!(
                f,
                "no data folder: waiting max_lease ({longest}) before voting, at this and every \
                 start. Exclusion depends on a wall clock that does not go back across a restart. \
                 Fences can fall if another node's wall clock is ahead. The list of members is \
                 fixed. Set data_dir to avoid all of this"
            ),
        }
    }
}
