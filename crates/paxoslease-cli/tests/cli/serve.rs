//! One node per process.

use std::net::TcpListener;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::Duration;

use paxoslease_node::{Config, Node, Role};
use rustix::process::Signal;
use serde_json::Value;

use crate::support::{Process, free_port, outcome, paxoslease, scratch};

/// Long enough for the first poll of the status to find a node in quarantine.
const MAX_LEASE: &str = "3s";

const NO_CLIENTS: [&str; 2] = ["--listen-clients=off", "--listen-http=off"];

/// The options of the nodes of one cell of three.
struct CellOfThree {
    port: u16,
}

impl CellOfThree {
    fn new() -> Self {
        Self { port: free_port(3) }
    }

    fn address(&self, id: u16) -> String {
        format!("127.0.0.1:{}", self.port + 10 * (id - 1))
    }

    fn options(&self, id: u16, data_dir: &Path) -> Vec<String> {
        let data_dir = data_dir.join(id.to_string());
        let data_dir = data_dir.to_str().expect("UTF-8");
        let node = id.to_string();
        let options = ["serve", "--node", &node, "--data-dir", data_dir, "--max-lease", MAX_LEASE];
        let peers = (1..=3).map(|id| format!("--peer={id}={}", self.address(id)));
        let any = "127.0.0.1:0";
        let clients = ["--listen-clients", any, "--listen-http", any].map(str::to_owned);
        let rest = ["--shards=2", "--log-format=json", "--json"];
        let options = options.into_iter().map(str::to_owned);
        options.chain(peers).chain(clients).chain(rest.map(str::to_owned)).collect()
    }

    fn start(&self, id: u16, data_dir: &Path) -> Process {
        Process::start(&borrowed(&self.options(id, data_dir)))
    }

    fn start_all(&self, data_dir: &Path) -> Vec<Process> {
        (1..=3).map(|id| self.start(id, data_dir)).collect()
    }
}

fn borrowed(args: &[String]) -> Vec<&str> {
    args.iter().map(String::as_str).collect()
}

/// The log until the node votes and reaches a majority, parsed.
fn log_until_voting(process: &Process) -> Vec<Value> {
    let parse = |line: &str| -> Value { serde_json::from_str(line).expect("a line of JSON") };
    let is_voting = |line: &str| {
        let entry = parse(line);
        entry["message"] == "status" && entry["ready"] == true && entry["quarantine"].is_null()
    };
    let lines = process.stderr.until(is_voting);
    lines.iter().map(|line| parse(line)).collect()
}

fn message_starts(log: &[Value], text: &str) -> bool {
    let messages = log.iter().filter_map(|entry| entry["message"].as_str());
    messages.into_iter().any(|message| message.starts_with(text))
}

fn stop_all(processes: Vec<Process>) {
    for process in &processes {
        process.signal(Signal::TERM);
    }
    for process in processes {
        process.stderr.until(|line| line.contains("the snapshot lets the next start vote at once"));
        assert_eq!(process.end(), Some(0));
    }
}

#[test]
fn only_a_start_without_a_snapshot_has_a_quarantine() {
    let (cell, data_dir) = (CellOfThree::new(), scratch("restart"));
    let processes = cell.start_all(&data_dir);
    for process in &processes {
        let log = log_until_voting(process);
        assert_eq!(log[0]["message"], "starting", "{log:#?}");
        assert!(log[0]["members"].as_str().is_some_and(|all| all.contains(&cell.address(2))));
        assert!(message_starts(&log, "no stable record: waiting max_lease (3s)"), "{log:#?}");
        let is_counting = |entry: &Value| entry["quarantine"].is_string();
        assert!(log.iter().any(is_counting), "{log:#?}");
        assert!(message_starts(&log, "votes now"), "{log:#?}");
    }
    stop_all(processes);

    let processes = cell.start_all(&data_dir);
    for process in &processes {
        let log = log_until_voting(process);
        assert!(message_starts(&log, "clean stop: leases restored"), "{log:#?}");
        assert!(log.iter().all(|entry| entry["quarantine"].is_null()), "{log:#?}");
    }
    stop_all(processes);
}

#[test]
fn the_status_is_on_stdout_at_every_change() {
    let (cell, data_dir) = (CellOfThree::new(), scratch("changes"));
    let mut processes = cell.start_all(&data_dir);
    let parse = |line: &str| -> Value { serde_json::from_str(line).expect("a line of JSON") };
    let ups = |line: &str| {
        let status = parse(line);
        let peers = status["peers"].as_array().expect("a list");
        peers.iter().filter(|peer| peer["up"] == true).count()
    };
    let is_whole = |line: &str| ups(line) == 2 && parse(line)["quarantine_remaining_ms"] == 0;
    let lines = processes[0].stdout.until(is_whole);
    let whole = parse(lines.last().expect("a line"));
    assert_eq!((&whole["node"], &whole["cell"]), (&Value::from(1), &Value::from("default")));
    drop(processes.pop());
    let lines = processes[0].stdout.until(|line| ups(line) == 1);
    let left = parse(lines.last().expect("a line"));
    assert_eq!(left["ready"], true, "two of three are a majority: {left}");
    stop_all(processes);
}

