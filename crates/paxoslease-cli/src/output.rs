//! Writing where somebody may have stopped reading: `paxoslease sim | head` is no error.

use std::io::{self, ErrorKind, Write as _};

/// Data for people and programs.
pub(crate) fn to_stdout(text: &str) -> io::Result<()> {
    bytes_to_stdout(text.as_bytes())
}

pub(crate) fn bytes_to_stdout(bytes: &[u8]) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// Everything else. There is nowhere left to report that this failed.
pub(crate) fn to_stderr(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}
