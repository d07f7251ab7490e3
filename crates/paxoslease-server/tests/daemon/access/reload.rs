//! Certificates that change while connections are open and leases are held.

use std::fs;

use paxoslease_server::{ClientTls, Config, Lasting, ReloadError, Verb};
use paxoslease_tls::Authority;

use crate::harness::{Cell, Client, Wire, entry, line_of, new_path, tls_files};

#[test]
fn new_connections_get_new_certificates_and_old_ones_go_on() {
    let (before, after) = (Authority::new(), Authority::new());
    let (trusts_before, trusts_after) = (before.client(None), after.client(None));
    let mut cell = Cell::one_with(|config| {
        (config.node.tls, config.client_tls) = (Some(tls_files(&before)), ClientTls::Server);
    });
    let mut old = Client::over(Wire::tls(cell[0].resp(), &trusts_before));
    let fence = old.acquire("a");
    assert!(cell[0].ping(&trusts_after).is_err());
    cell[0].reload(|config| config.node.tls = Some(tls_files(&after)));
    assert_eq!(cell[0].ping(&trusts_after).expect("trusted now"), "+PONG");
    assert!(cell[0].ping(&trusts_before).is_err(), "and the old one is gone");
    assert_eq!(old.ask(&format!("LEASE.RENEW a {fence} 15000")), ":15000");
    assert!(cell[0].is_healthy(&trusts_after));
}

#[test]
fn a_configuration_that_cannot_be_used_changes_nothing() {
    let authority = Authority::new();
    let cell = Cell::one_with(|config| {
        config.access = ["old", "ops"].map(|token| entry(token, &["*"], &[Verb::Read])).into();
        (config.node.tls, config.client_tls) = (Some(tls_files(&authority)), ClientTls::Server);
    });
    let refuse = |change: &dyn Fn(&mut Config)| {
        let mut changed = cell[0].config.clone();
        changed.access.remove(0);
        change(&mut changed);
        cell[0].server.reload(|| Ok(changed)).expect_err("refused")
    };
    let no_file = cell[0].server.reload(|| Err("no such file".into())).expect_err("refused");
    assert!(matches!(no_file, ReloadError::Read(_)), "{no_file}");
    let in_clear = refuse(&|config| config.client_tls = ClientTls::Off);
    assert!(matches!(in_clear, ReloadError::Restart(Lasting::Tls)), "{in_clear}");
    assert!(matches!(refuse(&|config| config.node.shards = 0), ReloadError::Config(_)));
    let key = authority.folder.join("node-1.test.paxoslease.key");
    let good = fs::read(&key).expect("a file");
    fs::write(&key, "not a key").expect("written");
    let broken = refuse(&|_| {});
    assert!(matches!(broken, ReloadError::Tls(_)), "{broken}");
    let broken = broken.to_string();
    assert!(broken.contains("paxoslease.key") && !broken.contains("not a key"), "{broken}");
    fs::write(&key, good).expect("written");

    let mut client = Client::over(Wire::tls(cell[0].resp(), &authority.client(None)));
    assert!(client.ask("LEASE.GET a").starts_with("-NOAUTH"), "tokens are still required");
    assert_eq!(client.ask("AUTH old"), "+OK");
    assert_eq!(cell[0].metric("paxoslease_reloads_total{result=\"failed\"}"), 4.0);
}

#[test]
fn a_reload_that_fails_still_opens_the_audit_log_anew() {
    let path = new_path("audit");
    let cell = Cell::one_with(|config| config.audit = Some(path.clone()));
    let mut client = cell[0].client();
    client.acquire("before");
    assert!(line_of(&path, 0).contains("\"name\":\"before\""));
    let rotated = path.with_extension("rotated");
    fs::rename(&path, &rotated).expect("it is there");
    cell[0].server.reload(|| Err("no such file".into())).expect_err("refused");
    client.acquire("after");
    assert!(line_of(&path, 0).contains("\"name\":\"after\""));
    assert_eq!(fs::read_to_string(rotated).expect("kept").lines().count(), 1);
}
