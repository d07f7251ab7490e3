//! Recognises the Lua scripts of lock libraries.
//!
//! Such a script compares what a key holds with what the caller passes, and then sets, deletes or
//! extends the key. The recogniser parses the small part of Lua that these scripts use, checks
//! that a script does only what a lock does, and evaluates it on a [`Store`] of the caller. It
//! refuses all else with a reason. There is no Lua in here: no functions, no globals, no `while`,
//! and a bound on text, depth, calls, keys, steps and bytes.

mod check;
mod expression;
mod guard;
mod library;
mod machine;
mod number;
mod parse;
mod syntax;
#[cfg(test)]
mod tests;
mod token;
mod value;

use std::fmt;

use syntax::Block;

/// Bytes of a text that may be recognised.
const TEXT_BYTES_MAX: usize = 16 * 1024;
/// Tokens of such a text, and so the nodes of its tree.
const TOKENS_MAX: usize = 2048;
/// The steps of a text for each of its bytes, if it is recognised or not.
pub(super) const TEXT_STEPS: usize = 8;

/// A recognised script.
#[derive(Debug)]
pub(super) struct Script {
    block: Block,
    slots: usize,
    class: Class,
}

/// What a script does, by its commands and the conditions that they depend on. A guess from the
/// text: it decides how an evaluation begins, never what is permitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// Deletes the key if it holds the caller's value.
    Release,
    /// Changes the expiry of a key that is held.
    Extend,
    /// Sets the key, and perhaps extends it if the caller holds it already.
    Acquire,
    /// Changes several keys at once.
    Several,
    /// Changes nothing.
    Read,
    /// Deletes the key whatever it holds.
    ForcedRelease,
}

/// Why a text is not a recognised script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Unrecognised {
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

/// What a run came to, and what it took.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) outcome: Result<Reply, Fault>,
    pub(super) steps: usize,
}

/// Why a run gave no reply. What the run changed until then must not take effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fault {
    /// The store ended the run, for example because it lacks a key. The caller may run it again.
    Interrupted,
    /// The run takes too many steps or bytes.
    Limit,
    /// An operation does not fit its values, as Lua would say at run time.
    Type(String),
}

/// The commands that a script calls.
pub(super) trait Store {
    /// Executes a command. Its name is in lower case; there is at least one argument if the text
    /// has a literal count of arguments. A command that fails replies [`Reply::Error`].
    fn call(&mut self, command: &[&[u8]]) -> Result<Reply, Fault>;
}

impl Script {
    /// Recognises a text, or says what it does not understand.
    pub(super) fn recognise(text: &[u8]) -> Result<Self, Unrecognised> {
        if text.len() > TEXT_BYTES_MAX {
            let reason = format!("the script is longer than {TEXT_BYTES_MAX} bytes");
            return Err(Unrecognised::new(1, reason));
        }
        let parsed = parse::parse(&token::tokens(text, TOKENS_MAX)?)?;
        let class = check::check(&parsed.block, parsed.slots)?;
        Ok(Self { block: parsed.block, slots: parsed.slots, class })
    }

    /// What the script does.
    pub(super) fn class(&self) -> Class {
        self.class
    }

    /// Evaluates the script. An error of a command is a reply, not a fault.
    pub(super) fn run(&self, keys: &[&[u8]], args: &[&[u8]], store: &mut dyn Store) -> Run {
        machine::Machine::new(self.slots, keys, args, store).run(&self.block)
    }
}

impl Unrecognised {
    fn new(line: u32, reason: impl Into<String>) -> Self {
        Self { line, reason: reason.into() }
    }
}

impl fmt::Display for Unrecognised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.reason)
    }
}

impl std::error::Error for Unrecognised {}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Interrupted => f.write_str("the run was interrupted"),
            Self::Limit => f.write_str("the script takes too many steps or too much memory"),
            Self::Type(reason) => f.write_str(reason),
        }
    }
}

impl std::error::Error for Fault {}

/// SHA-1 in hex of a text's normal form. Comments, blanks, semicolons, the kind of quotes and the
/// case of command names do not matter. Of a text that is too long or has no tokens of Lua, blanks
/// are folded.
pub(super) fn fingerprint(text: &[u8]) -> String {
    match token::tokens(text, TOKENS_MAX) {
        Ok(tokens) => sha1_hex(&token::normal_form(&tokens)),
        Err(_) => {
            let words: Vec<&[u8]> =
                text.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).collect();
            sha1_hex(&words.join(&b' '))
        }
    }
}

/// SHA-1 in hex of the bytes as they are: the name of a script for EVALSHA.
pub(super) fn sha1_hex(text: &[u8]) -> String {
    sha1_smol::Sha1::from(text).digest().to_string()
}
