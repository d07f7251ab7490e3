//! Certificates and tokens that change while connections stand and leases are held.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::SocketAddr;
use std::sync::Arc;

use paxoslease_server::{Access, ClientTls, Config, Lasting, ReloadError, Server, Verb};
use paxoslease_tls::Authority;
use rustls::ClientConfig;

use crate::support::{Client, Wire, ask_http, daemon, entry, files, metric, wait_for_metric};

/// A daemon, and the configuration it was started with.
struct Running {
    server: Server,
    config: Config,
}

impl Running {
    fn start(with: impl FnOnce(&mut Config)) -> Self {
        let mut kept = None;
        let server = daemon(|config| {
            with(config);
            kept = Some(config.clone());
        });
        Self { server, config: kept.expect("it was configured") }
    }

    fn with_access(access: Vec<Access>) -> Self {
        Self::start(|config| config.access = access)
    }

    fn change(&mut self, change: impl FnOnce(&mut Config)) {
        change(&mut self.config);
        self.server.reload(|| Ok(self.config.clone())).expect("reloaded");
    }
}

fn both() -> Vec<Access> {
    let everything = [Verb::Acquire, Verb::Read, Verb::Admin];
    vec![entry("old", &["*"], &everything), entry("ops", &["*"], &everything)]
}

#[test]
fn a_token_that_was_taken_out_is_refused_on_connections_that_stand() {
    let mut running = Running::with_access(both());
    let (mut old, mut ops) =
        (Client::with(&running.server, "old"), Client::with(&running.server, "ops"));
    let fence = old.acquire("a");
    running.change(|config| config.access[0] = entry("new", &["*"], &[Verb::Acquire]));
    assert!(old.ask("LEASE.GET a").starts_with("NOAUTH"), "refused from then on");
    assert!(old.ask("AUTH old").starts_with("NOAUTH"));
    assert_eq!(ops.ask(&format!("LEASE.RENEW a {fence} 15000")), "15000", "no lease is lost");
    assert_eq!(old.ask("AUTH new"), "OK", "on the same connection");
    old.acquire("c");
    let series = "paxoslease_reloads_total{result=\"done\"}";
    assert_eq!(metric(&running.server, Wire::plain, series), 1.0);
}

