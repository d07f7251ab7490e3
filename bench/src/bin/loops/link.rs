//! One connection's end, without its socket: what arrived goes in, what to send comes out. Every
//! loop drives this same code, so that only the loops differ.
//!
//! The server's end accepts every proposal and keeps nothing. The client's end has a fixed number
//! in flight, asks anew for every answer, and remembers how long the answers took.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use paxoslease_core::{Ballot, Holder, Message, Name, NodeId, Reply, Request, Ttl};
use paxoslease_wire::{DecodeError, FrameReader, FrameWriter, split_frame};

/// What the node reads at most at first; no load here needs more.
const INPUT_LEN: usize = 64 * 1024;
const SERVER: NodeId = NodeId::new(1).expect("1 is an id");
const CLIENT: NodeId = NodeId::new(2).expect("2 is an id");
const TTL: Ttl = Ttl::from_millis(10_000).expect("ten seconds are within bounds");

pub(crate) struct Link {
    input: Vec<u8>,
    /// How much of the input is filled and not consumed; the rest is room.
    filled: usize,
    output: FrameWriter,
    side: Side,
}

enum Side {
    Answering,
    Asking(Asking),
}

/// What the client's end of a connection knows.
pub(crate) struct Asking {
    ends_at: Instant,
    /// When each unanswered proposal was made, the oldest first.
    asked_at: VecDeque<Instant>,
    /// How many proposals were made.
    asked: u64,
    /// Of the first answer in each read: one reading of the clock serves them all.
    round_trips: Vec<Duration>,
}

impl Link {
    pub(crate) fn answering() -> Self {
        Self::new(SERVER, Side::Answering)
    }

    /// Begins with all it may have in flight, and asks no more once the time is over.
    pub(crate) fn asking(in_flight: usize, now: Instant, ends_at: Instant) -> Self {
        let (asked_at, round_trips) = (VecDeque::with_capacity(in_flight), Vec::new());
        let side = Side::Asking(Asking { ends_at, asked_at, asked: 0, round_trips });
        let mut link = Self::new(CLIENT, side);
        if let Side::Asking(asking) = &mut link.side {
            (0..in_flight).for_each(|_| asking.ask(now, &mut link.output));
        }
        link.seal();
        link
    }

    fn new(node: NodeId, side: Side) -> Self {
        Self { input: vec![0; INPUT_LEN], filled: 0, output: FrameWriter::new(node), side }
    }

    /// Where to read to.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        &mut self.input[self.filled..]
    }

    /// Works off every whole frame, once `len` bytes were read into the room.
    pub(crate) fn received(&mut self, len: usize, now: Instant) -> Result<(), DecodeError> {
        self.filled += len;
        let mut rest = &self.input[..self.filled];
        let mut is_first = true;
        while let Some((frame, after)) = split_frame(rest)? {
            for message in FrameReader::new(frame)? {
                self.side.take(message?, now, is_first, &mut self.output);
                is_first = false;
            }
            rest = after;
        }
        let (start, end) = (self.filled - rest.len(), self.filled);
        self.input.copy_within(start..end, 0);
        self.filled = end - start;
        self.seal();
        Ok(())
    }

    /// What to write next.
    pub(crate) fn output(&self) -> &[u8] {
        self.output.finished()
    }

    pub(crate) fn sent(&mut self, len: usize) {
        self.output.consume(len);
    }

    /// A client's end has all its answers; a server's ends with its connection.
    pub(crate) fn is_done(&self) -> bool {
        match &self.side {
            Side::Answering => false,
            Side::Asking(asking) => asking.asked_at.is_empty(),
        }
    }

    /// How many answers came, and how long some of them took.
    pub(crate) fn into_answers(self) -> Option<(u64, Vec<Duration>)> {
        match self.side {
            Side::Answering => None,
            Side::Asking(asking) => Some((asking.answers(), asking.round_trips)),
        }
    }

    /// All that one read caused leaves in one frame.
    fn seal(&mut self) {
        if self.output.is_open() {
            self.output.finish(0);
        }
    }
}

impl Side {
    fn take(&mut self, message: Message<'_>, now: Instant, first: bool, output: &mut FrameWriter) {
        match (self, message) {
            (Self::Answering, Message::Request(Request::Propose { ballot, .. })) => {
                push(output, &Message::Reply(Reply::Accept { ballot }));
            }
            (Self::Asking(asking), Message::Reply(Reply::Accept { ballot })) => {
                asking.answered(ballot, now, first);
                if now < asking.ends_at {
                    asking.ask(now, output);
                }
            }
            (_, message) => panic!("nobody here sends {message:?}"),
        }
    }
}

impl Asking {
    fn ask(&mut self, now: Instant, output: &mut FrameWriter) {
        self.asked += 1;
        let name = Name::new("lease/0123456789").expect("16 bytes are within bounds");
        let holder = Holder::new("holder-of-leases").expect("16 bytes are within bounds");
        let ballot = Ballot::new(self.asked, CLIENT);
        push(output, &Message::Request(Request::Propose { name, ballot, ttl: TTL, holder }));
        self.asked_at.push_back(now);
    }

    fn answered(&mut self, ballot: Ballot, now: Instant, first: bool) {
        assert_eq!(ballot.counter(), self.answers() + 1, "answers come in order");
        let asked_at = self.asked_at.pop_front().expect("no answer comes unasked");
        if first {
            self.round_trips.push(now - asked_at);
        }
    }

    fn answers(&self) -> u64 {
        self.asked - self.asked_at.len() as u64
    }
}

fn push(output: &mut FrameWriter, message: &Message<'_>) {
    assert!(output.push(message), "what is in flight fits one frame");
}

#[cfg(test)]
mod tests {
    use super::*;
    use paxoslease_bench::clock::now;

    /// Moves what `from` wrote, in pieces of this size.
    fn carry(from: &mut Link, to: &mut Link, piece: usize, at: Instant) {
        for bytes in from.output().chunks(piece) {
            to.room()[..bytes.len()].copy_from_slice(bytes);
            to.received(bytes.len(), at).expect("frames of ours");
        }
        from.sent(from.output().len());
    }

    #[test]
    fn every_proposal_is_answered_and_none_is_made_when_the_time_is_over() {
        let begun_at = now();
        let ends_at = begun_at + Duration::from_secs(1);
        for piece in [1, 7, INPUT_LEN] {
            let (mut client, mut server) = (Link::asking(3, begun_at, ends_at), Link::answering());
            for (after, answers) in [(0, 3), (1, 6)] {
                assert!(!client.is_done());
                let at = begun_at + Duration::from_secs(after);
                carry(&mut client, &mut server, piece, at);
                carry(&mut server, &mut client, piece, at);
                let Side::Asking(asking) = &client.side else { panic!("it asks") };
                assert_eq!(asking.answers(), answers);
            }
            assert!(client.is_done() && client.output().is_empty());
        }
    }

    #[test]
    fn what_was_in_flight_together_is_answered_in_one_frame() {
        let at = now();
        let (mut client, mut server) = (Link::asking(128, at, at), Link::answering());
        carry(&mut client, &mut server, INPUT_LEN, at);
        let (_, rest) = split_frame(server.output()).expect("frames of ours").expect("a whole one");
        assert!(rest.is_empty());
    }
}
