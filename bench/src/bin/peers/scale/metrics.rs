//! Metrics of PaxosLease nodes.

use std::time::Duration;

use anyhow::{Context, Result};
use paxoslease_bench::http;

/// The longest pass of an event loop since the start.
pub(super) fn longest_turn(endpoint: &str) -> Result<Duration> {
    seconds(endpoint, "paxoslease_turn_seconds_max")
}

pub(super) fn quarantine(endpoint: &str) -> Result<Duration> {
    seconds(endpoint, "paxoslease_quarantine_remaining_seconds")
}

fn seconds(endpoint: &str, metric: &str) -> Result<Duration> {
    let mut page = http::agent().get(format!("http://{endpoint}/metrics")).call()?;
    let text = page.body_mut().read_to_string()?;
    let line = text.lines().find_map(|line| line.strip_prefix(metric));
    let value = line.and_then(|line| line.split_whitespace().last());
    let value = value.with_context(|| format!("no {metric} at {endpoint}"))?;
    Ok(Duration::try_from_secs_f64(value.parse()?)?)
}
