//! Evaluates the Lua scripts of lock libraries.
//!
//! Such a script compares what a key holds with what the caller passes, and then sets, deletes or
//! extends the key. A text becomes a tree, and a run evaluates the tree on a [`Store`] of the
//! caller. Nothing is concluded from the text: the store sees every command of a run, and its
//! caller decides what becomes of them. This is a small part of Lua 5.1, without functions of a
//! script's own, globals, `while` and most of the library. Each text and each run is bounded.

mod library;
mod machine;
mod parse;
#[cfg(test)]
mod tests;
mod token;
mod value;

use parse::Block;

/// The steps of a text for each of its bytes, if it is understood or not.
pub(super) const TEXT_STEPS: usize = 8;

/// The commands that a script may call.
const COMMANDS: [&str; 20] = [
    "get", "mget", "exists", "ttl", "pttl", "set", "setnx", "setex", "psetex", "del", "unlink",
    "expire", "pexpire", "persist", "publish", "lpush", "rpush", "ltrim", "select", "keys",
];

/// A script that was understood.
#[derive(Debug)]
pub(super) struct Script {
    block: Block,
    /// The count of its locals, with KEYS and ARGV.
    locals: usize,
    /// The pattern of its calls of `keys`.
    pattern: Option<Vec<u8>>,
}

/// Why a text is not understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub(super) struct NotUnderstood {
    line: u32,
    reason: String,
}

/// A reply of RESP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reply {
    /// The nil bulk.
    Nil,
    /// A status like `+OK`, without the mark.
    Status(Vec<u8>),
    /// An integer.
    Integer(i64),
    /// A string.
    Bulk(Vec<u8>),
    /// A list.
    Array(Vec<Reply>),
    /// An error with its code, without the mark.
    Error(Vec<u8>),
}

/// What a run replies, and the steps that it took. If the reply is an error, what the run changed
/// must not take effect.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) reply: Reply,
    pub(super) steps: usize,
}

/// The commands that a script calls.
pub(super) trait Store {
    /// Executes a command. A command that fails replies [`Reply::Error`].
    fn call(&mut self, command: &[&[u8]]) -> Reply;
}

impl Script {
    pub(super) fn parse(text: &[u8]) -> Result<Self, NotUnderstood> {
        parse::parse(text)
    }

    /// The pattern of the keys that it lists: the store must have them when the script is run.
    pub(super) fn pattern(&self) -> Option<&[u8]> {
        self.pattern.as_deref()
    }

    pub(super) fn run(&self, keys: &[&[u8]], args: &[&[u8]], store: &mut dyn Store) -> Run {
        machine::Machine::new(self.locals, keys, args, store).run(&self.block)
    }
}

/// SHA-1 in hex: the name of a script for EVALSHA.
pub(super) fn sha1_hex(text: &[u8]) -> String {
    sha1_smol::Sha1::from(text).digest().to_string()
}
