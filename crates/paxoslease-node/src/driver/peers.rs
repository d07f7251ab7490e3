//! The connections of one shard to the same shard of other nodes. Owns the handshake, heartbeats,
//! timeouts and what is still to be sent.
//!
//! Of two members the one with the higher id dials. A node that is no member dials every member,
//! and a node without a quorum dials every node that it knows. A message that cannot be sent at
//! once is dropped and counted: loss is legal, blocking is not, and nothing for a dead peer
//! outlives its connection. Deliberately ignorant of what the messages mean.

mod greeting;
mod listing;
mod peer;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use paxoslease_core::{Birth, Cell, Durability, Instant, MemberSet, NodeId, Rng, To, Transmit};
use paxoslease_wire::{
    CellName, ClientAddress, Farewell, FrameKind, Hello, ListUse, ShardId, VERSION,
};

pub(crate) use greeting::{Greeted, IS_STOPPING, refusal_of};
pub(crate) use peer::Reach;
use peer::{Link, Peer, Told};

use super::counters::{Counters, DropReason};
use super::sockets::{ConnId, Sockets};
use paxoslease_holder::PeerStatus;

/// Connections that may be open without a greeting.
const UNIDENTIFIED_MAX: usize = 256;
/// The first pause before another dial. It doubles up to the second.
const REDIAL_MIN: Duration = Duration::from_millis(10);
const REDIAL_MAX: Duration = Duration::from_millis(500);
/// How long a message may wait for others to the same peer, if a majority can do without it.
const HELD_BACK_MAX: Duration = Duration::from_millis(1);
/// Peers whose round trips differ by less than this are equally near.
const NEAR: Duration = Duration::from_millis(4);
/// The pause between two log lines about refused nodes.
const COMPLAINT_PAUSE: Duration = Duration::from_secs(1);

/// The identity of a shard, which its greetings carry.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub(crate) cell_name: String,
    /// K14: where members keep durable leases, by the settings.
    pub(crate) durable_leases: Durability,
    /// The list of members in the settings, M and drift.
    pub(crate) settings: Cell,
    pub(crate) list: ListUse,
    /// The cell in the node's epoch.
    pub(crate) cell: Cell,
    pub(crate) node: NodeId,
    pub(crate) birth: Birth,
    pub(crate) boot: u64,
    pub(crate) shard: ShardId,
    /// Where clients reach this node; empty if nowhere.
    pub(crate) clients: String,
}

impl Identity {
    pub(crate) fn hello(&self) -> Hello<'_> {
        Hello {
            version: VERSION,
            cell_name: CellName::new(&self.cell_name).expect("checked with the settings"),
            cell: self.settings,
            list: self.list,
            node: self.node,
            boot: self.boot,
            shard: self.shard,
            birth: self.birth,
            epoch: self.cell.epoch(),
            clients: ClientAddress::new(&self.clients).expect("checked with the settings"),
            durable_leases: self.durable_leases,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerTimeouts {
    pub(crate) heartbeat: Duration,
    pub(crate) peer_timeout: Duration,
    pub(crate) queue_bytes_max: usize,
}

/// The other end of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Who {
    Closed,
    /// Its greeting has not come yet.
    Unidentified,
    /// A peer by its place, greeted or being greeted.
    Peer(usize),
}

#[derive(Debug)]
pub(crate) struct Peers {
    pub(crate) identity: Identity,
    timeouts: PeerTimeouts,
    list: Vec<Peer>,
    /// Places of peers with something to send.
    dirty: Vec<usize>,
    /// When messages that were held back are sent.
    held_back_until: Instant,
    /// Members that get every message at once. With this node they are a majority that votes.
    prompt: MemberSet,
    /// A node's place in the list, by its id.
    places: Vec<u16>,
    /// By connection.
    who: Vec<Who>,
    unidentified: Vec<(ConnId, Instant)>,
    /// Peers that are up and not members, at the last flush. In clear any program can be one, under
    /// any id, so they share the queue of one peer.
    others_up: usize,
    /// Every id that was ever a member, with its birth. Another birth with such an id is refused.
    past: Arc<[(NodeId, Birth)]>,
    /// Since when no quorum is up.
    no_quorum_since: Option<Instant>,
    /// Peers that turned out to have another birth, to be disconnected.
    impostors: Vec<usize>,
    rng: Rng,
    /// When the next stranger may be complained of.
    complain_at: Instant,
    pub(crate) next_alarm_at: Instant,
    /// The set of peers that are up has changed since the last [`Self::take_changed`].
    changed: bool,
}

const NO_PLACE: u16 = u16::MAX;

impl Peers {
    /// `list` are the nodes in the settings with their addresses; this node may be one of them.
    pub(crate) fn new(
        identity: Identity,
        timeouts: PeerTimeouts,
        list: impl IntoIterator<Item = (NodeId, String)>,
        seed: u64,
        now: Instant,
    ) -> Self {
        let own = identity.node;
        let are_members = matches!(identity.list, ListUse::Fixed | ListUse::Founding);
        let is_member = are_members && identity.settings.member(own).is_some();
        let prompt = identity.cell.everyone();
        let mut peers = Self {
            identity,
            timeouts,
            list: Vec::new(),
            dirty: Vec::new(),
            held_back_until: Instant::MAX,
            prompt,
            places: vec![NO_PLACE; usize::from(NodeId::MAX.get()) + 1],
            who: Vec::new(),
            unidentified: Vec::new(),
            others_up: 0,
            past: Arc::new([]),
            no_quorum_since: Some(now),
            impostors: Vec::new(),
            rng: Rng::seeded(seed),
            complain_at: now,
            next_alarm_at: now,
            changed: true,
        };
        for (node, address) in list {
            if node != own {
                let dials = !is_member || own > node;
                let mut peer = Peer::new(own, node, Some(address.clone()), dials, now);
                (peer.contact, peer.is_listed) = (Some(address), true);
                peers.add(peer);
            }
        }
        peers
    }

