//! Messages on their way: every message travels in a frame of its own, so that each can be lost
//! alone.

use std::collections::VecDeque;
use std::rc::Rc;

use paxoslease_core::{Ballot, DurableMessage, Message, NodeId, Reply, Request, Token};
use paxoslease_wire::{FrameReader, FrameWriter};

use crate::algorithm::{Answer, Output};

/// A message, and what the world may know about it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Packet {
    /// The receiver.
    pub to: NodeId,
    /// The kind of message, for scripts: `Propose`.
    pub kind: &'static str,
    /// Whether an acceptor sent it as an answer. A quarantined acceptor must not.
    pub is_reply: bool,
    /// The sender's round to which the message belongs.
    pub round: Option<Ballot>,
    /// The encoded message.
    pub bytes: Rc<[u8]>,
}

impl Packet {
    /// A message for `to`, encoded as `bytes`.
    #[must_use]
    pub fn new(to: NodeId, message: &Message<'_>, bytes: Rc<[u8]>) -> Self {
        let (is_reply, round) = match message {
            Message::Request(request) => (false, request.ballot()),
            Message::Reply(_) => (true, None),
            Message::Hint(_) => (false, None),
            Message::Durable(
                DurableMessage::Prepare { ballot, .. } | DurableMessage::Store { ballot, .. },
            ) => (false, Some(*ballot)),
            Message::Durable(message) => (message.name().is_none(), None),
        };
        Self { to, kind: message.kind(), is_reply, round, bytes }
    }
}

/// The outputs of a node, in order.
#[derive(Clone, Debug)]
pub(crate) struct Outbox {
    writer: FrameWriter,
    pub(crate) outputs: VecDeque<Output>,
}

impl Outbox {
    pub(crate) fn new(node: NodeId) -> Self {
        Self { writer: FrameWriter::new(node), outputs: VecDeque::new() }
    }

    /// Sends a message to each of these nodes. `counter` tells them the sender's counter.
    pub(crate) fn send(
        &mut self,
        to: impl IntoIterator<Item = NodeId>,
        counter: u64,
        message: &Message<'_>,
    ) {
        self.writer.clear();
        assert!(self.writer.push(message), "an empty frame has room");
        let bytes: Rc<[u8]> = self.writer.finish(counter).into();
        let packet = |to| Output::Send(Packet::new(to, message, Rc::clone(&bytes)));
        self.outputs.extend(to.into_iter().map(packet));
    }

    pub(crate) fn answer(&mut self, token: Token, answer: Answer) {
        self.outputs.push_back(Output::Answer(token, answer));
    }
}

/// The message of a packet.
pub(crate) fn decoded(bytes: &[u8]) -> Message<'_> {
    let mut frame = FrameReader::new(bytes).expect("the network corrupts nothing");
    let message = frame.next().expect("every packet has a message");
    message.expect("the network corrupts nothing")
}

/// Describes the message of a packet in a few words, as a label for an arrow: `Propose 7.1`.
pub(crate) fn describe(bytes: &[u8]) -> String {
    let message = decoded(bytes);
    let kind = message.kind();
    match message {
        Message::Request(
            Request::Renew { tenure, ballot, .. } | Request::Heal { tenure, ballot, .. },
        ) => format!("{kind} {ballot} of {tenure}"),
        Message::Request(Request::Release { tenure, .. })
        | Message::Reply(Reply::Released { tenure, .. }) => format!("{kind} {tenure}"),
        Message::Reply(
            Reply::Promise { ballot, accepted: Some(seen) }
            | Reply::Reject { ballot, accepted: Some(seen), .. },
        ) => format!("{kind} {ballot}, {} live", seen.tenure),
        Message::Reply(
            Reply::Reject { ballot, promised, .. }
            | Reply::NotHeld { ballot, promised }
            | Reply::NotHealed { ballot, promised },
        ) => format!("{kind} {ballot}, promised {promised}"),
        Message::Request(Request::Prepare { ballot, .. } | Request::Propose { ballot, .. })
        | Message::Reply(
            Reply::Promise { ballot, .. } | Reply::Accept { ballot } | Reply::Healed { ballot },
        ) => {
            format!("{kind} {ballot}")
        }
        Message::Request(Request::Inspect { .. })
        | Message::Reply(Reply::Inspected { .. })
        | Message::Hint(_) => kind.to_owned(),
        Message::Durable(message) => format!("{kind} {}", message.ballot()),
    }
}
