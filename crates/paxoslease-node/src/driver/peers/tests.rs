use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use paxoslease_core::{Acquire, Config, Drift, Durability, Holder, Name, Shard, Start, Token, Ttl};
use paxoslease_wire::Heartbeat;
use tracing::span;

use super::peer::BEATS_BYTES_MAX;
use super::*;
use crate::driver::tests::TestSockets;

mod heartbeats;
mod listing;

const HEARTBEAT: Duration = Duration::from_millis(100);
const MS: Duration = Duration::from_millis(1);
const START: Instant = Instant::ZERO;

fn node(id: u16) -> NodeId {
    NodeId::new(id).expect("a node id")
}

fn identity(id: u16, cell_name: &str) -> Identity {
    let cell = Cell::new(&[1, 2, 3].map(node), Ttl::MAX, Drift::NONE).expect("valid");
    Identity {
        cell_name: cell_name.to_owned(),
        durable_leases: Durability::Disk,
        settings: cell,
        list: ListUse::Fixed,
        cell,
        node: node(id),
        birth: Birth::UNKNOWN,
        boot: 1,
        shard: ShardId::WHOLE,
        clients: String::new(),
    }
}

/// The peers of one node of a cell of three.
fn peers_of(id: u16) -> Peers {
    let timeouts =
        PeerTimeouts { heartbeat: HEARTBEAT, peer_timeout: HEARTBEAT, queue_bytes_max: 0 };
    let members = [1, 2, 3].map(|id| (node(id), String::new()));
    Peers::new(identity(id, "ours"), timeouts, members, 1, START)
}

fn ping(quarantine_ms: u32) -> Vec<u8> {
    ping_of(0, quarantine_ms)
}

fn ping_of(epoch: u32, quarantine_ms: u32) -> Vec<u8> {
    let mut frame = Vec::new();
    Heartbeat::Ping { number: 1, quarantine_ms, counter: 5, epoch }.encode(&mut frame);
    frame
}

impl Peers {
    fn set_up(&mut self, id: u16, rtt: Option<Duration>) -> ConnId {
        let place = self.place_of(node(id)).expect("a peer");
        let conn = ConnId(place);
        self.set_who(conn, Who::Peer(place));
        self.list[place].up(START, conn, 1);
        self.list[place].rtt = rtt;
        conn
    }

    fn longest(&self) -> Option<Duration> {
        let cell = self.identity.cell;
        self.longest_ignorance(|node| cell.member(node).is_some())
    }

    /// A node connects and greets.
    fn meet(
        &mut self,
        sockets: &mut TestSockets,
        now: Instant,
        conn: ConnId,
        other: &Identity,
    ) -> Greeted {
        self.accepted(sockets, now, conn);
        self.hear_hello(sockets, now, conn, other)
    }

    fn hear_hello(
        &mut self,
        sockets: &mut TestSockets,
        now: Instant,
        conn: ConnId,
        other: &Identity,
    ) -> Greeted {
        let mut hello = Vec::new();
        other.hello().encode(&mut hello);
        self.greeted(sockets, now, conn, &hello, &mut Counters::default())
    }

    /// What the status shows as the problem of a peer.
    fn problem(&self, id: u16) -> Option<String> {
        let found = self.status(START).into_iter().find(|peer| peer.node == id);
        found.expect("a peer").problem
    }

    /// A process of node 2 greets.
    fn greets(&mut self, now: Instant, conn: usize, boot: u64) -> Greeted {
        let other = Identity { boot, ..identity(2, "ours") };
        self.meet(&mut TestSockets::default(), now, ConnId(conn), &other)
    }
}

#[test]
fn the_longest_round_trip_needs_one_of_every_peer_that_is_up() {
    let mut peers = peers_of(1);
    assert_eq!(peers.longest(), Some(Duration::ZERO), "no peer is up");
    peers.add(Peer::new(node(1), node(4), None, false, START));
    for (id, rtt, longest) in [
        (2, None, None),
        (2, Some(2 * MS), Some(2 * MS)),
        (3, None, None),
        (3, Some(MS), Some(2 * MS)),
        // A proposer counts as a heartbeat or more.
        (4, None, None),
        (4, Some(MS), Some(HEARTBEAT)),
        (4, Some(2 * HEARTBEAT), Some(2 * HEARTBEAT)),
        (3, Some(3 * HEARTBEAT), Some(3 * HEARTBEAT)),
    ] {
        peers.set_up(id, rtt);
        assert_eq!(peers.longest(), longest, "node {id}: {rtt:?}");
    }
}

