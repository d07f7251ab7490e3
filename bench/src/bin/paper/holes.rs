//! The schedules in which the paper's algorithm, taken literally, breaks an invariant, and the
//! diagrams of all schedules. The template describes them; the runs show which invariant breaks.

use anyhow::ensure;
use paxoslease_bench::page::Page;
use paxoslease_sim::baseline::{Naive, Paper};
use paxoslease_sim::scenario::Scenario;
use paxoslease_sim::{Check, PaxosLease, Report, diagram};

/// The schedules in which the paper's algorithm breaks an invariant, in the order of the page.
const HOLES: [Scenario; 7] = [
    Scenario::PromiseNotRaised,
    Scenario::LateProposeAfterRestart,
    Scenario::LateThirdReply,
    Scenario::DuplicateReplies,
    Scenario::ShorterRenewal,
    Scenario::StaleRelease,
    Scenario::FenceAfterRestart,
];

pub(crate) fn section(page: &mut Page) -> anyhow::Result<()> {
    let mut rows = Vec::new();
    for scenario in Scenario::ALL {
        let (paper, ours) = (scenario.play(Paper), scenario.play(PaxosLease::default()));
        draw(page, scenario, &paper, "paper", "the paper's algorithm, taken literally");
        draw(page, scenario, &ours, "paxoslease", "PaxosLease");
        if scenario == Scenario::SplitVote {
            let report = scenario.play(Naive);
            draw(page, scenario, &report, "naive", "the naive majority vote");
        }
        let is_hole = HOLES.contains(&scenario);
        ensure!(paper.violations.is_empty() != is_hole, "{scenario}: the page says otherwise");
        ensure!(ours.violations.is_empty(), "{scenario}: ours does not keep its word");
    }
    for scenario in HOLES {
        // Of several that break, the most harmful one, which comes first among the checks.
        let worst = |report: &Report| report.violations.iter().map(|v| v.check).min();
        let words = |report: &Report| worst(report).map_or("holds", verdict).to_owned();
        rows.push(vec![
            format!("[`{scenario}`](#{scenario})"),
            words(&scenario.play(Paper)),
            words(&scenario.play(PaxosLease::default())),
        ]);
    }
    page.table("holes", &["schedule", "paper", "PaxosLease"], rows);
    Ok(())
}

const fn verdict(check: Check) -> &'static str {
    match check {
        Check::OneHolder => "two holders at once",
        Check::FencesRise => "a fence goes back",
        _ => "an invariant breaks",
    }
}

/// The diagram of `paxoslease sim --scenario NAME --diagram`.
fn draw(page: &mut Page, scenario: Scenario, report: &Report, key: &str, name: &str) {
    let options = diagram::RenderOptions {
        title: format!("{scenario}: {name}"),
        caption: scenario.description().to_owned(),
        ..diagram::RenderOptions::default()
    };
    let svg = diagram::render(&report.trace, &options);
    page.keep(&format!("diagrams/{scenario}-{key}.svg"), svg);
}
