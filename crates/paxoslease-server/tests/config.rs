//! The settings of the daemon in a file. The errors for invalid settings are in a transcript of the
//! command line, `serve.txt`.

use paxoslease_node::{Config as NodeConfig, Tls};
use paxoslease_server::{Access, ClientTls, Config, TokenHash, Verb};

#[test]
fn keys_of_the_daemon_and_of_its_node_are_read_from_one_file() {
    let tls = Tls::new("cert.pem", "key.pem", "ca.pem");
    let mut node = NodeConfig::new("prod-eu", 0).listen("0.0.0.0:7401").tls(tls);
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
    assert_eq!(Config::from_toml(include_str!("config.toml")), Ok(expected));
    let defaults = Config::new(NodeConfig::new("", 0));
    assert_eq!(Config::from_toml("[listen]\n[limits]\n[tls]"), Ok(defaults));
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
