//! The connections of one shard to its likes on other nodes: dialled, greeted, kept alive, given
//! up. Owns who may speak (handshake, boots) and what is still to be sent.
//!
//! Of two members the one with the higher id dials; a node that only proposes dials every member.
//! What cannot be sent at once is dropped and counted: loss is legal, blocking is not, and nothing
//! for a dead peer outlives its connection. Deliberately ignorant of what the messages mean.

mod greeting;
mod peer;

use std::time::Duration;

use paxoslease_core::{Cell, Instant, Message, NodeId, Rng, To};
use paxoslease_wire::{CellName, FrameKind, Hello, ShardId, VERSION};

pub(crate) use greeting::{Greeted, refusal_of};
use peer::{Link, Peer, Told};

use super::counters::{Counters, DropReason};
use super::sockets::{ConnId, Sockets};
use paxoslease_holder::PeerStatus;

/// How many connections may stand at the door without having said who they are.
const UNIDENTIFIED_MAX: usize = 256;
/// The first pause before dialling again; doubles up to the next.
const REDIAL_MIN: Duration = Duration::from_millis(10);
const REDIAL_MAX: Duration = Duration::from_millis(500);
/// Strangers are complained of once in this time; whoever comes more often fills no log.
const COMPLAINT_PAUSE: Duration = Duration::from_secs(1);

/// Who a shard is and what it expects of its peers.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub(crate) cell_name: String,
    pub(crate) cell: Cell,
    pub(crate) node: NodeId,
    pub(crate) boot: u64,
    pub(crate) shard: ShardId,
}

impl Identity {
    pub(crate) fn hello(&self) -> Hello<'_> {
        Hello {
            version: VERSION,
            cell_name: CellName::new(&self.cell_name).expect("checked with the settings"),
            cell: self.cell,
            node: self.node,
            boot: self.boot,
            shard: self.shard,
        }
    }
}

/// How patient a shard is with its peers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerTimeouts {
    pub(crate) heartbeat: Duration,
    pub(crate) peer_timeout: Duration,
    pub(crate) queue_bytes_max: usize,
}

/// Who is at the other end of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Who {
    Nobody,
    /// A connection whose greeting has not come yet.
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
    /// A node's place in the list, by its id.
    places: Vec<u16>,
    /// By connection.
    who: Vec<Who>,
    unidentified: Vec<(ConnId, Instant)>,
    rng: Rng,
    /// When the next stranger may be complained of.
    complain_at: Instant,
    next_alarm_at: Instant,
    /// Who is up has changed since somebody last asked.
    changed: bool,
}

const NO_PLACE: u16 = u16::MAX;

impl Peers {
    /// `members` are all members of the cell with their addresses; this node may be one of them.
    pub(crate) fn new(
        identity: Identity,
        timeouts: PeerTimeouts,
        members: impl IntoIterator<Item = (NodeId, String)>,
        seed: u64,
        now: Instant,
    ) -> Self {
        let own = identity.node;
        let is_member = identity.cell.member(own).is_some();
        let mut peers = Self {
            identity,
            timeouts,
            list: Vec::new(),
            dirty: Vec::new(),
            places: vec![NO_PLACE; usize::from(NodeId::MAX.get()) + 1],
            who: Vec::new(),
            unidentified: Vec::new(),
            rng: Rng::seeded(seed),
            complain_at: now,
            next_alarm_at: now,
            changed: true,
        };
        for (node, address) in members {
            if node != own {
                let dials = !is_member || own > node;
                peers.add(Peer::new(own, node, Some(address), dials, now));
            }
        }
        peers
    }

    fn add(&mut self, peer: Peer) -> usize {
        let place = self.list.len();
        self.places[usize::from(peer.node.get())] = place as u16;
        self.list.push(peer);
        place
    }

    fn place_of(&self, node: NodeId) -> Option<usize> {
        let place = self.places[usize::from(node.get())];
        (place != NO_PLACE).then_some(usize::from(place))
    }

    pub(crate) fn who(&self, conn: ConnId) -> Who {
        self.who.get(conn.0).copied().unwrap_or(Who::Nobody)
    }

    fn set_who(&mut self, conn: ConnId, who: Who) {
        if self.who.len() <= conn.0 {
            self.who.resize(conn.0 + 1, Who::Nobody);
        }
        self.who[conn.0] = who;
    }

    /// Whether a connection's peer has been greeted and may speak, and which node it is.
    pub(crate) fn speaker(&self, conn: ConnId) -> Option<NodeId> {
        let Who::Peer(place) = self.who(conn) else { return None };
        let peer = &self.list[place];
        matches!(peer.link, Link::Up { conn: up, .. } if up == conn).then_some(peer.node)
    }

