//! Clients of every kind on a real cell of three processes on loopback, one of which is killed.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use paxoslease_chaos::check::{Bounds, Tally, Verdict, judge};
use paxoslease_chaos::client_processes::NAMES;
use paxoslease_chaos::log::{Kind, Records, now, read};
use paxoslease_chaos::nemesis::{Fault, NodeFault, Testbed};
use paxoslease_chaos::run::{RunOptions, prepare};
use paxoslease_chaos::schedule::Plan;
use paxoslease_rig::{Folder, clock};

/// How often every kind of client must have been granted a lease before the test goes on.
const GRANTS: usize = 4;
/// When to give up: two orders of magnitude beyond what it takes.
const LOOKS_MAX: u32 = 1200;

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

fn options(folder: &Folder) -> RunOptions {
    RunOptions {
        // Without the feature `chaos`, no clock has a rate error.
        plan: Plan { groups: 1, drift_ppm: 1, ..Plan::new(1, 3, Duration::from_secs(1)) },
        paxoslease: paxoslease(),
        client: env!("CARGO_BIN_EXE_chaos-client").into(),
        on_loopback: true,
        folder: folder.join("run"),
        ..RunOptions::default()
    }
}

fn judged(records: &Records) -> Verdict {
    // A busy machine may cause long times without a grant.
    let forever = Duration::from_secs(86_400);
    judge(&records.events, Bounds { idle: forever, served: forever, ..Bounds::default() })
}

/// Waits until every kind of contender was granted a lease `GRANTS` times after `since`.
fn await_grants(testbed: &mut Testbed, events: &Path, since: u64) {
    for _ in 0..LOOKS_MAX {
        let verdict = judged(&read(events).expect("logs"));
        let granted = |kind| {
            let tenures = verdict.tenures.iter().filter(|held| NAMES.contains(&&*held.name));
            tenures.filter(|held| held.kind == kind && held.from >= since).count()
        };
        testbed.clients.look().expect("a status");
        assert_eq!(testbed.clients.bugs(), [""; 0]);
        if Kind::ALL.into_iter().all(|kind| granted(kind) >= GRANTS) {
            return;
        }
        clock::sleep(Duration::from_millis(100));
    }
    panic!("not every kind of client was granted a lease in time");
}

fn run() -> Records {
    let folder = Folder::new("chaos").expect("a folder");
    let options = options(&folder);
    let events = options.events();
    let (mut testbed, _) = prepare(&options).expect("a testbed");
    testbed.start_all().expect("started");
    await_grants(&mut testbed, &events, 0);
    testbed.begin((1, 0), &Fault::Nodes(NodeFault::Kill, vec![1])).expect("killed");
    await_grants(&mut testbed, &events, now());
    testbed.end((1, 0)).expect("started again");
    await_grants(&mut testbed, &events, now());
    // Clients are killed at any point.
    drop(testbed);
    read(&events).expect("logs")
}

#[test]
fn a_real_run_with_a_killed_node_has_no_violation() {
    let verdict = judged(&run());
    assert_eq!(verdict.violations, [], "{} events", verdict.counts.events);
    let counts = &verdict.counts;
    let sum = |of: fn(&Tally) -> u64| counts.by_kind.values().map(of).sum::<u64>();
    assert!(sum(|tally| tally.released) > 0 && sum(|tally| tally.renewed) > 0, "{counts:?}");
    assert!(counts.writes_taken > 0, "{counts:?}");
}
