//! Hostile peers: nodes that do not belong to the cell, and nodes of the cell that send nonsense.
//! Their messages are refused and counted, their memory is bounded, and the cell goes on.

mod cell;

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use cell::{
    Cell, Data, PATIENCE, change_members, listen, metrics, node_id, status, take, until, with_tls,
};
use paxoslease_core::{
    Ballot, Birth, Change, Configuration, Holder, Member, Members, MembershipMessage, Message,
    Name, Request, Ttl,
};
use paxoslease_holder::{MembersChange, Membership};
use paxoslease_node::front::{Answer, ClientCertificates, ConnId, FrontEnd, Service, ShardHandle};
use paxoslease_node::{Config, Node, Role, Tls, block_on};
use paxoslease_tls::Authority;
use paxoslease_wire::{
    FrameKind, FrameWriter, Heartbeat, Hello, ListUse, decode_membership, encode_membership,
};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};

/// A counter above that of nodes without a disk, and below the bound of A1: the year 2074 by R5.
const HIGH: u64 = 3 << 50;

/// A node that belongs to the cell, and only proposes.
const PROPOSER: u16 = 9;

/// How often all nodes of this process have dropped something for a reason. Other tests may add to
/// it, so a test can only wait for a number of further drops.
fn counted(reason: &str) -> f64 {
    static TOTALS: Mutex<BTreeMap<String, f64>> = Mutex::new(BTreeMap::new());
    let mut totals = TOTALS.lock().unwrap_or_else(PoisonError::into_inner);
    for (key, count) in metrics() {
        if let Some((_, reason)) = key.trim_end_matches('}').split_once("{reason=") {
            *totals.entry(reason.to_owned()).or_default() += count;
        }
    }
    totals.get(reason).copied().unwrap_or_default()
}

/// Three nodes of one shard each, whose drops are counted.
fn start(with: impl Fn(Config) -> Config) -> Cell {
    metrics();
    cell::start(3, |config| with(config.shards(1)))
}

/// The drops for a reason from now on.
struct Drops(&'static str, f64);

impl Drops {
    fn of(reason: &'static str) -> Self {
        Self(reason, counted(reason))
    }

    fn wait_for(&self, more: u32) {
        let Self(reason, before) = *self;
        until(&format!("{more} drops: {reason}"), || counted(reason) >= before + f64::from(more));
    }
}

impl Cell {
    /// Checks that an honest client gets a lease at every node.
    fn serves(&self) {
        for node in &self.nodes {
            take(node, "served").release_blocking().expect("released");
        }
    }

    /// A valid greeting of a node.
    fn hello(&self, node: u16, boot: u64) -> Vec<u8> {
        cell::hello(&cell::config(&self.addresses, node).role(role_of(node)), boot, 1)
    }

    /// A proposer that the first node has greeted.
    fn greeted(&self, boot: u64) -> Peer<TcpStream> {
        let mut peer = self.stranger();
        peer.send(&self.hello(PROPOSER, boot));
        let greeting = peer.receive();
        assert!(Hello::decode(&greeting).is_ok(), "{greeting:?}");
        peer
    }

    /// A connection to the first node, without a greeting.
    fn stranger(&self) -> Peer<TcpStream> {
        Peer(connect(&self.addresses[0]))
    }
}

fn role_of(node: u16) -> Role {
    if node == PROPOSER { Role::Proposer } else { Role::Member }
}

fn connect(address: &str) -> TcpStream {
    let socket = TcpStream::connect(address).expect("connects");
    socket.set_nodelay(true).expect("an option of every socket");
    socket.set_read_timeout(Some(PATIENCE)).expect("not zero");
    socket.set_write_timeout(Some(PATIENCE)).expect("not zero");
    socket
}

/// One frame of messages.
fn frame<'a>(from: u16, messages: impl IntoIterator<Item = Message<'a>>) -> Vec<u8> {
    let mut writer = FrameWriter::new(node_id(from));
    for message in messages {
        assert!(writer.push(&message), "there is room for it");
    }
    writer.finish(1).to_vec()
}

/// The other end of a connection to a node.
struct Peer<S>(S);

impl<S: Read + Write> Peer<S> {
    /// Returns whether all bytes were sent: the node may close the connection earlier.
    fn send(&mut self, bytes: &[u8]) -> bool {
        self.0.write_all(bytes).and_then(|()| self.0.flush()).is_ok()
    }

