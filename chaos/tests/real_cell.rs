//! Clients of every kind on a real cell of three processes on loopback, one of which is killed; and
//! the log of that run, falsified in every way that the judge must notice.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use paxoslease_chaos::check::{Bounds, Rule, Tenure, Verdict, judge};
use paxoslease_chaos::client_processes::NAMES;
use paxoslease_chaos::log::{AcquireRequest, Belief, Event, EventKind, Kind, Records, now, read};
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
    let plan = Plan {
        seed: 1,
        nodes: 3,
        groups: 1,
        clients: 0,
        max_lease: Duration::from_secs(1),
        // Without the feature `chaos`, no clock has a rate error.
        drift_ppm: 1,
        has_disks: false,
        has_upgrade: false,
    };
    RunOptions {
        plan,
        len: Duration::ZERO,
        directed: None,
        without_rule: None,
        paxoslease: paxoslease(),
        upgrade: None,
        client: env!("CARGO_BIN_EXE_chaos-client").into(),
        is_diskless: false,
        on_loopback: true,
        folder: folder.join("run"),
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

/// Whether the judge finds that a rule is broken in these events.
fn is_found(rule: Rule, mut events: Vec<Event>) -> bool {
    events.sort_by_key(|event| event.at);
    let violations = judged(&Records { events, cut: 0 }).violations;
    violations.iter().any(|violation| violation.rule == rule)
}

/// The events with changed beliefs.
fn with_beliefs(events: &[Event], change: impl Fn(&mut Belief)) -> Vec<Event> {
    let mut events = events.to_vec();
    for event in &mut events {
        if let EventKind::Held(belief) = &mut event.what {
            change(belief);
        }
    }
    events
}

fn write_of(held: &Tenure, accepted: bool) -> EventKind {
    let Tenure { client, name, fence, .. } = held.clone();
    EventKind::Write { client, name, fence, accepted, highest: 0 }
}

#[test]
fn a_real_run_has_no_violation_until_its_log_is_falsified() {
    let events = run().events;
    let verdict = judged(&Records { events: events.clone(), cut: 0 });
    assert_eq!(verdict.violations, [], "{} events", events.len());
    let total = verdict.counts.total();
    assert!(total.released > 0 && total.renewed > 0, "{total:?}");
    assert!(verdict.counts.writes_taken > 0, "{:?}", verdict.counts);

    // Two consecutive tenures of one name.
    let believed = || verdict.tenures.iter().filter(|held| held.is_believed());
    let next = |held: &Tenure| {
        believed().find(|next| next.name == held.name && next.from >= held.to).cloned()
    };
    let two = believed().find_map(|held| Some((held.clone(), next(held)?)));
    let (first, second) = two.expect("two tenures of a name");

    let mut longer = with_beliefs(&events, |belief| {
        if belief.fence == first.fence {
            belief.until = second.from + 1;
        }
    });
    longer.retain(|event| match &event.what {
        EventKind::Ended { tenure, .. } => tenure.fence != first.fence,
        _ => true,
    });
    assert!(is_found(Rule::OneHolder, longer), "a belief that lasts a nanosecond too long");

    let shared = with_beliefs(&events, |belief| {
        if belief.fence == second.fence {
            belief.fence = first.fence;
        }
    });
    assert!(is_found(Rule::FencesAreUnique, shared), "a fence that is given twice");

    let swapped = with_beliefs(&events, |belief| {
        if belief.fence == second.fence {
            belief.fence = first.fence;
        } else if belief.fence == first.fence {
            belief.fence = second.fence;
        }
    });
    assert!(is_found(Rule::FencesRise, swapped), "fences the wrong way round");

    let with = |more: [(u64, EventKind); 2]| {
        let more = more.map(|(at, what)| Event { at, what });
        [&events[..], &more].concat()
    };
    let stale =
        with([(second.from, write_of(&second, true)), (second.from + 1, write_of(&first, true))]);
    assert!(is_found(Rule::StaleWritesAreRefused, stale), "a late write that was taken");

    let refused =
        with([(first.from, write_of(&first, false)), (first.from, write_of(&first, false))]);
    assert!(is_found(Rule::HoldersMayWrite, refused), "a holder that may not write");

    let released = verdict.tenures.iter().find_map(|held| Some((held, held.released_at?)));
    let (released, asked_at) = released.expect("a confirmed release");
    let (client, name, kind) = ("x".to_owned(), released.name.clone(), Kind::Http);
    let ask = AcquireRequest { client, kind, name, attempt: 1, ttl_ms: 1, wait_ms: 0 };
    let denial = EventKind::Denied { ask: ask.clone(), asked_at, fence: Some(released.fence) };
    let denied = with([(asked_at, EventKind::Asked(ask)), (asked_at + 1, denial)]);
    assert!(is_found(Rule::ReleasesAreKept, denied), "denied by a released tenure");
}
