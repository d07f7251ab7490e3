//! The hosts of a world, the network between them, and true time.
//!
//! A world runs real nodes, with the sessions of their clients, and real clients. Each has a host
//! with its own clock, and nodes have a disk as well. One thread, one agenda: the same seed and the
//! same calls give the same run. Faults come from the caller.

mod hosts;

use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Wake, Waker};
use std::time::Duration;

use paxoslease_client::simulation::SimulatedClient;
use paxoslease_client::{Builder, Client};
use paxoslease_core::Rules;
use paxoslease_holder::transport::Ticket;
use paxoslease_node::simulation::{Port, Process, Start, VolatileFiles};
use paxoslease_node::{Config, Node, StableError};
use paxoslease_server::Gate;
use paxoslease_sim::Rng;

use crate::agenda::Event;
use crate::clock::HostClock;
use crate::network::{Network, Presence};
use hosts::{Host, HostKind, NodeHost, ShardState};

/// A point in true time, in nanoseconds since the world began. No node ever sees it.
pub(crate) type At = u64;

/// The wall clock when the world begins, in milliseconds: ballots begin there (R5).
const EPOCH_MILLIS: u64 = 1_750_000_000_000;

/// How long until a write that failed is tried again.
const WRITE_RETRY: Duration = Duration::from_millis(100);

/// Collects the shards and clients with new commands, by host and shard.
pub(crate) struct Bells {
    rung: Mutex<BTreeSet<(usize, usize)>>,
    /// Tells the thread of the world, if the caller may be on another one.
    tell: Box<dyn Fn() + Send + Sync>,
}

