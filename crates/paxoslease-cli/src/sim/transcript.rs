//! A trace in lines to read.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use paxoslease_sim::trace::{Entry, What};

/// How many lines are shown before and after what broke.
const SHOWN: (usize, usize) = (40, 5);

/// The lines around the first violation.
pub(super) fn around_violation(trace: &[Entry]) -> String {
    let broken = trace.iter().position(|entry| matches!(entry.what, What::Violation { .. }));
    let broken = broken.unwrap_or(trace.len());
    let from = broken.saturating_sub(SHOWN.0);
    let to = trace.len().min(broken.saturating_add(SHOWN.1));
    let sent: BTreeMap<u64, (u16, u16, &str)> = trace
        .iter()
        .filter_map(|entry| match &entry.what {
            What::Sent { message, from, to, text } => Some((*message, (*from, *to, text.as_str()))),
            _ => None,
        })
        .collect();
    let mut text = String::new();
    for entry in &trace[from..to] {
        let at = entry.at.to_string();
        let what = line(&entry.what, &sent);
        writeln!(text, "  {at:>14}  {what}").expect("a String takes every text");
    }
    text
}

fn line(what: &What, sent: &BTreeMap<u64, (u16, u16, &str)>) -> String {
    let message = |number: &u64, fate: &str| match sent.get(number) {
        Some((from, to, text)) => format!("{fate} {from} -> {to}  {text}"),
        None => format!("{fate} message {number}"),
    };
    match what {
        What::Sent { message: number, .. } => message(number, "sent   "),
        What::Delivered { message: number } => message(number, "arrived"),
        What::Lost { message: number } => message(number, "lost   "),
        What::Asked { client, node, text } => format!("client {client} asks node {node}: {text}"),
        What::Promised { node, name, ballot } => {
            format!("node {node} promises {ballot} for {name}")
        }
        What::Stored { node, name, fence, until } => {
            format!("node {node} stores {} of {name} until {until}", tenure(*fence))
        }
        What::Cleared { node, name } => format!("node {node} clears {name}"),
        What::Believes { client, node, name, fence, until } => {
            let tenure = tenure(*fence);
            format!("client {client} holds {tenure} of {name} until {until}, through node {node}")
        }
        What::Yielded { client, name } => format!("client {client} gives up {name}"),
        What::Crashed { node } => format!("node {node} crashes"),
        What::Stopped { node } => format!("node {node} stops"),
        What::Started { node, quarantine_until: Some(until) } => {
            format!("node {node} starts, quarantined until {until}")
        }
        What::Started { node, quarantine_until: None } => format!("node {node} starts"),
        What::Paused { node, until } => format!("node {node} stands still until {until}"),
        What::Violation { text } => format!("*** {text}"),
        What::Note { node, text } => format!("node {node}: {text}"),
    }
}

/// A fence as tenures are written: counter and node.
fn tenure(fence: u64) -> String {
    format!("t{}.{}", fence >> 10, fence & 0x3ff)
}
