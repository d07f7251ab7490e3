//! The compared services: their settings, and how each looks in tables and plots.

use anyhow::Result;
use clap::ValueEnum;
use paxoslease_bench::peers::{Etcd, Ours, OursSettings, Redis, Service, Storage, ZooKeeper};
use paxoslease_bench::plot::{Look, Marker};
use serde::{Deserialize, Serialize};

use crate::case::Case;

/// How long idle threads of the spinning cell spin before they sleep.
const SPINNING: &str = "--spin 50us";

/// The compared services; the first is the reference.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Side {
    Redis,
    Redlock,
    /// With default settings.
    OursDefault,
    /// With one shard per node.
    Ours,
    OursSpinning,
    ZooKeeper,
    ZooKeeperInMemory,
    Etcd,
    EtcdInMemory,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Family {
    Redis,
    Redlock,
    Zookeeper,
    Etcd,
}

impl Side {
    /// In the order of the tables.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        Self::value_variants().iter().copied()
    }

    /// Its family for `--peers` (none for PaxosLease, which always runs), title, colour and marker.
    const fn facts(self) -> (Option<Family>, &'static str, (u8, u8, u8), Marker) {
        const RED: (u8, u8, u8) = (0xc0, 0x26, 0x2d);
        const ORANGE: (u8, u8, u8) = (0xc2, 0x6a, 0x0a);
        const GREEN: (u8, u8, u8) = (0x0b, 0x7a, 0x4b);
        const PURPLE: (u8, u8, u8) = (0x7b, 0x2d, 0x8b);
        const BLUE: (u8, u8, u8) = (0x1d, 0x4e, 0x89);
        use Family::{Etcd, Redis, Redlock, Zookeeper};
        use Marker::{Circle, Diamond, Square, Triangle};
        match self {
            Self::Redis => (Some(Redis), "Redis, one server", RED, Square),
            Self::Redlock => (Some(Redlock), "Redlock, 3 Redis", ORANGE, Triangle),
            Self::OursDefault => (None, "PaxosLease x 3, defaults", GREEN, Diamond),
            Self::Ours => (None, "PaxosLease x 3", GREEN, Circle),
            Self::OursSpinning => (None, "PaxosLease x 3, spinning", GREEN, Circle),
            Self::ZooKeeper => (Some(Zookeeper), "ZooKeeper x 3", PURPLE, Diamond),
            Self::ZooKeeperInMemory => {
                (Some(Zookeeper), "ZooKeeper x 3, on tmpfs", PURPLE, Diamond)
            }
            Self::Etcd => (Some(Etcd), "etcd x 3", BLUE, Square),
            Self::EtcdInMemory => (Some(Etcd), "etcd x 3, on tmpfs", BLUE, Square),
        }
    }

    pub(crate) const fn family(self) -> Option<Family> {
        self.facts().0
    }

    pub(crate) const fn title(self) -> &'static str {
        self.facts().1
    }

    pub(crate) const fn look(self) -> Look {
        let (_, _, colour, marker) = self.facts();
        Look { colour, marker, dashed: self.is_variant() || matches!(self, Self::OursSpinning) }
    }

    pub(crate) const fn is_ours(self) -> bool {
        self.family().is_none()
    }

    /// Whether it is another side with other settings: it runs fewer cases.
    pub(crate) const fn is_variant(self) -> bool {
        matches!(self, Self::ZooKeeperInMemory | Self::EtcdInMemory)
    }

    /// Whether its members are busy without clients, so that they are stopped between their turns.
    pub(crate) const fn is_restless(self) -> bool {
        matches!(self.family(), Some(Family::Zookeeper | Family::Etcd))
    }

    /// Whether it has a compiler at run time, which needs a warm-up.
    pub(crate) const fn is_on_jvm(self) -> bool {
        matches!(self.family(), Some(Family::Zookeeper))
    }

    /// Whether a renewal concerns one lease and needs the deciding servers, as ours does.
    pub(crate) const fn renews_one(self) -> bool {
        !self.is_restless()
    }

    /// Whether clients choose a member; Redlock's clients use all.
    const fn has_choice(self) -> bool {
        !matches!(self.family(), Some(Family::Redis | Family::Redlock))
    }

    pub(crate) fn takes(self, case: Case) -> bool {
        (!self.is_variant() || case.is_headline())
            && (!self.is_restless() || case.is_coarse())
            && (!case.spread || self.has_choice())
    }

    pub(crate) fn start(self) -> Result<Box<dyn Service>> {
        Ok(match self {
            Self::Redis => Box::new(Redis::start::<1>()?),
            Self::Redlock => Box::new(Redis::start::<3>()?),
            Self::ZooKeeper => Box::new(ZooKeeper::start(Storage::Disk)?),
            Self::ZooKeeperInMemory => Box::new(ZooKeeper::start(Storage::Memory)?),
            Self::OursDefault | Self::Ours | Self::OursSpinning => {
                Box::new(Ours::start(self.settings_of_ours())?)
            }
            Self::Etcd => Box::new(Etcd::start(Storage::Disk)?),
            Self::EtcdInMemory => Box::new(Etcd::start(Storage::Memory)?),
        })
    }

    pub(crate) fn settings_of_ours(self) -> OursSettings {
        match self {
            Self::OursDefault => OursSettings::shipped(),
            Self::OursSpinning => OursSettings::single(SPINNING),
            _ => OursSettings::single(""),
        }
    }
}
