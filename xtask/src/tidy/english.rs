//! Plain English: phrases that a reader has to read twice, and the words of our own.

use std::collections::BTreeSet;

use crate::tidy::Finding;
use crate::tidy::markdown::{row, section, spans};
use crate::tidy::repository::Repository;

/// Each phrase to avoid, and what to write instead.
const PHRASES: &[(&str, &str)] = &[
    ("whoever", "name the party: the client, the node, the caller"),
    ("somebody", "name the party: another client, a peer, an operator"),
    ("anybody", "name the party: any client, any node"),
    ("but for", "except"),
    ("by and by", "gradually"),
    ("so many", "that many, or a name for the number"),
    ("for want of", "because .. lacks"),
    ("makes no sense", "is not valid"),
    ("is no frame", "is not a valid frame"),
    ("is no error", "is not an error"),
    ("the name is none", "the name is not valid"),
];

/// Test names state a truth in at most this many characters.
const TEST_NAME_MAX: usize = 60;

/// No banned phrase and no long test name, in Rust and in documents.
pub(super) fn is_plain(repository: &Repository) -> Vec<Finding> {
    let mut findings = Vec::new();
    // These files have the phrases themselves.
    let is_checked = |path: &str| !path.ends_with("tidy/english.rs") && path != "CONTRIBUTING.md";
    let files = repository.rust().chain(repository.markdown());
    for file in files.filter(|file| is_checked(&file.path)) {
        let mut is_test = false;
        for (number, line) in file.lines() {
            let words = words(&line.to_lowercase());
            for (phrase, instead) in PHRASES {
                if words.contains(&format!(" {phrase} ")) {
                    findings.push(file.finding(number, format!("\"{phrase}\": {instead}")));
                }
            }
            let name =
                line.trim_start().strip_prefix("fn ").and_then(|rest| rest.split('(').next());
            if let Some(name) = name.filter(|name| is_test && name.len() > TEST_NAME_MAX) {
                let message = format!("`{name}` has more than {TEST_NAME_MAX} characters");
                findings.push(file.finding(number, message));
            }
            is_test = line.trim_start().starts_with("#[") && (is_test || line.contains("#[test]"));
        }
    }
    findings
}

/// The words of a line, with one space around each.
fn words(line: &str) -> String {
    let separate = |c: char| if c.is_alphanumeric() || c == '_' { c } else { ' ' };
    let spaced: String = line.chars().map(separate).collect();
    format!(" {} ", spaced.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Every type in the last column of the glossary is defined somewhere.
pub(super) fn glossary_exists(repository: &Repository) -> Vec<Finding> {
    let Some(file) = repository.file("CONTRIBUTING.md") else { return Vec::new() };
    let lines = repository.rust().flat_map(|file| file.text.lines());
    let defined: BTreeSet<&str> = lines.flat_map(defined_types).collect();
    let mut findings = Vec::new();
    for (number, line) in section(&file.text, "## Glossary") {
        let place = row(line).and_then(|cells| cells.last().copied()).unwrap_or_default();
        for name in spans(place).filter(|name| !defined.contains(name)) {
            findings.push(file.finding(number, format!("no type is called `{name}`")));
        }
    }
    findings
}

/// The names after `struct`, `enum` and `trait` in a line.
fn defined_types(line: &str) -> impl Iterator<Item = &str> {
    let mut is_next = false;
    let words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.filter(|word| !word.is_empty()).filter(move |word| {
        std::mem::replace(&mut is_next, ["struct", "enum", "trait"].contains(word))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::repository::found;

    fn findings(path: &str, text: &str) -> Vec<String> {
        found(is_plain, &[(path, text)])
    }

    #[test]
    fn banned_phrases_are_found() {
        let path = "crates/paxoslease-wire/src/lib.rs";
        for text in ["/// Whoever asks.", "// all, but for one", "let x = \"somebody else\";"] {
            assert_eq!(findings(path, text).len(), 1, "{text}");
        }
        assert_eq!(findings(path, "// It is not a valid frame.\nfn whoever_asks() {}"), [""; 0]);
        assert_eq!(findings("docs/a.md", "Whoever asks.").len(), 1);
    }

    #[test]
    fn long_test_names_are_found() {
        let (path, long) = ("crates/paxoslease-cli/tests/a.rs", "x".repeat(TEST_NAME_MAX + 1));
        assert_eq!(findings(path, &format!("#[test]\n#[cfg(unix)]\nfn {long}() {{}}")).len(), 1);
        assert_eq!(findings(path, &format!("fn {long}() {{}}")), [""; 0], "it is not a test");
    }

    #[test]
    fn a_glossary_entry_without_its_type_is_found() {
        let text = "## Glossary\n\n| term | meaning | where |\n|---|---|---|\n\
                    | a | x | core, `Here` |\n| b | x | core, `Gone` |\n";
        let files = [("CONTRIBUTING.md", text), ("a.rs", "pub struct Here<'a>(&'a str);")];
        let found = found(glossary_exists, &files);
        assert_eq!(found, ["CONTRIBUTING.md:6: no type is called `Gone`"]);
    }
}
