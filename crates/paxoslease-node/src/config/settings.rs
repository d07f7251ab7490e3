//! A configuration that was checked.
//!
//! Checked once, so that no other code has to ask whether a node id is in bounds, a member is
//! listed or a limit is zero.

use std::collections::BTreeMap;
use std::num::NonZeroU16;

use paxoslease_core::{Birth, Cell, Drift, Durability, Member, Members, NodeId, Rules, Ttl};
use paxoslease_wire::CellName;

use super::address::{KeyedAddress, check_listen, check_loopback, check_members};
use super::{Config, ConfigError, Limits, Listen, Role, Timing};
use crate::stable::{DurableWish, RunStart, Wishes};

/// The most shards of a node.
pub(super) const SHARDS_MAX: u16 = 256;
/// The smallest bound on what is queued for a peer.
pub(super) const PEER_QUEUE_BYTES_MIN: usize = 512 << 10;

/// The checked settings of a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Settings {
    /// As it was given.
    pub(crate) config: Config,
    /// Members, M and drift.
    pub(crate) cell: Cell,
    /// This node. A member is in `members`, unless it joins a cell that runs.
    pub(crate) node: NodeId,
    /// The addresses in the list of members.
    pub(crate) members: BTreeMap<NodeId, String>,
    pub(crate) shards: NonZeroU16,
    /// All rules, except in tests that switch one off.
    pub(crate) rules: Rules,
}

impl Settings {
    /// How the node should start, by a wall clock that shows this counter. `random` is the birth of
    /// its folder, if that is new.
    pub(crate) fn wishes(&self, counter: u64, random: u64) -> Wishes {
        let Config { new_cell, ephemeral, reset_stable_record: reset, role, .. } = self.config;
        let members = self.members.iter().map(|(node, address)| Member {
            node: *node,
            birth: Birth::UNKNOWN,
            peer: address.as_str().into(),
        });
        Wishes {
            new_cell: new_cell || ephemeral,
            reset,
            max_lease: self.cell.max_lease(),
            counter,
            birth: Birth(random.max(1)),
            list: Members::new(members.collect()).expect("the cell was checked"),
            proposes: role == Role::Proposer,
            durable: None,
        }
    }

    /// What the certificate of this node says.
    pub(crate) const fn identity(&self) -> (NodeId, Role) {
        (self.node, self.config.role)
    }

    /// K12: how this node keeps durable leases in its data folder, if it does.
    pub(crate) fn durable_wish(&self, start: RunStart) -> Option<DurableWish> {
        let Config { durable_leases, role, limits, .. } = &self.config;
        let keeps = *durable_leases == Durability::Disk && *role == Role::Member;
        keeps.then_some(DurableWish { start, registers_max: limits.durable as usize })
    }

    /// All members except this node.
    pub(crate) fn peers(&self) -> impl Iterator<Item = (NodeId, &str)> {
        let others = self.members.iter().filter(|(node, _)| **node != self.node);
        others.map(|(node, address)| (*node, address.as_str()))
    }

    /// The configuration of one shard's core. Shards share the limits equally, rounded up.
    pub(crate) fn core_config(&self, seed: u64, shard_index: u16) -> paxoslease_core::Config {
        let share = |limit: u32| limit.div_ceil(u32::from(self.shards.get())) as usize;
        let defaults = paxoslease_core::Config::new(self.node, self.cell, seed);
        let Config { timing, limits, .. } = &self.config;
        let attempt_timeout = timing.attempt_timeout;
        paxoslease_core::Config {
            // Shards must not pause for the same random times.
            seed: seed.wrapping_add(u64::from(shard_index)),
            attempt_timeout,
            attempt_timeout_min: defaults.attempt_timeout_min.min(attempt_timeout),
            request_timeout: timing.request_timeout,
            durability: self.config.durable_leases,
            limits: paxoslease_core::Limits {
                entries_max: share(limits.leases),
                text_bytes_max: limits.names_bytes.div_ceil(self.shards.get().into()) as usize,
                rounds_max: share(limits.inflight),
                waiters_max: share(limits.waiters),
                registers_max: share(limits.durable),
                ..defaults.limits
            },
            rules: self.rules,
            ..defaults
        }
    }
}

