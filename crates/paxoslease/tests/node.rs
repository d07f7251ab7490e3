//! Real nodes on loopback sockets, in one process.

use std::net::TcpListener;
use std::time::Duration;

use paxoslease::{AcquireError, Config, LeaseState, Node};

const TTL: Duration = Duration::from_secs(5);

/// A cell of members, each with `shards` threads and no disk, that nobody used before.
struct Cell {
    nodes: Vec<Node>,
    addresses: Vec<String>,
}

fn config(addresses: &[String], id: u16) -> Config {
    let mut config = Config::new("test", id).max_lease(Duration::from_secs(60)).new_cell(true);
    for (index, address) in addresses.iter().enumerate() {
        config = config.peer(index as u16 + 1, address);
    }
    config
}

fn cell(size: u16, shards: u16) -> Cell {
    let listeners: Vec<TcpListener> =
        (0..size).map(|_| TcpListener::bind("127.0.0.1:0").expect("a port")).collect();
    let addresses: Vec<String> =
        listeners.iter().map(|l| l.local_addr().expect("bound").to_string()).collect();
    let nodes = listeners
        .into_iter()
        .zip(1..)
        .map(|(listener, id)| {
            let config = config(&addresses, id).shards(shards);
            pollster::block_on(Node::start_on(config, listener)).expect("starts")
        })
        .collect();
    Cell { nodes, addresses }
}

impl Cell {
    async fn ready(&self) {
        for node in &self.nodes {
            node.ready().await.expect("runs");
        }
    }
}

#[test]
fn a_lease_is_held_by_one_and_moves_on_release() {
    pollster::block_on(async {
        let cell = cell(3, 1);
        cell.ready().await;
        let lease = cell.nodes[0].acquire("master", TTL).holder("one").await.expect("granted");
        assert!(lease.is_held() && lease.remaining() <= TTL);
        assert_eq!((lease.name(), lease.holder(), lease.state()), ("master", "one", LeaseState::Held));
        let refused = cell.nodes[1].try_acquire("master", TTL).await.expect_err("held");
        assert!(matches!(refused, AcquireError::Held { ref holder, .. } if holder == "one"));
        let seen = cell.nodes[2].inspect("master").await.expect("a quorum").expect("held");
        assert_eq!((seen.fence, seen.holder.as_str()), (lease.fence(), "one"));
        let fence = lease.fence();
        lease.release().await.expect("released");
        let next = cell.nodes[2].acquire("master", TTL).await.expect("free");
        assert!(next.fence() > fence);
        for node in &cell.nodes {
            node.shutdown().await;
        }
        assert_eq!(next.state(), LeaseState::Lost, "its node left");
    });
}

#[test]
fn names_are_spread_over_shards_that_connect_to_their_likes() {
    pollster::block_on(async {
        let cell = cell(3, 3);
        cell.ready().await;
        let mut leases = Vec::new();
        for number in 0..50 {
            let name = format!("jobs/{number}");
            leases.push(cell.nodes[number % 3].acquire(&name, TTL).await.expect("granted"));
        }
        let status = cell.nodes[0].status().await.expect("runs");
        assert!(status.ready && status.leases == 50, "{status:?}");
        assert!(status.peers.iter().all(|peer| peer.up));
    });
}

#[test]
fn a_proposer_takes_leases_without_a_vote() {
    pollster::block_on(async {
        let cell = cell(3, 2);
        let config = config(&cell.addresses, 7).role(paxoslease::Role::Proposer).shards(2);
        let proposer = Node::start(config).await.expect("starts");
        proposer.ready().await.expect("reaches a majority");
        let lease = proposer.acquire("x", TTL).await.expect("granted");
        assert!(cell.nodes[0].try_acquire("x", TTL).await.is_err());
        lease.release().await.expect("released");
        assert!(cell.nodes[0].try_acquire("x", TTL).await.is_ok());
    });
}
