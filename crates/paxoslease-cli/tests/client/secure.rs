//! Cells that speak TLS and ask for tokens, set up by what `certs` and `token` print.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use rustix::process::Signal;

use crate::support::{Process, free_port, outcome, paxoslease, scratch};

/// Three nodes that trust nobody else, and who they trust.
struct Fortress {
    folder: PathBuf,
    port: u16,
    nodes: Vec<Process>,
}

impl Fortress {
    /// With `clients` as of `[tls]`. The token in `jobs` is for names under jobs/, and the one in
    /// `ops` for looking on.
    fn start(name: &str, clients: &str) -> Self {
        let (folder, port) = (scratch(name), free_port(3));
        let mut fortress = Self { folder, port, nodes: Vec::new() };
        let entries = fortress.token("jobs", &["--names=jobs/*", "--may=acquire,read"])
            + &fortress.token("ops", &["--may=read,admin"]);
        for id in 1..=3 {
            fortress.configure(id, clients, &entries);
        }
        for id in 1..=3 {
            let config = fortress.path(&format!("node-{id}.toml"));
            fortress.nodes.push(Process::start(&["serve", "--config", &config, "--new-cell"]));
        }
        for node in &fortress.nodes {
            node.stderr.until(|line| line.contains("ready=true"));
        }
        fortress
    }

    fn path(&self, name: &str) -> String {
        self.folder.join(name).to_str().expect("UTF-8").to_owned()
    }

    /// Makes a token in a file, and the entry for it.
    fn token(&self, name: &str, options: &[&str]) -> String {
        let path = self.path(name);
        let (code, entry, stderr) =
            outcome(paxoslease(&[&["token", "--out", &path], options].concat()));
        assert_eq!(code, 0, "{stderr}");
        entry
    }

    /// Writes what `certs` and `token` print into a node's configuration.
    fn configure(&self, id: u16, clients: &str, entries: &str) {
        let (node, out) = (format!("--node={id}"), format!("--out={}", self.path("certs")));
        let (code, tls, stderr) =
            outcome(paxoslease(&["certs", "--cell=fortress", &node, &out, "--client=alice"]));
        assert_eq!(code, 0, "{stderr}");
        let tls = tls.replace("clients = \"server\"", &format!("clients = \"{clients}\""));
        let at = |id: u16, offset| format!("127.0.0.1:{}", self.port + 10 * (id - 1) + offset);
        let peers: String = (1..=3).map(|id| format!("{id} = \"{}\"\n", at(id, 1))).collect();
        let text = format!(
            "cell = \"fortress\"\nnode = {id}\nmax_lease = \"20s\"\nshards = 2\n\
             data_dir = {:?}\n[peers]\n{peers}[listen]\nclients = {:?}\nhttp = \"off\"\n{tls}\n{entries}",
            self.path(&format!("data-{id}")),
            at(id, 0),
        );
        fs::write(self.folder.join(format!("node-{id}.toml")), text).expect("written");
    }

    /// A command with this token, that trusts the authority.
    fn command(&self, token: &str, args: &[&str]) -> Command {
        let mut command = self.stranger(args);
        command.env("PAXOSLEASE_TLS_CA", self.path("certs/ca.pem"));
        command.env("PAXOSLEASE_TOKEN_FILE", self.path(token));
        command
    }

    /// A command that only knows where to connect.
    fn stranger(&self, args: &[&str]) -> Command {
        let endpoint = |id: u16| format!("localhost:{}", self.port + 10 * (id - 1));
        let mut command = paxoslease(args);
        command.env("PAXOSLEASE_ENDPOINTS", [1, 2, 3].map(endpoint).join(","));
        command
    }

    fn run(&self, token: &str, args: &[&str]) -> (i32, String, String) {
        outcome(self.command(token, args))
    }

    /// What it prints, when all is well.
    fn say(&self, token: &str, args: &[&str]) -> String {
        let (code, stdout, stderr) = self.run(token, args);
        assert_eq!((code, stderr.as_str()), (0, ""), "{args:?}");
        stdout
    }

