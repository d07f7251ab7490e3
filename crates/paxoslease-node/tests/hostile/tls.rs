//! The same through TLS: bytes that are none, and a peer whose certificate is as good as any.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use paxoslease_node::front::{Answer, ClientCertificates, ConnId, FrontEnd, Service, ShardHandle};
use paxoslease_node::{Node, Tls, block_on};
use paxoslease_tls::Authority;
use paxoslease_wire::Hello;
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};

use crate::cell;
use crate::support::{Drops, PROPOSER, Peer, connect, frame, start};

fn certify(authority: &Authority, node: u16) -> Tls {
    let name = Tls::node_name("test", node).expect("a label");
    let [cert, key, ca] = authority.files(&[&name], |_| {});
    Tls::new(cert, key, ca)
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
fn what_is_no_tls_is_hung_up_on_and_counted() {
    let authority = Authority::new();
    let cell = start(|config| {
        let tls = certify(&authority, config.node);
        config.tls(tls)
    });
    let refused = Drops::of("refused");
    // The first bytes of a handshake, of one that goes on with junk, and of none.
    let begun = [22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3].as_slice();
    let junk = [begun, &[0xaa; 2000]].concat();
    for bytes in
        [begun, &junk, &cell.hello(PROPOSER, 1), &[0xff; 100_000], b"GET / HTTP/1.1\r\n\r\n"]
    {
        let mut stranger = cell.stranger();
        stranger.say(bytes);
        stranger.end();
        stranger.is_hung_up_on();
    }
    refused.wait_for(5);
    cell.serves();
}

#[test]
fn a_certificate_does_not_make_nonsense_of_a_peer_count() {
    let authority = Authority::new();
    let cell = start(|config| {
        let tls = certify(&authority, config.node);
        config.tls(tls)
    });
    let (malformed, refused) = (Drops::of("malformed"), Drops::of("refused"));
    let mut peer = dial(&authority, PROPOSER, &cell.addresses[0]);
    peer.say(&cell.hello(PROPOSER, 1));
    assert!(Hello::decode(&peer.hear()).is_ok());
    peer.say(&frame(2, []));
    peer.is_hung_up_on();
    malformed.wait_for(1);
    // As a member, with the certificate of another node.
    let mut liar = dial(&authority, PROPOSER, &cell.addresses[0]);
    liar.say(&cell.hello(2, 2));
    liar.is_hung_up_on();
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
fn a_client_that_does_not_finish_its_handshake_is_cut_off_and_counted() {
    let authority = Authority::new();
    let refused = Drops::of("tls");
    let bind = || TcpListener::bind("127.0.0.1:0").expect("a port");
    let (peers, clients) = (bind(), bind());
    let [own, address] = [&peers, &clients].map(|it| it.local_addr().expect("bound").to_string());
    let config = cell::config(&[own], 1).shards(1).tls(certify(&authority, 1));
    let front = Box::new(|_| Box::new(Silent) as Box<dyn FrontEnd>);
    let client_tls = Some(ClientCertificates::Unasked);
    let service = Service { clients: Some(clients), client_tls, front, recorder: None };
    let _node = block_on(Node::start_with(config, Some(peers), service)).expect("starts");
    // One says nothing at all, the other half of a greeting.
    let (mut silent, mut slow) = (Peer(connect(&address)), Peer(connect(&address)));
    assert!(slow.say(&[22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3]));
    silent.is_hung_up_on();
    slow.is_hung_up_on();
    refused.wait_for(2);
}
