//! Clients of every kind on a real cell of three processes on loopback, one of which is killed; and
//! the log of that run, falsified in every way that the judge must notice.
//!
//! There are no faults of the harness: a failure is due to the clients, the log, the judge or the
//! cell.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use paxoslease_chaos::check::{Bounds, Rule, Verdict, judge};
use paxoslease_chaos::clients::{Behaviour, ClientOptions, Part};
use paxoslease_chaos::log::{
    AcquireRequest, Event, EventKind, Kind, Log, NodeState, Phase, Records, now, read,
};
use paxoslease_chaos::store::Store;
use paxoslease_rig::{Folder, Process, clock, free_ports};

const TTL_MAX_MS: u64 = 1000;
/// How often every kind of client must have been granted a lease before the test goes on.
const GRANTS: u64 = 4;
/// When to give up: two orders of magnitude beyond what it takes.
const LOOKS_MAX: u32 = 1200;

struct Cell {
    binary: PathBuf,
    folder: PathBuf,
    ports: [u16; 9],
    nodes: Vec<Option<Process>>,
}

impl Cell {
    fn start(folder: &Path) -> Self {
        let ports = free_ports().expect("free ports");
        let mut cell =
            Self { binary: paxoslease(), folder: folder.to_owned(), ports, nodes: Vec::new() };
        for node in 0..3 {
            let process = cell.node(node);
            cell.nodes.push(Some(process));
        }
        cell
    }

    fn node(&self, node: usize) -> Process {
        let mut command = Command::new(&self.binary);
        command.args(["serve", "--node", &(node + 1).to_string(), "--shards", "1"]);
        command.args(["--max-lease", &format!("{TTL_MAX_MS}ms")]);
        command.args(["--listen-clients", &self.address(0, node)]);
        command.args(["--listen-http", &self.address(6, node)]);
        for peer in 0..3 {
            command.args(["--peer", &format!("{}={}", peer + 1, self.address(3, peer))]);
        }
        command.arg("--data-dir").arg(self.folder.join(format!("node-{node}")));
        let log = self.folder.join(format!("node-{node}.log"));
        Process::spawn(command, &log).expect("a node")
    }

    fn address(&self, first: usize, node: usize) -> String {
        format!("127.0.0.1:{}", self.ports[first + node])
    }

    fn client(&self, kind: Kind, number: u64, events: &Path) -> Process {
        let first = if kind == Kind::Http { 6 } else { 0 };
        let endpoints: Vec<String> = (0..3).map(|node| self.address(first, node)).collect();
        let mut command = Command::new(env!("CARGO_BIN_EXE_chaos-client"));
        let options = ClientOptions {
            kind,
            id: format!("{kind}-{number}"),
            endpoints,
            names: ["alpha", "beta"].map(str::to_owned).to_vec(),
            behaviour: Behaviour::Contend,
            through: None,
            seed: number,
            ttl_max_ms: TTL_MAX_MS,
            drift_ppm: 1000,
            log: events.join(format!("{kind}-{number}.jsonl")),
            paxoslease: self.binary.clone(),
            part: Part::Client,
            attempt: 0,
            hold_ms: 0,
            stubborn: false,
        };
        command.arg(options.to_json());
        let log = self.folder.join(format!("{kind}-{number}.log"));
        Process::spawn(command, &log).expect("a client")
    }
}

/// The binary `paxoslease` of this build.
fn paxoslease() -> PathBuf {
    let path = Path::new(env!("CARGO_BIN_EXE_chaos-client")).with_file_name("paxoslease");
    if !path.is_file() {
        let status = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--package", "paxoslease-cli"])
            .status()
            .expect("cargo");
        assert!(status.success() && path.is_file(), "no {}", path.display());
    }
    path
}

fn judged(records: &Records) -> Verdict {
    // There are no probes here, so holders may cause long times without a grant.
    judge(&records.events, Bounds { idle: Duration::from_secs(86_400), ..Bounds::default() })
}

/// Waits until every kind of client was granted a lease `GRANTS` times after `since`.
fn await_grants(events: &Path, since: u64, clients: &[Process]) -> Records {
    for _ in 0..LOOKS_MAX {
        let records = read(events).expect("logs");
        let verdict = judged(&records);
        let granted = |kind| {
            let of_kind = |held: &&_| -> bool {
                let held: &paxoslease_chaos::check::Tenure = held;
                held.kind == kind && held.from >= since
            };
            verdict.tenures.iter().filter(of_kind).count() as u64
        };
        for client in clients {
            assert_eq!(client.ended().expect("a status"), None, "it ended: {}", client.log_tail());
        }
        if Kind::ALL.into_iter().all(|kind| granted(kind) >= GRANTS) {
            return records;
        }
        clock::sleep(Duration::from_millis(100));
    }
    let said: String = clients.iter().map(Process::log_tail).collect();
    panic!("not every kind of client was granted a lease in time; they said: {said}");
}

