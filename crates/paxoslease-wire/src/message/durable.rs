//! Encodes and decodes the messages about registers of durable names. They are rare, so they stay
//! out of the code of ordinary messages.

use alloc::vec::Vec;

use paxoslease_core::{Ballot, DurableMessage, Lasts, SentRegister, SentValue, StoreRefusal};

use super::{ballot, holder, name, promised, put_tagged, tag, tenure};
use crate::bytes::{Cursor, put_text, put_u64};
use crate::{DecodeError, DecodeError as E};

/// What follows the ballot of a Promise.
mod flags {
    /// The tenure of a live lease.
    pub(super) const LEASE: u8 = 1;
    /// A register with a held value.
    pub(super) const HELD: u8 = 2;
    /// A register with a free value.
    pub(super) const FREE: u8 = 4;
}

#[cold]
pub(super) fn encode(message: &DurableMessage<'_>, out: &mut Vec<u8>) {
    match *message {
        DurableMessage::Prepare { name, ballot } => {
            put_tagged(out, tag::DURABLE_PREPARE, ballot.as_u64());
            put_text(out, name.as_bytes());
        }
        DurableMessage::Store { name, holder, ballot, value } => {
            let tag = match value {
                SentValue::Held { .. } => tag::STORE_HELD,
                SentValue::Free { .. } => tag::STORE_FREE,
            };
            put_tagged(out, tag, ballot.as_u64());
            put_value(out, value);
            put_text(out, name.as_bytes());
            put_text(out, holder.as_bytes());
        }
        DurableMessage::All { name, ballot } => {
            put_tagged(out, tag::ALL, ballot.as_u64());
            put_text(out, name.as_bytes());
        }
        DurableMessage::Promise { ballot, lease, register } => {
            put_tagged(out, tag::DURABLE_PROMISE, ballot.as_u64());
            let stored = match register.map(|register| register.value) {
                None => 0,
                Some(SentValue::Held { .. }) => flags::HELD,
                Some(SentValue::Free { .. }) => flags::FREE,
            };
            out.push(stored | lease.map_or(0, |_| flags::LEASE));
            if let Some(tenure) = lease {
                put_u64(out, tenure.fence());
            }
            if let Some(SentRegister { ballot, value, holder }) = register {
                put_u64(out, ballot.as_u64());
                put_value(out, value);
                put_text(out, holder.as_bytes());
            }
        }
        DurableMessage::Stored { ballot } => put_tagged(out, tag::STORED, ballot.as_u64()),
        DurableMessage::Reject { ballot, promised } => {
            put_tagged(out, tag::DURABLE_REJECT, ballot.as_u64());
            put_u64(out, promised.as_u64());
        }
        DurableMessage::Refused { ballot, why } => {
            let tag = match why {
                StoreRefusal::NoDisk => tag::REFUSED_NO_DISK,
                StoreRefusal::NoRoom => tag::REFUSED_NO_ROOM,
            };
            put_tagged(out, tag, ballot.as_u64());
        }
        DurableMessage::Inspected { query, ballot, fence, lasts, holder } => {
            put_tagged(out, tag::DURABLE_INSPECTED, query);
            put_u64(out, ballot.as_u64());
            put_u64(out, fence.fence());
            put_u64(out, lasts.as_millis().unwrap_or(u64::MAX));
            put_text(out, holder.as_bytes());
        }
        DurableMessage::IsDurable { ballot } => put_tagged(out, tag::IS_DURABLE, ballot.as_u64()),
    }
}

/// Tenure, fence, and the time left or the release. No time is left of a value that is over.
fn put_value(out: &mut Vec<u8>, value: SentValue) {
    let (tenure, fence, last) = match value {
        SentValue::Held { tenure, fence, lasts } => {
            let millis = lasts.map_or(0, |lasts| lasts.as_millis().unwrap_or(u64::MAX));
            (tenure, fence, millis)
        }
        SentValue::Free { tenure, fence, by } => (tenure, fence, by.as_u64()),
    };
    put_u64(out, tenure.fence());
    put_u64(out, fence.fence());
    put_u64(out, last);
}

/// Reads the message that begins with this tag, or fails if there is none.
#[cold]
#[inline(never)]
pub(super) fn decode<'a>(
    tag: u8,
    cursor: &mut Cursor<'a>,
) -> Result<DurableMessage<'a>, DecodeError> {
    Ok(match tag {
        tag::DURABLE_PREPARE => {
            DurableMessage::Prepare { ballot: ballot(cursor)?, name: name(cursor)? }
        }
        tag::STORE_HELD | tag::STORE_FREE => {
            let ballot = ballot(cursor)?;
            let value = if tag == tag::STORE_HELD { held(cursor)? } else { free(cursor)? };
            if let SentValue::Held { lasts: None, .. } = value {
                return Err(E::LastsZero);
            }
            DurableMessage::Store { name: name(cursor)?, holder: holder(cursor)?, ballot, value }
        }
        tag::ALL => DurableMessage::All { ballot: ballot(cursor)?, name: name(cursor)? },
        tag::DURABLE_PROMISE => promise(cursor)?,
        tag::STORED => DurableMessage::Stored { ballot: ballot(cursor)? },
        tag::DURABLE_REJECT => {
            DurableMessage::Reject { ballot: ballot(cursor)?, promised: promised(cursor)? }
        }
        tag::REFUSED_NO_DISK => {
            DurableMessage::Refused { ballot: ballot(cursor)?, why: StoreRefusal::NoDisk }
        }
        tag::REFUSED_NO_ROOM => {
            DurableMessage::Refused { ballot: ballot(cursor)?, why: StoreRefusal::NoRoom }
        }
        tag::DURABLE_INSPECTED => DurableMessage::Inspected {
            query: cursor.u64("query")?,
            ballot: ballot(cursor)?,
            fence: tenure(cursor)?,
            lasts: Lasts::from_millis(cursor.u64("lasts")?).ok_or(E::LastsZero)?,
            holder: holder(cursor)?,
        },
        tag::IS_DURABLE => DurableMessage::IsDurable { ballot: ballot(cursor)? },
        unknown => return Err(E::UnknownMessage(unknown)),
    })
}

fn promise<'a>(cursor: &mut Cursor<'a>) -> Result<DurableMessage<'a>, DecodeError> {
    let of = ballot(cursor)?;
    let flags = cursor.u8("flags")?;
    let lease = if flags & flags::LEASE == 0 { None } else { Some(tenure(cursor)?) };
    let read_value = match flags & !flags::LEASE {
        0 => return Ok(DurableMessage::Promise { ballot: of, lease, register: None }),
        flags::HELD => held,
        flags::FREE => free,
        _ => return Err(E::Flags(flags)),
    };
    let register = SentRegister {
        ballot: ballot(cursor)?,
        value: read_value(cursor)?,
        holder: holder(cursor)?,
    };
    Ok(DurableMessage::Promise { ballot: of, lease, register: Some(register) })
}

fn held(cursor: &mut Cursor<'_>) -> Result<SentValue, DecodeError> {
    let (tenure, fence) = (tenure(cursor)?, tenure(cursor)?);
    Ok(SentValue::Held { tenure, fence, lasts: Lasts::from_millis(cursor.u64("lasts")?) })
}

fn free(cursor: &mut Cursor<'_>) -> Result<SentValue, DecodeError> {
    let (tenure, fence) = (tenure(cursor)?, tenure(cursor)?);
    let by: Ballot = ballot(cursor)?;
    Ok(SentValue::Free { tenure, fence, by })
}
