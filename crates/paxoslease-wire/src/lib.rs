//! The encodings of PaxosLease: between nodes, between nodes and clients, and on disk. Deliberately
//! lacks sockets and files.
//!
//! # Frames
//! Every frame opens with the same envelope; all numbers are little-endian:
//!
//! | bytes | what |
//! |---|---|
//! | 4 | length of all that follows, at most [`FRAME_LEN_MAX`] - 4 |
//! | 2 | magic, `PL` |
//! | 1 | [`VERSION`] |
//! | 1 | [`FrameKind`]: messages, hello, farewell, ping, pong or membership |
//!
//! A frame of messages goes on with its sender (2 bytes), the sender's ballot counter (8) and its
//! epoch (4), then messages to the end. Ballots, tenures and queries take 8 bytes and ttls 4:
//! loading a fixed width costs less than decoding a variable one, and the counters of a node
//! without a disk (R5) fill 8 bytes anyway. Text lengths take one byte below 128, else two. A value
//! has exactly one encoding, so whatever decodes encodes to the same bytes again.
//!
//! | message | bytes, with a 16-byte name and a 16-byte holder |
//! |---|---|
//! | Prepare, Inspect | 26 |
//! | Release | 34 |
//! | Propose | 47 |
//! | Renew | 38 |
//! | Heal | 55 |
//! | Accept, Healed; Promise and Inspected without a lease; Released of none | 9 |
//! | NotHeld, NotHealed, Released; Reject without a lease | 17 |
//! | Promise and Inspected with a lease | 38 |
//! | Reject with a lease | 46 |
//! | Held | 47 |
//! | Freed | 19 |
//! | Note | 35 |
//! | Prepare and All of a register | 26 |
//! | Store | 67 |
//! | Promise of a register without one | 10 |
//! | Promise with a register | 59, with a lease 67 |
//! | Stored, Refused, IsDurable | 9 |
//! | Inspected of a register | 50 |
//! | Reject of a change | 17 |
//!
//! The envelope, Hello and Farewell keep their layout in every version (a later one may append to
//! Hello), so that nodes of different versions can tell each other what is wrong.
//!
//! Frames have no checksum: TCP has one and TLS has a better one, and a network that corrupts bytes
//! requires TLS anyway. The magic, the single encoding and the rule that messages fill a frame
//! exactly make a stream that lost its frame boundaries fail at once.
//!
//! # Files
//! The stable record ([`encode_record`]), the one-use snapshot of a clean stop ([`SnapshotWriter`])
//! and the file of durable leases ([`DurableWriter`]) have checksums: a disk may return wrong bytes
//! years later, and a node that misreads its record issues a fence twice.
//!
//! # Clients
//! Clients speak RESP, the protocol of Redis: [`resp`].
#![no_std]
extern crate alloc;

mod bytes;
mod crc;
mod durable;
mod error;
mod farewell;
mod frame;
mod heartbeat;
mod hello;
mod membership;
mod message;
mod record;
pub mod resp;
mod shard;
mod snapshot;

pub use durable::{
    BatchHead, BatchWriter, BootTime, DurableEnd, DurableError, DurableRecord, DurableWriter,
    StoredRegister, encode_write, read_durable,
};
pub use error::DecodeError;
pub use farewell::Farewell;
pub use frame::{
    FRAME_LEN_MAX, FrameAndRest, FrameKind, FrameReader, FrameWriter, HEADER_LEN, Header, VERSION,
    split_frame,
};
pub use heartbeat::Heartbeat;
pub use hello::{CellName, ClientAddress, Differ, Hello, ListUse, Refused};
pub use membership::{decode_membership, encode_membership};
pub use message::MESSAGE_LEN_MAX;
pub use record::{StableError, StableRecord, decode_record, encode_record};
pub use shard::ShardId;
pub use snapshot::{SnapshotReader, SnapshotWriter};
