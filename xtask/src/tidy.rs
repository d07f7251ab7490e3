//! Facts about this repository that neither the compiler nor clippy nor cargo-deny checks.
//!
//! Each check is a function from the repository's files to findings, independent of the others. The
//! transcripts beside it have made-up repositories that break its rule.

mod commands;
mod commits;
mod dependencies;
mod english;
mod layers;
mod links;
mod machine;
mod manifest;
mod markdown;
mod mutants;
mod packages;
mod purity;
mod repository;
mod rules;
mod rust;
mod shape;

use std::fmt;

use anyhow::bail;

use crate::tidy::repository::Repository;

/// A fact that does not hold, and where, in a form that editors understand.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Finding {
    path: String,
    line: usize,
    message: String,
}

impl Finding {
    fn new(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.message)
    }
}

type Check = fn(&Repository) -> Vec<Finding>;

const CHECKS: &[(&str, Check)] = &[
    ("dependencies between crates point down only", layers::point_down),
    ("every crate takes the workspace's lints", layers::take_the_lints),
    ("no shipped binary can switch a rule off", mutants::are_out_of_reach),
    ("pure crates make no exception", purity::makes_no_exception),
    ("every dependency has its reason", dependencies::have_reasons),
    ("every dependency has its user", dependencies::have_users),
    ("documented commands exist", commands::exist),
    ("relative links lead somewhere", links::lead_somewhere),
    ("every rule stands in the protocol's table", rules::stand_in_the_table),
    ("published crates say what they are", packages::are_complete),
    ("the Debian package has the documents", packages::have_documents),
    ("versions agree", dependencies::agree),
    ("nothing of one machine", machine::leaves_no_trace),
    ("files and lines keep their size", shape::keeps_its_size),
    ("the protocol stays small", shape::keeps_the_protocol_small),
    ("no test is ignored", shape::ignores_no_test),
    ("plain English in the revised folders", english::is_plain),
    ("the glossary names what exists", english::glossary_exists),
    ("subjects of commits say scope and verb", commits::have_subjects),
];

/// Checks everything and shows every finding, not only the first.
pub(crate) fn run() -> anyhow::Result<()> {
    let repository = Repository::load()?;
    let mut findings = Vec::new();
    for (fact, check) in CHECKS {
        let found = check(&repository);
        eprintln!("{} {fact}", if found.is_empty() { "  ok " } else { "FAIL " });
        findings.extend(found);
    }
    findings.sort();
    for finding in &findings {
        eprintln!("{finding}");
    }
    match findings.len() {
        0 => Ok(()),
        count => bail!("tidy: {count} findings; to repeat it:\n  cargo xtask tidy"),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use super::*;

    /// `path = text` makes a file, in which `\n` begins a new line and `{x * 3}` is three times x.
    /// Any other command is a check.
    fn played(files: &mut BTreeMap<String, String>, command: &str) -> String {
        if let Some((path, text)) = command.split_once(" = ") {
            files.insert(path.to_owned(), written(text));
            return String::new();
        }
        let (_, check) = CHECKS.iter().find(|(fact, _)| *fact == command).expect("a check");
        check(&Repository::of(files)).iter().map(|found| format!("{found}\n")).collect()
    }

    fn written(text: &str) -> String {
        let repeated = |part: &str| {
            let (text, count) = part.rsplit_once(" * ")?;
            Some(text.repeat(count.parse().ok()?))
        };
        let mut out = String::new();
        for part in text.replace("\\n", "\n").split_inclusive(['{', '}']) {
            match part.strip_suffix('}').and_then(repeated) {
                Some(many) => {
                    out.pop();
                    out += &many;
                }
                None => out += part,
            }
        }
        out
    }

    #[test]
    fn checks_find_what_breaks_their_rule_and_nothing_else() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tidy/transcripts");
        let mut checked = 0;
        for file in std::fs::read_dir(folder).expect("the transcripts") {
            let mut files = BTreeMap::new();
            let path = file.expect("a transcript").path();
            paxoslease_rig::check_transcript(&path, |command| played(&mut files, command));
            checked += 1;
        }
        assert_eq!(checked, 12);
    }
}