    /// Reads one whole frame.
    fn receive(&mut self) -> Vec<u8> {
        let mut frame = vec![0; 4];
        self.0.read_exact(&mut frame).expect("a frame comes");
        let len = u32::from_le_bytes([frame[0], frame[1], frame[2], frame[3]]);
        frame.resize(4 + len as usize, 0);
        self.0.read_exact(&mut frame[4..]).expect("all of it");
        frame
    }

    /// Sends bytes, and waits until the node closes the connection.
    fn is_refused(&mut self, bytes: &[u8]) {
        self.send(bytes);
        self.is_closed();
    }

    /// Reads until the node closes the connection.
    fn is_closed(&mut self) {
        use io::ErrorKind::{ConnectionReset, UnexpectedEof};
        let mut bytes = [0; 4096];
        loop {
            match self.0.read(&mut bytes) {
                Ok(0) => return,
                Ok(_) => {}
                Err(error) if matches!(error.kind(), ConnectionReset | UnexpectedEof) => return,
                Err(error) => panic!("the node does not close the connection: {error}"),
            }
        }
    }
}

fn ballot(counter: u64, node: u16) -> Ballot {
    Ballot::new(counter, node_id(node))
}

fn propose(ballot: Ballot) -> Message<'static> {
    let (name, holder) = (Name::new("x").expect("in bounds"), Holder::NONE);
    Message::Request(Request::Propose { name, ballot, ttl: Ttl::MIN, holder })
}

#[test]
fn invalid_bytes_end_the_connection_and_are_counted() {
    let cell = start(|config| config);
    let lease = take(&cell.nodes[0], "held");
    // A frame of a length that is allowed among peers, and a good part of it.
    let mut long = vec![0, 0, 3, 0, b'P', b'L', 1, 2];
    long.resize(100_000, b'x');
    let greeting_and_junk = [cell.hello(PROPOSER, 1), b"not a frame".to_vec()].concat();
    let mut garbled = frame(PROPOSER, [propose(ballot(1, PROPOSER))]);
    let last = garbled.len() - 1;
    garbled[last - 1] ^= 0xff;
    garbled.truncate(last);
    let len = (garbled.len() - 4) as u32;
    garbled[..4].copy_from_slice(&len.to_le_bytes());
    for (boot, (is_greeted, what, bytes, reason)) in (1..).zip([
        (false, "nothing", &b""[..], "refused"),
        (false, "a part of a length", b"\x40", "refused"),
        (false, "a length that is too long", b"\xff\xff\xff\xff", "malformed"),
        (false, "more than a greeting", &long, "malformed"),
        (false, "HTTP", b"GET / HTTP/1.1\r\n\r\n", "malformed"),
        (false, "RESP", b"*1\r\n$4\r\nPING\r\n", "malformed"),
        (false, "ones", &[0xff; 64], "malformed"),
        (false, "zeros", &[0; 64], "malformed"),
        (false, "many zeros", &[0; 65536], "malformed"),
        (false, "a frame of no kind", b"\x08\x00\x00\x00PL\x01\x63abcd", "refused"),
        (false, "a frame that is not a greeting", &frame(2, []), "refused"),
        (false, "a greeting, then junk", &greeting_and_junk, "malformed"),
        (true, "garbled", &garbled, "malformed"),
        (true, "a second greeting", &cell.hello(PROPOSER, 99), "malformed"),
        (true, "as another", &frame(2, [propose(ballot(1, 2))]), "malformed"),
        (true, "too long", &u32::MAX.to_le_bytes(), "malformed"),
        (true, "too short", &[1, 0, 0, 0, 0], "malformed"),
        (true, "of no kind", b"\x04\x00\x00\x00PL\x01\x63", "malformed"),
        (true, "of no magic", b"\x04\x00\x00\x00XX\x01\x01", "malformed"),
    ]) {
        println!("{what}");
        let drops = Drops::of(reason);
        let mut peer = if is_greeted { cell.greeted(boot) } else { cell.stranger() };
        peer.is_refused(bytes);
        drops.wait_for(1);
    }
    cell.serves();
    assert!(lease.is_held());
    let is_connected =
        |node| status(node).peers.iter().all(|peer| peer.up || peer.node == PROPOSER);
    assert!(cell.nodes.iter().all(is_connected), "all members are connected to each other");
}

