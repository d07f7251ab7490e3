//! What rustfmt and clippy leave open about the shape of the code.

use crate::tidy::Finding;
use crate::tidy::repository::{Repository, numbered};
use crate::tidy::rust::{IN_LITERAL, code, has_word};

/// A longer file is two ideas.
const LINES_MAX: usize = 700;
const COLUMNS_MAX: usize = 100;

const STUBS: &[&str] = &["todo!", "unimplemented!", "dbg!", "#[ignore"];

/// Lengths of files and lines. Literals and addresses may be longer: rustfmt cannot break them.
pub(super) fn keeps_its_size(repository: &Repository) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in repository.rust() {
        let count = file.lines().count();
        if count > LINES_MAX {
            let message = format!("{count} lines, at most {LINES_MAX}: split it by idea");
            findings.push(Finding::new(&file.path, LINES_MAX + 1, message));
        }
        let code = code(&file.text);
        for ((number, line), code) in file.lines().zip(code.lines()) {
            let literal = code.chars().filter(|&c| c == IN_LITERAL).count();
            let columns = line.chars().count();
            if columns - literal > COLUMNS_MAX && !line.contains("://") {
                let message = format!("{columns} columns, at most {COLUMNS_MAX}");
                findings.push(Finding::new(&file.path, number, message));
            }
        }
    }
    findings
}

/// Nothing half done, no test that does not run.
pub(super) fn has_no_stubs(repository: &Repository) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in repository.rust() {
        for (number, line) in numbered(&code(&file.text)) {
            for stub in STUBS.iter().filter(|stub| has_word(line, stub)) {
                findings.push(Finding::new(
                    &file.path,
                    number,
                    format!("`{stub}` has no place here"),
                ));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(text: &str) -> Vec<Finding> {
        keeps_its_size(&Repository::of(&[("a.rs", text)]))
    }

    #[test]
    fn long_files_and_lines_are_found() {
        assert_eq!(sizes(&"x\n".repeat(LINES_MAX)), []);
        assert_eq!(sizes(&"x\n".repeat(LINES_MAX + 1)).len(), 1);
        assert_eq!(sizes(&format!("y\n{}", "x".repeat(COLUMNS_MAX + 1)))[0].line, 2);
        assert_eq!(sizes(&format!("// {}", "x ".repeat(COLUMNS_MAX))).len(), 1);
        assert_eq!(sizes(&"ä".repeat(COLUMNS_MAX)), [], "columns are characters");
    }

    #[test]
    fn what_cannot_be_broken_may_be_long() {
        assert_eq!(sizes(&format!("f(\"{}\")", "x".repeat(COLUMNS_MAX))), []);
        assert_eq!(sizes(&format!("// https://example.org/{}", "x".repeat(COLUMNS_MAX))), []);
    }

    #[test]
    fn stubs_and_ignored_tests_are_found() {
        for stub in ["todo!()", "unimplemented!()", "dbg!(x)", "#[ignore]", "#[ignore = \"slow\"]"]
        {
            let repository = Repository::of(&[("a.rs", stub)]);
            assert_eq!(has_no_stubs(&repository).len(), 1, "{stub}");
        }
        let fine = Repository::of(&[("a.rs", "// no todo!() here\nlet x = \"dbg!\";")]);
        assert_eq!(has_no_stubs(&fine), []);
    }
}
