//! How a node follows the configuration of its cell (docs/membership.md): adoption in all shards,
//! and the part of the first shard, which votes on configurations and coordinates changes.
//!
//! The core decides ([`Decider`]). This module brings messages, time and the disk, and makes sure
//! that the node votes only after all its shards have changed over (C2).

mod requests;

use std::collections::BTreeSet;
use std::sync::Arc;

#[cfg(feature = "simulation")]
use paxoslease_core::Birth;
use paxoslease_core::{
    ConfigRefusal, Configuration, Decider, DeciderConfig, Instant, MembershipEvent,
    MembershipMessage, NodeId, NodeView, StableConfiguration, Ttl,
};
use paxoslease_holder::{ChangeStatus, MembersError, Membership};
use paxoslease_wire::{ListUse, decode_membership};

use super::Driver;
use super::counters::DropReason;
use crate::command::Command;
use crate::log_throttle::LogThrottle;
use crate::stable;
use requests::Requests;

/// What a shard tells the first shard of its node when it has changed over, and later when it has
/// news.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct ShardView {
    pub(crate) epoch: u32,
    /// The highest ballot counter when the shard had changed over.
    pub(crate) counter: u64,
    /// The longest lease that the shard may have accepted, and that may be held.
    pub(crate) longest: Option<Ttl>,
    /// C10: the registers that a majority of the new members does not have yet.
    pub(crate) durable_left: usize,
}

/// The part of a node that decides who the members are; in its first shard. A node with a fixed
/// list has none.
pub(crate) struct Decisions {
    decider: Decider,
    has_disk: bool,
    /// What is to be written, until the disk's thread takes it.
    to_write: Option<StableConfiguration>,
    /// By shard.
    shards: Vec<ShardView>,
    /// The epoch that all shards have changed over to.
    changed_over: u32,
    is_disk_lost: bool,
    /// Log lines about configurations that were not believed.
    refusals: LogThrottle,
    requests: Requests,
}

impl Driver {
    /// Begins to take part in decisions, in the first shard, unless the list of members is fixed.
    /// All shards start in the same epoch and from the same record.
    pub(crate) fn start_decisions(
        &mut self,
        now: Instant,
        config: DeciderConfig,
        membership: &stable::Membership,
        has_disk: bool,
    ) {
        if membership.list == ListUse::Fixed {
            return;
        }
        let config = DeciderConfig { founds: membership.list == ListUse::Founding, ..config };
        let mut decider = Decider::start(config, now, membership.stable.clone());
        let start = self.shard_view();
        decider.shards_changed(now, start.epoch, start.longest);
        // C10: until the others have told theirs, a change cannot end.
        let durable_left = usize::from(self.shard.config().cell.is_joint());
        let mut shards = vec![ShardView { durable_left, ..start }; usize::from(self.shard_count())];
        shards[0] = start;
        self.decisions = Some(Decisions {
            decider,
            has_disk,
            to_write: None,
            shards,
            changed_over: start.epoch,
            is_disk_lost: false,
            refusals: LogThrottle::default(),
            requests: Requests::default(),
        });
    }

    /// What the first shard has to know of this one.
    pub(super) fn shard_view(&self) -> ShardView {
        ShardView {
            epoch: self.shard.config().cell.epoch(),
            counter: self.shard.counter(),
            longest: self.shard.record().lease_ceiling,
            durable_left: self.shard.durable_left(),
        }
    }

    fn node_view(&self, now: Instant) -> NodeView {
        let shards = self.decisions.as_ref().map_or(&[][..], |decisions| &decisions.shards);
        let others = shards.iter().skip(1);
        let top = others.clone().map(|shard| shard.counter).max().unwrap_or(0);
        let registers = others.map(|shard| shard.durable_left).sum::<usize>();
        NodeView {
            top: top.max(self.shard.counter()),
            counter_bound: self.shard.counter_bound(),
            registers_left: u32::try_from(registers + self.shard.durable_left())
                .unwrap_or(u32::MAX),
            quarantine_left: self.shard.quarantine_as_member(now),
            reaches: self.peers.up().collect::<BTreeSet<_>>().into_iter().collect(),
        }
    }

