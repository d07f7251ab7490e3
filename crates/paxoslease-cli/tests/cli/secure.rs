//! Cells with TLS and tokens, configured with what `certs` and `token` print.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use rustix::process::Signal;

use crate::support::{Gate, Process, free_port, outcome, paxoslease, scratch, utf8};

/// Three nodes with TLS and tokens, and the folder with their files.
struct SecureCell {
    folder: PathBuf,
    port: u16,
    nodes: Vec<Process>,
}

impl SecureCell {
    /// `clients` is the setting of `[tls]`. The token `jobs` permits names under jobs/, the token
    /// `ops` only permits to look.
    fn start(name: &str, clients: &str) -> Self {
        let (folder, port) = (scratch(name), free_port(3));
        let mut secure_cell = Self { folder, port, nodes: Vec::new() };
        let entries = secure_cell.token("jobs", &["--names=jobs/*", "--may=acquire,read"])
            + &secure_cell.token("ops", &["--may=read,admin"]);
        for id in 1..=3 {
            secure_cell.configure(id, clients, &entries);
        }
        for id in 1..=3 {
            let config = secure_cell.path(&format!("node-{id}.toml"));
            secure_cell.nodes.push(Process::start(&["serve", "--config", &config, "--new-cell"]));
        }
        // With these certificates every node reaches every other.
        let is_whole = |line: &str| line.contains("ready=true") && !line.contains("peers_down=");
        for node in &secure_cell.nodes {
            node.stderr.until(is_whole);
        }
        secure_cell
    }

    fn path(&self, name: &str) -> String {
        utf8(&self.folder.join(name)).to_owned()
    }

    /// Makes a token in a file, and returns its entry for the configuration.
    fn token(&self, name: &str, options: &[&str]) -> String {
        let path = self.path(name);
        let (code, entry, stderr) =
            outcome(paxoslease(&[&["token", "--out", &path], options].concat()));
        assert_eq!(code, 0, "{stderr}");
        entry
    }

    /// Writes a node's configuration from what `certs` and `token` printed.
    fn configure(&self, id: u16, clients: &str, entries: &str) {
        let (node, out) = (format!("--node={id}"), format!("--out={}", self.path("certs")));
        let (code, tls, stderr) =
            outcome(paxoslease(&["certs", "--cell=secure-cell", &node, &out, "--client=alice"]));
        assert_eq!(code, 0, "{stderr}");
        let tls = tls.replace("clients = \"server\"", &format!("clients = \"{clients}\""));
        let at = |id: u16, offset| format!("127.0.0.1:{}", self.port + 10 * (id - 1) + offset);
        let peers: String = (1..=3).map(|id| format!("{id} = \"{}\"\n", at(id, 1))).collect();
        let text = format!(
            "cell = \"secure-cell\"\nnode = {id}\nmax_lease = \"20s\"\nshards = 2\n\
             data_dir = {:?}\n[peers]\n{peers}[listen]\nclients = {:?}\nhttp = \"off\"\n{tls}\n{entries}",
            self.path(&format!("data-{id}")),
            at(id, 0),
        );
        fs::write(self.folder.join(format!("node-{id}.toml")), text).expect("written");
    }

    /// A command with this token, which trusts the authority.
    fn command(&self, token: &str, args: &[&str]) -> Command {
        let mut command = self.stranger(args);
        command.env("PAXOSLEASE_TLS_CA", self.path("certs/ca.pem"));
        command.env("PAXOSLEASE_TOKEN_FILE", self.path(token));
        command
    }

    /// A command with only the endpoints.
    fn stranger(&self, args: &[&str]) -> Command {
        let endpoint = |id: u16| format!("localhost:{}", self.port + 10 * (id - 1));
        let mut command = paxoslease(args);
        command.env("PAXOSLEASE_ENDPOINTS", [1, 2, 3].map(endpoint).join(","));
        command
    }

    fn run(&self, token: &str, args: &[&str]) -> (i32, String, String) {
        outcome(self.command(token, args))
    }

    /// Runs a command that must succeed, and returns its stdout.
    fn say(&self, token: &str, args: &[&str]) -> String {
        let (code, stdout, stderr) = self.run(token, args);
        assert_eq!((code, stderr.as_str()), (0, ""), "{args:?}");
        stdout
    }

    /// Stops the nodes, and returns their logs.
    fn stop(self) -> String {
        for node in &self.nodes {
            node.signal(Signal::TERM);
        }
        self.nodes.iter().flat_map(|node| node.stderr.rest()).collect()
    }
}

