//! Real sockets on loopback, driven by edge-triggered events as in the node: an end moves only
//! after an event of its own socket, so a lost event ends in a test where nothing moves.

mod certificates;

use std::cell::Cell;
use std::io::{self, ErrorKind};
use std::net::{Shutdown, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use paxoslease_core::NodeId;
use paxoslease_holder::Role;
use paxoslease_tls::Authority;
use rustls::ClientConfig;

use super::stream::CIPHERTEXT_MAX;
use super::{ClientCertificates, CurrentTls, NodeNames, Stream, dns_name};
use crate::config::Tls;

const CELL: &str = "test";

fn node(id: u16) -> NodeId {
    NodeId::new(id).expect("a node id")
}

fn issue(ca: &Authority, id: u16) -> (String, String) {
    ca.sign(&[&dns_name(CELL, id, Role::Member)], |_| {})
}

fn load(files: &Tls, id: u16) -> CurrentTls {
    CurrentTls::load(Some(files), CELL, (node(id), Role::Member)).expect("good files")
}

/// Node `id` with a certificate of one authority, which trusts the authorities in `trusted`.
fn context_trusting(ca: &Authority, id: u16, trusted: &[&Authority]) -> CurrentTls {
    let (cert, key) = issue(ca, id);
    let cas: String = trusted.iter().map(|ca| ca.issuer.pem()).collect();
    let [cert, key, trusted] =
        [("cert", cert), ("key", key), ("ca", cas)].map(|(name, text)| ca.file(name, &text));
    load(&Tls::new(cert, key, trusted), id)
}

fn context(ca: &Authority, id: u16) -> CurrentTls {
    context_trusting(ca, id, &[ca])
}

/// A node that accepts its clients by TLS, and a client that trusts it.
pub(crate) fn with_clients() -> (CurrentTls, ClientConfig) {
    let ca = Authority::new();
    let [cert, key, root] = ca.files(&[&dns_name(CELL, 1, Role::Member)], |_| {});
    let tls = load(&Tls::new(cert, key, root), 1);
    let tls = tls.with_clients(Some(ClientCertificates::Unasked));
    (tls, Arc::unwrap_or_clone(ca.client(None)))
}

fn sockets() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let dialer = std::net::TcpStream::connect(address).expect("a connection");
    let (acceptor, _) = listener.accept().expect("a connection");
    let non_blocking = |tcp: std::net::TcpStream| {
        tcp.set_nonblocking(true).expect("a socket option");
        TcpStream::from_std(tcp)
    };
    (non_blocking(dialer), non_blocking(acceptor))
}

/// One end of a connection: the bytes to send, the bytes that it received, and how it ended.
struct End {
    stream: Stream,
    says: Vec<u8>,
    said: usize,
    heard: Vec<u8>,
    /// Stops to read when a read left room in the buffer.
    stops_at_room: bool,
    spare: Vec<u8>,
    ended: Option<io::Result<()>>,
}

impl End {
    fn new(stream: Stream, says: &[u8]) -> Self {
        let says = says.to_vec();
        let (heard, spare) = (Vec::new(), Vec::new());
        Self { stream, says, said: 0, heard, stops_at_room: false, spare, ended: None }
    }