#[test]
fn a_peer_in_quarantine_does_not_remember_and_does_not_vote() {
    let mut peers = peers_of(1);
    let conn = peers.set_up(2, None);
    peers.take_changed();
    for (quarantine_ms, is_news) in [(0, false), (1, true), (1, false), (0, true)] {
        let told = peers.heartbeat(conn, START, &ping(quarantine_ms), 0);
        let told = told.expect("it told its counter");
        let is_over = quarantine_ms == 0;
        assert_eq!((told.counter, told.remembers), (5, is_over));
        assert_eq!(peers.voting(START).count(), usize::from(is_over));
        assert_eq!(peers.take_changed(), is_news, "{quarantine_ms}");
    }
}

#[test]
fn what_a_socket_did_not_take_is_sent_when_it_has_room() {
    let mut peers = peers_of(1);
    let conn = peers.set_up(2, None);
    assert_eq!(peers.unsent(), 0);
    peers.heartbeat(conn, START, &ping(0), 0).expect("it told its counter");
    // The answer to the ping does not fit into the socket.
    let with_room = |room| TestSockets { room, ..TestSockets::default() };
    peers.flush(&mut with_room(3), START, 7);
    let unsent = peers.unsent();
    assert!(unsent > 0);
    peers.writable(&mut with_room(1), conn, 7);
    assert_eq!(peers.unsent(), unsent - 1);
    peers.writable(&mut TestSockets::default(), conn, 7);
    assert_eq!(peers.unsent(), 0);
}

#[test]
fn a_peer_that_sends_and_never_reads_has_a_bounded_queue() {
    let mut peer = Peer::new(node(1), node(2), None, false, START);
    peer.up(START, ConnId(0), 1);
    let mut now = START;
    let mut turn = |peer: &mut Peer, it_pings: bool| {
        now = now.after(HEARTBEAT);
        peer.ping(now, HEARTBEAT, Duration::ZERO, (0, 0));
        if it_pings {
            peer.heartbeat(now, &ping(0), (0, 0), HEARTBEAT * 10);
        }
        peer.writer.finished().len()
    };
    let a_turn = turn(&mut peer, true);
    for it_pings in [true, false] {
        for _ in 0..BEATS_BYTES_MAX {
            assert!(turn(&mut peer, it_pings) <= BEATS_BYTES_MAX + a_turn);
        }
    }
    peer.writer.clear();
    assert!(turn(&mut peer, false) > 0, "a peer that reads again is pinged again");
}

#[test]
fn nodes_that_are_not_members_share_the_queue_of_one() {
    const BYTES: usize = 64 << 10;
    let timeouts =
        PeerTimeouts { heartbeat: HEARTBEAT, peer_timeout: HEARTBEAT, queue_bytes_max: BYTES };
    let list = [2, 3].into_iter().chain(10..74).map(|id| (node(id), String::new()));
    let mut peers = Peers::new(identity(1, "ours"), timeouts, list, 1, START);
    // They read nothing.
    let mut deaf = TestSockets { room: 0, ..TestSockets::default() };
    let ids = || (10..74).chain([2]);
    for id in ids() {
        let _conn = peers.set_up(id, None);
    }
    let mut counters = Counters::default();
    let [transmit, _] = transmits();
    for _ in 0..20_000 {
        ids().for_each(|id| peers.push_to(node(id), &transmit, 1, &mut counters));
        peers.flush(&mut deaf, START, 1);
    }
    let queued = |id| {
        let place = peers.place_of(node(id)).expect("a peer");
        peers.list[place].writer.finished().len()
    };
    assert!(queued(2) > BYTES / 2, "a member has its own queue: {}", queued(2));
    let others: usize = (10..74).map(queued).sum();
    assert!(others < 2 * BYTES, "{others} bytes are queued for 64 nodes");
}

