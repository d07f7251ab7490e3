//! The options, variables and file of `serve`, and what it refuses.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::{outcome, paxoslease, scratch};

const NODE: &[&str] =
    &["serve", "--check", "--node=1", "--peer=1=a:1", "--peer=2=b:1", "--insecure-plaintext"];

fn file(name: &str, text: &str) -> PathBuf {
    let path = scratch(name).join("node.toml");
    std::fs::write(&path, text).expect("can be written");
    path
}

fn utf8(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

#[test]
fn options_override_variables_which_override_the_file() {
    let path = file(
        "precedence",
        "cell = \"of-file\"\nnode = 1\nmax_lease = \"1s\"\nclock_drift_ppm = 1\nshards = 1\n\
         [peers]\n1 = \"file:1\"\n2 = \"file:2\"\n",
    );
    let mut command = paxoslease(&["serve", "--check", "--json", "--config", utf8(&path)]);
    command.args(["--max-lease", "3s", "--data-dir", "/of/option", "--insecure-plaintext"]);
    command.env("PAXOSLEASE_MAX_LEASE", "2s").env("PAXOSLEASE_SHARDS", "2");
    command.env("PAXOSLEASE_PEERS", "1=env:1,3=env:3");
    let (code, stdout, stderr) = outcome(command);
    assert_eq!((code, stderr.as_str()), (0, ""));
    let plan: Value = serde_json::from_str(&stdout).expect("JSON");
    assert_eq!(plan["max_lease_ms"], 3000, "the option");
    assert_eq!(plan["data_dir"], "/of/option");
    assert_eq!(plan["shards"], 2, "the variable");
    assert_eq!(plan["members"], serde_json::json!({"1": "env:1", "3": "env:3"}), "as a whole");
    assert_eq!(plan["clock_drift_ppm"], 1, "the file");
    assert_eq!(plan["cell"], "of-file");
    let listen = serde_json::json!({"peers": "env:1", "clients": "127.0.0.1:7400", "http": "127.0.0.1:7402"});
    assert_eq!(plan["listen"], listen);
}

#[test]
fn a_check_prints_what_would_run_and_starts_nothing() {
    let data_dir = scratch("check").join("data");
    let mut command = paxoslease(NODE);
    command.arg("--data-dir").arg(&data_dir);
    let (code, stdout, stderr) = outcome(command);
    assert_eq!((code, stderr.as_str()), (0, ""));
    assert!(stdout.contains("1 of cell default, a member"), "{stdout}");
    assert!(stdout.contains("1 at a:1, 2 at b:1") && stdout.contains("unencrypted"), "{stdout}");
    assert!(!data_dir.exists());
}

#[test]
fn a_check_prints_the_bounds_in_force() {
    let mut command = paxoslease(NODE);
    command.args(["--limit=leases=1000", "--limit=names_bytes=912000"]);
    let (_, stdout, _) = outcome(command);
    let bounds =
        "1000 leases and 912000 bytes of long names, up to 1 MB together; 10000 connections";
    assert!(stdout.contains(bounds), "{stdout}");
    let mut command = paxoslease(NODE);
    command.arg("--json");
    let (_, stdout, _) = outcome(command);
    let plan: Value = serde_json::from_str(&stdout).expect("JSON");
    let memory =
        plan["limits"]["names_bytes"].as_u64().expect("bounded by the memory of the machine");
    let leases = plan["limits"]["leases"].as_u64().expect("likewise");
    assert!(leases * 88 <= memory, "{stdout}");
}

#[test]
fn bad_options_exit_2_and_say_why() {
    let no_file = scratch("bad-options").join("none");
    for (options, reason) in [
        (&["--peer=1"][..], "write ID=HOST:PORT, such as 1=10.0.0.1:7401"),
        (&["--peer=one=a:1"], "write ID=HOST:PORT"),
        (&["--peer=3="], "write ID=HOST:PORT"),
        (&["--peer=3=c"], "`peers.3` is \"c\": it has no port; write host:port"),
        (&["--peer=2=c:1"], "node 2 is given twice, as b:1 and as c:1"),
        (&["--role=proposer"], "node 1 is a proposer, but in `[peers]`"),
        (&["--role=observer"], "possible values: member, proposer"),
        (&["--max-lease=15"], "15 has no unit; write 15s or 15ms"),
        (&["--max-lease=1ms"], "`max_lease` is 1ms; expected"),
        (&["--shards=0"], "`shards` is 0; expected 1 to 256"),
        (
            &["--limit=leasers=5"],
            "unknown key `limits.leasers`; the nearest known key is `limits.leases`",
        ),
        (&["--limit=leases=many"], "--limit leases=many: "),
        (&["--limit=connections=0"], "`limits.connections` is zero"),
        (&["--listen-clients=nowhere"], "`listen.clients` is \"nowhere\": it has no port"),
        (&["--new-cell"], "`new_cell`"),
        (&["--reset-stable-record"], "there is no `data_dir`"),
        (&["--tls-cert=x"], "TLS needs --tls-cert, --tls-key and --tls-ca"),
        (&["--log=verbose"], "expected off, error, warn, info, debug or trace"),
        (&["--tls-cert", utf8(&no_file), "--tls-key=x", "--tls-ca=x"], "cannot read "),
        (&["--config", utf8(&no_file)], "cannot read the configuration"),
    ] {
        let (code, stdout, stderr) = outcome(paxoslease(&[NODE, options].concat()));
        assert_eq!((code, stdout.as_str()), (2, ""), "{options:?}: {stderr}");
        assert!(stderr.starts_with("error: ") && stderr.contains(reason), "{options:?}: {stderr}");
    }
    let (code, _, stderr) = outcome(paxoslease(&["serve"]));
    assert_eq!(code, 2);
    assert!(stderr.contains("--node <ID>") && stderr.contains("--config <FILE>"), "{stderr}");
    for nodes in ["0", "10"] {
        let (code, _, stderr) = outcome(paxoslease(&["dev", "--nodes", nodes]));
        assert_eq!(code, 2);
        assert!(stderr.contains("is not in 1..=9"), "{stderr}");
    }
}

#[test]
fn a_bad_file_exits_2_and_names_the_line() {
    for (name, text, reason) in [
        ("unknown", "cell = \"c\"\nmaxlease = \"3s\"", "line 2: unknown key `maxlease`"),
        ("type", "node = \"1\"", "line 1: `node` is the text \"1\"; expected a whole number"),
        ("toml", "cell = \"c\"\nnode = ", "line 2: "),
        ("peer", "[peers]\none = \"a:1\"", "line 2: `peers.one`: a peer's key is its node id"),
    ] {
        let path = file(&format!("bad-{name}"), text);
        let (code, stdout, stderr) = outcome(paxoslease(&["serve", "--config", utf8(&path)]));
        assert_eq!((code, stdout.as_str()), (2, ""), "{name}: {stderr}");
        let place = format!("error: {}: {reason}", path.display());
        assert!(stderr.starts_with(&place), "{name}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{name}: {stderr}");
    }
}

#[test]
fn a_missing_required_setting_is_named() {
    for (name, text, reason) in [
        ("cell", "node = 1", "no cell; set `cell`"),
        ("node", "cell = \"c\"", "no node id"),
        ("peers", "cell = \"c\"\nnode = 1", "no peers"),
    ] {
        let path = file(&format!("without-{name}"), text);
        let (code, _, stderr) = outcome(paxoslease(&["serve", "--config", utf8(&path)]));
        assert_eq!(code, 2, "{name}: {stderr}");
        assert!(stderr.contains(reason), "{name}: {stderr}");
    }
}

#[test]
fn the_manual_and_completions_cover_what_runs_nodes() {
    let (code, page, _) = outcome(paxoslease(&["man"]));
    assert_eq!(code, 0);
    let (code, script, _) = outcome(paxoslease(&["completions", "bash"]));
    assert_eq!(code, 0);
    for option in ["--data-dir", "--clock-drift-ppm", "--max-lease", "--log-format"] {
        assert!(page.contains(&option.replace('-', "\\-")), "no {option} in {page}");
        assert!(script.contains(option), "no {option} in {script}");
    }
}