    fn add(&mut self, mut peer: Peer) -> usize {
        let place = self.list.len();
        peer.writer.set_epoch(self.identity.cell.epoch());
        self.places[usize::from(peer.node.get())] = place as u16;
        self.list.push(peer);
        place
    }

    fn place_of(&self, node: NodeId) -> Option<usize> {
        let place = self.places[usize::from(node.get())];
        (place != NO_PLACE).then_some(usize::from(place))
    }

    pub(crate) fn who(&self, conn: ConnId) -> Who {
        self.who.get(conn.0).copied().unwrap_or(Who::Closed)
    }

    fn set_who(&mut self, conn: ConnId, who: Who) {
        if self.who.len() <= conn.0 {
            self.who.resize(conn.0 + 1, Who::Closed);
        }
        self.who[conn.0] = who;
    }

    /// The node at the other end of a connection, if it was greeted.
    pub(crate) fn speaker(&self, conn: ConnId) -> Option<NodeId> {
        let Who::Peer(place) = self.who(conn) else { return None };
        let peer = &self.list[place];
        matches!(peer.link, Link::Up { conn: up, .. } if up == conn).then_some(peer.node)
    }

    /// The counter that the peer at the other end of a connection started with.
    pub(crate) fn boot_of(&self, conn: ConnId) -> Option<u64> {
        let Who::Peer(place) = self.who(conn) else { return None };
        self.list[place].boot
    }

    fn peer_at(&mut self, conn: ConnId) -> Option<&mut Peer> {
        let Who::Peer(place) = self.who(conn) else { return None };
        Some(&mut self.list[place])
    }

    /// Something arrived on a connection.
    pub(crate) fn heard(&mut self, conn: ConnId, now: Instant) {
        if let Some(Peer { link: Link::Up { heard_at, .. }, .. }) = self.peer_at(conn) {
            *heard_at = now;
        }
    }

    /// Puts a message into the frames for its receivers. Drops it where it cannot be sent.
    pub(crate) fn push(
        &mut self,
        now: Instant,
        transmit: &Transmit,
        counter: u64,
        counters: &mut Counters,
    ) {
        match transmit.to {
            To::Node(node) => self.push_to(node, transmit, counter, counters),
            To::Members(set) if transmit.majority_first && set.contains(self.prompt) => {
                let cell = self.identity.cell;
                for node in cell.nodes(self.prompt) {
                    self.push_to(node, transmit, counter, counters);
                }
                for node in cell.nodes(set.without(self.prompt)) {
                    if let Some(place) = self.write(node, transmit, counter, counters) {
                        self.list[place].holds_back = true;
                        self.held_back_until = self.held_back_until.min(now.after(HELD_BACK_MAX));
                    }
                }
            }
            To::Members(set) => {
                let cell = self.identity.cell;
                for node in cell.nodes(set) {
                    self.push_to(node, transmit, counter, counters);
                }
            }
        }
    }