/// A heartbeat, the header of a frame, and a message, each with this counter.
fn carriers(counter: u64) -> [Vec<u8>; 3] {
    let mut ping = Vec::new();
    Heartbeat::Ping { number: 1, quarantine_ms: 0, counter, epoch: 0 }.encode(&mut ping);
    let mut header = FrameWriter::new(node_id(PROPOSER));
    assert!(header.push(&propose(ballot(1, PROPOSER))));
    let message = frame(PROPOSER, [propose(ballot(counter, PROPOSER))]);
    [ping, header.finish(counter).to_vec(), message]
}

#[test]
fn no_number_of_messages_uses_up_the_ballots() {
    let cell = start(|config| config);
    let exhausting = Drops::of("ballot_exhausting");
    let mut boots = 1..;
    let mut refused = 0;
    // Half of the counters, most of them, all of them: no higher counter would be left to use.
    for counter in [1 << 52, 3 << 51, Ballot::COUNTER_LIMIT, Ballot::COUNTER_MAX] {
        for bytes in carriers(counter) {
            cell.greeted(boots.next().expect("endless")).is_refused(&bytes);
            refused += 1;
        }
    }
    exhausting.wait_for(refused);
    // A counter within the bound is learnt, and leaves room for more than a century.
    for bytes in carriers(HIGH).into_iter().cycle().take(30) {
        cell.greeted(boots.next().expect("endless")).send(&bytes);
    }
    cell.serves();
    for node in &cell.nodes {
        let status = status(node);
        assert!(status.ready, "{status:?}");
        assert_eq!(status.ballot_problem, None);
        assert!(status.ballots_remaining_ratio > 0.5, "{status:?}");
    }
}

#[test]
fn answers_to_a_peer_that_does_not_read_are_dropped() {
    let cell = start(|config| config);
    let full = Drops::of("queue_full");
    let mut peer = cell.greeted(1);
    // Each is answered with the holder, as long as holders may be.
    let asks = |query| {
        Message::Request(Request::Inspect { name: Name::new("x").expect("in bounds"), query })
    };
    let holder = "h".repeat(256);
    let lease = cell.nodes[1].acquire("x", Duration::from_secs(60)).holder(&holder).blocking();
    let _lease = lease.expect("granted");
    let question = frame(PROPOSER, (0..1000).map(asks));
    for _ in 0..2000 {
        // The peer does not read, so the node stops reading from it or closes the connection.
        if !peer.send(&question) {
            break;
        }
    }
    full.wait_for(1);
    cell.serves();
}

/// A connection to the first node with the certificate of this node.
fn dial(authority: &Authority, node: u16, address: &str) -> Peer<impl Read + Write + use<>> {
    dial_at(authority, node, 1, address)
}

/// A connection to any node with the certificate of this node.
fn dial_at(
    authority: &Authority,
    node: u16,
    to: u16,
    address: &str,
) -> Peer<impl Read + Write + use<>> {
    let own = Tls::node_name("test", node, role_of(node)).expect("a label");
    let config = authority.client(Some(authority.sign(&[&own], |_| {})));
    let name = ServerName::try_from(format!("node-{to}.test.paxoslease")).expect("a name");
    let connection = ClientConnection::new(config, name).expect("valid");
    Peer(StreamOwned::<_, TcpStream>::new(connection, connect(address)))
}

#[test]
fn connections_that_do_not_use_tls_are_closed_and_counted() {
    let authority = Authority::new();
    let cell = start(|config| with_tls(&authority, config));
    let refused = Drops::of("refused");
    // The first bytes of a handshake, then the same followed by junk, then bytes that are not TLS.
    let begun = [22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3].as_slice();
    let junk = [begun, &[0xaa; 2000]].concat();
    for bytes in
        [begun, &junk, &cell.hello(PROPOSER, 1), &[0xff; 100_000], b"GET / HTTP/1.1\r\n\r\n"]
    {
        let mut stranger = cell.stranger();
        stranger.send(bytes);
        // The node may have closed the connection already.
        let _closed = stranger.0.shutdown(Shutdown::Write);
        stranger.is_closed();
    }
    refused.wait_for(5);
    cell.serves();
}

