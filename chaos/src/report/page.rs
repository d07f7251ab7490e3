//! The page.

use super::{ReportFacts, Window};
use crate::check::{Coverage, Gap, Tally, Verdict, Violation, format_nanos};
use crate::log::{Nanos, Records};

/// The most violations with their events on the page.
const SHOWN_MAX: usize = 20;
/// The most events of a violation on the page.
const EVIDENCE_MAX: usize = 16;

pub(super) fn page(
    facts: &ReportFacts,
    records: &Records,
    verdict: &Verdict,
    window: Window,
) -> String {
    let after = |at: Nanos| format_nanos(at - verdict.span.0);
    let mut page = format!("# Chaos, seed {}\n\n", facts.seed);
    page += &judgement(facts, verdict);
    page += &run(facts, records, verdict);
    page += &faults(verdict);
    page += &clients(verdict);
    page += &format!(
        "## Who held what\n\nFrom {} to {} after the begin. Each name has a line for each kind of \
         client, so that two holders at once would stand above each other.\n\n\
         ![holders, faults and gaps](timeline.svg)\n\n",
        after(window.from),
        after(window.to),
    );
    page += &format!(
        "## Again\n\nThe same schedule; what processes make of it depends on the machine.\n\n\
         ```sh\n{}\n```\n",
        facts.replay,
    );
    page
}

