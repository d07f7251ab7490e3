//! Configurations, and the errors for those that are wrong.

use std::fs;
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
fn a_key_that_is_missing_keeps_its_default() {
    assert_eq!(Config::from_toml(""), Ok(Config::new("", 0)));
    assert_eq!(Config::from_toml("[listen]\n[limits]\n[tls]\n[peers]"), Ok(Config::new("", 0)));
    let proposer = Config::from_toml("role = 'proposer'").expect("valid");
    assert_eq!(proposer, Config::new("", 0).role(Role::Proposer));
}

/// What a node says about a configuration.
fn outcome(kind: &str, text: &str) -> String {
    let mut config = match Config::from_toml(text) {
        Err(error) => {
            assert!(error.to_string().starts_with(&format!("line {}: ", error.line())), "{error}");
            return error.to_string();
        }
        Ok(_) if kind == "parse" => return "valid".to_owned(),
        Ok(config) => config,
    };
    if config.cell.is_empty() {
        config.cell = "north".to_owned();
    }
    if config.node == 0 {
        config.node = 1;
    }
    for (id, address) in cell().peers {
        config.peers.entry(id).or_insert(address);
    }
    config.listen.allow_plaintext = kind != "plaintext";
    config.check().map_or_else(|error| error.to_string(), |()| "valid".to_owned())
}

#[test]
fn every_configuration_in_the_file_has_its_outcome() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/config.txt");
    let recorded = fs::read_to_string(path).expect("is there");
    let (mut kind, mut text, mut lines) = ("", String::new(), Vec::new());
    for line in recorded.lines() {
        if let Some(heading) = line.strip_prefix("-- ") {
            kind = heading.split_once(':').expect("a kind, and what it means").0;
            text.clear();
        } else if line.starts_with("=> ") {
            lines.push(format!("=> {}", outcome(kind, &std::mem::take(&mut text))));
            continue;
        } else if !(text.is_empty() && line.is_empty()) {
            text += &format!("{line}\n");
        }
        lines.push(line.to_owned());
    }
    if std::env::var_os("UPDATE_TRANSCRIPTS").is_some() {
        return fs::write(path, lines.join("\n") + "\n").expect("room");
    }
    for (number, (found, expected)) in (1..).zip(lines.iter().zip(recorded.lines())) {
        assert_eq!(found, expected, "line {number} of {path}");
    }
}

#[test]
fn only_a_cell_of_one_member_can_turn_its_peer_port_off() {
    let alone = Config::new("north", 1).peer(1, "10.0.0.1:7401").listen("off");
    assert_eq!(alone.check(), Ok(()), "it sends nothing, so nothing in clear");
    assert_eq!(alone.listen_for_peers(), None);
}

#[test]
fn a_file_that_cannot_be_loaded_is_named() {
    let error = Config::load("no/such/node.toml").expect_err("it is not there");
    assert!(matches!(error, LoadError::Read { .. }));
    assert!(error.to_string().contains("no/such/node.toml"), "{error}");
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let error = Config::load(manifest).expect_err("it is not a configuration");
    assert!(error.to_string().starts_with(&format!("{manifest}: line ")), "{error}");
    assert!(error.to_string().contains("unknown key `package.name`"), "{error}");
}

/// What is wrong with a valid configuration after one change.
fn refusal(change: impl FnOnce(&mut Config)) -> String {
    let mut config = cell();
    assert_eq!(config.check(), Ok(()));
    change(&mut config);
    config.check().expect_err("it is contradictory").to_string()
}

#[test]
fn a_node_needs_a_cell_an_id_and_peers() {
    assert_eq!(Config::new("north", 1).check(), Err(ConfigError::NoPeers));
    assert_eq!(
        refusal(|config| config.cell.clear()),
        "no cell; set `cell` to the name that all its nodes share"
    );
    assert_eq!(
        refusal(|config| config.node = 0),
        "no node id; set `node` to a number from 1 to 1023, another for each node"
    );
}

#[test]
fn settings_about_the_data_folder_must_fit_together() {
    assert!(refusal(|config| config.reset_stable_record = true).contains("no `data_dir`"));
    let reset = cell().data_dir("data").reset_stable_record(true);
    assert_eq!(reset.check(), Ok(()));
    assert_eq!(reset.new_cell(true).check(), Err(ConfigError::ResetOfNewCell));
    assert_eq!(cell().new_cell(true).check(), Err(ConfigError::NewCellForgets));
    assert_eq!(cell().ephemeral().check(), Ok(()));
    let both = cell().ephemeral().data_dir("data");
    assert_eq!(both.check(), Err(ConfigError::EphemeralWithFolder));
}
