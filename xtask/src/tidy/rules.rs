//! The tables of what breaks without each rule, against the switches in the code.

use std::collections::BTreeSet;

use crate::tidy::Finding;
use crate::tidy::markdown::{row, section, spans};
use crate::tidy::repository::Repository;
use crate::tidy::rust::{code, variants};

/// The documents with such a table, and the headings of their sections.
const TABLES: [(&str, &str); 2] = [("docs/protocol.md", "## 8."), ("docs/membership.md", "## 7.")];
const SOURCE: &str = "crates/paxoslease-core/src/rules.rs";

/// Each variant of `Rule` has its row in a table, and each row's last cell names variants.
pub(super) fn stand_in_the_table(repository: &Repository) -> Vec<Finding> {
    let Some(source) = repository.file(SOURCE) else {
        return vec![Finding::new(SOURCE, 1, "the rules are gone")];
    };
    let rules = variants(&code(&source.text), "Rule");
    let known: BTreeSet<&str> = rules.iter().map(|(_, rule)| rule.as_str()).collect();
    let mut named = BTreeSet::new();
    let mut findings = Vec::new();
    for (document, heading) in TABLES {
        let text = repository.file(document).map_or("", |file| &file.text);
        for (number, line) in &section(text, heading) {
            let Some(last) = row(line).and_then(|cells| cells.last().copied()) else { continue };
            for rule in spans(last) {
                named.insert(rule);
                if !known.contains(rule) {
                    let text = format!("`Rule::{rule}` is gone");
                    findings.push(Finding::new(document, *number, text));
                }
            }
        }
    }
    let missing = rules.iter().filter(|(_, rule)| !named.contains(rule.as_str()));
    findings.extend(missing.map(|(line, rule)| {
        let [(protocol, _), (membership, _)] = TABLES;
        let text = format!("`{rule}` is in no table of {protocol} or {membership}");
        Finding::new(SOURCE, *line, text)
    }));
    findings
}
