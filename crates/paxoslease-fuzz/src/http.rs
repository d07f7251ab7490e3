//! HTTP of arbitrary bytes as real daemons hear it, with tokens and without: paths, parameters and
//! bodies, or anything.
//!
//! The first line of the input is the method and the target, the rest is the body, with the
//! headers that belong to it; so the fuzzer need not forge a head. An input that begins with a zero
//! is sent as it is.

use std::time::Duration;

use crate::rig::{End, PATIENCE, Rig, converse, guarded, rig};

/// As long as it takes, but for a daemon that will never answer.
const FOR_EVER: Duration = Duration::from_secs(60);
/// What a daemon may say. A status of 500 would be our own mistake.
const STATUSES: [&str; 14] = [
    "200", "400", "401", "403", "404", "405", "408", "409", "410", "413", "415", "421", "429",
    "503",
];
/// What hyper says of heads that are none, or too long.
const HEAD_STATUSES: [&str; 2] = ["414", "431"];

/// How HTTP/2 begins. hyper hangs up without a word where this follows a head that is none.
const OF_HTTP_2: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// One request. One that is sent as it is need not be whole, and then nothing is due; every other
/// is answered, be it with what is wrong with it.
pub fn http(bytes: &[u8]) {
    ask(rig(), bytes, "");
    // By its length, so that nothing but the bytes says which.
    let token = if bytes.len().is_multiple_of(2) { "all" } else { "few" };
    ask(guarded(), bytes, &format!("authorization: Bearer {token}\r\n"));
}

fn ask(rig: &Rig, bytes: &[u8], authorization: &str) {
    if let Some((0, raw)) = bytes.split_first() {
        let heard = converse(rig.http, raw, true, PATIENCE);
        if !heard.bytes.is_empty() {
            check(&heard.bytes);
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
    let patience = if may_take_long(line) { PATIENCE } else { FOR_EVER };
    let heard = converse(rig.http, &request.concat(), false, patience);
    if heard.end == End::Impatience && patience == PATIENCE && heard.bytes.is_empty() {
        return;
    }
    if heard.bytes.is_empty() && body.starts_with(OF_HTTP_2) {
        return;
    }
    check(&heard.bytes);
    assert!(heard.end != End::Impatience || patience == PATIENCE, "the answer never ends");
}

/// Whether it may be about a lease that somebody else has, or to watch until one has enough.
fn may_take_long(line: &[u8]) -> bool {
    let line = String::from_utf8_lossy(line);
    line.contains("/acquire") || line.contains("/v1/watch")
}

/// An answer begins with a status that we know.
fn check(answer: &[u8]) {
    let text = String::from_utf8_lossy(answer);
    let status = text.strip_prefix("HTTP/1.").and_then(|rest| rest.get(2..5)).unwrap_or_default();
    let known = STATUSES.contains(&status) || HEAD_STATUSES.contains(&status);
    assert!(known, "{text:?} is no answer");
}