    fn push_to(
        &mut self,
        node: NodeId,
        transmit: &Transmit,
        counter: u64,
        counters: &mut Counters,
    ) {
        if let Some(place) = self.write(node, transmit, counter, counters) {
            self.mark_dirty(place);
        }
    }

    /// Puts a message into the frame for a node. Returns the node's place, or drops the message.
    fn write(
        &mut self,
        node: NodeId,
        transmit: &Transmit,
        counter: u64,
        counters: &mut Counters,
    ) -> Option<usize> {
        let Some(place) = self.place_of(node).filter(|place| self.list[*place].is_up()) else {
            counters.dropped(DropReason::PeerDown, 1);
            return None;
        };
        let queue_bytes_max = self.queue_bytes_max(node);
        let peer = &mut self.list[place];
        if peer.writer.finished().len() > queue_bytes_max {
            counters.dropped(DropReason::QueueFull, 1);
            return None;
        }
        let message = transmit.message();
        if !peer.writer.push(&message) {
            peer.writer.finish(counter);
            let pushed = peer.writer.push(&message);
            debug_assert!(pushed, "an empty frame has room");
            self.mark_dirty(place);
        }
        counters.sent(&message);
        Some(place)
    }

    /// What a node may leave unread.
    fn queue_bytes_max(&self, node: NodeId) -> usize {
        let is_member = self.identity.cell.member(node).is_some();
        let sharers = if is_member { 1 } else { self.others_up.max(1) };
        self.timeouts.queue_bytes_max / sharers
    }

    /// Some acceptor refused a request, so the answers of all may count.
    pub(crate) fn hold_nothing_back(&mut self) {
        if self.held_back_until < Instant::MAX {
            self.held_back_until = Instant::ZERO;
        }
    }

    /// When messages that were held back are sent.
    pub(crate) const fn held_back_until(&self) -> Instant {
        self.held_back_until
    }

    /// Chooses the members that get every message at once: the nearest ones that vote, beginning
    /// after this node, so that a majority is served by all in turn. `votes_itself` is whether this
    /// node does.
    pub(crate) fn choose_prompt(&mut self, now: Instant, votes_itself: bool) {
        let (cell, own) = (self.identity.cell, self.identity.node);
        if cell.is_joint() {
            self.prompt = cell.everyone();
            return;
        }
        let wanted = cell.members().len() / 2 + 1 - usize::from(votes_itself);
        let mut nearest: Vec<_> = self
            .list
            .iter()
            .filter(|peer| peer.is_up() && peer.quarantine_remaining(now).is_zero())
            .filter_map(|peer| {
                let distance = peer.rtt.unwrap_or_default().as_nanos() / NEAR.as_nanos();
                Some((distance, peer.node < own, peer.node, cell.member(peer.node)?))
            })
            .collect();
        nearest
            .sort_unstable_by_key(|(distance, is_before, node, _)| (*distance, *is_before, *node));
        self.prompt = if nearest.len() < wanted {
            cell.everyone()
        } else {
            let chosen = nearest.into_iter().take(wanted);
            chosen.fold(MemberSet::EMPTY, |set, (.., member)| set.with(member))
        };
    }

    fn mark_dirty(&mut self, place: usize) {
        if !std::mem::replace(&mut self.list[place].dirty, true) {
            self.dirty.push(place);
        }
    }

    /// Sends everything that waits, one write per connection.
    pub(crate) fn flush(&mut self, sockets: &mut impl Sockets, now: Instant, counter: u64) {
        if now >= self.held_back_until {
            self.held_back_until = Instant::MAX;
            for place in 0..self.list.len() {
                if self.list[place].holds_back {
                    self.mark_dirty(place);
                }
            }
        }
        while let Some(place) = self.dirty.pop() {
            self.list[place].flush(sockets, counter);
        }
        let cell = &self.identity.cell;
        let is_other = |peer: &&Peer| peer.is_up() && cell.member(peer.node).is_none();
        self.others_up = self.list.iter().filter(is_other).count();
    }

    /// A connection has room again.
    pub(crate) fn writable(&mut self, sockets: &mut impl Sockets, conn: ConnId, counter: u64) {
        if let Some(peer) = self.peer_at(conn) {
            peer.flush(sockets, counter);
        }
    }