fn judgement(facts: &ReportFacts, verdict: &Verdict) -> String {
    let is_expected = |violation: &&Violation| facts.expected.contains(&violation.rule);
    let (expected, violations): (Vec<&Violation>, Vec<&Violation>) =
        verdict.violations.iter().partition(is_expected);
    let count = violations.len() + facts.bugs.len();
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
    if let Some(failure) = &facts.failure {
        text += &format!("**The run ended before its time:** {failure}\n\n");
    }
    for rule in &facts.expected {
        let times = expected.iter().filter(|violation| violation.rule == *rule).count();
        text += &format!("- Expected, and not counted: {rule}, {times} times\n");
    }
    for bug in &facts.bugs {
        text += &format!("- A process misbehaved: {}\n", bug.trim_end().replace('\n', " / "));
    }
    if !(facts.expected.is_empty() && facts.bugs.is_empty()) {
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

/// A table with text in the first column and figures in the others.
fn table(head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let figures = "--:|".repeat(head.len() - 1);
    let mut table = format!("| {} |\n|---|{figures}\n", head.join(" | "));
    for row in rows {
        table += &format!("| {} |\n", row.join(" | "));
    }
    table + "\n"
}

fn run(facts: &ReportFacts, records: &Records, verdict: &Verdict) -> String {
    let Coverage { healings, names, nodes, clients, releases, .. } = verdict.judged;
    let Coverage { longest_wait, healthy, minority, longest_unserved, waits, most_turns, .. } =
        verdict.judged;
    let counts = &verdict.counts;
    let (faults, stalls) = verdict.health.counts();
    let of = |(tenures, released): (u64, u64)| format!("{tenures}, {released} given back");
    let (unserved, waited) = (format_nanos(longest_unserved), format_nanos(longest_wait));
    let rows = [
        ("seconds", seconds(verdict.span.1 - verdict.span.0)),
        ("nodes", facts.nodes.to_string()),
        ("network", facts.network.clone()),
        ("versions", facts.versions.join(", then ")),
        ("faults", faults.to_string()),
        ("times that the machine itself stood still", stalls.to_string()),
        ("tenures of names that several wanted", of(counts.contended)),
        ("tenures of names that one had for itself", of(counts.uncontended)),
        ("refusals", counts.total().denied.to_string()),
        ("writes the store took", counts.writes_taken.to_string()),
        ("late writes it refused", counts.writes_refused.to_string()),
        ("times that everything was mended", healings.to_string()),
        ("names that had to be granted then", format!("{names} within {:?} each", facts.bound)),
        ("nodes that had to serve then", nodes.to_string()),
        ("times that every client had to be heard of then", clients.to_string()),
        (
            "releases judged because a client waited",
            format!("{releases}, the longest wait {waited}"),
        ),
        ("seconds in which nothing was broken, nor shortly before", seconds(healthy)),
        (
            "seconds in which a node had to serve while others were away, all nodes together",
            format!("{}, the longest without a grant {unserved}", seconds(minority)),
        ),
        (
            "waits judged for turns",
            format!("{waits}, through {most_turns} hand-overs to others at most"),
        ),
        ("events", counts.events.to_string()),
        ("logs that a kill cut off in the middle of a line", records.cut.to_string()),
    ];
    let rows = rows.map(|(what, figure)| format!("| {what} | {figure} |\n")).concat();
    format!("## The run\n\n| what | figure |\n|---|---|\n{rows}\n")
}

fn faults(verdict: &Verdict) -> String {
    let span = |gap: Option<Gap>| gap.map_or_else(|| "–".to_owned(), |gap| format_nanos(gap.span));
    let rows = verdict.gaps.iter().map(|kind| {
        vec![
            kind.what.clone().unwrap_or_else(|| "(nothing)".to_owned()),
            kind.gaps.len().to_string(),
            seconds(kind.lasted),
            span(kind.median()),
            span(kind.longest()),
            span(kind.longest_alone()),
            kind.failed.to_string(),
            kind.died.to_string(),
        ]
    });
    let gaps = ["median gap", "longest gap", "longest, alone"];
    let head = [&["fault", "times", "seconds"], &gaps[..], &["failed", "died"]].concat();
    format!(
        "## What was broken, and the longest time without a grant meanwhile\n\nA gap counts from \
         the fault, or from the last grant within it, to the next grant of any name. \"Alone\" is \
         the longest where nothing else was broken. Requests that failed and nodes that died \
         meanwhile tell whether the fault bit.\n\n{}",
        table(&head, rows)
    )
}

fn clients(verdict: &Verdict) -> String {
    let row = |what: String, tally: &Tally| {
        let Tally { clients, asked, granted, denied, failed, .. } = tally;
        let Tally { renewed, released, lost, crashed, .. } = tally;
        let figures = [clients, asked, granted, denied, failed, renewed, released, lost, crashed];
        let mut row = vec![what];
        row.extend(figures.map(u64::to_string));
        row
    };
    let counts = &verdict.counts;
    let kinds = counts.by_kind.iter().map(|(kind, tally)| row(kind.to_string(), tally));
    let requests = ["asked", "granted", "denied", "failed", "renewed", "released"];
    let head = [&["kind", "processes"], &requests[..], &["lost or ran out", "crashed"]].concat();
    let table = table(&head, kinds.chain([row("all".to_owned(), &counts.total())]));
    format!(
        "## What clients did\n\n{table}Failed: the outcome of an acquire, renewal or release is \
         unknown; that gives no belief. `lock` renews and releases by itself, and does not say \
         so.\n\n"
    )
}

fn seconds(span: Nanos) -> String {
    format!("{:.1}", span as f64 / 1e9)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::check::{Bounds, Rule, judge};
    use crate::log::{Belief, Event, EventKind, Kind};

    fn met(expected: Vec<Rule>) -> String {
        let held = |client: &str, fence, from| {
            let (client, name, kind) = (client.to_owned(), "a".to_owned(), Kind::Http);
            let until = from + 1_500_000_000;
            let belief = Belief { client, kind, name, attempt: 1, fence, from, until, renewals: 0 };
            Event { at: from, what: EventKind::Held(belief) }
        };
        let events = vec![held("x", 1, 0), held("y", 2, 1_200_000_000)];
        let verdict = judge(&events, Bounds::default());
        let facts = ReportFacts {
            seed: 1,
            nodes: 3,
            network: String::new(),
            versions: Vec::new(),
            bound: Duration::ZERO,
            replay: String::new(),
            bugs: Vec::new(),
            failure: None,
            expected,
        };
        let records = Records { events, cut: 0 };
        page(&facts, &records, &verdict, Window::of_interest(&verdict))
    }

    #[test]
    fn expected_violations_are_counted_by_rule() {
        let page = met(vec![Rule::OneHolder, Rule::HoldersMayWrite]);
        assert!(!page.contains("VIOLATIONS") && !page.contains("No two beliefs met"), "{page}");
        assert!(page.contains("two holders at once, 1 times"), "{page}");
        assert!(page.contains("a holder's write was refused, 0 times"), "{page}");
        assert!(page.contains("| seconds | 1.2 |"), "{page}");
    }

    #[test]
    fn what_was_not_expected_is_the_headline() {
        assert!(met(Vec::new()).contains("**VIOLATIONS: 1."));
    }
}
