//! The bytes of one pass of the event loop under load: a frame of messages for a peer, a pipelined
//! batch of commands and replies for a client.

use std::hint::black_box;

use paxoslease_core::{Ballot, Holder, Message, NodeId, ReleaseId, Reply, Request, Tenure, Ttl};
use paxoslease_wire::resp::{self, Value, put_array, put_bulk, put_bulk_integer, put_integer};
use paxoslease_wire::{FrameReader, FrameWriter};

use super::names::{HOLDER, Names};

/// Messages in a frame, commands in a batch, replies in a batch.
pub(crate) const BATCH: u32 = 64;
const TTL: Ttl = Ttl::from_millis(10_000).expect("not zero");

/// Fences of long-running nodes have this many digits.
const FENCES_FROM: u64 = 1_000_000_000_000;

pub(crate) struct Messages {
    names: Names,
    writer: FrameWriter,
    peer: NodeId,
}

impl Messages {
    pub(crate) fn new() -> Self {
        let peer = NodeId::new(2).expect("a node id");
        Self { names: Names::of(0..BATCH), writer: FrameWriter::new(peer), peer }
    }

    /// Writes a frame of proposes, renewals, releases and replies.
    pub(crate) fn encode(&mut self) -> &[u8] {
        self.writer.clear();
        let holder = Holder::new(HOLDER).expect("in bounds");
        for place in 0..BATCH {
            let name = self.names.get(place as usize);
            let ballot = Ballot::new(FENCES_FROM + u64::from(place), self.peer);
            let tenure = Tenure::of(ballot).expect("a node's ballot names a tenure");
            let message = match place % 5 {
                0 => Message::Request(Request::Propose { name, ballot, ttl: TTL, holder }),
                1 => Message::Reply(Reply::Accept { ballot }),
                2 => Message::Request(Request::Renew { name, tenure, ballot, ttl: TTL }),
                3 => {
                    Message::Request(Request::Release { name, tenure, id: ReleaseId::from_u64(7) })
                }
                _ => Message::Reply(Reply::Released { tenure, by: Some(ReleaseId::from_u64(7)) }),
            };
            assert!(self.writer.push(black_box(&message)), "a frame has room for a batch");
        }
        self.writer.finish(FENCES_FROM)
    }

    /// Reads the last written frame.
    pub(crate) fn decode(&self) {
        let frame = FrameReader::new(black_box(self.writer.finished())).expect("one whole frame");
        for message in frame {
            black_box(message.expect("what was encoded decodes"));
        }
    }
}

/// Writes a pipelined batch of commands, as a client does.
pub(crate) fn put_requests(out: &mut Vec<u8>, names: &Names) {
    for place in 0..BATCH {
        let name = names.get(place as usize).as_bytes();
        let fence = FENCES_FROM + u64::from(place);
        match place % 3 {
            0 => put_acquire(out, name),
            1 => put_renew(out, name, fence),
            _ => put_release(out, name, fence),
        }
    }
}

pub(super) fn put_acquire(out: &mut Vec<u8>, name: &[u8]) {
    put_array(out, 5);
    put_bulk(out, b"LEASE.ACQUIRE");
    put_bulk(out, name);
    put_bulk_integer(out, u64::from(TTL.as_millis()));
    put_bulk(out, b"HOLDER");
    put_bulk(out, HOLDER.as_bytes());
}

pub(super) fn put_renew(out: &mut Vec<u8>, name: &[u8], fence: u64) {
    put_array(out, 4);
    put_bulk(out, b"LEASE.RENEW");
    put_bulk(out, name);
    put_bulk_integer(out, fence);
    put_bulk_integer(out, u64::from(TTL.as_millis()));
}

pub(super) fn put_release(out: &mut Vec<u8>, name: &[u8], fence: u64) {
    put_array(out, 3);
    put_bulk(out, b"LEASE.RELEASE");
    put_bulk(out, name);
    put_bulk_integer(out, fence);
}

/// Parses a batch of commands, as a session does.
pub(crate) fn parse_requests(mut bytes: &[u8]) {
    let mut request = resp::Request::EMPTY;
    while let Some(len) = request.read(black_box(bytes)).expect("sound") {
        black_box(request.args());
        bytes = &bytes[len..];
    }
}

/// Writes a batch of replies, as a session does.
pub(crate) fn put_replies(out: &mut Vec<u8>) {
    for place in 0..BATCH {
        if place % 2 == 0 {
            put_array(out, 3);
            put_integer(out, FENCES_FROM.cast_signed() + i64::from(place));
            put_integer(out, i64::from(TTL.as_millis()));
        }
        put_integer(out, 1);
    }
}

/// Parses a batch of replies, as a client does.
pub(crate) fn parse_replies(mut bytes: &[u8]) {
    while let Some((value, len)) = Value::parse(black_box(bytes)).expect("sound") {
        black_box(value.items().and_then(|mut items| items.next()).and_then(Value::integer));
        bytes = &bytes[len..];
    }
}
