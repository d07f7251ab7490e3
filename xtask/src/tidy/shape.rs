//! The shape of the code, where rustfmt and clippy have no rule.

use crate::tidy::Finding;
use crate::tidy::repository::{Repository, numbered};
use crate::tidy::rust::{IN_LITERAL, code, has_word, without_tests};

/// A longer file is two ideas.
const LINES_MAX: usize = 700;
const COLUMNS_MAX: usize = 100;

/// ARCHITECTURE.md states this bound.
const PROTOCOL: &str = "crates/paxoslease-core/src/protocol";
const PROTOCOL_LINES_MAX: usize = 2500;

const STUBS: &[&str] = &["todo!", "unimplemented!", "dbg!", "#[ignore"];

/// Lengths of files and lines. Literals and addresses may be longer: rustfmt cannot break them.
pub(super) fn keeps_its_size(repository: &Repository) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in repository.rust() {
        let count = file.lines().count();
        if count > LINES_MAX {
            let message = format!("{count} lines, at most {LINES_MAX}: split it by idea");
            findings.push(file.finding(LINES_MAX + 1, message));
        }
        let code = code(&file.text);
        for ((number, line), code) in file.lines().zip(code.lines()) {
            let literal = code.chars().filter(|&c| c == IN_LITERAL).count();
            let columns = line.chars().count();
            if columns - literal > COLUMNS_MAX && !line.contains("://") {
                let message = format!("{columns} columns, at most {COLUMNS_MAX}");
                findings.push(file.finding(number, message));
            }
        }
    }
    findings
}

/// The protocol proper has few lines, not counting blank lines, comments and tests.
pub(super) fn keeps_the_protocol_small(repository: &Repository) -> Vec<Finding> {
    let mut count = 0;
    for file in repository.rust().filter(|file| file.path.starts_with(PROTOCOL)) {
        let code = without_tests(&code(&file.text));
        count += code.lines().filter(|line| !line.trim().is_empty()).count();
    }
    if count <= PROTOCOL_LINES_MAX {
        return Vec::new();
    }
    let message = format!("{count} lines of code, at most {PROTOCOL_LINES_MAX}");
    vec![Finding::new(PROTOCOL, 1, message)]
}

/// Nothing half done, no test that does not run.
pub(super) fn has_no_stubs(repository: &Repository) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in repository.rust() {
        for (number, line) in numbered(&code(&file.text)) {
            for stub in STUBS.iter().filter(|stub| has_word(line, stub)) {
                findings.push(file.finding(number, format!("`{stub}` has no place here")));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::repository::found;

    fn sizes(text: &str) -> Vec<String> {
        found(keeps_its_size, &[("a.rs", text)])
    }

    #[test]
    fn long_files_and_lines_are_found() {
        assert_eq!(sizes(&"x\n".repeat(LINES_MAX)), [""; 0]);
        assert_eq!(sizes(&"x\n".repeat(LINES_MAX + 1)).len(), 1);
        assert!(sizes(&format!("y\n{}", "x".repeat(COLUMNS_MAX + 1)))[0].starts_with("a.rs:2"));
        assert_eq!(sizes(&format!("// {}", "x ".repeat(COLUMNS_MAX))).len(), 1);
        assert_eq!(sizes(&"ä".repeat(COLUMNS_MAX)), [""; 0], "columns are characters");
    }

    #[test]
    fn what_cannot_be_broken_may_be_long() {
        assert_eq!(sizes(&format!("f(\"{}\")", "x".repeat(COLUMNS_MAX))), [""; 0]);
        assert_eq!(sizes(&format!("// https://example.org/{}", "x".repeat(COLUMNS_MAX))), [""; 0]);
    }

    #[test]
    fn a_protocol_with_too_much_code_is_found() {
        let count = |lines: usize| {
            let code = "x;\n\n// y\n".repeat(lines);
            let text = format!("{code}#[cfg(test)]\nmod tests {{\n    fn f() {{}}\n}}\n");
            let path = format!("{PROTOCOL}/round.rs");
            found(keeps_the_protocol_small, &[(&path, &text), ("other.rs", &text)]).len()
        };
        assert_eq!([count(PROTOCOL_LINES_MAX), count(PROTOCOL_LINES_MAX + 1)], [0, 1]);
    }

    #[test]
    fn stubs_and_ignored_tests_are_found() {
        for stub in ["todo!()", "unimplemented!()", "dbg!(x)", "#[ignore]", "#[ignore = \"slow\"]"]
        {
            assert_eq!(found(has_no_stubs, &[("a.rs", stub)]).len(), 1, "{stub}");
        }
        let fine = "// no todo!() here\nlet x = \"dbg!\";";
        assert_eq!(found(has_no_stubs, &[("a.rs", fine)]), [""; 0]);
    }
}
