//! When `serve` accepts unencrypted connections, and certificates and tokens that change at run
//! time.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::path::Path;

use rustix::process::Signal;
use sha2::{Digest as _, Sha256};

use crate::support::{PATIENCE, Process, free_port, outcome, paxoslease, scratch};

const LOOPBACK: [&str; 4] = ["serve", "--check", "--node=1", "--peer=1=127.0.0.1:7401"];

#[test]
fn unencrypted_connections_to_other_machines_need_an_option() {
    for (option, key) in [
        ("--peer=2=10.0.0.2:7401", "`peers.2` is \"10.0.0.2:7401\""),
        ("--listen-peers=0.0.0.0:7401", "`listen.peers` is \"0.0.0.0:7401\""),
        ("--listen-clients=0.0.0.0:7400", "`listen.clients` is \"0.0.0.0:7400\""),
        ("--listen-http=[::]:7402", "`listen.http` is \"[::]:7402\""),
    ] {
        let options = [&LOOPBACK[..], &[option]].concat();
        let (code, stdout, stderr) = outcome(paxoslease(&options));
        assert_eq!((code, stdout.as_str()), (2, ""), "{option}: {stderr}");
        assert!(stderr.contains(key) && stderr.contains("--insecure-plaintext"), "{stderr}");
        let options = [&options[..], &["--insecure-plaintext"]].concat();
        let (code, _, stderr) = outcome(paxoslease(&options));
        assert_eq!(code, 0, "{option}: {stderr}");
    }
}

#[test]
fn a_check_prints_the_tls_and_the_access_of_clients() {
    let folder = scratch("access-check");
    let config = folder.join("node.toml");
    write(&config, &["a", "b"]);
    let path = config.to_str().expect("UTF-8");
    let (code, stdout, stderr) = outcome(paxoslease(&["serve", "--check", "--config", path]));
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.contains("by token, 2 in [[access]]"), "{stdout}");
    assert!(stdout.contains("peers       off"), "{stdout}");
    let mut certs = paxoslease(&["certs", "--cell=test", "--nodes", "2", "--out"]);
    certs.arg(&folder);
    assert_eq!(outcome(certs).0, 0);
    let with_tls = |cert: &str| {
        let mut command = paxoslease(&["serve", "--check", "--config", path]);
        command.arg("--tls-clients=mutual");
        command.arg("--tls-cert").arg(folder.join(format!("{cert}.pem")));
        command.arg("--tls-key").arg(folder.join(format!("{cert}-key.pem")));
        command.arg("--tls-ca").arg(folder.join("ca.pem"));
        outcome(command)
    };
    let (code, stdout, stderr) = with_tls("node-1");
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.contains("127.0.0.1:0, mutual TLS"), "{stdout}");
    let (code, stdout, stderr) = with_tls("node-2");
    assert_eq!((code, stdout.as_str()), (2, ""), "{stderr}");
    assert!(stderr.contains("is not valid for node-1.test.paxoslease"), "{stderr}");
    fs::write(folder.join("ca.pem"), "no certificate").expect("can be written");
    let (code, _, stderr) = with_tls("node-1");
    assert_eq!(code, 2, "{stderr}");
    assert!(stderr.contains("ca.pem"), "{stderr}");
    let (code, _, stderr) =
        outcome(paxoslease(&[&LOOPBACK[..], &["--tls-clients=server"]].concat()));
    assert_eq!(code, 2);
    assert!(
        stderr.contains("no certificate; give") && stderr.contains("(--tls-cert, "),
        "{stderr}"
    );
}

/// The configuration of a node with these tokens.
fn write(path: &Path, tokens: &[&str]) {
    let peers = "[peers]\n1 = \"127.0.0.1:7401\"\n[listen]\npeers = \"off\"\n";
    write_with(path, peers, tokens);
}

/// Like [`write`], with tables for its peers, of which the last is `[listen]`.
fn write_with(path: &Path, peers: &str, tokens: &[&str]) {
    let entries = tokens.iter().map(|token| {
        let hash = Sha256::digest(token);
        let hash: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("[[access]]\ntoken_sha256 = \"{hash}\"\nnames = [\"*\"]\nmay = [\"acquire\", \"read\"]\n")
    });
    let entries: String = entries.collect();
    let text = format!(
        "cell = \"test\"\nnode = 1\nmax_lease = \"10s\"\nshards = 1\n{peers}\
         clients = \"127.0.0.1:0\"\nhttp = \"127.0.0.1:0\"\n{entries}"
    );
    fs::write(path, text).expect("can be written");
}

