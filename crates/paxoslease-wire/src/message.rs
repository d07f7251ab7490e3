//! Encodes and decodes one message: a tag, numbers, then texts.
//!
//! Numbers and texts go through the core's checked constructors, so a decoded message is as valid
//! as one of our own. The core judges its content: ttls above `max_lease`, ballots near exhaustion,
//! replies to no request.

mod durable;

use alloc::vec::Vec;

use paxoslease_core::{
    Ballot, Hint, Holder, Message, Name, ReleaseId, Reply, Request, Seen, Tenure, Ttl,
};

use crate::bytes::{Cursor, put_text, put_u32, put_u64};
use crate::{DecodeError, DecodeError as E};

/// The longest message in bytes: a Store with the longest name and holder.
pub const MESSAGE_LEN_MAX: usize = 1 + 8 + 24 + (2 + Name::LEN_MAX) + (2 + Holder::LEN_MAX);

/// First bytes of messages. A number is never reused for another message.
mod tag {
    pub(super) const PREPARE: u8 = 0x01;
    pub(super) const PROPOSE: u8 = 0x02;
    pub(super) const RENEW: u8 = 0x03;
    pub(super) const HEAL: u8 = 0x04;
    pub(super) const RELEASE: u8 = 0x05;
    pub(super) const INSPECT: u8 = 0x06;

    pub(super) const PROMISE: u8 = 0x11;
    pub(super) const ACCEPT: u8 = 0x12;
    pub(super) const REJECT: u8 = 0x13;
    pub(super) const NOT_HELD: u8 = 0x14;
    pub(super) const RELEASED: u8 = 0x15;
    pub(super) const INSPECTED: u8 = 0x16;
    pub(super) const HEALED: u8 = 0x19;
    pub(super) const NOT_HEALED: u8 = 0x1a;
    /// Set in the tag of a reply that reports a live lease. A [`super::Seen`] follows; in a
    /// Released, the Release that ended the lease.
    pub(super) const LIVE: u8 = 0x80;

    pub(super) const PROMISE_LIVE: u8 = PROMISE | LIVE;
    pub(super) const REJECT_LIVE: u8 = REJECT | LIVE;
    pub(super) const RELEASED_LIVE: u8 = RELEASED | LIVE;
    pub(super) const INSPECTED_LIVE: u8 = INSPECTED | LIVE;

    pub(super) const HELD: u8 = 0x21;
    pub(super) const FREED: u8 = 0x22;
    pub(super) const NOTE: u8 = 0x23;

    pub(super) const DURABLE_PREPARE: u8 = 0x31;
    pub(super) const STORE_HELD: u8 = 0x32;
    pub(super) const STORE_FREE: u8 = 0x33;
    pub(super) const ALL: u8 = 0x34;
    pub(super) const DURABLE_PROMISE: u8 = 0x41;
    pub(super) const STORED: u8 = 0x42;
    pub(super) const DURABLE_REJECT: u8 = 0x43;
    pub(super) const REFUSED_NO_DISK: u8 = 0x44;
    pub(super) const REFUSED_NO_ROOM: u8 = 0x45;
    pub(super) const IS_DURABLE: u8 = 0x46;
    pub(super) const DURABLE_INSPECTED: u8 = 0x47;
}

#[inline]
pub(crate) fn encode_message(message: &Message<'_>, out: &mut Vec<u8>) {
    match message {
        Message::Request(request) => encode_request(request, out),
        Message::Reply(reply) => encode_reply(reply, out),
        Message::Hint(hint) => encode_hint(hint, out),
        Message::Durable(message) => durable::encode(message, out),
    }
}

fn encode_request(request: &Request<'_>, out: &mut Vec<u8>) {
    match *request {
        Request::Prepare { name, ballot } => {
            put_tagged(out, tag::PREPARE, ballot.as_u64());
            put_text(out, name.as_bytes());
        }
        Request::Propose { name, ballot, ttl, holder } => {
            put_tagged(out, tag::PROPOSE, ballot.as_u64());
            put_u32(out, ttl.as_millis());
            put_text(out, name.as_bytes());
            put_text(out, holder.as_bytes());
        }
        Request::Renew { name, tenure, ballot, ttl } => {
            put_tagged(out, tag::RENEW, ballot.as_u64());
            put_u64(out, tenure.fence());
            put_u32(out, ttl.as_millis());
            put_text(out, name.as_bytes());
        }
        Request::Heal { name, tenure, ballot, ttl, holder } => {
            put_tagged(out, tag::HEAL, ballot.as_u64());
            put_u64(out, tenure.fence());
            put_u32(out, ttl.as_millis());
            put_text(out, name.as_bytes());
            put_text(out, holder.as_bytes());
        }
        Request::Release { name, tenure, id } => {
            put_tagged(out, tag::RELEASE, tenure.fence());
            put_u64(out, id.as_u64());
            put_text(out, name.as_bytes());
        }
        Request::Inspect { name, query } => {
            put_tagged(out, tag::INSPECT, query);
            put_text(out, name.as_bytes());
        }
    }
}

