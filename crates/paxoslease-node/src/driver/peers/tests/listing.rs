//! Peers follow the members of the cell.

use paxoslease_core::{Ballot, Change, Configuration, Member, Members};

use paxoslease_wire::{FrameReader, split_frame};

use super::*;

fn birth(id: u16) -> Birth {
    Birth(u64::from(id) + 100)
}

fn members(list: &[(u16, &str)]) -> Members {
    let member =
        |&(id, peer): &(u16, &str)| Member { node: node(id), birth: birth(id), peer: peer.into() };
    Members::new(list.iter().map(member).collect()).expect("valid")
}

const FOUNDERS: [(u16, &str); 3] = [(1, "one:1"), (2, "two:1"), (3, "three:1")];

fn founded() -> Configuration {
    let list = members(&FOUNDERS);
    Configuration::unfounded(&list).after(&Change::Same(list), Ballot::ZERO).expect("legal")
}

fn after(configuration: &Configuration, change: Change) -> Configuration {
    configuration.after(&change, Ballot::ZERO).expect("legal")
}

/// The greeting of a node with a data folder.
fn managed(id: u16) -> Identity {
    Identity { list: ListUse::Contact, birth: birth(id), ..identity(id, "ours") }
}

/// The peers of a node with a data folder, whose settings list the founders.
fn managed_peers(id: u16, configuration: &Configuration) -> Peers {
    let timeouts =
        PeerTimeouts { heartbeat: HEARTBEAT, peer_timeout: HEARTBEAT, queue_bytes_max: 0 };
    let contacts = FOUNDERS.map(|(id, address)| (node(id), address.to_owned()));
    let mut peers = Peers::new(managed(id), timeouts, contacts, 1, START);
    peers.adopt(configuration);
    peers
}

impl Peers {
    fn adopt(&mut self, configuration: &Configuration) {
        let cell = configuration.cell(&self.identity.settings);
        self.follow(START, configuration, cell, 1);
    }

    /// The members by id, with the address, and whether this node dials it.
    fn listed(&self) -> Vec<(u16, &str, bool)> {
        let listed = self.list.iter().filter(|peer| peer.is_listed);
        let shown = listed
            .map(|peer| (peer.node.get(), peer.address.as_deref().unwrap_or_default(), peer.dials));
        let mut shown: Vec<_> = shown.collect();
        shown.sort_unstable();
        shown
    }
}

#[test]
fn peers_are_added_removed_and_dialled_as_the_members_change() {
    let a = founded();
    let mut peers = managed_peers(2, &a);
    assert_eq!(peers.listed(), [(1, "one:1", true), (3, "three:1", false)]);
    let moved = after(&a, Change::Same(members(&[FOUNDERS[0], FOUNDERS[1], (3, "else:1")])));
    peers.adopt(&moved);
    assert_eq!(peers.listed(), [(1, "one:1", true), (3, "else:1", false)]);
    let joint = after(&moved, Change::Begin(members(&[FOUNDERS[0], (3, "else:1"), (4, "four:1")])));
    peers.adopt(&joint);
    let both = [(1, "one:1", true), (3, "else:1", false), (4, "four:1", false)];
    assert_eq!(peers.listed(), both, "the higher id dials");
    peers.adopt(&after(&joint, Change::End));
    let both = both.map(|(id, address, _)| (id, address, true));
    assert_eq!(peers.listed(), both, "a node that is no member dials every member");
}

#[test]
fn a_newcomer_waits_for_members_with_higher_ids() {
    let joint = after(&founded(), Change::Begin(members(&[(2, "two:1"), (3, "three:1")])));
    let mut peers = managed_peers(3, &joint);
    assert_eq!(peers.listed(), [(1, "one:1", true), (2, "two:1", true)]);
    peers.adopt(&after(&joint, Change::End));
    assert_eq!(peers.listed(), [(2, "two:1", true)]);
}

/// What a node sends before its peer has changed over is dropped there, and must not wait for a
/// timeout.
#[test]
fn peers_hear_of_a_new_epoch_at_once_and_tell_when_they_follow() {
    let (a, sockets) = (founded(), &mut TestSockets::default());
    let (mut peers, conn) = (managed_peers(3, &a), ConnId(9));
    let other = Identity { cell: a.cell(&peers.identity.settings), ..managed(2) };
    assert_eq!(peers.meet(sockets, START, conn, &other), Greeted::Up);
    let now = START.after(HEARTBEAT);
    let pings = |peers: &mut Peers, sockets: &mut TestSockets, now| {
        peers.heard(conn, now);
        peers.tick(sockets, now, 1, Duration::ZERO);
        let place = peers.place_of(node(2)).expect("a peer");
        let bytes = peers.list[place].writer.finished().to_vec();
        peers.list[place].writer.consume(bytes.len());
        match split_frame(&bytes) {
            Ok(Some((frame, _))) => Heartbeat::decode(frame).ok(),
            _ => None,
        }
    };
    let epoch_of = |ping| match ping {
        Some(Heartbeat::Ping { epoch, .. }) => Some(epoch),
        _ => None,
    };
    assert_eq!(epoch_of(pings(&mut peers, sockets, now)), Some(1));
    assert_eq!(epoch_of(pings(&mut peers, sockets, now.after(MS))), None, "not due yet");
    peers.adopt(&after(&a, Change::Begin(members(&FOUNDERS[..2]))));
    assert_eq!(epoch_of(pings(&mut peers, sockets, now.after(MS * 2))), Some(2));

    let mut hears = |epoch| {
        let told = peers.heartbeat(conn, now, &ping_of(epoch, 0), 1).expect("a Ping");
        (told.has_caught_up, peers.take_changed())
    };
    hears(1);
    assert_eq!(hears(1), (false, false));
    assert_eq!(hears(2), (true, true));
    assert_eq!(hears(2), (false, false));
    assert_eq!(hears(3), (false, false), "it is ahead");
}

