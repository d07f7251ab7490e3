//! Frames: cut from a stream, written without a second copy, read without allocating.
//!
//! Owns the envelope and the header. Deliberately lacks sockets, queues and the decision when a
//! frame is sent.

use alloc::vec::Vec;

use paxoslease_core::{Ballot, Message, NodeId};

use crate::bytes::{Cursor, put_u16, put_u32, put_u64};
use crate::message::{MESSAGE_LEN_MAX, decode_message, encode_message};
use crate::{DecodeError, DecodeError as E};

/// The protocol version this crate speaks.
pub const VERSION: u8 = 1;
/// The longest frame in bytes, its length prefix included.
pub const FRAME_LEN_MAX: usize = 256 * 1024;
/// What a frame of messages costs before its first message.
pub const HEADER_LEN: usize = COUNTER_AT + 8;

const MAGIC: [u8; 2] = *b"PL";
const PREFIX_LEN: usize = 4;
const ENVELOPE_LEN: usize = PREFIX_LEN + 4;
const COUNTER_AT: usize = ENVELOPE_LEN + 2;

/// What a frame carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum FrameKind {
    /// Messages of the protocol: [`FrameReader`].
    Messages = 1,
    /// The greeting: [`crate::Hello`].
    Hello = 2,
    /// The answer to a greeting that will not do: [`crate::Farewell`].
    Farewell = 3,
    /// A sign of life that wants an answer: [`crate::Heartbeat`].
    Ping = 4,
    /// That answer: [`crate::Heartbeat`].
    Pong = 5,
}

impl FrameKind {
    /// What one whole frame carries, so that the right decoder can be asked.
    ///
    /// # Errors
    /// When the bytes are not exactly one frame of a known kind.
    pub fn of(frame: &[u8]) -> Result<Self, DecodeError> {
        Envelope::read(frame).map(|(envelope, _)| envelope.kind)
    }

    const fn from_u8(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::Messages),
            2 => Some(Self::Hello),
            3 => Some(Self::Farewell),
            4 => Some(Self::Ping),
            5 => Some(Self::Pong),
            _ => None,
        }
    }
}

/// One frame with its length prefix, and the bytes behind it.
pub type FrameAndRest<'a> = (&'a [u8], &'a [u8]);

/// Cuts the first frame off what a read brought; `None` when it is not all there yet.
///
/// # Errors
/// As soon as the length is out of bounds or the magic is wrong, so that nobody buffers for a
/// stream that is no stream of ours.
pub fn split_frame(bytes: &[u8]) -> Result<Option<FrameAndRest<'_>>, DecodeError> {
    let Some((prefix, after)) = bytes.split_first_chunk::<PREFIX_LEN>() else { return Ok(None) };
    let len_u32 = u32::from_le_bytes(*prefix);
    let Some(len) = usize::try_from(len_u32).ok().filter(|n| *n <= FRAME_LEN_MAX - PREFIX_LEN)
    else {
        return Err(E::FrameTooLong { len: len_u32 });
    };
    if len < ENVELOPE_LEN - PREFIX_LEN {
        return Err(E::FrameTooShort { len: len_u32 });
    }
    if let Some(found) = after.first_chunk().filter(|found| **found != MAGIC) {
        return Err(E::Magic { found: *found });
    }
    Ok(bytes.split_at_checked(PREFIX_LEN + len))
}

/// What every frame opens with.
#[derive(Clone, Copy)]
pub(crate) struct Envelope {
    pub(crate) version: u8,
    pub(crate) kind: FrameKind,
}

impl Envelope {
    /// Of exactly one frame, with what follows.
    fn read(frame: &[u8]) -> Result<(Self, Cursor<'_>), DecodeError> {
        let (frame, rest) = split_frame(frame)?.ok_or(E::Truncated { field: "frame" })?;
        Cursor(rest).end()?;
        let mut cursor = Cursor(frame);
        let _checked_by_split_frame: [u8; PREFIX_LEN + 2] = cursor.array("envelope")?;
        let version = cursor.u8("version")?;
        let found = cursor.u8("kind")?;
        let kind = FrameKind::from_u8(found).ok_or(E::UnknownKind { found })?;
        Ok((Self { version, kind }, cursor))
    }

    /// Of exactly one frame of the expected kind: its version, and what follows.
    pub(crate) fn expect(
        expected: FrameKind,
        frame: &[u8],
    ) -> Result<(u8, Cursor<'_>), DecodeError> {
        let (envelope, cursor) = Self::read(frame)?;
        if envelope.kind != expected {
            return Err(E::UnexpectedKind { expected, found: envelope.kind });
        }
        Ok((envelope.version, cursor))
    }

    /// Appends one whole frame, its body written by `body`.
    pub(crate) fn write(self, out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
        let start = out.len();
        self.open(out);
        body(out);
        seal(&mut out[start..]);
    }

    /// Appends an envelope whose length is still unknown.
    fn open(self, out: &mut Vec<u8>) {
        put_u32(out, 0);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&[self.version, self.kind as u8]);
    }
}

/// Fills in the length of a frame that is complete.
fn seal(frame: &mut [u8]) {
    assert!(frame.len() <= FRAME_LEN_MAX, "writers keep to the bound");
    let len = (frame.len() - PREFIX_LEN) as u32;
    frame[..PREFIX_LEN].copy_from_slice(&len.to_le_bytes());
}

