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
    ("is no duration", "is not a valid duration"),
    ("is no majority", "is not a majority"),
    ("are no majority", "are not a majority"),
    ("speak tls", "use TLS"),
    ("speaks tls", "uses TLS, or requires it"),
    ("no trust between", "requires TLS, or access denied"),
    ("that takes a restart", "requires a restart"),
];

/// More of them, for texts that users read: help, manual, documents, and files to deploy.
const PHRASES_FOR_USERS: &[(&str, &str)] = &[
    ("wish", "request"),
    ("nobody", "name the party: no client, no node"),
    ("if not said", "by default"),
    ("unless said", "by default"),
    ("no minority matters", "any minority may fail"),
    ("on the way", "on the request path"),
    ("as a quorum said", "as a majority reported"),
];

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
    // These files have the phrases themselves.
    let is_checked = |path: &str| !path.ends_with("tidy/english.rs") && path != "CONTRIBUTING.md";
    let is_text = |path: &str| path.ends_with(".rs") || path.ends_with(".md") || is_for_users(path);
    for file in repository.files().filter(|file| is_text(&file.path) && is_checked(&file.path)) {
        let more = if is_for_users(&file.path) { PHRASES_FOR_USERS } else { &[] };
        let mut is_test = false;
        for (number, line) in file.lines() {
            let words = words(&line.to_lowercase());
            for (phrase, instead) in PHRASES.iter().chain(more) {
                if words.contains(&format!(" {phrase} ")) {
                    findings.push(file.finding(number, format!("\"{phrase}\": {instead}")));
                }
            }
            if is_public_source(&file.path) && is_doc(line) && line.contains("[`crate::") {
                let message = "rustdoc shows the path of this link; write [`X`](crate::X)";
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
