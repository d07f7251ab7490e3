//! What a configuration may say, and what is answered when it says something else.

use std::time::Duration;

use paxoslease_node::{Config, ConfigError, LoadError, Role, Tls};

const WHOLE: &str = r#"
cell = "prod-eu"
node = 2
role = "member"
max_lease = "1m30s"
clock_drift_ppm = 200
clock_granularity = "4ms"
data_dir = "/var/lib/paxoslease"
shards = 0x10
spin = "50us"

[peers]
1 = "10.0.0.1:7401"
2 = "[fd00::2]:7401"
3 = "node-3.example:7401"

[listen]
peers = "0.0.0.0:7401"
allow_plaintext = true

[tls]
cert = "cert.pem"
key = "key.pem"
ca = "ca.pem"

[timing]
request_timeout = "3s"
attempt_timeout = "250ms"
heartbeat = "1s"
peer_timeout = "2s"

[limits]
leases = 1_000
waiters = 10
inflight = 20
peer_queue_bytes = 524_288
"#;

fn cell() -> Config {
    let config = Config::new("north", 1).peer(1, "a:7401").peer(2, "b:7401").peer(3, "c:7401");
    config.allow_plaintext()
}

#[test]
fn every_key_is_read() {
    let mut expected = Config::new("prod-eu", 2)
        .peer(1, "10.0.0.1:7401")
        .peer(2, "[fd00::2]:7401")
        .peer(3, "node-3.example:7401")
        .max_lease(Duration::from_secs(90))
        .data_dir("/var/lib/paxoslease")
        .listen("0.0.0.0:7401")
        .tls(Tls::new("cert.pem", "key.pem", "ca.pem"))
        .allow_plaintext()
        .shards(16)
        .spin(Duration::from_micros(50));
    expected.clock_drift_ppm = 200;
    expected.clock_granularity = Duration::from_millis(4);
    expected.timing.request_timeout = Duration::from_secs(3);
    expected.timing.attempt_timeout = Duration::from_millis(250);
    expected.timing.heartbeat = Duration::from_secs(1);
    expected.timing.peer_timeout = Duration::from_secs(2);
    expected.limits.leases = 1000;
    expected.limits.waiters = 10;
    expected.limits.inflight = 20;
    expected.limits.peer_queue_bytes = 524_288;
    assert_eq!(Config::from_toml(WHOLE), Ok(expected.clone()));
    assert_eq!(expected.check(), Ok(()));
}

#[test]
fn what_a_text_leaves_out_keeps_its_default() {
    assert_eq!(Config::from_toml(""), Ok(Config::new("", 0)));
    assert_eq!(Config::from_toml("[listen]\n[limits]\n[tls]\n[peers]"), Ok(Config::new("", 0)));
    let proposer = Config::from_toml("role = 'proposer'").expect("valid");
    assert_eq!(proposer, Config::new("", 0).role(Role::Proposer));
}

#[test]
fn a_text_that_is_wrong_is_told_where_and_how() {
    let cases = [
        ("cel = 'x'", "line 1: unknown key `cel`; the nearest known key is `cell`"),
        (
            "\n[tls]\ncert = 'a'\nkey = 'b'\ncrt = 'c'\n",
            "line 5: unknown key `tls.crt`; the nearest known key is `tls.cert`",
        ),
        (
            "heartbeat = '1s'",
            "line 1: unknown key `heartbeat`; the nearest known key is `timing.heartbeat`",
        ),
        (
            "[lissten]\npeers = 'a:1'",
            "line 2: unknown key `lissten.peers`; the nearest known key is `listen.peers`",
        ),
        ("[peer]\n1 = 'a:1'", "line 2: unknown key `peer.1`; the nearest known key is `peers.1`"),
        (
            "\"listen.peers\" = 'a:1'",
            "line 1: unknown key `\"listen.peers\"`; the nearest known key is `listen.peers`",
        ),
        ("new_cell = true", "line 1: unknown key `new_cell`; the nearest known key is `cell`"),
        ("zzz = 1\naaa = 2", "line 1: unknown key `zzz`; the nearest known key is `cell`"),
        (
            "cell = 'x'\nnode = \"1\"",
            "line 2: `node` is the text \"1\"; expected a whole number from 0 to 65535, \
             without quotes",
        ),
        ("node = -1", "line 1: `node` is the number -1; expected a whole number from 0 to 65535"),
        ("node = 1.5", "line 1: `node` is the number 1.5; expected a whole number from 0 to 65535"),
        ("cell = 7", "line 1: `cell` is the number 7; expected text in quotes"),
        (
            "cell.name = 'x'",
            "line 1: `cell` is a table here; expected a single value, `cell = ...`",
        ),
        ("tls = true", "line 1: `tls` is true; expected a table, `[tls]`"),
        ("[[tls]]\ncert = 'a'", "line 1: `tls` is an array; expected a table, `[tls]`"),
        ("data_dir = []", "line 1: `data_dir` is an array; expected a path in quotes"),
        (
            "max_lease = 60",
            "line 1: `max_lease` is the number 60; expected a duration in quotes, such as \"15s\" \
             or \"500ms\"",
        ),
        ("max_lease = '60'", "line 1: `max_lease`: 60 has no unit; write 60s or 60ms"),
        (
            "role = 'voter'",
            "line 1: `role` is the text \"voter\"; expected \"member\" or \"proposer\"",
        ),
        (
            "[peers]\none = 'a:1'",
            "line 2: `peers.one`: a peer's key is its node id, a number from 1 to 1023",
        ),
        (
            "[peers]\n1 = 'a:1'\n01 = 'b:1'",
            "line 3: `peers.01`: a peer's key is its node id, a number from 1 to 1023",
        ),
        ("[peers]\n1 = 7401", "line 2: `peers.1` is the number 7401; expected text in quotes"),
        (
            "[tls]\ncert = 'a'\nca = 'b'",
            "line 2: `tls.key` is missing; give `cert`, `key` and `ca`, or none",
        ),
        (
            "[limits]\nleases = 5_000_000_000",
            "line 2: `limits.leases` is the number 5000000000; expected a whole number from 0 to \
             4294967295",
        ),
        ("cell = 'x'\ncell = 'y'", "line 2: duplicate key, in `cell = 'y'`"),
        (
            "[listen]\nallow_plaintext = 'yes'",
            "line 2: `listen.allow_plaintext` is the text \"yes\"; expected true or false, without \
             quotes",
        ),
    ];
    for (text, message) in cases {
        let error = Config::from_toml(text).expect_err(text);
        assert_eq!(error.to_string(), message, "{text}");
    }
}

