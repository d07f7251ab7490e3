//! SUBSCRIBE and PUBLISH: the messages that scripts of releases publish.
//!
//! A message goes to the subscribers of all nodes as a hint between nodes: at most once, and it may
//! be lost, as with Redis.

use paxoslease_node::Limit;
use paxoslease_node::front::{Holder, Name};
use paxoslease_wire::resp::{Protocol, put_bulk, put_integer};

use super::super::reply_error::ReplyError;
use super::super::session::Session;
use super::super::{Common, Turn};
use super::glob::{glob, literal_prefix};
use super::keys::Keys;
use super::lease_channels::{NOTIFY, is_reserved, leases_of, refuse_channels_of_keys};
use crate::config::{NamePattern, Verb};

/// Channels and patterns of one connection.
const CHANNELS_MAX: usize = 256;
/// The longest channel or pattern. The shard's thread compares each message with all of them.
pub(super) const PATTERN_LEN_MAX: usize = 512;

/// A channel, or a pattern of channels.
#[derive(Clone, PartialEq, Eq)]
pub(in super::super) struct Channel {
    pub(super) name: Vec<u8>,
    pub(super) is_pattern: bool,
}

impl Channel {
    fn fits(&self, name: &[u8]) -> bool {
        if self.is_pattern { glob(&self.name, name) } else { self.name == name }
    }
}

impl Session {
    /// Whether only commands about channels may follow, because messages look like replies.
    pub(in super::super) fn is_subscriber(&self) -> bool {
        self.protocol == Protocol::Resp2 && self.subscriptions() > 0
    }

    fn subscriptions(&self) -> usize {
        self.channels.len() + self.lease_channels.len()
    }

