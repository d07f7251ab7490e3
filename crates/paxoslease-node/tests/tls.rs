//! Cells whose members speak mutual TLS, on loopback sockets.

mod cell;

use std::fs;
use std::path::Path;
use std::time::Duration;

use paxoslease_node::block_on;
use paxoslease_node::{Config, Node, Role, StartError, Tls};
use paxoslease_tls::{Authority, rcgen};

const TTL: Duration = Duration::from_secs(5);

/// Files for a node.
fn certify(authority: &Authority, node: u16) -> Tls {
    certify_until(authority, node, 4000)
}

/// The same, with the year in which its certificate ends.
fn certify_until(authority: &Authority, node: u16, year: i32) -> Tls {
    let name = Tls::node_name("test", node).expect("a label");
    let end = rcgen::date_time_ymd(year, 1, 1);
    let [cert, key, ca] = authority.files(&[&name], |params| params.not_after = end);
    Tls::new(cert, key, ca)
}

fn with_tls(authority: &Authority) -> impl Fn(Config) -> Config {
    |config| {
        let tls = certify(authority, config.node);
        config.tls(tls).shards(2)
    }
}

#[test]
fn members_with_certificates_grant_leases_on_every_shard() {
    let authority = Authority::new();
    let cell = cell::start(3, with_tls(&authority));
    for number in 0..20 {
        let name = format!("jobs/{number}");
        let lease = cell.nodes[number % 3].acquire(&name, TTL).blocking().expect("granted");
        lease.release_blocking().expect("released");
    }
}

#[test]
fn whoever_has_no_certificate_of_the_authority_is_refused() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let cell = cell::start(3, with_tls(&authority));
    let proposer = |config: Config| config.role(Role::Proposer).shards(2);
    let plain = proposer(cell::config(&cell.addresses, 8));
    let strange = proposer(cell::config(&cell.addresses, 9).tls(certify(&stranger, 9)));
    for config in [plain, strange] {
        let node = Node::start_blocking(config).expect("starts");
        let problem = loop {
            let status = block_on(node.status()).expect("runs");
            assert!(!status.ready && status.peers.iter().all(|peer| !peer.up));
            if let Some(problem) = status.peers.iter().find_map(|peer| peer.problem.clone()) {
                break problem;
            }
            std::thread::yield_now();
        };
        assert!(!problem.is_empty(), "{problem}");
    }
    let lease = cell.nodes[0].acquire("x", TTL).blocking();
    assert!(lease.is_ok(), "and the cell goes on");
}

#[test]
fn certificates_of_another_authority_are_taken_over_while_leases_are_held() {
    let (before, after) = (Authority::new(), Authority::new());
    let cell = cell::start(3, with_tls(&before));
    let lease = cell.nodes[0].acquire("x", TTL).blocking().expect("granted");
    let both = before.folder.join("both.pem");
    let ca = |authority: &Authority| fs::read_to_string(authority.folder.join("ca.pem"));
    let bundle = [ca(&before).expect("written"), ca(&after).expect("written")].concat();
    fs::write(&both, bundle).expect("written");
    let trusting_both = |mut tls: Tls| {
        tls.ca.clone_from(&both);
        tls
    };
    let proposer = |id, tls: Tls| {
        let config = cell::config(&cell.addresses, id).role(Role::Proposer).shards(2);
        Node::start_blocking(config.tls(trusting_both(tls))).expect("starts")
    };
    let early = proposer(8, certify(&after, 8));
    while block_on(early.status()).expect("runs").peers.iter().all(|peer| peer.problem.is_none()) {
        std::thread::yield_now();
    }
    assert!(!block_on(early.status()).expect("runs").ready, "nobody knows that authority yet");
    for (node, id) in cell.nodes.iter().zip(1..) {
        let other_id = node.reload_tls(&certify(&after, id + 1)).expect_err("of another node");
        assert!(other_id.to_string().contains("is not valid for node-"), "{other_id}");
        node.reload_tls(&trusting_both(certify(&before, id))).expect("good files");
    }
    block_on(early.ready()).expect("it is let in by and by");
    block_on(proposer(9, certify(&after, 9)).ready()).expect("and so is who comes later");
    assert!(lease.is_held(), "no connection between members was cut");
    lease.release_blocking().expect("released");
}

