//! SUBSCRIBE and PUBLISH: the messages that scripts of releases publish.
//!
//! A message goes to the subscribers of all nodes as a hint between nodes: at most once, and it may
//! be lost, as with Redis.

use paxoslease_node::Limit;
use paxoslease_node::front::{Holder, Label, Name};
use paxoslease_wire::resp::{Protocol, put_bulk, put_integer};

use super::super::reply_error::ReplyError;
use super::super::session::Session;
use super::super::{Common, Turn};
use super::glob::{Compared, Glob};
use super::keys::Keys;
use super::lease_channels::{NOTIFY, is_reserved, leases_of, refuse_channels_of_keys};
use crate::config::{NamePattern, Verb};

/// Channels and patterns of one connection.
const CHANNELS_MAX: usize = 256;
/// The longest channel: as long as a name.
const CHANNEL_LEN_MAX: usize = 512;
/// Messages of one shard that wait for the next turn. Further messages are lost.
pub(in super::super) const NOTES_MAX: usize = 256;
/// The steps of a message to one subscriber: its permission, and its bytes on the way to a socket.
const PERMISSION_STEPS: usize = 32;
const DELIVERY_STEPS: usize = 512;

/// A channel, or a pattern of channels.
#[derive(Clone, PartialEq, Eq)]
pub(in super::super) enum Channel {
    Name(Box<[u8]>),
    Pattern(Glob),
}

impl Channel {
    fn new(name: &[u8], is_pattern: bool) -> Result<Self, ReplyError<'static>> {
        if is_pattern {
            return Glob::new(name).map(Self::Pattern).map_err(ReplyError::Glob);
        }
        if name.len() > CHANNEL_LEN_MAX {
            return Err(ReplyError::ChannelLen(CHANNEL_LEN_MAX));
        }
        Ok(Self::Name(name.into()))
    }

    pub(super) fn is_pattern(&self) -> bool {
        matches!(self, Self::Pattern(_))
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Name(name) => name,
            Self::Pattern(pattern) => pattern.as_bytes(),
        }
    }

    fn compare(&self, name: &[u8]) -> Compared {
        match self {
            Self::Name(own) => Compared { is_match: **own == *name, steps: 1 + own.len() / 16 },
            Self::Pattern(pattern) => pattern.compare(name),
        }
    }
}

/// A message that was published, and the subscriber that is told next. A message goes to one
/// subscriber after another, in as many turns as it takes.
pub(in super::super) struct Note {
    pub(in super::super) label: Label,
    /// The index of the session.
    pub(in super::super) session: usize,
    /// The place among the channels of that session.
    pub(in super::super) channel: usize,
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
            refuse_channels_of_keys(name)?;
            let channel = Channel::new(name, is_pattern)?;
            let word = if is_pattern { "psubscribe" } else { "subscribe" };
            if let Some(pattern) = leases_of(&channel) {
                self.subscribe_to_leases(turn, channel, pattern?)?;
                self.reply_subscribed(turn.common, word, Some(name));
                continue;
            }
            self.admit_channel(turn, &channel)?;
            if !self.channels.contains(&channel) {
                let before = self.channels.len();
                let most = turn.common.server.watched_max;
                if before == CHANNELS_MAX {
                    return Err(ReplyError::TooManyChannels(CHANNELS_MAX));
                }
                if turn.common.subscribed >= most {
                    return Err(ReplyError::TooManySubscribed(most));
                }
                self.channels.push(channel);
                turn.common.subscribes(turn.shard, self.conn, before, before + 1);
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
            let of_kind = all.filter(|channel| channel.is_pattern() == is_pattern);
            of_kind.map(|channel| channel.as_bytes().to_vec()).collect()
        } else {
            names.iter().map(|name| name.to_vec()).collect()
        };
        if names.is_empty() {
            self.reply_subscribed(turn.common, word, None);
        }
        for name in names {
            let is_gone = |channel: &Channel| {
                channel.is_pattern() == is_pattern && channel.as_bytes() == name.as_slice()
            };
            self.unsubscribe_from_leases(turn, is_gone);
            let before = self.channels.len();
            self.channels.retain(|channel| !is_gone(channel));
            turn.common.subscribes(turn.shard, self.conn, before, self.channels.len());
            self.reply_subscribed(turn.common, word, Some(&name));
        }
    }

    /// A channel is read like a name, and published to like one that is acquired.
    fn admit_channel(
        &self,
        turn: &mut Turn<'_, '_>,
        channel: &Channel,
    ) -> Result<(), ReplyError<'static>> {
        // Every client may hear of its own acquires.
        if channel.as_bytes() == NOTIFY {
            return Ok(());
        }
        let pattern = match channel {
            Channel::Name(name) => {
                return self.admit_key(turn, Verb::Read, &String::from_utf8_lossy(name));
            }
            Channel::Pattern(pattern) => pattern,
        };
        let prefix = String::from_utf8_lossy(pattern.literal_prefix());
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

    /// A message was published. Tells it to the client once for each of its channels that fits,
    /// beginning with the channel of the note. Returns whether that is done: the next turn goes on
    /// otherwise.
    pub(in super::super) fn message(&mut self, turn: &mut Turn<'_, '_>, note: &mut Note) -> bool {
        let (name, message) = (note.label.name(), note.label.holder());
        turn.common.steps.spend(PERMISSION_STEPS);
        if !turn.common.rules.allows(self.place(), Verb::Read, name.as_str()) {
            return true;
        }
        if self.is_slow_watcher() {
            turn.common.tally.limited(turn.shard.now(), Limit::Watch, 1);
            return true;
        }
        while let Some(channel) = self.channels.get(note.channel) {
            if turn.common.steps.are_half_spent() {
                return false;
            }
            note.channel += 1;
            let compared = channel.compare(name.as_bytes());
            turn.common.steps.spend(compared.steps);
            if compared.is_match {
                turn.common.steps.spend(DELIVERY_STEPS);
                let channel = channel.clone();
                self.tell(turn.common, &channel, name.as_bytes(), message.as_bytes());
            }
        }
        true
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
        self.reply(common, |protocol, out| {
            match subscription {
                Channel::Name(_) => {
                    protocol.put_push(out, 3);
                    put_bulk(out, b"message");
                }
                Channel::Pattern(pattern) => {
                    protocol.put_push(out, 4);
                    put_bulk(out, b"pmessage");
                    put_bulk(out, pattern.as_bytes());
                }
            }
            put_bulk(out, channel);
            put_bulk(out, message);
        });
    }
}

/// No client can pretend that a lease begins or ends.
fn refuse_reserved(channel: &[u8]) -> Result<(), ReplyError<'static>> {
    if is_reserved(channel) { Err(ReplyError::ReservedChannel) } else { Ok(()) }
}
