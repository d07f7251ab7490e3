//! Many clients in TLS at once: at the beginning of their connections, and at the end.

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

    /// A client that has sent the first of its handshake.
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

    /// Waits until all of these have something to be read.
    fn wait_for(&mut self, ids: &[ConnId]) {
        let mut events = Events::with_capacity(256);
        while !ids.iter().all(|id| self.conns.slab[id.0].readable) {
            self.poll.poll(&mut events, Some(Duration::from_secs(20))).expect("polled");
            assert!(!events.is_empty(), "nothing comes any more");
            events.iter().for_each(|event| self.conns.note(event.token(), event));
        }
    }

    /// Reads from a client that something is to come of, and answers.
    fn answer(&mut self, id: ConnId) {
        self.wait_for(&[id]);
        self.conns.read_ready();
        self.conns.slab[id.0].flush().expect("it is there");
    }

    /// A client that has been told more than it reads.
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
fn a_flood_of_handshakes_is_worked_off_a_few_in_a_turn_and_holds_up_nobody_else() {
    const FLOOD: usize = 2 * HANDSHAKES_PER_TURN + 1;
    let mut thread = Thread::new();
    let flood: Vec<_> = (0..FLOOD).map(|_| thread.begin()).collect();
    let ids: Vec<ConnId> = flood.iter().map(|(id, ..)| *id).collect();
    // Before somebody who is through with that comes, so that they are first in line.
    thread.wait_for(&ids);
    let (mut client, ours) = thread.sockets();
    thread.conns.add(Stream::Plain(ours), ConnKind::Client);
    let other = thread.conns.fresh.pop().expect("accepted");
    client.write_all(b"PING").expect("there is room");
    thread.wait_for(&[other]);
    // Whoever was worked off has an answer to be sent.
    let answered = |conns: &Conns| {
        let has_answer =
            |id: &&ConnId| conns.slab[id.0].stream.as_ref().is_some_and(Stream::wants_write);
        ids.iter().filter(has_answer).count()
    };
    for turn in 1..=3 {
        thread.conns.read_ready();
        assert_eq!(answered(&thread.conns), FLOOD.min(turn * HANDSHAKES_PER_TURN), "turn {turn}");
        assert_eq!(thread.conns.slab[other.0].input.unread(), b"PING", "turn {turn}");
    }
}

#[test]
fn a_flood_of_clients_in_their_handshake_does_not_hold_up_that_of_a_peer() {
    let mut thread = Thread::new();
    let flood: Vec<_> = (0..2 * HANDSHAKES_PER_TURN).map(|_| thread.begin()).collect();
    let ids: Vec<ConnId> = flood.iter().map(|(id, ..)| *id).collect();
    thread.wait_for(&ids);
    let (peer, ..) = thread.begin_as(Conns::accepted);
    thread.wait_for(&[peer]);
    thread.conns.read_ready();
    let is_answered =
        |id: &ConnId| thread.conns.slab[id.0].stream.as_ref().is_some_and(Stream::wants_write);
    assert!(is_answered(&peer), "in the first turn");
    assert_eq!(ids.iter().filter(|id| is_answered(id)).count(), HANDSHAKES_PER_TURN);
}

#[test]
fn clients_that_do_not_read_the_last_they_are_told_linger_up_to_a_number_and_for_a_while() {
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