/// Access is denied, with this reason in one line.
#[track_caller]
fn denied(command: Command, reason: &str) {
    let (code, stdout, stderr) = outcome(command);
    assert_eq!((code, stdout.as_str()), (77, ""), "{stderr}");
    assert!(stderr.contains(reason) && stderr.lines().count() == 1, "{stderr}");
}

#[test]
fn a_token_permits_what_its_entry_says_and_nothing_else() {
    let secure_cell = SecureCell::start("secure-cell", "server");
    let fence = secure_cell.say("jobs", &["acquire", "jobs/x", "--holder", "me"]);
    let fence = fence.trim();
    secure_cell.say("jobs", &["renew", "jobs/x", "--fence", fence]);
    assert!(secure_cell.say("ops", &["get", "jobs/x"]).contains("me"));
    assert!(secure_cell.say("ops", &["list"]).contains("jobs/x"));
    assert!(secure_cell.say("ops", &["status"]).contains("3 of 3 members vote"));
    secure_cell.say("jobs", &["release", "jobs/x", "--fence", fence]);
    let printed = secure_cell.say("jobs", &["lock", "jobs/y", "--", "sh", "-c", "echo done"]);
    assert_eq!(printed, "done\n");
    let elected = secure_cell.say("jobs", &["elect", "jobs/z", "--", "true"]);
    assert!(elected.starts_with("jobs/z"), "{elected}");

    let bench = ["bench", "--count=200", "--inflight=8", "--names=jobs/bench/", "--json"];
    let report: serde_json::Value =
        serde_json::from_str(&secure_cell.say("jobs", &bench)).expect("a line of JSON");
    assert!(
        report["operations"].as_u64() >= Some(200) && report["last_error"].is_null(),
        "{report}"
    );

    denied(secure_cell.command("jobs", &["acquire", "other"]), "may not acquire");
    denied(secure_cell.command("jobs", &["lock", "other", "--", "true"]), "may not acquire");
    denied(secure_cell.command("ops", &["acquire", "jobs/x"]), "may not acquire");
    denied(secure_cell.command("jobs", &["get", "other"]), "may not read");
    denied(secure_cell.command("jobs", &["list", "other/"]), "may not read");
    let (code, _, stderr) = secure_cell.run("jobs", &["status"]);
    assert_eq!(code, 77, "{stderr}");

    let log = secure_cell_log(secure_cell, &["jobs", "ops"]);
    assert!(!log.is_empty());
}

/// Stops the cell, and returns its logs, which contain none of these tokens.
fn secure_cell_log(secure_cell: SecureCell, tokens: &[&str]) -> String {
    let token = |name: &&str| fs::read_to_string(secure_cell.folder.join(name)).expect("a token");
    let tokens: Vec<String> = tokens.iter().map(token).collect();
    let log = secure_cell.stop();
    for token in tokens {
        assert!(!log.contains(token.trim()), "a token is in the log");
    }
    log
}

#[test]
fn a_client_without_token_or_authority_is_refused() {
    let secure_cell = SecureCell::start("secure-cell-strangers", "server");
    let get = ["get", "jobs/x"];
    let ca = secure_cell.path("certs/ca.pem");
    let with_ca = |mut command: Command| {
        command.env("PAXOSLEASE_TLS_CA", &ca);
        command
    };
    denied(with_ca(secure_cell.stranger(&get)), "asks for a token");
    let mut guess = with_ca(secure_cell.stranger(&get));
    guess.env("PAXOSLEASE_TOKEN", "guess");
    denied(guess, "does not know that token");
    denied(secure_cell.stranger(&get), "it speaks TLS on this port; see --tls-ca");
    let mut in_clear = secure_cell.stranger(&get);
    in_clear.env("PAXOSLEASE_TOKEN", "guess");
    denied(in_clear, "it speaks TLS on this port; see --tls-ca");
    let other = secure_cell.path("others");
    assert_eq!(outcome(paxoslease(&["certs", "--nodes=1", "--out", &other])).0, 0);
    let mut fooled = secure_cell.stranger(&get);
    fooled.env("PAXOSLEASE_TLS_CA", format!("{other}/ca.pem"));
    denied(fooled, "not signed by the CA that this client trusts");
    let mut misled = secure_cell.command("jobs", &get);
    misled.env("PAXOSLEASE_TLS_SERVER_NAME", "db9.example");
    denied(misled, "certificate is refused");
}

