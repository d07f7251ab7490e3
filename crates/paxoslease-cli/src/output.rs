//! Writing where somebody may have stopped reading: `paxoslease sim | head` is no error.

use std::io::{self, ErrorKind, Write as _};

use anyhow::Context as _;

/// Data for people and programs.
pub(crate) fn to_stdout(text: &str) -> anyhow::Result<()> {
    bytes_to_stdout(text.as_bytes())
}

pub(crate) fn bytes_to_stdout(bytes: &[u8]) -> anyhow::Result<()> {
    more_to_stdout(bytes).map(|_is_read| ())
}

/// A part of more to come; says whether anybody still reads.
pub(crate) fn more_to_stdout(bytes: &[u8]) -> anyhow::Result<bool> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        written => written.map(|()| true).context("cannot write to stdout"),
    }
}

/// Everything else. There is nowhere left to report that this failed.
pub(crate) fn to_stderr(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}
