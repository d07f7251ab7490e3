//! Certificates and tokens that change while connections are open and leases are held.

use std::fs;
use std::io::{BufRead as _, Read as _};

use paxoslease_server::{Access, ClientTls, Config, Lasting, ReloadError, Verb};
use paxoslease_tls::Authority;

use crate::harness::{Cell, Client, Raw, Wire, entry, tls_files, until};

/// The tokens `old` and `ops` may do everything.
fn both() -> Vec<Access> {
    let everything = [Verb::Acquire, Verb::Read, Verb::Admin];
    vec![entry("old", &["*"], &everything), entry("ops", &["*"], &everything)]
}

fn with_both() -> Cell {
    Cell::one_with(|config| config.access = both())
}

fn without_old(config: &mut Config) {
    config.access.retain(|entry| entry.name.as_deref() != Some("old's"));
}

#[test]
fn a_removed_token_is_refused_on_open_connections() {
    let mut cell = with_both();
    let (mut old, mut ops) = (cell[0].client_with("old"), cell[0].client_with("ops"));
    let fence = old.acquire("a");
    cell[0].reload(|config| config.access[0] = entry("new", &["*"], &[Verb::Acquire]));
    assert!(old.ask("LEASE.GET a").starts_with("-NOAUTH"), "refused from then on");
    assert!(old.ask("AUTH old").starts_with("-NOAUTH"));
    assert_eq!(ops.ask(&format!("LEASE.RENEW a {fence} 15000")), ":15000", "no lease is lost");
    assert_eq!(old.ask("AUTH new"), "+OK", "on the same connection");
    old.acquire("c");
    assert_eq!(cell[0].metric("paxoslease_reloads_total{result=\"done\"}"), 1.0);
}

#[test]
fn acquires_with_a_removed_token_stop_waiting() {
    let mut cell = with_both();
    cell[0].client_with("ops").acquire("a");
    let mut old = cell[0].client_with("old");
    old.send("LEASE.ACQUIRE a 15000 WAIT 600000");
    let mut pushed = cell[0].client_with("old");
    pushed.ask("HELLO 3");
    assert_eq!(pushed.ask("LEASE.ACQUIRE a 15000 WAIT 600000 NOTIFY x"), "+QUEUED");
    let mut http = Raw::connect(cell[0].http());
    let body = r#"{"ttl":"15s","wait":"600s"}"#;
    let headers = format!(
        "authorization: Bearer old\r\ncontent-type: application/json\r\ncontent-length: {}\r\n",
        body.len()
    );
    http.send_head("POST /v1/leases/a/acquire", &headers);
    http.send(body);
    until("all wait", || cell[0].status().waiters == 3);
    cell[0].reload(without_old);
    let refused = old.next();
    assert!(refused.starts_with("-NOAUTH the acquire was withdrawn"), "{refused}");
    assert_eq!(pushed.next(), ">[lease.timeout x]");
    assert_eq!(http.reply().status, 401);
    cell[0].wait_for_no_waiters();
}

#[test]
fn a_watch_over_resp_ends_when_its_token_may_not_read_any_more() {
    let everything = [Verb::Acquire, Verb::Read];
    let mut cell = Cell::one_with(|config| {
        let old = entry("old", &["jobs/*", "deploy"], &everything);
        config.access = vec![old, entry("ops", &["*"], &everything)];
    });
    let watch = |cell: &Cell, pattern: &str| {
        let mut client = cell[0].client_with("old");
        assert_eq!(client.ask(&format!("LEASE.WATCH {pattern}")), "+OK");
        client
    };
    cell[0].client_with("ops").acquire("deploy");
    let mut blind = watch(&cell, "jobs/*");
    // The connection ends, so an acquire that waits on it ends too.
    blind.send("LEASE.ACQUIRE deploy 15000 WAIT 600000");
    until("the acquire waits", || cell[0].status().waiters == 1);
    let mut seeing = watch(&cell, "deploy");
    cell[0].reload(|config| {
        config.access[0] = entry("old", &["jobs/*", "deploy"], &[Verb::Acquire]);
        config.access.push(entry("old", &["deploy"], &[Verb::Read]));
    });
    for _ in ["to the acquire", "to the watch"] {
        let told = blind.next();
        let expected = "-NOPERM a watch ends, and the connection with it: the token of \"old's\" \
                        may not read \"jobs/\"; ";
        assert!(told.starts_with(expected), "{told}");
    }
    blind.expect_close();
    assert_eq!(seeing.ask("ECHO x"), "x", "the other watch goes on");

    cell[0].reload(without_old);
    let told = seeing.next();
    assert!(told.starts_with("-NOAUTH a watch ends, and the connection with it: "), "{told}");
    seeing.expect_close();
}