#[test]
fn nonsense_of_a_peer_with_a_certificate_is_refused_as_well() {
    let authority = Authority::new();
    let cell = start(|config| with_tls(&authority, config));
    let (malformed, refused) = (Drops::of("malformed"), Drops::of("refused"));
    let mut peer = dial(&authority, PROPOSER, &cell.addresses[0]);
    peer.send(&cell.hello(PROPOSER, 1));
    assert!(Hello::decode(&peer.receive()).is_ok());
    peer.is_refused(&frame(2, []));
    malformed.wait_for(1);
    // As a member, with the certificate of another node.
    dial(&authority, PROPOSER, &cell.addresses[0]).is_refused(&cell.hello(2, 2));
    refused.wait_for(1);
    // A proposer as a member, with its own certificate.
    let as_member = cell::hello(&cell::config(&cell.addresses, PROPOSER), 3, 1);
    dial(&authority, PROPOSER, &cell.addresses[0]).is_refused(&as_member);
    refused.wait_for(2);
    cell.serves();
}

#[test]
fn a_proposer_with_the_id_of_a_member_is_refused() {
    let cell = start(|config| config);
    let refused = Drops::of("refused");
    let config = cell::config(&cell.addresses, 2).role(Role::Proposer);
    // As late as may be, so that it would replace the connection of the member.
    cell.stranger().is_refused(&cell::hello(&config, HIGH, 1));
    refused.wait_for(1);
    cell.serves();
}

/// Three members with data folders and certificates, of which the third was removed and stopped.
struct Founded {
    cell: Cell,
    authority: Authority,
    data: Data,
}

impl Founded {
    fn start() -> Self {
        metrics();
        let authority = Authority::new();
        let data = Data::new("hostile");
        let (listeners, addresses): (Vec<_>, Vec<_>) = (1..=3).map(|_| listen()).unzip();
        let list: Vec<(u16, &str)> = (1..).zip(addresses.iter().map(String::as_str)).collect();
        let found = |(listener, id)| {
            let config = data.config(id, &list).shards(1).new_cell(true);
            block_on(Node::start_on(with_tls(&authority, config), listener)).expect("starts")
        };
        let nodes: Vec<Node> = listeners.into_iter().zip(1..).map(found).collect();
        nodes.iter().for_each(|node| block_on(node.ready()).expect("the cell is founded"));
        let remove = MembersChange::Edit { remove: vec![3], add: vec![] };
        change_members(&nodes[0], remove, false).expect("a majority is up");
        for node in &nodes {
            until("node 3 is removed", || status(node).epoch == 3);
        }
        nodes[2].shutdown_blocking();
        let mut founded = Self { cell: Cell { nodes, addresses }, authority, data };
        founded.cell.nodes.truncate(2);
        founded
    }

    fn config(&self, node: u16) -> Config {
        let list: Vec<(u16, &str)> =
            (1..).zip(self.cell.addresses.iter().map(String::as_str)).collect();
        self.data.config(node, &list).shards(1).role(role_of(node))
    }

    /// A connection to a member by a node that greets with this birth and boot. Returns the
    /// member's boot.
    fn greeted(
        &self,
        (node, birth): (u16, Birth),
        to: u16,
        boot: u64,
    ) -> (Peer<impl Read + Write + use<>>, u64) {
        let address = &self.cell.addresses[usize::from(to) - 1];
        let mut peer = dial_at(&self.authority, node, to, address);
        let is_proposer = role_of(node) == Role::Proposer;
        peer.send(&cell::hello_with(&self.config(node), 1, |hello| {
            hello.boot = boot;
            hello.birth = birth;
            hello.epoch = 3;
            hello.list = if is_proposer { ListUse::Follows } else { ListUse::Contact };
        }));
        let greeting = peer.receive();
        let boot = Hello::decode(&greeting).expect("it is greeted").boot;
        (peer, boot)
    }

    /// What any proposer may ask: the configuration with all births, and the boot of node 2.
    fn known(&self) -> (Configuration, u64) {
        let (mut peer, boot) = self.greeted((PROPOSER, Birth::UNKNOWN), 2, 1);
        peer.send(&membership(&MembershipMessage::Learn { epoch: 1 }));
        loop {
            let frame = peer.receive();
            if matches!(FrameKind::of(&frame), Ok(FrameKind::Membership))
                && let Ok(MembershipMessage::Config(known)) = decode_membership(&frame)
            {
                return (known, boot);
            }
        }
    }
}

fn membership(message: &MembershipMessage) -> Vec<u8> {
    let mut frame = Vec::new();
    encode_membership(message, &mut frame);
    frame
}