    /// A heartbeat arrived from a peer that is up. Returns what it told, if it did.
    pub(crate) fn heartbeat(
        &mut self,
        conn: ConnId,
        now: Instant,
        frame: &[u8],
        own_counter: u64,
    ) -> Option<Told> {
        let Who::Peer(place) = self.who(conn) else { return None };
        let own = (own_counter, self.identity.cell.epoch());
        let (told, changed) =
            self.list[place].heartbeat(now, frame, own, self.timeouts.peer_timeout);
        self.changed |= changed || told.is_some_and(|told| told.has_caught_up);
        self.mark_dirty(place);
        if told.is_some() {
            // The answer postpones a Ping to this peer, and pings to others may go out with it.
            self.next_alarm_at = now;
        }
        told
    }

    /// A connection broke, or could not be made.
    pub(crate) fn closed(&mut self, now: Instant, conn: ConnId, why: &str) {
        let Some(who) = self.who.get_mut(conn.0) else { return };
        match std::mem::replace(who, Who::Closed) {
            Who::Closed => {}
            Who::Unidentified => self.unidentified.retain(|(other, _)| *other != conn),
            Who::Peer(place) => self.peer_down(now, place, why),
        }
    }

    /// Closes a connection.
    pub(crate) fn hang_up(
        &mut self,
        sockets: &mut impl Sockets,
        now: Instant,
        conn: ConnId,
        why: &str,
    ) {
        sockets.close(conn);
        self.closed(now, conn, why);
    }

    /// Tells a peer that is up why its connection is closed, after everything that waits.
    pub(crate) fn say_farewell(
        &mut self,
        sockets: &mut impl Sockets,
        conn: ConnId,
        why: &str,
        counter: u64,
    ) {
        if let Some(peer) = self.peer_at(conn) {
            peer.say_farewell(sockets, why, counter);
        }
    }

    /// Tells all peers that this node stops, and closes the connections to them.
    pub(crate) fn stop(&mut self, sockets: &mut impl Sockets, counter: u64) {
        for peer in &mut self.list {
            peer.say_farewell(sockets, Farewell::STOPPING, counter);
            if let Link::Up { conn, .. } = peer.link {
                sockets.close(conn);
            }
        }
    }

    fn peer_down(&mut self, now: Instant, place: usize, why: &str) {
        let peer = &mut self.list[place];
        let (was_up, was_settled) = (peer.is_up(), peer.is_settled);
        let pause = peer.down(now, why, &mut self.rng);
        self.changed |= was_up;
        if was_up && why == IS_STOPPING {
            tracing::info!(peer = %peer.node, "peer is stopping");
        } else if was_up && was_settled {
            tracing::warn!(peer = %peer.node, why, "peer lost");
        } else if was_up {
            self.complain(now, place, why);
        } else {
            tracing::debug!(peer = %peer.node, why, "peer not reached");
        }
        if let Some(pause) = pause {
            self.next_alarm_at = self.next_alarm_at.min(now.after(pause));
        }
    }

    /// Dials, pings and disconnects peers when that is due. Returns how many connections without a
    /// greeting it closed. `counter` and `quarantine` are this node's own, for its peers to know.
    pub(crate) fn tick(
        &mut self,
        sockets: &mut impl Sockets,
        now: Instant,
        counter: u64,
        quarantine: Duration,
    ) -> u64 {
        for place in std::mem::take(&mut self.impostors) {
            if let Some(conn) = self.list[place].conn() {
                self.hang_up(sockets, now, conn, "a member has its id with another data folder");
            }
        }
        if now < self.next_alarm_at {
            return 0;
        }
        let mut next_at = Instant::MAX;
        let dials_all = now >= self.dials_all_at();
        if !dials_all {
            next_at = self.dials_all_at();
        }
        for place in 0..self.list.len() {
            let peer = &mut self.list[place];
            peer.dials_now = peer.dials || dials_all;
            self.tick_peer(sockets, now, place, counter, quarantine);
            next_at = next_at.min(self.list[place].alarm_at(self.timeouts));
        }
        let (patience, mut closed) = (self.timeouts.peer_timeout, 0);
        while let Some((conn, since)) = self.unidentified.first().copied()
            && now >= since.after(patience)
        {
            self.hang_up(sockets, now, conn, "it sent no greeting");
            closed += 1;
        }
        if let Some((_, since)) = self.unidentified.first() {
            next_at = next_at.min(since.after(patience));
        }
        // A clock that stands still must not make this spin.
        self.next_alarm_at = next_at.max(now.after(Duration::from_millis(1)));
        closed
    }