fn encode_reply(reply: &Reply<'_>, out: &mut Vec<u8>) {
    match *reply {
        Reply::Promise { ballot, accepted } => {
            put_tagged(out, tag::PROMISE | live(accepted.is_some()), ballot.as_u64());
            put_accepted(out, accepted);
        }
        Reply::Accept { ballot } => put_tagged(out, tag::ACCEPT, ballot.as_u64()),
        Reply::Reject { ballot, promised, accepted } => {
            put_tagged(out, tag::REJECT | live(accepted.is_some()), ballot.as_u64());
            put_u64(out, promised.as_u64());
            put_accepted(out, accepted);
        }
        Reply::NotHeld { ballot, promised } => {
            put_tagged(out, tag::NOT_HELD, ballot.as_u64());
            put_u64(out, promised.as_u64());
        }
        Reply::Healed { ballot } => put_tagged(out, tag::HEALED, ballot.as_u64()),
        Reply::NotHealed { ballot, promised } => {
            put_tagged(out, tag::NOT_HEALED, ballot.as_u64());
            put_u64(out, promised.as_u64());
        }
        Reply::Released { tenure, by } => {
            put_tagged(out, tag::RELEASED | live(by.is_some()), tenure.fence());
            if let Some(by) = by {
                put_u64(out, by.as_u64());
            }
        }
        Reply::Inspected { query, accepted } => {
            put_tagged(out, tag::INSPECTED | live(accepted.is_some()), query);
            put_accepted(out, accepted);
        }
    }
}

fn encode_hint(hint: &Hint<'_>, out: &mut Vec<u8>) {
    match *hint {
        Hint::Held { name, seen } => {
            out.push(tag::HELD);
            put_seen(out, seen);
            put_text(out, name.as_bytes());
        }
        Hint::Freed { name, nodes_before } => {
            out.push(tag::FREED);
            out.push(nodes_before);
            put_text(out, name.as_bytes());
        }
        Hint::Note { name, text } => {
            out.push(tag::NOTE);
            put_text(out, name.as_bytes());
            put_text(out, text.as_bytes());
        }
    }
}

const fn live(is_live: bool) -> u8 {
    if is_live { tag::LIVE } else { 0 }
}

#[inline]
fn put_tagged(out: &mut Vec<u8>, tag: u8, number: u64) {
    // At once, because every append checks the room in the buffer.
    let mut bytes = [tag; 1 + size_of::<u64>()];
    bytes[1..].copy_from_slice(&number.to_le_bytes());
    out.extend_from_slice(&bytes);
}

fn put_accepted(out: &mut Vec<u8>, accepted: Option<Seen<'_>>) {
    if let Some(seen) = accepted {
        put_seen(out, seen);
    }
}

fn put_seen(out: &mut Vec<u8>, seen: Seen<'_>) {
    put_u64(out, seen.tenure.fence());
    put_u32(out, seen.remaining.as_millis());
    put_text(out, seen.holder.as_bytes());
}

