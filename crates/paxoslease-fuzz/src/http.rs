//! Arbitrary HTTP requests to real daemons, with tokens and without.
//!
//! The first line of the input is the method and the target, the rest is the body. The target adds
//! the headers, so that the fuzzer need not forge them. An input that begins with a zero byte is
//! sent as it is.

use std::time::Duration;

use crate::daemon::{Daemon, End, REPLY_TIMEOUT, exchange, open_daemon, token_daemon};

/// For an answer that must come: only a daemon that never answers exceeds it.
const LONG_TIMEOUT: Duration = Duration::from_secs(60);
/// The valid statuses. A status of 500 would be a bug.
const STATUSES: [&str; 14] = [
    "200", "400", "401", "403", "404", "405", "408", "409", "410", "413", "415", "421", "429",
    "503",
];
/// What hyper answers to malformed or too long heads.
const HEAD_STATUSES: [&str; 2] = ["414", "431"];

/// The beginning of HTTP/2. hyper closes the connection without an answer when this follows a
/// malformed head.
const OF_HTTP_2: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Sends one request. A request that is sent as it is may be incomplete and then gets no answer;
/// every other request gets an answer.
pub fn http(bytes: &[u8]) {
    ask(open_daemon(), bytes, "");
    // Chosen by the length, so that the same bytes give the same token.
    let token = if bytes.len().is_multiple_of(2) { "all" } else { "few" };
    ask(token_daemon(), bytes, &format!("authorization: Bearer {token}\r\n"));
}

fn ask(daemon: &Daemon, bytes: &[u8], authorization: &str) {
    if let Some((0, raw)) = bytes.split_first() {
        let reply = exchange(daemon.http, raw, true, REPLY_TIMEOUT);
        if !reply.bytes.is_empty() {
            check(&reply.bytes);
        }
        return;
    }
    let end = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
    let (line, body) = (&bytes[..end], bytes.get(end + 1..).unwrap_or_default());
    let length = body.len().to_string();
    let request = [
        line,
        b" HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nconnection: close\r\n",
        authorization.as_bytes(),
        b"content-length: ",
        length.as_bytes(),
        b"\r\n\r\n",
        body,
    ];
    let timeout = if may_take_long(line) { REPLY_TIMEOUT } else { LONG_TIMEOUT };
    let reply = exchange(daemon.http, &request.concat(), false, timeout);
    if reply.end == End::Timeout && timeout == REPLY_TIMEOUT && reply.bytes.is_empty() {
        return;
    }
    if reply.bytes.is_empty() && body.starts_with(OF_HTTP_2) {
        return;
    }
    check(&reply.bytes);
    assert!(reply.end != End::Timeout || timeout == REPLY_TIMEOUT, "the answer never ends");
}

/// Whether the answer may take long: an acquire of a held lease, or a watch.
fn may_take_long(line: &[u8]) -> bool {
    let line = String::from_utf8_lossy(line);
    line.contains("/acquire") || line.contains("/v1/watch")
}

/// An answer begins with a known status.
fn check(answer: &[u8]) {
    let text = String::from_utf8_lossy(answer);
    let status = text.strip_prefix("HTTP/1.").and_then(|rest| rest.get(2..5)).unwrap_or_default();
    let known = STATUSES.contains(&status) || HEAD_STATUSES.contains(&status);
    assert!(known, "{text:?} is not a valid answer");
}
