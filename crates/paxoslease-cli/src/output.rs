//! Writes to stdout and stderr. A closed stdout is not an error: `paxoslease sim | head`.

use std::io::{self, ErrorKind, Write as _};

use anyhow::Context as _;

/// Writes data, for people or programs.
pub(crate) fn to_stdout(text: &str) -> anyhow::Result<()> {
    bytes_to_stdout(text.as_bytes())
}

pub(crate) fn bytes_to_stdout(bytes: &[u8]) -> anyhow::Result<()> {
    more_to_stdout(bytes).map(|_is_read| ())
}

/// Writes a part of the data. Returns whether stdout is still open.
pub(crate) fn more_to_stdout(bytes: &[u8]) -> anyhow::Result<bool> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        written => written.map(|()| true).context("cannot write to stdout"),
    }
}

/// Writes everything else. A failure cannot be reported anywhere.
pub(crate) fn to_stderr(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// A number for people, with commas between groups of three digits.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_groups_of_three_digits() {
        let numbers = [0, 999, 1_000, 12_345_678];
        assert_eq!(numbers.map(grouped), ["0", "999", "1,000", "12,345,678"]);
    }
}
