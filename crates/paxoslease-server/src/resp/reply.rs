//! Replies and pushes as bytes.

use std::fmt;
use std::time::Duration;

use paxoslease_node::front::{Answer, Hint, Label, Lasts, LiveLease, Ttl};
use paxoslease_node::{AskError, Limit, MembersError};
use paxoslease_wire::resp::{
    Protocol, put_array, put_bulk, put_bulk_integer, put_error, put_integer,
};
use serde_json::Value;

use crate::durable::DurableRequest;

/// The reply for an answer of the node. `durable` is what the request asked of a durable lease.
pub(super) fn put_answer(
    answer: &Answer,
    durable: Option<DurableRequest>,
    protocol: Protocol,
    no_majority: &AskError,
    out: &mut Vec<u8>,
) {
    match answer {
        // The name of the permit, if it is one, follows.
        Answer::Granted { tenure, ttl, waited, permit, .. } => {
            put_array(out, if permit.is_some() { 4 } else { 3 });
            put_fence(out, tenure.fence());
            put_integer(out, ttl_shown(*ttl, durable.and_then(DurableRequest::acquired)));
            put_millis(out, *waited);
        }
        Answer::Held(_) | Answer::Inspected(None) => protocol.put_null_array(out),
        Answer::Renewed { ttl, .. } => put_integer(out, ttl.as_millis().into()),
        // The fence may have risen.
        Answer::Kept { fence, lasts, .. } => {
            put_array(out, 2);
            put_fence(out, fence.fence());
            put_integer(out, lasts_shown(*lasts));
        }
        Answer::NotKept(why) => {
            let left = durable.map_or("", DurableRequest::refused);
            put_error(out, &format_args!("NOTDURABLE {why}{left}"));
        }
        Answer::NotHeld => put_error(
            out,
            &"NOTHELD that tenure is over, or never existed; stop relying on it, and acquire again \
              for a new fence",
        ),
        Answer::Released { held: Some(held), confirmed: true } => {
            put_integer(out, i64::from(*held));
        }
        Answer::Released { held: None, confirmed: true } => {
            put_error(
                out,
                &"UNKNOWN that tenure is over, but it is not known whether this command ended it \
                  or another one did",
            );
        }
        Answer::Released { confirmed: false, .. } => put_error(
            out,
            &"NOQUORUM no majority confirmed the release; other clients may have to wait until the \
              ttl of the lease ends; release a durable lease again",
        ),
        Answer::Inspected(Some(seen)) => {
            protocol.put_map(out, 3);
            put_seen(seen, out);
        }
        Answer::Listed { leases, next } => {
            put_array(out, 2);
            let next = next.map_or_else(|| "0".to_owned(), |next| next.to_string());
            put_bulk(out, next.as_bytes());
            put_array(out, leases.len());
            for seen in leases {
                put_listed(seen, protocol, out);
            }
        }
        Answer::NoQuorum => match no_majority {
            AskError::Quarantine(why) => {
                put_error(out, &format_args!("QUARANTINE {why}{}", left_behind(durable)));
            }
            AskError::NoQuorum(why) if *no_majority != AskError::NO_MAJORITY => {
                put_error(out, &format_args!("NOQUORUM {why}{}", left_behind(durable)));
            }
            _ => {
                let left = match durable {
                    None => ", and nothing was changed that outlives the ttl",
                    durable => left_behind(durable),
                };
                let text = format_args!(
                    "NOQUORUM no majority of the cell answered in time{left}; CELL.STATUS says \
                     which nodes are unreachable"
                );
                put_error(out, &text);
            }
        },
        Answer::Members(outcome) => match &**outcome {
            Ok(plan) => put_json(&serde_json::json!(plan), protocol, out),
            Err(error @ MembersError::Unconfirmed(_)) => {
                put_error(out, &format_args!("UNCONFIRMED {error}"));
            }
            Err(error @ MembersError::NoQuorum(_)) => {
                put_error(out, &format_args!("NOQUORUM {error}"));
            }
            Err(error) => put_error(out, &format_args!("MEMBERS {error}")),
        },
        Answer::Ttl(error) => put_error(out, &format_args!("TTL {error}")),
        Answer::Name(error) => put_error(out, &format_args!("NAME name of a permit: {error}")),
        Answer::Busy(error) => {
            let problem = format_args!("{error}; try again later, or raise the node's limits");
            put_busy(answer, &problem, out);
        }
        Answer::TooManyLists(most) => {
            let problem = format_args!(
                "{most} lists wait in this shard of the node, its limit; try again later, or ask \
                 another node"
            );
            put_busy(answer, &problem, out);
        }
        Answer::Full => put_busy(
            answer,
            &"this node keeps as many names as it may, and no majority of the others answered; try \
              again later, or raise limits.leases and limits.names_bytes",
            out,
        ),
        Answer::Abandoned | Answer::Stopping => put_stopping(out),
        other => put_error(out, &format_args!("ERR unexpected answer {other:?}")),
    }
}

/// What a request about a durable lease may have changed although it failed.
fn left_behind(durable: Option<DurableRequest>) -> &'static str {
    durable.map_or("", DurableRequest::left_behind)
}

/// The error for a limit of the shard.
fn put_busy(answer: &Answer, problem: &dyn fmt::Display, out: &mut Vec<u8>) {
    let limit = answer.limit().map_or("", Limit::name);
    put_error(out, &format_args!("BUSY {limit}: {problem}"));
}

pub(super) fn put_stopping(out: &mut Vec<u8>) {
    put_error(out, &"STOPPING this node is stopping; ask another");
}