impl Bells {
    pub(crate) fn new(tell: impl Fn() + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self { rung: Mutex::default(), tell: Box::new(tell) })
    }

    fn ring(&self, host: usize, shard: usize) {
        self.rung.lock().unwrap_or_else(PoisonError::into_inner).insert((host, shard));
        (self.tell)();
    }

    fn take(&self) -> BTreeSet<(usize, usize)> {
        std::mem::take(&mut self.rung.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Wakes a client that a command was posted to.
struct ClientBell {
    bells: Arc<Bells>,
    host: usize,
}

impl Wake for ClientBell {
    fn wake(self: Arc<Self>) {
        self.bells.ring(self.host, 0);
    }
}

pub(crate) struct World {
    pub(crate) network: Network,
    hosts: Vec<Host>,
    bells: Arc<Bells>,
    rng: Rng,
    /// How long a thread may take to notice that there is something to do.
    pub(crate) turn_latency: Duration,
    /// How long a thread is busy with one command, or with one message of a peer.
    pub(crate) work_cost: Duration,
    /// How long a write to disk may take.
    pub(crate) write_latency: Duration,
    /// How many events there were.
    events: u64,
    hash: Fnv,
}

impl World {
    pub(crate) fn new(seed: u64, bells: Arc<Bells>) -> Self {
        Self {
            network: Network::new(seed),
            hosts: Vec::new(),
            bells,
            rng: Rng::new(seed, 2),
            turn_latency: Duration::ZERO,
            work_cost: Duration::ZERO,
            write_latency: Duration::ZERO,
            events: 0,
            hash: Fnv(0xcbf2_9ce4_8422_2325),
        }
    }

    /// Adds a host for a node, which does not run yet.
    pub(crate) fn add_node(
        &mut self,
        mut config: Config,
        clock: HostClock,
        has_disk: bool,
    ) -> usize {
        let host = self.network.add_host();
        if let Some(address) = config.peers.get(&config.node) {
            self.network.add_address(host, address.clone(), Port::Peers);
        }
        let endpoint = client_endpoint(&config);
        self.network.add_address(host, endpoint.clone(), Port::Clients);
        config.client_address = Some(endpoint);
        let files = has_disk.then(VolatileFiles::default);
        self.add(clock, HostKind::Node(Box::new(NodeHost::new(config, files))));
        host
    }

    /// Adds a host with a client of these nodes, whose beliefs follow these rules.
    pub(crate) fn add_client(
        &mut self,
        nodes: Vec<usize>,
        clock: HostClock,
        rules: Rules,
    ) -> usize {
        let host = self.network.add_host();
        self.add(clock, HostKind::Client { client: None, end: None, nodes, rules });
        self.start_client(host);
        host
    }

    fn add(&mut self, clock: HostClock, kind: HostKind) {
        clock.show(self.now());
        self.hosts.push(Host { clock, kind, shards: Vec::new(), paused: false, run: 0 });
    }

    pub(crate) const fn now(&self) -> At {
        self.network.agenda.now
    }

    pub(crate) const fn events(&self) -> u64 {
        self.events
    }

    /// The same seed and the same calls give the same value.
    pub(crate) const fn trace_hash(&self) -> u64 {
        self.hash.0
    }

    /// How many hosts there are.
    pub(crate) const fn len(&self) -> usize {
        self.hosts.len()
    }

    pub(crate) fn is_paused(&self, host: usize) -> bool {
        self.hosts[host].paused
    }

    pub(crate) fn is_client(&self, host: usize) -> bool {
        matches!(self.hosts[host].kind, HostKind::Client { .. })
    }

    fn node_host(&self, host: usize) -> Option<&NodeHost> {
        match &self.hosts[host].kind {
            HostKind::Node(node) => Some(node),
            HostKind::Client { .. } => None,
        }
    }

    fn node_host_mut(&mut self, host: usize) -> Option<&mut NodeHost> {
        match &mut self.hosts[host].kind {
            HostKind::Node(node) => Some(node),
            HostKind::Client { .. } => None,
        }
    }

    /// The process of a node that runs.
    pub(crate) fn process(&self, host: usize) -> Option<&Process> {
        self.node_host(host)?.process.as_ref()
    }

    /// The disk of a node.
    pub(crate) fn files(&self, host: usize) -> Option<&VolatileFiles> {
        self.node_host(host)?.files.as_ref()
    }

    /// The rules of the protocol that a node follows from its next start on.
    pub(crate) fn set_rules(&mut self, host: usize, rules: Rules) {
        self.node_host_mut(host).expect("a node").rules = rules;
    }

    /// The data folder of a node that does not run is lost. Its wall clock then runs behind by
    /// this many milliseconds.
    pub(crate) fn lose_disk(&mut self, host: usize, wall_behind_millis: u64) {
        assert!(!self.is_running(host), "it runs");
        let node = self.node_host_mut(host).expect("a node");
        node.files = node.files.as_ref().map(|_| VolatileFiles::default());
        node.wall_behind_millis = wall_behind_millis;
    }

    /// Stalls the writes of a node, or lets them continue.
    pub(crate) fn set_disk_stalled(&mut self, host: usize, stalled: bool) {
        let Some(node) = self.node_host_mut(host) else { return };
        if std::mem::replace(&mut node.is_stalled, stalled) && !stalled && node.stalled_write {
            node.stalled_write = false;
            let run = self.hosts[host].run;
            self.network.agenda.add_in(0, Event::Written { host, run });
        }
    }

    /// Whether a node or a client runs on a host.
    pub(crate) fn is_running(&self, host: usize) -> bool {
        match &self.hosts[host].kind {
            HostKind::Node(node) => node.process.is_some(),
            HostKind::Client { client, .. } => client.is_some(),
        }
    }

    /// The handle of the node that runs on a host.
    pub(crate) fn node(&self, host: usize) -> Option<Node> {
        self.process(host).map(|process| process.node().clone())
    }

    /// The handle of the client that runs on a host.
    pub(crate) fn client(&self, host: usize) -> Option<Client> {
        match &self.hosts[host].kind {
            HostKind::Client { client, .. } => Some(client.as_ref()?.client().clone()),
            HostKind::Node(_) => None,
        }
    }

    /// Starts a node with the content of its disk.
    pub(crate) fn start(&mut self, host: usize) -> Result<Node, StableError> {
        assert!(!self.is_running(host), "it runs already");
        let (seed, wall_millis) = (self.rng.bits(), EPOCH_MILLIS + self.now() / 1_000_000);
        let bells = Arc::clone(&self.bells);
        let Host { clock, kind, .. } = &mut self.hosts[host];
        let HostKind::Node(node) = kind else { panic!("clients start by themselves") };
        let server = paxoslease_server::Config::new(node.config.clone());
        let process = Process::start(Start {
            config: &node.config,
            rules: node.rules,
            files: node.files.as_ref(),
            clock: clock.handle(),
            wall_millis: wall_millis - node.wall_behind_millis,
            seed,
            front: Some(Box::new(paxoslease_server::front_ends(&server, &Gate::new(&[])))),
            bell: Arc::new(move |shard| bells.ring(host, shard)),
        })?;
        // Only the first start is the start of a new cell.
        node.config.ephemeral = false;
        let (handle, shards) = (process.node().clone(), process.shards());
        (node.process, node.stalled_write) = (Some(process), false);
        let state = &mut self.hosts[host];
        state.run += 1;
        state.paused = false;
        state.shards = (0..shards).map(|_| ShardState::default()).collect();
        self.network.set_shards(host, shards);
        self.network.set_presence(host, Presence::Listening);
        (0..shards).for_each(|shard| self.wake(host, shard, self.now()));
        Ok(handle)
    }

    /// Starts the client of a host.
    pub(crate) fn start_client(&mut self, host: usize) {
        let seed = self.rng.bits();
        let HostKind::Client { nodes, rules, .. } = &self.hosts[host].kind else {
            panic!("a node")
        };
        let (rules, nodes) = (*rules, nodes.iter().filter_map(|node| self.node_host(*node)));
        let endpoints: Vec<String> = nodes.map(|node| client_endpoint(&node.config)).collect();
        let config = Builder::default().endpoints(&endpoints.join(","));
        let waker = Waker::from(Arc::new(ClientBell { bells: Arc::clone(&self.bells), host }));
        let state = &mut self.hosts[host];
        let started = SimulatedClient::new(&config, state.clock.handle(), rules, seed, waker);
        let HostKind::Client { client, end, .. } = &mut state.kind else { panic!("a node") };
        (*client, *end) = (Some(Box::new(started)), None);
        (state.paused, state.run) = (false, state.run + 1);
        state.shards = vec![ShardState::default()];
        self.wake(host, 0, self.now());
    }

    /// Ends the process on a host at once; its disk is kept. The machine closes its connections,
    /// unless it is gone with the process. Guards of the process hold until their time is over.
    pub(crate) fn kill(&mut self, host: usize, presence: Presence) {
        let writes = self.rng.chance(500);
        // The process may die between any two changes of a write.
        let changes = self.rng.between(0, 12);
        let now = self.now();
        let state = &mut self.hosts[host];
        state.paused = false;
        match &mut state.kind {
            HostKind::Client { client, end, .. } => {
                *client = None;
                *end = None;
            }
            HostKind::Node(node) => {
                let Some(process) = node.process.take() else { return };
                node.files.iter().for_each(|files| files.dies_after(changes));
                let tickets = process.kill(writes);
                node.files.iter().for_each(|files| files.dies_after(u64::MAX));
                for belief in tickets.iter().filter_map(|ticket| ticket.lock().belief()) {
                    let at = state.clock.first_shows(belief.ends_at());
                    self.network.agenda.add(at.max(now), Event::Lapsed { host });
                }
                node.orphans.extend(tickets);
            }
        }
        self.network.set_presence(host, presence);
    }

    /// The power of a host fails: the process ends, and what its disk had not synced is lost or
    /// torn.
    pub(crate) fn cut_power(&mut self, host: usize) {
        self.kill(host, Presence::Silent);
        let rng = &mut self.rng;
        let HostKind::Node(node) = &self.hosts[host].kind else { return };
        let choose = |choices: usize| rng.below(choices as u64) as usize;
        if let Some(files) = &node.files {
            files.lose_power(choose);
        }
    }

    /// Stops a node cleanly, which takes as long as its releases do.
    pub(crate) fn stop(&mut self, host: usize) {
        let Some(process) = self.process(host) else { return };
        process.request_stop();
        self.resume(host);
        while self.is_running(host) {
            self.step();
        }
    }

    /// Pauses the process of a host, as SIGSTOP does. Its clock and the world continue.
    pub(crate) fn pause(&mut self, host: usize) {
        self.hosts[host].paused = true;
    }

    /// Resumes the process, with everything that arrived meanwhile.
    pub(crate) fn resume(&mut self, host: usize) {
        self.hosts[host].paused = false;
        for shard in 0..self.hosts[host].shards.len() {
            self.hosts[host].shards[shard].turn_at = At::MAX;
            self.wake(host, shard, self.now());
        }
    }

    /// Gives a shard a turn at `at`, or before.
    fn wake(&mut self, host: usize, shard: usize, at: At) {
        let Some(state) = self.hosts[host].shards.get_mut(shard) else { return };
        let at = at.max(state.busy_until);
        if at < state.turn_at {
            state.turn_at = at;
            self.network.agenda.add(at, Event::Turn { host, shard });
        }
    }

    /// Gives a turn to shards and clients with news.
    fn spread(&mut self) {
        for (host, shard, end) in self.network.take_ready() {
            if let Some(state) = self.hosts[host].shards.get_mut(shard) {
                state.ready.insert(end);
                self.wake_soon(host, shard);
            }
        }
        for (host, shard) in self.bells.take() {
            self.wake_soon(host, shard);
        }
    }

    fn wake_soon(&mut self, host: usize, shard: usize) {
        let latency = self.rng.up_to(self.turn_latency);
        self.wake(host, shard, self.now() + latency.as_nanos() as u64);
    }

    /// When the next event is.
    pub(crate) fn next_at(&mut self) -> Option<At> {
        self.spread();
        self.network.agenda.next_at()
    }

    /// Handles the next event. Returns its host, where it has one.
    pub(crate) fn step(&mut self) -> Option<usize> {
        self.spread();
        let (at, event) = self.network.agenda.pop()?;
        self.pass_to(at);
        self.events += 1;
        (at, event).hash(&mut self.hash);
        let host = match event {
            Event::Turn { host, .. }
            | Event::Left { host, .. }
            | Event::Written { host, .. }
            | Event::Lapsed { host } => Some(host),
            Event::Network(_) => None,
        };
        match event {
            Event::Turn { host, .. } if self.is_client(host) => self.client_turn(host),
            Event::Turn { host, shard } => self.turn(host, shard),
            Event::Left { host, shard } => self.left(host, shard),
            Event::Written { host, run } => self.written(host, run),
            Event::Lapsed { host } => self.lapse(host),
            Event::Network(event) => self.network.happens(event),
        }
        self.spread();
        host
    }

    /// Advances the clocks, without any event.
    pub(crate) fn pass_to(&mut self, at: At) {
        if at > self.now() {
            self.network.agenda.now = at;
            self.hosts.iter().for_each(|host| host.clock.show(at));
        }
    }

    /// Handles every event up to this time.
    pub(crate) fn run_until(&mut self, at: At) {
        while self.next_at().is_some_and(|next_at| next_at <= at) {
            self.step();
        }
        self.pass_to(at);
    }
}

/// The address of a node for its clients.
fn client_endpoint(config: &Config) -> String {
    format!("node-{}:7400", config.node)
}

/// Tells every remaining caller and guard that the world is gone.
impl Drop for World {
    fn drop(&mut self) {
        for host in &mut self.hosts {
            if let HostKind::Node(node) = &mut host.kind {
                let left = node.process.take().map(|process| process.kill(false));
                let tickets = left.into_iter().flatten().chain(node.orphans.drain(..));
                tickets.for_each(|ticket: Arc<Ticket>| ticket.lose());
            }
        }
    }
}

/// FNV-1a, the same on every machine.
struct Fnv(u64);

impl Hasher for Fnv {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
