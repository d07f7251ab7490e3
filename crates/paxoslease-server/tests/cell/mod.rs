//! A cell of daemons in this process.

use std::net::{SocketAddr, TcpListener};

use paxoslease_server::{Config, Server};

/// Three daemons.
pub(crate) struct Cell {
    pub(crate) servers: Vec<Server>,
}

impl Cell {
    pub(crate) fn start() -> Self {
        Self::start_with(|_| {})
    }

    /// Starts three, each configured further by `with`, and waits until all of them reach each
    /// other: what only a majority has heard of does not outlive one of that majority.
    pub(crate) fn start_with(with: impl Fn(&mut Config)) -> Self {
        let sockets: Vec<TcpListener> =
            (0..3).map(|_| TcpListener::bind("127.0.0.1:0").expect("a port")).collect();
        let addresses: Vec<String> =
            sockets.iter().map(|socket| socket.local_addr().expect("bound").to_string()).collect();
        let servers = sockets.into_iter().zip(1..).map(|(socket, id)| {
            let mut node = paxoslease_node::Config::new("test", id).ephemeral().shards(2);
            for (address, id) in addresses.iter().zip(1..) {
                node = node.peer(id, address);
            }
            let mut config = Config::new(node).listen("127.0.0.1:0", "127.0.0.1:0");
            with(&mut config);
            Server::start_on(config, Some(socket)).expect("starts")
        });
        let servers: Vec<Server> = servers.collect();
        for server in &servers {
            paxoslease_node::block_on(server.node().ready()).expect("reaches a majority");
            let status = || paxoslease_node::block_on(server.node().status()).expect("runs");
            while !status().peers.iter().all(|peer| peer.up) {
                std::thread::yield_now();
            }
        }
        Self { servers }
    }

    pub(crate) fn address(&self, node: usize) -> SocketAddr {
        self.servers[node].clients().expect("listens")
    }

    /// Waits until so many wait at a node for a name, and know for whom.
    pub(crate) fn wait_for_waiters(&self, node: usize, name: &str, count: u64) {
        loop {
            let status =
                paxoslease_node::block_on(self.servers[node].node().status()).expect("runs");
            let mut wanted = status.waiting.iter().filter(|wanted| wanted.fence.is_some());
            if wanted.any(|wanted| wanted.name == name && wanted.waiters >= count) {
                return;
            }
            std::thread::yield_now();
        }
    }

    /// The sum of what one node publishes now of the series that begin like this.
    pub(crate) fn metric(&self, node: usize, series: &str) -> f64 {
        let address = self.servers[node].http().expect("listens");
        let page = ureq::get(format!("http://{address}/metrics")).call().expect("answers");
        let page = page.into_body().read_to_string().expect("text");
        let lines = page.lines().filter(|line| line.starts_with(series));
        let values = lines.filter_map(|line| line.rsplit_once(' '));
        values.map(|(_, value)| value.parse::<f64>().expect("a number")).sum()
    }

    /// Waits until [`Self::metric`] is at least so much.
    pub(crate) fn wait_for_metric(&self, node: usize, series: &str, least: f64) {
        while self.metric(node, series) < least {
            std::thread::yield_now();
        }
    }
}
