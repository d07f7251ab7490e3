//! One connection of a shard's thread: its socket, its state and the bytes that were read and not
//! delivered yet. Tells neither the driver nor the front-end anything.

use std::io;

use paxoslease_core::NodeId;
use paxoslease_wire::FRAME_LEN_MAX;
use paxoslease_wire::resp::REQUEST_LEN_MAX;

use crate::tls::Stream;
use crate::turn::ConnKind;

const INPUT_MIN: usize = 64 * 1024;
const INPUT_MAX: usize = 2 * FRAME_LEN_MAX;
/// Clients are many and send little at a time. A client has a buffer only while there are bytes in
/// it, so that an idle client costs none.
pub(super) const CLIENT_INPUT: usize = 16 * 1024;
const CLIENT_INPUT_MAX: usize = 2 * REQUEST_LEN_MAX;

#[derive(Default)]
pub(super) struct Conn {
    /// `None` while its address is looked up.
    pub(super) stream: Option<Stream>,
    pub(super) node: Option<NodeId>,
    pub(super) kind: ConnKind,
    /// Its bytes are not delivered for now.
    pub(super) held: bool,
    /// It is read while it is held, as far as there is room, so that its end is noticed.
    pub(super) read_ahead: bool,
    /// Not connected yet, or in its TLS handshake.
    pub(super) pending: bool,
    /// Distinguishes this connection from others that had its number.
    pub(super) serial: u64,
    pub(super) input: Input,
    /// There may be more to read.
    pub(super) readable: bool,
    /// The other side will send no more: read to the end.
    pub(super) ending: bool,
    /// The front-end that holds it was told so.
    pub(super) ending_told: bool,
    pub(super) end: InputEnd,
    pub(super) listed: bool,
    pub(super) writable: bool,
    pub(super) closed: Option<String>,
    /// Its TLS handshake failed.
    pub(super) refused: bool,
}

/// Whether the end of a client's bytes was read and told. A peer that sends no more is gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum InputEnd {
    #[default]
    Ahead,
    Read,
    Told,
}

impl Conn {
    /// Whether to read now.
    pub(super) fn may_read(&self) -> bool {
        self.readable
            && (!self.held || self.read_ahead)
            && !self.is_full()
            && self.kind != ConnKind::Leaving
    }

    /// Whether a read may cost as much as a TLS handshake.
    pub(super) fn is_handshaking(&self) -> bool {
        self.pending && self.stream.as_ref().is_some_and(Stream::is_handshaking)
    }

    /// Whether the buffer of a client is full.
    pub(super) fn is_full(&self) -> bool {
        self.kind == ConnKind::Client && self.input.unread().len() >= CLIENT_INPUT_MAX
    }

    /// Reads once. After a short read there is nothing more until the next event.
    pub(super) fn read(&mut self, spare: &mut Vec<u8>) {
        let Some(stream) = &mut self.stream else { return };
        if self.pending && !matches!(stream, Stream::Tls(_)) && self.node.is_some() {
            return;
        }
        let room = match self.kind {
            ConnKind::Client | ConnKind::Leaving => self.input.room(CLIENT_INPUT, CLIENT_INPUT_MAX),
            ConnKind::Peer => self.input.room(INPUT_MIN, INPUT_MAX),
        };
        let room_len = room.len();
        match stream.read(room, spare) {
            Ok(0) => {
                self.readable = false;
                match (self.kind, self.end) {
                    (ConnKind::Peer, _) => {
                        self.closed = Some("it closed the connection".to_owned());
                    }
                    (ConnKind::Client, InputEnd::Ahead) => {
                        (self.ending, self.end) = (true, InputEnd::Read);
                    }
                    (ConnKind::Client, InputEnd::Read | InputEnd::Told)
                    | (ConnKind::Leaving, _) => {}
                }
            }
            Ok(len) => {
                self.input.end += len;
                let drained = len < room_len && matches!(stream, Stream::Plain(_));
                self.readable = !drained || self.ending;
            }
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::NotConnected => self.readable = false,
                io::ErrorKind::Interrupted => {}
                kind => {
                    self.readable = false;
                    self.refused = self.pending && kind == io::ErrorKind::InvalidData;
                    self.closed = Some(error.to_string());
                }
            },
        }
    }

    /// Goes on connecting, TLS included. Returns whether the connection is established.
    pub(super) fn connect(&mut self) -> io::Result<bool> {
        let Some(stream) = &self.stream else { return Ok(false) };
        if self.node.is_some() {
            if let Some(error) = stream.tcp().take_error()? {
                return Err(error);
            }
            match stream.tcp().peer_addr() {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::NotConnected => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        self.flush()?;
        Ok(self.stream.as_ref().is_some_and(|stream| !stream.is_handshaking()))
    }

    /// Sends the bytes that TLS itself has to send.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        match &mut self.stream {
            Some(stream) if stream.wants_write() => stream.flush().map(drop),
            _ => Ok(()),
        }
    }
}

/// Bytes that were read and not consumed.
#[derive(Default)]
pub(super) struct Input {
    pub(super) bytes: Vec<u8>,
    pub(super) start: usize,
    pub(super) end: usize,
}

impl Input {
    fn room(&mut self, least: usize, most: usize) -> &mut [u8] {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
        if self.end == self.bytes.len() && self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if self.end == self.bytes.len() {
            let len = (self.bytes.len() * 2).clamp(least, most);
            self.bytes.resize(len, 0);
        }
        &mut self.bytes[self.end..]
    }

    pub(super) fn unread(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_moves_its_unread_bytes_before_it_grows() {
        let mut input = Input::default();
        assert_eq!(input.room(4, 16).len(), 4);
        input.end = 4;
        input.start = 3;
        assert_eq!(input.room(4, 16).len(), 3, "consumed bytes make room");
        assert_eq!(input.unread().len(), 1);
        input.end = 4;
        assert_eq!(input.room(4, 16).len(), 4);
        input.end = 8;
        assert_eq!(input.room(4, 16).len(), 8);
        input.end = 16;
        assert_eq!(input.room(4, 16).len(), 0, "it has reached its bound");
    }
}
