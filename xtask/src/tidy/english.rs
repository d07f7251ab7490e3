//! Plain English: phrases that a reader has to read twice, and the words of our own.

use std::collections::BTreeSet;

use crate::tidy::Finding;
use crate::tidy::markdown::{row, section, spans};
use crate::tidy::repository::Repository;

/// Each phrase to avoid, and what to write instead.
const PHRASES: &str = include_str!("phrases.txt");

/// The phrases after this line are for texts that users read.
const FOR_USERS: &str = "# For texts that users read";

/// Phrases with what to write instead, one per line. Comments begin with `#`.
fn phrases(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once(": "))
}

/// Whether users read this file, and it is not Rust.
fn is_for_users(path: &str) -> bool {
    const FOLDERS: [&str; 4] = [
        "deploy/",
        "docs/",
        "crates/paxoslease-cli/src/args/help/",
        "crates/paxoslease-cli/src/args/manual/",
    ];
    const ENDINGS: [&str; 6] = [".md", ".json", ".txt", ".toml", ".yml", ".yaml"];
    let is_text = ENDINGS.iter().any(|ending| path.ends_with(ending));
    is_text && (!path.contains('/') || FOLDERS.iter().any(|folder| path.starts_with(folder)))
}

/// Test names state a truth in at most this many characters.
const TEST_NAME_MAX: usize = 60;

/// No banned phrase and no long test name, in Rust, in documents and in other texts for users.
pub(super) fn is_plain(repository: &Repository) -> Vec<Finding> {
    let mut findings = Vec::new();
    let (everywhere, _) = PHRASES.split_once(FOR_USERS).expect("both lists are there");
    // CONTRIBUTING.md has the phrases themselves.
    let is_checked = |path: &str| path != "CONTRIBUTING.md";
    let is_text = |path: &str| path.ends_with(".rs") || path.ends_with(".md") || is_for_users(path);
    for file in repository.files().filter(|file| is_text(&file.path) && is_checked(&file.path)) {
        let list = if is_for_users(&file.path) { PHRASES } else { everywhere };
        let avoided: Vec<_> = phrases(list).collect();
        let mut is_test = false;
        for (number, line) in file.lines() {
            let words = words(&line.to_lowercase());
            for (phrase, instead) in &avoided {
                if words.contains(&format!(" {phrase} ")) {
                    findings.push(file.finding(number, format!("\"{phrase}\": {instead}")));
                }
            }
            if is_public_source(&file.path) && is_doc(line) && line.contains("[`crate::") {
                let message = "rustdoc shows the path of this link; write [`X`](crate::X)";
                findings.push(file.finding(number, message.to_owned()));
            }
            if is_public_source(&file.path) && shows_part(line) {
                let message = "users have the crate `paxoslease` only; import from it, and hide what \
                               stands for it in a line that begins with `#`";
                findings.push(file.finding(number, message.to_owned()));
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

/// Whether the documentation of a file is that of the crate `paxoslease`.
fn is_public_source(path: &str) -> bool {
    const CRATES: [&str; 5] = ["", "-client", "-holder", "-node", "-world"];
    CRATES.iter().any(|name| path.starts_with(&format!("crates/paxoslease{name}/src/")))
}

/// Whether an example shows a crate that users do not depend on.
fn shows_part(line: &str) -> bool {
    const PARTS: [&str; 4] = ["client::", "holder::", "node::", "world::"];
    let example = line.trim_start().get(3..).unwrap_or_default().trim_start();
    let is_hidden = example.starts_with("# ");
    let names_part = PARTS.iter().any(|part| line.contains(&format!("paxoslease_{part}")));
    is_doc(line) && !is_hidden && names_part
}

fn is_doc(line: &str) -> bool {
    let line = line.trim_start();
    line.starts_with("///") || line.starts_with("//!")
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
