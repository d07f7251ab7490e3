//! Subjects of commits: `scope: Verb ..`, short enough for every tool that lists them.

use crate::tidy::Finding;
use crate::tidy::repository::{COMMITS, File, Repository};

const SUBJECT_MAX: usize = 72;

/// Checks every commit since this check was added. A tarball has no history, so nothing is checked.
pub(super) fn have_subjects(repository: &Repository) -> Vec<Finding> {
    let lines = repository.file(COMMITS).into_iter().flat_map(File::lines);
    let finding = |(number, line): (usize, &str)| {
        let (id, subject) = line.split_once(' ')?;
        Some(Finding::new(COMMITS, number, format!("{id} {}", problem(subject)?)))
    };
    lines.filter_map(finding).collect()
}

fn problem(subject: &str) -> Option<String> {
    let len = subject.chars().count();
    if len > SUBJECT_MAX {
        return Some(format!("has {len} characters, at most {SUBJECT_MAX}: {subject}"));
    }
    // As `git revert` writes it.
    let is_revert = subject.starts_with("Revert \"");
    let is_scope = |scope: &str| {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_/, ".contains(c);
        !scope.is_empty() && scope.chars().all(plain)
    };
    let has_verb = |rest: &str| rest.starts_with(|c: char| c.is_ascii_uppercase());
    let is_fine = subject.split_once(": ").is_some_and(|(scope, rest)| {
        is_scope(scope) && has_verb(rest) && rest.split_whitespace().count() > 1
    });
    (!is_fine && !is_revert).then(|| format!("is not `scope: Verb ..`: {subject}"))
}
