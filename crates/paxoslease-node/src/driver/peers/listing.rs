//! Which peers there are: the list of peers follows the configuration of the node's epoch.

use paxoslease_core::{
    Birth, Cell, Configuration, Instant, MemberSet, MembershipMessage, NodeId, Rule,
};
use paxoslease_wire::{ListUse, encode_membership};

use super::Peers;
use super::peer::{Link, Peer};

impl Peers {
    /// Follows a configuration: adds and removes members, changes addresses, and decides anew who
    /// dials. Frames that are open are of the epoch before. `cell` is that of the new epoch.
    pub(crate) fn follow(
        &mut self,
        now: Instant,
        configuration: &Configuration,
        cell: Cell,
        counter: u64,
    ) {
        let (own, birth) = (self.identity.node, self.identity.birth);
        let is_member = configuration.is_member(own, birth);
        self.identity.cell = cell;
        self.prompt = cell.everyone();
        self.past = configuration.past().into();
        for peer in &mut self.list {
            (peer.is_listed, peer.dials) = (false, false);
        }
        for member in configuration.members().filter(|member| member.node != own) {
            let place = match self.place_of(member.node) {
                Some(place) => place,
                None => self.add(Peer::new(own, member.node, None, false, now)),
            };
            let peer = &mut self.list[place];
            peer.is_listed = true;
            peer.dials = !is_member || own > member.node;
            if peer.address.as_deref() != Some(&*member.peer) {
                peer.address = Some(member.peer.to_string());
                peer.redial(now);
            }
        }
        for place in 0..self.list.len() {
            let peer = &mut self.list[place];
            peer.begin_epoch(counter, cell.epoch());
            if peer.is_up() && self.is_impostor(self.list[place].node, self.list[place].birth) {
                self.impostors.push(place);
            }
        }
        self.next_alarm_at = now;
        self.changed = true;
    }

    /// Notes since when this node reaches no quorum. It then dials every node that it knows: the
    /// members may have changed while it was away, and wait for it to dial.
    pub(crate) fn note_quorum(&mut self, now: Instant) {
        let cell = self.identity.cell;
        let reached = self.up().chain([self.identity.node]).filter_map(|node| cell.member(node));
        if cell.is_quorum(reached.fold(MemberSet::EMPTY, MemberSet::with)) {
            self.no_quorum_since = None;
        } else if self.no_quorum_since.is_none() {
            self.no_quorum_since = Some(now);
            self.next_alarm_at = now;
        }
    }

    /// When this node has been without a quorum for long enough to dial every node that it knows.
    pub(super) fn dials_all_at(&self) -> Instant {
        self.no_quorum_since.map_or(Instant::MAX, |since| since.after(self.timeouts.peer_timeout))
    }

    /// Whether a member has this id with another birth.
    pub(super) fn is_impostor(&self, node: NodeId, birth: Birth) -> bool {
        let is_other = |past: &(NodeId, Birth)| past.0 == node && past.1 != birth;
        let is_refused = self.identity.cell.rules().on(Rule::VoterIsTheBirthListed);
        is_refused && self.past.iter().any(is_other)
    }

    /// The birth of the data folder of a peer that has greeted.
    pub(crate) fn birth_of(&self, node: NodeId) -> Birth {
        self.place_of(node).map_or(Birth::UNKNOWN, |place| self.list[place].birth)
    }

    /// The epoch of a peer, as it said last.
    pub(crate) fn epoch_of(&self, node: NodeId) -> u32 {
        self.place_of(node).map_or(0, |place| self.list[place].epoch)
    }

    /// Whether a peer said that it only proposes.
    pub(crate) fn only_proposes(&self, node: NodeId) -> bool {
        let place = self.place_of(node);
        place.is_some_and(|place| self.list[place].list == Some(ListUse::Follows))
    }

    /// Whether the members have a fixed list, as a node hears that follows them.
    pub(crate) fn follows_fixed_list(&self) -> bool {
        let is_fixed = |peer: &Peer| peer.is_listed && peer.list == Some(ListUse::Fixed);
        self.identity.list == ListUse::Follows && self.list.iter().any(is_fixed)
    }

    /// Sends a message about members, if the peer is up and reads. A node with a fixed list takes
    /// none.
    pub(crate) fn send_membership(
        &mut self,
        node: NodeId,
        message: &MembershipMessage,
        counter: u64,
    ) {
        let Some(place) = self.place_of(node) else { return };
        let queue_bytes_max = self.queue_bytes_max(node);
        let peer = &mut self.list[place];
        let takes_it = peer.is_up() && peer.list != Some(ListUse::Fixed);
        if takes_it && peer.writer.finished().len() <= queue_bytes_max {
            if peer.writer.is_open() {
                peer.writer.finish(counter);
            }
            peer.writer.append(|out| encode_membership(message, out));
            self.mark_dirty(place);
        }
    }
}

impl Peer {
    /// What was not sent yet is of the epoch before. The peer is told of the new one at once: if
    /// it is there already, it repeats what this node has dropped.
    fn begin_epoch(&mut self, counter: u64, epoch: u32) {
        if self.writer.is_open() {
            self.writer.finish(counter);
        }
        self.writer.set_epoch(epoch);
        if let Link::Up { pinged_at, answered_at, .. } = &mut self.link {
            (*pinged_at, *answered_at) = (Instant::ZERO, Instant::ZERO);
        }
    }

    /// Dials again at once, if it is down.
    fn redial(&mut self, now: Instant) {
        if let Link::Down { redial_at } = &mut self.link {
            *redial_at = now;
        }
    }
}
