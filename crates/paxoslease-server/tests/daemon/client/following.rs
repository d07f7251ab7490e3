//! Clients follow the members of a cell: the endpoint in their configuration is the first contact.

use std::net::TcpListener;
use std::time::Duration;

use paxoslease_client::{Client, LeaseGuard, LeaseState};
use paxoslease_rig::Folder;
use paxoslease_server::Server;

use crate::harness::{Cell, Daemon, PATIENCE, until};

const TTL: Duration = Duration::from_secs(8);

/// Three daemons whose members can change.
fn cell(folder: &Folder) -> Cell {
    Cell::three_with(|config| {
        let data_dir = folder.join(config.node.node.to_string());
        (config.node.ephemeral, config.node.new_cell) = (false, true);
        config.node.data_dir = Some(data_dir);
    })
}

/// A daemon that is not a member of the cell yet, and its address for peers.
fn newcomer(cell: &Cell, folder: &Folder) -> (Daemon, String) {
    let socket = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = socket.local_addr().expect("bound").to_string();
    let mut config = cell[0].config.clone();
    config.node.node = 4;
    config.node = config.node.peer(4, &address).new_cell(false).data_dir(folder.join("4"));
    let server = Server::start_on(config.clone(), Some(socket)).expect("starts");
    (Daemon { server, config }, address)
}

/// A client that knows only this daemon.
fn client_of(daemon: &Daemon) -> Client {
    let builder = Client::builder().endpoints(&daemon.resp().to_string());
    builder.connect_timeout(PATIENCE).request_timeout(PATIENCE).build().expect("a client")
}

/// Waits for the next renewal.
fn renewed(lease: &mut LeaseGuard) {
    let renewals = lease.renewals();
    while lease.renewals() == renewals && lease.changed_blocking() != LeaseState::Lost {}
    assert!(lease.is_held(), "{lease:?}");
}

#[test]
fn a_client_goes_on_without_the_only_node_that_it_knew() {
    let folder = Folder::new("following").expect("a folder");
    let mut cell = cell(&folder);
    let client = client_of(&cell[0]);
    let mut lease = client.acquire("x", TTL).blocking().expect("granted");
    // Without node 1 both others are needed, and a grant shows only that one of them has it.
    for node in [1, 2] {
        cell[node].wait_for_metric("paxoslease_leases", 1.0);
    }
    cell.0.remove(0).server.shutdown();
    renewed(&mut lease);
    assert_ne!(client.status_blocking().expect("answered").node, 1);
}

#[test]
fn a_lease_outlives_all_members_that_its_client_knew() {
    let folder = Folder::new("following").expect("a folder");
    let cell = cell(&folder);
    let client = client_of(&cell[0]);
    let mut lease = client.acquire("x", TTL).blocking().expect("granted");
    let (newcomer, address) = newcomer(&cell, &folder);
    let mut admin = cell[0].client3();
    until("the change begins", || {
        // It is refused until the newcomer is connected to all members.
        let answer = admin.ask(&format!("CELL.MEMBERS set 4={address} YES"));
        answer.starts_with('{') || cell[0].status().change.is_some()
    });
    for daemon in [&cell[0], &newcomer] {
        until("the change ends", || {
            let status = daemon.status();
            status.members == [4] && status.change.is_none()
        });
    }
    // The node has pushed that the members changed. So the client asks for them after the first
    // reply, and knows them after the second.
    for _ in 0..2 {
        client.get_blocking("x").expect("answered");
    }
    cell.0.into_iter().for_each(|daemon| daemon.server.shutdown());
    renewed(&mut lease);
    assert_eq!(client.status_blocking().expect("answered").node, 4);
    lease.release_blocking().expect("confirmed");
}
