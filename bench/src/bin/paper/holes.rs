//! What the paper lacks: the schedules in which its algorithm, taken literally, goes wrong; and the
//! diagrams of all schedules. Their stories are in the template; whether an invariant breaks, and
//! which, comes from the run.

use anyhow::ensure;
use paxoslease_bench::page::Page;
use paxoslease_sim::baseline::{Naive, Paper};
use paxoslease_sim::scenario::Scenario;
use paxoslease_sim::{Check, PaxosLease, Report, diagram};

/// The schedules in which the paper's algorithm breaks its word, in the order of the page.
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
        draw(page, scenario, ("paper", "the paper's algorithm, taken literally"), &paper);
        draw(page, scenario, ("paxoslease", "PaxosLease"), &ours);
        if scenario == Scenario::SplitVote {
            draw(page, scenario, ("naive", "the naive majority vote"), &scenario.play(Naive));
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
    page.table("holes", &["schedule", "paper", "PaxosLease"], &rows);
    Ok(())
}

const fn verdict(check: Check) -> &'static str {
    match check {
        Check::OneHolder => "two holders at once",
        Check::FencesRise => "a fence goes back",
        _ => "an invariant breaks",
    }
}

/// The picture that `paxoslease sim --scenario NAME --diagram` draws.
fn draw(page: &mut Page, scenario: Scenario, (key, name): (&str, &str), report: &Report) {
    let options = diagram::RenderOptions {
        title: format!("{scenario}: {name}"),
        caption: scenario.description().to_owned(),
        ..diagram::RenderOptions::default()
    };
    let svg = diagram::render(&report.trace, &options);
    page.keep(&format!("diagrams/{scenario}-{key}.svg"), svg);
}
