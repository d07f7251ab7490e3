//! The handshake: both sides greet first, and check what they hear before anything counts
//! (invariants 2 and 5).

use paxoslease_core::{Instant, NodeId};
use paxoslease_wire::{Farewell, FrameKind, Hello};

use super::peer::{Link, Peer};
use super::{COMPLAINT_PAUSE, Counters, DropReason, Peers, UNIDENTIFIED_MAX, Who, kind_of};
use crate::driver::sockets::{ConnId, Sockets};
use crate::tls::dns_name;

/// What became of a frame from somebody not greeted yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Greeted {
    /// It may speak now.
    Up,
    /// It was for another shard, which has the connection now, with this frame.
    HandedOver,
    /// The connection is closed.
    Closed,
}

impl Peers {
    /// A node connected to this one. Returns whether another connection was closed to make room.
    pub(crate) fn accepted(
        &mut self,
        sockets: &mut impl Sockets,
        now: Instant,
        conn: ConnId,
    ) -> bool {
        self.set_who(conn, Who::Unidentified);
        self.unidentified.push((conn, now));
        let are_too_many = self.unidentified.len() > UNIDENTIFIED_MAX;
        if are_too_many {
            // Any of them, but for the newest. If it were the eldest, who floods the door faster
            // than a greeting takes would keep every peer out; so each has its chance.
            let place = self.rng.bits() as usize % UNIDENTIFIED_MAX;
            let (unlucky, _) = self.unidentified[place];
            self.hang_up(sockets, now, unlucky, "too many at the door");
        }
        self.next_alarm_at = self.next_alarm_at.min(now.after(self.timeouts.peer_timeout));
        are_too_many
    }

    /// A connection we dialled stands: we greet.
    pub(crate) fn connected(&mut self, sockets: &mut impl Sockets, now: Instant, conn: ConnId) {
        let Who::Peer(place) = self.who(conn) else { return };
        self.list[place].link = Link::Greeting { conn, since: now };
        self.say_hello(sockets, conn);
    }

    fn say_hello(&self, sockets: &mut impl Sockets, conn: ConnId) {
        let mut hello = Vec::with_capacity(256);
        self.identity.hello().encode(&mut hello);
        // A fresh connection takes a few hundred bytes; one that does not will be given up.
        sockets.send(conn, &hello);
    }

    /// The first frame of a connection.
    pub(crate) fn greeted(
        &mut self,
        sockets: &mut impl Sockets,
        now: Instant,
        conn: ConnId,
        frame: &[u8],
        counters: &mut Counters,
    ) -> Greeted {
        let refused = match kind_of(frame) {
            Ok(FrameKind::Hello) => match Hello::decode(frame) {
                Ok(hello) => return self.hello(sockets, now, conn, &hello, counters),
                Err(error) => format!("its greeting makes no sense: {error}"),
            },
            Ok(FrameKind::Farewell) => refusal_of(frame),
            Ok(kind) => format!("it sent {kind:?} before it said who it is"),
            Err(error) => error,
        };
        counters.dropped(DropReason::Refused, 1);
        if let Who::Peer(place) = self.who(conn) {
            self.complain(now, place, &refused);
        }
        self.hang_up(sockets, now, conn, &refused);
        Greeted::Closed
    }

    fn hello(
        &mut self,
        sockets: &mut impl Sockets,
        now: Instant,
        conn: ConnId,
        hello: &Hello<'_>,
        counters: &mut Counters,
    ) -> Greeted {
        let is_unidentified = self.who(conn) == Who::Unidentified;
        let own = self.identity.shard;
        if is_unidentified
            && hello.shard.count() == own.count()
            && hello.shard.index() != own.index()
        {
            sockets.hand_over(conn, hello.shard.index());
            self.closed(now, conn, "handed over");
            return Greeted::HandedOver;
        }
        if is_unidentified {
            self.say_hello(sockets, conn);
        }
        // Whoever cannot prove who it is says nothing about that node, whatever it says.
        let is_itself = sockets.is_node(conn, hello.node);
        let admitted = if is_itself {
            self.admit(now, conn, hello)
        } else {
            Err(format!(
                "its certificate is not for {}",
                dns_name(&self.identity.cell_name, hello.node)
            ))
        };
        let place = match admitted {
            Ok(place) => place,
            Err(why) => {
                counters.dropped(DropReason::Refused, 1);
                let mut farewell = Vec::new();
                Farewell::encode(&why, &mut farewell);
                sockets.send(conn, &farewell);
                let why = format!("refused: {why}");
                let place = match self.who(conn) {
                    Who::Peer(dialled) => Some(dialled),
                    Who::Unidentified | Who::Nobody => {
                        self.place_of(hello.node).filter(|_| is_itself)
                    }
                };
                match place {
                    Some(place) => self.complain(now, place, &why),
                    None => self.complain_of_stranger(now, hello.node, &why),
                }
                self.hang_up(sockets, now, conn, &why);
                return Greeted::Closed;
            }
        };
        self.unidentified.retain(|(other, _)| *other != conn);
        // The newest connection counts; what an older one still carries is not listened to.
        if let Some(old) = self.list[place].conn().filter(|old| *old != conn) {
            self.hang_up(sockets, now, old, "it connected anew");
        }
        self.set_who(conn, Who::Peer(place));
        self.list[place].up(now, conn, hello.boot);
        self.next_alarm_at = now;
        self.changed = true;
        tracing::info!(peer = %hello.node, "peer connected");
        Greeted::Up
    }

