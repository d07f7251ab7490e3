//! Configurations, and the errors for those that are wrong.

use std::fs;

use paxoslease_node::{Config, LoadError, Role, Spin, parse_duration};

#[test]
fn a_key_that_is_missing_keeps_its_default() {
    assert_eq!(Config::from_toml(""), Ok(Config::new("", 0)));
    assert_eq!(Config::from_toml("[listen]\n[limits]\n[tls]\n[peers]"), Ok(Config::new("", 0)));
    let proposer = Config::from_toml("role = 'proposer'").expect("valid");
    assert_eq!(proposer, Config::new("", 0).role(Role::Proposer));
}

/// The benchmarks and docs/operating.md describe nodes with these defaults.
#[test]
fn a_node_has_one_shard_and_spins_as_needed_by_default() {
    let config = Config::new("north", 1);
    assert_eq!((config.shards, config.spin), (1, Spin::Auto));
    assert_eq!(Spin::default(), Spin::Auto);
}

/// What a node says about a configuration. The kind may set flags that files cannot set.
fn outcome(kind: &str, text: &str) -> String {
    if kind == "duration" {
        let span = parse_duration(text.trim()).expect("valid");
        assert_eq!(parse_duration(&format!("{span:?}")), Ok(span), "as Rust prints it");
        return format!("{span:?}");
    }
    let mut config = match Config::from_toml(text) {
        Err(error) => {
            assert!(error.to_string().starts_with(&format!("line {}: ", error.line())), "{error}");
            return error.to_string();
        }
        Ok(_) if kind == "parse" => return "valid".to_owned(),
        Ok(config) if kind == "read" => {
            assert_eq!(config.check(), Ok(()));
            return format!("{config:?}");
        }
        Ok(config) => config,
    };
    if kind != "bare" {
        if config.cell.is_empty() {
            config.cell = "north".to_owned();
        }
        if config.node == 0 {
            config.node = 1;
        }
        for (id, host) in (1..).zip(["a", "b", "c"]) {
            config.peers.entry(id).or_insert(format!("{host}:7401"));
        }
        config.listen.allow_plaintext = kind != "plaintext";
        config.reset_stable_record = kind.contains("reset");
        config.new_cell = kind.contains("new_cell");
        config.ephemeral = kind.contains("ephemeral");
    }
    match (config.check(), config.listen_for_peers()) {
        (Err(error), _) => error.to_string(),
        (Ok(()), None) => "valid, and does not listen for peers".to_owned(),
        (Ok(()), Some(_)) => "valid".to_owned(),
    }
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
fn a_file_that_cannot_be_loaded_is_named() {
    let error = Config::load("no/such/node.toml").expect_err("it is not there");
    assert!(matches!(error, LoadError::Read { .. }));
    assert!(error.to_string().contains("no/such/node.toml"), "{error}");
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let error = Config::load(manifest).expect_err("it is not a configuration");
    assert!(error.to_string().starts_with(&format!("{manifest}: line ")), "{error}");
    assert!(error.to_string().contains("unknown key `package.name`"), "{error}");
}