    fn tick_peer(
        &mut self,
        sockets: &mut impl Sockets,
        now: Instant,
        place: usize,
        counter: u64,
        quarantine: Duration,
    ) {
        let (timeouts, peer) = (self.timeouts, &mut self.list[place]);
        match peer.link {
            Link::Down { redial_at } => {
                if let Some(address) = peer.dial_address().filter(|_| peer.dials_now)
                    && now >= redial_at
                {
                    let conn = sockets.dial(peer.node, address);
                    peer.link = Link::Dialling { conn, since: now };
                    self.set_who(conn, Who::Peer(place));
                }
            }
            Link::Dialling { conn, since } | Link::Greeting { conn, since } => {
                if now >= since.after(timeouts.peer_timeout) {
                    self.hang_up(sockets, now, conn, "it did not answer");
                }
            }
            Link::Up { conn, heard_at, .. } => {
                if now >= heard_at.after(timeouts.peer_timeout) {
                    self.hang_up(sockets, now, conn, "it fell silent");
                } else {
                    let epoch = self.identity.cell.epoch();
                    peer.ping(now, timeouts.heartbeat, quarantine, (counter, epoch));
                    self.mark_dirty(place);
                }
            }
        }
    }

    /// Whether the set of peers that are up has changed since the last call.
    pub(crate) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    pub(crate) fn up(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.list.iter().filter(|peer| peer.is_up()).map(|peer| peer.node)
    }

    /// The nodes that are up and not in quarantine, by their own word.
    pub(crate) fn voting(&self, now: Instant) -> impl Iterator<Item = NodeId> + '_ {
        let votes = move |peer: &&Peer| peer.is_up() && peer.quarantine_remaining(now).is_zero();
        self.list.iter().filter(votes).map(|peer| peer.node)
    }

    pub(crate) fn status(&self, now: Instant) -> Vec<PeerStatus> {
        let is_shown = |peer: &&Peer| peer.reach() != Reach::Gone;
        let is_founding =
            self.identity.list == ListUse::Founding && self.identity.cell.epoch() == 0;
        let status = |peer: &Peer| {
            let mut status = peer.status(now);
            if is_founding && peer.is_up() && peer.list == Some(ListUse::Contact) {
                status.problem = Some("it was started without --new-cell".to_owned());
            }
            status
        };
        self.list.iter().filter(is_shown).map(status).collect()
    }

    /// Where clients reach a node, as it said when it was connected last.
    pub(crate) fn client_address(&self, node: NodeId) -> Option<&str> {
        let address = if node == self.identity.node {
            &self.identity.clients
        } else {
            &self.list.iter().find(|peer| peer.node == node)?.clients
        };
        Some(address.as_str()).filter(|address| !address.is_empty())
    }

    /// How this node reaches each node that was ever a peer.
    pub(crate) fn reaches(&self) -> impl Iterator<Item = (NodeId, Reach)> + '_ {
        self.list.iter().map(|peer| (peer.node, peer.reach()))
    }

    /// The longest round trip to a member that is up. `None` while no member is up, or a round trip
    /// is not measured yet.
    pub(crate) fn longest_round_trip(
        &self,
        is_member: impl Fn(NodeId) -> bool,
    ) -> Option<Duration> {
        let members = self.list.iter().filter(|peer| peer.is_up() && is_member(peer.node));
        members.map(|peer| peer.rtt).reduce(|longest, rtt| Some(longest?.max(rtt?)))?
    }

    /// The longest time in which a peer may send ballots without knowing a higher one: a round
    /// trip, or a heartbeat if the peer is not a member and learns of ballots by heartbeats alone.
    /// `None` while the round trip of a peer that is up is not known.
    pub(crate) fn longest_ignorance(&self, is_member: impl Fn(NodeId) -> bool) -> Option<Duration> {
        let up = self.list.iter().filter(|peer| peer.is_up());
        up.map(|peer| {
            let heard = if is_member(peer.node) { Duration::ZERO } else { self.timeouts.heartbeat };
            peer.rtt.map(|rtt| rtt.max(heard))
        })
        .try_fold(Duration::ZERO, |longest, rtt| Some(longest.max(rtt?)))
    }

    /// The bytes that wait to be sent to all peers.
    pub(crate) fn unsent(&self) -> usize {
        self.list.iter().map(|peer| peer.writer.finished().len()).sum()
    }
}

/// The kind of one whole frame, or why it is not valid.
pub(crate) fn kind_of(frame: &[u8]) -> Result<FrameKind, String> {
    FrameKind::of(frame).map_err(|error| format!("it sent an invalid frame: {error}"))
}
