//! The report: a Markdown page, violations first. Every figure is counted from the events;
//! [`ReportFacts`] has what only the harness knows. The prose is in `report.md.in`.

use std::path::Path;
use std::{fs, io};

use crate::check::{FaultGaps, Gap, Rule, Verdict, Violation, format_nanos};
use crate::log::{Nanos, Records};
use crate::run::RunOutcome;

const TEMPLATE: &str = include_str!("report.md.in");

/// The most violations with their events on the page.
const SHOWN_MAX: usize = 20;
/// The most events of a violation on the page.
const EVIDENCE_MAX: usize = 16;

/// What the events do not contain.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ReportFacts {
    pub seed: u64,
    pub nodes: u16,
    /// The version of the binary, and of the one for upgrades.
    pub versions: Vec<String>,
    /// The command that repeats the schedule.
    pub replay: String,
    pub outcome: RunOutcome,
    /// The violations that this run is meant to cause.
    pub expected: Vec<Rule>,
}

pub fn write(
    folder: &Path,
    facts: &ReportFacts,
    records: &Records,
    verdict: &Verdict,
) -> io::Result<()> {
    fs::write(folder.join("report.md"), page(facts, records, verdict))
}

pub(crate) fn page(facts: &ReportFacts, records: &Records, verdict: &Verdict) -> String {
    let ReportFacts { outcome: RunOutcome { network, bound, .. }, replay, .. } = facts;
    let (faults, stalls) = verdict.health.counts();
    let values = [
        ("seed", facts.seed.to_string()),
        ("judgement", judgement(facts, verdict)),
        ("seconds", seconds(verdict.span.1 - verdict.span.0)),
        ("nodes", facts.nodes.to_string()),
        ("versions", facts.versions.join(", then ")),
        ("network", network.clone()),
        ("faults", faults.to_string()),
        ("stalls", stalls.to_string()),
        ("bound", format!("{bound:?}")),
        ("cut", records.cut.to_string()),
        ("counts", format!("{:#?}\n{:#?}", verdict.judged, verdict.counts)),
        ("gaps", gaps(verdict)),
        ("replay", replay.clone()),
    ];
    let fill = |page: String, (name, value)| page.replace(&format!("{{{{{name}}}}}"), value);
    values.iter().map(|(name, value)| (*name, value.as_str())).fold(TEMPLATE.to_owned(), fill)
}

fn judgement(facts: &ReportFacts, verdict: &Verdict) -> String {
    let RunOutcome { bugs, failure, .. } = &facts.outcome;
    let is_expected = |violation: &&Violation| facts.expected.contains(&violation.rule);
    let (expected, violations): (Vec<&Violation>, Vec<&Violation>) =
        verdict.violations.iter().partition(is_expected);
    let count = violations.len() + bugs.len();
    let mut text = if count > 0 {
        format!("**VIOLATIONS: {count}. THIS BUILD IS NOT SAFE TO SHIP.**\n\n")
    } else if facts.expected.is_empty() {
        "**No violation.** No two beliefs met, fences rose, the fenced store took no late write, no \
         lease was forgotten, releases were kept and handed on, and after healing every name was \
         granted, every node served and every client was heard of.\n\n"
            .to_owned()
    } else {
        "**Nothing but what was expected.** Clocks were further off than the cell allows, and so \
         leases did not exclude each other. Fences rose, and the fenced store took no late \
         write.\n\n"
            .to_owned()
    };
    if let Some(failure) = failure {
        text += &format!("**The run ended before its time:** {failure}\n\n");
    }
    for rule in &facts.expected {
        let times = expected.iter().filter(|violation| violation.rule == *rule).count();
        text += &format!("- Expected, and not counted: {rule}, {times} times\n");
    }
    for bug in bugs {
        text += &format!("- A process misbehaved: {}\n", bug.trim_end().replace('\n', " / "));
    }
    if !(facts.expected.is_empty() && bugs.is_empty()) {
        text += "\n";
    }
    for (number, violation) in (1..).zip(violations.iter().take(SHOWN_MAX)) {
        let Violation { rule, name, text: what, at, evidence } = violation;
        let at = format_nanos(at.saturating_sub(verdict.span.0));
        text += &format!("### {number}. {rule}: `{name}`, {at} after the begin\n\n{what}\n\n");
        text += "```json\n";
        for event in evidence.iter().take(EVIDENCE_MAX) {
            text += &serde_json::to_string(event).expect("events are texts and numbers");
            text += "\n";
        }
        text += "```\n\n";
    }
    if violations.len() > SHOWN_MAX {
        text += &format!("And {} more.\n\n", violations.len() - SHOWN_MAX);
    }
    text
}

/// The rows of the table of faults.
fn gaps(verdict: &Verdict) -> String {
    let span = |gap: Option<Gap>| gap.map_or_else(|| "–".to_owned(), |gap| format_nanos(gap.span));
    let row = |kind: &FaultGaps| {
        let cells = [
            kind.what.clone().unwrap_or_else(|| "(nothing)".to_owned()),
            kind.gaps.len().to_string(),
            seconds(kind.lasted),
            span(kind.median()),
            span(kind.longest()),
            span(kind.longest_alone()),
            kind.failed.to_string(),
            kind.died.to_string(),
        ];
        format!("| {} |", cells.join(" | "))
    };
    verdict.gaps.iter().map(row).collect::<Vec<_>>().join("\n")
}

fn seconds(span: Nanos) -> String {
    format!("{:.1}", span as f64 / 1e9)
}