/// Packs messages into frames, one after another in one buffer: what a peer is still to be sent.
///
/// ```
/// # use paxoslease_core::{Hint, Message, Name, NodeId};
/// # use paxoslease_wire::FrameWriter;
/// let mut writer = FrameWriter::new(NodeId::new(1).unwrap());
/// let name = Name::new("printer").unwrap();
/// let message = Message::Hint(Hint::Freed { name, nodes_before: 0 });
/// assert!(writer.push(&message));
/// let frame = writer.finish(7); // What goes to the socket.
/// assert_eq!(frame.len(), 18 + 10);
/// writer.clear(); // It went.
/// ```
#[derive(Clone, Debug)]
pub struct FrameWriter {
    sender: NodeId,
    bytes: Vec<u8>,
    /// Where the open frame begins; the buffer's end when none is open.
    open_at: usize,
}

impl FrameWriter {
    /// A writer for what this node sends one peer.
    #[must_use]
    pub const fn new(sender: NodeId) -> Self {
        Self { sender, bytes: Vec::new(), open_at: 0 }
    }

    /// Appends a message to the open frame, opening one if need be. `false` when the frame has no
    /// room left for the longest message: nothing was changed; finish the frame and push again,
    /// which then succeeds.
    #[must_use]
    #[inline]
    pub fn push(&mut self, message: &Message<'_>) -> bool {
        self.open();
        if self.bytes.len() - self.open_at > FRAME_LEN_MAX - MESSAGE_LEN_MAX {
            return false;
        }
        encode_message(message, &mut self.bytes);
        true
    }

    /// Appends a whole frame of another kind, which `write` writes.
    ///
    /// # Panics
    /// When a frame of messages is open: finish it first.
    pub fn append(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        assert!(!self.is_open(), "frames do not nest");
        write(&mut self.bytes);
        self.open_at = self.bytes.len();
    }

    /// Whether messages wait for [`Self::finish`].
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.open_at < self.bytes.len()
    }

    /// Completes the open frame and shows it. With no message pushed it carries the counter alone.
    ///
    /// The counter is the sender's, for the receiver to raise its own to: it saves Rejects, and
    /// nothing depends on it. So one above [`Ballot::COUNTER_LIMIT`] is sent as the limit.
    pub fn finish(&mut self, counter: u64) -> &[u8] {
        self.open();
        let frame = &mut self.bytes[self.open_at..];
        let counter = counter.min(Ballot::COUNTER_LIMIT);
        frame[COUNTER_AT..HEADER_LEN].copy_from_slice(&counter.to_le_bytes());
        seal(frame);
        let start = core::mem::replace(&mut self.open_at, self.bytes.len());
        &self.bytes[start..]
    }

    /// Every finished frame that was not consumed yet, the oldest first.
    #[must_use]
    pub fn finished(&self) -> &[u8] {
        &self.bytes[..self.open_at]
    }

    /// Forgets finished bytes that were sent.
    ///
    /// # Panics
    /// When told of more than [`Self::finished`] had.
    pub fn consume(&mut self, sent: usize) {
        assert!(sent <= self.open_at, "only finished bytes are sent");
        self.bytes.drain(..sent);
        self.open_at -= sent;
    }

    /// Forgets every finished frame, sent or not, and keeps the memory.
    pub fn clear(&mut self) {
        self.consume(self.open_at);
    }

    #[inline]
    fn open(&mut self) {
        if !self.is_open() {
            Envelope { version: VERSION, kind: FrameKind::Messages }.open(&mut self.bytes);
            put_u16(&mut self.bytes, self.sender.get());
            put_u64(&mut self.bytes, 0);
        }
    }
}

/// Who sent a frame of messages, and how far it has counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// The sender.
    pub sender: NodeId,
    /// Its ballot counter, at most [`Ballot::COUNTER_LIMIT`].
    pub counter: u64,
}

/// The messages of one frame, in order, borrowing their texts from it.
///
/// A malformed message ends the iteration with its error. The messages before it were whole, and
/// acting on them is no different from losing the rest.
#[derive(Clone, Debug)]
pub struct FrameReader<'a> {
    header: Header,
    messages: Cursor<'a>,
}

impl<'a> FrameReader<'a> {
    /// Reads the header of exactly one frame.
    ///
    /// # Errors
    /// When the bytes are not one whole frame of messages of our version.
    pub fn new(frame: &'a [u8]) -> Result<Self, DecodeError> {
        let (version, mut cursor) = Envelope::expect(FrameKind::Messages, frame)?;
        if version != VERSION {
            return Err(E::Version { found: version });
        }
        let sender = cursor.u16("sender")?;
        let sender = NodeId::new(sender).ok_or(E::Sender(sender))?;
        let counter = cursor.u64("counter")?;
        if counter > Ballot::COUNTER_LIMIT {
            return Err(E::Counter(counter));
        }
        Ok(Self { header: Header { sender, counter }, messages: cursor })
    }

    /// Who sent it.
    #[must_use]
    pub const fn header(&self) -> Header {
        self.header
    }
}

impl<'a> Iterator for FrameReader<'a> {
    type Item = Result<Message<'a>, DecodeError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.messages.0.is_empty() {
            return None;
        }
        let message = decode_message(&mut self.messages);
        if message.is_err() {
            self.messages = Cursor(&[]);
        }
        Some(message)
    }
}

impl core::iter::FusedIterator for FrameReader<'_> {}
