//! Jute, as far as ZooKeeper's locks need it: big-endian numbers, strings and vectors with their
//! lengths before them, and a length before every message.

use anyhow::{Context, Result, ensure};

/// Numbers that the protocol gives to requests.
pub(super) mod op {
    pub(in super::super) const CREATE: i32 = 1;
    pub(in super::super) const DELETE: i32 = 2;
    pub(in super::super) const EXISTS: i32 = 3;
    pub(in super::super) const CHILDREN: i32 = 8;
    pub(in super::super) const PING: i32 = 11;
    pub(in super::super) const CLOSE: i32 = -11;
}

/// Numbers of its errors.
pub(super) const OK: i32 = 0;
pub(super) const NO_NODE: i32 = -101;
pub(super) const NODE_EXISTS: i32 = -110;

/// A request with this number is a ping, and so is its answer.
pub(super) const PING_XID: i32 = -2;
/// What is not an answer to anything has this number.
const NOTIFICATION_XID: i32 = -1;
/// A message that is longer is none of ours.
const MESSAGE_MAX: i32 = 16 * 1024 * 1024;
/// A node that exists as long as its session.
const EPHEMERAL: i32 = 1;
/// The same, with a number behind its name.
const EPHEMERAL_SEQUENTIAL: i32 = 3;
const ALL_PERMISSIONS: i32 = 31;
const PASSWORD_LEN: usize = 16;

/// What kind of node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Node {
    Persistent,
    Ephemeral,
    Sequential,
}

/// Who a client is to the ensemble, on whichever connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Session {
    pub(super) id: i64,
    pub(super) password: Vec<u8>,
}

pub(super) fn put_connect(out: &mut Vec<u8>, session: &Session, timeout_ms: i32) {
    message(out, |out| {
        put_int(out, 0);
        put_long(out, 0);
        put_int(out, timeout_ms);
        put_long(out, session.id);
        if session.password.is_empty() {
            put_bytes(out, &[0; PASSWORD_LEN]);
        } else {
            put_bytes(out, &session.password);
        }
        // It is no use to us that only reads.
        out.push(0);
    });
}

pub(super) fn put_create(out: &mut Vec<u8>, xid: i32, path: &[u8], node: Node) {
    request(out, xid, op::CREATE, |out| {
        put_bytes(out, path);
        put_bytes(out, b"");
        put_int(out, 1);
        put_int(out, ALL_PERMISSIONS);
        put_bytes(out, b"world");
        put_bytes(out, b"anyone");
        put_int(
            out,
            match node {
                Node::Persistent => 0,
                Node::Ephemeral => EPHEMERAL,
                Node::Sequential => EPHEMERAL_SEQUENTIAL,
            },
        );
    });
}

pub(super) fn put_delete(out: &mut Vec<u8>, xid: i32, path: &[u8]) {
    request(out, xid, op::DELETE, |out| {
        put_bytes(out, path);
        // Whatever its version.
        put_int(out, -1);
    });
}

/// Whether it exists; if so, there will be a notification when it no longer does.
pub(super) fn put_exists(out: &mut Vec<u8>, xid: i32, path: &[u8]) {
    request(out, xid, op::EXISTS, |out| {
        put_bytes(out, path);
        out.push(1);
    });
}

pub(super) fn put_children(out: &mut Vec<u8>, xid: i32, path: &[u8]) {
    request(out, xid, op::CHILDREN, |out| {
        put_bytes(out, path);
        out.push(0);
    });
}

pub(super) fn put_ping(out: &mut Vec<u8>) {
    request(out, PING_XID, op::PING, |_| {});
}

pub(super) fn put_close(out: &mut Vec<u8>, xid: i32) {
    request(out, xid, op::CLOSE, |_| {});
}

fn request(out: &mut Vec<u8>, xid: i32, op: i32, body: impl FnOnce(&mut Vec<u8>)) {
    message(out, |out| {
        put_int(out, xid);
        put_int(out, op);
        body(out);
    });
}

fn message(out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    put_int(out, 0);
    body(out);
    let len = (out.len() - start - 4) as i32;
    out[start..start + 4].copy_from_slice(&len.to_be_bytes());
}

fn put_int(out: &mut Vec<u8>, number: i32) {
    out.extend_from_slice(&number.to_be_bytes());
}

fn put_long(out: &mut Vec<u8>, number: i64) {
    out.extend_from_slice(&number.to_be_bytes());
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_int(out, bytes.len() as i32);
    out.extend_from_slice(bytes);
}

/// A whole message at the beginning, without its length; `None` if there is none yet.
pub(super) fn whole(bytes: &[u8]) -> Result<Option<&[u8]>> {
    let Some((head, rest)) = bytes.split_first_chunk::<4>() else { return Ok(None) };
    let len = i32::from_be_bytes(*head);
    ensure!((0..=MESSAGE_MAX).contains(&len), "a message of {len} bytes");
    Ok(rest.get(..len as usize))
}