fn run() -> Records {
    let folder = Folder::new("chaos").expect("a folder");
    let events = folder.join("events");
    std::fs::create_dir(&events).expect("a folder");
    let _store = Store::start(&events).expect("a store");
    let mut log = Log::create(&events.join("harness.jsonl")).expect("a log");
    let mut cell = Cell::start(folder.path());
    let clients: Vec<Process> =
        (1..).zip(Kind::ALL).map(|(number, kind)| cell.client(kind, number, &events)).collect();
    await_grants(&events, 0, &clients);

    let fault = |phase| {
        let (what, whom) = ("kill".to_owned(), "node 1".to_owned());
        EventKind::Fault { id: 1, what, whom, nodes: vec![1], phase }
    };
    log.write(fault(Phase::Begin)).expect("written");
    cell.nodes[0].take().expect("it runs").kill().expect("killed");
    log.write(EventKind::Node { id: 1, state: NodeState::Killed }).expect("written");
    await_grants(&events, now(), &clients);
    cell.nodes[0] = Some(cell.node(0));
    log.write(EventKind::Node { id: 1, state: NodeState::Started }).expect("written");
    log.write(fault(Phase::End)).expect("written");
    await_grants(&events, now(), &clients);
    // Killed at any point.
    drop(clients);
    read(&events).expect("logs")
}

fn rules(events: Vec<Event>) -> Vec<Rule> {
    let mut records = Records { events, cut: 0 };
    records.events.sort_by_key(|event| event.at);
    judged(&records).violations.iter().map(|violation| violation.rule).collect()
}

#[test]
fn a_real_run_has_no_violation_until_its_log_is_doctored() {
    let records = run();
    let verdict = judged(&records);
    assert_eq!(verdict.violations, [], "{} events", records.events.len());
    let total = verdict.counts.total();
    assert!(total.released > 0 && total.renewed > 0, "{total:?}");
    assert!(verdict.counts.writes_taken > 0, "{:?}", verdict.counts);

    // The first of two consecutive tenures of one name.
    let (first, second) = verdict
        .tenures
        .iter()
        .filter(|held| held.is_believed())
        .find_map(|held| {
            let later = |next: &&_| -> bool {
                let next: &paxoslease_chaos::check::Tenure = next;
                next.is_believed() && next.name == held.name && next.from >= held.to
            };
            verdict.tenures.iter().find(later).map(|next| (held, next))
        })
        .expect("two tenures of a name");

    let mut longer = records.events.clone();
    longer.retain(|event| match &event.what {
        EventKind::Ended { tenure, .. } => tenure.fence != first.fence,
        _ => true,
    });
    for event in &mut longer {
        if let EventKind::Held(belief) = &mut event.what
            && belief.fence == first.fence
        {
            belief.until = second.from + 1;
        }
    }
    assert!(rules(longer).contains(&Rule::OneHolder), "a belief that lasts a nanosecond too long");

    let mut shared = records.events.clone();
    for event in &mut shared {
        if let EventKind::Held(belief) = &mut event.what
            && belief.fence == second.fence
        {
            belief.fence = first.fence;
        }
    }
    assert!(rules(shared).contains(&Rule::FencesAreUnique), "a fence that is given twice");

    let mut swapped = records.events.clone();
    for event in &mut swapped {
        if let EventKind::Held(belief) = &mut event.what {
            if belief.fence == second.fence {
                belief.fence = first.fence;
            } else if belief.fence == first.fence {
                belief.fence = second.fence;
            }
        }
    }
    assert!(rules(swapped).contains(&Rule::FencesRise), "fences the wrong way round");

    let late = |accepted| EventKind::Write {
        client: first.client.clone(),
        name: first.name.clone(),
        fence: first.fence,
        accepted,
        highest: second.fence,
    };
    let newer = EventKind::Write {
        client: second.client.clone(),
        name: second.name.clone(),
        fence: second.fence,
        accepted: true,
        highest: first.fence,
    };
    let mut stale = records.events.clone();
    stale.push(Event { at: second.from, what: newer });
    stale.push(Event { at: second.from + 1, what: late(true) });
    assert!(rules(stale).contains(&Rule::StaleWritesAreRefused), "a late write that was taken");

    let mut refused = records.events.clone();
    refused.push(Event { at: first.from, what: late(false) });
    assert!(rules(refused).contains(&Rule::HoldersMayWrite), "a holder that may not write");

    let released = verdict.tenures.iter().find(|held| held.released_at.is_some());
    let released = released.expect("a confirmed release");
    let asked_at = released.released_at.expect("it was found by that");
    let ask = AcquireRequest {
        client: "x".to_owned(),
        kind: Kind::Http,
        name: released.name.clone(),
        attempt: 1,
        ttl_ms: 1,
        wait_ms: 0,
    };
    let fence = Some(released.fence);
    let mut denied = records.events;
    denied.push(Event { at: asked_at, what: EventKind::Asked(ask.clone()) });
    denied.push(Event { at: asked_at + 1, what: EventKind::Denied { ask, asked_at, fence } });
    assert!(rules(denied).contains(&Rule::ReleasesAreKept), "denied by what was given back");
}
