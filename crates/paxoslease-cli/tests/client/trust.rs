//! Tokens and TLS of commands: where secrets come from, where they must not go, and the errors.

use std::fs;
use std::path::PathBuf;

use crate::cell::Cell;
use crate::support::{outcome, paxoslease, scratch};

/// Prints the token variables that a command finds.
const SHOW: [&str; 3] = ["sh", "-c", "echo [$PAXOSLEASE_TOKEN] [$PAXOSLEASE_TOKEN_FILE]"];

fn file(folder: &str, text: &str) -> PathBuf {
    let path = scratch(folder).join("token");
    fs::write(&path, text).expect("written");
    path
}

#[test]
fn no_option_takes_a_token() {
    let (code, _, stderr) = outcome(paxoslease(&["get", "x", "--token", "hush"]));
    assert_eq!(code, 2);
    assert!(stderr.contains("--token-file"), "{stderr}");
}

#[test]
fn an_invalid_token_is_refused_without_being_shown() {
    let missing = scratch("token-missing").join("none");
    let (empty, two) = (file("token-empty", "\n"), file("token-two", "hush hush\n"));
    let long = file("token-long", &"h".repeat(5000));
    for (path, reason) in [
        (missing, "No such file"),
        (empty, "make one with `paxoslease token`"),
        (two, "a token is one line"),
        (long, "a token is one line"),
    ] {
        let path = path.to_str().expect("UTF-8");
        let (code, stdout, stderr) = outcome(paxoslease(&["get", "x", "--token-file", path]));
        assert_eq!((code, stdout.as_str()), (2, ""), "{stderr}");
        let is_said = stderr.contains(path) && stderr.contains(reason);
        assert!(is_said && !stderr.contains("hush"), "{stderr}");
    }
    let mut command = paxoslease(&["get", "x"]);
    command.env("PAXOSLEASE_TOKEN", "hush hush");
    let (code, _, stderr) = outcome(command);
    assert_eq!(code, 2);
    assert!(stderr.contains("PAXOSLEASE_TOKEN") && !stderr.contains("hush"), "{stderr}");
}

#[test]
fn a_command_gets_no_token_without_pass_token() {
    let cell = Cell::start();
    let path = file("token-lock", "hush\n");
    let path = path.to_str().expect("UTF-8");
    let run = |options: &[&str]| {
        let lock = [&["lock", "x"], options, &["--"], &SHOW].concat();
        let mut command = cell.command(&lock);
        command.env("PAXOSLEASE_TOKEN", "hush").env("PAXOSLEASE_TOKEN_FILE", path);
        let (code, stdout, stderr) = outcome(command);
        assert_eq!((code, stderr.as_str()), (0, ""));
        stdout
    };
    assert_eq!(run(&[]), "[] []\n");
    assert_eq!(run(&["--pass-token"]), format!("[hush] [{path}]\n"));
    let elect = [&["elect", "x", "--"][..], &SHOW].concat();
    let mut command = cell.command(&elect);
    command.env("PAXOSLEASE_TOKEN", "hush");
    let (code, stdout, _) = outcome(command);
    assert!(code == 0 && stdout.ends_with("[] []\n"), "{stdout}");
}

#[test]
fn a_client_with_tls_refuses_a_node_without_tls() {
    let cell = Cell::start();
    let folder = scratch("tls-plain");
    let mut certs = paxoslease(&["certs", "--client", "alice"]);
    certs.arg("--out").arg(&folder);
    assert_eq!(outcome(certs).0, 0);
    let path = |name: &str| folder.join(name).to_str().expect("UTF-8").to_owned();
    let (ca, cert, key) = (path("ca.pem"), path("alice.pem"), path("alice-key.pem"));
    for command in [&["get", "x"][..], &["watch"], &["status"], &["lock", "x", "true"]] {
        let options = ["--tls-ca", &ca, "--tls-cert", &cert, "--tls-key", &key];
        let args = [&command[..1], &options, &command[1..]].concat();
        let (code, _, stderr) = cell.run(&args);
        assert_eq!(code, 77, "{stderr}");
        assert!(stderr.contains("it does not speak TLS on this port"), "{stderr}");
    }
    for (args, reason) in [
        (&["get", "x", "--tls-ca", "/nonexistent/ca.pem"][..], "/nonexistent/ca.pem"),
        (&["get", "x", "--tls-ca", &key], "no certificate in"),
        (&["get", "x", "--tls-cert", &cert], "--tls-key"),
        (&["get", "x", "--tls-ca", &ca, "--tls-cert", &ca, "--tls-key", &key], "made together"),
        (&["get", "x", "--tls-server-name", "db1"], "--tls-ca"),
        (&["get", "x", "--tls-ca", &ca, "--tls-server-name", "a b"], "no name of a server"),
    ] {
        let (code, stdout, stderr) = cell.run(args);
        assert_eq!((code, stdout.as_str()), (2, ""), "{args:?}: {stderr}");
        assert!(stderr.contains(reason), "{args:?}: {stderr}");
    }
}
