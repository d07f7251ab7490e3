//! What the sessions of one shard count. Plain numbers while commands come, handed to the
//! `metrics` facade a few times a second, and never while nothing happens.

use std::time::Duration;

use metrics::{counter, gauge};
use paxoslease_node::front::{Answer, CommandError, Instant};

use super::command::{Command, SPECS};
use crate::access::Denied;

const PUBLISH_EVERY: Duration = Duration::from_millis(250);

/// Which limit somebody ran into.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Limit {
    Connections,
    InflightPerConnection,
    AcquiresPerSecond,
    /// Requests under way in a shard.
    Inflight,
    /// Requests that wait in a shard.
    Waiters,
    /// Names a shard keeps, by number or by bytes.
    Leases,
    /// An acquire that waited while its client said too much to be seen leaving.
    OutOfSight,
    /// Messages of a watch that a slow reader missed.
    Watch,
    /// A client that read nothing for too long.
    SlowReader,
    /// A request longer than RESP requests may be here, or otherwise out of step.
    Framing,
    /// A client that did not finish a request in time.
    HalfRequest,
    /// What is no name, being too long, or empty, or no text.
    Name,
    /// What is no holder.
    Holder,
    /// Patterns that one connection watches.
    Patterns,
    /// Patterns that are watched in a shard.
    Watchers,
    /// Lists that wait in a shard.
    Lists,
    /// Leases of a token.
    Quota,
}

impl Limit {
    const ALL: [(Self, &'static str); 17] = [
        (Self::Connections, "connections"),
        (Self::InflightPerConnection, "inflight_per_connection"),
        (Self::AcquiresPerSecond, "acquires_per_second"),
        (Self::Inflight, "inflight"),
        (Self::Waiters, "waiters"),
        (Self::Leases, "leases"),
        (Self::OutOfSight, "out_of_sight"),
        (Self::Watch, "watch"),
        (Self::SlowReader, "slow_reader"),
        (Self::Framing, "framing"),
        (Self::HalfRequest, "half_request"),
        (Self::Name, "name"),
        (Self::Holder, "holder"),
        (Self::Patterns, "patterns"),
        (Self::Watchers, "watchers"),
        (Self::Lists, "lists"),
        (Self::Quota, "quota"),
    ];

    /// The limit of a shard that an answer tells of.
    pub(crate) const fn of(answer: &Answer) -> Option<Self> {
        match answer {
            Answer::Busy(CommandError::TooManyWaiters(_)) => Some(Self::Waiters),
            Answer::Busy(_) => Some(Self::Inflight),
            Answer::Full => Some(Self::Leases),
            Answer::TooManyLists(_) => Some(Self::Lists),
            _ => None,
        }
    }

    pub(crate) const fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }
}

#[derive(Debug)]
pub(super) struct Tally {
    commands: [u64; SPECS.len()],
    unknown: u64,
    limited: [u64; Limit::ALL.len()],
    refused: [u64; Denied::REASONS.len()],
    /// `None` while there is nothing new.
    publish_at: Option<Instant>,
    /// Whether everything was published once: from then on, only what changed.
    known: bool,
}

impl Tally {
    pub(super) const fn new() -> Self {
        Self {
            commands: [0; SPECS.len()],
            unknown: 0,
            limited: [0; Limit::ALL.len()],
            refused: [0; Denied::REASONS.len()],
            publish_at: Some(Instant::ZERO),
            known: false,
        }
    }

    /// Something is to be published, if not at once.
    #[inline]
    pub(super) fn touch(&mut self, now: Instant) {
        if self.publish_at.is_none() {
            self.publish_at = Some(now.after(PUBLISH_EVERY));
        }
    }

    /// A command came; `None` is one that does not exist.
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

    /// Something was not allowed; `reason` is that of [`Denied`].
    pub(super) fn refused(&mut self, now: Instant, reason: usize) {
        self.refused[reason] += 1;
        self.touch(now);
    }

    pub(super) const fn publish_at(&self) -> Option<Instant> {
        self.publish_at
    }

    /// Hands everything counted since the last time to whoever records metrics.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_limit_has_its_own_place() {
        for (place, (limit, name)) in Limit::ALL.into_iter().enumerate() {
            assert_eq!((limit as usize, limit.name()), (place, name));
        }
    }
}
