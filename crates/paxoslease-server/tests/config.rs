//! The settings of the daemon, and the errors for invalid settings.

use paxoslease_node::{Config as NodeConfig, Role, Tls};
use paxoslease_server::{Access, ClientTls, Config, ConfigError, TokenHash, Verb};

const WHOLE: &str = r#"
cell = "prod-eu"

[listen]
peers = "0.0.0.0:7401"
clients = "0.0.0.0:7400"
http = "127.0.0.1:0"
peers_out_of_reach = true

[tls]
cert = "cert.pem"
key = "key.pem"
ca = "ca.pem"
clients = "mutual"

[[access]]
name = "ci"
token_sha256 = "0101010101010101010101010101010101010101010101010101010101010101"
names = ["jobs/*", "deploy"]
may = ["acquire", "read", "admin"]
leases = 7

[[access]]
token_sha256 = "0202020202020202020202020202020202020202020202020202020202020202"
names = ["*"]
may = ["read"]

[limits]
leases = 1_000
connections = 100
inflight_per_connection = 50
acquires_per_second = 1_000
"#;

fn tls() -> Tls {
    Tls::new("cert.pem", "key.pem", "ca.pem")
}

/// A daemon that is a whole cell on loopback.
fn alone() -> Config {
    Config::new(NodeConfig::new("north", 1).peer(1, "127.0.0.1:7401"))
}

#[test]
fn keys_of_the_daemon_and_of_its_node_are_read_from_one_file() {
    let mut node = NodeConfig::new("prod-eu", 0).listen("0.0.0.0:7401").tls(tls());
    node.limits.leases = 1000;
    let mut expected = Config::new(node).listen("0.0.0.0:7400", "127.0.0.1:0");
    expected.listen.peers_out_of_reach = true;
    expected.client_tls = ClientTls::Mutual;
    let pattern = |text: &str| text.parse().expect("a pattern");
    let all = [Verb::Acquire, Verb::Read, Verb::Admin];
    let names = ["jobs/*", "deploy"].map(pattern);
    let mut ci = Access::new(TokenHash::new([1; 32]), names, all);
    (ci.name, ci.leases) = (Some("ci".to_owned()), Some(7));
    let reader = Access::new(TokenHash::new([2; 32]), [pattern("*")], [Verb::Read]);
    expected.access = vec![ci, reader];
    expected.limits.connections = 100;
    expected.limits.inflight_per_connection = 50;
    expected.limits.acquires_per_second = Some(1000);
    assert_eq!(Config::from_toml(WHOLE), Ok(expected));
    let defaults = Config::new(NodeConfig::new("", 0));
    assert_eq!(Config::from_toml("[listen]\n[limits]\n[tls]"), Ok(defaults));
}

#[test]
fn the_error_for_an_unknown_key_names_the_nearest_known_key() {
    let cases = [
        (
            "[lissten]\nhttp = 'a:1'",
            "line 2: unknown key `lissten.http`; the nearest known key is `listen.http`",
        ),
        (
            "[limits]\nlease = 1",
            "line 2: unknown key `limits.lease`; the nearest known key is `limits.leases`",
        ),
        ("acess = 1", "line 1: unknown key `acess`; the nearest known key is `access`"),
        ("zzz = 1", "line 1: unknown key `zzz`; the nearest known key is `cell`"),
        (
            "[tls]\nclients = 'on'",
            "line 2: `tls.clients`: \"on\" is not a kind of TLS for clients; expected off, server \
             or mutual",
        ),
    ];
    for (text, message) in cases {
        let error = Config::from_toml(text).expect_err(text);
        assert_eq!(error.to_string(), message, "{text}");
    }
}

#[test]
fn one_limit_can_be_set_by_its_key() {
    let mut config = alone();
    assert_eq!(config.set_limit("connections=7"), Ok(()));
    assert_eq!(config.set_limit(" leases = 8"), Ok(()));
    assert_eq!((config.limits.connections, config.node.limits.leases), (7, 8));
    let unknown = config.set_limit("connection=1").expect_err("misspelt").to_string();
    assert!(unknown.ends_with("the nearest known key is `limits.connections`"), "{unknown}");
}

/// An entry of access with one line changed or left out.
fn access(changed: &str) -> String {
    let hash = "token_sha256 = '0101010101010101010101010101010101010101010101010101010101010101'";
    let lines = [hash, "names = ['jobs/*']", "may = ['read']"];
    let key = changed.split(' ').next().expect("a word");
    let kept = lines.map(|line| if line.starts_with(key) { changed } else { line });
    format!("cell = 'x'\n[[access]]\n{}", kept.join("\n"))
}

#[test]
fn the_error_for_an_entry_of_access_has_its_line() {
    assert!(Config::from_toml(&access("-")).is_ok());
    let cases = [
        (access("token_sha256"), "line 3: "),
        ("[[access]]\nnames = ['x']".to_owned(), "line 1: `access.token_sha256` is missing; "),
        (access("names = []"), "line 2: `access.names` is missing or empty; write names = "),
        (access("may = []"), "line 2: `access.may` is missing or empty; write may = "),
        (access("names = 'x'"), "line 4: `access.names` is the text \"x\"; expected a list"),
        (access("names = ['a*b']"), "line 4: `access.names`: a pattern is a name, or a prefix"),
        (access("names = [1]"), "line 4: `access.names`: the number 1 is in the list; expected a"),
        (access("may = ['write']"), "line 5: `access.may`: \"write\" is not a permission of a"),
        (
            "[[access]]\ntoken = 'x'".to_owned(),
            "line 2: unknown key `access.token`; the nearest known key is `access.token_sha256`",
        ),
        ("[access]\nname = 'x'".to_owned(), "line 2: an entry of access is written `[[access]]`"),
        (
            "access = 1".to_owned(),
            "line 1: `access` is the number 1; expected tables, `[[access]]`",
        ),
        ("access = [1]".to_owned(), "line 1: `access` is an array; expected tables, `[[access]]`"),
    ];
    for (text, message) in cases {
        let error = Config::from_toml(&text).expect_err(&text).to_string();
        assert!(error.starts_with(message), "{error} in {text}");
    }
}

