//! Who is compared: services with their settings, and how each looks in tables and plots.

use std::path::Path;

use anyhow::Result;
use clap::ValueEnum;
use paxoslease_bench::peers::{
    Etcd, Ours, OursSettings, Persistence, Redis, Redlock, Service, Storage, ZooKeeper,
    ZooKeeperSettings,
};
use paxoslease_bench::plot::{Look, Marker};
use serde::{Deserialize, Serialize};

use crate::case::Case;

/// How long threads of the spinning cell look for work before they sleep.
const SPIN: &str = "50us";

/// Who is compared; the first is what the others are compared with.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Side {
    Redis,
    RedisSaving,
    Redlock,
    Ours,
    OursSpinning,
    ZooKeeper,
    ZooKeeperInMemory,
    Etcd,
    EtcdInMemory,
}

/// What `--peers` chooses from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Family {
    Redis,
    Redlock,
    Zookeeper,
    Etcd,
}

impl Side {
    pub(crate) const ALL: [Self; 9] = [
        Self::Redis,
        Self::RedisSaving,
        Self::Redlock,
        Self::Ours,
        Self::OursSpinning,
        Self::ZooKeeper,
        Self::ZooKeeperInMemory,
        Self::Etcd,
        Self::EtcdInMemory,
    ];

    /// Ours has none: it is always there.
    pub(crate) const fn family(self) -> Option<Family> {
        match self {
            Self::Redis | Self::RedisSaving => Some(Family::Redis),
            Self::Redlock => Some(Family::Redlock),
            Self::Ours | Self::OursSpinning => None,
            Self::ZooKeeper | Self::ZooKeeperInMemory => Some(Family::Zookeeper),
            Self::Etcd | Self::EtcdInMemory => Some(Family::Etcd),
        }
    }

    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Redis => "Redis, one server",
            Self::RedisSaving => "Redis, one server, saving",
            Self::Redlock => "Redlock, 3 Redis",
            Self::Ours => "PaxosLease x 3",
            Self::OursSpinning => "PaxosLease x 3, spinning",
            Self::ZooKeeper => "ZooKeeper x 3",
            Self::ZooKeeperInMemory => "ZooKeeper x 3, on tmpfs",
            Self::Etcd => "etcd x 3",
            Self::EtcdInMemory => "etcd x 3, on tmpfs",
        }
    }

    pub(crate) const fn is_ours(self) -> bool {
        matches!(self, Self::Ours | Self::OursSpinning)
    }

    /// A service we already have, with other settings: asked for less, drawn lighter.
    pub(crate) const fn is_variant(self) -> bool {
        matches!(self, Self::RedisSaving | Self::ZooKeeperInMemory | Self::EtcdInMemory)
    }

    /// Its members do something even when nobody asks, so they are stopped while others are
    /// measured.
    pub(crate) const fn is_restless(self) -> bool {
        matches!(self, Self::ZooKeeper | Self::ZooKeeperInMemory | Self::Etcd | Self::EtcdInMemory)
    }

    /// What it runs is compiled while it runs, so it needs a while before it is at its best.
    pub(crate) const fn is_on_jvm(self) -> bool {
        matches!(self, Self::ZooKeeper | Self::ZooKeeperInMemory)
    }

    /// Whether a renewal is the same as ours: of one lease, by those who decide.
    pub(crate) const fn renews_one(self) -> bool {
        !self.is_restless()
    }

    /// Whether clients may choose a member; Redlock's speak to all.
    const fn has_choice(self) -> bool {
        match self {
            Self::Redis | Self::RedisSaving | Self::Redlock => false,
            Self::Ours
            | Self::OursSpinning
            | Self::ZooKeeper
            | Self::ZooKeeperInMemory
            | Self::Etcd
            | Self::EtcdInMemory => true,
        }
    }

    pub(crate) fn takes(self, case: Case) -> bool {
        (!self.is_variant() || case.is_headline())
            && (!self.is_restless() || case.is_coarse())
            && (!case.spread || self.has_choice())
    }

    pub(crate) const fn look(self) -> Look {
        let (colour, marker) = match self {
            Self::Redis | Self::RedisSaving => ((0xc0, 0x26, 0x2d), Marker::Square),
            Self::Redlock => ((0xc2, 0x6a, 0x0a), Marker::Triangle),
            Self::Ours | Self::OursSpinning => ((0x0b, 0x7a, 0x4b), Marker::Circle),
            Self::ZooKeeper | Self::ZooKeeperInMemory => ((0x7b, 0x2d, 0x8b), Marker::Diamond),
            Self::Etcd | Self::EtcdInMemory => ((0x1d, 0x4e, 0x89), Marker::Square),
        };
        Look { colour, marker, dashed: self.is_variant() || matches!(self, Self::OursSpinning) }
    }

    /// Starts its processes and waits until they serve.
    pub(crate) fn start(self, paxoslease: &Path) -> Result<Box<dyn Service>> {
        Ok(match self {
            Self::Redis => Box::new(Redis::start(Persistence::Nothing)?),
            Self::Redlock => Box::new(Redlock::start::<3>()?),
            Self::ZooKeeper => Box::new(ZooKeeper::start(ZooKeeperSettings::default())?),
            Self::ZooKeeperInMemory => Box::new(ZooKeeper::start(ZooKeeperSettings {
                storage: Storage::Memory,
                ..ZooKeeperSettings::default()
            })?),
            Self::RedisSaving => Box::new(Redis::start(Persistence::Snapshots)?),
            Self::Ours | Self::OursSpinning => {
                Box::new(Ours::start(self.settings_of_ours(paxoslease))?)
            }
            Self::Etcd => Box::new(Etcd::start(Storage::Disk)?),
            Self::EtcdInMemory => Box::new(Etcd::start(Storage::Memory)?),
        })
    }

    /// How nodes of ours are started when this is the side.
    pub(crate) fn settings_of_ours(self, paxoslease: &Path) -> OursSettings {
        let spin = (self == Self::OursSpinning).then(|| SPIN.to_owned());
        OursSettings { binary: Some(paxoslease.to_owned()), spin, ..OursSettings::default() }
    }
}
