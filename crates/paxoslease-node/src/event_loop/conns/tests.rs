//! Many clients that use TLS at once: in their handshakes, and at the end of their connections.

use std::io::Write as _;
use std::net::{TcpListener, TcpStream as Socket};
use std::sync::Arc;

use mio::{Events, Poll};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};
use socket2::{Domain, Type};

use super::deadlines::{HANDSHAKE_MAX, LEAVING_MAX};
use super::*;
use crate::tls::tests::with_clients;

/// The connections of a thread that turns when it is told to.
struct Thread {
    poll: Poll,
    listener: TcpListener,
    conns: Conns,
    client: Arc<ClientConfig>,
}

impl Thread {
    fn new() -> Self {
        let poll = Poll::new().expect("a poll");
        let registry = poll.registry().try_clone().expect("a registry");
        let (tls, client) = with_clients();
        let conns = Conns::new(registry, tls, b"", Vec::new(), 0);
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        Self { poll, listener, conns, client: Arc::new(client) }
    }

    /// A client's end of a connection and ours, with little room between them.
    fn sockets(&self) -> (Socket, TcpStream) {
        const ROOM: usize = 4096;
        let client = socket2::Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        client.set_recv_buffer_size(ROOM).expect("a socket option");
        let address = self.listener.local_addr().expect("bound");
        client.connect(&address.into()).expect("connects");
        let (ours, _) = self.listener.accept().expect("there is one");
        ours.set_nonblocking(true).expect("a socket option");
        SockRef::from(&ours).set_send_buffer_size(ROOM).expect("a socket option");
        (client.into(), TcpStream::from_std(ours))
    }

    /// A client that has begun its handshake.
    fn begin(&mut self) -> (ConnId, Socket, ClientConnection) {
        self.begin_as(Conns::accepted_client)
    }

    fn begin_as(
        &mut self,
        accepted: fn(&mut Conns, TcpStream),
    ) -> (ConnId, Socket, ClientConnection) {
        let (mut socket, ours) = self.sockets();
        accepted(&mut self.conns, ours);
        let id = self.conns.fresh.pop().expect("accepted");
        let name = ServerName::try_from("node-1.test.paxoslease").expect("a name");
        let mut tls = ClientConnection::new(Arc::clone(&self.client), name).expect("valid");
        tls.write_tls(&mut socket).expect("there is room");
        (id, socket, tls)
    }

    /// Waits until all of these connections are readable.
    fn wait_for(&mut self, ids: &[ConnId]) {
        let mut events = Events::with_capacity(256);
        while !ids.iter().all(|id| self.conns.slab[id.0].readable) {
            self.poll.poll(&mut events, Some(Duration::from_secs(20))).expect("polled");
            assert!(!events.is_empty(), "no event within 20 s");
            events.iter().for_each(|event| self.conns.note(event.token(), event));
        }
    }

    /// Clients whose handshakes wait to be read.
    fn flood(&mut self, count: usize) -> (Vec<ConnId>, Vec<Socket>) {
        let (ids, sockets): (Vec<_>, _) =
            (0..count).map(|_| self.begin()).map(|(id, socket, _)| (id, socket)).unzip();
        self.wait_for(&ids);
        (ids, sockets)
    }

    /// How many of these connections have an answer to send.
    fn answered(&self, ids: &[ConnId]) -> usize {
        let streams = ids.iter().filter_map(|id| self.conns.slab[id.0].stream.as_ref());
        streams.filter(|stream| stream.wants_write()).count()
    }

    /// Waits for bytes of a client, reads them and answers.
    fn answer(&mut self, id: ConnId) {
        self.wait_for(&[id]);
        self.conns.read_ready();
        self.conns.slab[id.0].flush().expect("it is there");
    }

    /// A client that has been sent more than it reads.
    fn slow_reader(&mut self) -> (ConnId, Socket) {
        let (id, mut socket, mut tls) = self.begin();
        self.answer(id);
        tls.complete_io(&mut socket).expect("the rest of the handshake");
        self.answer(id);
        assert!(!self.conns.slab[id.0].is_handshaking());
        while self.conns.send(id, &[0; 50_000]) > 0 {}
        (id, socket)
    }
}

#[test]
fn a_flood_of_handshakes_delays_no_established_client() {
    const FLOOD: usize = 2 * HANDSHAKES_PER_TURN + 1;
    let mut thread = Thread::new();
    let (ids, _flood) = thread.flood(FLOOD);
    // The flood comes first, so that it is first in line.
    let (mut client, ours) = thread.sockets();
    thread.conns.add(Stream::Plain(ours), ConnKind::Client);
    let other = thread.conns.fresh.pop().expect("accepted");
    client.write_all(b"PING").expect("there is room");
    thread.wait_for(&[other]);
    for turn in 1..=3 {
        thread.conns.read_ready();
        assert_eq!(thread.answered(&ids), FLOOD.min(turn * HANDSHAKES_PER_TURN), "turn {turn}");
        assert_eq!(thread.conns.slab[other.0].input.unread(), b"PING", "turn {turn}");
    }
}

#[test]
fn a_flood_of_clients_delays_no_handshake_of_a_peer() {
    let mut thread = Thread::new();
    let (ids, _flood) = thread.flood(2 * HANDSHAKES_PER_TURN);
    let (peer, ..) = thread.begin_as(Conns::accepted);
    thread.wait_for(&[peer]);
    thread.conns.read_ready();
    assert_eq!(thread.answered(&[peer]), 1, "in the first turn");
    assert_eq!(thread.answered(&ids), HANDSHAKES_PER_TURN);
}

#[test]
fn clients_that_do_not_read_their_last_bytes_are_bounded() {
    let mut thread = Thread::new();
    let clients: Vec<_> = (0..=LEAVING_MAX).map(|_| thread.slow_reader()).collect();
    let conns = &mut thread.conns;
    for (left, (id, _)) in (1..).zip(&clients) {
        conns.close(*id);
        let lingering =
            conns.slab.iter().filter(|(_, conn)| conn.kind == ConnKind::Leaving).count();
        assert_eq!(lingering, LEAVING_MAX.min(left));
    }
    assert_eq!(conns.slab.len(), LEAVING_MAX, "one more was cut off");
    let until = conns.now.after(HANDSHAKE_MAX);
    assert_eq!(conns.next_at(), until);
    conns.look_at_deadlines();
    assert_eq!(conns.slab.len(), LEAVING_MAX, "they have time");
    conns.now = until;
    conns.look_at_deadlines();
    assert!(conns.slab.is_empty(), "and no more than that");
    let (id, _socket) = thread.slow_reader();
    thread.conns.close(id);
    assert_eq!(thread.conns.slab.len(), 1, "there is room again");
}
