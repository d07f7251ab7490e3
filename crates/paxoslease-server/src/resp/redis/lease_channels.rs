//! Leases as channels: what LEASE.WATCH and NOTIFY tell, for libraries that know only SUBSCRIBE.
//!
//! `SUBSCRIBE lease:NAME` and `PSUBSCRIBE lease:PREFIX*` watch names, with the bounds and the
//! permissions of LEASE.WATCH. A connection of RESP3 that subscribed to `lease.notify` gets the
//! results of its acquires with NOTIFY there. A message is an object of JSON. Only the node
//! publishes on these channels.

use std::time::Duration;

use paxoslease_node::Limit;
use paxoslease_node::front::{Hint, Label};
use paxoslease_wire::resp::{Protocol, put_bulk};
use serde_json::{Value, json};

use super::super::Turn;
use super::super::execute::PATTERNS_MAX;
use super::super::reply_error::ReplyError;
use super::super::session::Session;
use super::channels::Channel;
use crate::config::{NamePattern, PatternError, Verb};

/// What the channels of leases begin with.
const LEASES: &[u8] = b"lease:";
/// The channel with the results of acquires with NOTIFY.
pub(super) const NOTIFY: &[u8] = b"lease.notify";
/// The channels on which Redis tells what happens to keys.
const OF_KEYS: [&[u8]; 2] = [b"__keyspace@", b"__keyevent@"];

/// A subscription to leases.
pub(in super::super) struct LeaseChannel {
    pub(super) channel: Channel,
    pub(in super::super) pattern: NamePattern,
}

/// Whether only the node publishes on a channel.
pub(super) fn is_reserved(channel: &[u8]) -> bool {
    channel.starts_with(LEASES) || channel == NOTIFY
}

/// Refuses channels that would stay silent.
pub(super) fn refuse_channels_of_keys(name: &[u8]) -> Result<(), ReplyError<'static>> {
    let is_of_keys = OF_KEYS.iter().any(|prefix| name.starts_with(prefix));
    if is_of_keys { Err(ReplyError::NoKeyspaceEvents) } else { Ok(()) }
}

/// The names that a channel or a pattern is about, if it is about leases.
pub(super) fn leases_of(channel: &Channel) -> Option<Result<NamePattern, ReplyError<'static>>> {
    let names = channel.as_bytes().strip_prefix(LEASES)?;
    let names = std::str::from_utf8(names).map_err(|_| PatternError);
    let pattern = names.and_then(str::parse::<NamePattern>).map_err(ReplyError::Pattern);
    Some(match pattern {
        Ok(pattern) if pattern.prefix().is_some() && !channel.is_pattern() => {
            Err(ReplyError::LeaseChannel)
        }
        pattern => pattern,
    })
}

impl Session {
    /// The patterns of names that it watches, by LEASE.WATCH or by channels.
    pub(in super::super) fn watched(&self) -> usize {
        self.patterns.len() + self.lease_channels.len()
    }

