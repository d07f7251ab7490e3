//! Versions that are written in more than one place.

use crate::tidy::Finding;
use crate::tidy::manifest::Manifest;
use crate::tidy::repository::Repository;

/// The README and the workspace's own dependencies say what the root manifest says.
pub(super) fn agree(repository: &Repository) -> Vec<Finding> {
    let Some(root) = repository.workspace() else { return Vec::new() };
    let mut findings = own_dependencies(&root);
    let Some(readme) = repository.file("README.md") else { return findings };
    let facts = [
        ("Rust ", root.string(&["workspace", "package", "rust-version"])),
        ("version ", root.string(&["workspace", "package", "version"])),
    ];
    for (number, line) in readme.lines() {
        for (word, version) in facts {
            let Some(version) = version else { continue };
            for said in versions_after(line, word).filter(|said| *said != version) {
                let message = format!("says {word}{said}, Cargo.toml says {version}");
                findings.push(Finding::new(&readme.path, number, message));
            }
        }
    }
    findings
}

fn own_dependencies(root: &Manifest<'_>) -> Vec<Finding> {
    let Some(version) = root.string(&["workspace", "package", "version"]) else {
        return Vec::new();
    };
    let offered = root.workspace_dependencies();
    let ours = offered.iter().filter(|dependency| dependency.is_path);
    ours.filter(|dependency| dependency.version.as_deref().is_some_and(|said| said != version))
        .map(|dependency| {
            let message = format!("`{}` is version {version}", dependency.name);
            Finding::new(&root.file.path, root.file.line_of(&dependency.name), message)
        })
        .collect()
}

/// What looks like a version after each `word` of a line.
fn versions_after<'a>(line: &'a str, word: &str) -> impl Iterator<Item = &'a str> {
    line.match_indices(word).filter_map(move |(start, _)| {
        let rest = &line[start + word.len()..];
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let version = rest[..end].trim_end_matches('.');
        version.contains('.').then_some(version)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(readme: &str, dependencies: &str) -> Vec<String> {
        let root = format!(
            "[workspace.package]\nversion = \"0.2.0\"\nrust-version = \"1.95\"\n\
             [workspace.dependencies]\n{dependencies}"
        );
        agree(&Repository::of(&[("Cargo.toml", &root), ("README.md", readme)]))
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn a_readme_that_lags_behind_is_found() {
        assert_eq!(
            found("Needs Rust 1.94.", ""),
            ["README.md:1: says Rust 1.94, Cargo.toml says 1.95"]
        );
        assert_eq!(
            found("\nversion 0.1.0", ""),
            ["README.md:2: says version 0.1.0, Cargo.toml says 0.2.0"]
        );
        assert_eq!(found("Rust 1.95 and version 0.2.0, in Rust itself", ""), [""; 0]);
    }

    #[test]
    fn a_crate_of_ours_asked_for_in_another_version_is_found() {
        let line = "x = { path = \"x\", version = \"0.1.0\" }\ny = \"1\"";
        assert_eq!(found("", line), ["Cargo.toml:5: `x` is version 0.2.0"]);
    }
}