#[test]
fn a_data_folder_of_another_node_is_refused() {
    let data_dir = scratch("shared");
    let port = free_port(2);
    let address = format!("127.0.0.1:{port}");
    let (peer, data) = (format!("--peer=1={address}"), data_dir.to_str().expect("UTF-8"));
    let options = ["serve", "--node=1", &peer, "--data-dir", data, "--max-lease=1s", "--shards=1"];
    let options = [&options[..], &NO_CLIENTS].concat();
    let first = Process::start(&options);
    first.stderr.until(|line| line.contains("quarantine is over"));
    // A lease is granted once the record is durable, and the folder then names its node.
    let ttl = Duration::from_secs(1);
    let config = Config::new("default", 2).role(Role::Proposer).peer(1, address);
    paxoslease_client::block_on(async {
        let proposer = Node::start(config.max_lease(ttl).shards(1)).await.expect("starts");
        proposer.ready().await.expect("reaches the member");
        proposer.acquire("x", ttl).await.expect("granted").release().await.expect("released");
        proposer.shutdown().await;
    });
    let elsewhere = format!("--listen-peers=127.0.0.1:{}", port + 10);
    let second = paxoslease(&[&options[..], &[&elsewhere]].concat());
    let (code, stdout, stderr) = outcome(second);
    assert_eq!((code, stdout.as_str()), (1, ""), "{stderr}");
    let reason = format!("in use by process {}. ", first.id());
    let last = stderr.lines().last().expect("a line");
    assert!(last.starts_with("error: ") && last.contains(&reason), "{stderr}");
}

#[test]
fn a_taken_port_is_one_clear_line() {
    let (cell, data_dir) = (CellOfThree::new(), scratch("port"));
    let _other = TcpListener::bind(cell.address(1)).expect("free");
    let options = cell.options(1, &data_dir);
    let (code, stdout, stderr) = outcome(paxoslease(&borrowed(&options)));
    assert_eq!((code, stdout.as_str()), (1, ""), "{stderr}");
    let last = stderr.lines().last().expect("a line");
    let reason = format!("error: cannot listen for peers on {}: ", cell.address(1));
    assert!(last.starts_with(&reason), "{stderr}");
    assert!(!data_dir.join("1").exists(), "nothing was changed");
}

#[test]
fn a_corrupt_record_is_refused_until_it_is_reset() {
    let data_dir = scratch("corrupt");
    let port = free_port(1);
    let peer = format!("--peer=1=127.0.0.1:{port}");
    let data = data_dir.to_str().expect("UTF-8");
    let options = ["serve", "--node=1", &peer, "--data-dir", data, "--max-lease=50ms"];
    let options = [&options[..], &NO_CLIENTS].concat();
    let first = Process::start(&options);
    first.stderr.until(|line| line.contains("ready=true"));
    assert_eq!(first.end_by(Signal::TERM), Some(0));
    std::fs::write(data_dir.join("record"), b"not a record").expect("can be written");
    let (code, _, stderr) = outcome(paxoslease(&options));
    assert_eq!(code, 1, "{stderr}");
    assert!(stderr.contains("--reset-stable-record"), "{stderr}");
    let again = Process::start(&[&options[..], &["--reset-stable-record"]].concat());
    again.stderr.until(|line| line.contains("stable record reset: waiting max_lease"));
    assert_eq!(again.end_by(Signal::TERM), Some(0));
}

#[test]
fn systemd_gets_ready_status_and_stopping_notifications() {
    let folder = scratch("systemd");
    let socket = UnixDatagram::bind(folder.join("notify")).expect("can be made");
    let told = || {
        let mut bytes = [0; 1024];
        let len = socket.recv(&mut bytes).expect("a datagram");
        String::from_utf8(bytes[..len].to_vec()).expect("UTF-8")
    };
    let peer = format!("--peer=1=127.0.0.1:{}", free_port(1));
    let data = folder.join("data");
    let mut command = paxoslease(&["serve", "--node=1", &peer, "--new-cell", "--data-dir"]);
    command.arg(&data).args(NO_CLIENTS).env("NOTIFY_SOCKET", folder.join("notify"));
    let process = Process::run(command);
    assert_eq!(told().trim(), "READY=1");
    let mut status = told();
    while !status.contains("ready; 0 of 0 peers") {
        assert!(status.starts_with("STATUS="), "{status}");
        status = told();
    }
    process.signal(Signal::TERM);
    while told().trim() != "STOPPING=1" {}
    assert_eq!(process.end(), Some(0));
}

#[test]
fn a_new_cell_votes_at_once() {
    let data_dir = scratch("new-cell");
    let peer = format!("--peer=1=127.0.0.1:{}", free_port(1));
    let data = data_dir.to_str().expect("UTF-8");
    let options = ["serve", "--node=1", &peer, "--data-dir", data, "--new-cell", "--shards=1"];
    let options = [&options[..], &NO_CLIENTS].concat();
    let first = Process::start(&options);
    let log = first.stderr.until(|line| line.contains("ready=true"));
    assert!(!log.join("").contains("quarantine="), "{log:#?}");
    assert_eq!(first.end_by(Signal::TERM), Some(0));
}

#[test]
fn a_node_stops_with_the_process_that_started_it() {
    let peer = format!("--peer=1=127.0.0.1:{}", free_port(1));
    let mut command = paxoslease(&["serve", "--node=1", &peer, "--with-parent"]);
    command.args(NO_CLIENTS);
    // Its stdin is closed from the start.
    assert_eq!(Process::run(command).end(), Some(0));
}

#[test]
fn the_default_bounds_fit_the_memory_of_the_machine() {
    let peer = ["--node=1", "--peer=1=127.0.0.1:7401"];
    let (_, stdout, _) =
        outcome(paxoslease(&[&["serve", "--check", "--json"], &peer[..]].concat()));
    let plan: Value = serde_json::from_str(&stdout).expect("JSON");
    let bound = |key: &str| plan["limits"][key].as_u64().expect("a number");
    assert!(bound("leases") * 88 <= bound("names_bytes"), "{stdout}");
}