    /// Calls the decider, then does what it wants.
    fn decide(&mut self, now: Instant, call: impl FnOnce(&mut Decider, &NodeView)) {
        let view = self.node_view(now);
        let Some(decisions) = &mut self.decisions else { return };
        call(&mut decisions.decider, &view);
        while let Some(decisions) = &mut self.decisions
            && let Some(event) = decisions.decider.poll_event()
        {
            match event {
                MembershipEvent::Persist(stable) if decisions.has_disk => {
                    decisions.to_write = Some(stable);
                }
                MembershipEvent::Persist(_) => decisions.decider.record_written(now, &view),
                MembershipEvent::Adopt(configuration) => {
                    self.adopt_everywhere(now, Arc::new(configuration));
                }
                MembershipEvent::DiskLost { epoch } => self.lose_disk(epoch),
                MembershipEvent::Learnt { from, epoch } => {
                    tracing::info!(epoch, told_by = %from, "the members of this epoch are known");
                }
                MembershipEvent::ConfigRefused { from, epoch, why } => {
                    self.refuse_configuration(now, from, epoch, why);
                }
                MembershipEvent::Decided { token, epoch } => {
                    self.request_decided(now, token, Ok(epoch));
                }
                MembershipEvent::Superseded { token, .. } => {
                    let text = "another change was decided first; nothing of this one was done. \
                                Look at the members, and try again";
                    let error = MembersError::Refused(text.to_owned());
                    self.request_decided(now, token, Err(error));
                }
                MembershipEvent::NoQuorum { token } => {
                    let text = "no majority of the members answered in time. The request may still \
                                take effect: look at the members before you try again";
                    let error = MembersError::NoQuorum(text.to_owned());
                    self.request_decided(now, token, Err(error));
                }
            }
        }
        let counter = self.shard.counter();
        while let Some(decisions) = &mut self.decisions
            && let Some((to, message)) = decisions.decider.poll_transmit()
        {
            self.peers.send_membership(to, &message, counter);
        }
    }

    /// A frame about members. An error is the reason to close the connection.
    pub(super) fn listen_to_decider(
        &mut self,
        now: Instant,
        from: NodeId,
        frame: &[u8],
    ) -> Result<(), String> {
        if self.decisions.is_none() {
            return Err("it asked about members, and this node has a fixed list".to_owned());
        }
        let message = decode_membership(frame).map_err(|error| format!("bad message: {error}"))?;
        // C11: an operator vouches for the members in the list of this node, not for proposers.
        if let MembershipMessage::Config(configuration) = &message
            && self.peers.only_proposes(from)
        {
            self.refuse_configuration(now, from, configuration.epoch(), ConfigRefusal::NotMember);
            return Ok(());
        }
        let from = (from, self.peers.birth_of(from));
        self.decide(now, |decider, view| decider.handle_message(now, from, message, view));
        self.tick_requests(now);
        Ok(())
    }

    /// C1: a peer says its epoch, in its greeting or a heartbeat.
    pub(super) fn heard_epoch(&mut self, now: Instant, from: NodeId, epoch: u32) {
        let own = self.shard.config().cell.epoch();
        if self.decisions.is_some() && epoch != own {
            self.decide(now, |decider, _| decider.heard_epoch(from, epoch));
        }
    }

    /// A peer has connected. Before the founding, it may be the last one that was missing.
    pub(super) fn met_decider(&mut self, now: Instant) {
        let is_founding = self.peers.identity.list == ListUse::Founding;
        if is_founding && self.shard.config().cell.epoch() == 0 {
            self.decide(now, |decider, _| decider.poll(None));
        }
    }

    /// C2: the configuration is on disk. All shards of this node change over.
    fn adopt_everywhere(&mut self, now: Instant, configuration: Arc<Configuration>) {
        self.adopt(now, &configuration);
        for shard in 1..self.shard_count() {
            self.posts.push((shard, Command::Adopt(Arc::clone(&configuration))));
        }
        self.tell_first_shard(now);
        // C1: other nodes than members hear of the members from this node. Members hear of them
        // from the coordinator.
        let outside: Vec<NodeId> = self
            .peers
            .up()
            .filter(|node| configuration.members().all(|member| member.node != *node))
            .collect();
        let before = configuration.epoch() - 1;
        if let Some(decisions) = &mut self.decisions {
            outside.iter().for_each(|node| decisions.decider.heard_epoch(*node, before));
        }
    }

