//! The feature `mutants` lets a test switch a safety rule off, `chaos` lets the environment do so
//! or set the rate of the clock, and `trace` logs every step. The shipped binary must not reach
//! them. Cargo itself resolves the features.

use crate::tidy::Finding;
use crate::tidy::repository::{File, Repository, SHIPPED};

const FORBIDDEN: [&str; 3] = ["mutants", "chaos", "trace"];

/// Each line of the tree is a package, a bar, and its features.
pub(super) fn are_out_of_reach(repository: &Repository) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (number, line) in repository.file(SHIPPED).into_iter().flat_map(File::lines) {
        let (package, features) = line.split_once('|').unwrap_or((line, ""));
        for feature in features.split(',').filter(|feature| FORBIDDEN.contains(feature)) {
            let message = format!("the binary reaches the feature `{feature}` of `{package}`");
            findings.push(Finding::new(SHIPPED, number, message));
        }
    }
    findings
}
