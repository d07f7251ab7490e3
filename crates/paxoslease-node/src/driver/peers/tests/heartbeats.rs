//! Who pings on an idle connection, and how often.

use paxoslease_wire::split_frame;

use super::*;

/// The two ends of a connection, and the pings that each of them sent.
struct Ends {
    now: Instant,
    dialler: Peer,
    answerer: Peer,
    pings: [Vec<(u64, bool)>; 2],
}

impl Ends {
    fn new() -> Self {
        let now = START.after(HEARTBEAT * 10);
        let peer = |own, other, dials| {
            let mut peer = Peer::new(node(own), node(other), None, dials, now);
            peer.up(now, ConnId(0), 1);
            peer
        };
        let (dialler, answerer) = (peer(2, 1, true), peer(1, 2, false));
        Self { now, dialler, answerer, pings: Default::default() }
    }

    /// Both ends do what is due, until nothing is under way. The counter and the quarantine are
    /// those of the node that was dialled.
    fn turn(&mut self, counter: u64, quarantine: Duration) {
        self.dialler.ping(self.now, HEARTBEAT, Duration::ZERO, (1, 0));
        self.answerer.ping(self.now, HEARTBEAT, quarantine, (counter, 0));
        loop {
            let sent = [&mut self.dialler, &mut self.answerer].map(|peer| {
                let bytes = peer.writer.finished().to_vec();
                peer.writer.consume(bytes.len());
                bytes
            });
            if sent.iter().all(Vec::is_empty) {
                return;
            }
            let ends = [&mut self.answerer, &mut self.dialler];
            for ((peer, bytes), pings) in ends.into_iter().zip(&sent).zip(&mut self.pings) {
                let mut rest = &bytes[..];
                while let Ok(Some((frame, after))) = split_frame(rest) {
                    let own = (counter, 0);
                    let (told, _) = peer.heartbeat(self.now, frame, own, HEARTBEAT * 10);
                    pings.extend(told.map(|told| (told.counter, told.remembers)));
                    rest = after;
                }
            }
            self.answerer.ping(self.now, HEARTBEAT, quarantine, (counter, 0));
        }
    }

    fn sleep(&mut self, span: Duration) {
        self.now = self.now.after(span);
    }
}

#[test]
fn only_the_node_that_dialled_pings_an_idle_connection() {
    let mut ends = Ends::new();
    for _ in 0..100 {
        ends.turn(1, Duration::ZERO);
        assert!(ends.answerer.rtt.is_some() && ends.dialler.rtt.is_some());
        ends.sleep(HEARTBEAT);
    }
    // The other node measures the round trip now and then.
    assert_eq!(ends.pings.map(|pings| pings.len()), [100, 20]);
}

#[test]
fn news_goes_out_with_the_answer_to_the_next_ping() {
    let mut ends = Ends::new();
    let quarantine = MS;
    let mut told = Vec::new();
    for (counter, quarantine) in [
        (1, quarantine),
        (1, quarantine),
        (1, Duration::ZERO),
        (1, Duration::ZERO),
        (2, Duration::ZERO),
        (2, Duration::ZERO),
        (3, Duration::ZERO),
    ] {
        ends.turn(counter, quarantine);
        told.push(ends.pings[1].last().copied());
        ends.sleep(HEARTBEAT);
    }
    let expected = [(1, false), (1, false), (1, true), (1, true), (2, true), (2, true), (3, true)];
    assert_eq!(told, expected.map(Some));
    assert_eq!(ends.pings[1].len(), 5, "what the dialler knows is not repeated");
}

#[test]
fn a_node_that_hears_no_ping_pings_at_every_heartbeat() {
    let mut ends = Ends::new();
    for _ in 0..3 {
        ends.turn(1, Duration::ZERO);
        ends.sleep(HEARTBEAT);
    }
    let (last_at, timeout) = (ends.now.as_nanos() - HEARTBEAT.as_nanos() as u64, HEARTBEAT * 100);
    let timeouts = PeerTimeouts { heartbeat: HEARTBEAT, peer_timeout: timeout, queue_bytes_max: 0 };
    let mut pinged_after = Vec::new();
    for _ in 0..3 {
        let now = ends.answerer.alarm_at(timeouts);
        ends.answerer.ping(now, HEARTBEAT, Duration::ZERO, (1, 0));
        assert!(!ends.answerer.writer.finished().is_empty(), "an alarm without a ping");
        ends.answerer.writer.clear();
        pinged_after.push(now.since(Instant::from_nanos(last_at)));
    }
    assert_eq!(pinged_after, [3, 5, 7].map(|halves| HEARTBEAT * halves / 2));
}