/// As SECURITY.md has it, with a restart of a node after each step.
#[test]
fn an_authority_is_replaced_step_by_step_and_a_node_may_restart_at_any_of_them() {
    let (before, after) = (Authority::new(), Authority::new());
    let mut cell = cell::start(3, with_tls(&before));
    let pem = |authority: &Authority| fs::read(authority.folder.join("ca.pem")).expect("written");
    let both = before.folder.join("both.pem");
    fs::write(&both, [pem(&before), pem(&after)].concat()).expect("written");
    let trusting = |ca: &Path, mut tls: Tls| {
        tls.ca = ca.to_owned();
        tls
    };
    let alone = after.folder.join("ca.pem");
    let steps = [(&both, &before), (&both, &after), (&alone, &after)];
    for (ca, signer) in steps {
        for (node, id) in cell.nodes.iter().zip(1..) {
            node.reload_tls(&trusting(ca, certify(signer, id))).expect("taken over");
        }
        cell.nodes[2].shutdown_blocking();
        let config = cell::config(&cell.addresses, 3).shards(2);
        let config = config.tls(trusting(ca, certify(signer, 3)));
        cell.nodes[2] = Node::start_blocking(config).expect("starts");
        block_on(cell.nodes[2].ready()).expect("its peers take it, and it takes them");
    }
    let lease = cell.nodes[2].acquire("x", TTL).blocking().expect("granted");
    lease.release_blocking().expect("released");
}

#[test]
fn files_that_every_peer_would_refuse_are_not_taken_over() {
    let (authority, other) = (Authority::new(), Authority::new());
    let cell = cell::start(3, with_tls(&authority));
    let expired = cell.nodes[0].reload_tls(&certify_until(&authority, 1, 2020));
    let text = expired.expect_err("it has ended").to_string();
    assert!(text.contains("node-1.") && text.contains("days ago"), "{text}");
    let mut unsigned = certify(&other, 1);
    unsigned.ca = authority.folder.join("ca.pem");
    let text = cell.nodes[0].reload_tls(&unsigned).expect_err("not signed by it").to_string();
    assert!(text.contains("node-1.") && text.contains("ca.pem has signed it"), "{text}");
    // Whoever comes now is shown the certificate that was there before.
    let config = cell::config(&cell.addresses, 9).role(Role::Proposer).shards(2);
    let newcomer = Node::start_blocking(config.tls(certify(&authority, 9))).expect("starts");
    let first = || block_on(newcomer.status()).expect("runs").peers.swap_remove(0);
    while !first().up {
        assert_eq!((first().node, first().problem), (1, None));
    }
}

#[test]
fn a_node_whose_certificate_has_ended_does_not_start() {
    let authority = Authority::new();
    let config = cell::config(&["127.0.0.1:1".to_owned()], 1);
    let refused = Node::start_blocking(config.tls(certify_until(&authority, 1, 2020)));
    let text = refused.expect_err("refused").to_string();
    assert!(text.contains("node-1.") && text.contains("make a new one"), "{text}");
}

#[test]
fn a_certificate_of_another_node_does_not_start() {
    let authority = Authority::new();
    let config = cell::config(&["127.0.0.1:1".to_owned()], 1).tls(certify(&authority, 2));
    let refused = Node::start_blocking(config).expect_err("refused");
    assert!(matches!(refused, StartError::Tls(_)), "{refused}");
    assert!(refused.to_string().contains("node-1.test.paxoslease"), "{refused}");
}

#[test]
fn a_missing_certificate_is_named() {
    let missing = Path::new("/nonexistent/node.pem");
    let config = cell::config(&["127.0.0.1:1".to_owned()], 1);
    let refused = Node::start_blocking(config.tls(Tls::new(missing, missing, missing)));
    let text = refused.expect_err("refused").to_string();
    assert!(text.contains("/nonexistent/node.pem"), "{text}");
}
