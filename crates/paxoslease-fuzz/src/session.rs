//! Arbitrary RESP requests to real daemons, with tokens and without: every answer is valid RESP.

use paxoslease_wire::resp::Value;

use crate::bytes::walk;
use crate::daemon::{REPLY_TIMEOUT, exchange, open_daemon, token_daemon};

/// Sends the input at once, then closes its side.
pub fn session(bytes: &[u8]) {
    for daemon in [open_daemon(), token_daemon()] {
        let reply = exchange(daemon.clients, bytes, true, REPLY_TIMEOUT);
        let mut rest = &reply.bytes[..];
        while let Some((value, consumed)) = Value::parse(rest).expect("an answer in RESP") {
            walk(value);
            rest = &rest[consumed..];
        }
        assert!(!reply.is_whole() || rest.is_empty(), "an incomplete reply: {rest:?}");
    }
}