#[test]
fn a_made_up_pong_measures_no_round_trip() {
    let mut peer = Peer::new(node(1), node(2), None, false, START);
    let (second, timeout) = (Duration::from_secs(1), Duration::from_secs(2));
    let now = START.after(second * 3600);
    let mut pong = |number: u64| {
        let mut frame = Vec::new();
        Heartbeat::Pong(number).encode(&mut frame);
        peer.heartbeat(now, &frame, (0, 0), timeout);
        peer.rtt
    };
    assert_eq!(pong(0), None);
    let sent_at = now.as_nanos() - second.as_nanos() as u64;
    assert_eq!(pong(sent_at), Some(second));
    assert_eq!(pong(0), Some(second));
}

/// Counts the warnings in the log.
#[derive(Clone, Default)]
struct Warnings(Arc<AtomicUsize>);

impl tracing::Subscriber for Warnings {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::WARN
    }
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, _: &tracing::Event<'_>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

/// A node connects a hundred times and greets as one of two other cells in turn. Returns the number
/// of warnings in the log.
fn warnings(peers: &mut Peers, claimed: u16, is_proven: bool, now: Instant) -> usize {
    let lines = Warnings::default();
    tracing::subscriber::with_default(lines.clone(), || {
        for number in 0..100 {
            let mut sockets = TestSockets { is_proven, ..TestSockets::default() };
            let other = identity(claimed, &format!("cell-{}", number % 2));
            assert_eq!(peers.meet(&mut sockets, now, ConnId(7), &other), Greeted::Closed);
        }
    });
    lines.0.load(Ordering::SeqCst)
}

#[test]
fn a_node_without_proof_changes_no_status_and_fills_no_log() {
    let mut peers = peers_of(3);
    assert_eq!(warnings(&mut peers, 2, false, START), 1);
    assert_eq!(warnings(&mut peers, 1, false, START), 0, "not so soon again");
    assert_eq!((peers.problem(1), peers.problem(2)), (None, None));
    assert_eq!(warnings(&mut peers, 2, false, START.after(COMPLAINT_PAUSE)), 1);
}

#[test]
fn a_peer_refused_again_and_again_is_shown_and_fills_no_log() {
    let mut peers = peers_of(3);
    assert_eq!(warnings(&mut peers, 2, false, START), 1);
    assert_eq!(warnings(&mut peers, 2, true, START), 1, "strangers hide no peer");
    let shown = peers.problem(2).expect("refused");
    assert!(shown.contains("cell-1"), "the latest: {shown}");
    assert_eq!(peers.problem(1), None);
    assert_eq!(warnings(&mut peers, 2, true, START.after(COMPLAINT_PAUSE)), 1, "it has changed");
}

/// As the members do with a node that lost its disk.
#[test]
fn peers_that_greet_and_then_refuse_this_node_fill_no_log() {
    let (mut peers, lines) = (peers_of(3), Warnings::default());
    tracing::subscriber::with_default(lines.clone(), || {
        for second in 0..100 {
            let now = START.after(Duration::from_secs(second));
            assert_eq!(peers.greets(now, 1, 200), Greeted::Up);
            peers.closed(now, ConnId(1), "it refused us: you are another");
        }
    });
    assert_eq!(lines.0.load(Ordering::SeqCst), 1);
    assert_eq!(peers.problem(2).as_deref(), Some("it refused us: you are another"));
}

#[test]
fn a_late_greeting_of_a_dead_process_does_not_lock_out_the_next() {
    let (mut peers, now) = (peers_of(3), START.after(Duration::from_secs(1)));
    assert_eq!(peers.greets(now, 1, 200), Greeted::Up);
    assert_eq!(peers.greets(now, 2, 100), Greeted::Closed, "it was retransmitted");
    assert_eq!(peers.speaker(ConnId(1)), Some(node(2)), "the live process is still heard");
    assert_eq!(peers.greets(now, 3, 200), Greeted::Up, "and may connect again");
    peers.closed(now, ConnId(3), "the network");
    assert_eq!(peers.greets(now, 4, 100), Greeted::Closed);
    assert_eq!(peers.greets(now, 5, 200), Greeted::Up);
    assert_eq!(peers.greets(now, 6, 300), Greeted::Up, "and so may its successor");
    assert_eq!(peers.greets(now, 7, 200), Greeted::Closed);
}