    /// Whether the greeting of a node that is who it says will do; the peer's place.
    fn admit(&mut self, now: Instant, conn: ConnId, hello: &Hello<'_>) -> Result<usize, String> {
        hello.check(&self.identity.hello()).map_err(|refused| refused.to_string())?;
        if let Who::Peer(place) = self.who(conn)
            && self.list[place].node != hello.node
        {
            let expected = self.list[place].node;
            return Err(format!("node {expected} was dialled and node {} answered", hello.node));
        }
        let place = match self.place_of(hello.node) {
            Some(place) => place,
            None => self.welcome_proposer(hello.node)?,
        };
        // As long as a node without a record keeps silent.
        let memory = self.identity.cell.max_lease().as_duration();
        if self.list[place].is_boot_over(now, hello.boot, memory) {
            return Err(format!(
                "node {} has been started anew since; if it was not, two processes use its id",
                hello.node
            ));
        }
        Ok(place)
    }

    /// A node that only proposes is known once it comes.
    fn welcome_proposer(&mut self, node: NodeId) -> Result<usize, String> {
        let own = self.identity.node;
        if self.identity.cell.member(own).is_none() {
            return Err("neither is a member of the cell".to_owned());
        }
        Ok(self.add(Peer::new(own, node, None, false, Instant::ZERO)))
    }

    /// Tells people of somebody who calls itself this node; one that comes again and again must
    /// not fill the log.
    fn complain_of_stranger(&mut self, now: Instant, claimed: NodeId, why: &str) {
        if now >= self.complain_at {
            self.complain_at = now.after(COMPLAINT_PAUSE);
            tracing::warn!(peer = %claimed, why, "peer refused, or somebody who claims to be it");
        }
    }

    /// Tells people once what is wrong with a peer, and again when it changes.
    fn complain(&mut self, now: Instant, place: usize, why: &str) {
        let peer = &mut self.list[place];
        if peer.is_up() {
            let node = peer.node;
            return self.complain_of_stranger(now, node, why);
        }
        peer.problem = Some(why.to_owned());
        let is_news = |(told, again_at): &(String, Instant)| told != why && now >= *again_at;
        if peer.told.as_ref().is_none_or(is_news) {
            tracing::warn!(peer = %peer.node, why, "peer refused");
            peer.told = Some((why.to_owned(), now.after(COMPLAINT_PAUSE)));
        }
    }
}

