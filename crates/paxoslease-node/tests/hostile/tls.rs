//! Hostile peers and clients of nodes that use TLS.

use std::io::{Read, Write};
use std::net::TcpStream;

use paxoslease_node::front::{Answer, ClientCertificates, ConnId, FrontEnd, Service, ShardHandle};
use paxoslease_node::{Node, Tls, block_on};
use paxoslease_tls::Authority;
use paxoslease_wire::Hello;
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};

use crate::cell::{self, Cell, listen, with_tls};
use crate::support::{Drops, PROPOSER, Peer, connect, frame, start_with};

/// Three nodes that use TLS.
fn start(authority: &Authority) -> Cell {
    start_with(|config| with_tls(authority, config))
}

/// A connection to the first node with a certificate of this authority.
fn dial(authority: &Authority, node: u16, address: &str) -> Peer<impl Read + Write + use<>> {
    let own = Tls::node_name("test", node).expect("a label");
    let config = authority.client(Some(authority.sign(&[&own], |_| {})));
    let name = ServerName::try_from("node-1.test.paxoslease").expect("a name");
    let connection = ClientConnection::new(config, name).expect("valid");
    Peer(StreamOwned::<_, TcpStream>::new(connection, connect(address)))
}

#[test]
fn connections_that_do_not_use_tls_are_closed_and_counted() {
    let authority = Authority::new();
    let cell = start(&authority);
    let refused = Drops::of("refused");
    // The first bytes of a handshake, then the same followed by junk, then bytes that are not TLS.
    let begun = [22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3].as_slice();
    let junk = [begun, &[0xaa; 2000]].concat();
    for bytes in
        [begun, &junk, &cell.hello(PROPOSER, 1), &[0xff; 100_000], b"GET / HTTP/1.1\r\n\r\n"]
    {
        let mut stranger = cell.stranger();
        stranger.send(bytes);
        stranger.end();
        stranger.is_closed();
    }
    refused.wait_for(5);
    cell.serves();
}

#[test]
fn nonsense_of_a_peer_with_a_certificate_is_refused_as_well() {
    let authority = Authority::new();
    let cell = start(&authority);
    let (malformed, refused) = (Drops::of("malformed"), Drops::of("refused"));
    let mut peer = dial(&authority, PROPOSER, &cell.addresses[0]);
    peer.send(&cell.hello(PROPOSER, 1));
    assert!(Hello::decode(&peer.receive()).is_ok());
    peer.is_refused(&frame(2, []));
    malformed.wait_for(1);
    // As a member, with the certificate of another node.
    dial(&authority, PROPOSER, &cell.addresses[0]).is_refused(&cell.hello(2, 2));
    refused.wait_for(1);
    cell.serves();
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
