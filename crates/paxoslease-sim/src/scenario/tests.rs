//! The result of every schedule with every algorithm.

use super::*;
use crate::baseline::{Naive, Paper};
use crate::checker::Check;
use crate::diagram;
use crate::paxoslease::PaxosLease;
use crate::trace::TraceEvent;

/// The scenarios in which the paper's algorithm fails, and the check that it fails.
const BROKEN_BY_THE_PAPER: [(Scenario, Check); 7] = [
    (Scenario::LateProposeAfterRestart, Check::OneHolder),
    (Scenario::PromiseNotRaised, Check::OneHolder),
    (Scenario::ShorterRenewal, Check::OneHolder),
    (Scenario::DuplicateReplies, Check::OneHolder),
    (Scenario::LateThirdReply, Check::OneHolder),
    (Scenario::StaleRelease, Check::OneHolder),
    (Scenario::FenceAfterRestart, Check::FencesRise),
];

fn broken_by_the_paper(scenario: Scenario) -> Option<Check> {
    let broken = BROKEN_BY_THE_PAPER.iter().find(|(broken, _)| *broken == scenario);
    broken.map(|(_, check)| *check)
}

fn first_belief_at(report: &Report) -> Option<Duration> {
    let believes = |event: &TraceEvent| matches!(event, TraceEvent::Believes { .. });
    let first = report.trace.iter().find(|entry| believes(&entry.event))?;
    Some(Duration::from_nanos(first.at.0))
}

#[test]
fn paxoslease_keeps_every_invariant_in_every_scenario() {
    for scenario in Scenario::ALL {
        let report = scenario.play(PaxosLease::default());
        assert_eq!(report.violations, [], "{scenario}");
        assert!(report.counts.acquires > 0, "{scenario}: no client held a lease");
    }
}

#[test]
fn the_paper_fails_exactly_where_its_rules_are_missing() {
    for scenario in Scenario::ALL {
        let violations = scenario.play(Paper).violations;
        match broken_by_the_paper(scenario) {
            Some(check) => {
                assert!(violations.iter().any(|v| v.check == check), "{scenario}: {violations:?}");
            }
            None => assert_eq!(violations, [], "{scenario}"),
        }
    }
}

/// The pictures show two holders where there are two, and are the same every time.
#[test]
fn the_diagrams_in_the_documents_are_those_of_the_scenarios() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/diagrams");
    for scenario in Scenario::ALL {
        let ours = (scenario.play(PaxosLease::default()), "paxoslease", "PaxosLease");
        let paper = (scenario.play(Paper), "paper", "the paper's algorithm, taken literally");
        for (report, key, algorithm) in [ours, paper] {
            let options = diagram::RenderOptions {
                title: format!("{scenario}: {algorithm}"),
                caption: scenario.description().to_owned(),
                ..diagram::RenderOptions::default()
            };
            let committed = std::fs::read_to_string(format!("{folder}/{scenario}-{key}.svg"));
            let drawn = diagram::render(&report.trace, &options);
            let is_same = committed.expect("is there").trim_end() == drawn.trim_end();
            assert!(is_same, "{scenario}-{key}.svg is out of date: run `cargo xtask paper`");
        }
    }
}

#[test]
fn the_naive_vote_never_has_two_holders() {
    for scenario in Scenario::ALL {
        assert_eq!(scenario.play(Naive).violations, [], "{scenario}");
    }
}

#[test]
fn a_split_vote_blocks_only_the_naive_vote() {
    let scenario = Scenario::SplitVote;
    let reports =
        [scenario.play(Naive), scenario.play(Paper), scenario.play(PaxosLease::default())];
    let granted = reports.each_ref().map(first_belief_at);
    let in_time = granted.map(|at| at.is_some_and(|at| at < ms(410)));
    assert_eq!(in_time, [false, true, true], "{granted:?}");
}

#[test]
fn uncontended_takes_one_round_trip_where_the_paper_needs_two() {
    let ours = first_belief_at(&Scenario::Uncontended.play(PaxosLease::default()));
    let paper = first_belief_at(&Scenario::Uncontended.play(Paper));
    assert_eq!(ours, Some(ms(10 + 20)));
    assert_eq!(paper, Some(ms(10 + 40)));
}

#[test]
fn an_unknown_name_gets_a_suggestion() {
    for scenario in Scenario::ALL {
        assert_eq!(scenario.name().parse(), Ok(scenario));
        assert!(!scenario.description().is_empty());
    }
    let unknown = "split-vot".parse::<Scenario>().expect_err("no such name");
    assert_eq!(unknown.nearest, "split-vote");
    assert!(unknown.to_string().contains("did you mean `split-vote`?"));
}
