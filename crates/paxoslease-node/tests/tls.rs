//! Cells whose members use mutual TLS, on loopback sockets.

mod cell;

use std::fs;
use std::path::{Path, PathBuf};

use cell::{Cell, certify, config, status, take, until};
use paxoslease_node::{Config, Node, Role, StartError, Tls, block_on};
use paxoslease_tls::{Authority, rcgen};

/// Files for a node whose certificate has expired.
fn expired(authority: &Authority, node: u16) -> Tls {
    let name = Tls::node_name("test", node, Role::Member).expect("a label");
    let end = rcgen::date_time_ymd(2020, 1, 1);
    let [cert, key, ca] = authority.files(&[&name], |params| params.not_after = end);
    Tls::new(cert, key, ca)
}

/// The same files, but these authorities are trusted.
fn trusting(ca: &Path, tls: Tls) -> Tls {
    Tls::new(tls.cert, tls.key, ca)
}

/// A file with both authorities.
fn both(one: &Authority, other: &Authority) -> PathBuf {
    let pem = |authority: &Authority| fs::read(authority.folder.join("ca.pem")).expect("written");
    let file = one.folder.join("both.pem");
    fs::write(&file, [pem(one), pem(other)].concat()).expect("written");
    file
}

fn three(authority: &Authority) -> Cell {
    cell::start(3, |config| cell::with_tls(authority, config).shards(2))
}

fn start(config: Config) -> Node {
    Node::start_blocking(config.shards(2)).expect("starts")
}

/// The problem of a peer, once there is one.
fn problem(node: &Node) -> String {
    let mut problem = None;
    until("a peer has a problem", || {
        let status = status(node);
        assert!(!status.ready && status.peers.iter().all(|peer| !peer.up));
        problem = status.peers.into_iter().find_map(|peer| peer.problem);
        problem.is_some()
    });
    problem.expect("it was found")
}

#[test]
fn certificates_are_replaced_while_leases_are_held() {
    let (before, after) = (Authority::new(), Authority::new());
    let cell = three(&before);
    let lease = take(&cell.nodes[0], "x");
    let both = both(&before, &after);
    let proposer =
        |id| start(cell.proposer(id).tls(trusting(&both, certify(&after, id, Role::Proposer))));
    let early = proposer(8);
    problem(&early);
    for (node, id) in cell.nodes.iter().zip(1..) {
        let other_id =
            node.reload_tls(&certify(&after, id + 1, Role::Member)).expect_err("of another node");
        assert!(other_id.to_string().contains("is not valid for node-"), "{other_id}");
        node.reload_tls(&trusting(&both, certify(&before, id, Role::Member))).expect("good files");
    }
    block_on(early.ready()).expect("its next attempt succeeds");
    block_on(proposer(9).ready()).expect("so does a later node");
    assert!(lease.is_held(), "no connection between members was cut");
    lease.release_blocking().expect("released");
}

/// The steps of SECURITY.md, with a restart of a node after each step.
#[test]
fn a_node_may_restart_at_any_step_of_replacing_an_authority() {
    let (before, after) = (Authority::new(), Authority::new());
    let mut cell = three(&before);
    let (both, alone) = (both(&before, &after), after.folder.join("ca.pem"));
    let steps = [(&both, &before), (&both, &after), (&alone, &after)];
    for (ca, signer) in steps {
        for (node, id) in cell.nodes.iter().zip(1..) {
            node.reload_tls(&trusting(ca, certify(signer, id, Role::Member))).expect("reloaded");
        }
        cell.nodes[2].shutdown_blocking();
        cell.nodes[2] =
            start(config(&cell.addresses, 3).tls(trusting(ca, certify(signer, 3, Role::Member))));
        block_on(cell.nodes[2].ready()).expect("its peers accept it, and it accepts them");
    }
    take(&cell.nodes[2], "x").release_blocking().expect("released");
}

#[test]
fn files_that_cannot_be_used_prevent_the_start() {
    let (authority, missing) = (Authority::new(), "/nonexistent/node.pem");
    for (tls, words) in [
        (expired(&authority, 1), "make a new one"),
        (certify(&authority, 2, Role::Member), "node-1.test.paxoslease"),
        (certify(&authority, 1, Role::Proposer), "node-1.test.paxoslease"),
        (Tls::new(missing, missing, missing), missing),
    ] {
        let config = config(&["127.0.0.1:1".to_owned()], 1).tls(tls);
        let refused = Node::start_blocking(config).expect_err(words);
        assert!(matches!(refused, StartError::Tls(_)), "{refused}");
        assert!(refused.to_string().contains(words), "{refused}");
    }
}
