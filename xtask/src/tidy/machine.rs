//! No file of the repository names the machine it was written on, or its source of packages.

use crate::tidy::Finding;
use crate::tidy::repository::{File, Repository};

/// Split, so that this file does not find itself.
const FOLDERS: &[&str] =
    &[concat!("/", "work/"), concat!("/", "root/"), concat!("/", "home/"), concat!("/", "farm/")];
const OUTSIDE: &str = concat!("../", "shared");

/// Words with which a manifest or a configuration points cargo at another registry.
const REDIRECTIONS: &[&str] =
    &["[source", "[registries", "[registry", "replace-with", "registry-index", "registry ="];

const PUBLIC_INDEX: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// No absolute path of one machine, no folder beside the repository, no private registry.
pub(super) fn leaves_no_trace(repository: &Repository) -> Vec<Finding> {
    let lines = |file| File::lines(file).map(move |(number, line)| (file, number, line));
    repository
        .files()
        .flat_map(lines)
        .filter_map(|(file, number, line)| Some(file.finding(number, problem(file, line)?)))
        .collect()
}

fn problem(file: &File, line: &str) -> Option<String> {
    if let Some(folder) = FOLDERS.iter().find(|folder| has_absolute(line, folder)) {
        return Some(format!("a path of one machine: `{folder}`"));
    }
    if line.contains(OUTSIDE) {
        return Some(format!("`{OUTSIDE}` is not part of the repository"));
    }
    let line = line.trim_start();
    if file.path.ends_with("Cargo.lock") {
        let source = line.strip_prefix("source = \"")?.trim_end_matches('"');
        return (source != PUBLIC_INDEX).then(|| format!("not from crates.io: {source}"));
    }
    let configures = file.path.ends_with("Cargo.toml") || file.path.contains(".cargo/");
    let redirection = REDIRECTIONS.iter().find(|word| configures && line.starts_with(**word))?;
    Some(format!("`{redirection}` makes the build depend on a registry of one machine"))
}

/// Whether `folder` stands in `line` as the beginning of a path.
fn has_absolute(line: &str, folder: &str) -> bool {
    line.match_indices(folder).any(|(start, _)| {
        let before = line[..start].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || "._-~})*".contains(c))
    })
}
