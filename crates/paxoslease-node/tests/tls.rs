//! Cells whose members speak mutual TLS, on loopback sockets.

mod cell;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use paxoslease_node::block_on;
use paxoslease_node::{Config, Node, Role, StartError, Tls};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

const TTL: Duration = Duration::from_secs(5);

/// An authority that signs node certificates, in a folder of its own.
struct Authority {
    folder: PathBuf,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("paxoslease-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let mut params = CertificateParams::new(Vec::new()).expect("valid");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let issuer = CertifiedIssuer::self_signed(params, key).expect("signed");
        fs::write(folder.join("ca.pem"), issuer.pem()).expect("written");
        Self { folder, issuer }
    }

    /// A certificate for a node, and where it is.
    fn certify(&self, node: u16) -> Tls {
        self.certify_until(node, 4000)
    }

    /// The same, and the year in which it ends.
    fn certify_until(&self, node: u16, year: i32) -> Tls {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec![Tls::node_name("test", node).expect("a label")]);
        let mut params = params.expect("valid");
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        let cert = params.signed_by(&key, &self.issuer).expect("signed");
        let write = |name: String, text: String| {
            let path = self.folder.join(name);
            fs::write(&path, text).expect("written");
            fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("a mode");
            path
        };
        let cert = write(format!("{node}.pem"), cert.pem());
        let key = write(format!("{node}.key"), key.serialize_pem());
        Tls::new(cert, key, self.folder.join("ca.pem"))
    }
}

impl Drop for Authority {
    fn drop(&mut self) {
        // A folder left behind in the temporary one does no harm.
        let _left = fs::remove_dir_all(&self.folder);
    }
}

fn with_tls(authority: &Authority) -> impl Fn(Config) -> Config {
    |config| {
        let tls = authority.certify(config.node);
        config.tls(tls).shards(2)
    }
}

#[test]
fn members_with_certificates_grant_leases_on_every_shard() {
    let authority = Authority::new("tls-cell");
    let cell = cell::start(3, with_tls(&authority));
    for number in 0..20 {
        let name = format!("jobs/{number}");
        let lease = cell.nodes[number % 3].acquire(&name, TTL).blocking().expect("granted");
        lease.release_blocking().expect("released");
    }
}

#[test]
fn whoever_has_no_certificate_of_the_authority_is_refused() {
    let (authority, stranger) = (Authority::new("tls-own"), Authority::new("tls-strange"));
    let cell = cell::start(3, with_tls(&authority));
    let proposer = |config: Config| config.role(Role::Proposer).shards(2);
    let plain = proposer(cell::config(&cell.addresses, 8));
    let strange = proposer(cell::config(&cell.addresses, 9).tls(stranger.certify(9)));
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
    let (before, after) = (Authority::new("tls-before"), Authority::new("tls-after"));
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
    let early = proposer(8, after.certify(8));
    while block_on(early.status()).expect("runs").peers.iter().all(|peer| peer.problem.is_none()) {
        std::thread::yield_now();
    }
    assert!(!block_on(early.status()).expect("runs").ready, "nobody knows that authority yet");
    for (node, id) in cell.nodes.iter().zip(1..) {
        let other_id = node.reload_tls(&after.certify(id + 1)).expect_err("of another node");
        assert!(other_id.to_string().contains("is not valid for node-"), "{other_id}");
        node.reload_tls(&trusting_both(before.certify(id))).expect("good files");
    }
    block_on(early.ready()).expect("it is let in by and by");
    block_on(proposer(9, after.certify(9)).ready()).expect("and so is who comes later");
    assert!(lease.is_held(), "no connection between members was cut");
    lease.release_blocking().expect("released");
}

/// As SECURITY.md has it, with a restart of a node after each step.
#[test]
fn an_authority_is_replaced_step_by_step_and_a_node_may_restart_at_any_of_them() {
    let (before, after) = (Authority::new("tls-old"), Authority::new("tls-new"));
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
            node.reload_tls(&trusting(ca, signer.certify(id))).expect("taken over");
        }
        cell.nodes[2].shutdown_blocking();
        let config = cell::config(&cell.addresses, 3).shards(2);
        let config = config.tls(trusting(ca, signer.certify(3)));
        cell.nodes[2] = Node::start_blocking(config).expect("starts");
        block_on(cell.nodes[2].ready()).expect("its peers take it, and it takes them");
    }
    let lease = cell.nodes[2].acquire("x", TTL).blocking().expect("granted");
    lease.release_blocking().expect("released");
}

#[test]
fn files_that_every_peer_would_refuse_are_not_taken_over() {
    let (authority, other) = (Authority::new("tls-good"), Authority::new("tls-bad"));
    let cell = cell::start(3, with_tls(&authority));
    let expired = cell.nodes[0].reload_tls(&authority.certify_until(1, 2020));
    let text = expired.expect_err("it has ended").to_string();
    assert!(text.contains("1.pem") && text.contains("days ago"), "{text}");
    let mut unsigned = other.certify(1);
    unsigned.ca = authority.folder.join("ca.pem");
    let text = cell.nodes[0].reload_tls(&unsigned).expect_err("not signed by it").to_string();
    assert!(text.contains("1.pem") && text.contains("ca.pem has signed it"), "{text}");
    // Whoever comes now is shown the certificate that was there before.
    let config = cell::config(&cell.addresses, 9).role(Role::Proposer).shards(2);
    let newcomer = Node::start_blocking(config.tls(authority.certify(9))).expect("starts");
    let first = || block_on(newcomer.status()).expect("runs").peers.swap_remove(0);
    while !first().up {
        assert_eq!((first().node, first().problem), (1, None));
    }
}

#[test]
fn a_node_whose_certificate_has_ended_does_not_start() {
    let authority = Authority::new("tls-ended");
    let config = cell::config(&["127.0.0.1:1".to_owned()], 1);
    let refused = Node::start_blocking(config.tls(authority.certify_until(1, 2020)));
    let text = refused.expect_err("refused").to_string();
    assert!(text.contains("1.pem") && text.contains("make a new one"), "{text}");
}

#[test]
fn a_certificate_of_another_node_does_not_start() {
    let authority = Authority::new("tls-other");
    let config = cell::config(&["127.0.0.1:1".to_owned()], 1).tls(authority.certify(2));
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
