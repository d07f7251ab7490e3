//! Whole cells drawn from seeds. For more of them:
//! `PAXOSLEASE_SEEDS=5000 cargo test -p paxoslease-node swarm`.

use std::thread;

use paxoslease_core::{Rule, Rules};
use paxoslease_sim::Check;

use crate::world::swarm::{Report, run};

fn seeds() -> u64 {
    std::env::var("PAXOSLEASE_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(200)
}

/// Runs seeds on two threads; each world is a thread's own.
fn run_all(seeds: u64) -> Vec<Report> {
    let half = |first: u64| move || (first..seeds).step_by(2).map(|seed| run(seed, Rules::ALL));
    thread::scope(|scope| {
        let odd = scope.spawn(move || half(1)().collect::<Vec<_>>());
        let mut reports: Vec<Report> = half(0)().collect();
        reports.extend(odd.join().expect("no panic"));
        reports
    })
}

#[test]
fn whatever_goes_wrong_there_is_one_holder_and_nobody_waits_for_ever() {
    let reports = run_all(seeds());
    let broken: Vec<String> = reports
        .iter()
        .filter(|report| !report.broken.is_empty())
        .map(|report| format!("seed {}: {}", report.seed, report.broken.join("; ")))
        .collect();
    assert!(broken.is_empty(), "{} broken:\n{}", broken.len(), broken.join("\n"));
    // A swarm in which nothing is granted or lost would show nothing.
    let (grants, losses) =
        reports.iter().fold((0, 0), |(g, l), report| (g + report.grants, l + report.losses));
    assert!(grants > 20 * reports.len() as u64 && losses > 0, "{grants} grants, {losses} losses");
}

#[test]
fn the_same_seed_is_the_same_world() {
    for seed in [3, 14, 15] {
        assert_eq!(run(seed, Rules::ALL), run(seed, Rules::ALL));
    }
    assert_ne!(run(3, Rules::ALL).trace_hash, run(4, Rules::ALL).trace_hash);
}

/// A test of the test: with one rule of the protocol off, some seed must find the harm.
fn must_be_caught(rules: &[(Rule, Check)]) {
    for (rule, check) in rules {
        let harm = |seed| run(seed, Rules::without(*rule)).broken.into_iter().next();
        let found = (0..100).find_map(harm).unwrap_or_default();
        assert!(found.contains(&format!("{check:?}")), "without {rule:?} only {found:?} was found");
    }
}

#[test]
fn acceptors_and_proposers_without_a_rule_are_caught() {
    must_be_caught(&[
        (Rule::ProposeRefusesForeign, Check::BeliefIsBacked),
        (Rule::ReleaseMatchesTenure, Check::BeliefIsBacked),
        (Rule::FailedRenewalIsNotUndone, Check::BeliefIsBacked),
        (Rule::TimerIsArmedOnce, Check::BeliefIsBacked),
        (Rule::ReclaimFoldsIntoFloor, Check::PromisesKept),
    ]);
}

#[test]
fn restarts_without_a_rule_are_caught() {
    must_be_caught(&[
        (Rule::QuarantineCoversLongestTtl, Check::SilentAfterCrash),
        (Rule::FloorStartsAtCeiling, Check::PromisesSurvive),
        (Rule::CounterStartsAtCeiling, Check::BallotsAreFresh),
    ]);
}
