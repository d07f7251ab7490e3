//! Each check fails when it should, and only then: histories with their verdicts in
//! `transcript.txt`, and random ones.

use std::path::Path;

use proptest::prelude::*;
use serde::de::DeserializeOwned;

use super::*;
use crate::log::{AcquireRequest, Belief, EventKind, Kind, Phase, Records, TenureId};
use crate::report::{self, ReportFacts};

const SECOND: Nanos = 1_000_000_000;

/// The events of a history, which are separated by semicolons and may have any order.
fn events(history: &str) -> Vec<Event> {
    let texts = history.split(';').map(str::trim).filter(|text| !text.is_empty());
    let mut events: Vec<Event> = texts.flat_map(parse).collect();
    events.sort_by_key(|event| event.at);
    events
}

/// An event is a time and what happened. A client `x/2` is about its second attempt.
fn parse(text: &str) -> Vec<Event> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let (at, subject) = (time(words[0]), words[1]);
    let (client, attempt) = subject.split_once('/').unwrap_or((subject, "1"));
    let (client, name, kind) = (client.to_owned(), "a".to_owned(), Kind::Resp);
    let attempt: u64 = number(attempt);
    let tenure = |fence| TenureId { client: client.clone(), name: name.clone(), attempt, fence };
    let ask = |kind, wait_ms| {
        let (client, name) = (client.clone(), name.clone());
        AcquireRequest { client, kind, name, attempt, ttl_ms: 1000, wait_ms }
    };
    let what = match words[1..] {
        ["probes"] => return probes(at),
        ["closed"] => EventKind::Closed,
        ["healed", bound] => EventKind::Healed { bound: time(bound) },
        ["stalled", from] => EventKind::Stalled { from: time(from) },
        ["node", id, state] => EventKind::Node { id: number(id), state: named(state) },
        ["fault", id, "until", to, ref nodes @ ..] => {
            let fault = |phase| {
                let (what, whom) = ("kill".to_owned(), "a node".to_owned());
                let nodes = nodes.iter().map(|node| number(node)).collect();
                EventKind::Fault { id: number(id), what, whom, nodes, phase }
            };
            let end = Event { at: time(to), what: fault(Phase::End) };
            return vec![Event { at, what: fault(Phase::Begin) }, end];
        }
        [_, "began", ref through @ ..] => {
            let through = through.first().map(|node| number(node));
            EventKind::Began { client, kind, seed: 1, through }
        }
        [_, "asks"] => EventKind::Asked(ask(kind, 0)),
        [_, "asks", "patiently"] => EventKind::Asked(ask(kind, 60_000)),
        [_, "locks"] => EventKind::Asked(ask(Kind::Lock, 60_000)),
        [_, "failed"] => {
            let (operation, why) = (named("acquire"), "no answer".to_owned());
            EventKind::Failed { ask: ask(kind, 0), operation, why }
        }
        [_, "denied", asked_at, ref by @ ..] => {
            let (asked_at, fence) = (time(asked_at), by.first().map(|fence| number(fence)));
            let asked = Event { at: asked_at, what: EventKind::Asked(ask(kind, 0)) };
            let what = EventKind::Denied { ask: ask(kind, 0), asked_at, fence };
            return vec![asked, Event { at, what }];
        }
        [_, "held", fence, "until", until] => {
            let (fence, from, until) = (number(fence), at, time(until));
            let belief = Belief { client, kind, name, attempt, fence, from, until, renewals: 0 };
            EventKind::Held(belief)
        }
        [_, "ended", fence, why] => {
            EventKind::Ended { tenure: tenure(number(fence)), why: named(why) }
        }
        [_, "released", fence] => EventKind::ReleaseAcknowledged(tenure(number(fence))),
        [_, "lost", fence, operation, asked_at] => {
            let (operation, asked_at) = (named(operation), time(asked_at));
            EventKind::Over { tenure: tenure(number(fence)), operation, asked_at }
        }
        [_, verdict @ ("wrote" | "refused"), fence] => {
            let (fence, accepted) = (number(fence), verdict == "wrote");
            EventKind::Write { client, name, fence, accepted, highest: 0 }
        }
        _ => panic!("not an event: {text}"),
    };
    vec![Event { at, what }]
}

/// Nanoseconds, or seconds as in `22s`, or both as in `22s+1`.
fn time(text: &str) -> Nanos {
    let (first, more) = text.split_once('+').unwrap_or((text, "0"));
    let first =
        first.strip_suffix('s').map_or_else(|| number(first), |n| number::<u64>(n) * SECOND);
    first + number::<u64>(more)
}

fn number<N: std::str::FromStr>(text: &str) -> N {
    text.parse().ok().unwrap_or_else(|| panic!("{text} is not a number"))
}

/// A value as the log spells it.
fn named<T: DeserializeOwned>(text: &str) -> T {
    serde_json::from_value(text.into()).expect("a word of the log")
}

