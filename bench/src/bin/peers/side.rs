//! The compared services: their settings, and how each looks in tables and plots.

use anyhow::Result;
use clap::ValueEnum;
use paxoslease_bench::peers::{Etcd, Ours, OursSettings, Redis, Service, Storage, ZooKeeper};
use paxoslease_bench::plot::{Look, Marker};
use serde::{Deserialize, Serialize};

use crate::case::{Case, What};

/// The compared services; the first is the reference.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Side {
    Redis,
    Redlock,
    /// With the defaults of `paxoslease serve`.
    Ours,
    /// Its threads sleep as soon as they have nothing to do.
    OursBlocking,
    OursTwoShards,
    OursTokens,
    OursTls,
    OursTlsTokens,
    ZooKeeper,
    ZooKeeperInMemory,
    Etcd,
    EtcdInMemory,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Family {
    Ours,
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

    /// Its family, title, colour and marker.
    const fn facts(self) -> (Family, &'static str, (u8, u8, u8), Marker) {
        const RED: (u8, u8, u8) = (0xc0, 0x26, 0x2d);
        const ORANGE: (u8, u8, u8) = (0xc2, 0x6a, 0x0a);
        const GREEN: (u8, u8, u8) = (0x0b, 0x7a, 0x4b);
        const PURPLE: (u8, u8, u8) = (0x7b, 0x2d, 0x8b);
        const BLUE: (u8, u8, u8) = (0x1d, 0x4e, 0x89);
        use Family::{Etcd, Ours, Redis, Redlock, Zookeeper};
        use Marker::{Circle, Diamond, Square, Triangle};
        match self {
            Self::Redis => (Redis, "Redis, one server", RED, Square),
            Self::Redlock => (Redlock, "Redlock, 3 Redis", ORANGE, Triangle),
            Self::Ours => (Ours, "PaxosLease x 3", GREEN, Circle),
            Self::OursBlocking => (Ours, "PaxosLease x 3, blocking", GREEN, Circle),
            Self::OursTwoShards => (Ours, "PaxosLease x 3, two shards", GREEN, Diamond),
            Self::OursTokens => (Ours, "PaxosLease x 3, tokens", GREEN, Circle),
            Self::OursTls => (Ours, "PaxosLease x 3, TLS", GREEN, Circle),
            Self::OursTlsTokens => (Ours, "PaxosLease x 3, TLS and tokens", GREEN, Circle),
            Self::ZooKeeper => (Zookeeper, "ZooKeeper x 3", PURPLE, Diamond),
            Self::ZooKeeperInMemory => (Zookeeper, "ZooKeeper x 3, on tmpfs", PURPLE, Diamond),
            Self::Etcd => (Etcd, "etcd x 3", BLUE, Square),
            Self::EtcdInMemory => (Etcd, "etcd x 3, on tmpfs", BLUE, Square),
        }
    }

    const fn family(self) -> Family {
        self.facts().0
    }

    pub(crate) const fn title(self) -> &'static str {
        self.facts().1
    }

    pub(crate) const fn look(self) -> Look {
        let (_, _, colour, marker) = self.facts();
        Look { colour, marker, dashed: self.is_variant() || matches!(self, Self::OursBlocking) }
    }

    pub(crate) const fn is_ours(self) -> bool {
        matches!(self.family(), Family::Ours)
    }

    /// Whether it is another side with other settings: it runs fewer cases.
    pub(crate) const fn is_variant(self) -> bool {
        matches!(self, Self::OursTwoShards | Self::ZooKeeperInMemory | Self::EtcdInMemory)
            || self.is_secured()
    }

    /// Whether it is only compared with the cell without TLS and tokens.
    pub(crate) const fn is_secured(self) -> bool {
        matches!(self, Self::OursTokens | Self::OursTls | Self::OursTlsTokens)
    }

    /// Whether its members are busy without clients, so that they are stopped between their turns.
    pub(crate) const fn is_restless(self) -> bool {
        matches!(self.family(), Family::Zookeeper | Family::Etcd)
    }

    /// Whether it has a compiler at run time, which needs a warm-up.
    pub(crate) const fn is_on_jvm(self) -> bool {
        matches!(self.family(), Family::Zookeeper)
    }

    /// Whether a renewal concerns one lease and needs the deciding servers, as ours does.
    pub(crate) const fn renews_one(self) -> bool {
        !self.is_restless()
    }

    /// Whether clients choose a member; Redlock's clients use all.
    const fn has_choice(self) -> bool {
        !matches!(self.family(), Family::Redis | Family::Redlock)
    }

    pub(crate) fn takes(self, case: Case) -> bool {
        let is_wanted = match self {
            // Whether a second thread helps where there is work for it.
            Self::OursTwoShards => case.what == What::Pairs && [64, 512].contains(&case.in_flight),
            Self::OursBlocking => case.has_goal(),
            _ if self.is_secured() => case.what == What::Pairs && case.is_headline(),
            _ => !self.is_variant() || case.is_headline(),
        };
        is_wanted
            && (!self.is_restless() || case.is_coarse())
            && (!case.spread || self.has_choice())
    }

    pub(crate) fn start(self) -> Result<Box<dyn Service>> {
        Ok(match self {
            Self::Redis => Box::new(Redis::start::<1>()?),
            Self::Redlock => Box::new(Redis::start::<3>()?),
            Self::ZooKeeper => Box::new(ZooKeeper::start(Storage::Disk)?),
            Self::ZooKeeperInMemory => Box::new(ZooKeeper::start(Storage::Memory)?),
            Self::Ours
            | Self::OursBlocking
            | Self::OursTwoShards
            | Self::OursTokens
            | Self::OursTls
            | Self::OursTlsTokens => Box::new(Ours::start(self.settings_of_ours())?),
            Self::Etcd => Box::new(Etcd::start(Storage::Disk)?),
            Self::EtcdInMemory => Box::new(Etcd::start(Storage::Memory)?),
        })
    }

    pub(crate) fn settings_of_ours(self) -> OursSettings {
        let options = match self {
            Self::OursBlocking => "--spin off",
            Self::OursTwoShards => "--shards 2",
            _ => "",
        };
        OursSettings {
            tls: matches!(self, Self::OursTls | Self::OursTlsTokens).then_some("server"),
            has_tokens: matches!(self, Self::OursTokens | Self::OursTlsTokens),
            ..OursSettings::new(options)
        }
    }
}
