//! RESP of arbitrary bytes as real daemons hear it, with tokens and without: whatever they answer
//! is RESP.

use paxoslease_wire::resp::Value;

use crate::bytes::walk;
use crate::rig::{PATIENCE, converse, guarded, rig};

/// What a client says, all at once; then it says no more.
pub fn session(bytes: &[u8]) {
    for rig in [rig(), guarded()] {
        let heard = converse(rig.clients, bytes, true, PATIENCE);
        let mut rest = &heard.bytes[..];
        while let Some((value, consumed)) = Value::parse(rest).expect("it answers in RESP") {
            walk(value);
            rest = &rest[consumed..];
        }
        assert!(!heard.is_whole() || rest.is_empty(), "it ends in the middle of a reply: {rest:?}");
    }
}
