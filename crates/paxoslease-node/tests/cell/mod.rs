//! A cell of real nodes on loopback sockets, in this process.
#![allow(dead_code, clippy::allow_attributes, reason = "each test file uses its own part of this")]

use std::net::TcpListener;
use std::time::Duration;

use paxoslease_node::block_on;
use paxoslease_node::{Config, Node};

/// The nodes of a cell that nobody used before.
pub(crate) struct Cell {
    pub(crate) nodes: Vec<Node>,
    pub(crate) addresses: Vec<String>,
}

/// What node `id` of a cell with these members is told.
pub(crate) fn config(addresses: &[String], id: u16) -> Config {
    let config = Config::new("test", id).max_lease(Duration::from_secs(60)).ephemeral();
    addresses.iter().zip(1..).fold(config, |config, (address, id)| config.peer(id, address))
}

/// Starts `size` members, each configured further by `with`.
pub(crate) fn start(size: u16, with: impl Fn(Config) -> Config) -> Cell {
    let listeners: Vec<TcpListener> =
        (0..size).map(|_| TcpListener::bind("127.0.0.1:0").expect("a port")).collect();
    let addresses: Vec<String> =
        listeners.iter().map(|l| l.local_addr().expect("bound").to_string()).collect();
    let nodes = listeners.into_iter().zip(1..).map(|(listener, id)| {
        block_on(Node::start_on(with(config(&addresses, id)), listener)).expect("starts")
    });
    let nodes: Vec<Node> = nodes.collect();
    for node in &nodes {
        block_on(node.ready()).expect("reaches a majority");
    }
    Cell { nodes, addresses }
}
