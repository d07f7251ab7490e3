//! The judge reports every broken rule and nothing else. Every check can fail.

mod cell;

use std::collections::BTreeSet;

use paxoslease_core::{Record, Rule, Rules};

use crate::run::Run;
use crate::{Clocks, Judge, Line, Report, Sink};
use cell::{Cast, Fault, Memory, World, played};

const STEPS: u32 = 2000;
/// How many worlds are tried before a rule counts as unbreakable; most rules need one or two.
const SEEDS: u64 = 100;
/// Rules that this judge cannot check: those of holders and clients, of whom a node's trace says
/// nothing; those that the harness breaks; and those of the exhaustive checker, which are nodes
/// without a record, missing in these worlds, and confirmations of releases.
const NOT_JUDGED_HERE: [Rule; 27] = [
    Rule::ReleaseDropsBeliefFirst,
    Rule::ReleasedTenureIsNeverUsed,
    Rule::OnlyOwnTenureIsRenewed,
    Rule::WaitedIsShrunkByDrift,
    Rule::SnapshotIsUsedOnce,
    Rule::RecordlessNodeAsksFirst,
    Rule::RecordlessFloorIsLearnt,
    Rule::ReleaseNeedsMajority,
    // Without it a free name may be blocked, which breaks no rule that the judge applies.
    Rule::EndedTenureIsNotStored,
    // Which values changes of registers compute is the checker's.
    Rule::EndIsDurable,
    Rule::ForgetsOneBallot,
    Rule::ForgetNeedsAll,
    Rule::ForgetAtAll,
    Rule::HighestWins,
    Rule::PromisesOfMajority,
    Rule::EndOfThisBallot,
    Rule::DropNeedsMajority,
    Rule::UnchosenIsDropped,
    Rule::RepairCarriesEnd,
    Rule::NotHeldIsWritten,
    Rule::FenceRises,
    Rule::OtherLeaseBlocks,
    Rule::KeepNeedsLease,
    Rule::DropWaits,
    Rule::ReleaseComparesFence,
    Rule::FreeNamesRelease,
    Rule::FreeRegistersMove,
];

type Traces = Vec<(String, Vec<String>)>;

fn judge(traces: &Traces) -> Report {
    let mut judge = Judge::new(Clocks::WithinDrift);
    for (label, lines) in traces {
        let text: String = lines.iter().flat_map(|line| [line, "\n"]).collect();
        judge.add(label, text.as_bytes()).expect("memory can be read");
    }
    judge.verdict()
}

fn broken(report: &Report) -> BTreeSet<&'static str> {
    report.violations.iter().map(|(rule, _)| *rule).collect()
}

fn sound(seed: u64) -> World {
    played(seed, Cast::Fixed(3), Rules::ALL, Fault::None, STEPS)
}

/// Replays every trace with a judge whose state `tamper` changes half-way.
fn tampered(traces: &Traces, tamper: impl Fn(&mut Run)) -> BTreeSet<&'static str> {
    let mut report = Report::default();
    for (label, lines) in traces {
        let mut lines = lines.iter().map(|line| serde_json::from_str(line).expect("whole"));
        let Some(Line::Begin(header)) = lines.next() else { panic!("{label} begins") };
        let half = lines.len() / 2;
        let mut run = Run::new(label.clone(), *header, &mut report).expect("it can be replayed");
        for (at, line) in lines.enumerate() {
            if at == half {
                tamper(&mut run);
            }
            run.line(line, &mut report);
        }
    }
    broken(&report)
}

/// Changes one line of one trace: the first for which `edit` returns something.
fn edited(traces: &Traces, edit: impl Fn(&str) -> Option<String>) -> Traces {
    let mut traces = traces.clone();
    let line = traces.iter_mut().flat_map(|(_, lines)| lines).find_map(|line| {
        let edited = edit(line)?;
        Some((line, edited))
    });
    let (line, edited) = line.expect("something to edit");
    *line = edited;
    traces
}

#[test]
fn a_sound_cell_breaks_no_rule() {
    for members in [1, 2, 3, 5] {
        for seed in 0..20 {
            let report =
                judge(&played(seed, Cast::Fixed(members), Rules::ALL, Fault::None, STEPS).lines());
            assert_eq!(report.violations, [], "{members} members, seed {seed}: {report}");
        }
    }
}