impl Config {
    /// Checks everything that does not depend on the machine.
    pub(crate) fn settings(&self) -> Result<Settings, ConfigError> {
        if self.cell.is_empty() {
            return Err(ConfigError::NoCell);
        }
        CellName::new(&self.cell)
            .map_err(|error| ConfigError::CellName { name: self.cell.clone(), error })?;
        if self.node == 0 {
            return Err(ConfigError::NoNode);
        }
        let no_id = ConfigError::NodeId { key: "node", node: self.node };
        let node = NodeId::new(self.node).ok_or(no_id)?;
        let members = self.checked_members(node)?;
        self.check_listen()?;
        self.check_plaintext()?;
        let ids: Vec<NodeId> = members.keys().copied().collect();
        let max_lease = Ttl::from_duration(self.max_lease).filter(|ttl| *ttl >= Ttl::MIN);
        let max_lease = max_lease.ok_or(ConfigError::MaxLease(self.max_lease))?;
        let drift = Drift::new(self.clock_drift_ppm, self.clock_granularity)
            .ok_or(ConfigError::ClockDrift(self.clock_drift_ppm))?;
        let cell = Cell::new(&ids, max_lease, drift).map_err(ConfigError::Cell)?;
        self.check_paths()?;
        self.check_timing()?;
        self.check_limits()?;
        Ok(Settings {
            config: self.clone(),
            cell,
            node,
            members,
            shards: self.checked_shards()?,
            rules: Rules::ALL,
        })
    }

    fn checked_members(&self, node: NodeId) -> Result<BTreeMap<NodeId, String>, ConfigError> {
        if self.peers.is_empty() {
            return Err(ConfigError::NoPeers);
        }
        let mut members = BTreeMap::new();
        for (id, address) in &self.peers {
            let member = NodeId::new(*id).ok_or(ConfigError::NodeId { key: "peers", node: *id })?;
            members.insert(member, address.clone());
        }
        check_members(self.peer_addresses())?;
        match (self.role, members.contains_key(&node)) {
            (Role::Member, true) | (Role::Proposer, false) => Ok(members),
            (Role::Member, false) if self.joins() => Ok(members),
            (Role::Proposer, true) => Err(ConfigError::ProposerListed(node)),
            (Role::Member, false) => {
                let ids: Vec<String> = members.keys().map(ToString::to_string).collect();
                Err(ConfigError::MemberNotListed { node, listed: ids.join(", ") })
            }
        }
    }

    /// Whether the list of peers is for first contact only, and this node knows where to listen.
    /// An administrator tells the other nodes its address.
    fn joins(&self) -> bool {
        self.listen_for_peers().is_some() && self.data_dir.is_some() && !self.new_cell
    }

    fn check_listen(&self) -> Result<(), ConfigError> {
        if let (Role::Proposer, Some(address)) = (self.role, &self.listen.peers) {
            return Err(ConfigError::ProposerListens(address.clone()));
        }
        if self.are_peers_off() && self.peers.len() > 1 {
            return Err(ConfigError::PeersOff(self.peers.len()));
        }
        check_listen(self.listen_address())
    }

    /// A node that sends in clear to other machines needs permission.
    fn check_plaintext(&self) -> Result<(), ConfigError> {
        if self.listen.allow_plaintext || self.tls.is_some() || self.are_peers_off() {
            return Ok(());
        }
        let addresses = self.listen_address().into_iter().chain(self.peer_addresses());
        check_loopback(addresses, "give all nodes certificates by `[tls]` cert, key and ca")
    }

