//! Every dependency has a reason and a user, nothing that is gone still has a reason, and versions
//! that are written in several places agree.

use std::collections::{BTreeMap, BTreeSet};

use crate::tidy::Finding;
use crate::tidy::manifest::Manifest;
use crate::tidy::markdown::{row, section, spans};
use crate::tidy::repository::Repository;

const DOCUMENT: &str = "CONTRIBUTING.md";
const HEADING: &str = "## Dependencies";

/// The table under "Dependencies" in CONTRIBUTING.md names exactly what the manifests do.
pub(super) fn have_reasons(repository: &Repository) -> Vec<Finding> {
    let reasons = reasons(repository);
    let mut declared = BTreeSet::new();
    let mut findings = Vec::new();
    for manifest in repository.manifests() {
        let all = manifest.workspace_dependencies().into_iter().chain(manifest.dependencies());
        for name in all.filter(|dependency| !dependency.is_path).map(|dependency| dependency.name) {
            if !declared.insert(name.clone()) {
                continue;
            }
            match reasons.get(&name) {
                None => {
                    let message = format!("`{name}` has no reason in {DOCUMENT}");
                    findings.push(manifest.file.finding_at(&name, message));
                }
                Some((line, reason)) if reason.is_empty() => {
                    let message = format!("`{name}` lacks its reason");
                    findings.push(Finding::new(DOCUMENT, *line, message));
                }
                Some(_) => {}
            }
        }
    }
    let gone = reasons.iter().filter(|(name, _)| !declared.contains(*name));
    findings.extend(gone.map(|(name, (line, _))| {
        Finding::new(DOCUMENT, *line, format!("`{name}` is not used any more"))
    }));
    findings
}

/// Every dependency that the workspace offers is used by a crate.
pub(super) fn have_users(repository: &Repository) -> Vec<Finding> {
    let Some(root) = repository.workspace() else { return Vec::new() };
    let manifests = repository.manifests();
    let used = manifests.iter().flat_map(Manifest::dependencies);
    let used: BTreeSet<String> = used.map(|dependency| dependency.name).collect();
    let offered = root.workspace_dependencies().into_iter().map(|dependency| dependency.name);
    let unused = offered.filter(|name| !used.contains(name));
    unused.map(|name| root.file.finding_at(&name, format!("no crate uses `{name}`"))).collect()
}

/// Rows whose first cell is a code span: its text, and the last cell.
fn reasons(repository: &Repository) -> BTreeMap<String, (usize, String)> {
    let Some(file) = repository.file(DOCUMENT) else { return BTreeMap::new() };
    let rows = section(&file.text, HEADING).into_iter().filter_map(|(number, line)| {
        let cells = row(line)?;
        let name = spans(cells.first()?).next()?;
        Some((name.to_owned(), (number, (*cells.last()?).to_owned())))
    });
    rows.collect()
}

/// The README and the workspace's own dependencies have the versions of the root manifest. Our
/// crates have no stable interface, so they fit only crates of exactly the same version.
pub(super) fn agree(repository: &Repository) -> Vec<Finding> {
    let Some(root) = repository.workspace() else { return Vec::new() };
    let version = root.string(&["workspace", "package", "version"]).unwrap_or_default();
    let rust = root.string(&["workspace", "package", "rust-version"]).unwrap_or_default();
    let exactly = format!("={version}");
    let mut findings = Vec::new();
    for dependency in root.workspace_dependencies().iter().filter(|dependency| dependency.is_path) {
        if dependency.version.as_deref().is_some_and(|said| said != exactly) {
            let name = &dependency.name;
            findings.push(root.file.finding_at(name, format!("`{name}` is version {exactly}")));
        }
    }
    let Some(readme) = repository.file("README.md") else { return findings };
    for (number, line) in readme.lines() {
        for (word, version) in [("Rust ", rust), ("version ", version)] {
            for said in versions_after(line, word).filter(|said| *said != version) {
                let message = format!("says {word}{said}, Cargo.toml says {version}");
                findings.push(readme.finding(number, message));
            }
        }
    }
    findings
}

/// The text that looks like a version after each `word` of a line.
fn versions_after<'a>(line: &'a str, word: &str) -> impl Iterator<Item = &'a str> {
    line.match_indices(word).filter_map(move |(start, _)| {
        let rest = &line[start + word.len()..];
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let version = rest[..end].trim_end_matches('.');
        version.contains('.').then_some(version)
    })
}