/// What a farewell says, for people.
pub(crate) fn refusal_of(frame: &[u8]) -> String {
    match Farewell::decode(frame) {
        Ok(farewell) => format!("it refused us: {farewell}"),
        Err(error) => format!("it refused us, for no clear reason: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use paxoslease_core::{Cell, Drift, Ttl};
    use paxoslease_wire::ShardId;
    use tracing::span;

    use super::*;
    use crate::driver::peers::{Identity, PeerTimeouts};

    /// Somebody at the door, with a certificate of the node it claims to be or of another.
    struct Door {
        is_proven: bool,
        closed: Vec<ConnId>,
    }

    impl Door {
        const fn new(is_proven: bool) -> Self {
            Self { is_proven, closed: Vec::new() }
        }
    }

    impl Sockets for Door {
        fn dial(&mut self, _: NodeId, _: &str) -> ConnId {
            ConnId(0)
        }

        fn send(&mut self, _: ConnId, bytes: &[u8]) -> usize {
            bytes.len()
        }

        fn close(&mut self, conn: ConnId) {
            self.closed.push(conn);
        }

        fn is_node(&self, _: ConnId, _: NodeId) -> bool {
            self.is_proven
        }

        fn hand_over(&mut self, _: ConnId, _: u16) {}
    }

    /// How many lines a log has that shows warnings.
    #[derive(Clone, Default)]
    struct Lines(Arc<AtomicUsize>);

    impl tracing::Subscriber for Lines {
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

    fn node(id: u16) -> NodeId {
        NodeId::new(id).expect("a node id")
    }

    fn identity(id: u16, cell_name: &str) -> Identity {
        let cell = Cell::new(&[1, 2, 3].map(node), Ttl::MAX, Drift::NONE).expect("valid");
        let (cell_name, shard) = (cell_name.to_owned(), ShardId::WHOLE);
        Identity { cell_name, cell, node: node(id), boot: 1, shard }
    }

    /// Node 3, which dials its peers.
    fn third() -> Peers {
        let second = Duration::from_secs(1);
        let timeouts = PeerTimeouts { heartbeat: second, peer_timeout: second, queue_bytes_max: 0 };
        let members = [1, 2, 3].map(|id| (node(id), String::new()));
        Peers::new(identity(3, "ours"), timeouts, members, 1, Instant::ZERO)
    }

    /// What is said to be wrong with a node.
    fn problem(peers: &Peers, id: u16) -> Option<String> {
        let found = peers.status(Instant::ZERO).into_iter().find(|peer| peer.node == id);
        found.expect("a peer").problem
    }

    /// Somebody comes a hundred times, now as of one cell, now as of another. How many lines that
    /// makes.
    fn lines_about(peers: &mut Peers, claimed: u16, is_proven: bool, now: Instant) -> usize {
        let (lines, mut counters) = (Lines::default(), Counters::new());
        tracing::subscriber::with_default(lines.clone(), || {
            for number in 0..100 {
                let mut hello = Vec::new();
                identity(claimed, &format!("cell-{}", number % 2)).hello().encode(&mut hello);
                let (door, conn) = (&mut Door::new(is_proven), ConnId(7));
                peers.accepted(door, now, conn);
                let greeted = peers.greeted(door, now, conn, &hello, &mut counters);
                assert_eq!(greeted, Greeted::Closed);
            }
        });
        lines.0.load(Ordering::SeqCst)
    }

    #[test]
    fn who_cannot_prove_to_be_a_node_says_nothing_about_it_and_fills_no_log() {
        let mut peers = third();
        assert_eq!(lines_about(&mut peers, 2, false, Instant::ZERO), 1);
        assert_eq!(lines_about(&mut peers, 1, false, Instant::ZERO), 0, "not so soon again");
        assert_eq!((problem(&peers, 1), problem(&peers, 2)), (None, None));
        let later = Instant::ZERO.after(COMPLAINT_PAUSE);
        assert_eq!(lines_about(&mut peers, 2, false, later), 1);
    }

    #[test]
    fn a_node_that_is_refused_over_and_over_is_shown_with_its_problem_and_fills_no_log() {
        let mut peers = third();
        assert_eq!(lines_about(&mut peers, 2, false, Instant::ZERO), 1);
        assert_eq!(lines_about(&mut peers, 2, true, Instant::ZERO), 1, "strangers hide nobody");
        let shown = problem(&peers, 2).expect("refused");
        assert!(shown.contains("cell-1"), "the latest: {shown}");
        assert_eq!(problem(&peers, 1), None);
        let later = Instant::ZERO.after(COMPLAINT_PAUSE);
        assert_eq!(lines_about(&mut peers, 2, true, later), 1, "it has changed");
    }

    /// A process of node 2 greets; what becomes of that.
    fn greets(peers: &mut Peers, now: Instant, conn: usize, boot: u64) -> Greeted {
        let (door, conn) = (&mut Door::new(true), ConnId(conn));
        let mut hello = Vec::new();
        Identity { boot, ..identity(2, "ours") }.hello().encode(&mut hello);
        peers.accepted(door, now, conn);
        peers.greeted(door, now, conn, &hello, &mut Counters::new())
    }

    #[test]
    fn a_late_greeting_of_a_dead_process_does_not_lock_its_successor_out() {
        let (mut peers, now) = (third(), Instant::ZERO.after(Duration::from_secs(1)));
        assert_eq!(greets(&mut peers, now, 1, 200), Greeted::Up);
        assert_eq!(greets(&mut peers, now, 2, 100), Greeted::Closed, "it was retransmitted");
        assert_eq!(peers.speaker(ConnId(1)), Some(node(2)), "the live one is still heard");
        assert_eq!(greets(&mut peers, now, 3, 200), Greeted::Up, "and may connect anew");
        peers.closed(now, ConnId(3), "the network");
        assert_eq!(greets(&mut peers, now, 4, 100), Greeted::Closed);
        assert_eq!(greets(&mut peers, now, 5, 200), Greeted::Up);
        assert_eq!(greets(&mut peers, now, 6, 300), Greeted::Up, "and so may its successor");
        assert_eq!(greets(&mut peers, now, 7, 200), Greeted::Closed);
    }

    #[test]
    fn a_node_whose_boots_went_back_is_let_in_once_the_later_one_is_long_gone() {
        let (mut peers, now) = (third(), Instant::ZERO.after(Duration::from_secs(1)));
        assert_eq!(greets(&mut peers, now, 1, 200), Greeted::Up);
        peers.closed(now, ConnId(1), "its disk is lost");
        let memory = peers.identity.cell.max_lease().as_duration();
        let just_before = now.after(memory - Duration::from_nanos(1));
        assert_eq!(greets(&mut peers, just_before, 2, 100), Greeted::Closed);
        assert_eq!(greets(&mut peers, now.after(memory), 3, 100), Greeted::Up);
        let later = now.after(memory * 2);
        assert_eq!(greets(&mut peers, later, 4, 200), Greeted::Up, "a later one always may");
    }

    #[test]
    fn a_flood_of_strangers_does_not_keep_a_peer_out_for_good() {
        let (mut peers, mut counters) = (third(), Counters::new());
        let (door, now) = (&mut Door::new(true), Instant::ZERO);
        let mut strangers = (0..).map(ConnId);
        let mut flood = |peers: &mut Peers, door: &mut Door| {
            for stranger in strangers.by_ref().take(UNIDENTIFIED_MAX) {
                peers.accepted(door, now, stranger);
            }
        };
        flood(&mut peers, door);
        let mut hello = Vec::new();
        identity(1, "ours").hello().encode(&mut hello);
        // As many come as find room, between its arrival and its first word.
        let tries = 100;
        let heard = (0..tries).filter(|attempt| {
            let conn = ConnId(100_000 + attempt);
            peers.accepted(door, now, conn);
            flood(&mut peers, door);
            let is_there = peers.who(conn) == Who::Unidentified;
            if is_there {
                let greeted = peers.greeted(door, now, conn, &hello, &mut counters);
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
        let (mut peers, mut door) = (third(), Door::new(true));
        let (now, mut counters) = (Instant::ZERO, Counters::new());
        let mut hello = Vec::new();
        identity(1, "ours").hello().encode(&mut hello);
        let (old, new) = (ConnId(7), ConnId(8));
        for conn in [old, new] {
            peers.accepted(&mut door, now, conn);
            let greeted = peers.greeted(&mut door, now, conn, &hello, &mut counters);
            assert_eq!(greeted, Greeted::Up);
            assert_eq!(peers.speaker(conn), Some(node(1)));
        }
        assert_eq!(door.closed, [old]);
        assert_eq!((peers.who(old), peers.speaker(old)), (Who::Nobody, None));
        peers.closed(now, old, "it broke, late");
        assert_eq!(peers.speaker(new), Some(node(1)), "and its end is not that of the new one");
        assert_eq!(peers.up().collect::<Vec<_>>(), [node(1)]);
    }

    #[test]
    fn who_answers_for_another_node_is_a_problem_of_the_one_that_was_dialled() {
        let (mut peers, mut door) = (third(), Door::new(false));
        let now = Instant::ZERO;
        let place = peers.place_of(node(2)).expect("a peer");
        peers.set_who(ConnId(5), Who::Peer(place));
        peers.connected(&mut door, now, ConnId(5));
        let mut hello = Vec::new();
        identity(1, "ours").hello().encode(&mut hello);
        peers.greeted(&mut door, now, ConnId(5), &hello, &mut Counters::new());
        let shown = problem(&peers, 2).expect("refused");
        assert!(shown.contains("not for node-1.ours.paxoslease"), "{shown}");
        assert_eq!(problem(&peers, 1), None);
    }

    #[test]
    fn a_guest_that_left_is_not_sent_away() {
        let (mut peers, mut door, now) = (third(), Door::new(true), Instant::ZERO);
        let (gone, mute) = (ConnId(7), ConnId(8));
        for conn in [gone, mute] {
            peers.accepted(&mut door, now, conn);
        }
        peers.closed(now, gone, "it left");
        let later = now.after(peers.timeouts.peer_timeout);
        assert_eq!(peers.tick(&mut door, later, 0, Duration::ZERO), 1);
        assert_eq!(door.closed, [mute]);
        assert!(peers.unidentified.is_empty());
    }
}