    pub(super) fn subscribe(
        &mut self,
        turn: &mut Turn<'_, '_>,
        names: &[&[u8]],
        is_pattern: bool,
    ) -> Result<(), ReplyError<'static>> {
        for name in names {
            let channel = Channel { name: name.to_vec(), is_pattern };
            if name.len() > PATTERN_LEN_MAX {
                return Err(ReplyError::PatternLen(PATTERN_LEN_MAX));
            }
            refuse_channels_of_keys(name)?;
            let word = if is_pattern { "psubscribe" } else { "subscribe" };
            if let Some(pattern) = leases_of(&channel) {
                self.subscribe_to_leases(turn, channel, pattern?)?;
                self.reply_subscribed(turn.common, word, Some(name));
                continue;
            }
            self.admit_channel(turn, &channel)?;
            if !self.channels.contains(&channel) {
                if self.channels.len() == CHANNELS_MAX {
                    return Err(ReplyError::TooManyChannels(CHANNELS_MAX));
                }
                if turn.common.subscribers.len() >= turn.common.server.watched_max {
                    return Err(ReplyError::TooManyWatched(turn.common.server.watched_max));
                }
                self.channels.push(channel);
                if self.channels.len() == 1 {
                    turn.common.subscribers.push(self.conn.index());
                    turn.common.listen(turn.shard, true);
                }
            }
            self.reply_subscribed(turn.common, word, Some(name));
        }
        Ok(())
    }

    /// Ends these subscriptions, or all of their kind.
    pub(super) fn unsubscribe(
        &mut self,
        turn: &mut Turn<'_, '_>,
        names: &[&[u8]],
        is_pattern: bool,
    ) {
        let word = if is_pattern { "punsubscribe" } else { "unsubscribe" };
        let names: Vec<Vec<u8>> = if names.is_empty() {
            let of_leases = self.lease_channels.iter().map(|known| &known.channel);
            let all = self.channels.iter().chain(of_leases);
            let of_kind = all.filter(|channel| channel.is_pattern == is_pattern);
            of_kind.map(|channel| channel.name.clone()).collect()
        } else {
            names.iter().map(|name| name.to_vec()).collect()
        };
        if names.is_empty() {
            self.reply_subscribed(turn.common, word, None);
        }
        for name in names {
            let gone = Channel { name: name.clone(), is_pattern };
            self.unsubscribe_from_leases(turn, &gone);
            let before = self.channels.len();
            self.channels.retain(|channel| *channel != gone);
            if before > 0 && self.channels.is_empty() {
                turn.common.forget_subscriber(turn.shard, self.conn.index());
            }
            self.reply_subscribed(turn.common, word, Some(&name));
        }
    }

    /// A channel is read like a name, and published to like one that is acquired.
    fn admit_channel(
        &self,
        turn: &mut Turn<'_, '_>,
        channel: &Channel,
    ) -> Result<(), ReplyError<'static>> {
        let text = String::from_utf8_lossy(&channel.name);
        // Everyone hears of its own acquires.
        if channel.name == NOTIFY {
            return Ok(());
        }
        if !channel.is_pattern {
            return self.admit_key(turn, Verb::Read, &text);
        }
        let prefix = String::from_utf8_lossy(literal_prefix(&channel.name));
        match format!("{prefix}*").parse::<NamePattern>() {
            Ok(pattern) => self.admit_read(turn, &pattern),
            Err(error) => Err(ReplyError::Pattern(error)),
        }
    }

    /// Whether the client may publish what a script publishes.
    pub(super) fn admit_published(
        &self,
        turn: &mut Turn<'_, '_>,
        keys: &Keys,
    ) -> Result<(), ReplyError<'static>> {
        keys.published.iter().try_for_each(|(channel, _)| {
            refuse_reserved(channel)?;
            self.admit_key(turn, Verb::Acquire, &String::from_utf8_lossy(channel))
        })
    }

    fn reply_subscribed(&mut self, common: &mut Common, word: &str, name: Option<&[u8]>) {
        let count = self.subscriptions() as i64;
        self.reply(common, |protocol, out| {
            protocol.put_push(out, 3);
            put_bulk(out, word.as_bytes());
            match name {
                Some(name) => put_bulk(out, name),
                None => protocol.put_null(out),
            }
            put_integer(out, count);
        });
    }

    pub(super) fn publish<'a>(
        &mut self,
        turn: &mut Turn<'_, '_>,
        channel: &'a [u8],
        message: &[u8],
    ) -> Result<(), ReplyError<'a>> {
        refuse_reserved(channel)?;
        let channel = Name::from_bytes(channel).map_err(ReplyError::Name)?;
        self.admit_key(turn, Verb::Acquire, channel.as_str())?;
        let message = Holder::from_bytes(message).map_err(ReplyError::Message)?;
        turn.shard.note(channel, message);
        let receivers = turn.common.subscribers.len() as i64;
        self.reply(turn.common, |_, out| put_integer(out, receivers));
        Ok(())
    }

    /// A message was published on a channel.
    pub(in super::super) fn message(
        &mut self,
        turn: &mut Turn<'_, '_>,
        name: &[u8],
        message: &[u8],
    ) {
        let text = String::from_utf8_lossy(name);
        if !turn.common.rules.allows(self.place(), Verb::Read, &text) {
            return;
        }
        if self.is_slow_watcher() {
            return turn.common.tally.limited(turn.shard.now(), Limit::Watch, 1);
        }
        let fitting = self.channels.iter().filter(|channel| channel.fits(name));
        for subscription in fitting.cloned().collect::<Vec<_>>() {
            self.tell(turn.common, &subscription, name, message);
        }
    }

    /// Sends a message behind the replies that are due before, as the confirmation of the
    /// subscription may be.
    pub(super) fn tell(
        &mut self,
        common: &mut Common,
        subscription: &Channel,
        channel: &[u8],
        message: &[u8],
    ) {
        let Channel { name: pattern, is_pattern } = subscription;
        self.reply(common, |protocol, out| {
            protocol.put_push(out, if *is_pattern { 4 } else { 3 });
            if *is_pattern {
                put_bulk(out, b"pmessage");
                put_bulk(out, pattern);
            } else {
                put_bulk(out, b"message");
            }
            put_bulk(out, channel);
            put_bulk(out, message);
        });
    }
}

/// Nobody can pretend that a lease begins or ends.
fn refuse_reserved(channel: &[u8]) -> Result<(), ReplyError<'static>> {
    if is_reserved(channel) { Err(ReplyError::ReservedChannel) } else { Ok(()) }
}
