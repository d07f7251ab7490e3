//! Certificates and tokens of `certs` and `token`.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::support::{Process, free_port, outcome, paxoslease, scratch};

/// The command with this folder.
fn certs(folder: &Path, args: &[&str]) -> Command {
    let mut command = paxoslease(&["certs"]);
    command.args(args).arg("--out").arg(folder);
    command
}

/// Runs a command that must succeed, and parses its line of JSON.
fn made(folder: &Path, args: &[&str]) -> Value {
    let (code, stdout, stderr) = outcome(certs(folder, &[args, &["--json"]].concat()));
    assert_eq!((code, stderr.as_str()), (0, ""), "{args:?}");
    serde_json::from_str(&stdout).expect("a line of JSON")
}

fn refused(folder: &Path, args: &[&str]) -> String {
    let (code, stdout, stderr) = outcome(certs(folder, args));
    assert_eq!((code, stdout.as_str()), (1, ""), "{args:?}: {stderr}");
    stderr
}

fn mode(path: PathBuf) -> u32 {
    fs::metadata(path).expect("it exists").permissions().mode() & 0o777
}

#[test]
fn nodes_with_these_certificates_form_a_cell() {
    let (folder, port) = (scratch("certs-cell"), free_port(3));
    let all = made(&folder, &[]);
    let address = |id: u16| format!("127.0.0.1:{}", port + 10 * (id - 1));
    let start = |id: u16| {
        let node = &all["nodes"][usize::from(id) - 1];
        let file = |key: &str| node[key].as_str().expect("a path");
        let mut command = paxoslease(&["serve", "--json", "--max-lease=1s", "--shards=1"]);
        command.args(["--listen-clients=off", "--listen-http=off", "--new-cell"]);
        command.args([format!("--node={id}"), format!("--tls-cert={}", file("cert"))]);
        command.arg(format!("--tls-key={}", file("key")));
        command.arg("--tls-ca").arg(folder.join("ca.pem"));
        command.args((1..=3).map(|id| format!("--peer={id}={}", address(id))));
        command.arg("--data-dir").arg(folder.join(format!("data-{id}")));
        Process::run(command)
    };
    let nodes = [1, 2, 3].map(start);
    for node in &nodes {
        node.stdout.until(|line| {
            let status: Value = serde_json::from_str(line).expect("a line of JSON");
            let peers = status["peers"].as_array().expect("a list");
            peers.len() == 2 && peers.iter().all(|peer| peer["up"] == true)
        });
    }
}

#[test]
fn keys_are_private_and_nothing_is_replaced_without_force() {
    let folder = scratch("certs-kept").join("new");
    let first = made(&folder, &["--nodes", "1", "--client", "alice", "--host", "10.0.0.1"]);
    assert_eq!((&first["ca"]["made"], &first["nodes"][0]["made"]), (&true.into(), &true.into()));
    let hosts = ["node-1.default.paxoslease", "localhost", "127.0.0.1", "::1", "10.0.0.1"];
    assert_eq!(first["nodes"][0]["hosts"], serde_json::json!(hosts));
    assert_eq!(mode(folder.clone()), 0o700);
    for name in ["ca", "node-1", "alice"] {
        assert_eq!(mode(folder.join(format!("{name}.pem"))), 0o644);
        assert_eq!(mode(folder.join(format!("{name}-key.pem"))), 0o600);
    }
    let files = |names: [&str; 3]| names.map(|name| fs::read(folder.join(name)).expect("readable"));
    let names = ["ca.pem", "ca-key.pem", "alice.pem"];
    let (before, node) = (files(names), fs::read(folder.join("node-1.pem")).expect("readable"));
    let again = made(&folder, &["--nodes", "2", "--client", "alice"]);
    let is_made = |index: usize| again["nodes"][index]["made"] == true;
    assert!(!is_made(0) && is_made(1), "{again}");
    assert_eq!(
        (files(names), fs::read(folder.join("node-1.pem")).expect("readable")),
        (before.clone(), node.clone())
    );
    made(&folder, &["--node", "1", "--force"]);
    assert_eq!(files(names), before, "what was not asked for, and the authority, stay");
    assert_ne!(fs::read(folder.join("node-1.pem")).expect("readable"), node);
}

#[test]
fn a_certificate_that_nodes_would_refuse_is_refused() {
    let folder = scratch("certs-refused");
    made(&folder, &["--nodes", "2"]);
    let stderr = refused(&folder, &["--node", "1", "--host", "db1.example"]);
    assert!(stderr.contains("node-1.pem cannot be used") && stderr.contains("--force"), "{stderr}");
    let stderr = refused(&folder, &["--node", "1", "--cell", "other"]);
    assert!(stderr.contains("node-1.other.paxoslease") && stderr.contains("--force"), "{stderr}");
    fs::copy(folder.join("node-2-key.pem"), folder.join("node-1-key.pem")).expect("copied");
    let stderr = refused(&folder, &["--node", "1"]);
    assert!(stderr.contains("use the pair made together; replace it with --force"), "{stderr}");

    let other = scratch("certs-other");
    made(&other, &["--nodes", "1"]);
    fs::copy(other.join("ca.pem"), folder.join("ca.pem")).expect("copied");
    let stderr = refused(&folder, &["--node", "2"]);
    assert!(stderr.contains("node-2.pem cannot be used"), "{stderr}");
    let stderr = refused(&folder, &["--node", "3"]);
    assert!(stderr.contains("made by `paxoslease certs`"), "{stderr}");
    fs::remove_file(folder.join("ca-key.pem")).expect("removed");
    let stderr = refused(&folder, &["--node", "4"]);
    assert!(stderr.contains("ca.pem exists without"), "{stderr}");
    assert!(!folder.join("node-4.pem").exists());
}

