//! Lease services that people use, as real cells of processes on loopback, put under the same
//! load. Whatever is compared is asked through [`Service`]; how it is spoken to is nobody else's
//! business.

mod check;
mod engine;
mod etcd;
mod measure;
mod names;
mod ours;
mod redis;
mod redlock;
mod resp;
mod wire;
mod zookeeper;

use std::time::Duration;

use anyhow::Result;
use hdrhistogram::Histogram;
use paxoslease_load::{Extent, Shares, Workload};

pub use self::check::check;
pub use self::etcd::Etcd;
pub use self::ours::{Ours, OursSettings};
pub use self::redis::{Persistence, Redis};
pub use self::redlock::Redlock;
pub use self::zookeeper::{ZooKeeper, ZooKeeperSettings};
use paxoslease_rig::{Folder, Process};

/// A service whose processes run, and whom loads can be put on: several at once too, from threads
/// of their own, and while a member dies.
pub trait Service: Sync {
    /// What errors call it, such as `Redlock`.
    fn name(&self) -> &'static str;

    /// What its program calls its version.
    ///
    /// # Errors
    /// When the program does not say.
    fn version(&self) -> Result<String>;

    /// In what its settings differ from the defaults, for the page.
    fn settings(&self) -> String;

    /// Its members, in order. One that was killed stays in its place.
    fn members(&self) -> &[Process];

    /// Puts a load on it and waits for the end.
    ///
    /// # Errors
    /// When nobody answers or something is answered that is no answer. Operations that fail are
    /// counted instead.
    fn run(&self, load: &Load) -> Result<Loaded>;

    /// The member whose death hurts most: the leader where there is one. `None` where the death
    /// of one is the death of all.
    ///
    /// # Errors
    /// When the service does not say who leads.
    fn first_to_kill(&self) -> Result<Option<usize>>;

    /// Starts a member that was killed and waits until it serves.
    ///
    /// # Errors
    /// When it does not come up.
    fn restart(&mut self, member: usize) -> Result<()>;
}

/// What is asked of a service.
#[derive(Clone, Debug)]
pub struct Load {
    /// What is asked.
    pub workload: Workload,
    /// Which members are spoken to.
    pub target: Target,
    /// To each server that a client of this service would speak to, never more than in flight.
    pub connections: u32,
    /// Operations under way; in a hand-over, clients.
    pub in_flight: u32,
    /// When it ends.
    pub extent: Extent,
    /// How long leases are to last.
    pub ttl: Duration,
    /// What every name begins with.
    pub names: String,
    /// Runs before anything counts.
    pub warmup: Duration,
}

/// Which members a load goes to, where that is the client's choice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// All connections to the same one.
    One,
    /// Connections to every one in turn.
    Spread,
}

/// Where a service that logs before it answers puts its log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Storage {
    /// On the disk where temporary files are, with every sync it asks for.
    Disk,
    /// On a file system in memory, where a sync costs nothing: as fast as it gets without giving
    /// up its protocol, but what was promised dies with the machine.
    Memory,
}

impl Storage {
    fn folder(self, what: &str) -> Result<Folder> {
        match self {
            Self::Disk => Folder::new(what),
            Self::Memory => Folder::in_memory(what),
        }
    }

    const fn text(self) -> &'static str {
        match self {
            Self::Disk => "log synced to disk, as is the default",
            Self::Memory => "log on tmpfs, lost with the machine",
        }
    }
}

/// What came of a load.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// Pairs, renewals or holdings that succeeded.
    pub operations: u64,
    /// The same per second; in a hand-over, those that changed the client.
    pub per_second: f64,
    /// Operations that failed, and why the last one did.
    pub failures: u64,
    /// In the service's words.
    pub last_error: Option<String>,
    /// From asking for a lease to having given it back (or of a renewal), in nanoseconds.
    pub latency: Histogram<u64>,
    /// How evenly a name went around.
    pub shares: Option<Shares>,
    /// The longest time in which nothing succeeded.
    pub longest_gap: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Four in flight on two connections, after ten milliseconds that do not count.
    pub(super) fn load(workload: Workload, extent: Extent) -> Load {
        Load {
            workload,
            target: Target::One,
            connections: 2,
            in_flight: 4,
            extent,
            ttl: Duration::from_secs(15),
            names: "load/".to_owned(),
            warmup: Duration::from_millis(10),
        }
    }
}