#[test]
fn a_watch_over_http_ends_with_its_token() {
    let mut cell = with_both();
    let mut raw = Raw::connect(cell[0].http());
    raw.watch("", "connection: close\r\nauthorization: Bearer old\r\n");
    cell[0].reload(without_old);
    // A stream that goes on would keep this waiting, or break off.
    let rest = raw.0.lines().map(|line| line.expect("it is not cut off"));
    assert_eq!(rest.last().as_deref(), Some(""), "it ended in good order");
}

#[test]
fn a_token_that_is_removed_before_the_body_came_changes_nothing() {
    let mut cell = with_both();
    let fence = cell[0].client_with("ops").acquire("a");
    let begin = |action: &str, body: String| {
        let mut raw = Raw::connect(cell[0].http());
        let headers = format!(
            "connection: close\r\nauthorization: Bearer old\r\nexpect: 100-continue\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n",
            body.len()
        );
        raw.send_head(&format!("POST /v1/leases/a/{action}"), &headers);
        let mut told = [0; 25];
        raw.0.read_exact(&mut told).expect("the daemon waits for the body");
        assert_eq!(&told, b"HTTP/1.1 100 Continue\r\n\r\n");
        (raw, body)
    };
    let begun = [
        begin("renew", format!(r#"{{"fence":"{fence}","ttl":"15s"}}"#)),
        begin("release", format!(r#"{{"fence":"{fence}"}}"#)),
    ];
    cell[0].reload(without_old);
    for (mut raw, body) in begun {
        raw.send(&body);
        assert_eq!(raw.reply().status, 401);
    }
    let renewed = cell[0].client_with("ops").ask(&format!("LEASE.RENEW a {fence} 15000"));
    assert_eq!(renewed, ":15000", "it was not released");
}

#[test]
fn a_reload_can_require_tokens_but_not_drop_them() {
    let mut cell = Cell::one();
    let mut client = cell[0].client();
    let fence = client.acquire("a");
    cell[0].reload(|config| config.access = both());
    let renew = format!("LEASE.RENEW a {fence} 15000");
    assert!(client.ask(&renew).starts_with("-NOAUTH"));
    assert_eq!(client.ask("AUTH ops"), "+OK");
    assert_eq!(client.ask(&renew), ":15000");
    // As if only the beginning of the file was written yet.
    let mut truncated = cell[0].config.clone();
    truncated.access.clear();
    let refused = cell[0].server.reload(|| Ok(truncated)).expect_err("refused");
    assert!(matches!(refused, ReloadError::Restart(Lasting::Tokens)), "{refused}");
    assert!(refused.to_string().contains("keep at least one entry, or restart"), "{refused}");
    client.acquire("b");
    assert!(cell[0].client().ask("LEASE.GET a").starts_with("-NOAUTH"));
    assert_eq!(cell[0].get("/v1/leases").status, 401);
}

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
        config.access = both();
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
    assert!(matches!(refuse(&|config| config.node.shards = Some(0)), ReloadError::Config(_)));
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
fn a_reload_says_if_other_settings_need_a_restart() {
    let cell = with_both();
    let mut changed = cell[0].config.clone();
    let same = cell[0].server.reload(|| Ok(changed.clone())).expect("reloaded");
    assert_eq!((same.access, same.needs_restart), (2, false));
    changed.node.limits.leases = 7;
    changed.access.pop();
    let other = cell[0].server.reload(|| Ok(changed)).expect("reloaded");
    assert_eq!((other.access, other.needs_restart), (1, true));
}