    /// One turn of a loop: reads all there is, writes all that fits, flushes.
    fn turn(&mut self) -> io::Result<()> {
        let mut buf = [0; 10_000];
        loop {
            match self.stream.read(&mut buf, &mut self.spare) {
                Ok(0) => {
                    self.ended = Some(Ok(()));
                    return Ok(());
                }
                Ok(count) => {
                    self.heard.extend(&buf[..count]);
                    if self.stops_at_room && count < buf.len() {
                        break;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        while self.said < self.says.len() {
            match self.stream.write(&self.says[self.said..]) {
                Ok(count) => self.said += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        let pushed = self.stream.flush()?;
        assert_eq!(pushed, !self.stream.wants_write());
        Ok(())
    }

    fn error(&self) -> String {
        match &self.ended {
            Some(Err(error)) => error.to_string(),
            other => panic!("expected an error, ended with {other:?}"),
        }
    }
}

/// Turns an end after each event of its socket, until `done`.
fn run(ends: &mut [End], done: impl Fn(&[End]) -> bool) {
    let mut poll = Poll::new().expect("a poll");
    let mut events = Events::with_capacity(8);
    for (index, end) in ends.iter_mut().enumerate() {
        let interest = Interest::READABLE | Interest::WRITABLE;
        poll.registry().register(end.stream.tcp_mut(), Token(index), interest).expect("registered");
    }
    while !done(ends) {
        poll.poll(&mut events, Some(Duration::from_secs(20))).expect("polled");
        assert!(!events.is_empty(), "no event within 20 s");
        for event in &events {
            let end = &mut ends[event.token().0];
            if end.ended.is_none()
                && let Err(error) = end.turn()
            {
                end.ended = Some(Err(error));
            }
        }
    }
    for end in ends {
        poll.registry().deregister(end.stream.tcp_mut()).expect("deregistered");
    }
}

fn all_heard(ends: &[End]) -> bool {
    ends[0].heard.len() >= ends[1].says.len() && ends[1].heard.len() >= ends[0].says.len()
}

fn all_ended(ends: &[End]) -> bool {
    ends.iter().all(|end| end.ended.is_some())
}

/// A node calls `target`, and the node with the context `acceptor` answers.
fn ends(dialer: &CurrentTls, target: u16, acceptor: &CurrentTls) -> [End; 2] {
    let (a, b) = sockets();
    let dialer = dialer.dial(a, node(target)).expect("a client");
    let acceptor = acceptor.accept(b).expect("a server");
    [End::new(dialer, b"from the dialer"), End::new(acceptor, b"from the acceptor")]
}

/// Bytes without a period that could be the length of a record, a buffer or a page.
fn noise(len: usize, seed: u32) -> Vec<u8> {
    let state = Cell::new(seed);
    let next = || {
        state.set(state.get().wrapping_mul(1_664_525).wrapping_add(1_013_904_223));
        state.get().to_be_bytes()[0]
    };
    (0..len).map(|_| next()).collect()
}

#[test]
fn megabytes_pass_in_both_directions_unchanged() {
    let ca = Authority::new();
    let mut ends = ends(&context(&ca, 1), 2, &context(&ca, 2));
    ends[0].says = noise(5_000_000, 1);
    ends[1].says = noise(3_000_000, 2);
    assert!(
        ends.iter()
            .all(|end| end.stream.is_handshaking() && !end.stream.peer_is(node(2), Role::Member))
    );
    run(&mut ends, all_heard);
    assert!(ends[0].heard == ends[1].says && ends[1].heard == ends[0].says);
    assert!(ends.iter().all(|end| !end.stream.is_handshaking() && end.ended.is_none()));
}

#[test]
fn each_side_knows_the_node_at_the_other_end() {
    let ca = Authority::new();
    let mut ends = ends(&context(&ca, 1), 2, &context(&ca, 2));
    run(&mut ends, all_heard);
    let [dialer, acceptor] = &ends;
    assert!(
        dialer.stream.peer_is(node(2), Role::Member)
            && acceptor.stream.peer_is(node(1), Role::Member)
    );
    assert!(
        !dialer.stream.peer_is(node(1), Role::Member)
            && !acceptor.stream.peer_is(node(2), Role::Member)
    );
    assert!(!acceptor.stream.peer_is(node(11), Role::Member), "a longer number is another name");
}

#[test]
fn a_read_that_leaves_room_has_drained_the_socket() {
    let ca = Authority::new();
    let mut ends = ends(&context(&ca, 1), 2, &context(&ca, 2));
    for end in &mut ends {
        end.says = noise(3_000_000, 4);
        end.stops_at_room = true;
    }
    run(&mut ends, all_heard);
    assert!(ends.iter().all(|end| end.heard == end.says));
}

#[test]
fn each_end_says_why_a_certificate_is_refused() {
    const UNKNOWN: &str = "the peer's certificate is not signed by the CA in this node's [tls] ca";
    const REFUSED: &str =
        "the peer refused the connection: its [tls] ca has not signed this node's certificate";
    let (ours, other, same_name) =
        (Authority::new(), Authority::named("another"), Authority::new());
    let (dialer, acceptor) = (context(&ours, 1), context(&ours, 2));
    let both = context_trusting(&other, 1, &[&ours, &other]);
    let wanted = dns_name(CELL, 3, Role::Member);
    for (mut ends, dialer_says, acceptor_says) in [
        (ends(&dialer, 2, &context(&other, 2)), [UNKNOWN, ""], [REFUSED, "UnknownCA"]),
        (ends(&dialer, 2, &context(&same_name, 2)), [UNKNOWN, ""], [REFUSED, "DecryptError"]),
        (ends(&both, 2, &acceptor), [REFUSED, ""], [UNKNOWN, ""]),
        (
            ends(&dialer, 3, &acceptor),
            [&wanted, &dns_name(CELL, 2, Role::Member)],
            ["the peer expected the certificate of another node", ""],
        ),
        (
            ends_by(&ours, ours.client(None)),
            ["this node sent no certificate", ""],
            ["the peer sent no certificate", ""],
        ),
    ] {
        run(&mut ends, all_ended);
        for (end, words) in ends.iter().zip([dialer_says, acceptor_says]) {
            let text = end.error();
            assert!(words.iter().all(|word| text.contains(word)), "no {words:?} in {text}");
        }
        assert!(ends[1].heard.is_empty(), "no byte of a stranger gets through");
        assert!(
            !ends[0].stream.peer_is(node(3), Role::Member)
                && !ends[1].stream.peer_is(node(1), Role::Member)
        );
    }
}

/// A connection to node 2 by a caller with another set-up than a node.
fn ends_by(ca: &Authority, caller: Arc<ClientConfig>) -> [End; 2] {
    let mut ends = ends(&context(ca, 1), 2, &context(ca, 2));
    let Stream::Tls(tls) = &mut ends[0].stream else { panic!("a TLS stream") };
    let name = NodeNames::new(CELL).expect("a label").of(node(2), Role::Member);
    tls.conn = rustls::ClientConnection::new(caller, name).expect("a client").into();
    ends
}

#[test]
fn a_certificate_of_another_cell_or_role_proves_nothing() {
    let ca = Authority::new();
    for (name, is_peer) in [
        (&*dns_name(CELL, 1, Role::Member), true),
        ("node-1.other.paxoslease", false),
        ("node-1.paxoslease", false),
        ("*.paxoslease", false),
        ("*.test.paxoslease", false),
        ("proposer-1.test.paxoslease", false),
    ] {
        let mut ends = ends_by(&ca, ca.client(Some(ca.sign(&[name], |_| {}))));
        run(&mut ends, all_heard);
        assert_eq!(ends[1].stream.peer_is(node(1), Role::Member), is_peer, "{name}");
        let proposes = name.starts_with("proposer");
        assert_eq!(ends[1].stream.peer_is(node(1), Role::Proposer), proposes, "{name}");
    }
}

#[test]
fn bytes_that_are_not_tls_end_the_connection_with_an_error() {
    let ca = Authority::new();
    for len in [1, 5, 64, 100_000] {
        for dials in [true, false] {
            let (a, b) = sockets();
            let tls =
                if dials { context(&ca, 1).dial(a, node(2)) } else { context(&ca, 1).accept(a) };
            let garbage = End::new(Stream::Plain(b), &noise(len, 77));
            let mut ends = [End::new(tls.expect("a stream"), b"hello"), garbage];
            run(&mut ends, |ends| ends[0].ended.is_some() || ends[1].said == len);
            // If the bytes are too few to decide, the end of the stream decides.
            ends[1].stream.tcp().shutdown(Shutdown::Write).expect("an open socket");
            run(&mut ends, |ends| ends[0].ended.is_some());
            let text = ends[0].error();
            assert!(text.contains("is [tls] set there too?"), "{text}");
        }
    }
}

#[test]
fn an_announced_end_is_told_from_a_broken_connection() {
    let ca = Authority::new();
    for is_announced in [true, false] {
        let mut ends = ends(&context(&ca, 1), 2, &context(&ca, 2));
        run(&mut ends, all_heard);
        let [mut dialer, mut acceptor] = ends;
        assert_eq!(dialer.stream.write(b", the end").expect("room"), 9);
        if is_announced {
            dialer.stream.close_notify();
        }
        drop(dialer);
        run(std::slice::from_mut(&mut acceptor), |ends| ends[0].ended.is_some());
        assert_eq!(acceptor.heard, b"from the dialer, the end", "earlier bytes count");
        if is_announced {
            assert!(matches!(acceptor.ended, Some(Ok(()))));
        } else {
            assert!(acceptor.error().contains("did not announce its end"));
        }
    }
}

/// Writes until nothing more is taken, and returns how much was.
fn stuff(stream: &mut Stream) -> usize {
    let chunk = [0; 50_000];
    let mut taken = 0;
    loop {
        match stream.write(&chunk) {
            Ok(count) => taken += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return taken,
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn bytes_that_wait_for_a_handshake_are_bounded() {
    let ca = Authority::new();
    let mut ends = ends(&context(&ca, 1), 2, &context(&ca, 2));
    assert_eq!(stuff(&mut ends[0].stream), CIPHERTEXT_MAX);
    let expected = CIPHERTEXT_MAX + ends[0].says.len();
    run(&mut ends, |ends| ends[1].heard.len() == expected);
}

#[test]
fn bytes_that_wait_for_a_peer_that_never_reads_are_bounded() {
    let ca = Authority::new();
    let mut ends = ends(&context(&ca, 1), 2, &context(&ca, 2));
    run(&mut ends, all_heard);
    let taken = stuff(&mut ends[0].stream);
    assert!(ends[0].stream.wants_write());
    let Stream::Tls(tls) = &mut ends[0].stream else { panic!("a TLS stream") };
    let waiting = tls.conn.process_new_packets().expect("all is well").tls_bytes_to_write();
    // Each record adds 22 bytes to the plaintext that the bound counts.
    assert!(waiting > 0 && waiting <= CIPHERTEXT_MAX + 10 * 22, "{waiting} bytes wait");
    // Nothing is lost: the peer reads all of it in the end.
    let expected = taken + ends[0].says.len();
    run(&mut ends, |ends| ends[1].heard.len() == expected);
}