/// The push for an acquire with NOTIFY that was granted, with the name of the permit if it is one.
pub(super) fn put_granted(
    id: &[u8],
    fence: u64,
    permit: Option<&Label>,
    ttl_ms: i64,
    waited: Duration,
    protocol: Protocol,
    out: &mut Vec<u8>,
) {
    protocol.put_push(out, if permit.is_some() { 6 } else { 5 });
    put_bulk(out, b"lease.granted");
    put_bulk(out, id);
    put_fence(out, fence);
    put_integer(out, ttl_ms);
    put_millis(out, waited);
    if let Some(permit) = permit {
        put_bulk(out, permit.name().as_bytes());
    }
}

/// The push for an acquire with NOTIFY that was not granted.
pub(super) fn put_timeout(id: &[u8], protocol: Protocol, out: &mut Vec<u8>) {
    protocol.put_push(out, 2);
    put_bulk(out, b"lease.timeout");
    put_bulk(out, id);
}

pub(super) fn put_members_changed(epoch: u32, protocol: Protocol, out: &mut Vec<u8>) {
    protocol.put_push(out, 2);
    put_bulk(out, b"cell.changed");
    put_integer(out, epoch.into());
}

pub(super) fn put_hint(hint: &Hint, protocol: Protocol, out: &mut Vec<u8>) {
    match hint {
        Hint::Held(seen) => {
            protocol.put_push(out, 5);
            put_bulk(out, b"lease.held");
            put_bulk(out, seen.label.name().as_bytes());
            put_bulk(out, seen.label.holder().as_bytes());
            put_fence(out, seen.tenure.fence());
            put_integer(out, left_ms(seen.lasts()));
        }
        Hint::Freed { label, .. } => {
            protocol.put_push(out, 2);
            put_bulk(out, b"lease.freed");
            put_bulk(out, label.name().as_bytes());
        }
        Hint::Expired { label, fence } => {
            protocol.put_push(out, 3);
            put_bulk(out, b"lease.expired");
            put_bulk(out, label.name().as_bytes());
            put_fence(out, *fence);
        }
        // This protocol has no message for other hints.
        _ => {}
    }
}

/// The push for hints that were not sent because earlier ones were not read.
pub(super) fn put_missed(count: u64, protocol: Protocol, out: &mut Vec<u8>) {
    protocol.put_push(out, 2);
    put_bulk(out, b"lease.missed");
    put_integer(out, i64::try_from(count).unwrap_or(i64::MAX));
}

pub(super) fn put_json(value: &Value, protocol: Protocol, out: &mut Vec<u8>) {
    match value {
        Value::Null => protocol.put_null(out),
        Value::Bool(yes) => protocol.put_boolean(out, *yes),
        Value::Number(number) => match number.as_i64() {
            Some(number) => put_integer(out, number),
            None => put_bulk(out, number.to_string().as_bytes()),
        },
        Value::String(text) => put_bulk(out, text.as_bytes()),
        Value::Array(items) => {
            put_array(out, items.len());
            items.iter().for_each(|item| put_json(item, protocol, out));
        }
        Value::Object(fields) => {
            protocol.put_map(out, fields.len());
            for (key, value) in fields {
                put_bulk(out, key.as_bytes());
                put_json(value, protocol, out);
            }
        }
    }
}

/// In RESP3 a lease in a list is a map, in RESP2 an array of its values.
fn put_listed(seen: &LiveLease, protocol: Protocol, out: &mut Vec<u8>) {
    match protocol {
        Protocol::Resp2 => {
            put_array(out, 4);
            put_bulk(out, seen.label.name().as_bytes());
            put_bulk(out, seen.label.holder().as_bytes());
            put_fence(out, seen.tenure.fence());
            put_integer(out, left_ms(seen.lasts()));
        }
        Protocol::Resp3 => {
            protocol.put_map(out, 4);
            put_bulk(out, b"name");
            put_bulk(out, seen.label.name().as_bytes());
            put_seen(seen, out);
        }
    }
}

fn put_seen(seen: &LiveLease, out: &mut Vec<u8>) {
    put_bulk(out, b"holder");
    put_bulk(out, seen.label.holder().as_bytes());
    put_bulk(out, b"fence");
    put_fence(out, seen.tenure.fence());
    put_bulk(out, b"ttl_ms");
    put_integer(out, left_ms(seen.lasts()));
}

/// The reply to LEASE.TTL, as with Redis' PTTL.
pub(super) fn put_ttl(seen: Option<&LiveLease>, out: &mut Vec<u8>) {
    put_integer(out, seen.map_or(-2, |seen| left_ms(seen.lasts())));
}

/// As a string: it has 63 bits, and numbers of JavaScript only 53.
fn put_fence(out: &mut Vec<u8>, fence: u64) {
    put_bulk_integer(out, fence);
}

/// What is left of a lease, as with Redis' PTTL: -1 for ever.
fn left_ms(lasts: Lasts) -> i64 {
    lasts.as_millis().map_or(-1, |millis| i64::try_from(millis).unwrap_or(i64::MAX))
}

/// How long a lease lasts, in milliseconds.
pub(super) fn ttl_shown(ttl: Ttl, lasts: Option<Lasts>) -> i64 {
    lasts.map_or(i64::from(ttl.as_millis()), lasts_shown)
}

/// How long a durable lease lasts, in milliseconds: 0 for ever, as in the command that asked.
fn lasts_shown(lasts: Lasts) -> i64 {
    i64::try_from(lasts.as_millis().unwrap_or(0)).unwrap_or(i64::MAX)
}

/// Rounded down, as T2 demands for the time that a request waited.
fn put_millis(out: &mut Vec<u8>, span: Duration) {
    put_integer(out, i64::try_from(span.as_millis()).unwrap_or(i64::MAX));
}
