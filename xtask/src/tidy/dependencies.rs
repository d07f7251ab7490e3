//! Every dependency has a reason and a user, and nothing that is gone still has a reason.

use std::collections::{BTreeMap, BTreeSet};

use crate::tidy::Finding;
use crate::tidy::manifest::Dependency;
use crate::tidy::markdown::{row, section, spans};
use crate::tidy::repository::Repository;

const DOCUMENT: &str = "CONTRIBUTING.md";
const HEADING: &str = "## Dependencies";

/// The table under "Dependencies" in CONTRIBUTING.md names exactly what the manifests do.
pub(super) fn have_reasons(repository: &Repository) -> Vec<Finding> {
    let reasons = reasons(repository);
    let declared = declared(repository);
    let mut findings = Vec::new();
    for (name, (path, line)) in &declared {
        match reasons.get(name) {
            None => {
                let message = format!("`{name}` has no reason in {DOCUMENT}");
                findings.push(Finding::new(path, *line, message));
            }
            Some((line, reason)) if reason.is_empty() => {
                findings.push(Finding::new(DOCUMENT, *line, format!("`{name}` lacks its reason")));
            }
            Some(_) => {}
        }
    }
    for (name, (line, _)) in &reasons {
        if !declared.contains_key(name) {
            findings.push(Finding::new(DOCUMENT, *line, format!("`{name}` is used no more")));
        }
    }
    findings
}

/// What the workspace offers and no crate takes.
pub(super) fn have_users(repository: &Repository) -> Vec<Finding> {
    let Some(root) = repository.workspace() else { return Vec::new() };
    let offered = root.workspace_dependencies();
    let manifests = repository.manifests();
    let used: BTreeSet<String> = manifests
        .iter()
        .flat_map(|manifest| manifest.dependencies(&offered))
        .map(|dependency| dependency.name)
        .collect();
    let unused = offered.iter().filter(|dependency| !used.contains(&dependency.name));
    unused
        .map(|Dependency { name, .. }| {
            Finding::new(
                &root.file.path,
                root.file.line_of(name),
                format!("no crate uses `{name}`"),
            )
        })
        .collect()
}

/// Packages of others, with the place that names them first.
fn declared(repository: &Repository) -> BTreeMap<String, (String, usize)> {
    let offered =
        repository.workspace().map(|root| root.workspace_dependencies()).unwrap_or_default();
    let mut declared = BTreeMap::new();
    for manifest in repository.manifests() {
        let own = manifest.dependencies(&offered);
        for dependency in manifest.workspace_dependencies().into_iter().chain(own) {
            if !dependency.is_path {
                let place = (manifest.file.path.clone(), manifest.file.line_of(&dependency.name));
                declared.entry(dependency.name).or_insert(place);
            }
        }
    }
    declared
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

#[cfg(test)]
mod tests {
    use super::*;

    fn found(contributing: &str, member: &str) -> Vec<String> {
        let root = "[workspace.dependencies]\nours = { path = \"x\" }\nclap = \"4\"";
        let repository = Repository::of(&[
            ("CONTRIBUTING.md", contributing),
            ("Cargo.toml", root),
            ("a/Cargo.toml", member),
        ]);
        have_reasons(&repository).iter().map(ToString::to_string).collect()
    }

    const HEAD: &str = "## Dependencies\n| name | reason |\n|---|---|\n";

    #[test]
    fn a_dependency_without_a_reason_is_found() {
        assert_eq!(found(HEAD, ""), ["Cargo.toml:3: `clap` has no reason in CONTRIBUTING.md"]);
        let empty = format!("{HEAD}| `clap` | |");
        assert_eq!(found(&empty, ""), ["CONTRIBUTING.md:4: `clap` lacks its reason"]);
    }

    #[test]
    fn a_dependency_of_one_crate_alone_needs_a_reason_too() {
        let table = format!("{HEAD}| `clap` | options |");
        let found = found(&table, "[dev-dependencies]\nlibfuzzer-sys = \"0.4\"");
        assert_eq!(found, ["a/Cargo.toml:2: `libfuzzer-sys` has no reason in CONTRIBUTING.md"]);
    }

    #[test]
    fn a_dependency_nobody_uses_is_found() {
        let repository = |member| {
            let root = "[workspace.dependencies]\nours = { path = \"x\" }\nclap = \"4\"";
            Repository::of(&[("Cargo.toml", root), ("a/Cargo.toml", member)])
        };
        let member = "[dependencies]\nours.workspace = true\n";
        let expected = [Finding::new("Cargo.toml", 3, "no crate uses `clap`")];
        assert_eq!(have_users(&repository(member)), expected);
        let member = format!("{member}[dev-dependencies]\nclap.workspace = true");
        assert_eq!(have_users(&repository(&member)), []);
    }

    #[test]
    fn a_reason_for_what_is_gone_is_found() {
        let table = format!("{HEAD}| `clap` | options |\n| `rand` | dice |");
        let expected = ["CONTRIBUTING.md:5: `rand` is used no more"];
        assert_eq!(found(&table, "[dependencies]\nclap.workspace = true"), expected);
    }
}
