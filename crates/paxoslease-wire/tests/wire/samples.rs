//! Messages and greetings of every shape, drawn by proptest.

use std::time::Duration;

use paxoslease_core::{
    Ballot, Cell, Drift, Hint, Holder, Message, Name, NodeId, Reply, Request, Seen, Tenure, Ttl,
};
use paxoslease_wire::{CellName, DecodeError, FrameReader, FrameWriter, Hello, ShardId};
use proptest::prelude::*;

/// How many shapes of message there are, replies with and without a lease counted apart.
pub(crate) const SHAPES: u8 = 19;

/// What a message is made of; each shape takes what it needs.
#[derive(Clone, Debug)]
pub(crate) struct Parts {
    pub(crate) shape: u8,
    pub(crate) name: String,
    pub(crate) holder: String,
    pub(crate) ballot: u64,
    pub(crate) other: u64,
    pub(crate) fence: u64,
    pub(crate) millis: u32,
}

impl Parts {
    /// Like those of a real message: a 16-byte name, a 16-byte holder.
    pub(crate) fn typical(shape: u8) -> Self {
        Self {
            shape,
            name: "orders/shard-017".into(),
            holder: "worker-3@host-12".into(),
            ballot: 0x1234_5678 << 10 | 3,
            other: 0x1234_5679 << 10 | 2,
            fence: 0x1234_0000 << 10 | 1,
            millis: 10_000,
        }
    }

    pub(crate) fn message(&self) -> Message<'_> {
        let name = Name::new(&self.name).expect("in bounds");
        let holder = Holder::new(&self.holder).expect("in bounds");
        let ballot = Ballot::from_u64(self.ballot).expect("in bounds");
        let promised = Ballot::from_u64(self.other).expect("in bounds");
        let tenure = Tenure::from_fence(self.fence).expect("in bounds");
        let ttl = Ttl::from_millis(self.millis).expect("not zero");
        let query = self.other;
        let seen = Seen { tenure, remaining: ttl, holder };
        let accepted = Some(seen);
        match self.shape {
            0 => Message::Request(Request::Prepare { name, ballot }),
            1 => Message::Request(Request::Propose { name, ballot, ttl, holder }),
            2 => Message::Request(Request::Renew { name, tenure, ballot, ttl }),
            3 => Message::Request(Request::Heal { name, tenure, ballot, ttl, holder }),
            4 => Message::Request(Request::Release { name, tenure }),
            5 => Message::Request(Request::Inspect { name, query }),
            6 => Message::Reply(Reply::Promise { ballot, accepted: None }),
            7 => Message::Reply(Reply::Promise { ballot, accepted }),
            8 => Message::Reply(Reply::Accept { ballot }),
            9 => Message::Reply(Reply::Reject { ballot, promised, accepted: None }),
            10 => Message::Reply(Reply::Reject { ballot, promised, accepted }),
            11 => Message::Reply(Reply::NotHeld { ballot, promised }),
            12 => Message::Reply(Reply::Released { tenure, held: false }),
            13 => Message::Reply(Reply::Released { tenure, held: true }),
            14 => Message::Reply(Reply::Inspected { query, accepted: None }),
            15 => Message::Reply(Reply::Inspected { query, accepted }),
            16 => Message::Hint(Hint::Held { name, seen }),
            17 => Message::Hint(Hint::Freed { name, nodes_before: (query & 0xff) as u8 }),
            18 => Message::Request(Request::Propose { name, ballot, ttl, holder: Holder::NONE }),
            _ => unreachable!("below SHAPES"),
        }
    }
}

/// A text of `min` to `max` bytes; short ones, long ones and ones beyond ASCII.
fn text(min: usize, max: usize) -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "[a-z/0-9]{1,40}",
        1 => "\\PC{1,60}",
        1 => (min..=max).prop_map(|len| "x".repeat(len)),
    ]
    .prop_map(move |text| text[..text.floor_char_boundary(max)].to_owned())
}

pub(crate) fn parts() -> impl Strategy<Value = Parts> {
    let ballot = 0..1u64 << 63;
    let fence = (0..=Ballot::COUNTER_MAX, 1..=1023u64).prop_map(|(count, node)| count << 10 | node);
    let texts = (text(1, Name::LEN_MAX), text(0, Holder::LEN_MAX));
    (0..SHAPES, texts, ballot.clone(), ballot, fence, 1..=u32::MAX).prop_map(
        |(shape, (name, holder), ballot, other, fence, millis)| Parts {
            shape,
            name,
            holder,
            ballot,
            other,
            fence,
            millis,
        },
    )
}

pub(crate) fn node(id: u16) -> NodeId {
    NodeId::new(id).expect("in bounds")
}

/// One frame with these messages, from node 3 with counter 7.
pub(crate) fn frame_of(messages: &[Message<'_>]) -> Vec<u8> {
    let mut writer = FrameWriter::new(node(3));
    for message in messages {
        assert!(writer.push(message), "the test's messages fit one frame");
    }
    writer.finish(7).to_vec()
}

/// Every message of one frame.
pub(crate) fn messages_of(frame: &[u8]) -> Result<Vec<Message<'_>>, DecodeError> {
    FrameReader::new(frame)?.collect()
}

pub(crate) fn cell(ids: &[u16], max_lease: u32, ppm: u32, granularity: Duration) -> Cell {
    let members: Vec<NodeId> = ids.iter().map(|id| node(*id)).collect();
    let max_lease = Ttl::from_millis(max_lease).expect("not zero");
    let drift = Drift::new(ppm, granularity).expect("in bounds");
    Cell::new(&members, max_lease, drift).expect("valid")
}

/// Node 2 of the three-node cell "north".
pub(crate) fn hello() -> Hello<'static> {
    Hello {
        version: paxoslease_wire::VERSION,
        cell_name: CellName::new("north").expect("in bounds"),
        cell: cell(&[1, 2, 3], 60_000, 1000, Duration::from_millis(1)),
        node: node(2),
        boot: 0x0123_4567_89ab_cdef,
        shard: ShardId::new(1, 4).expect("in bounds"),
    }
}

pub(crate) fn encoded(hello: &Hello<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    hello.encode(&mut out);
    out
}