/// The members may have changed while it was away, and wait for it to dial.
#[test]
fn a_node_without_a_quorum_dials_every_node_it_knows() {
    let joint = after(&founded(), Change::Begin(members(&[(1, "one:1"), (4, "four:1")])));
    let mut peers = managed_peers(1, &after(&joint, Change::End));
    let sockets = &mut TestSockets::default();
    let dialled = |peers: &mut Peers, sockets: &mut TestSockets, now| {
        peers.note_quorum(now);
        peers.tick(sockets, now, 1, Duration::ZERO);
        let is_dialled = |peer: &&Peer| matches!(peer.link, Link::Dialling { .. });
        peers.list.iter().filter(is_dialled).map(|peer| peer.node.get()).collect::<Vec<_>>()
    };
    assert_eq!(dialled(&mut peers, sockets, START), [0; 0], "node 4 dials this one");
    let later = START.after(HEARTBEAT);
    assert_eq!(dialled(&mut peers, sockets, later), [2, 3, 4]);
    let mut served = managed_peers(1, &founded());
    assert_eq!(served.meet(sockets, START, ConnId(9), &managed(2)), Greeted::Up);
    assert_eq!(dialled(&mut served, sockets, later), [0; 0], "two of three are a quorum");
}

/// The members that a node knows may be older than its settings.
#[test]
fn dials_take_turns_between_members_and_settings() {
    let moved = Change::Same(members(&[(1, "else:1"), FOUNDERS[1], FOUNDERS[2]]));
    let mut peers = managed_peers(2, &after(&founded(), moved));
    let sockets = &mut TestSockets::default();
    assert_eq!(peers.meet(sockets, START, ConnId(9), &managed(3)), Greeted::Up);
    peers.note_quorum(START);
    for step in 0..4 {
        let now = START.after(HEARTBEAT * step);
        peers.heard(ConnId(9), now);
        peers.tick(sockets, now, 1, Duration::ZERO);
        peers.closed(now, ConnId(0), "refused");
    }
    assert_eq!(sockets.dialled, ["else:1", "one:1", "else:1", "one:1"]);
}

#[test]
fn an_id_with_another_birth_is_refused() {
    let (mut peers, sockets) = (managed_peers(3, &founded()), &mut TestSockets::default());
    let impostor = Identity { birth: Birth(7), ..managed(2) };
    assert_eq!(peers.meet(sockets, START, ConnId(1), &impostor), Greeted::Closed);
    let problem = peers.problem(2).expect("refused");
    assert!(problem.contains("a member has this id with another data folder"), "{problem}");
    assert!(!peers.are_we_an_impostor());
    assert_eq!(peers.meet(sockets, START, ConnId(2), &managed(2)), Greeted::Up);
    assert_eq!(peers.birth_of(node(2)), birth(2));
}

/// It greeted before this node knew the member of that id.
#[test]
fn a_peer_that_turns_out_to_be_an_impostor_is_disconnected() {
    let (mut peers, sockets) = (managed_peers(3, &founded()), &mut TestSockets::default());
    let early = Identity { birth: Birth(7), ..managed(4) };
    assert_eq!(peers.meet(sockets, START, ConnId(1), &early), Greeted::Up);
    assert_eq!(peers.meet(sockets, START, ConnId(2), &managed(2)), Greeted::Up);
    peers.adopt(&after(&founded(), Change::Begin(members(&[(1, "one:1"), (4, "four:1")]))));
    peers.tick(sockets, START, 1, Duration::ZERO);
    assert_eq!(sockets.closed, [ConnId(1)]);
    assert_eq!(peers.up().collect::<Vec<_>>(), [node(2)]);
}

#[test]
fn frames_to_a_peer_have_the_epoch_that_they_were_opened_in() {
    let (mut peers, sockets) = (managed_peers(3, &founded()), &mut TestSockets::default());
    assert_eq!(peers.meet(sockets, START, ConnId(1), &managed(1)), Greeted::Up);
    let epochs = |peers: &Peers| {
        let place = peers.place_of(node(1)).expect("a peer");
        let mut rest = peers.list[place].writer.finished();
        let mut epochs = Vec::new();
        while let Ok(Some((frame, after))) = split_frame(rest) {
            epochs.extend(FrameReader::new(frame).map(|reader| reader.header().epoch));
            rest = after;
        }
        epochs
    };
    let [_, mut to_one] = transmits();
    to_one.to = To::Node(node(1));
    peers.push(START, &to_one, 1, &mut Counters::default());
    peers.adopt(&after(&founded(), Change::Begin(members(&[(1, "one:1")]))));
    assert_eq!(epochs(&peers), [1], "what was open is of the epoch before");
    peers.push(START, &to_one, 1, &mut Counters::default());
    let place = peers.place_of(node(1)).expect("a peer");
    peers.list[place].writer.finish(1);
    assert_eq!(epochs(&peers), [1, 2]);
}

/// A node with a fixed list closes a connection on which it is asked about members.
#[test]
fn a_proposer_asks_members_with_a_fixed_list_nothing_about_it() {
    let (mut peers, sockets) = (peers_of(3), &mut TestSockets::default());
    peers.identity.list = ListUse::Follows;
    assert!(!peers.follows_fixed_list(), "it has reached no member");
    assert_eq!(peers.meet(sockets, START, ConnId(1), &identity(1, "ours")), Greeted::Up);
    assert!(peers.follows_fixed_list());
    let poll = paxoslease_core::MembershipMessage::Poll { epoch: 0, leads: false };
    peers.send_membership(node(1), &poll, 1);
    assert_eq!(peers.unsent(), 0);
}