    /// Something arrived on the connection of a peer that is up.
    pub(crate) fn heard(&mut self, conn: ConnId, now: Instant) {
        if let Who::Peer(place) = self.who(conn)
            && let Link::Up { heard_at, .. } = &mut self.list[place].link
        {
            *heard_at = now;
        }
    }

    /// Puts a message into the frames of those it is for; what cannot be sent is dropped.
    pub(crate) fn push(
        &mut self,
        to: To,
        message: &Message<'_>,
        counter: u64,
        counters: &mut Counters,
    ) {
        match to {
            To::Node(node) => self.push_to(node, message, counter, counters),
            To::Members(set) => {
                let cell = self.identity.cell;
                for node in cell.nodes(set) {
                    self.push_to(node, message, counter, counters);
                }
            }
        }
    }

    fn push_to(
        &mut self,
        node: NodeId,
        message: &Message<'_>,
        counter: u64,
        counters: &mut Counters,
    ) {
        let Some(place) = self.place_of(node).filter(|place| self.list[*place].is_up()) else {
            return counters.dropped(DropReason::PeerDown, 1);
        };
        let peer = &mut self.list[place];
        if peer.writer.finished().len() > self.timeouts.queue_bytes_max {
            return counters.dropped(DropReason::QueueFull, 1);
        }
        if !peer.writer.push(message) {
            peer.writer.finish(counter);
            let pushed = peer.writer.push(message);
            debug_assert!(pushed, "an empty frame has room");
        }
        counters.sent(message);
        self.mark_dirty(place);
    }

    fn mark_dirty(&mut self, place: usize) {
        if !std::mem::replace(&mut self.list[place].dirty, true) {
            self.dirty.push(place);
        }
    }

    /// Sends whatever waits, one write per connection.
    pub(crate) fn flush(&mut self, sockets: &mut impl Sockets, counter: u64) {
        while let Some(place) = self.dirty.pop() {
            self.list[place].flush(sockets, counter);
        }
    }

    /// A connection has room again.
    pub(crate) fn writable(&mut self, sockets: &mut impl Sockets, conn: ConnId, counter: u64) {
        if let Who::Peer(place) = self.who(conn) {
            self.list[place].flush(sockets, counter);
        }
    }

    /// A heartbeat arrived from a peer that is up. Says what it told of its counter, if it did.
    pub(crate) fn heartbeat(
        &mut self,
        conn: ConnId,
        now: Instant,
        frame: &[u8],
        own_counter: u64,
    ) -> Option<Told> {
        let Who::Peer(place) = self.who(conn) else { return None };
        let (told, changed) =
            self.list[place].heartbeat(now, frame, own_counter, self.timeouts.peer_timeout);
        self.changed |= changed;
        self.mark_dirty(place);
        told
    }

    /// A connection broke, or could not be made.
    pub(crate) fn closed(&mut self, now: Instant, conn: ConnId, why: &str) {
        let Some(who) = self.who.get_mut(conn.0) else { return };
        match std::mem::replace(who, Who::Nobody) {
            Who::Nobody => {}
            Who::Unidentified => self.unidentified.retain(|(other, _)| *other != conn),
            Who::Peer(place) => self.peer_down(now, place, why),
        }
    }

    /// Closes a connection for a reason of ours.
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

    /// Tells a peer that is up why its connection is closed, after whatever waits to be sent.
    pub(crate) fn say_farewell(
        &mut self,
        sockets: &mut impl Sockets,
        conn: ConnId,
        why: &str,
        counter: u64,
    ) {
        if let Who::Peer(place) = self.who(conn) {
            self.list[place].say_farewell(sockets, why, counter);
        }
    }

    fn peer_down(&mut self, now: Instant, place: usize, why: &str) {
        let peer = &mut self.list[place];
        let was_up = peer.is_up();
        let pause = peer.down(now, why, &mut self.rng);
        if was_up {
            self.changed = true;
            tracing::warn!(peer = %peer.node, why, "peer lost");
        } else {
            tracing::debug!(peer = %peer.node, why, "peer not reached");
        }
        if let Some(pause) = pause {
            self.next_alarm_at = self.next_alarm_at.min(now.after(pause));
        }
    }

