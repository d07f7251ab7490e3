//! The protocol's table of what breaks without each rule, against the switches in the code.

use std::collections::BTreeSet;

use crate::tidy::Finding;
use crate::tidy::markdown::{row, section, spans};
use crate::tidy::repository::Repository;
use crate::tidy::rust::{code, variants};

const DOCUMENT: &str = "docs/protocol.md";
const HEADING: &str = "## 8.";
const SOURCE: &str = "crates/paxoslease-core/src/rules.rs";

/// Each variant of `Rule` has its row in section 8, and each row's last cell names variants.
pub(super) fn stand_in_the_table(repository: &Repository) -> Vec<Finding> {
    let Some(source) = repository.file(SOURCE) else {
        return vec![Finding::new(SOURCE, 1, "the rules are gone")];
    };
    let rules = variants(&code(&source.text), "Rule");
    let known: BTreeSet<&str> = rules.iter().map(|(_, rule)| rule.as_str()).collect();
    let document = repository.file(DOCUMENT).map_or("", |file| &file.text);
    let rows = section(document, HEADING);
    let mut named = BTreeSet::new();
    let mut findings = Vec::new();
    for (number, line) in &rows {
        let Some(last) = row(line).and_then(|cells| cells.last().copied()) else { continue };
        for rule in spans(last) {
            named.insert(rule);
            if !known.contains(rule) {
                findings.push(Finding::new(DOCUMENT, *number, format!("`Rule::{rule}` is gone")));
            }
        }
    }
    let missing = rules.iter().filter(|(_, rule)| !named.contains(rule.as_str()));
    findings.extend(missing.map(|(line, rule)| {
        Finding::new(SOURCE, *line, format!("`{rule}` is not in section 8 of {DOCUMENT}"))
    }));
    findings
}