#[test]
fn peers_in_clear_beyond_this_machine_need_permission() {
    let loopback = || Config::new("north", 1).peer(1, "127.0.0.1:7401").peer(2, "localhost:7402");
    assert_eq!(loopback().check(), Ok(()));
    for (config, key) in [
        (loopback().peer(2, "10.0.0.2:7401"), "`peers.2` is \"10.0.0.2:7401\", not a loopback"),
        (loopback().listen("0.0.0.0:7401"), "`listen.peers`"),
    ] {
        let refused = config.check().expect_err(key).to_string();
        assert!(refused.starts_with(key), "{refused}");
        assert!(refused.contains("`listen.allow_plaintext` (--insecure-plaintext)"), "{refused}");
        assert_eq!(config.clone().allow_plaintext().check(), Ok(()));
        assert_eq!(config.tls(Tls::new("cert.pem", "key.pem", "ca.pem")).check(), Ok(()));
    }
}

#[test]
fn only_a_cell_of_one_member_can_turn_its_peer_port_off() {
    let alone = Config::new("north", 1).peer(1, "10.0.0.1:7401").listen("off");
    assert_eq!(alone.check(), Ok(()), "nothing is said in clear where nobody listens");
    assert_eq!(alone.listen_for_peers(), None);
    let refused = cell().listen("off").check().expect_err("members must connect").to_string();
    assert!(
        refused.starts_with("`listen.peers` is \"off\", but the cell has 3 members"),
        "{refused}"
    );
    let proposer = Config::new("north", 9).peer(1, "127.0.0.1:7401").role(Role::Proposer);
    let refused = proposer.listen("off").check().expect_err("superfluous").to_string();
    assert!(refused.contains("a proposer connects to the members"), "{refused}");
}

#[test]
fn text_that_is_no_toml_is_refused_with_its_line() {
    for (text, line) in [("node = ", 1), ("node = 1\ncell north\n", 2), ("\n\n[peers\n", 3)] {
        let error = Config::from_toml(text).expect_err(text);
        assert_eq!(error.line(), line, "{error}");
    }
}

#[test]
fn a_file_that_cannot_be_loaded_is_named() {
    let error = Config::load("no/such/node.toml").expect_err("it is not there");
    assert!(matches!(error, LoadError::Read { .. }));
    assert!(error.to_string().contains("no/such/node.toml"), "{error}");
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let error = Config::load(manifest).expect_err("it is no configuration");
    assert!(error.to_string().starts_with(&format!("{manifest}: line ")), "{error}");
    assert!(error.to_string().contains("unknown key `package.name`"), "{error}");
}

/// A valid configuration with one thing changed.
fn refusal(change: impl FnOnce(&mut Config)) -> String {
    let mut config = cell();
    assert_eq!(config.check(), Ok(()));
    change(&mut config);
    config.check().expect_err("it is contradictory").to_string()
}

