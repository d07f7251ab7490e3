//! Cells of real nodes in this process, each with HTTP and numbers of its own.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use paxoslease_node::block_on;
use paxoslease_node::front::{Answer, ConnId, FrontEnd, Hint, Instant, Service, ShardHandle};
use paxoslease_node::{Config, Node, Status};
use paxoslease_server::Gate;
use paxoslease_server::http::{Bounds, Http};
use paxoslease_server::metrics::Metrics;

pub(crate) struct Cell {
    pub(crate) members: Vec<Member>,
}

pub(crate) struct Member {
    pub(crate) node: Node,
    /// Taken by tests that stop it.
    pub(crate) http: Option<Http>,
    pub(crate) address: SocketAddr,
}

impl Member {
    pub(crate) fn status(&self) -> Status {
        block_on(self.node.status()).expect("it runs")
    }
}

/// Three members that reach each other.
pub(crate) fn three() -> Cell {
    start(3, 3, |config| config, Bounds::default())
}

/// One member that is all there is.
pub(crate) fn one_with(with: impl Fn(Config) -> Config, bounds: Bounds) -> Cell {
    start(1, 1, with, bounds)
}

/// The first of three members, the others of which nobody started.
pub(crate) fn alone(with: impl Fn(Config) -> Config) -> Cell {
    start(3, 1, with, Bounds::default())
}

/// Starts `running` of `size` members; if these are all, waits until they reach each other.
fn start(size: usize, running: u16, with: impl Fn(Config) -> Config, bounds: Bounds) -> Cell {
    let listen = || TcpListener::bind("127.0.0.1:0").expect("a port");
    let listeners: Vec<TcpListener> = (0..size).map(|_| listen()).collect();
    let addresses: Vec<SocketAddr> =
        listeners.iter().map(|listener| listener.local_addr().expect("bound")).collect();
    let members = listeners.into_iter().zip(1..=running).map(|(listener, id)| {
        let config = Config::new("test", id).max_lease(Duration::from_secs(60)).shards(2);
        let config = addresses
            .iter()
            .zip(1..)
            .fold(config, |config, (address, id)| config.peer(id, address.to_string()));
        let metrics = Metrics::new();
        let service = Service {
            clients: None,
            client_tls: None,
            front: Box::new(|_| Box::new(Nobody)),
            recorder: Some(metrics.recorder()),
        };
        let starting = Node::start_with(with(config.ephemeral()), Some(listener), service);
        let node = block_on(starting).expect("starts");
        let socket = listen();
        let address = socket.local_addr().expect("bound");
        let http =
            Http::start(node.clone(), socket, metrics, Gate::default(), bounds).expect("starts");
        Member { node, http: Some(http), address }
    });
    let members: Vec<Member> = members.collect();
    if usize::from(running) == size {
        let others_up = |status: Status| status.peers.iter().all(|peer| peer.up);
        members.iter().for_each(|member| until(|| others_up(member.status())));
    }
    Cell { members }
}

/// Waits for something that is bound to happen.
pub(crate) fn until(mut happened: impl FnMut() -> bool) {
    while !happened() {
        std::thread::yield_now();
    }
}

/// No clients but those of HTTP.
struct Nobody;

impl FrontEnd for Nobody {
    fn accepted(&mut self, _: &mut ShardHandle<'_>, _: ConnId) {}
    fn received(&mut self, _: &mut ShardHandle<'_>, _: ConnId, bytes: &[u8]) -> usize {
        bytes.len()
    }
    fn writable(&mut self, _: &mut ShardHandle<'_>, _: ConnId) {}
    fn closed(&mut self, _: &mut ShardHandle<'_>, _: ConnId) {}
    fn answered(&mut self, _: &mut ShardHandle<'_>, _: u64, _: Answer) {}
    fn hinted(&mut self, _: &mut ShardHandle<'_>, _: &Hint) {}
    fn tick(&mut self, _: &mut ShardHandle<'_>) {}
    fn flush(&mut self, _: &mut ShardHandle<'_>) {}
    fn next_at(&self) -> Option<Instant> {
        None
    }
    fn leave(&mut self, _: &mut ShardHandle<'_>) {}
    fn is_done(&self) -> bool {
        true
    }
}
