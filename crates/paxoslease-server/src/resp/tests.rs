//! Sessions of a real node that has less patience than usual.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};

use paxoslease::front::Service;
use paxoslease::{Access, Node, TokenHash};
use sha2::{Digest as _, Sha256};

use super::*;
use crate::metrics::Metrics;

/// How long a test waits for what must come. Never what it waits for.
const PATIENCE: Duration = Duration::from_secs(30);
/// What is too long for the node.
const BRIEF: Duration = Duration::from_millis(20);
const TOLD_TO_STRANGERS: &str = "-NOAUTH this node asks for a token, and you have shown none \
     that is good for 20ms; connect again and begin with AUTH and the token, the connection is \
     closed\r\n";

/// A cell of one.
struct Impatient {
    node: Node,
    house: Arc<House>,
    clients: SocketAddr,
    metrics: Metrics,
}

impl Impatient {
    fn start(with: impl FnOnce(&mut House)) -> Self {
        let listen = || {
            let socket = TcpListener::bind("127.0.0.1:0").expect("a port");
            let address = socket.local_addr().expect("bound");
            (socket, address)
        };
        let ((peers, address), (socket, clients)) = (listen(), listen());
        let config = Config::new("test", 1).peer(1, address.to_string()).ephemeral().shards(1);
        let mut house = House::new(&config);
        with(&mut house);
        let house = Arc::new(house);
        let (shared, metrics) = (Arc::clone(&house), Metrics::new());
        let front =
            Box::new(move |_| Box::new(Sessions::new(Arc::clone(&shared))) as Box<dyn FrontEnd>);
        let service = Service { clients: Some(socket), front, recorder: Some(metrics.recorder()) };
        let node = paxoslease::block_on(Node::start_with(config, Some(peers), service));
        Self { node: node.expect("starts"), house, clients, metrics }
    }

    fn connect(&self) -> TcpStream {
        let client = TcpStream::connect(self.clients).expect("connects");
        client.set_read_timeout(Some(PATIENCE)).expect("not zero");
        client
    }

    /// A client that has shown its token in time, however often that takes.
    fn authenticated(&self) -> TcpStream {
        loop {
            let mut client = self.connect();
            let mut told = [0; 5];
            if client.write_all(b"AUTH good\r\n").is_ok()
                && client.read_exact(&mut told).is_ok()
                && &told == b"+OK\r\n"
            {
                return client;
            }
        }
    }

    /// Takes over these tokens, in every session.
    fn knows(&self, tokens: &[&str]) {
        self.house.gate.change(&entries(tokens));
        paxoslease::block_on(self.node.status()).expect("runs");
    }

    /// Waits until a client ran into this limit.
    fn wait_for_limit(&self, limit: &str) {
        let counted = format!("paxoslease_limited_total{{limit=\"{limit}\"}} 1\n");
        while !self.metrics.render().contains(&counted) {
            std::thread::yield_now();
        }
    }

    fn wait_until_empty(&self) {
        while self.house.connections.load(Ordering::Relaxed) > 0 {
            std::thread::yield_now();
        }
    }
}

fn entries(tokens: &[&str]) -> Vec<Access> {
    let entry = |token: &&str| {
        let hash = TokenHash::new(Sha256::digest(token).into());
        Access::new(hash, ["*".parse().expect("a pattern")], [Verb::Read])
    };
    tokens.iter().map(entry).collect()
}

/// What is heard until the connection is closed.
fn last_words(client: &mut TcpStream) -> String {
    let mut heard = String::new();
    client.read_to_string(&mut heard).expect("closed in good order");
    heard
}

fn answers(client: &mut TcpStream) {
    client.write_all(b"PING\r\n").expect("sends");
    let mut told = [0; 7];
    client.read_exact(&mut told).expect("a reply");
    assert_eq!(&told, b"+PONG\r\n");
}

#[test]
fn a_client_that_never_finishes_a_request_is_told_and_given_up() {
    let node = Impatient::start(|house| house.half_request_after = BRIEF);
    let mut client = node.connect();
    client.write_all(b"PING\r\n*2\r\n$4\r\nECHO\r\n$1\r\n").expect("sends");
    let expected = "+PONG\r\n-ERR the request was not finished 20ms after it began; send it at \
                    once, the connection is closed\r\n";
    assert_eq!(last_words(&mut client), expected);
    node.wait_until_empty();
    node.wait_for_limit("half_request");
}

#[test]
fn a_client_that_never_reads_is_given_up() {
    let node = Impatient::start(|house| house.slow_reader_after = BRIEF);
    let mut client = node.connect();
    answers(&mut client);
    assert_eq!(node.house.connections.load(Ordering::Relaxed), 1);
    // More than the sockets hold; at the latest when the connection is closed, this fails.
    let echo = [b"ECHO ".to_vec(), vec![b'x'; 4000], b"\r\n".to_vec()].concat();
    while client.write_all(&echo).is_ok() {}
    node.wait_until_empty();
    node.wait_for_limit("slow_reader");
}

#[test]
fn who_shows_no_token_where_one_is_asked_for_is_told_and_given_up() {
    let node = Impatient::start(|house| {
        house.stranger_after = BRIEF;
        house.gate = Gate::new(&entries(&["good"]));
    });
    let mut known = node.authenticated();
    // These come later, and so are given up after the other would have been.
    assert_eq!(last_words(&mut node.connect()), TOLD_TO_STRANGERS);
    let mut unread = node.connect();
    // What was not read does not keep it; at the latest when it is closed, this fails.
    while unread.write_all(&b"PING\r\n".repeat(1000)).is_ok() {}
    answers(&mut known);
    known.write_all(b"RESET\r\n").expect("sends");
    assert_eq!(last_words(&mut known), format!("+RESET\r\n{TOLD_TO_STRANGERS}"), "nobody any more");
    node.wait_until_empty();
    let mut counted = 0;
    while counted < 3 {
        let rendered = node.metrics.render();
        let series = "paxoslease_refused_total{reason=\"no_token\"} ";
        let line = rendered.lines().find_map(|line| line.strip_prefix(series));
        counted = line.map_or(0, |count| count.parse().expect("a number"));
    }
}

#[test]
fn who_has_lost_its_token_may_show_another_or_is_given_up() {
    let node = Impatient::start(|house| {
        house.stranger_after = BRIEF;
        house.gate = Gate::new(&entries(&["good", "other"]));
    });
    let (mut lost, mut kept) = (node.authenticated(), node.authenticated());
    kept.write_all(b"AUTH other\r\n").expect("sends");
    kept.read_exact(&mut [0; 5]).expect("+OK");
    node.knows(&["other"]);
    assert_eq!(last_words(&mut lost), TOLD_TO_STRANGERS);
    answers(&mut kept);
}

#[test]
fn where_no_token_is_asked_for_nobody_is_a_stranger_until_one_is() {
    let node = Impatient::start(|house| house.stranger_after = Duration::ZERO);
    let mut client = node.connect();
    answers(&mut client);
    answers(&mut client);
    node.knows(&["good"]);
    assert!(last_words(&mut client).starts_with("-NOAUTH this node asks for a token"));
    node.wait_until_empty();
}
