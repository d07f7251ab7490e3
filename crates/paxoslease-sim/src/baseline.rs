//! The algorithms to compare PaxosLease with: the naive majority vote of the paper's introduction,
//! and the paper's algorithm taken literally. Both run in the same world, with the same messages.
//!
//! They are written for comparison with the paper, not for use. Where the paper leaves something
//! open (many clients at one node, when to retry), they do the simplest thing, and a comment says
//! so.

mod naive;
mod paper;

use std::collections::VecDeque;

use paxoslease_core::{Ballot, Message, NodeId, Token};
use paxoslease_wire::{FrameReader, FrameWriter};

use crate::algorithm::{Answer, Output, Packet};

pub use naive::{Naive, NaiveNode};
pub use paper::{Paper, PaperNode};

/// The messages and answers of a node.
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

/// The only message of a frame.
fn decoded(bytes: &[u8]) -> Message<'_> {
    let mut frame = FrameReader::new(bytes).expect("the network corrupts nothing");
    frame
        .next()
        .expect("every message has a frame of its own")
        .expect("the network corrupts nothing")
}
