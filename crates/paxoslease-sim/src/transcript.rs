//! A trace as lines of text, for people.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::trace::{Entry, TraceEvent};

/// How many lines are shown before and after the violation.
const SHOWN: (usize, usize) = (40, 5);

/// The lines around the first violation, or the last lines without one.
#[must_use]
pub fn around_violation(trace: &[Entry]) -> String {
    let broken = trace.iter().position(|entry| matches!(entry.event, TraceEvent::Violation { .. }));
    let broken = broken.unwrap_or(trace.len());
    let from = broken.saturating_sub(SHOWN.0);
    let to = trace.len().min(broken.saturating_add(SHOWN.1));
    let sent: BTreeMap<u64, (u16, u16, &str)> = trace
        .iter()
        .filter_map(|entry| match &entry.event {
            TraceEvent::Sent { message, from, to, text } => {
                Some((*message, (*from, *to, text.as_str())))
            }
            _ => None,
        })
        .collect();
    let mut text = String::new();
    for entry in &trace[from..to] {
        let at = entry.at.to_string();
        let what = line(&entry.event, &sent);
        writeln!(text, "  {at:>14}  {what}").expect("a String takes every text");
    }
    text
}

fn line(event: &TraceEvent, sent: &BTreeMap<u64, (u16, u16, &str)>) -> String {
    let message = |number: &u64, fate: &str| match sent.get(number) {
        Some((from, to, text)) => format!("{fate} {from} -> {to}  {text}"),
        None => format!("{fate} message {number}"),
    };
    match event {
        TraceEvent::Sent { message: number, .. } => message(number, "sent   "),
        TraceEvent::Delivered(number) => message(number, "arrived"),
        TraceEvent::Lost(number) => message(number, "lost   "),
        TraceEvent::Asked { client, node, text } => {
            format!("client {client} asks node {node}: {text}")
        }
        TraceEvent::Promised { node, name, ballot } => {
            format!("node {node} promises {ballot} for {name}")
        }
        TraceEvent::Stored { node, name, fence, until } => {
            format!("node {node} stores {} of {name} until {until}", tenure(*fence))
        }
        TraceEvent::Cleared { node, name } => format!("node {node} clears {name}"),
        TraceEvent::Believes { client, node, name, fence, until } => {
            let tenure = tenure(*fence);
            format!("client {client} holds {tenure} of {name} until {until}, through node {node}")
        }
        TraceEvent::Yielded { client, name } => format!("client {client} gives up {name}"),
        TraceEvent::Crashed(node) => format!("node {node} crashes"),
        TraceEvent::Stopped(node) => format!("node {node} stops"),
        TraceEvent::Started { node, quarantine_until: Some(until) } => {
            format!("node {node} starts, quarantined until {until}")
        }
        TraceEvent::Started { node, quarantine_until: None } => format!("node {node} starts"),
        TraceEvent::Paused { node, until } => format!("node {node} pauses until {until}"),
        TraceEvent::Violation(text) => format!("*** {text}"),
        TraceEvent::Note { node, text } => format!("node {node}: {text}"),
    }
}

/// A fence in the notation of tenures: counter and node.
fn tenure(fence: u64) -> String {
    format!("t{}.{}", fence >> 10, fence & 0x3ff)
}
