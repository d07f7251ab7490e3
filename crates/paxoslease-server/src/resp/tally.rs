//! Counters of the sessions of one shard. They are plain numbers, published to the `metrics` facade
//! a few times a second, and not at all while nothing happens.

use std::time::Duration;

use metrics::{counter, gauge};
use paxoslease_node::front::Instant;

use super::command::{Command, SPECS};
use crate::access::Denied;
use paxoslease_node::Limit;

const PUBLISH_EVERY: Duration = Duration::from_millis(250);

#[derive(Debug)]
pub(super) struct Tally {
    commands: [u64; SPECS.len()],
    unknown: u64,
    limited: [u64; Limit::ALL.len()],
    refused: [u64; Denied::REASONS.len()],
    /// `None` while there is nothing new.
    pub(super) publish_at: Option<Instant>,
    /// Whether all counters were published once. From then on only changes are published.
    known: bool,
}

impl Tally {
    pub(super) fn new() -> Self {
        Self {
            commands: [0; SPECS.len()],
            unknown: 0,
            limited: [0; Limit::ALL.len()],
            refused: [0; Denied::REASONS.len()],
            publish_at: Some(Instant::ZERO),
            known: false,
        }
    }

    /// Has counters published soon.
    #[inline]
    pub(super) fn touch(&mut self, now: Instant) {
        if self.publish_at.is_none() {
            self.publish_at = Some(now.after(PUBLISH_EVERY));
        }
    }

    /// Counts a command; `None` is an unknown one.
    #[inline]
    pub(super) fn count(&mut self, command: Option<Command>) {
        match command {
            Some(command) => self.commands[command as usize] += 1,
            None => self.unknown += 1,
        }
    }

    pub(super) fn limited(&mut self, now: Instant, limit: Limit, count: u64) {
        self.limited[limit as usize] += count;
        self.touch(now);
    }

    /// Counts a denial with this [`Denied::reason`].
    pub(super) fn refused(&mut self, now: Instant, reason: usize) {
        self.refused[reason] += 1;
        self.touch(now);
    }

    /// Publishes everything that was counted since the last time.
    pub(super) fn publish(&mut self, connections: usize) {
        self.publish_at = None;
        let known = std::mem::replace(&mut self.known, true);
        let worth_it = |count: u64| count > 0 || !known;
        for spec in &SPECS {
            let count = std::mem::take(&mut self.commands[spec.command as usize]);
            if worth_it(count) {
                let command = spec.name.to_ascii_lowercase();
                counter!("paxoslease_commands_total", "command" => command).increment(count);
            }
        }
        let unknown = std::mem::take(&mut self.unknown);
        if worth_it(unknown) {
            counter!("paxoslease_commands_total", "command" => "unknown").increment(unknown);
        }
        for (limit, name) in Limit::ALL {
            let count = std::mem::take(&mut self.limited[limit as usize]);
            if worth_it(count) {
                counter!("paxoslease_limited_total", "limit" => name).increment(count);
            }
        }
        for (count, reason) in self.refused.iter_mut().zip(Denied::REASONS) {
            let count = std::mem::take(count);
            if worth_it(count) {
                counter!("paxoslease_refused_total", "reason" => reason).increment(count);
            }
        }
        gauge!("paxoslease_connections").set(connections as f64);
    }
}