#[test]
fn who_a_node_is_must_fit_the_cell() {
    assert_eq!(Config::new("north", 1).check(), Err(ConfigError::NoPeers));
    assert_eq!(
        refusal(|config| config.cell.clear()),
        "no cell; set `cell` to the name that all its nodes share"
    );
    assert!(refusal(|config| config.cell = "x".repeat(65)).contains("65 bytes long"));
    assert_eq!(
        refusal(|config| config.node = 0),
        "no node id; set `node` to a number from 1 to 1023, another for each node"
    );
    assert_eq!(
        refusal(|config| config.node = 1024),
        "`node` has the node id 1024; expected 1 to 1023"
    );
    assert_eq!(
        refusal(|config| drop(config.peers.insert(0, "z:1".to_owned()))),
        "`peers` has the node id 0; expected 1 to 1023"
    );
    assert_eq!(
        refusal(|config| config.node = 4),
        "node 4 is a member, but not in `[peers]`, which lists 1, 2, 3; add its address there, \
         correct `node`, or set role = \"proposer\""
    );
    assert_eq!(
        refusal(|config| config.role = Role::Proposer),
        "node 1 is a proposer, but in `[peers]`, which lists members only; give it an id that is \
         not there, or set role = \"member\""
    );
    let crowd = refusal(|config| {
        config.peers.extend((4..=10).map(|id| (id, format!("n{id}:7401"))));
    });
    assert!(crowd.starts_with("a cell has 1 to 9 members, not 10; "), "{crowd}");
}

#[test]
fn addresses_must_be_such_and_each_its_own() {
    assert_eq!(
        refusal(|config| drop(config.peers.insert(2, "b".to_owned()))),
        "`peers.2` is \"b\": it has no port; write host:port, such as 10.0.0.1:7401"
    );
    assert_eq!(
        refusal(|config| drop(config.peers.insert(2, "b:0".to_owned()))),
        "`peers.2` is \"b:0\": peers cannot connect to port 0; give the port that the node \
         listens on"
    );
    assert_eq!(
        refusal(|config| drop(config.peers.insert(2, "A:7401".to_owned()))),
        "`peers.1` and `peers.2` are both \"A:7401\"; give each an address of its own"
    );
    assert!(
        refusal(|config| config.listen.peers = Some("::1:80".to_owned())).contains("[::1]:7401")
    );
    let listening = refusal(|config| {
        (config.node, config.role) = (9, Role::Proposer);
        config.listen.peers = Some("0.0.0.0:7401".to_owned());
    });
    assert!(listening.contains("a proposer connects to the members"), "{listening}");
    assert_eq!(cell().listen("0.0.0.0:0").check(), Ok(()));
}

#[test]
fn numbers_must_be_within_their_bounds() {
    let millis = Duration::from_millis;
    let max_lease = "`max_lease` is 49ms; expected 50ms to 4294967.295s";
    assert_eq!(refusal(|config| config.max_lease = millis(49)), max_lease);
    assert!(refusal(|config| config.max_lease = Duration::MAX).contains("`max_lease`"));
    assert_eq!(
        refusal(|config| config.clock_drift_ppm = 100_001),
        "`clock_drift_ppm` is 100001; expected 0 to 100000"
    );
    let coarse = refusal(|config| config.clock_granularity = millis(25));
    assert!(coarse.contains("granularity of 25ms leave nothing of a lease of 50ms"), "{coarse}");
    for shards in [0, 257] {
        assert_eq!(
            refusal(|config| config.shards = Some(shards)),
            format!("`shards` is {shards}; expected 1 to 256, the same in all nodes")
        );
    }
    assert_eq!(
        refusal(|config| config.timing.heartbeat = Duration::ZERO),
        "`timing.heartbeat` is zero; expected a duration such as 200ms"
    );
    assert_eq!(
        refusal(|config| config.timing.peer_timeout = millis(399)),
        "`timing.peer_timeout` is 399ms, less than two heartbeats of 200ms; raise it, or lower \
         `timing.heartbeat`"
    );
    assert_eq!(
        refusal(|config| config.limits.waiters = 0),
        "`limits.waiters` is zero; expected at least 1"
    );
    assert_eq!(
        refusal(|config| config.limits.peer_queue_bytes = 524_287),
        "`limits.peer_queue_bytes` is 524287; expected at least 524288"
    );
}

#[test]
fn what_is_on_disk_must_be_somewhere() {
    let no_path = "`data_dir` is empty; expected a path, or nothing at all";
    assert_eq!(refusal(|config| config.data_dir = Some("".into())), no_path);
    let no_key = refusal(|config| config.tls = Some(Tls::new("cert.pem", "", "ca.pem")));
    assert!(no_key.starts_with("`tls.key` is empty"), "{no_key}");
    assert!(refusal(|config| config.reset_stable_record = true).contains("no `data_dir`"));
    let reset = cell().data_dir("data").reset_stable_record(true);
    assert_eq!(reset.check(), Ok(()));
    assert_eq!(reset.new_cell(true).check(), Err(ConfigError::ResetOfNewCell));
    assert_eq!(cell().new_cell(true).check(), Err(ConfigError::NewCellForgets));
    assert_eq!(cell().ephemeral().check(), Ok(()));
    let both = cell().ephemeral().data_dir("data");
    assert_eq!(both.check(), Err(ConfigError::EphemeralWithFolder));
}