/// What an ensemble says to a session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Said<'a> {
    Answer {
        xid: i32,
        error: i32,
        body: Reader<'a>,
    },
    /// Something happened to this node.
    Notification {
        path: &'a [u8],
    },
}

pub(super) fn said(message: &[u8]) -> Result<Said<'_>> {
    let mut reader = Reader(message);
    let xid = reader.int()?;
    let _zxid = reader.long()?;
    let error = reader.int()?;
    if xid != NOTIFICATION_XID {
        return Ok(Said::Answer { xid, error, body: reader });
    }
    let (_kind, _state) = (reader.int()?, reader.int()?);
    Ok(Said::Notification { path: reader.bytes()? })
}

/// The answer to a connect: the session, whose number is zero if the old one is over, and its
/// timeout in milliseconds.
pub(super) fn connected(message: &[u8]) -> Result<(Session, i32)> {
    let mut reader = Reader(message);
    let _version = reader.int()?;
    let timeout_ms = reader.int()?;
    let id = reader.long()?;
    let password = reader.bytes()?.to_vec();
    Ok((Session { id, password }, timeout_ms))
}

/// What is left of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk().context("a message ends early")?;
        self.0 = rest;
        Ok(*taken)
    }

    pub(super) fn int(&mut self) -> Result<i32> {
        Ok(i32::from_be_bytes(self.take()?))
    }

    fn long(&mut self) -> Result<i64> {
        Ok(i64::from_be_bytes(self.take()?))
    }

    /// Bytes or text; what is null is empty.
    pub(super) fn bytes(&mut self) -> Result<&'a [u8]> {
        let len = usize::try_from(self.int()?).unwrap_or(0);
        ensure!(len <= self.0.len(), "a message ends early");
        let (bytes, rest) = self.0.split_at(len);
        self.0 = rest;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_create_is_what_the_protocol_says() {
        let mut out = Vec::new();
        put_create(&mut out, 7, b"/a", Node::Ephemeral);
        let mut expected = vec![0, 0, 0, 49, 0, 0, 0, 7, 0, 0, 0, 1];
        expected.extend(b"\0\0\0\x02/a\0\0\0\0");
        expected.extend(b"\0\0\0\x01\0\0\0\x1f\0\0\0\x05world\0\0\0\x06anyone");
        expected.extend([0, 0, 0, 1]);
        assert_eq!(out, expected);
    }

    #[test]
    fn a_session_goes_on_with_its_password_and_begins_with_none() {
        let mut out = Vec::new();
        put_connect(&mut out, &Session::default(), 15_000);
        assert_eq!(out.len(), 4 + 4 + 8 + 4 + 8 + 4 + 16 + 1);
        assert_eq!(out[..4], [0, 0, 0, 45]);
        assert_eq!(out[16..20], 15_000_i32.to_be_bytes());
        let session = Session { id: 0x1234, password: vec![9; 16] };
        let mut again = Vec::new();
        put_connect(&mut again, &session, 15_000);
        assert_eq!(again[20..28], 0x1234_i64.to_be_bytes());
        assert!(again.ends_with(&[9, 0]));
        // The answer has the same fields in another order.
        let mut answer = Vec::new();
        put_int(&mut answer, 0);
        put_int(&mut answer, 4_000);
        put_long(&mut answer, 0x1234);
        put_bytes(&mut answer, &[9; 16]);
        answer.push(0);
        assert_eq!(connected(&answer).expect("well formed"), (session, 4_000));
    }

    #[test]
    fn messages_may_come_in_pieces() {
        let mut out = Vec::new();
        put_delete(&mut out, 3, b"/load/1");
        put_ping(&mut out);
        let first = out.len() - 12;
        for end in 0..first {
            assert_eq!(whole(&out[..end]).expect("no garbage"), None, "{end}");
        }
        assert_eq!(whole(&out).expect("no garbage"), Some(&out[4..first]));
        assert_eq!(whole(&out[first..]).expect("no garbage").map(<[u8]>::len), Some(8));
        assert!(whole(b"HTTP/1.1 400").is_err());
    }

    #[test]
    fn answers_and_notifications_are_told_apart() {
        let mut answer = Vec::new();
        put_int(&mut answer, 5);
        put_long(&mut answer, 99);
        put_int(&mut answer, NO_NODE);
        let Said::Answer { xid, error, .. } = said(&answer).expect("whole") else { panic!() };
        assert_eq!((xid, error), (5, NO_NODE));
        let mut notification = Vec::new();
        put_int(&mut notification, -1);
        put_long(&mut notification, -1);
        put_int(&mut notification, 0);
        put_int(&mut notification, 2);
        put_int(&mut notification, 3);
        put_bytes(&mut notification, b"/load/lock/c-0000000004");
        let path = b"/load/lock/c-0000000004".as_slice();
        assert_eq!(said(&notification).expect("whole"), Said::Notification { path });
        assert!(said(&notification[..20]).is_err());
    }
}
