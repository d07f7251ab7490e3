//! What runs on the hosts of a world, and their turns.

use std::collections::BTreeSet;
use std::sync::Arc;

use paxoslease_client::simulation::{Order, SimulatedClient};
use paxoslease_core::Rules;
use paxoslease_holder::transport::Ticket;
use paxoslease_node::Config;
use paxoslease_node::simulation::{EndId, Process, VolatileFiles, Wire};

use super::{At, WRITE_RETRY, World};
use crate::agenda::Event;
use crate::clock::HostClock;
use crate::network::{Network, Presence};

pub(super) struct Host {
    pub(super) clock: HostClock,
    pub(super) kind: HostKind,
    /// The threads of the process.
    pub(super) shards: Vec<ShardState>,
    /// Whether the process is paused, as by SIGSTOP. The clock continues.
    pub(super) paused: bool,
    /// How often a process was started here.
    pub(super) run: u64,
}

pub(super) enum HostKind {
    Node(Box<NodeHost>),
    Client {
        client: Option<Box<SimulatedClient>>,
        /// Its connection, and whether a node has accepted it.
        end: Option<(EndId, bool)>,
        /// The hosts of the nodes that it knows.
        nodes: Vec<usize>,
        rules: Rules,
    },
}

pub(super) struct NodeHost {
    pub(super) config: Config,
    pub(super) rules: Rules,
    pub(super) files: Option<VolatileFiles>,
    /// How far the wall clock is behind that of the world (R5).
    pub(super) wall_behind_millis: u64,
    pub(super) process: Option<Process>,
    /// Leases of killed processes, whose holders believe until their time is over.
    pub(super) orphans: Vec<Arc<Ticket>>,
    /// Whether the disk is stalled: no write ends.
    pub(super) is_stalled: bool,
    /// Whether a write waits for the stalled disk.
    pub(super) stalled_write: bool,
}

impl NodeHost {
    pub(super) const fn new(config: Config, files: Option<VolatileFiles>) -> Self {
        Self {
            config,
            rules: Rules::ALL,
            files,
            wall_behind_millis: 0,
            process: None,
            orphans: Vec::new(),
            is_stalled: false,
            stalled_write: false,
        }
    }
}

/// One thread of a process.
pub(super) struct ShardState {
    /// The ends with news.
    pub(super) ready: BTreeSet<EndId>,
    /// The thread is busy until then, and has no turn before.
    pub(super) busy_until: At,
    /// When the next turn is. Events at other times are stale.
    pub(super) turn_at: At,
}

impl Default for ShardState {
    fn default() -> Self {
        Self { ready: BTreeSet::new(), busy_until: 0, turn_at: At::MAX }
    }
}

/// The network as seen by one thread of a host.
pub(super) struct AtNetwork<'a> {
    network: &'a mut Network,
    host: usize,
    shard: usize,
}

impl Wire for AtNetwork<'_> {
    fn dial(&mut self, address: &str) -> EndId {
        self.network.dial(self.host, self.shard, address)
    }

    fn send(&mut self, end: EndId, bytes: &[u8]) -> usize {
        self.network.send(end, bytes)
    }

    fn close(&mut self, end: EndId) {
        self.network.close(end);
    }

    fn hand_over(&mut self, end: EndId, shard: u16, unread: &[u8]) {
        self.network.hand_over(end, usize::from(shard), unread);
    }

    fn resume(&mut self, end: EndId) {
        self.network.resume(end);
    }
}

impl World {
    /// Whether a thread may have the turn of this moment. Takes the ends with news if so.
    fn begin_turn(&mut self, host: usize, shard: usize) -> Option<BTreeSet<EndId>> {
        let now = self.now();
        let host = &mut self.hosts[host];
        let state = host.shards.get_mut(shard).filter(|state| state.turn_at == now)?;
        if host.paused {
            return None;
        }
        state.turn_at = At::MAX;
        Some(std::mem::take(&mut state.ready))
    }

