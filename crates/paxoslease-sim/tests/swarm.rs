//! More than a thousand worlds: no check ever fails.

use std::fmt::Write as _;

use paxoslease_sim::{Counts, Faults, Keep, Options, Report, run};

/// The last lines before the violation, and how to repeat the run.
fn explain(report: &Report, options: &Options) -> String {
    let again = run(report.seed, &Options { keep: Keep::Last(60), ..*options });
    let mut text = format!("seed {} ({}), {} nodes\n", report.seed, options.faults, report.nodes);
    for entry in &again.trace {
        let _ = writeln!(text, "{} {:?}", entry.at, entry.event);
    }
    text
}

fn hold(faults: Faults, seeds: std::ops::Range<u64>) -> Counts {
    let options = Options { faults, ..Options::default() };
    let mut total = Counts::default();
    for seed in seeds {
        let report = run(seed, &options);
        assert!(report.violations.is_empty(), "{}", explain(&report, &options));
        total += report.counts;
    }
    assert!(total.acquires > 0 && total.renewals > 0 && total.releases > 0, "{total:?}");
    total
}

#[test]
fn nothing_breaks_in_a_swarm_of_worlds() {
    let total = hold(Faults::Swarm, 0..400);
    assert!(total.crashes > 0 && total.stops > 0);
}

#[test]
fn nothing_breaks_in_another_swarm_of_worlds() {
    hold(Faults::Swarm, 1_000_000..1_000_400);
}

#[test]
fn nothing_breaks_in_hostile_worlds() {
    let total = hold(Faults::Hostile, 0..300);
    assert!(total.crashes > 0 && total.stops > 0);
}

#[test]
fn nothing_breaks_when_messages_are_lost() {
    hold(Faults::Lossy, 0..100);
}

#[test]
fn nothing_breaks_when_nodes_crash() {
    hold(Faults::Crashes, 0..100);
}

#[test]
fn nothing_breaks_in_partitions() {
    hold(Faults::Partitions, 0..100);
}

#[test]
fn nothing_breaks_when_nodes_pause() {
    hold(Faults::Pauses, 0..100);
}

#[test]
fn nothing_breaks_without_faults() {
    hold(Faults::None, 0..100);
}

/// Hundreds of denied rounds with higher ballots precede a grant, or a paused acceptor answers
/// hundreds of old rounds in between. A checker with a bounded memory forgot which acceptors had
/// stored the winner.
#[test]
fn a_grant_after_many_denied_rounds_has_its_majority() {
    hold(Faults::Pauses, 201_156..201_157);
    hold(Faults::Pauses, 200_955..200_956);
}
