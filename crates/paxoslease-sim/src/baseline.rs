//! What PaxosLease is measured against: the naive majority vote of the paper's introduction, and
//! the paper's algorithm taken literally. Both run in the same world, with the same messages.
//!
//! They are written to be compared with the paper, not to be used. What the paper leaves open
//! (many clients at one node, when to try again) is filled in the plainest way, and said.

mod naive;
mod paper;

use std::collections::VecDeque;

use paxoslease_core::{Ballot, Message, NodeId, Token};
use paxoslease_wire::{FrameReader, FrameWriter};

use crate::algorithm::{Answer, Output, Packet};

pub use naive::{Naive, NaiveNode};
pub use paper::{Paper, PaperNode};

/// What a baseline's node sends and answers.
#[derive(Clone, Debug)]
struct Outbox {
    writer: FrameWriter,
    outputs: VecDeque<Output>,
}

impl Outbox {
    fn new(node: NodeId) -> Self {
        Self { writer: FrameWriter::new(node), outputs: VecDeque::new() }
    }

    fn send(&mut self, to: NodeId, round: Option<Ballot>, message: &Message<'_>) {
        self.writer.clear();
        assert!(self.writer.push(message), "an empty frame has room");
        self.outputs.push_back(Output::Send(Packet {
            to,
            kind: message.kind(),
            is_reply: matches!(message, Message::Reply(_)),
            round,
            // Neither baseline learns counters from its peers.
            bytes: self.writer.finish(0).into(),
        }));
    }

    fn answer(&mut self, token: Token, answer: Answer) {
        self.outputs.push_back(Output::Answer(token, answer));
    }
}

/// The one message of a frame.
fn decoded(bytes: &[u8]) -> Message<'_> {
    let mut frame = FrameReader::new(bytes).expect("the network garbles nothing");
    frame
        .next()
        .expect("every message has a frame of its own")
        .expect("the network garbles nothing")
}
