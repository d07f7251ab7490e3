//! Transcripts: text files of commands, each with its expected output below.

use std::fs;
use std::path::Path;

/// With this variable in the environment, [`check_transcript`] rewrites the file and never fails.
const UPDATE: &str = "UPDATE_TRANSCRIPTS";

/// Runs the commands of a transcript, and compares their output with the expected output.
///
/// Blank lines and lines that begin with `#` are comments. Lines that begin with two spaces are
/// expected output of the command above them; blank lines of an output are left out. In expected
/// output `[..]` stands for any text within a line, and the line `...` for any number of lines.
///
/// # Panics
/// When an output differs. The message has the comment, the command and both outputs.
pub fn check_transcript(path: &Path, mut run: impl FnMut(&str) -> String) {
    let old = fs::read_to_string(path);
    let old = old.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let (mut new, mut problems, mut comment) = (String::new(), String::new(), String::new());
    let mut lines = old.lines().peekable();
    while let Some(line) = lines.next() {
        new += &format!("{line}\n");
        if line.is_empty() {
            comment.clear();
            continue;
        }
        if line.starts_with('#') {
            comment += &format!("{line}\n");
            continue;
        }
        let next_expected = || lines.next_if(|line| line.starts_with("  ")).map(str::trim_start);
        let expected: Vec<&str> = std::iter::from_fn(next_expected).collect();
        let output = run(line);
        let actual = output.lines().map(str::trim).filter(|line| !line.is_empty());
        let actual: Vec<&str> = actual.collect();
        let is_expected = matches_lines(&expected, &actual);
        for line in if is_expected { &expected } else { &actual } {
            new += &format!("  {line}\n");
        }
        if !is_expected {
            let (expected, actual) = (expected.join("\n  "), actual.join("\n  "));
            problems +=
                &format!("{comment}{line}\n expected:\n  {expected}\n actual:\n  {actual}\n\n");
        }
    }
    if std::env::var_os(UPDATE).is_some() {
        fs::write(path, new).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        return;
    }
    let place = path.display();
    assert!(problems.is_empty(), "{place}; {UPDATE}=1 rewrites it:\n{problems}");
}

fn matches_lines(expected: &[&str], actual: &[&str]) -> bool {
    match (expected, actual) {
        ([], []) => true,
        (["...", expected @ ..], _) => {
            (0..=actual.len()).any(|skipped| matches_lines(expected, &actual[skipped..]))
        }
        ([first, expected @ ..], [line, actual @ ..]) => {
            matches_line(first, line) && matches_lines(expected, actual)
        }
        _ => false,
    }
}

fn matches_line(expected: &str, actual: &str) -> bool {
    let mut parts = expected.split("[..]");
    let Some(mut rest) = parts.next().and_then(|first| actual.strip_prefix(first)) else {
        return false;
    };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        let Some((_, after)) = rest.split_once(part) else { return false };
        rest = after;
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_stand_for_text_and_for_lines() {
        for (expected, actual, is_match) in [
            (&[][..], &[][..], true),
            (&["a"], &["a"], true),
            (&["a"], &["a", "b"], false),
            (&["a [..] c"], &["a b c"], true),
            (&["a [..]c[..]"], &["a b d"], false),
            (&["[..]ab[..]b"], &["xab"], false),
            (&["...", "c"], &["a", "b", "c"], true),
            (&["a", "..."], &["a"], true),
            (&["...", "c"], &["a", "b"], false),
        ] {
            assert_eq!(matches_lines(expected, actual), is_match, "{expected:?} {actual:?}");
        }
    }
}