    pub(super) fn turn(&mut self, host: usize, shard: usize) {
        let Some(ready) = self.begin_turn(host, shard) else { return };
        let (now, work_cost) = (self.now(), self.work_cost.as_nanos() as u64);
        let Self { network, hosts, .. } = self;
        let state = &mut hosts[host];
        let HostKind::Node(node) = &mut state.kind else { return };
        let Some(process) = &mut node.process else { return };
        let news =
            ready.into_iter().filter_map(|end| network.news(end, shard, process.reads(shard, end)));
        let news = news.collect();
        let mut wire = AtNetwork { network, host, shard };
        let turned = process.turn(shard, state.clock.read(now), news, &mut wire);
        let Some(turned) = turned else { return };
        state.shards[shard].busy_until = now + work_cost * turned.work;
        let Some(next_at) = turned.next_at else {
            return network.agenda.add_in(0, Event::Left { host, shard });
        };
        let next_at = state.clock.first_shows(next_at).max(now);
        self.wake(host, shard, next_at);
        self.write(host);
    }

    pub(super) fn client_turn(&mut self, host: usize) {
        let Some(ready) = self.begin_turn(host, 0) else { return };
        let at = self.now();
        let Self { network, hosts, .. } = self;
        let Host { clock, kind: HostKind::Client { client: Some(client), end, .. }, .. } =
            &mut hosts[host]
        else {
            return;
        };
        let now = clock.read(at);
        for ready in ready {
            let Some(news) = network.news(ready, 0, true) else { continue };
            let Some((_, is_up)) = end.as_mut().filter(|(end, _)| *end == ready) else { continue };
            *is_up |= news.established;
            let received = client.received(now, &news.bytes);
            let ended = news.ended.map(|_| "the connection was closed".to_owned());
            if let Some(why) = received.err().or(ended) {
                network.close(ready);
                *end = None;
                client.ended(now, &why);
            }
        }
        loop {
            match client.step(now) {
                Order::Dial(endpoint) => {
                    *end = Some((network.dial(host, 0, &endpoint), false));
                }
                Order::Close => {
                    if let Some((end, _)) = end.take() {
                        network.close(end);
                    }
                }
                Order::Wait => break,
            }
        }
        if let Some((end, true)) = end {
            let sent = network.send(*end, client.out());
            client.out().drain(..sent);
        }
        if let Some(next_at) = client.next_at() {
            let next_at = clock.first_shows(next_at).max(at);
            self.wake(host, 0, next_at);
        }
    }

    /// A shard had its last turn. The last one leaves the snapshot behind (R4).
    pub(super) fn left(&mut self, host: usize, shard: usize) {
        let now = self.hosts[host].clock.read(self.now());
        let Some(node) = self.node_host_mut(host) else { return };
        if !node.process.as_mut().is_some_and(|process| process.leave(shard, now)) {
            return;
        }
        if let Some(process) = node.process.take() {
            process.stop();
        }
        self.network.set_presence(host, Presence::Refusing);
    }

    fn write(&mut self, host: usize) {
        let run = self.hosts[host].run;
        let Some(node) = self.node_host_mut(host) else { return };
        if node.process.as_mut().is_some_and(Process::begin_write) {
            let span = self.rng.up_to(self.write_latency).as_nanos() as u64;
            self.network.agenda.add_in(span, Event::Written { host, run });
        }
    }

    pub(super) fn written(&mut self, host: usize, run: u64) {
        if self.hosts[host].run != run {
            return;
        }
        let Some(node) = self.node_host_mut(host) else { return };
        if node.is_stalled {
            node.stalled_write = true;
            return;
        }
        let Some(process) = &mut node.process else { return };
        if process.end_write() {
            return self.write(host);
        }
        process.begin_write();
        let delay = WRITE_RETRY.as_nanos() as u64;
        self.network.agenda.add_in(delay, Event::Written { host, run });
    }

    /// Tells the holders of leases of a killed process whose time is over.
    pub(super) fn lapse(&mut self, host: usize) {
        let now = self.hosts[host].clock.read(self.now());
        let Some(node) = self.node_host_mut(host) else { return };
        let is_over = |ticket: &mut Arc<Ticket>| {
            !ticket.lock().belief().is_some_and(|belief| belief.is_held(now))
        };
        for ticket in node.orphans.extract_if(.., is_over) {
            ticket.lose();
        }
    }
}