    /// Stops the nodes; all they logged.
    fn stop(self) -> String {
        for node in &self.nodes {
            node.signal(Signal::TERM);
        }
        self.nodes.iter().flat_map(|node| node.stderr.rest()).collect()
    }
}

/// The command is refused for want of trust, and says so in one line with this in it.
#[track_caller]
fn denied(command: Command, reason: &str) {
    let (code, stdout, stderr) = outcome(command);
    assert_eq!((code, stdout.as_str()), (77, ""), "{stderr}");
    assert!(stderr.contains(reason) && stderr.lines().count() == 1, "{stderr}");
}

#[test]
fn whoever_has_the_authority_and_a_token_may_do_what_it_says_and_nothing_else() {
    let fortress = Fortress::start("fortress", "server");
    let fence = fortress.say("jobs", &["acquire", "jobs/x", "--holder", "me"]);
    let fence = fence.trim();
    fortress.say("jobs", &["renew", "jobs/x", "--fence", fence]);
    assert!(fortress.say("ops", &["get", "jobs/x"]).contains("me"));
    assert!(fortress.say("ops", &["list"]).contains("jobs/x"));
    assert!(fortress.say("ops", &["status"]).contains("3 of 3 members vote"));
    fortress.say("jobs", &["release", "jobs/x", "--fence", fence]);
    let printed = fortress.say("jobs", &["lock", "jobs/y", "--", "sh", "-c", "echo done"]);
    assert_eq!(printed, "done\n");
    let elected = fortress.say("jobs", &["elect", "jobs/z", "--", "true"]);
    assert!(elected.starts_with("jobs/z"), "{elected}");

    let bench = ["bench", "--count=200", "--inflight=8", "--names=jobs/bench/", "--json"];
    let report: serde_json::Value =
        serde_json::from_str(&fortress.say("jobs", &bench)).expect("a line of JSON");
    assert!(
        report["operations"].as_u64() >= Some(200) && report["last_error"].is_null(),
        "{report}"
    );

    denied(fortress.command("jobs", &["acquire", "other"]), "may not acquire");
    denied(fortress.command("jobs", &["lock", "other", "--", "true"]), "may not acquire");
    denied(fortress.command("ops", &["acquire", "jobs/x"]), "may not acquire");
    denied(fortress.command("jobs", &["get", "other"]), "may not read");
    denied(fortress.command("jobs", &["list", "other/"]), "may not read");
    let (code, _, stderr) = fortress.run("jobs", &["status"]);
    assert_eq!(code, 77, "{stderr}");

    let log = fortress_log(fortress, &["jobs", "ops"]);
    assert!(!log.is_empty());
}

/// Stops the cell; what it logged, in which none of these tokens is.
fn fortress_log(fortress: Fortress, tokens: &[&str]) -> String {
    let token = |name: &&str| fs::read_to_string(fortress.folder.join(name)).expect("a token");
    let tokens: Vec<String> = tokens.iter().map(token).collect();
    let log = fortress.stop();
    for token in tokens {
        assert!(!log.contains(token.trim()), "a token is in the log");
    }
    log
}

#[test]
fn whoever_lacks_the_token_or_the_authority_is_refused() {
    let fortress = Fortress::start("fortress-strangers", "server");
    let get = ["get", "jobs/x"];
    let ca = fortress.path("certs/ca.pem");
    let with_ca = |mut command: Command| {
        command.env("PAXOSLEASE_TLS_CA", &ca);
        command
    };
    denied(with_ca(fortress.stranger(&get)), "asks for a token");
    let mut guess = with_ca(fortress.stranger(&get));
    guess.env("PAXOSLEASE_TOKEN", "guess");
    denied(guess, "does not know that token");
    denied(fortress.stranger(&get), "it speaks TLS on this port; see --tls-ca");
    let mut in_clear = fortress.stranger(&get);
    in_clear.env("PAXOSLEASE_TOKEN", "guess");
    denied(in_clear, "it speaks TLS on this port; see --tls-ca");
    let other = fortress.path("others");
    assert_eq!(outcome(paxoslease(&["certs", "--nodes=1", "--out", &other])).0, 0);
    let mut fooled = fortress.stranger(&get);
    fooled.env("PAXOSLEASE_TLS_CA", format!("{other}/ca.pem"));
    denied(fooled, "not signed by the CA that this client trusts");
    let mut misled = fortress.command("jobs", &get);
    misled.env("PAXOSLEASE_TLS_SERVER_NAME", "db9.example");
    denied(misled, "certificate is refused");
}