/// C11: one frame would give the cell away for good.
#[test]
fn false_members_are_not_believed() {
    let mut founded = Founded::start();
    let (known, boot) = founded.known();
    assert_eq!(known.epoch(), 3);
    let birth = |node| known.past().iter().find(|past| past.0 == node_id(node)).expect("known").1;
    // Members that only the sender is one of.
    let alone = |node: u16, birth| {
        let member = Member { node: node_id(node), birth, peer: "127.0.0.1:1".into() };
        let change = Change::Begin(Members::new(vec![member]).expect("one"));
        known.after(&change, known.floor()).expect("legal")
    };
    let later = |epoch| {
        let sets = (known.old().clone(), None);
        Configuration::new(epoch, sets, known.era(), known.floor(), known.past().to_vec())
    };
    let stolen = |epoch| {
        let two = Members::new(vec![known.old()[1].clone()]).expect("one");
        Configuration::new(epoch, (two, None), known.era(), known.floor(), known.past().to_vec())
    };
    let refused = Drops::of("config_refused");
    let proposer = (PROPOSER, Birth(9));
    for ((node, birth), boot, forged) in [
        (proposer, 2, alone(PROPOSER, Birth(9))),
        (proposer, 3, alone(PROPOSER, Birth(9)).after(&Change::End, known.floor()).expect("legal")),
        ((3, birth(3)), boot + (1 << 30), alone(3, birth(3))),
        ((2, birth(2)), boot, later(u32::MAX).expect("consistent")),
        ((2, birth(2)), boot, later(5000).expect("consistent")),
        ((2, birth(2)), boot, stolen(4).expect("consistent")),
        ((2, birth(2)), boot, stolen(9).expect("consistent")),
    ] {
        println!("node {node} tells {forged:?}");
        let before = counted("config_refused");
        let (mut peer, _) = founded.greeted((node, birth), 1, boot);
        assert!(peer.send(&membership(&MembershipMessage::Config(forged))));
        until("the members are refused", || counted("config_refused") > before);
    }
    refused.wait_for(7);
    // The greeting of a member's id with another birth is refused.
    let drops = Drops::of("refused");
    let (mut reborn, _) = founded.greeted((2, Birth(7)), 1, boot);
    reborn.is_closed();
    drops.wait_for(1);
    for node in &founded.cell.nodes {
        let status = status(node);
        assert_eq!((status.epoch, status.members), (3, vec![1, 2]));
        assert_eq!(status.membership, Membership::Member);
    }
    // Nothing of it is on disk.
    founded.cell.nodes.remove(0).shutdown_blocking();
    let config = founded.config(1).peer(PROPOSER, "127.0.0.1:1");
    let config = with_tls(&founded.authority, config);
    founded.cell.nodes.push(Node::start_blocking(config).expect("starts"));
    founded.cell.nodes.iter().for_each(|node| block_on(node.ready()).expect("a majority"));
    // The list of a node vouches for members that it does not know yet, not for proposers.
    let (mut peer, _) = founded.greeted(proposer, 1, 4);
    assert!(peer.send(&membership(&MembershipMessage::Config(alone(PROPOSER, Birth(9))))));
    refused.wait_for(8);
    assert_eq!(status(&founded.cell.nodes[1]).epoch, 3);
    founded.cell.serves();
}

/// Reads what clients send, and answers nothing.
struct Silent;

impl FrontEnd for Silent {
    fn received(&mut self, _: &mut ShardHandle<'_>, _: ConnId, bytes: &[u8]) -> usize {
        bytes.len()
    }

    fn answered(&mut self, _: &mut ShardHandle<'_>, _: u64, _: Answer) {}
}

#[test]
fn a_client_that_does_not_finish_its_handshake_is_disconnected() {
    metrics();
    let authority = Authority::new();
    let refused = Drops::of("tls");
    let ((peers, own), (clients, address)) = (listen(), listen());
    let config = with_tls(&authority, cell::config(&[own], 1).shards(1));
    let front = Box::new(|_| Box::new(Silent) as Box<dyn FrontEnd>);
    let client_tls = Some(ClientCertificates::Unasked);
    let service = Service { clients: Some(clients), client_tls, front, recorder: None };
    let _node = block_on(Node::start_with(config, Some(peers), service)).expect("starts");
    // One client sends nothing at all, the other half of a greeting.
    let (mut silent, mut slow) = (Peer(connect(&address)), Peer(connect(&address)));
    assert!(slow.send(&[22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3]));
    silent.is_closed();
    slow.is_closed();
    refused.wait_for(2);
}
