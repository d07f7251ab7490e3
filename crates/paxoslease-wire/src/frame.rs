//! Frames: splitting a stream, writing without a second copy, reading without allocating.
//!
//! Owns the envelope and the header. Deliberately lacks sockets, queues and the decision when to
//! send a frame.

use alloc::vec::Vec;

use paxoslease_core::{Ballot, Message, NodeId};

use crate::bytes::{Cursor, put_u32};
use crate::message::{MESSAGE_LEN_MAX, decode_message, encode_message};
use crate::{DecodeError, DecodeError as E};

/// The protocol version this crate speaks.
pub const VERSION: u8 = 1;
/// The longest frame in bytes, its length prefix included.
pub const FRAME_LEN_MAX: usize = 256 * 1024;
/// The bytes of a frame of messages before its first message.
pub const HEADER_LEN: usize = EPOCH_AT + 4;

const MAGIC: [u8; 2] = *b"PL";
const PREFIX_LEN: usize = 4;
const ENVELOPE_LEN: usize = PREFIX_LEN + 4;
const COUNTER_AT: usize = ENVELOPE_LEN + 2;
const EPOCH_AT: usize = COUNTER_AT + 8;

/// The content of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum FrameKind {
    /// Messages of the protocol: [`FrameReader`].
    Messages = 1,
    /// The greeting: [`crate::Hello`].
    Hello = 2,
    /// The reply to a greeting that does not match: [`crate::Farewell`].
    Farewell = 3,
    /// Asks the peer for a Pong: [`crate::Heartbeat`].
    Ping = 4,
    /// Answers a Ping: [`crate::Heartbeat`].
    Pong = 5,
    /// A message about the members of the cell: [`crate::decode_membership`].
    Membership = 6,
}

impl FrameKind {
    /// The kind of one whole frame, so that the caller can choose a decoder.
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
            6 => Some(Self::Membership),
            _ => None,
        }
    }
}

/// One frame with its length prefix, and the bytes after it.
pub type FrameAndRest<'a> = (&'a [u8], &'a [u8]);

/// Splits the first frame off a stream. Returns `None` while the frame is incomplete.
///
/// # Errors
/// As soon as the length is out of bounds or the magic is wrong, so that the caller does not buffer
/// bytes of another protocol.
pub fn split_frame(bytes: &[u8]) -> Result<Option<FrameAndRest<'_>>, DecodeError> {
    let Some((prefix, after)) = bytes.split_first_chunk::<PREFIX_LEN>() else { return Ok(None) };
    let len_u32 = u32::from_le_bytes(*prefix);
    let Some(len) = usize::try_from(len_u32).ok().filter(|n| *n <= FRAME_LEN_MAX - PREFIX_LEN)
    else {
        return Err(E::FrameTooLong(len_u32));
    };
    if len < ENVELOPE_LEN - PREFIX_LEN {
        return Err(E::FrameTooShort(len_u32));
    }
    if let Some(found) = after.first_chunk().filter(|found| **found != MAGIC) {
        return Err(E::Magic(*found));
    }
    Ok(bytes.split_at_checked(PREFIX_LEN + len))
}

/// The first bytes of every frame.
#[derive(Clone, Copy)]
pub(crate) struct Envelope {
    pub(crate) version: u8,
    pub(crate) kind: FrameKind,
}

impl Envelope {
    /// Reads exactly one frame. The cursor stands behind the envelope.
    fn read(frame: &[u8]) -> Result<(Self, Cursor<'_>), DecodeError> {
        let (frame, rest) = split_frame(frame)?.ok_or(E::Truncated("frame"))?;
        Cursor(rest).end()?;
        let mut cursor = Cursor(frame);
        let _checked_by_split_frame: [u8; PREFIX_LEN + 2] = cursor.array("envelope")?;
        let version = cursor.u8("version")?;
        let found = cursor.u8("kind")?;
        let kind = FrameKind::from_u8(found).ok_or(E::UnknownKind(found))?;
        Ok((Self { version, kind }, cursor))
    }

    /// Reads exactly one frame of the expected kind. Returns its version and a cursor behind the
    /// envelope.
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

    /// Appends one whole frame. `body` writes what follows the envelope.
    pub(crate) fn write(self, out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
        let start = out.len();
        self.open(out);
        body(out);
        seal(&mut out[start..]);
    }

    /// Appends an envelope whose length is not known yet.
    fn open(self, out: &mut Vec<u8>) {
        put_u32(out, 0);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&[self.version, self.kind as u8]);
    }
}

/// Fills in the length of a complete frame.
fn seal(frame: &mut [u8]) {
    assert!(frame.len() <= FRAME_LEN_MAX, "writers keep to the bound");
    let len = (frame.len() - PREFIX_LEN) as u32;
    frame[..PREFIX_LEN].copy_from_slice(&len.to_le_bytes());
}