#[test]
fn who_waits_with_a_token_that_was_taken_out_waits_no_longer() {
    let mut running = Running::with_access(both());
    let address = running.server.http().expect("listens");
    let mut ops = Client::with(&running.server, "ops");
    ops.acquire("a");
    let mut old = Client::with(&running.server, "old");
    old.send("LEASE.ACQUIRE a 15000 WAIT 600000").expect("sends");
    let mut pushed = Client::with(&running.server, "old");
    assert!(pushed.ask("HELLO 3").contains("proto:3"));
    assert_eq!(pushed.ask("LEASE.ACQUIRE a 15000 WAIT 600000 NOTIFY x"), "QUEUED");
    let by_http = std::thread::spawn(move || {
        let body = Some(r#"{"ttl":"15s","wait":"600s"}"#);
        ask_http(Wire::plain(address), "POST /v1/leases/a/acquire", Some("old"), body)
    });
    let waiters =
        || paxoslease_node::block_on(running.server.node().status()).expect("runs").waiters;
    while waiters() < 3 {
        std::thread::yield_now();
    }
    running.change(|config| drop(config.access.remove(0)));
    let refused = old.next().expect("an answer");
    assert!(refused.starts_with("NOAUTH the acquire was taken back"), "{refused}");
    assert_eq!(pushed.next().expect("a push"), "[lease.timeout x]");
    let (status, refused) = by_http.join().expect("answered");
    assert_eq!(status, 401, "{refused}");
    while paxoslease_node::block_on(running.server.node().status()).expect("runs").waiters > 0 {
        std::thread::yield_now();
    }
}

#[test]
fn a_watch_by_resp_ends_with_its_token_or_when_it_may_not_read_any_more() {
    let everything = [Verb::Acquire, Verb::Read];
    let old = entry("old", &["jobs/*", "deploy"], &everything);
    let mut running = Running::with_access(vec![old, entry("ops", &["*"], &everything)]);
    let watch = |server: &Server, pattern: &str| {
        let mut client = Client::with(server, "old");
        assert_eq!(client.ask(&format!("LEASE.WATCH {pattern}")), "OK");
        client
    };
    let mut ops = Client::with(&running.server, "ops");
    ops.acquire("deploy");
    let mut blind = watch(&running.server, "jobs/*");
    // What waits on such a connection cannot be heard of either.
    blind.send("LEASE.ACQUIRE deploy 15000 WAIT 600000").expect("sends");
    while paxoslease_node::block_on(running.server.node().status()).expect("runs").waiters < 1 {
        std::thread::yield_now();
    }
    let mut seeing = watch(&running.server, "deploy");
    running.change(|config| {
        config.access[0] = entry("old", &["jobs/*", "deploy"], &[Verb::Acquire]);
        config.access.push(entry("old", &["deploy"], &[Verb::Read]));
    });
    for _ in ["to the acquire", "to the watch"] {
        let told = blind.next().expect("a word");
        let expected = "NOPERM a watch ends, and the connection with it: the token of \"old's\" may \
                        not read \"jobs/\"; ";
        assert!(told.starts_with(expected), "{told}");
    }
    blind.is_hung_up_on();
    assert_eq!(seeing.ask("ECHO x"), "x", "and others go on");

    running.change(|config| config.access.retain(|entry| entry.name.as_deref() != Some("old's")));
    let told = seeing.next().expect("a word");
    assert!(told.starts_with("NOAUTH a watch ends, and the connection with it: "), "{told}");
    seeing.is_hung_up_on();
}

#[test]
fn a_watch_by_http_ends_with_its_token() {
    let mut running = Running::with_access(both());
    let mut wire = Wire::plain(running.server.http().expect("listens"));
    let head = "GET /v1/watch HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
                authorization: Bearer old\r\n\r\n";
    wire.write_all(head.as_bytes()).expect("sends");
    let mut watched = BufReader::new(wire).lines().map(|line| line.expect("text"));
    assert!(watched.any(|line| line == ": watching"), "it has begun");
    running.change(|config| drop(config.access.remove(0)));
    // A stream that goes on would keep this waiting, or break off.
    assert_eq!(watched.last().as_deref(), Some(""), "it ended in good order");
}

#[test]
fn a_token_that_is_taken_out_while_a_body_is_on_its_way_changes_nothing_any_more() {
    let mut running = Running::with_access(both());
    let fence = Client::with(&running.server, "ops").acquire("a");
    let address = running.server.http().expect("listens");
    let begin = |action: &str, body: String| {
        let mut wire = Wire::plain(address);
        let len = body.len();
        let head = format!(
            "POST /v1/leases/a/{action} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
             authorization: Bearer old\r\nexpect: 100-continue\r\n\
             content-type: application/json\r\ncontent-length: {len}\r\n\r\n"
        );
        wire.write_all(head.as_bytes()).expect("sends");
        let mut told = [0; 25];
        wire.read_exact(&mut told).expect("the body is waited for");
        assert_eq!(&told, b"HTTP/1.1 100 Continue\r\n\r\n");
        (wire, body)
    };
    let begun = [
        begin("renew", format!(r#"{{"fence":"{fence}","ttl":"15s"}}"#)),
        begin("release", format!(r#"{{"fence":"{fence}"}}"#)),
    ];
    running.change(|config| drop(config.access.remove(0)));
    for (mut wire, body) in begun {
        wire.write_all(body.as_bytes()).expect("sends");
        let mut reply = String::new();
        wire.read_to_string(&mut reply).expect("text");
        assert!(reply.starts_with("HTTP/1.1 401"), "{reply}");
    }
    let renewed = Client::with(&running.server, "ops").ask(&format!("LEASE.RENEW a {fence} 15000"));
    assert_eq!(renewed, "15000", "it was not released");
}

#[test]
fn a_gate_can_be_shut_but_opened_by_a_restart_alone() {
    let mut running = Running::with_access(Vec::new());
    let mut client = Client::of(&running.server);
    let fence = client.acquire("a");
    running.change(|config| config.access = both());
    assert!(client.ask(&format!("LEASE.RENEW a {fence} 15000")).starts_with("NOAUTH"));
    assert_eq!(client.ask("AUTH ops"), "OK");
    assert_eq!(client.ask(&format!("LEASE.RENEW a {fence} 15000")), "15000");
    // As a file looks of which only the beginning was written yet.
    running.config.access.clear();
    let refused = running.server.reload(|| Ok(running.config.clone())).expect_err("refused");
    assert!(matches!(refused, ReloadError::Restart(Lasting::Tokens)), "{refused}");
    assert!(refused.to_string().contains("keep at least one entry, or restart"), "{refused}");
    client.acquire("b");
    assert!(Client::of(&running.server).ask("LEASE.GET a").starts_with("NOAUTH"));
    let address = running.server.http().expect("listens");
    assert_eq!(ask_http(Wire::plain(address), "GET /v1/leases", None, None).0, 401);
}

#[test]
fn new_connections_get_new_certificates_and_old_ones_go_on() {
    let (before, after) = (Authority::new(), Authority::new());
    let mut running = Running::start(|config| {
        (config.node.tls, config.client_tls) = (Some(files(&before)), ClientTls::Server);
    });
    let address = running.server.clients().expect("listens");
    let connect =
        |config: &Arc<ClientConfig>| Client::over(Wire::tls(address, config)).try_ask("PING");
    let mut old = Client::over(Wire::tls(address, &before.client(None)));
    let fence = old.acquire("a");
    assert!(connect(&after.client(None)).is_err());
    running.change(|config| config.node.tls = Some(files(&after)));
    assert_eq!(connect(&after.client(None)).expect("trusted now"), "PONG");
    assert!(connect(&before.client(None)).is_err(), "and the old one is gone");
    assert_eq!(old.ask(&format!("LEASE.RENEW a {fence} 15000")), "15000");
    let healthy = Wire::tls(running.server.http().expect("listens"), &after.client(None));
    assert_eq!(ask_http(healthy, "GET /healthz", None, None).0, 200);
}

#[test]
fn what_cannot_be_used_leaves_everything_as_it_was() {
    let authority = Authority::new();
    let running = Running::start(|config| {
        config.access = both();
        (config.node.tls, config.client_tls) = (Some(files(&authority)), ClientTls::Server);
    });
    let Running { server, config } = &running;
    let refuse = |change: &dyn Fn(&mut Config)| {
        let mut changed = config.clone();
        changed.access.remove(0);
        change(&mut changed);
        server.reload(|| Ok(changed)).expect_err("refused")
    };
    let no_file = server.reload(|| Err("no such file".into())).expect_err("refused");
    assert!(matches!(no_file, ReloadError::Read(_)), "{no_file}");
    let in_clear = refuse(&|config| config.client_tls = ClientTls::Off);
    assert!(matches!(in_clear, ReloadError::Restart(Lasting::Tls)), "{in_clear}");
    assert!(matches!(refuse(&|config| config.node.shards = Some(0)), ReloadError::Config(_)));
    let key = authority.folder.join("node-1.test.paxoslease.key");
    let good = fs::read(&key).expect("a file");
    fs::write(&key, "not a key").expect("written");
    let broken = refuse(&|_| {});
    assert!(matches!(broken, ReloadError::Tls(_)), "{broken}");
    assert!(
        broken.to_string().contains("paxoslease.key") && !broken.to_string().contains("not a key")
    );
    fs::write(&key, good).expect("written");

    let trusting = authority.client(None);
    let connect = |address: SocketAddr| Wire::tls(address, &trusting);
    let mut client = Client::over(connect(server.clients().expect("listens")));
    assert!(client.ask("LEASE.GET a").starts_with("NOAUTH"), "the gate is as it was");
    assert_eq!(client.ask("AUTH old"), "OK");
    wait_for_metric(server, connect, "paxoslease_reloads_total{result=\"failed\"}", 4.0);
}

#[test]
fn what_only_a_restart_would_take_over_is_told() {
    let running = Running::with_access(both());
    let mut changed = running.config.clone();
    let same = running.server.reload(|| Ok(changed.clone())).expect("reloaded");
    assert_eq!((same.access, same.needs_restart), (2, false));
    changed.node.limits.leases = 7;
    changed.access.pop();
    let other = running.server.reload(|| Ok(changed)).expect("reloaded");
    assert_eq!((other.access, other.needs_restart), (1, true));
}