/// Reads one message and leaves the cursor behind it. After an error the cursor may stand anywhere.
#[inline]
pub(crate) fn decode_message<'a>(cursor: &mut Cursor<'a>) -> Result<Message<'a>, DecodeError> {
    let tag = cursor.u8("message")?;
    // Rust evaluates fields in the order written here, which is the order on the wire.
    Ok(match tag {
        tag::PREPARE => {
            Message::Request(Request::Prepare { ballot: ballot(cursor)?, name: name(cursor)? })
        }
        tag::PROPOSE => Message::Request(Request::Propose {
            ballot: ballot(cursor)?,
            ttl: ttl(cursor)?,
            name: name(cursor)?,
            holder: holder(cursor)?,
        }),
        tag::RENEW => Message::Request(Request::Renew {
            ballot: ballot(cursor)?,
            tenure: tenure(cursor)?,
            ttl: ttl(cursor)?,
            name: name(cursor)?,
        }),
        tag::HEAL => Message::Request(Request::Heal {
            ballot: ballot(cursor)?,
            tenure: tenure(cursor)?,
            ttl: ttl(cursor)?,
            name: name(cursor)?,
            holder: holder(cursor)?,
        }),
        tag::RELEASE => Message::Request(Request::Release {
            tenure: tenure(cursor)?,
            id: release_id(cursor)?,
            name: name(cursor)?,
        }),
        tag::INSPECT => {
            Message::Request(Request::Inspect { query: cursor.u64("query")?, name: name(cursor)? })
        }
        tag::PROMISE | tag::PROMISE_LIVE => Message::Reply(Reply::Promise {
            ballot: ballot(cursor)?,
            accepted: accepted(tag, cursor)?,
        }),
        tag::NOT_HEALED => Message::Reply(Reply::NotHealed {
            ballot: ballot(cursor)?,
            promised: promised(cursor)?,
        }),
        tag::HEALED => Message::Reply(Reply::Healed { ballot: ballot(cursor)? }),
        tag::ACCEPT => Message::Reply(Reply::Accept { ballot: ballot(cursor)? }),
        tag::REJECT | tag::REJECT_LIVE => Message::Reply(Reply::Reject {
            ballot: ballot(cursor)?,
            promised: promised(cursor)?,
            accepted: accepted(tag, cursor)?,
        }),
        tag::NOT_HELD => {
            Message::Reply(Reply::NotHeld { ballot: ballot(cursor)?, promised: promised(cursor)? })
        }
        tag::RELEASED => Message::Reply(Reply::Released { tenure: tenure(cursor)?, by: None }),
        tag::RELEASED_LIVE => Message::Reply(Reply::Released {
            tenure: tenure(cursor)?,
            by: Some(release_id(cursor)?),
        }),
        tag::INSPECTED | tag::INSPECTED_LIVE => Message::Reply(Reply::Inspected {
            query: cursor.u64("query")?,
            accepted: accepted(tag, cursor)?,
        }),
        tag::HELD => Message::Hint(Hint::Held { seen: seen(cursor)?, name: name(cursor)? }),
        tag::FREED => {
            let nodes_before = cursor.u8("nodes before")?;
            Message::Hint(Hint::Freed { name: name(cursor)?, nodes_before })
        }
        tag::NOTE => Message::Hint(Hint::Note { name: name(cursor)?, text: holder(cursor)? }),
        other => Message::Durable(durable::decode(other, cursor)?),
    })
}

#[inline]
pub(crate) fn ballot(cursor: &mut Cursor<'_>) -> Result<Ballot, DecodeError> {
    let number = cursor.u64("ballot")?;
    Ballot::from_u64(number).ok_or(E::Ballot(number))
}

#[inline]
fn promised(cursor: &mut Cursor<'_>) -> Result<Ballot, DecodeError> {
    let number = cursor.u64("promised")?;
    Ballot::from_u64(number).ok_or(E::Promised(number))
}

#[inline]
pub(crate) fn tenure(cursor: &mut Cursor<'_>) -> Result<Tenure, DecodeError> {
    let number = cursor.u64("tenure")?;
    Tenure::from_fence(number).ok_or(E::Tenure(number))
}

#[inline]
fn release_id(cursor: &mut Cursor<'_>) -> Result<ReleaseId, DecodeError> {
    cursor.u64("release").map(ReleaseId::from_u64)
}

#[inline]
fn ttl(cursor: &mut Cursor<'_>) -> Result<Ttl, DecodeError> {
    Ttl::from_millis(cursor.u32("ttl")?).ok_or(E::TtlZero)
}

#[inline]
pub(crate) fn name<'a>(cursor: &mut Cursor<'a>) -> Result<Name<'a>, DecodeError> {
    Name::from_bytes(cursor.text("name")?).map_err(E::Name)
}

#[inline]
pub(crate) fn holder<'a>(cursor: &mut Cursor<'a>) -> Result<Holder<'a>, DecodeError> {
    Holder::from_bytes(cursor.text("holder")?).map_err(E::Holder)
}

#[inline]
fn accepted<'a>(tag: u8, cursor: &mut Cursor<'a>) -> Result<Option<Seen<'a>>, DecodeError> {
    if tag & tag::LIVE == 0 { Ok(None) } else { seen(cursor).map(Some) }
}

fn seen<'a>(cursor: &mut Cursor<'a>) -> Result<Seen<'a>, DecodeError> {
    Ok(Seen {
        tenure: tenure(cursor)?,
        remaining: Ttl::from_millis(cursor.u32("remaining")?).ok_or(E::RemainingZero)?,
        holder: holder(cursor)?,
    })
}
