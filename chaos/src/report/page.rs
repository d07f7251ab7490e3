//! The page.

use std::fmt::Write as _;

use super::{Facts, Window};
use crate::check::{Gap, Tally, Verdict, Violation, spoken};
use crate::log::{Kind, Nanos, Records};

/// How many violations are shown with their events; one is enough to look into.
const SHOWN_MAX: usize = 20;
/// How many events prove a violation on the page.
const EVIDENCE_MAX: usize = 16;

pub(super) fn page(facts: &Facts, records: &Records, verdict: &Verdict, window: Window) -> String {
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
            spoken(from),
            spoken(to),
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

fn judgement(page: &mut String, facts: &Facts, verdict: &Verdict) {
    let is_excused = |violation: &&Violation| facts.excused.contains(&violation.rule);
    let (excused, violations): (Vec<&Violation>, Vec<&Violation>) =
        verdict.violations.iter().partition(is_excused);
    let count = violations.len() + facts.bugs.len();
    if count == 0 {
        put(
            page,
            "**No violation.** No two beliefs met, fences rose, the fenced store took no late \
                   write, releases were kept, and every name was granted again after healing.\n",
        );
    } else {
        put(page, &format!("**VIOLATIONS: {count}. THIS BUILD IS NOT SAFE TO SHIP.**\n"));
    }
    for bug in &facts.bugs {
        put(page, &format!("- A process misbehaved: {}", bug.trim_end().replace('\n', " / ")));
    }
    for (number, violation) in (1..).zip(violations.iter().take(SHOWN_MAX)) {
        let Violation { rule, name, text, at, evidence } = violation;
        let at = spoken(at.saturating_sub(verdict.span.0));
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
    if !excused.is_empty() {
        put(
            page,
            &format!(
                "Clocks were further off than the cell allows, so this was expected and is not \
             counted: {} times {}.\n",
                excused.len(),
                excused[0].rule,
            ),
        );
    }
}

fn run(page: &mut String, facts: &Facts, records: &Records, verdict: &Verdict) {
    let (healings, demanded) = verdict.healings;
    let total = verdict.counts.total();
    let minutes = minutes(verdict.span.1 - verdict.span.0);
    put(page, "## The run\n\n| what | figure |\n|---|---|");
    let rows = [
        ("minutes", minutes),
        ("nodes", facts.nodes.to_string()),
        ("network", facts.network.clone()),
        ("versions", facts.versions.join(", then ")),
        ("faults", verdict.health.faults.len().to_string()),
        ("tenures compared", total.granted.to_string()),
        ("confirmed releases", total.released.to_string()),
        ("refusals", total.denied.to_string()),
        ("writes the store took", verdict.counts.writes_taken.to_string()),
        ("late writes it refused", verdict.counts.writes_refused.to_string()),
        (
            "times that everything was mended, and names that had to be granted then",
            format!("{healings}, {demanded} within {:?} each", facts.bound),
        ),
        ("events", verdict.counts.events.to_string()),
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
               name. \"Alone\" is the longest where nothing else was broken.\n",
    );
    put(page, "| fault | times | minutes | median gap | longest gap | longest, alone |");
    put(page, "|---|--:|--:|--:|--:|--:|");
    let told = |gap: Option<Gap>| gap.map_or_else(|| "–".to_owned(), |gap| spoken(gap.span));
    for kind in &verdict.gaps {
        put(
            page,
            &format!(
                "| {} | {} | {} | {} | {} | {} |",
                kind.what.as_deref().unwrap_or("(nothing)"),
                kind.gaps.len(),
                minutes(kind.lasted),
                told(kind.median()),
                told(kind.longest()),
                told(kind.longest_alone()),
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
        "\nFailed: nobody knows what came of it, be it to acquire, renew or release; that gives \
               no belief. `lock` renews and releases by itself, and does not say so.\n",
    );
}

fn minutes(span: Nanos) -> String {
    format!("{:.1}", span as f64 / 60e9)
}
