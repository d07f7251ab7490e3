//! Tokens of a node: peers cannot bypass them, and they change at run time.

use std::fs;
use std::path::Path;

use rustix::process::Signal;
use sha2::{Digest as _, Sha256};

use crate::support::{LineClient, Process, free_port, outcome, paxoslease, scratch, utf8};

/// Writes the configuration of a node with this token; `peers` is its address for peers, or off.
fn write(path: &Path, peers: &str, token: &str) {
    let hash = Sha256::digest(token);
    let hash: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    let address = if peers == "off" { "127.0.0.1:7401" } else { peers };
    let text = format!(
        "cell = \"test\"\nnode = 1\nmax_lease = \"10s\"\nshards = 1\n[peers]\n1 = \"{address}\"\n\
         [listen]\npeers = \"{peers}\"\nclients = \"127.0.0.1:0\"\nhttp = \"127.0.0.1:0\"\n\
         [[access]]\ntoken_sha256 = \"{hash}\"\nnames = [\"*\"]\nmay = [\"acquire\", \"read\"]\n"
    );
    fs::write(path, text).expect("can be written");
}

#[test]
fn a_peer_without_a_certificate_cannot_bypass_tokens() {
    let (folder, port) = (scratch("access-stranger"), free_port(1));
    let config = folder.join("node.toml");
    let mut certs = paxoslease(&["certs", "--cell=test", "--node=1", "--node=9", "--out"]);
    certs.arg(&folder);
    assert_eq!(outcome(certs).0, 0);
    let show = |node: u16| {
        let file = |option: &str, name: &str| format!("{option}={}", folder.join(name).display());
        let (cert, key) = (format!("node-{node}.pem"), format!("node-{node}-key.pem"));
        [file("--tls-cert", &cert), file("--tls-key", &key), file("--tls-ca", "ca.pem")]
    };
    write(&config, &format!("127.0.0.1:{port}"), "owner-token");
    let mut guarded = paxoslease(&["serve", "--config", utf8(&config)]);
    guarded.args(show(1)).arg("--new-cell").arg("--data-dir").arg(folder.join("data"));
    let guarded = Process::run(guarded);
    let (mut owner, _) = LineClient::of(&guarded);
    assert_eq!(owner.ask("AUTH owner-token"), "+OK");
    let fence = owner.acquire("secret/plan");

    let proposer = |certificate: &[String]| {
        let options = ["--node=9", "--role=proposer", "--cell=test", "--max-lease=10s"];
        let mut command = paxoslease(&[&["serve"], &options[..], &["--shards=1"]].concat());
        command.arg(format!("--peer=1=127.0.0.1:{port}")).args(certificate);
        command.args(["--listen-clients=127.0.0.1:0", "--listen-http=off"]);
        let process = Process::run(command);
        let (client, _) = LineClient::of(&process);
        (process, client)
    };
    let asked = [
        "LEASE.GET secret/plan".to_owned(),
        format!("LEASE.RELEASE secret/plan {fence}"),
        "LEASE.ACQUIRE secret/plan 10000".to_owned(),
    ];
    let (_stranger, mut stranger) = proposer(&[]);
    for command in &asked {
        let reply = stranger.ask(command);
        assert!(reply.starts_with("-NOQUORUM"), "{command}: {reply}");
    }
    assert_eq!(owner.ask(&format!("LEASE.RENEW secret/plan {fence} 10000")), ":10000");
    // A node of the cell gets through, so the missing certificate made the difference.
    let (_node, mut node) = proposer(&show(9));
    assert_eq!(node.ask(&asked[1]), ":1");
}

#[test]
fn sighup_changes_tokens_and_a_broken_file_changes_nothing() {
    let config = scratch("sighup").join("node.toml");
    write(&config, "off", "first-token");
    let process = Process::start(&["serve", "--config", utf8(&config)]);
    let (mut client, mut log) = LineClient::of(&process);
    let (known, ping) = (|token: &str| format!("AUTH {token}"), "PING");
    assert_eq!(client.ask(&known("first-token")), "+OK");
    let mut reload = |until: &str| {
        process.signal(Signal::HUP);
        log.extend(process.stderr.until(|line| line.contains(until)));
    };

    write(&config, "off", "second-token");
    reload("certificates and tokens were read again");
    assert!(client.ask("ECHO x").starts_with("-NOAUTH"), "that token is gone");
    assert_eq!(client.ask(&known("second-token")), "+OK", "on the same connection");

    fs::write(&config, "cell = \"test\"\n[[access]]\ntoken_sha256 = \"third-token\"\n")
        .expect("can be written");
    reload("nothing was changed");
    assert_eq!(client.ask("LEASE.CANCEL x"), ":0", "as before");
    fs::remove_file(&config).expect("it was there");
    reload("cannot read the configuration");
    assert_eq!(client.ask(ping), "+PONG");

    process.signal(Signal::TERM);
    log.extend(process.stderr.rest());
    assert_eq!(process.end(), Some(0), "{log:#?}");
    let log = log.join("\n");
    assert!(log.contains("line 3: `access.token_sha256`"), "{log}");
    assert!(!log.contains("-token\"") && !log.contains("third-token"), "no token in {log}");
}
