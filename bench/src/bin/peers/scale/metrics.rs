//! Metrics of PaxosLease nodes.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result};

/// The longest pass of an event loop since the start.
pub(super) fn longest_turn(http: &str) -> Result<Duration> {
    seconds(http, "paxoslease_turn_seconds_max")
}

pub(super) fn quarantine(http: &str) -> Result<Duration> {
    seconds(http, "paxoslease_quarantine_remaining_seconds")
}

fn seconds(http: &str, metric: &str) -> Result<Duration> {
    let text = page(http)?;
    let line = text.lines().find_map(|line| line.strip_prefix(metric));
    let value = line.and_then(|line| line.split_whitespace().last());
    let value = value.with_context(|| format!("no {metric} at {http}"))?;
    Ok(Duration::try_from_secs_f64(value.parse()?)?)
}

fn page(http: &str) -> Result<String> {
    let mut stream = TcpStream::connect(http)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: {http}\r\nConnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}