/// The peers of node 2, which dialled node 1 and was dialled by node 3.
fn middle(now: Instant, sockets: &mut TestSockets) -> (Peers, [ConnId; 2]) {
    let mut peers = peers_of(2);
    peers.timeouts.peer_timeout = HEARTBEAT * 100;
    let conns = [1, 3].map(|id| peers.set_up(id, Some(MS)));
    peers.next_alarm_at = now;
    peers.tick(sockets, now, 5, Duration::ZERO);
    peers.flush(sockets, now, 5);
    assert_eq!(sockets.sent.len(), 2, "both are pinged at first");
    sockets.sent.clear();
    (peers, conns)
}

#[test]
fn a_ping_that_is_almost_due_goes_out_with_an_answer() {
    for (percent, is_aligned) in [(70, false), (80, true)] {
        let (mut now, mut sockets) = (START.after(HEARTBEAT * 10), TestSockets::default());
        let (mut peers, [dialled, dialled_by]) = middle(now, &mut sockets);
        now = now.after(HEARTBEAT * percent / 100);
        peers.heartbeat(dialled_by, now, &ping(0), 5);
        peers.tick(&mut sockets, now, 5, Duration::ZERO);
        peers.flush(&mut sockets, now, 5);
        assert!(sockets.sent.contains(&dialled_by));
        assert_eq!(sockets.sent.contains(&dialled), is_aligned, "after {percent} %");
    }
}

#[test]
fn an_idle_member_wakes_once_per_heartbeat_or_less() {
    let (mut now, mut sockets) = (START.after(HEARTBEAT * 10), TestSockets::default());
    let (mut peers, [dialled, dialled_by]) = middle(now, &mut sockets);
    for _ in 0..10 {
        now = now.after(HEARTBEAT);
        assert!(peers.next_alarm_at >= now, "an alarm before the next ping");
        peers.heartbeat(dialled_by, now, &ping(0), 5);
        peers.tick(&mut sockets, now, 5, Duration::ZERO);
        peers.heard(dialled, now);
        peers.flush(&mut sockets, now, 5);
    }
    // A cell of one has nothing to wake for.
    let cell = Cell::new(&[node(1)], Ttl::MAX, Drift::NONE).expect("valid");
    let identity = Identity { settings: cell, cell, ..identity(1, "ours") };
    let mut alone = Peers::new(identity, peers.timeouts, [], 1, START);
    alone.note_quorum(now);
    alone.tick(&mut sockets, now, 5, Duration::ZERO);
    assert_eq!(alone.next_alarm_at, Instant::MAX);
}

#[test]
fn a_peer_that_falls_silent_is_disconnected_after_its_timeout() {
    let (heard_at, mut sockets) = (START.after(HEARTBEAT * 10), TestSockets::default());
    let (mut peers, [dialled, dialled_by]) = middle(heard_at, &mut sockets);
    peers.timeouts.peer_timeout = HEARTBEAT * 7 / 3;
    peers.heard(dialled, heard_at);
    peers.heard(dialled_by, heard_at);
    peers.heartbeat(dialled_by, heard_at, &ping(0), 5);
    let mut now = heard_at;
    loop {
        peers.tick(&mut sockets, now, 5, Duration::ZERO);
        if !sockets.closed.is_empty() {
            break;
        }
        now = peers.next_alarm_at;
    }
    assert_eq!(sockets.closed, [dialled, dialled_by]);
    assert_eq!(now, heard_at.after(HEARTBEAT * 7 / 3));
    assert_eq!(peers.list[0].status(now).problem.as_deref(), Some("it fell silent"));
}