/// A client that sends and receives lines.
struct Client(BufReader<TcpStream>);

impl Client {
    fn connect(address: &str) -> Self {
        let socket = TcpStream::connect(address).expect("listens");
        socket.set_read_timeout(Some(PATIENCE)).expect("not zero");
        Self(BufReader::new(socket))
    }

    /// A client of a node that is starting, and the node's log until then.
    fn of(process: &Process) -> (Self, Vec<String>) {
        let log = process.stderr.until(|line| line.contains("listening for clients"));
        let line = log.last().expect("a line");
        let (_, address) = line.rsplit_once("address=").expect("it says where");
        (Self::connect(address), log)
    }

    fn ask(&mut self, line: &str) -> String {
        self.0.get_mut().write_all(format!("{line}\r\n").as_bytes()).expect("sends");
        self.hear()
    }

    fn hear(&mut self) -> String {
        let mut reply = String::new();
        self.0.read_line(&mut reply).expect("answers");
        reply.trim_end().to_owned()
    }

    /// Acquires a free lease, and returns its fence.
    fn acquire(&mut self, name: &str) -> String {
        assert_eq!(self.ask(&format!("LEASE.ACQUIRE {name} 10000 HOLDER owner")), "*3");
        let fence = self.hear();
        let (_ttl, _waited) = (self.hear(), self.hear());
        fence.strip_prefix(':').expect("a number").to_owned()
    }
}

#[test]
fn tokens_need_peer_tls_or_an_unreachable_peer_port() {
    let config = scratch("access-clear").join("node.toml");
    let path = config.to_str().expect("UTF-8");
    write_with(&config, "[peers]\n1 = \"127.0.0.1:7401\"\n[listen]\n", &["a"]);
    for way in [&["serve", "--config", path][..], &["serve", "--check", "--config", path]] {
        let (code, stdout, stderr) = outcome(paxoslease(way));
        assert_eq!((code, stdout.as_str()), (2, ""), "{stderr}");
        assert!(stderr.contains("peers speak in clear"), "{stderr}");
        assert!(stderr.contains("--peers-out-of-reach"), "{stderr}");
    }
    let vouched = ["serve", "--check", "--config", path, "--peers-out-of-reach"];
    let (code, stdout, stderr) = outcome(paxoslease(&vouched));
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.contains("a node that reaches a peer port needs no token"), "{stdout}");
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
    let peers = format!("[peers]\n1 = \"127.0.0.1:{port}\"\n[listen]\n");
    write_with(&config, &peers, &["owner-token"]);
    let mut guarded = paxoslease(&["serve", "--config", config.to_str().expect("UTF-8")]);
    guarded.args(show(1)).arg("--new-cell").arg("--data-dir").arg(folder.join("data"));
    let guarded = Process::run(guarded);
    let (mut owner, _) = Client::of(&guarded);
    assert_eq!(owner.ask("AUTH owner-token"), "+OK");
    let fence = owner.acquire("secret/plan");

    let proposer = |certificate: &[String]| {
        let options = ["--node=9", "--role=proposer", "--cell=test", "--max-lease=10s"];
        let mut command = paxoslease(&[&["serve"], &options[..], &["--shards=1"]].concat());
        command.arg(format!("--peer=1=127.0.0.1:{port}")).args(certificate);
        command.args(["--listen-clients=127.0.0.1:0", "--listen-http=off"]);
        let process = Process::run(command);
        let (client, _) = Client::of(&process);
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
    write(&config, &["first-token"]);
    let process = Process::start(&["serve", "--config", config.to_str().expect("UTF-8")]);
    let (mut client, mut log) = Client::of(&process);
    let (known, ping) = (|token: &str| format!("AUTH {token}"), "PING");
    assert_eq!(client.ask(&known("first-token")), "+OK");
    let mut reload = |until: &str| {
        process.signal(Signal::HUP);
        log.extend(process.stderr.until(|line| line.contains(until)));
    };

    write(&config, &["second-token"]);
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
