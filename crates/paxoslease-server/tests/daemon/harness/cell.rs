//! Cells of daemons in this process.

use std::net::{SocketAddr, TcpListener};
use std::ops::{Index, IndexMut};

use paxoslease_node::{Node, Status, Tls, block_on};
use paxoslease_server::http::{Bounds, Http};
use paxoslease_server::metrics::Metrics;
use paxoslease_server::{Access, Config, Gate, Server, TokenHash, Verb};
use paxoslease_tls::Authority;
use sha2::{Digest as _, Sha256};

use super::{new_path, until};

/// The daemons of one cell, indexed from 0. Their ids begin at 1.
pub(crate) struct Cell(pub(crate) Vec<Daemon>);

pub(crate) struct Daemon {
    pub(crate) server: Server,
    /// The configuration that it was started with or that it last reloaded.
    pub(crate) config: Config,
}

impl Cell {
    pub(crate) fn three() -> Self {
        Self::three_with(|_| {})
    }

    /// Three daemons that reach each other.
    pub(crate) fn three_with(with: impl Fn(&mut Config)) -> Self {
        Self::start(3, 3, with)
    }

    pub(crate) fn one() -> Self {
        Self::one_with(|_| {})
    }

    /// A daemon that is the whole cell.
    pub(crate) fn one_with(with: impl Fn(&mut Config)) -> Self {
        Self::start(1, 1, with)
    }

    /// The first of three daemons. The others are not started.
    pub(crate) fn first_of_three(with: impl Fn(&mut Config)) -> Self {
        Self::start(3, 1, with)
    }

    /// A daemon that is the whole cell and has a data folder, and one that is not a member yet.
    pub(crate) fn with_newcomer() -> Self {
        let folder = new_path("data");
        let listen = |_| TcpListener::bind("127.0.0.1:0").expect("a free port");
        let sockets = [1, 2].map(listen);
        let addresses = sockets.each_ref().map(|socket| socket.local_addr().expect("bound"));
        let daemons = sockets.into_iter().zip(1..).map(|(socket, id)| {
            let node = paxoslease_node::Config::new("test", id).shards(2).new_cell(id == 1);
            let node = node.data_dir(folder.join(id.to_string()));
            let known = addresses.iter().zip(1..=id);
            let node = known.fold(node, |node, (at, id)| node.peer(id, at.to_string()));
            let config = Config::new(node).listen("127.0.0.1:0", "127.0.0.1:0");
            let server = Server::start_on(config.clone(), Some(socket)).expect("starts");
            Daemon { server, config }
        });
        let cell = Self(daemons.collect());
        until("the newcomer knows the member", || cell[1].status().ready);
        cell
    }

    /// Starts `running` of `size` daemons. If these are all, waits until they reach each other.
    pub(crate) fn start(size: usize, running: u16, with: impl Fn(&mut Config)) -> Self {
        let listen = |_| TcpListener::bind("127.0.0.1:0").expect("a free port");
        let sockets: Vec<TcpListener> = (0..size).map(listen).collect();
        let addresses: Vec<String> =
            sockets.iter().map(|socket| socket.local_addr().expect("bound").to_string()).collect();
        let daemons = sockets.into_iter().zip(1..=running).map(|(socket, id)| {
            let node = paxoslease_node::Config::new("test", id).ephemeral().shards(2);
            let node = addresses.iter().zip(1..).fold(node, |node, (at, id)| node.peer(id, at));
            let mut config = Config::new(node).listen("127.0.0.1:0", "127.0.0.1:0");
            // Tokens are refused without TLS unless there are no peers.
            let has_peers = size > 1;
            if !has_peers {
                config.node = config.node.listen("off");
            }
            with(&mut config);
            let started = Server::start_on(config.clone(), has_peers.then_some(socket));
            Daemon { server: started.expect("starts"), config }
        });
        let cell = Self(daemons.collect());
        if cell.0.len() == size {
            for daemon in &cell.0 {
                until("all nodes are connected", || daemon.status().peers.iter().all(|p| p.up));
            }
        }
        cell
    }
}

impl Index<usize> for Cell {
    type Output = Daemon;

    fn index(&self, node: usize) -> &Daemon {
        &self.0[node]
    }
}

