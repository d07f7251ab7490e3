//! The files under version control, and what git and cargo tell, read once; checks see only this.

use std::fs;

use crate::invocation::{Invocation, cargo, repository_root};
use crate::tidy::Finding;
use crate::tidy::manifest::Manifest;

/// All that the checks read.
pub(super) struct Repository {
    files: Vec<File>,
}

/// The path of a list that is not a file: commits since subjects are checked, id and subject.
pub(super) const COMMITS: &str = "git log";
/// The path of a list that is not a file: the packages of the shipped binary with their features.
pub(super) const SHIPPED: &str = "cargo tree";

/// The check of subjects begins with the commit that added this file.
const CHECK_OF_SUBJECTS: &str = "xtask/src/tidy/commits.rs";

/// One text file; `path` is relative to the root, with `/` between its parts.
pub(super) struct File {
    pub(super) path: String,
    pub(super) text: String,
}

impl Repository {
    /// All files that git does not ignore, tracked or not.
    pub(super) fn load() -> anyhow::Result<Self> {
        let listing = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
        let list = Invocation::new("git", listing).stdout()?;
        let mut files: Vec<File> = list
            .split_terminator('\0')
            // A deleted file that is still in the index, and a file that is not text, is skipped.
            .filter_map(|path| {
                let text = fs::read_to_string(repository_root().join(path)).ok()?;
                Some(File { path: path.to_owned(), text })
            })
            .collect();
        files.sort_by(|a, b| a.path.cmp(&b.path));
        files.push(File { path: COMMITS.to_owned(), text: commits().unwrap_or_default() });
        files.push(File { path: SHIPPED.to_owned(), text: shipped()? });
        Ok(Self { files })
    }

    /// A made-up one.
    #[cfg(test)]
    pub(super) fn of(files: &std::collections::BTreeMap<String, String>) -> Self {
        let file =
            |(path, text): (&String, &String)| File { path: path.clone(), text: text.clone() };
        Self { files: files.iter().map(file).collect() }
    }

    pub(super) fn files(&self) -> impl Iterator<Item = &File> {
        self.files.iter()
    }

    pub(super) fn file(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }

    /// Whether a file or folder under version control has this path.
    pub(super) fn has(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        let below = format!("{path}/");
        path.is_empty()
            || self.files().any(|file| file.path == path || file.path.starts_with(&below))
    }

    pub(super) fn rust(&self) -> impl Iterator<Item = &File> {
        self.files().filter(|file| file.path.ends_with(".rs"))
    }

    pub(super) fn markdown(&self) -> impl Iterator<Item = &File> {
        self.files().filter(|file| file.path.ends_with(".md"))
    }

    /// The packages' manifests. One that does not parse is left out: cargo itself complains first.
    pub(super) fn manifests(&self) -> Vec<Manifest<'_>> {
        let root = self.workspace();
        let offered = root.map(|root| root.workspace_dependencies()).unwrap_or_default();
        self.files()
            .filter(|file| file.path.ends_with("Cargo.toml"))
            .filter_map(|file| Manifest::of(file, &offered))
            .collect()
    }

    /// The root manifest.
    pub(super) fn workspace(&self) -> Option<Manifest<'_>> {
        self.file("Cargo.toml").and_then(|file| Manifest::of(file, &[]))
    }
}

/// The commits after the one that added the check of subjects; fails where there is no history.
fn commits() -> anyhow::Result<String> {
    let added = ["log", "--diff-filter=A", "--format=%H", "--", CHECK_OF_SUBJECTS];
    let added = Invocation::new("git", added).stdout()?;
    let Some(base) = added.lines().last() else { return Ok(String::new()) };
    let since = ["log", "--no-merges", "--format=%h %s", &format!("{base}..HEAD")];
    Invocation::new("git", since).stdout()
}

/// A line for each package: its name, a bar, and its features.
fn shipped() -> anyhow::Result<String> {
    let of = ["tree", "--locked", "--package", "paxoslease-cli", "--edges", "normal,build"];
    let tree = cargo(of).args(["--prefix", "none", "--no-dedupe", "--format", "{p} |{f}"]);
    let line = |line: &str| {
        let (package, features) = (line.split(' ').next()?, line.rsplit('|').next()?);
        Some(format!("{package}|{features}\n"))
    };
    let mut lines: Vec<String> = tree.stdout()?.lines().filter_map(line).collect();
    lines.sort();
    lines.dedup();
    Ok(lines.concat())
}

impl File {
    /// Lines with their numbers, from 1.
    pub(super) fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        numbered(&self.text)
    }

    pub(super) fn finding(&self, line: usize, message: impl Into<String>) -> Finding {
        Finding { path: self.path.clone(), line, message: message.into() }
    }

    /// A finding at the first line with `needle`, or at line 1.
    pub(super) fn finding_at(&self, needle: &str, message: impl Into<String>) -> Finding {
        let mut lines = self.lines();
        let line = lines.find(|(_, line)| line.contains(needle)).map_or(1, |(number, _)| number);
        self.finding(line, message)
    }
}

/// Lines with their numbers, from 1.
pub(super) fn numbered(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().map(|(index, line)| (index + 1, line))
}