/// Packs messages into frames, one after another in one buffer: the outgoing bytes of one peer.
///
/// ```
/// # use paxoslease_core::{Hint, Message, Name, NodeId};
/// # use paxoslease_wire::FrameWriter;
/// let mut writer = FrameWriter::new(NodeId::new(1).unwrap());
/// let name = Name::new("printer").unwrap();
/// let message = Message::Hint(Hint::Freed { name, nodes_before: 0 });
/// assert!(writer.push(&message));
/// let frame = writer.finish(7); // What goes to the socket.
/// assert_eq!(frame.len(), 22 + 10);
/// writer.clear(); // It went.
/// ```
#[derive(Clone, Debug)]
pub struct FrameWriter {
    /// The bytes that every frame begins with. Length and counter are filled in at its end.
    header: [u8; HEADER_LEN],
    bytes: Vec<u8>,
    /// Where the open frame begins, or the buffer's length when no frame is open.
    open_at: usize,
}

impl FrameWriter {
    /// A writer for the frames that this node sends to one peer.
    #[must_use]
    pub const fn new(sender: NodeId) -> Self {
        let mut header = [0; HEADER_LEN];
        [header[PREFIX_LEN], header[PREFIX_LEN + 1]] = MAGIC;
        (header[PREFIX_LEN + 2], header[PREFIX_LEN + 3]) = (VERSION, FrameKind::Messages as u8);
        [header[ENVELOPE_LEN], header[ENVELOPE_LEN + 1]] = sender.get().to_le_bytes();
        Self { header, bytes: Vec::new(), open_at: 0 }
    }

    /// Sets the epoch of the frames that are opened from now on.
    ///
    /// # Panics
    /// When a frame of messages is open: its messages are of the epoch before.
    pub fn set_epoch(&mut self, epoch: u32) {
        assert!(!self.is_open(), "a frame has one epoch");
        self.header[EPOCH_AT..].copy_from_slice(&epoch.to_le_bytes());
    }

    /// Appends a message to the open frame, and opens a frame if necessary. Returns `false`, and
    /// changes nothing, when the frame has no room left for the longest message. The caller then
    /// finishes the frame and pushes again, which succeeds.
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

    /// Whether [`Self::finish`] has messages to complete.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.open_at < self.bytes.len()
    }

    /// Completes the open frame and returns it. A frame without messages carries only the counter.
    ///
    /// `counter` is the sender's ballot counter. The receiver raises its own counter to it, which
    /// saves Rejects; nothing depends on it. A counter above [`Ballot::COUNTER_LIMIT`] is sent as
    /// the limit.
    pub fn finish(&mut self, counter: u64) -> &[u8] {
        self.open();
        let frame = &mut self.bytes[self.open_at..];
        let counter = counter.min(Ballot::COUNTER_LIMIT);
        frame[COUNTER_AT..EPOCH_AT].copy_from_slice(&counter.to_le_bytes());
        seal(frame);
        let start = core::mem::replace(&mut self.open_at, self.bytes.len());
        &self.bytes[start..]
    }

    /// Every finished frame that was not consumed yet, oldest first.
    #[must_use]
    pub fn finished(&self) -> &[u8] {
        &self.bytes[..self.open_at]
    }

    /// Removes the first `sent` bytes of [`Self::finished`].
    ///
    /// # Panics
    /// When `sent` is more than the length of [`Self::finished`].
    pub fn consume(&mut self, sent: usize) {
        assert!(sent <= self.open_at, "only finished bytes are sent");
        // Mostly everything was sent, and then there is nothing to move.
        if sent == self.bytes.len() {
            self.bytes.clear();
        } else {
            self.bytes.drain(..sent);
        }
        self.open_at -= sent;
    }

    /// Removes every finished frame, sent or not, and keeps the memory.
    pub fn clear(&mut self) {
        self.consume(self.open_at);
    }

    #[inline]
    fn open(&mut self) {
        if !self.is_open() {
            self.bytes.extend_from_slice(&self.header);
        }
    }
}

/// The sender of a frame of messages, its ballot counter and its epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// The sender.
    pub sender: NodeId,
    /// The sender's ballot counter, at most [`Ballot::COUNTER_LIMIT`].
    pub counter: u64,
    /// The epoch of the sender and of all messages in the frame (C1).
    pub epoch: u32,
}

/// The messages of one frame, in order. They borrow their texts from the frame.
///
/// A malformed message ends the iteration with its error. The messages before it are valid: acting
/// on them is the same as losing the rest of the frame.
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
            return Err(E::Version(version));
        }
        let sender = cursor.u16("sender")?;
        let sender = NodeId::new(sender).ok_or(E::Sender(sender))?;
        let counter = cursor.u64("counter")?;
        if counter > Ballot::COUNTER_LIMIT {
            return Err(E::Counter(counter));
        }
        let epoch = cursor.u32("epoch")?;
        Ok(Self { header: Header { sender, counter, epoch }, messages: cursor })
    }

    /// The frame's sender, its counter and its epoch.
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
        match decode_message(&mut self.messages) {
            Ok(message) => Some(Ok(message)),
            Err(error) => {
                self.messages = Cursor(&[]);
                Some(Err(error))
            }
        }
    }
}

impl core::iter::FusedIterator for FrameReader<'_> {}