    /// Dials, pings and gives up peers at their times. Returns how many connections it closed.
    /// `counter` and `quarantine` are this node's own, for its peers to know.
    pub(crate) fn tick(
        &mut self,
        sockets: &mut impl Sockets,
        now: Instant,
        counter: u64,
        quarantine: Duration,
    ) -> u64 {
        let mut sent_away = 0;
        if now < self.next_alarm_at {
            return sent_away;
        }
        let mut next_at = now.after(self.timeouts.heartbeat);
        for place in 0..self.list.len() {
            self.tick_peer(sockets, now, place, counter, quarantine);
            next_at = next_at.min(self.list[place].alarm_at(self.timeouts));
        }
        let patience = self.timeouts.peer_timeout;
        while let Some((conn, _)) =
            self.unidentified.first().filter(|(_, since)| now >= since.after(patience)).copied()
        {
            self.hang_up(sockets, now, conn, "it did not say who it is");
            sent_away += 1;
        }
        // A clock that stands still must not make this spin.
        self.next_alarm_at = next_at.max(now.after(Duration::from_millis(1)));
        sent_away
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
                if let Some(address) = peer.address.as_deref().filter(|_| peer.dials)
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
                    peer.ping(now, timeouts.heartbeat, quarantine, counter);
                    self.mark_dirty(place);
                }
            }
        }
    }

    pub(crate) const fn next_alarm_at(&self) -> Instant {
        self.next_alarm_at
    }

    /// Whether who is up has changed since this was last asked.
    pub(crate) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    /// The nodes that are up.
    pub(crate) fn up(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.list.iter().filter(|peer| peer.is_up()).map(|peer| peer.node)
    }

    /// The nodes that are up and vote, as far as they said so.
    pub(crate) fn voting(&self, now: Instant) -> impl Iterator<Item = NodeId> + '_ {
        let votes = move |peer: &&Peer| peer.is_up() && peer.quarantine_remaining(now).is_zero();
        self.list.iter().filter(votes).map(|peer| peer.node)
    }

    pub(crate) fn status(&self, now: Instant) -> Vec<PeerStatus> {
        self.list.iter().map(|peer| peer.status(now)).collect()
    }

    /// The round-trip time of each peer that is up, and `None` for each that is not.
    pub(crate) fn round_trips(&self) -> impl Iterator<Item = (NodeId, Option<Duration>)> + '_ {
        self.list.iter().map(|peer| {
            let rtt = if peer.is_up() { Some(peer.rtt.unwrap_or_default()) } else { None };
            (peer.node, rtt)
        })
    }

    /// The longest round trip to a member that is up. `None` while there is none, or one is not
    /// measured yet.
    pub(crate) fn longest_round_trip(
        &self,
        is_member: impl Fn(NodeId) -> bool,
    ) -> Option<Duration> {
        let members = self.list.iter().filter(|peer| peer.is_up() && is_member(peer.node));
        members.map(|peer| peer.rtt).reduce(|longest, rtt| Some(longest?.max(rtt?)))?
    }

    /// The longest time in which a peer's ballots come after others it has not heard of: a round
    /// trip, or a heartbeat where the peer is no member and hears of others by that alone. `None`
    /// while one is not known yet.
    pub(crate) fn longest_ignorance(&self, is_member: impl Fn(NodeId) -> bool) -> Option<Duration> {
        let up = self.list.iter().filter(|peer| peer.is_up());
        up.map(|peer| {
            let heard = if is_member(peer.node) { Duration::ZERO } else { self.timeouts.heartbeat };
            peer.rtt.map(|rtt| rtt.max(heard))
        })
        .try_fold(Duration::ZERO, |longest, rtt| Some(longest.max(rtt?)))
    }

    /// What is still to be sent, over all peers.
    pub(crate) fn unsent(&self) -> usize {
        self.list.iter().map(|peer| peer.writer.finished().len()).sum()
    }
}

