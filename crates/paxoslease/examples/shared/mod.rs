//! A cell of three nodes in this process, for the examples whose other processes join it.

use std::error::Error;
use std::net::TcpListener;
use std::time::Duration;

use paxoslease::{Config, Node};

/// Starts the nodes 1 to 3, and returns their addresses. The cell is new and no node of it starts a
/// second time, so it needs no data folders and no quarantine.
pub(crate) fn start_cell(
    cell: &str,
    ttl: Duration,
) -> Result<(Vec<String>, Vec<Node>), Box<dyn Error>> {
    let (mut listeners, mut members, mut nodes) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..3 {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        members.push(listener.local_addr()?.to_string());
        listeners.push(listener);
    }
    for (id, listener) in (1..).zip(listeners) {
        let config = config(cell, id, ttl, &members).ephemeral();
        nodes.push(paxoslease::block_on(Node::start_on(config, listener))?);
    }
    Ok((members, nodes))
}

/// The settings of a node of this cell.
pub(crate) fn config(cell: &str, id: u16, ttl: Duration, members: &[String]) -> Config {
    let config = Config::new(cell, id).max_lease(ttl);
    (1..).zip(members).fold(config, |config, (id, address)| config.peer(id, address))
}