#[test]
fn where_clients_need_certificates_only_those_of_the_authority_will_do() {
    let fortress = Fortress::start("fortress-mutual", "mutual");
    let get = ["list"];
    denied(fortress.command("jobs", &get), "wants a certificate of this client");
    let with = |folder: &str| {
        let mut command = fortress.command("jobs", &get);
        command.env("PAXOSLEASE_TLS_CERT", fortress.path(&format!("{folder}/alice.pem")));
        command.env("PAXOSLEASE_TLS_KEY", fortress.path(&format!("{folder}/alice-key.pem")));
        command
    };
    assert_eq!(outcome(with("certs")).0, 0);
    let other = fortress.path("others");
    assert_eq!(outcome(paxoslease(&["certs", "--client=alice", "--out", &other])).0, 0);
    denied(with("others"), "has not signed this client's certificate");
}

#[test]
fn a_token_that_is_taken_out_ends_waits_and_one_that_is_put_in_counts_at_once() {
    let fortress = Fortress::start("fortress-tokens", "server");
    let gate = crate::cell::Gate::new("fortress-gate");
    let script = format!("echo ready; read line < {}", gate.path());
    let lock = fortress.command("jobs", &["lock", "jobs/x", "--", "sh", "-c", &script]);
    let holder = Process::run(lock);
    holder.stdout.until(|line| line == "ready");
    let waiter = Process::run(fortress.command("jobs", &["lock", "jobs/x", "--", "true"]));
    waiter.stderr.until(|line| line.starts_with("waiting: "));
    let watcher = Process::run(fortress.command("jobs", &["watch", "jobs/"]));
    watcher.stderr.until(|line| line.starts_with("watching at "));

    let entry = fortress.token("next", &["--names=jobs/*", "--may=acquire,read"]);
    for (id, node) in (1..=3).zip(&fortress.nodes) {
        fortress.configure(id, "server", &entry);
        node.signal(Signal::HUP);
        node.stderr.until(|line| line.contains("certificates and tokens were read again"));
    }
    let problem = waiter.stderr.until(|line| line.starts_with("error: "));
    assert_eq!(waiter.end(), Some(77), "{problem:?}");
    let problem = watcher.stderr.until(|line| line.starts_with("error: "));
    assert_eq!(watcher.end(), Some(77), "{problem:?}");
    denied(fortress.command("jobs", &["get", "jobs/x"]), "does not know that token");
    let held = fortress.say("next", &["get", "jobs/x"]);
    assert!(held.contains("jobs/x"), "the lease itself is not lost: {held}");
    gate.open();
    let _without_a_token_it_could_not_give_it_back = holder.end();
}

#[test]
fn no_process_shows_a_token_in_its_arguments() {
    let fortress = Fortress::start("fortress-ps", "server");
    let token = fs::read_to_string(fortress.folder.join("jobs")).expect("a token");
    let script = "tr '\\0' ' ' < /proc/$PPID/cmdline; cat /proc/*/cmdline | tr '\\0' ' '";
    let mut lock = fortress.stranger(&["lock", "jobs/x", "--", "sh", "-c", script]);
    lock.env("PAXOSLEASE_TLS_CA", fortress.path("certs/ca.pem"));
    lock.env("PAXOSLEASE_TOKEN", token.trim());
    let (code, shown, stderr) = outcome(lock);
    assert_eq!(code, 0, "{stderr}");
    assert!(shown.contains("watchdog") && !shown.contains(token.trim()), "{shown}");
}
