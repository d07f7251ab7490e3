//! What an operation evaluates, and how it begins.

use std::sync::Arc;

use super::keys::Keys;
use super::script::{Reply, Run, Script, Store as _};
use super::waiting::Wait;

/// What an operation evaluates.
pub(super) enum Program {
    Command(Vec<Vec<u8>>),
    Script {
        script: Arc<Script>,
        keys: Vec<Vec<u8>>,
        args: Vec<Vec<u8>>,
    },
    /// Deletes the leases with these names.
    Flush(Vec<Vec<u8>>),
    /// Waits until a name is free.
    Wait(Wait),
}

/// The steps of a command for each of its words.
const WORD_STEPS: usize = 64;

impl Program {
    pub(super) fn run(&self, keys: &mut Keys) -> Run {
        match self {
            Self::Command(command) => {
                let steps = WORD_STEPS * command.len();
                let command: Vec<&[u8]> = command.iter().map(Vec::as_slice).collect();
                Run { reply: keys.call(&command), steps }
            }
            Self::Script { script, keys: names, args } => {
                let names: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
                let args: Vec<&[u8]> = args.iter().map(Vec::as_slice).collect();
                script.run(&names, &args, keys)
            }
            Self::Flush(names) => {
                for name in names {
                    keys.call(&[b"del", name]);
                }
                let reply = Reply::Status(b"OK".to_vec());
                Run { reply, steps: WORD_STEPS * names.len() }
            }
            Self::Wait(wait) => Run { reply: wait.run(keys), steps: WORD_STEPS },
        }
    }
}

/// How an operation begins.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum First {
    /// It changes nothing, so a quorum is asked.
    AskQuorum,
    /// It may change what this node's own acceptor stores.
    LookHere,
    /// Its key is free, most likely.
    AssumeFree,
    /// The same, and if the key is held, nothing else about it matters.
    AcquireOrNil,
}

impl First {
    pub(super) fn assumes_free(self) -> bool {
        matches!(self, Self::AssumeFree | Self::AcquireOrNil)
    }

    pub(super) fn is_plain(self) -> bool {
        self == Self::AcquireOrNil
    }
}