    /// Whether one more pattern may be watched.
    pub(in super::super) fn admit_watch(
        &self,
        turn: &Turn<'_, '_>,
    ) -> Result<(), ReplyError<'static>> {
        let most = turn.common.server.watched_max;
        if self.watched() == PATTERNS_MAX {
            return Err(ReplyError::TooManyPatterns(PATTERNS_MAX));
        }
        if turn.common.watched >= most { Err(ReplyError::TooManyWatched(most)) } else { Ok(()) }
    }

    pub(super) fn subscribe_to_leases(
        &mut self,
        turn: &mut Turn<'_, '_>,
        channel: Channel,
        pattern: NamePattern,
    ) -> Result<(), ReplyError<'static>> {
        self.admit_read(turn, &pattern)?;
        if self.lease_channels.iter().all(|known| known.channel != channel) {
            self.admit_watch(turn)?;
            let before = self.watched();
            self.lease_channels.push(LeaseChannel { channel, pattern });
            turn.common.watches(turn.shard, self.conn, before, before + 1);
        }
        Ok(())
    }

    pub(super) fn unsubscribe_from_leases(
        &mut self,
        turn: &mut Turn<'_, '_>,
        is_gone: impl Fn(&Channel) -> bool,
    ) {
        let before = self.watched();
        self.lease_channels.retain(|known| !is_gone(&known.channel));
        turn.common.watches(turn.shard, self.conn, before, self.watched());
    }

    /// A hint about a name that it watches and may read.
    pub(in super::super) fn hint_by_channel(
        &mut self,
        turn: &mut Turn<'_, '_>,
        name: &str,
        hint: &Hint,
    ) {
        let is_fitting = self.lease_channels.iter().any(|known| known.pattern.fits(name));
        if !is_fitting || !turn.common.rules.allows(self.place(), Verb::Read, name) {
            return;
        }
        if self.misses() {
            return turn.common.tally.limited(turn.shard.now(), Limit::Watch, 1);
        }
        let Some(told) = told(hint) else { return };
        let (channel, told) = ([LEASES, name.as_bytes()].concat(), told.to_string());
        let known = std::mem::take(&mut self.lease_channels);
        for fitting in known.iter().filter(|known| known.pattern.fits(name)) {
            self.tell(turn.common, &fitting.channel, &channel, told.as_bytes());
        }
        self.lease_channels = known;
    }

    /// Tells a subscriber how many hints it did not get. Returns whether it has subscribed to any.
    pub(in super::super) fn missed_by_channel(
        &mut self,
        turn: &mut Turn<'_, '_>,
        count: u64,
    ) -> bool {
        let Some(first) = self.lease_channels.first() else { return false };
        let subscription = first.channel.clone();
        let told = json!({"event": "missed", "count": count});
        let channel = subscription.as_bytes().to_vec();
        self.tell(turn.common, &subscription, &channel, told.to_string().as_bytes());
        true
    }

    /// Whether results of acquires with NOTIFY go to a channel. In RESP2 they would look like
    /// replies.
    pub(in super::super) fn is_notified_by_channel(&self) -> bool {
        let is_it = |channel: &Channel| !channel.is_pattern() && channel.as_bytes() == NOTIFY;
        self.protocol == Protocol::Resp3 && self.channels.iter().any(is_it)
    }
}

/// `None` for a hint that is not about a lease.
fn told(hint: &Hint) -> Option<Value> {
    match hint {
        Hint::Held(seen) => {
            let (name, holder) = (seen.label.name().as_str(), seen.label.holder().as_str());
            let ttl_ms = seen.lasts().as_millis().map_or(-1, u64::cast_signed);
            let fence = seen.tenure.fence().to_string();
            Some(
                json!({"event": "held", "name": name, "holder": holder, "fence": fence, "ttl_ms": ttl_ms}),
            )
        }
        Hint::Freed { label, .. } => Some(json!({"event": "freed", "name": label.name().as_str()})),
        Hint::Expired { label, fence } => {
            let (name, fence) = (label.name(), fence.to_string());
            Some(json!({"event": "expired", "name": name.as_str(), "fence": fence}))
        }
        _ => None,
    }
}

/// The message for an acquire with NOTIFY that was granted.
pub(in super::super) fn put_granted_message(
    id: &[u8],
    fence: u64,
    granted: Option<&Label>,
    ttl_ms: i64,
    waited: Duration,
    out: &mut Vec<u8>,
) {
    let id = String::from_utf8_lossy(id);
    let name = granted.map(|label| label.name().as_str());
    let waited_ms = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
    put_notify_message(
        &json!({
            "event": "granted",
            "id": id,
            "name": name,
            "fence": fence.to_string(),
            "ttl_ms": ttl_ms,
            "waited_ms": waited_ms,
        }),
        out,
    );
}

/// The message for an acquire with NOTIFY that was not granted.
pub(in super::super) fn put_timeout_message(id: &[u8], out: &mut Vec<u8>) {
    put_notify_message(&json!({"event": "timeout", "id": String::from_utf8_lossy(id)}), out);
}

fn put_notify_message(told: &Value, out: &mut Vec<u8>) {
    Protocol::Resp3.put_push(out, 3);
    put_bulk(out, b"message");
    put_bulk(out, NOTIFY);
    put_bulk(out, told.to_string().as_bytes());
}