#[test]
fn a_token_in_place_of_its_hash_is_not_repeated() {
    for token in ["'314159'", "hunter314159", "['314159']", "314159", "314159.5", "{ x = 314159 }"]
    {
        let error = Config::from_toml(&access(&format!("token_sha256 = {token}")));
        let error = error.expect_err(token).to_string();
        assert!(error.starts_with("line 3: ") && !error.contains("314159"), "{error}");
    }
    let config = Config::from_toml(&access("-")).expect("valid");
    assert!(!format!("{config:?}").contains("0101"), "{config:?}");
}

#[test]
fn the_sample_is_valid_and_its_entry_of_access_is_not_a_token() {
    let sample = include_str!("../../../deploy/node.toml");
    let config = Config::from_toml(sample).expect("valid");
    assert_eq!((config.check(), config.access.len()), (Ok(()), 0));
    let is_commented = |line: &&str| line.starts_with("# [[access]]");
    let begin = sample.lines().position(|line| is_commented(&line)).expect("it has an entry");
    let entry = sample.lines().enumerate().map(|(number, line)| match line.strip_prefix("# ") {
        Some(line) if (begin..begin + 5).contains(&number) => line,
        _ => line,
    });
    let uncommented: String = entry.flat_map(|line| [line, "\n"]).collect();
    let error = Config::from_toml(&uncommented).expect_err("a placeholder").to_string();
    assert!(error.contains("`access.token_sha256`: expected the SHA-256 of the token"), "{error}");
}

/// A valid configuration with one thing changed.
fn refusal(change: impl FnOnce(&mut Config)) -> String {
    let mut config = alone();
    assert_eq!(config.check(), Ok(()));
    change(&mut config);
    config.check().expect_err("it is contradictory").to_string()
}

#[test]
fn clients_in_clear_from_other_machines_need_permission_or_tls() {
    for (clients, http, key) in
        [("[::]:1", "off", "`listen.clients`"), ("off", "10.0.0.1:1", "`listen.http`")]
    {
        let mut config = alone().listen(clients, http);
        let refused = config.check().expect_err(key).to_string();
        assert!(refused.starts_with(key), "{refused}");
        assert!(refused.contains("`listen.allow_plaintext` (--insecure-plaintext)"), "{refused}");
        config.node.tls = Some(tls());
        assert!(config.check().is_err(), "clients still connect in clear");
        config.client_tls = ClientTls::Server;
        assert_eq!(config.check(), Ok(()));
        config.node.tls = None;
        assert_eq!(config.check(), Err(ConfigError::NoCertificate(ClientTls::Server)));
        (config.client_tls, config.node.listen.allow_plaintext) = (ClientTls::Off, true);
        assert_eq!(config.check(), Ok(()));
    }
}

#[test]
fn addresses_and_limits_of_clients_are_checked() {
    let http = |address: &str| refusal(|config| config.listen.http = Some(address.to_owned()));
    assert!(http("::1:80").contains("[::1]:7401"));
    let same = refusal(|config| {
        config.node.listen.peers = Some("127.0.0.1:1".to_owned());
        config.listen.http = Some("127.0.0.1:1".to_owned());
    });
    assert!(same.starts_with("`listen.peers` and `listen.http` are both"), "{same}");
    assert_eq!(alone().listen("127.0.0.1:0", "127.0.0.1:0").check(), Ok(()), "any two free ports");
    assert_eq!(
        refusal(|config| config.limits.acquires_per_second = Some(0)),
        "`limits.acquires_per_second` is zero; expected at least 1"
    );
}

#[test]
fn tokens_need_peers_that_are_known_or_out_of_reach() {
    let names = ["*".parse().expect("a pattern")];
    let entry = Access::new(TokenHash::new([1; 32]), names, [Verb::Read]);
    // Other users of this machine reach loopback too.
    let member = || NodeConfig::new("north", 1).peer(1, "127.0.0.1:7401");
    let proposer = NodeConfig::new("north", 9).peer(1, "127.0.0.1:7401").role(Role::Proposer);
    for node in [member(), proposer, member().peer(2, "a:7401").allow_plaintext()] {
        let mut config = Config::new(node);
        assert_eq!(config.check(), Ok(()), "without tokens");
        config.access = vec![entry.clone()];
        assert_eq!(config.check(), Err(ConfigError::AccessInClear));
        config.node.tls = Some(tls());
        assert_eq!(config.check(), Ok(()));
        (config.node.tls, config.listen.peers_out_of_reach) = (None, true);
        assert_eq!(config.check(), Ok(()));
    }
    let mut off = Config::new(member().listen("off"));
    off.access = vec![entry];
    assert_eq!(off.check(), Ok(()));
    let text = ConfigError::AccessInClear.to_string();
    assert!(text.contains("peers speak in clear") && text.contains("--peers-out-of-reach"));
}
