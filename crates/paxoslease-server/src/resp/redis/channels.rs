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
use crate::config::{NamePattern, Verb};

/// Channels and patterns of one connection.
const CHANNELS_MAX: usize = 256;
/// The longest channel or pattern. The shard's thread compares each message with all of them.
pub(super) const PATTERN_LEN_MAX: usize = 512;

/// A channel, or a pattern of channels.
#[derive(Clone, PartialEq, Eq)]
pub(in super::super) struct Channel {
    name: Vec<u8>,
    is_pattern: bool,
}

impl Channel {
    fn fits(&self, name: &[u8]) -> bool {
        if self.is_pattern { glob(&self.name, name) } else { self.name == name }
    }
}

impl Session {
    /// Whether only commands about channels may follow, because messages look like replies.
    pub(in super::super) fn is_subscriber(&self) -> bool {
        self.protocol == Protocol::Resp2 && !self.channels.is_empty()
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
            let word = if is_pattern { "psubscribe" } else { "subscribe" };
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
            let of_kind = self.channels.iter().filter(|channel| channel.is_pattern == is_pattern);
            of_kind.map(|channel| channel.name.clone()).collect()
        } else {
            names.iter().map(|name| name.to_vec()).collect()
        };
        if names.is_empty() {
            self.reply_subscribed(turn.common, word, None);
        }
        for name in names {
            let gone = Channel { name: name.clone(), is_pattern };
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
            self.admit_key(turn, Verb::Acquire, &String::from_utf8_lossy(channel))
        })
    }

    fn reply_subscribed(&mut self, common: &mut Common, word: &str, name: Option<&[u8]>) {
        let count = self.channels.len() as i64;
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
        // Behind the replies that are due before, as the confirmation of the subscription may be.
        for Channel { name: pattern, is_pattern } in fitting.cloned().collect::<Vec<_>>() {
            self.reply(turn.common, |protocol, out| {
                protocol.put_push(out, if is_pattern { 4 } else { 3 });
                if is_pattern {
                    put_bulk(out, b"pmessage");
                    put_bulk(out, &pattern);
                } else {
                    put_bulk(out, b"message");
                }
                put_bulk(out, name);
                put_bulk(out, message);
            });
        }
    }
}