#[test]
fn an_authority_of_another_user_is_refused() {
    // Only root can change the owner of a file.
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let folder = scratch("certs-owned");
    made(&folder, &["--nodes", "1"]);
    for name in ["", "ca.pem", "ca-key.pem"] {
        let path = folder.join(name);
        std::os::unix::fs::chown(&path, Some(1), None).expect("root may");
        let stderr = refused(&folder, &["--node", "2"]);
        assert!(stderr.contains("belongs to user 1, and you are user 0"), "{name}: {stderr}");
        std::os::unix::fs::chown(&path, Some(0), None).expect("root may");
    }
    assert!(!folder.join("node-2.pem").exists());
}

#[test]
fn the_text_shows_the_configuration_and_a_warning() {
    let folder = scratch("certs-shown");
    let (code, stdout, stderr) = outcome(certs(&folder, &["--nodes", "1", "--client", "alice"]));
    assert_eq!(code, 0, "{stderr}");
    let folder = folder.to_str().expect("UTF-8");
    let written = format!(
        "[tls]\ncert = \"{folder}/node-1.pem\"\nkey = \"{folder}/node-1-key.pem\"\n\
         ca = \"{folder}/ca.pem\"\nclients = \"server\" #"
    );
    assert!(stdout.contains(&written), "{stdout}");
    assert!(stdout.contains(&format!("--tls-cert {folder}/alice.pem")), "{stdout}");
    assert!(stderr.contains("for development and small cells"), "{stderr}");
    assert!(stderr.contains("ca-key.pem off the nodes"), "{stderr}");
}

#[test]
fn bad_options_are_refused_before_anything_is_made() {
    let folder = scratch("certs-options").join("none");
    for (args, reason) in [
        (&["--nodes", "100"][..], "0..=99"),
        (&["--node", "0"], "1..=1023"),
        (&["--days", "0"], "1..=3650"),
        (&["--host", "10.0.0.1:7400"], "without a port"),
        (&["--host", "4=db4"], "--node 4"),
        (&["--host", "x=db4"], "the number of a node"),
        (&["--host", "1=node-2.paxoslease"], "names that end in .paxoslease"),
        (&["--host", "Node-2.PaxosLease"], "names that end in .paxoslease"),
        (&["--cell", "Prod EU"], "certificates cannot name the cell \"Prod EU\""),
        (&["--client", "../x"], "letters"),
        (&["--client", "node-7"], "would look like"),
        (&["--client", "alice", "--host", "db4"], "--nodes 3"),
    ] {
        let (code, stdout, stderr) = outcome(certs(&folder, args));
        assert_eq!((code, stdout.as_str()), (2, ""), "{args:?}: {stderr}");
        assert!(stderr.contains(reason), "{args:?}: {stderr}");
        assert!(!folder.exists(), "{args:?}");
    }
}

#[test]
fn a_token_is_random_and_its_entry_has_the_hash() {
    let token = || {
        let (code, stdout, stderr) = outcome(paxoslease(&["token", "--json"]));
        assert_eq!((code, stderr.as_str()), (0, ""));
        let all: Value = serde_json::from_str(&stdout).expect("a line of JSON");
        let text = |key: &str| all[key].as_str().expect("a text").to_owned();
        (text("token"), text("token_sha256"))
    };
    let ((first, digest), (second, _)) = (token(), token());
    assert!(first.len() > 64 && first != second);
    let hash = |text: String| {
        let mut command = assert_cmd::Command::from(paxoslease(&["token", "--hash", "--json"]));
        let output = command.write_stdin(text).output().expect("it runs");
        serde_json::from_slice::<Value>(&output.stdout).expect("a line of JSON")
    };
    assert_eq!(hash(format!("{first}\n"))["token_sha256"], digest.as_str());
    assert_eq!(hash(first)["token"], Value::Null, "an existing token is not printed");
    let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    assert_eq!(hash("abc".to_owned())["token_sha256"], abc);
}

#[test]
fn a_token_file_is_private_and_never_replaced() {
    let file = scratch("token").join("token");
    let path = file.to_str().expect("UTF-8");
    let args = ["token", "--out", path, "--names", "jobs/*", "--may", "acquire"];
    let (code, stdout, _) = outcome(paxoslease(&args));
    assert_eq!((code, mode(file.clone())), (0, 0o600));
    let token = fs::read_to_string(&file).expect("readable");
    assert!(!stdout.contains(token.trim()), "{stdout}");
    assert!(stdout.contains("names = [\"jobs/*\"]\nmay = [\"acquire\"]\n"), "{stdout}");
    let (code, stdout, stderr) = outcome(paxoslease(&args));
    assert_eq!((code, stdout.as_str()), (1, ""), "{stderr}");
    assert_eq!(fs::read_to_string(&file).expect("readable"), token);
    for (args, reason) in [
        (&["token", "--may", "write"][..], "expected \"acquire\", \"read\" or \"admin\""),
        (&["token", "--names", "a*b"], "such as jobs/*"),
        (&["token", "--hash", "--out", path], "cannot be used with"),
    ] {
        let (code, _, stderr) = outcome(paxoslease(args));
        assert_eq!(code, 2, "{stderr}");
        assert!(stderr.contains(reason), "{stderr}");
    }
}