#[test]
fn an_older_boot_is_let_in_once_the_later_one_is_long_gone() {
    let (mut peers, now) = (peers_of(3), START.after(Duration::from_secs(1)));
    assert_eq!(peers.greets(now, 1, 200), Greeted::Up);
    peers.closed(now, ConnId(1), "its disk is lost");
    let memory = peers.identity.cell.max_lease().as_duration();
    let just_before = now.after(memory - Duration::from_nanos(1));
    assert_eq!(peers.greets(just_before, 2, 100), Greeted::Closed);
    assert_eq!(peers.greets(now.after(memory), 3, 100), Greeted::Up);
    assert_eq!(peers.greets(now.after(memory * 2), 4, 200), Greeted::Up, "a later one always may");
}

#[test]
fn a_flood_of_strangers_does_not_keep_a_peer_out_for_good() {
    let (mut peers, sockets) = (peers_of(3), &mut TestSockets::default());
    let mut strangers = (0..).map(ConnId);
    let mut flood = |peers: &mut Peers, sockets: &mut TestSockets| {
        for stranger in strangers.by_ref().take(UNIDENTIFIED_MAX) {
            let closed = sockets.closed.len();
            let is_one_too_many = peers.accepted(sockets, START, stranger);
            assert_eq!(sockets.closed.len() - closed, usize::from(is_one_too_many));
        }
    };
    flood(&mut peers, sockets);
    // As many strangers as there is room for connect between its arrival and its greeting.
    let tries = 100;
    let heard = (0..tries).filter(|attempt| {
        let conn = ConnId(100_000 + attempt);
        peers.accepted(sockets, START, conn);
        flood(&mut peers, sockets);
        let is_there = peers.who(conn) == Who::Unidentified;
        if is_there {
            let greeted = peers.hear_hello(sockets, START, conn, &identity(1, "ours"));
            assert_eq!(greeted, Greeted::Up);
        }
        is_there
    });
    let heard = heard.count();
    assert!((20..60).contains(&heard), "{heard} of {tries}, about one in e");
    assert!(peers.unidentified.len() <= UNIDENTIFIED_MAX);
}

#[test]
fn only_the_newest_connection_of_a_peer_is_kept_and_listened_to() {
    let (mut peers, mut sockets) = (peers_of(3), TestSockets::default());
    let (old, new) = (ConnId(7), ConnId(8));
    for conn in [old, new] {
        let greeted = peers.meet(&mut sockets, START, conn, &identity(1, "ours"));
        assert_eq!(greeted, Greeted::Up);
        assert_eq!(peers.speaker(conn), Some(node(1)));
    }
    assert_eq!(sockets.closed, [old]);
    assert_eq!((peers.who(old), peers.speaker(old)), (Who::Closed, None));
    peers.closed(START, old, "it broke, late");
    assert_eq!(peers.speaker(new), Some(node(1)), "and its end is not that of the new one");
    assert_eq!(peers.up().collect::<Vec<_>>(), [node(1)]);
}

#[test]
fn a_wrong_node_that_answers_is_a_problem_of_the_dialled_one() {
    let (mut peers, conn) = (peers_of(3), ConnId(5));
    let mut sockets = TestSockets { is_proven: false, ..TestSockets::default() };
    let place = peers.place_of(node(2)).expect("a peer");
    peers.set_who(conn, Who::Peer(place));
    peers.connected(&mut sockets, START, conn);
    peers.hear_hello(&mut sockets, START, conn, &identity(1, "ours"));
    let shown = peers.problem(2).expect("refused");
    assert!(shown.contains("not for node-1.ours.paxoslease"), "{shown}");
    assert_eq!(peers.problem(1), None);
}

#[test]
fn a_stranger_that_left_is_not_disconnected_again() {
    let (mut peers, mut sockets) = (peers_of(3), TestSockets::default());
    let (gone, silent) = (ConnId(7), ConnId(8));
    for conn in [gone, silent] {
        peers.accepted(&mut sockets, START, conn);
    }
    peers.closed(START, gone, "it left");
    assert_eq!(peers.tick(&mut sockets, START.after(HEARTBEAT), 0, Duration::ZERO), 1);
    assert_eq!(sockets.closed, [silent]);
    assert!(peers.unidentified.is_empty());
}