#[test]
fn a_cell_whose_members_change_breaks_no_rule() {
    let (mut epochs, mut renewed) = (0, 0);
    for seed in 0..40 {
        let world = played(seed, Cast::Changing, Rules::ALL, Fault::None, 2 * STEPS);
        let traces = world.lines();
        let report = judge(&traces);
        assert_eq!(report.violations, [], "seed {seed}: {report}");
        epochs += world.epochs();
        renewed +=
            traces.iter().flat_map(|(_, lines)| lines).filter(|l| l.contains("Renewed")).count();
    }
    assert!(epochs > 100 && renewed > 100, "{epochs} epochs, {renewed} renewals");
}

#[test]
fn two_holders_after_a_change_that_ended_early_are_found() {
    let is_found = |seed| {
        let world = played(seed, Cast::Changing, Rules::ALL, Fault::EndIsEarly, 2 * STEPS);
        broken(&judge(&world.lines())).contains("invariant 1: one holder at a time")
    };
    assert!((0..SEEDS).any(is_found));
}

#[test]
fn the_judge_notices_every_rule_of_changes_that_is_off() {
    for rule in Rule::OF_CHANGES {
        let is_noticed = |seed| {
            let rules = Rules::without(rule);
            let world = played(seed, Cast::Changing, rules, Fault::None, 2 * STEPS);
            !judge(&world.lines()).violations.is_empty()
        };
        assert!((0..SEEDS).any(is_noticed), "{rule:?}");
    }
}

#[test]
fn the_judge_notices_every_core_rule_that_is_off() {
    // The members of these cells do not change, and no trace shows a decision about them.
    let left_out = [&NOT_JUDGED_HERE[..], &Rule::OF_CHANGES, &Rule::OF_DECISIONS].concat();
    for rule in Rule::ALL.into_iter().filter(|rule| !left_out.contains(rule)) {
        let members = if rule == Rule::QuorumIsMajority { 4 } else { 3 };
        let is_missed = |seed| {
            let cast = Cast::Fixed(members);
            let world = played(seed, cast, Rules::without(rule), Fault::None, STEPS);
            !judge(&world.lines()).violations.is_empty()
        };
        assert!((0..SEEDS).any(is_missed), "{rule:?}");
    }
}

/// For every check, some trace or some tampering makes the judge report it.
#[test]
fn every_check_can_fail() {
    // Each of these has a test below.
    let mut failed = BTreeSet::from([
        "every line is whole",
        "the core does the same again",
        "what is received was sent",
        "C3 one configuration per epoch",
        "R4 a snapshot has every live lease",
        "R4 a snapshot loses no lease",
        "R4 leases are restored with their full time",
    ]);
    let mut looked_at: BTreeSet<&str> = BTreeSet::new();
    for seed in 0..SEEDS {
        let mut worlds = vec![sound(seed)];
        worlds.extend(
            [Fault::SnapshotStays, Fault::RecordIsLost, Fault::RegistersAreLost]
                .map(|fault| played(seed, Cast::Fixed(3), Rules::ALL, fault, STEPS)),
        );
        worlds.extend(
            [Fault::None, Fault::SnapshotStays, Fault::EpochIsLost]
                .map(|fault| played(seed, Cast::Changing, Rules::ALL, fault, STEPS)),
        );
        // For two seeds a world without each rule; after that only the rule that takes a late
        // answer or a lost record.
        let rules = if seed < 2 { &Rule::ALL[..] } else { &[Rule::LateMajorityCountsForNothing] };
        let mutant =
            |cast: Cast, rule: &Rule| played(seed, cast, Rules::without(*rule), Fault::None, STEPS);
        worlds.extend(rules.iter().map(|rule| mutant(Cast::Fixed(3), rule)));
        if seed < 2 {
            worlds.extend(Rule::OF_CHANGES.iter().map(|rule| mutant(Cast::Changing, rule)));
        }
        for report in worlds.iter().map(|world| judge(&world.lines())) {
            failed.extend(broken(&report));
            looked_at.extend(report.checks.into_keys());
        }
        let changing = worlds[4].lines();
        failed.extend(tampered(&changing, |run| run.quarantine_until = u64::MAX));
        failed.extend(tampered(&changing, Run::expel));
        failed.extend(tampered(&changing, Run::forget_dates));
        let traces = worlds[0].lines();
        failed.extend(tampered(&traces, |run| run.durable = Some(Record::default())));
        failed.extend(tampered(&traces, |run| run.quarantine_until = u64::MAX));
        failed.extend(tampered(&traces, |run| run.entries.clear()));
        failed.extend(tampered(&traces, Run::release_everything));
        failed.extend(tampered(&traces, Run::raise_everything));
        if looked_at.is_subset(&failed) {
            return;
        }
    }
    panic!("never broken: {:?}", looked_at.difference(&failed).collect::<Vec<_>>());
}