#[test]
fn mutual_tls_accepts_only_certificates_of_the_authority() {
    let secure_cell = SecureCell::start("secure-cell-mutual", "mutual");
    let get = ["list"];
    denied(secure_cell.command("jobs", &get), "wants a certificate of this client");
    let with = |folder: &str| {
        let mut command = secure_cell.command("jobs", &get);
        command.env("PAXOSLEASE_TLS_CERT", secure_cell.path(&format!("{folder}/alice.pem")));
        command.env("PAXOSLEASE_TLS_KEY", secure_cell.path(&format!("{folder}/alice-key.pem")));
        command
    };
    assert_eq!(outcome(with("certs")).0, 0);
    let other = secure_cell.path("others");
    assert_eq!(outcome(paxoslease(&["certs", "--client=alice", "--out", &other])).0, 0);
    denied(with("others"), "has not signed this client's certificate");
}

#[test]
fn a_reload_ends_waits_of_old_tokens_and_accepts_new_ones() {
    let secure_cell = SecureCell::start("secure-cell-tokens", "server");
    let gate = Gate::new("secure-cell-gate");
    let script = format!("echo ready; read line < {}", gate.path());
    let lock = secure_cell.command("jobs", &["lock", "jobs/x", "--", "sh", "-c", &script]);
    let holder = Process::run(lock);
    holder.stdout.until(|line| line == "ready");
    let waiter = Process::run(secure_cell.command("jobs", &["lock", "jobs/x", "--", "true"]));
    waiter.stderr.until(|line| line.starts_with("waiting: "));
    let watcher = Process::run(secure_cell.command("jobs", &["watch", "jobs/"]));
    watcher.stderr.until(|line| line.starts_with("watching at "));

    let entry = secure_cell.token("next", &["--names=jobs/*", "--may=acquire,read"]);
    for (id, node) in (1..=3).zip(&secure_cell.nodes) {
        secure_cell.configure(id, "server", &entry);
        node.signal(Signal::HUP);
        node.stderr.until(|line| line.contains("certificates and tokens were read again"));
    }
    let problem = waiter.stderr.until(|line| line.starts_with("error: "));
    assert_eq!(waiter.end(), Some(77), "{problem:?}");
    let problem = watcher.stderr.until(|line| line.starts_with("error: "));
    assert_eq!(watcher.end(), Some(77), "{problem:?}");
    denied(secure_cell.command("jobs", &["get", "jobs/x"]), "does not know that token");
    let held = secure_cell.say("next", &["get", "jobs/x"]);
    assert!(held.contains("jobs/x"), "the lease itself is not lost: {held}");
    gate.open();
    let _without_a_token_it_could_not_give_it_back = holder.end();
}

#[test]
fn no_process_shows_a_token_in_its_arguments() {
    let secure_cell = SecureCell::start("secure-cell-ps", "server");
    let token = fs::read_to_string(secure_cell.folder.join("jobs")).expect("a token");
    let script = "tr '\\0' ' ' < /proc/$PPID/cmdline; cat /proc/*/cmdline | tr '\\0' ' '";
    let mut lock = secure_cell.stranger(&["lock", "jobs/x", "--", "sh", "-c", script]);
    lock.env("PAXOSLEASE_TLS_CA", secure_cell.path("certs/ca.pem"));
    lock.env("PAXOSLEASE_TOKEN", token.trim());
    let (code, shown, stderr) = outcome(lock);
    assert_eq!(code, 0, "{stderr}");
    assert!(shown.contains("watchdog") && !shown.contains(token.trim()), "{shown}");
}

#[test]
fn an_authority_of_another_user_is_refused() {
    // Only root can change the owner of a file.
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let folder = scratch("certs-owned");
    let certs = |node: &str| outcome(paxoslease(&["certs", node, "--out", utf8(&folder)]));
    assert_eq!(certs("--node=1").0, 0);
    for name in ["", "ca.pem", "ca-key.pem"] {
        let path = folder.join(name);
        std::os::unix::fs::chown(&path, Some(1), None).expect("root may");
        let (code, _, stderr) = certs("--node=2");
        assert_eq!(code, 1, "{name}: {stderr}");
        assert!(stderr.contains("belongs to user 1, and you are user 0"), "{name}: {stderr}");
        std::os::unix::fs::chown(&path, Some(0), None).expect("root may");
    }
    assert!(!folder.join("node-2.pem").exists());
}