    /// C2: this shard changes over.
    pub(super) fn adopt(&mut self, now: Instant, configuration: &Configuration) {
        if configuration.epoch() <= self.shard.config().cell.epoch() {
            return;
        }
        let counter = self.shard.counter();
        let cell = configuration.cell(&self.shard.config().cell);
        self.shard.adopt(now, cell, configuration.floor());
        self.peers.follow(now, configuration, self.shard.config().cell, counter);
        self.note_up(now);
        if self.shard_index() == 0 {
            let ids = |set: &[paxoslease_core::Member]| {
                set.iter().map(|member| member.node.to_string()).collect::<Vec<_>>().join(" ")
            };
            let (epoch, members) = (configuration.epoch(), ids(configuration.old()));
            match configuration.new_set() {
                Some(to) => {
                    tracing::info!(epoch, %members, to = %ids(to), "the members change");
                }
                None => tracing::info!(epoch, %members, "the members are decided"),
            }
        }
    }

    /// A shard of this node has changed over, or has news about its registers.
    pub(super) fn shard_changed_over(&mut self, now: Instant, shard: u16, told: ShardView) {
        let Some(decisions) = &mut self.decisions else { return };
        decisions.shards[usize::from(shard)] = told;
        let epoch = decisions.decider.configuration().epoch();
        if decisions.changed_over < epoch && decisions.shards.iter().all(|one| one.epoch == epoch) {
            decisions.changed_over = epoch;
            let longest = decisions.shards.iter().map(|shard| shard.longest).max().flatten();
            decisions.decider.shards_changed(now, epoch, longest);
        }
    }

    /// C11: a peer told members that this node does not believe.
    fn refuse_configuration(&mut self, now: Instant, from: NodeId, epoch: u32, why: ConfigRefusal) {
        self.counters.dropped(DropReason::ConfigRefused, 1);
        let Some(decisions) = &mut self.decisions else { return };
        let Some(count) = decisions.refusals.again(now) else { return };
        let own_epoch = decisions.decider.configuration().epoch();
        let why = match why {
            ConfigRefusal::OtherCell => {
                "they do not follow from those of this node: two cells were founded with one name. \
                 Stop the nodes of the wrong one, and start them with another cell name and empty \
                 data folders"
            }
            ConfigRefusal::NotMember => {
                "it is not a member that this node knows: it was removed, or never added. If all \
                 members that this node knows were replaced while it was away, add the peer to its \
                 list of peers and restart it; see \"Changing the members\" in docs/operating.md"
            }
            ConfigRefusal::NotSuccessor => {
                "no legal change leads to them: the peer is broken or hostile, or this node was \
                 away for more changes than it can catch up on. Replace the one or the other"
            }
            ConfigRefusal::FloorTooHigh => {
                "they would use up the ballots: the peer is broken or hostile, or a wall clock is \
                 wrong by decades; see \"Ballots\" in docs/operating.md"
            }
        };
        tracing::warn!(peer = %from, epoch, own_epoch, count, why, "a peer told members and was not believed");
    }

    fn lose_disk(&mut self, epoch: u32) {
        let Some(decisions) = &mut self.decisions else { return };
        if !std::mem::replace(&mut decisions.is_disk_lost, true) {
            tracing::error!(
                epoch,
                "the id of this node belongs to a member with another data folder: this node lost \
                 its disk, or the id was used before. It serves nobody. Give it an id that was \
                 never used, and an empty data_dir, and add it with `paxoslease members replace`"
            );
        }
    }

    /// Does what is due, and tells the first shard what has changed.
    pub(super) fn tick_decisions(&mut self, now: Instant) {
        if self.decisions_at() <= now {
            self.decide(now, |decider, view| {
                if decider.poll_timeout().is_some_and(|at| at <= now) {
                    decider.handle_timeout(now, view);
                }
            });
            self.tick_requests(now);
        }
        if self.shard.config().cell.is_joint() {
            self.tell_news(now);
        }
    }

