//! The part of Jute, ZooKeeper's encoding, that locks need: big-endian numbers, and strings,
//! vectors and messages with their length before them.

use anyhow::{Context, Result, ensure};

/// Request types.
pub(super) mod op {
    pub(in super::super) const CREATE: i32 = 1;
    pub(in super::super) const DELETE: i32 = 2;
    pub(in super::super) const EXISTS: i32 = 3;
    pub(in super::super) const CHILDREN: i32 = 8;
    pub(in super::super) const PING: i32 = 11;
    pub(in super::super) const CLOSE: i32 = -11;
}

/// Error codes.
pub(super) const OK: i32 = 0;
pub(super) const NO_NODE: i32 = -101;
pub(super) const NODE_EXISTS: i32 = -110;

/// The number of pings and their replies.
pub(super) const PING_XID: i32 = -2;
const NOTIFICATION_XID: i32 = -1;
const MESSAGE_MAX: i32 = 16 * 1024 * 1024;
const ALL_PERMISSIONS: i32 = 31;
const PASSWORD_LEN: usize = 16;

/// The flags of a new node. The last two live as long as their session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Node {
    Persistent = 0,
    Ephemeral = 1,
    Sequential = 3,
}

/// A session may continue on another connection.
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
        // Not read-only.
        out.push(0);
    });
}

/// The type of a request, and its arguments.
pub(super) type Request = (i32, Vec<u8>);

pub(super) fn create(path: &[u8], node: Node) -> Request {
    let mut out = Vec::new();
    put_bytes(&mut out, path);
    put_bytes(&mut out, b"");
    put_int(&mut out, 1);
    put_int(&mut out, ALL_PERMISSIONS);
    put_bytes(&mut out, b"world");
    put_bytes(&mut out, b"anyone");
    put_int(&mut out, node as i32);
    (op::CREATE, out)
}

/// A request about a node. The arguments after the path are: any version, with a watch, or without.
pub(super) fn about(op: i32, path: &[u8]) -> Request {
    let mut out = Vec::new();
    put_bytes(&mut out, path);
    match op {
        op::DELETE => put_int(&mut out, -1),
        op::EXISTS => out.push(1),
        _ => out.push(0),
    }
    (op, out)
}

pub(super) fn put_request(out: &mut Vec<u8>, xid: i32, (op, arguments): &Request) {
    message(out, |out| {
        put_int(out, xid);
        put_int(out, *op);
        out.extend_from_slice(arguments);
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

/// The first message without its length; `None` if it is not complete.
pub(super) fn whole(bytes: &[u8]) -> Result<Option<&[u8]>> {
    let Some((head, rest)) = bytes.split_first_chunk::<4>() else { return Ok(None) };
    let len = i32::from_be_bytes(*head);
    ensure!((0..=MESSAGE_MAX).contains(&len), "a message of {len} bytes");
    Ok(rest.get(..len as usize))
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Received<'a> {
    Answer { xid: i32, error: i32, body: Reader<'a> },
    Notification { path: &'a [u8] },
}

pub(super) fn parse(message: &[u8]) -> Result<Received<'_>> {
    let mut reader = Reader(message);
    let xid = reader.int()?;
    let _zxid = reader.long()?;
    let error = reader.int()?;
    if xid != NOTIFICATION_XID {
        return Ok(Received::Answer { xid, error, body: reader });
    }
    let (_kind, _state) = (reader.int()?, reader.int()?);
    Ok(Received::Notification { path: reader.bytes()? })
}

/// The reply to a connect: the session, with the id 0 if the old session is over.
pub(super) fn connected(message: &[u8]) -> Result<Session> {
    let mut reader = Reader(message);
    let (_version, _timeout_ms) = (reader.int()?, reader.int()?);
    let id = reader.long()?;
    Ok(Session { id, password: reader.bytes()?.to_vec() })
}

/// The rest of a message.
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

    /// Bytes or text; null is empty.
    pub(super) fn bytes(&mut self) -> Result<&'a [u8]> {
        let len = usize::try_from(self.int()?).unwrap_or(0);
        ensure!(len <= self.0.len(), "a message ends early");
        let (bytes, rest) = self.0.split_at(len);
        self.0 = rest;
        Ok(bytes)
    }
}