/// Three nodes, each with a client that uses this node only and gets a grant every second until
/// `until`.
fn probes(until: Nanos) -> Vec<Event> {
    let mut history = String::new();
    for id in 1..=3_u64 {
        history += &format!("1 node {id} started; 2 p-{id} began {id};");
        for second in 1..until / SECOND {
            let (from, fence) = (second * SECOND + id * 1000, 1000 * second + id);
            history += &format!("{from} p-{id}/{second} held {fence} until {};", from + 1);
        }
    }
    events(&history)
}

/// Histories are short, and most have long times without a grant.
fn patient() -> Bounds {
    Bounds { idle: Duration::from_secs(86_400), ..Bounds::default() }
}

/// `given` a history, `judge` tells the violations in it and in more events, `hurry` with the usual
/// bound of times without a grant, `count` tells the figures, and `report` writes the page about a
/// run that was meant to break these rules.
fn played(given: &mut String, command: &str) -> String {
    let (verb, history) = command.split_once(' ').unwrap_or((command, ""));
    let bounds = if verb == "hurry" { Bounds::default() } else { patient() };
    let more = if verb == "report" { "" } else { history };
    let verdict = judge(&events(&format!("{given};{more}")), bounds);
    match verb {
        "given" => history.clone_into(given),
        "judge" | "hurry" => {
            let line = |violation: &Violation| {
                format!("{} ({}): {}\n", violation.rule, violation.name, violation.text)
            };
            return verdict.violations.iter().map(line).collect();
        }
        "count" => {
            let Counts { contended, uncontended, .. } = verdict.counts;
            let mut text = format!("{:?}\n{:?}\n", verdict.judged, verdict.counts.by_kind);
            text += &format!("contended {contended:?}, uncontended {uncontended:?}\n");
            text += &format!("faults and stalls {:?}\n", verdict.health.counts());
            for FaultGaps { what, failed, died, gaps, .. } in verdict.gaps {
                text += &format!("{what:?}: {failed} failed, {died} died, {gaps:?}\n");
            }
            return text;
        }
        "report" => {
            let expected = history.split(' ').filter(|rule| !rule.is_empty()).map(named).collect();
            let facts = ReportFacts { nodes: 3, expected, ..ReportFacts::default() };
            let records = Records { events: events(given), cut: 0 };
            return report::page(&facts, &records, &judge(&records.events, bounds));
        }
        _ => panic!("not a command: {command}"),
    }
    String::new()
}

#[test]
fn histories_have_the_verdicts_of_the_transcript() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/check/transcript.txt");
    let mut given = String::new();
    paxoslease_rig::check_transcript(&path, |command| played(&mut given, command));
}

#[test]
fn the_evidence_of_a_violation_is_its_events() {
    let verdict = judge(&events("10 x held 1 until 20; 17 y held 2 until 30"), patient());
    assert_eq!(verdict.violations[0].evidence.len(), 2);
}

/// A correct history of one name: tenures one after another, with rising fences.
fn lawful() -> impl Strategy<Value = Vec<(Nanos, Nanos, u64)>> {
    let step = (1..50_u64, 1..100_u64, 1..9_u64);
    prop::collection::vec(step, 2..12).prop_map(|steps| {
        let (mut at, mut fence) = (0, 0);
        let mut tenures = Vec::new();
        for (pause, span, rise) in steps {
            at += pause;
            fence += rise;
            tenures.push((at, at + span, fence));
            at += span;
        }
        tenures
    })
}

/// The rules that tenures with a write each break.
fn broken(tenures: &[(Nanos, Nanos, u64)]) -> Vec<Rule> {
    let tell = |(place, (from, until, fence)): (usize, &(Nanos, Nanos, u64))| {
        format!("{from} c{place} held {fence} until {until}; {from} c{place} wrote {fence};")
    };
    let history: String = tenures.iter().enumerate().map(tell).collect();
    let violations = judge(&events(&history), patient()).violations;
    violations.iter().map(|violation| violation.rule).collect()
}

proptest! {
    #[test]
    fn a_lawful_run_has_no_violation_until_two_fences_are_swapped(
        tenures in lawful(), which in any::<prop::sample::Index>(),
    ) {
        prop_assert_eq!(broken(&tenures), []);
        let mut tenures = tenures;
        let which = which.index(tenures.len() - 1);
        (tenures[which].2, tenures[which + 1].2) = (tenures[which + 1].2, tenures[which].2);
        let rules = broken(&tenures);
        prop_assert!(rules.contains(&Rule::FencesRise), "{:?}", rules);
        prop_assert!(rules.contains(&Rule::StaleWritesAreRefused), "{:?}", rules);
    }

    #[test]
    fn two_beliefs_that_meet_anywhere_are_found(
        spans in prop::collection::vec((0..200_u64, 0..40_u64), 1..12),
    ) {
        let met = spans.iter().enumerate().any(|(place, (from, span))| {
            let meets = |(other, long): &(u64, u64)| {
                let ends = (from + span).min(other + long);
                *from.max(other) < ends
            };
            spans[place + 1..].iter().any(meets)
        });
        let tenure = |(fence, (from, span)): (u64, &(u64, u64))| (*from, from + span, fence);
        let tenures: Vec<_> = (1..).zip(&spans).map(tenure).collect();
        prop_assert_eq!(broken(&tenures).contains(&Rule::OneHolder), met);
    }
}