    /// Tells the first shard the longest lease and the registers that are left, if they changed.
    pub(super) fn tell_news(&mut self, now: Instant) {
        let news = |view: ShardView| (view.longest, view.durable_left);
        if self.told_first_shard.map(news) != Some(news(self.shard_view())) {
            self.tell_first_shard(now);
        }
    }

    pub(super) fn tell_first_shard(&mut self, now: Instant) {
        let view = self.shard_view();
        self.told_first_shard = Some(view);
        match self.shard_index() {
            0 => self.shard_changed_over(now, 0, view),
            shard => self.posts.push((0, Command::ShardChanged(shard, view))),
        }
    }

    /// The configuration and the vote are on disk (W1, W2).
    pub(super) fn configuration_written(&mut self, now: Instant) {
        self.decide(now, |decider, view| decider.record_written(now, view));
    }

    /// The configuration and the vote to write, if there are any.
    pub(crate) fn next_configuration(&mut self) -> Option<StableConfiguration> {
        self.decisions.as_mut()?.to_write.take()
    }

    /// What goes to other shards of this node.
    pub(crate) fn posts(&mut self) -> impl Iterator<Item = (u16, Command)> + '_ {
        self.posts.drain(..)
    }

    /// When [`Self::tick_decisions`] has something to do.
    pub(super) fn decisions_at(&self) -> Instant {
        let Some(decisions) = &self.decisions else { return Instant::MAX };
        let decider = decisions.decider.poll_timeout().unwrap_or(Instant::MAX);
        decider.min(decisions.requests.next_at())
    }

    /// Whether the node has members to ask: not before its cell is founded, unless their list is
    /// fixed, and not when they refuse it because it lost its disk.
    pub(super) fn has_members(&self) -> bool {
        if self.decisions.as_ref().is_some_and(|decisions| decisions.is_disk_lost) {
            return false;
        }
        self.shard.config().cell.epoch() > 0
            || self.peers.identity.list == ListUse::Fixed
            || self.peers.follows_fixed_list()
    }

    #[cfg(feature = "simulation")]
    pub(crate) fn configuration(&self) -> Option<&Configuration> {
        self.decisions.as_ref().map(|decisions| decisions.decider.configuration())
    }

    #[cfg(feature = "simulation")]
    pub(crate) const fn birth(&self) -> Birth {
        self.peers.identity.birth
    }

    pub(super) fn membership(&self) -> Membership {
        let identity = &self.peers.identity;
        let is_member = self.shard.config().cell.member(identity.node).is_some();
        match identity.list {
            _ if self.decisions.as_ref().is_some_and(|decisions| decisions.is_disk_lost) => {
                Membership::DiskLost
            }
            ListUse::Fixed => Membership::Fixed,
            _ if self.peers.follows_fixed_list() => Membership::Fixed,
            _ if self.has_members() && is_member => Membership::Member,
            _ if self.has_members() => Membership::Outside,
            ListUse::Founding | ListUse::Contact if self.peers.are_we_an_impostor() => {
                Membership::DiskLost
            }
            ListUse::Founding => Membership::Founding,
            ListUse::Contact => Membership::Blank,
            // It is never a member.
            ListUse::Follows => Membership::Outside,
        }
    }

    pub(super) fn change_status(&self, now: Instant) -> Option<ChangeStatus> {
        let Decisions { decider, shards, .. } = self.decisions.as_ref()?;
        let configuration = decider.configuration();
        let to = configuration.new_set()?;
        // Until all shards have changed over, the wait has not begun.
        let whole_wait = || decider.wait_for(shards.iter().filter_map(|one| one.longest).max());
        let has_adopted = |node: &NodeId| {
            let heard = decider.heard(*node).map(|(_, state)| state.epoch);
            *node == self.peers.identity.node || heard >= Some(configuration.epoch())
        };
        let mut adopted: Vec<NodeId> = configuration.members().map(|member| member.node).collect();
        adopted.sort_unstable();
        adopted.dedup();
        adopted.retain(has_adopted);
        Some(ChangeStatus {
            to: to.iter().map(|member| member.node.get()).collect(),
            wait_remaining: decider.drain_left(now).unwrap_or_else(whole_wait),
            registers: u64::from(self.node_view(now).registers_left),
            leads: decider.leads(),
            adopted: adopted.into_iter().map(NodeId::get).collect(),
        })
    }
}
