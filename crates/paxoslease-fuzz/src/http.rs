//! HTTP of arbitrary bytes as a real daemon hears it: paths, parameters and bodies, or anything.
//!
//! The first line of the input is the method and the target, the rest is the body, with the
//! headers that belong to it; so the fuzzer need not forge a head. An input that begins with a zero
//! is sent as it is.

use crate::rig::{converse, rig};

/// What a daemon may say. A status of 500 would be our own mistake.
const STATUSES: [&str; 14] = [
    "200", "400", "401", "403", "404", "405", "408", "409", "410", "413", "415", "421", "429",
    "503",
];
/// What hyper says of heads that are none, or too long.
const HEAD_STATUSES: [&str; 2] = ["414", "431"];

/// One request.
pub fn http(bytes: &[u8]) {
    if let Some((0, raw)) = bytes.split_first() {
        check(&converse(rig().http, raw, true).bytes);
        return;
    }
    let end = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
    let (line, body) = (&bytes[..end], bytes.get(end + 1..).unwrap_or_default());
    let length = body.len().to_string();
    let head = [
        line,
        b" HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
          connection: close\r\ncontent-length: ",
        length.as_bytes(),
        b"\r\n\r\n",
        body,
    ];
    check(&converse(rig().http, &head.concat(), false).bytes);
}

/// Whatever was answered before patience ended begins with a status that we know.
fn check(answer: &[u8]) {
    let Some(rest) = answer.strip_prefix(b"HTTP/1.") else {
        return assert!(answer.is_empty(), "{:?} is no HTTP", String::from_utf8_lossy(answer));
    };
    let status = rest.get(2..5).map(String::from_utf8_lossy).unwrap_or_default();
    let known = STATUSES.contains(&&*status) || HEAD_STATUSES.contains(&&*status);
    assert!(known, "{}", String::from_utf8_lossy(answer));
}