#[test]
fn a_torn_last_line_is_not_a_violation() {
    let mut traces = sound(1).lines();
    let whole = judge(&traces);
    let (label, lines) = traces.pop().expect("a trace");
    let mut judge = Judge::new(Clocks::WithinDrift);
    let text = lines.join("\n") + "\n{\"Step\":{\"now\":12";
    judge.add(&label, text.as_bytes()).expect("memory can be read");
    for (label, lines) in traces {
        judge.add(&label, (lines.join("\n") + "\n").as_bytes()).expect("memory can be read");
    }
    let torn = judge.verdict();
    assert_eq!((torn.violations, torn.cut_short), (whole.violations, 1));
    assert_eq!((torn.steps, torn.traces), (whole.steps, whole.traces));
}

#[test]
fn a_damaged_or_missing_line_is_found() {
    let traces = sound(1).lines();
    let damaged = edited(&traces, |line| line.strip_prefix("{\"Step\"").map(str::to_owned));
    assert!(broken(&judge(&damaged)).contains("every line is whole"));
    let mut shorter = traces;
    let (lines, at) = shorter
        .iter_mut()
        .find_map(|(_, lines)| {
            let at = lines.iter().position(|line| line.contains("Granted"))?;
            Some((lines, at))
        })
        .expect("some client is granted a lease");
    lines.remove(at);
    assert!(broken(&judge(&shorter)).contains("the core does the same again"));
}

#[test]
fn two_configurations_of_one_epoch_are_found() {
    let world = played(1, Cast::Changing, Rules::ALL, Fault::None, STEPS);
    let other = |line: &str| line.contains("Adopt").then(|| line.replace("\"era\":0", "\"era\":1"));
    assert!(
        broken(&judge(&edited(&world.lines(), other))).contains("C3 one configuration per epoch")
    );
}

#[test]
fn a_message_that_no_node_sent_is_found() {
    let mut traces = sound(1).lines();
    let longest = (0..traces.len()).max_by_key(|at| traces[*at].1.len()).expect("a trace");
    let half = traces[longest].1.len() / 2;
    traces[longest].1.truncate(half);
    assert!(broken(&judge(&traces)).contains("what is received was sent"));
    traces[longest].1.push("\"Full\"".to_owned());
    assert_eq!(judge(&traces).violations, []);
}

#[test]
fn a_snapshot_that_lacks_or_changes_a_lease_is_found() {
    let traces = sound(1).lines();
    let count =
        |line: &str| line.contains("\"Stop\"").then(|| line.replace("\"leases\":", "\"leases\":9"));
    assert!(broken(&judge(&edited(&traces, count))).contains("R4 a snapshot has every live lease"));
    // The first lease of a snapshot, as text.
    let lease = |line: &str| {
        let (_, rest) = line.split_once("\"leases\":[{")?;
        Some(format!("{{{}}}", rest.split_once('}')?.0))
    };
    let shorter = |line: &str| {
        let lease = lease(line)?;
        let (kept, _) = lease.split_once("\"remaining\":")?;
        Some(line.replacen(&lease, &format!("{kept}\"remaining\":1}}"), 1))
    };
    assert!(broken(&judge(&edited(&traces, shorter))).contains("R4 a snapshot loses no lease"));
    let twice = |line: &str| {
        let (lease, shorter) = (lease(line)?, lease(&shorter(line)?)?);
        Some(line.replacen(&lease, &format!("{shorter},{lease}"), 1))
    };
    let rule = "R4 leases are restored with their full time";
    assert!(broken(&judge(&edited(&traces, twice))).contains(rule));
}

#[test]
fn a_trace_stops_at_its_bound_with_a_mark() {
    let memory = Memory::default();
    let mut sink = Sink::new(Box::new(memory.clone())).with_len_max(70);
    for now in 0..10 {
        sink.write(&Line::Stop { now, leases: None });
    }
    let text = memory.text();
    assert_eq!(text.lines().count(), 3, "{text}");
    assert!(text.ends_with("\"Full\"\n"), "{text}");
}
