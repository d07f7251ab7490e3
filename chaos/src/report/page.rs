//! The page.

use std::fmt::Write as _;

use super::{ReportFacts, Window};
use crate::check::{Coverage, Gap, Tally, Verdict, Violation, format_nanos};
use crate::log::{Kind, Nanos, Records};

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
    let mut page = format!("# Chaos, seed {}\n\n", facts.seed);
    judgement(&mut page, facts, verdict);
    run(&mut page, facts, records, verdict);
    faults(&mut page, verdict);
    clients(&mut page, verdict);
    let (from, to) = (window.from - verdict.span.0, window.to - verdict.span.0);
    put(
        &mut page,
        &format!(
            "## Who held what\n\nFrom {} to {} after the begin. Each name has a line for each \
         kind of client, so that two holders at once would stand above each other.\n\n\
         ![holders, faults and gaps](timeline.svg)\n",
            format_nanos(from),
            format_nanos(to),
        ),
    );
    put(
        &mut page,
        &format!(
            "## Again\n\nThe same schedule; what processes make of it depends on the machine.\n\n\
         ```sh\n{}\n```",
            facts.replay,
        ),
    );
    page
}

fn put(page: &mut String, text: &str) {
    writeln!(page, "{text}").expect("a String takes every text");
}

fn judgement(page: &mut String, facts: &ReportFacts, verdict: &Verdict) {
    let is_expected = |violation: &&Violation| facts.expected.contains(&violation.rule);
    let (expected, violations): (Vec<&Violation>, Vec<&Violation>) =
        verdict.violations.iter().partition(is_expected);
    let count = violations.len() + facts.bugs.len();
    if count > 0 {
        put(page, &format!("**VIOLATIONS: {count}. THIS BUILD IS NOT SAFE TO SHIP.**\n"));
    } else if facts.expected.is_empty() {
        put(
            page,
            "**No violation.** No two beliefs met, fences rose, the fenced store took no late \
             write, no lease was forgotten, releases were kept and handed on, and after healing \
             every name was granted, every node served and every client was heard of.\n",
        );
    } else {
        put(
            page,
            "**Nothing but what was expected.** Clocks were further off than the cell allows, and \
             so leases did not exclude each other. Fences rose, and the fenced store took no late \
             write.\n",
        );
    }
    if let Some(failure) = &facts.failure {
        put(page, &format!("**The run ended before its time:** {failure}\n"));
    }
    for rule in &facts.expected {
        let times = expected.iter().filter(|violation| violation.rule == *rule).count();
        put(page, &format!("- Expected, and not counted: {rule}, {times} times"));
    }
    for bug in &facts.bugs {
        put(page, &format!("- A process misbehaved: {}", bug.trim_end().replace('\n', " / ")));
    }
    if !(facts.expected.is_empty() && facts.bugs.is_empty()) {
        put(page, "");
    }
    for (number, violation) in (1..).zip(violations.iter().take(SHOWN_MAX)) {
        let Violation { rule, name, text, at, evidence } = violation;
        let at = format_nanos(at.saturating_sub(verdict.span.0));
        put(page, &format!("### {number}. {rule}: `{name}`, {at} after the begin\n\n{text}\n"));
        put(page, "```json");
        for event in evidence.iter().take(EVIDENCE_MAX) {
            put(page, &serde_json::to_string(event).expect("events are texts and numbers"));
        }
        put(page, "```\n");
    }
    if violations.len() > SHOWN_MAX {
        put(page, &format!("And {} more.\n", violations.len() - SHOWN_MAX));
    }
}

fn run(page: &mut String, facts: &ReportFacts, records: &Records, verdict: &Verdict) {
    let Coverage { healings, names, nodes, clients, releases, .. } = verdict.judged;
    let Coverage { longest_wait, healthy, minority, longest_unserved, waits, most_turns, .. } =
        verdict.judged;
    let counts = &verdict.counts;
    let (faults, stalls) = verdict.health.counts();
    let of = |(tenures, released): (u64, u64)| format!("{tenures}, {released} given back");
    put(page, "## The run\n\n| what | figure |\n|---|---|");
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
            format!("{releases}, the longest wait {}", format_nanos(longest_wait)),
        ),
        ("seconds in which nothing was broken, nor shortly before", seconds(healthy)),
        (
            "seconds in which a node had to serve while others were away, all nodes together",
            format!(
                "{}, the longest without a grant {}",
                seconds(minority),
                format_nanos(longest_unserved)
            ),
        ),
        (
            "waits judged for turns",
            format!("{waits}, through {most_turns} hand-overs to others at most"),
        ),
        ("events", counts.events.to_string()),
        ("logs that a kill cut off in the middle of a line", records.cut.to_string()),
    ];
    for (what, figure) in rows {
        put(page, &format!("| {what} | {figure} |"));
    }
    put(page, "");
}

fn faults(page: &mut String, verdict: &Verdict) {
    put(page, "## What was broken, and the longest time without a grant meanwhile\n");
    put(
        page,
        "A gap counts from the fault, or from the last grant within it, to the next grant of any \
               name. \"Alone\" is the longest where nothing else was broken. Requests that failed and \
               nodes that died meanwhile tell whether the fault bit.\n",
    );
    put(
        page,
        "| fault | times | seconds | median gap | longest gap | longest, alone | failed | died |",
    );
    put(page, "|---|--:|--:|--:|--:|--:|--:|--:|");
    let told = |gap: Option<Gap>| gap.map_or_else(|| "–".to_owned(), |gap| format_nanos(gap.span));
    for kind in &verdict.gaps {
        put(
            page,
            &format!(
                "| {} | {} | {} | {} | {} | {} | {} | {} |",
                kind.what.as_deref().unwrap_or("(nothing)"),
                kind.gaps.len(),
                seconds(kind.lasted),
                told(kind.median()),
                told(kind.longest()),
                told(kind.longest_alone()),
                kind.failed,
                kind.died,
            ),
        );
    }
    put(page, "");
}

fn clients(page: &mut String, verdict: &Verdict) {
    put(page, "## What clients did\n");
    put(
        page,
        "| kind | processes | asked | granted | denied | failed | renewed | released | lost \
               or ran out | crashed |",
    );
    put(page, "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|");
    let row = |what: &str, tally: &Tally| {
        let Tally { clients, asked, granted, denied, failed, .. } = tally;
        let Tally { renewed, released, lost, crashed, .. } = tally;
        format!(
            "| {what} | {clients} | {asked} | {granted} | {denied} | {failed} | {renewed} | \
             {released} | {lost} | {crashed} |"
        )
    };
    for kind in Kind::ALL {
        if let Some(tally) = verdict.counts.by_kind.get(&kind) {
            put(page, &row(&kind.to_string(), tally));
        }
    }
    put(page, &row("all", &verdict.counts.total()));
    put(
        page,
        "\nFailed: the outcome of an acquire, renewal or release is unknown; that gives \
               no belief. `lock` renews and releases by itself, and does not say so.\n",
    );
}

fn seconds(span: Nanos) -> String {
    format!("{:.1}", span as f64 / 1e9)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::check::{Bounds, Rule, judge};
    use crate::log::{Belief, Event, EventKind};

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
