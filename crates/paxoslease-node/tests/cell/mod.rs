//! A cell of real nodes on loopback sockets, in this process.
#![allow(dead_code, clippy::allow_attributes, reason = "each test file uses its own part of this")]

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use paxoslease_clock::Clock;
use paxoslease_core::{Birth, Drift, NodeId, Ttl};
use paxoslease_holder::{MembersChange, MembersError, MembersPlan, MembersRequest};
use paxoslease_node::front::{Answer, Request};
use paxoslease_node::{Config, LeaseGuard, Node, Role, Status, Tls, block_on};
use paxoslease_tls::Authority;
use paxoslease_wire::{CellName, ClientAddress, Hello, ListUse, ShardId, VERSION};

pub(crate) const TTL: Duration = Duration::from_secs(5);
/// The bound of each wait: far longer than a busy machine takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// The nodes of a new cell.
pub(crate) struct Cell {
    pub(crate) nodes: Vec<Node>,
    pub(crate) addresses: Vec<String>,
}

/// The configuration of node `id` of a cell with these members.
pub(crate) fn config(addresses: &[String], id: u16) -> Config {
    let config = Config::new("test", id).max_lease(Duration::from_secs(60)).ephemeral();
    addresses.iter().zip(1..).fold(config, |config, (address, id)| config.peer(id, address))
}

/// A folder for the data of all nodes of a test, removed at the end.
pub(crate) struct Data(PathBuf);

impl Data {
    pub(crate) fn new(test: &str) -> Self {
        let name = format!("paxoslease-members-{test}-{}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.0
    }

    /// The configuration of a node whose list has these nodes.
    pub(crate) fn config(&self, id: u16, list: &[(u16, &str)]) -> Config {
        let config = Config::new("test", id).max_lease(Duration::from_secs(60)).shards(2);
        let config = config.data_dir(self.0.join(id.to_string()));
        list.iter().fold(config, |config, (id, address)| config.peer(*id, *address))
    }
}

impl Drop for Data {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What a node answers to an administrator who confirms everything.
pub(crate) fn change_members(
    node: &Node,
    change: MembersChange,
    dry_run: bool,
) -> Result<MembersPlan, MembersError> {
    let request = MembersRequest { change, dry_run, yes: true };
    match block_on(node.remote().ask(Request::Members(Box::new(request)))) {
        Answer::Members(answer) => *answer,
        other => panic!("{other:?}"),
    }
}

/// A socket on a free port, and its address.
pub(crate) fn listen() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound").to_string();
    (listener, address)
}

/// Starts `size` members, each configured further by `with`.
pub(crate) fn start(size: u16, with: impl Fn(Config) -> Config) -> Cell {
    let (listeners, addresses): (Vec<_>, Vec<_>) = (0..size).map(|_| listen()).unzip();
    let nodes = listeners.into_iter().zip(1..).map(|(listener, id)| {
        block_on(Node::start_on(with(config(&addresses, id)), listener)).expect("starts")
    });
    let nodes: Vec<Node> = nodes.collect();
    for node in &nodes {
        block_on(node.ready()).expect("reaches a majority");
    }
    Cell { nodes, addresses }
}

/// Files for a node.
pub(crate) fn certify(authority: &Authority, node: u16, role: Role) -> Tls {
    let name = Tls::node_name("test", node, role).expect("a label");
    let [cert, key, ca] = authority.files(&[&name], |_| {});
    Tls::new(cert, key, ca)
}

pub(crate) fn with_tls(authority: &Authority, config: Config) -> Config {
    let tls = certify(authority, config.node, config.role);
    config.tls(tls)
}

/// Waits for a condition that no event announces.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let clock = Clock::system();
    let end = clock.now().after(PATIENCE);
    while !is_so() {
        assert!(clock.now() < end, "not within {PATIENCE:?}: {what}");
        thread::yield_now();
    }
}

/// The metrics of all nodes of this process since the last call, as `name{label=value,..}`. The
/// first call installs the recorder.
pub(crate) fn metrics() -> BTreeMap<String, f64> {
    static RECORDER: OnceLock<Snapshotter> = OnceLock::new();
    let recorder = RECORDER.get_or_init(|| {
        let recorder = DebuggingRecorder::new();
        let snapshotter = recorder.snapshotter();
        recorder.install().expect("the only one in this process");
        snapshotter
    });
    let entries = recorder.snapshot().into_vec().into_iter().map(|(key, _, _, value)| {
        let key = key.key();
        let labels: Vec<String> =
            key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        let value = match value {
            DebugValue::Counter(count) => count as f64,
            DebugValue::Gauge(value) => value.into_inner(),
            DebugValue::Histogram(values) => values.len() as f64,
        };
        (format!("{}{{{}}}", key.name(), labels.join(",")), value)
    });
    entries.collect()
}

pub(crate) fn status(node: &Node) -> Status {
    block_on(node.status()).expect("runs")
}

pub(crate) fn take(node: &Node, name: &str) -> LeaseGuard {
    node.acquire(name, TTL).blocking().expect("granted")
}

pub(crate) fn node_id(id: u16) -> NodeId {
    NodeId::new(id).expect("in bounds")
}

/// The greeting of a node that is configured like this, as shard 0 of `shards`.
pub(crate) fn hello(config: &Config, boot: u64, shards: u16) -> Vec<u8> {
    hello_with(config, shards, |hello| hello.boot = boot)
}

/// The same, changed further.
pub(crate) fn hello_with(
    config: &Config,
    shards: u16,
    change: impl FnOnce(&mut Hello<'_>),
) -> Vec<u8> {
    let members: Vec<NodeId> = config.peers.keys().copied().map(node_id).collect();
    let max_lease = Ttl::from_duration(config.max_lease).expect("in bounds");
    let drift = Drift::new(config.clock_drift_ppm, config.clock_granularity).expect("in bounds");
    let mut hello = Hello {
        version: VERSION,
        cell_name: CellName::new(&config.cell).expect("in bounds"),
        cell: paxoslease_core::Cell::new(&members, max_lease, drift).expect("a cell"),
        node: node_id(config.node),
        boot: 1,
        shard: ShardId::new(0, shards).expect("in bounds"),
        list: if config.role == Role::Proposer { ListUse::Follows } else { ListUse::Fixed },
        birth: Birth::UNKNOWN,
        epoch: 0,
        clients: ClientAddress::new("").expect("in bounds"),
        durable_leases: config.durable_leases,
    };
    change(&mut hello);
    let mut bytes = Vec::new();
    hello.encode(&mut bytes);
    bytes
}

impl Cell {
    /// The configuration of a node that joins without a vote.
    pub(crate) fn proposer(&self, id: u16) -> Config {
        config(&self.addresses, id).role(Role::Proposer)
    }
}