/// What one whole frame is, or why the stream makes no sense.
pub(crate) fn kind_of(frame: &[u8]) -> Result<FrameKind, String> {
    FrameKind::of(frame).map_err(|error| format!("it sent something that is no frame: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use paxoslease_core::{Drift, Ttl};
    use paxoslease_wire::Heartbeat;

    const HEARTBEAT: Duration = Duration::from_millis(100);
    const MS: Duration = Duration::from_millis(1);

    fn node(id: u16) -> NodeId {
        NodeId::new(id).expect("a node id")
    }

    /// Node 1's peers in a cell of three; node 4, which only proposes, has been here too.
    fn peers() -> Peers {
        let members = [1, 2, 3].map(node);
        let cell = Cell::new(&members, Ttl::MAX, Drift::NONE).expect("valid");
        let shard = ShardId::new(0, 1).expect("the only one");
        let identity = Identity { cell_name: "test".into(), cell, node: node(1), boot: 1, shard };
        let timeouts =
            PeerTimeouts { heartbeat: HEARTBEAT, peer_timeout: HEARTBEAT, queue_bytes_max: 0 };
        let addresses = members.map(|node| (node, String::new()));
        let mut peers = Peers::new(identity, timeouts, addresses, 1, Instant::ZERO);
        peers.add(Peer::new(node(1), node(4), None, false, Instant::ZERO));
        peers
    }

    fn up(peers: &mut Peers, id: u16, rtt: Option<Duration>) {
        let place = peers.place_of(node(id)).expect("a peer");
        peers.list[place].up(Instant::ZERO, ConnId(place), 1);
        peers.list[place].rtt = rtt;
    }

    fn longest(peers: &Peers) -> Option<Duration> {
        let cell = peers.identity.cell;
        peers.longest_ignorance(|node| cell.member(node).is_some())
    }

    #[test]
    fn the_longest_round_trip_is_unknown_while_that_of_anybody_who_is_up_is() {
        let mut peers = peers();
        assert_eq!(longest(&peers), Some(Duration::ZERO), "nobody is up");
        up(&mut peers, 2, None);
        assert_eq!(longest(&peers), None);
        up(&mut peers, 2, Some(2 * MS));
        assert_eq!(longest(&peers), Some(2 * MS), "whoever is down sends nothing");
        up(&mut peers, 3, None);
        assert_eq!(longest(&peers), None);
        up(&mut peers, 3, Some(MS));
        assert_eq!(longest(&peers), Some(2 * MS));
    }

    #[test]
    fn where_somebody_is_up_who_is_no_member_it_is_a_heartbeat_at_least() {
        let mut peers = peers();
        up(&mut peers, 2, Some(2 * MS));
        up(&mut peers, 4, None);
        assert_eq!(longest(&peers), None);
        up(&mut peers, 4, Some(MS));
        assert_eq!(longest(&peers), Some(HEARTBEAT));
        up(&mut peers, 4, Some(2 * HEARTBEAT));
        assert_eq!(longest(&peers), Some(2 * HEARTBEAT));
        up(&mut peers, 3, Some(3 * HEARTBEAT));
        assert_eq!(longest(&peers), Some(3 * HEARTBEAT));
    }

    #[test]
    fn a_peer_in_quarantine_does_not_remember_and_does_not_vote() {
        let (mut peers, conn) = (peers(), ConnId(0));
        up(&mut peers, 2, None);
        peers.set_who(conn, Who::Peer(0));
        peers.take_changed();
        for (quarantine_ms, is_news) in [(0, false), (1, true), (1, false), (0, true)] {
            let mut ping = Vec::new();
            Heartbeat::Ping { number: 1, quarantine_ms, counter: 5 }.encode(&mut ping);
            let told = peers.heartbeat(conn, Instant::ZERO, &ping, 0).expect("it told its counter");
            let is_over = quarantine_ms == 0;
            assert_eq!((told.counter, told.remembers), (5, is_over));
            assert_eq!(peers.voting(Instant::ZERO).count(), usize::from(is_over));
            assert_eq!(peers.take_changed(), is_news, "{quarantine_ms}");
        }
    }

    /// Sockets that take this many bytes in all.
    struct Room(usize);

    impl Sockets for Room {
        fn dial(&mut self, _: NodeId, _: &str) -> ConnId {
            unreachable!("the peer is connected")
        }

        fn send(&mut self, _: ConnId, bytes: &[u8]) -> usize {
            let taken = bytes.len().min(self.0);
            self.0 -= taken;
            taken
        }

        fn close(&mut self, _: ConnId) {}

        fn is_node(&self, _: ConnId, _: NodeId) -> bool {
            true
        }

        fn hand_over(&mut self, _: ConnId, _: u16) {}
    }

    #[test]
    fn what_a_socket_did_not_take_is_sent_when_it_has_room() {
        let (mut peers, conn) = (peers(), ConnId(0));
        up(&mut peers, 2, None);
        peers.set_who(conn, Who::Peer(0));
        assert_eq!(peers.unsent(), 0);
        let mut frame = Vec::new();
        Heartbeat::Ping { number: 1, quarantine_ms: 0, counter: 5 }.encode(&mut frame);
        // The answer to the ping does not fit into the socket.
        peers.heartbeat(conn, Instant::ZERO, &frame, 0).expect("it told its counter");
        peers.flush(&mut Room(3), 7);
        let unsent = peers.unsent();
        assert!(unsent > 0);
        peers.writable(&mut Room(1), conn, 7);
        assert_eq!(peers.unsent(), unsent - 1);
        peers.writable(&mut Room(usize::MAX), conn, 7);
        assert_eq!(peers.unsent(), 0);
    }
}
