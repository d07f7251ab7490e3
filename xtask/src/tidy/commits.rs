//! Subjects of commits: `scope: Verb ..`, short enough for every tool that lists them.

use crate::tidy::Finding;
use crate::tidy::repository::{Commit, Repository};

const SUBJECT_MAX: usize = 72;

/// Checks every commit since this check was added. A tarball has no history, so nothing is checked.
pub(super) fn have_subjects(repository: &Repository) -> Vec<Finding> {
    let problem = |commit: &Commit| {
        let message = problem(&commit.subject)?;
        Some(Finding::new(&format!("commit {}", commit.id), 1, message))
    };
    repository.commits().iter().filter_map(problem).collect()
}

fn problem(subject: &str) -> Option<String> {
    let len = subject.chars().count();
    if len > SUBJECT_MAX {
        return Some(format!("{len} characters, at most {SUBJECT_MAX}: {subject}"));
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
    (!is_fine && !is_revert).then(|| format!("expected `scope: Verb ..`: {subject}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_without_scope_or_verb_or_end_are_found() {
        let fine = ["wire: Say what is wrong", "node, client: Share a guard", "Revert \"x: y\""];
        for subject in fine {
            assert_eq!(problem(subject), None, "{subject}");
        }
        let long = format!("wire: Say {}", "x".repeat(SUBJECT_MAX));
        for subject in ["Say what is wrong", "wire: lines", "wire: Lines", "Wire: Say it", &long] {
            assert!(problem(subject).is_some(), "{subject}");
        }
    }

    #[test]
    fn a_finding_names_its_commit() {
        let repository = Repository::of(&[]).with_commit("1234567", "lines");
        let path = |finding: &Finding| finding.path.clone();
        assert_eq!(have_subjects(&repository).first().map(path).as_deref(), Some("commit 1234567"));
        assert_eq!(have_subjects(&Repository::of(&[])), []);
    }
}
