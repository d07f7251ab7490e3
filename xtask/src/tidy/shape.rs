//! The shape of the code, where rustfmt and clippy have no rule.

use crate::tidy::Finding;
use crate::tidy::repository::{Repository, numbered};
use crate::tidy::rust::{IN_LITERAL, code, without_tests};

/// A longer file is two ideas.
const LINES_MAX: usize = 700;
const COLUMNS_MAX: usize = 100;

/// ARCHITECTURE.md states this bound.
const PROTOCOL: &str = "crates/paxoslease-core/src/protocol";
const PROTOCOL_LINES_MAX: usize = 2500;

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

/// Clippy finds stubs.
pub(super) fn ignores_no_test(repository: &Repository) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in repository.rust() {
        let code = code(&file.text);
        let ignored = numbered(&code).filter(|(_, line)| line.contains("#[ignore"));
        findings.extend(ignored.map(|(number, _)| file.finding(number, "no test is ignored")));
    }
    findings
}