impl IndexMut<usize> for Cell {
    fn index_mut(&mut self, node: usize) -> &mut Daemon {
        &mut self.0[node]
    }
}

impl Daemon {
    pub(crate) const fn node(&self) -> &Node {
        self.server.node()
    }

    pub(crate) fn resp(&self) -> SocketAddr {
        self.server.clients().expect("it listens for RESP")
    }

    pub(crate) fn http(&self) -> SocketAddr {
        self.server.http().expect("it listens for HTTP")
    }

    pub(crate) fn status(&self) -> Status {
        block_on(self.node().status()).expect("the node runs")
    }

    /// Waits until `count` requests wait for a name, and the node knows which tenure they wait for.
    pub(crate) fn wait_for_waiters(&self, name: &str, count: u64) {
        until(&format!("{count} requests wait for {name}"), || {
            let status = self.status();
            let mut wanted = status.waiting.iter().filter(|wanted| wanted.fence.is_some());
            wanted.any(|wanted| wanted.name == name && wanted.waiters >= count)
        });
    }

    /// Waits until nothing waits at this node.
    pub(crate) fn wait_for_no_waiters(&self) {
        until("nothing waits", || self.status().waiters == 0);
    }

    /// The sum of all published series that begin with `series`.
    pub(crate) fn metric(&self, series: &str) -> f64 {
        sum(&self.server.metrics().render(), series)
    }

    /// Waits until [`Self::metric`] is at least `least`.
    pub(crate) fn wait_for_metric(&self, series: &str, least: f64) {
        until(&format!("{series} is {least}"), || self.metric(series) >= least);
    }

    /// Waits until `least` requests exceeded this limit.
    pub(crate) fn wait_for_limit(&self, limit: &str, least: u32) {
        let series = format!("paxoslease_limited_total{{limit=\"{limit}\"}}");
        self.wait_for_metric(&series, f64::from(least));
    }

    /// Reloads a changed configuration.
    pub(crate) fn reload(&mut self, change: impl FnOnce(&mut Config)) {
        change(&mut self.config);
        self.server.reload(|| Ok(self.config.clone())).expect("reloaded");
    }

    /// Serves this node on another port too, with other bounds.
    pub(crate) fn serve_http(
        &self,
        bound: impl FnOnce(&mut Bounds),
    ) -> (Http, SocketAddr, Metrics) {
        let socket = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = socket.local_addr().expect("bound");
        let (mut bounds, metrics) = (Bounds::default(), Metrics::new());
        bound(&mut bounds);
        let (node, gate) = (self.node().clone(), Gate::new(&self.config.access));
        let http = Http::start(node, socket, metrics.clone(), gate, bounds).expect("starts");
        (http, address, metrics)
    }
}

/// The sum of all series that begin with `series` in a text for Prometheus.
pub(crate) fn sum(page: &str, series: &str) -> f64 {
    let lines = page.lines().filter(|line| line.starts_with(series));
    let values = lines.filter_map(|line| line.rsplit_once(' '));
    values.map(|(_, value)| value.parse::<f64>().expect("a number")).sum()
}

/// What a token permits. The token's name in errors is `TOKEN's`.
pub(crate) fn entry(token: &str, names: &[&str], may: &[Verb]) -> Access {
    let names = names.iter().map(|name| name.parse().expect("a pattern"));
    let hash = TokenHash::new(Sha256::digest(token).into());
    let mut entry = Access::new(hash, names, may.iter().copied());
    entry.name = Some(format!("{token}'s"));
    entry
}

/// `jobs` may acquire and read under `jobs/`, `reader` may read there, `ops` may administrate the
/// cell and read everything, `all` may acquire everything.
pub(crate) fn tokens() -> Vec<Access> {
    vec![
        entry("jobs", &["jobs/*"], &[Verb::Acquire, Verb::Read]),
        entry("reader", &["jobs/*"], &[Verb::Read]),
        entry("ops", &["*"], &[Verb::Admin, Verb::Read]),
        entry("all", &["*"], &[Verb::Acquire]),
    ]
}

/// Files of a new certificate for node 1 on loopback.
pub(crate) fn tls_files(authority: &Authority) -> Tls {
    let [cert, key, ca] = authority.files(&["node-1.test.paxoslease", "127.0.0.1"], |_| {});
    Tls::new(cert, key, ca)
}