    fn peer_addresses(&self) -> impl Iterator<Item = KeyedAddress<'_>> {
        self.peers.iter().map(|(id, address)| KeyedAddress::new(format!("peers.{id}"), address))
    }

    /// `listen.peers`, if it is set.
    pub fn listen_address(&self) -> Option<KeyedAddress<'_>> {
        self.listen.peers.as_ref().map(|address| KeyedAddress::new("listen.peers", address))
    }

    fn are_peers_off(&self) -> bool {
        self.listen.peers.as_deref() == Some(Listen::OFF)
    }

    fn check_paths(&self) -> Result<(), ConfigError> {
        let tls = self
            .tls
            .iter()
            .flat_map(|tls| [("tls.cert", &tls.cert), ("tls.key", &tls.key), ("tls.ca", &tls.ca)]);
        let mut paths = self.data_dir.iter().map(|path| ("data_dir", path)).chain(tls);
        if let Some((key, _)) = paths.find(|(_, path)| path.as_os_str().is_empty()) {
            return Err(ConfigError::EmptyPath(key));
        }
        let (reset, has_folder) = (self.reset_stable_record, self.data_dir.is_some());
        let contradictions = [
            (reset && self.new_cell, ConfigError::ResetOfNewCell),
            (self.new_cell && !has_folder, ConfigError::NewCellForgets),
            (self.ephemeral && has_folder, ConfigError::EphemeralWithFolder),
            (reset && !has_folder, ConfigError::NothingToReset),
        ];
        let found = contradictions.into_iter().find(|(is_found, _)| *is_found);
        found.map_or(Ok(()), |(_, error)| Err(error))
    }

    fn checked_shards(&self) -> Result<NonZeroU16, ConfigError> {
        let in_bounds = NonZeroU16::new(self.shards).filter(|shards| shards.get() <= SHARDS_MAX);
        in_bounds.ok_or(ConfigError::Shards(self.shards))
    }

    fn check_timing(&self) -> Result<(), ConfigError> {
        let (timing, defaults) = (&self.timing, Timing::default());
        let spans = [
            ("request_timeout", timing.request_timeout, defaults.request_timeout),
            ("attempt_timeout", timing.attempt_timeout, defaults.attempt_timeout),
            ("heartbeat", timing.heartbeat, defaults.heartbeat),
            ("peer_timeout", timing.peer_timeout, defaults.peer_timeout),
        ];
        if let Some((key, _, expected)) = spans.into_iter().find(|(_, span, _)| span.is_zero()) {
            return Err(ConfigError::ZeroTime { key, expected });
        }
        let (peer_timeout, heartbeat) = (timing.peer_timeout, timing.heartbeat);
        if peer_timeout < heartbeat.saturating_mul(2) {
            return Err(ConfigError::PeerTimeout { peer_timeout, heartbeat });
        }
        Ok(())
    }

    fn check_limits(&self) -> Result<(), ConfigError> {
        let Limits { leases, names_bytes, durable, waiters, inflight, peer_queue_bytes } =
            self.limits;
        let limits = [
            ("leases", u64::from(leases)),
            ("durable", durable.into()),
            ("waiters", waiters.into()),
            ("inflight", inflight.into()),
            ("names_bytes", names_bytes),
        ];
        if let Some((key, _)) = limits.into_iter().find(|(_, limit)| *limit == 0) {
            return Err(ConfigError::ZeroLimit(key));
        }
        if peer_queue_bytes < PEER_QUEUE_BYTES_MIN {
            return Err(ConfigError::PeerQueue(peer_queue_bytes));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn config() -> Config {
        let config = Config::new("north", 2).peer(1, "a:7401").peer(2, "b:7401");
        config.peer(3, "c:7401").shards(3).allow_plaintext()
    }

    fn node(id: u16) -> NodeId {
        NodeId::new(id).expect("in bounds")
    }

    #[test]
    fn a_member_is_not_its_own_peer() {
        let settings = config().settings().expect("valid");
        let peers: Vec<_> = settings.peers().collect();
        assert_eq!(peers, [(node(1), "a:7401"), (node(3), "c:7401")]);
        assert_eq!(settings.cell.members(), [node(1), node(2), node(3)]);
        assert_eq!(settings.config.cell, "north");
    }

    #[test]
    fn shards_share_the_limits_rounded_up() {
        let mut config = config();
        (config.limits.leases, config.limits.names_bytes) = (100_000_000, 1000);
        let settings = config.settings().expect("valid");
        let core = settings.core_config(7, 2);
        assert_eq!((core.limits.entries_max, core.limits.text_bytes_max), (33_333_334, 334));
        assert_eq!((core.limits.rounds_max, core.limits.waiters_max), (333_334, 333_334));
        assert_ne!(core.seed, settings.core_config(7, 1).seed);
    }

    #[test]
    fn by_default_leases_and_names_take_at_most_half_of_the_memory() {
        for memory in [1 << 30, 16 << 30, 23_000_000_000] {
            let limits = Limits::for_memory(memory);
            let most = u64::from(limits.leases) * Limits::LEASE_BYTES + limits.names_bytes;
            assert!(most <= memory / 2 && most > memory / 2 - Limits::LEASE_BYTES, "{limits:?}");
        }
        assert_eq!(Limits::for_memory(u64::MAX).leases, 100_000_000);
        assert_eq!((Limits::for_memory(1).leases, Limits::for_memory(1).names_bytes), (1, 1));
        let defaults = Limits::default();
        assert_eq!(Limits::for_memory(super::super::memory::available()), defaults);
    }

    #[test]
    fn a_configuration_that_passes_the_check_suits_the_core() {
        let mut config = config();
        config.timing.attempt_timeout = Duration::from_nanos(1);
        config.timing.request_timeout = Duration::from_nanos(1);
        (config.limits.leases, config.limits.waiters, config.limits.inflight) = (1, 1, 1);
        let core = config.settings().expect("valid").core_config(u64::MAX, 2);
        assert_eq!(core.check(), Ok(()));
        assert!(core.attempt_timeout_min <= core.attempt_timeout);
        let limits = core.limits;
        assert_eq!((limits.entries_max, limits.waiters_max, limits.rounds_max), (1, 1, 1));
    }
}