/// A message of node 1 to the members, which a majority of them gets first, and one to node 3.
fn transmits() -> [Transmit; 2] {
    let config = Config::new(node(1), identity(1, "ours").cell, 1);
    let mut shard = Shard::start(config, START, Start::NewCell { counter: 0, disk: false });
    let acquire = Acquire {
        token: Token(1),
        name: Name::new("x").expect("a name"),
        holder: Holder::NONE,
        ttl: MS * 1000,
        wait: Duration::ZERO,
    };
    shard.acquire(START, acquire).expect("there is room");
    let mut to_all = shard.poll_transmit().expect("a proposal");
    to_all.majority_first = true;
    let mut to_one = to_all.clone();
    (to_one.to, to_one.majority_first) = (To::Node(node(3)), false);
    [to_all, to_one]
}

/// The peers of node 1, and a socket to each.
fn connected() -> (Peers, ConnId, ConnId) {
    let mut peers = peers_of(1);
    let conns = [2, 3].map(|id| peers.set_up(id, Some(MS)));
    peers.choose_prompt(START, true);
    (peers, conns[0], conns[1])
}

impl Peers {
    /// Sends, and returns the connections that were written to.
    fn sends(&mut self, now: Instant, transmit: Option<&Transmit>) -> Vec<ConnId> {
        let (mut sockets, mut counters) = (TestSockets::default(), Counters::default());
        if let Some(transmit) = transmit {
            self.push(now, transmit, 1, &mut counters);
        }
        self.flush(&mut sockets, now, 1);
        sockets.sent.sort_unstable_by_key(|conn| conn.0);
        sockets.sent
    }
}

#[test]
fn members_outside_the_majority_get_a_release_a_little_later() {
    let [to_all, to_one] = transmits();
    let (mut peers, near, other) = connected();
    assert_eq!(peers.sends(START, Some(&to_all)), [near]);
    assert_eq!(peers.sends(START.after(MS / 2), Some(&to_all)), [near]);
    assert_eq!(peers.held_back_until(), START.after(MS), "from the first one");
    assert_eq!(peers.sends(START.after(MS), None), [other]);
    assert_eq!(peers.held_back_until(), Instant::MAX);
    assert_eq!(peers.unsent(), 0);

    assert_eq!(peers.sends(START, Some(&to_all)), [near]);
    assert_eq!(
        peers.sends(START, Some(&to_one)),
        [other],
        "a message that may not wait takes both"
    );
    assert_eq!(peers.sends(START.after(MS), None), [], "nothing is left");

    assert_eq!(peers.sends(START, Some(&to_all)), [near]);
    peers.hold_nothing_back();
    assert_eq!(peers.sends(START, None), [other], "a refusal makes all answers count");
}

#[test]
fn nothing_is_held_back_without_a_majority_that_votes() {
    let [to_all, _] = transmits();
    let (mut peers, near, other) = connected();
    peers.choose_prompt(START, false);
    assert_eq!(peers.sends(START, Some(&to_all)), [near, other], "this node does not vote");

    peers.heartbeat(near, START, &ping(1000), 0).expect("it told its counter");
    peers.choose_prompt(START, true);
    assert_eq!(peers.sends(START, Some(&to_all)), [near, other], "a pong and a late message");
    assert_eq!(peers.sends(START, Some(&to_all)), [other], "the near one does not vote");

    peers.closed(START, other, "it is gone");
    peers.choose_prompt(START, true);
    assert_eq!(peers.sends(START, Some(&to_all)), [near]);
}

#[test]
fn the_nearest_members_get_messages_at_once() {
    let [to_all, _] = transmits();
    let (mut peers, first, second) = connected();
    for (rtts, prompt) in [([1, 2], first), ([2, 1], first), ([40, 1], second), ([1, 40], first)] {
        peers.set_up(2, Some(MS * rtts[0]));
        peers.set_up(3, Some(MS * rtts[1]));
        peers.choose_prompt(START, true);
        assert_eq!(peers.sends(START, Some(&to_all)), [prompt], "{rtts:?}");
        peers.sends(START.after(MS), None);
    }
}
