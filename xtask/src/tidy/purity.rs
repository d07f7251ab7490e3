//! Invariant 6: the core does no I/O, reads no clock, draws no ambient randomness, logs nothing.
//! The simulator and the checker follow the same rule, so that a seed determines a whole run.
//!
//! `clippy.toml` forbids clocks, sleep and collections with a random order in every crate, and
//! [`super::layers`] forbids the dependencies that have any of these. The build without std shows
//! that core and codec use no std. What is left here: a pure crate makes no exception. Its binaries
//! may, to tell people how long something took.

use crate::tidy::Finding;
use crate::tidy::repository::{File, Repository};

const PURE: &[&str] = &[
    "crates/paxoslease-core/",
    "crates/paxoslease-wire/",
    "crates/paxoslease-sim/",
    "crates/paxoslease-check/",
];

const EXCEPTION: &str = "clippy::disallowed_";

pub(super) fn makes_no_exception(repository: &Repository) -> Vec<Finding> {
    let is_pure = |file: &&File| PURE.iter().any(|folder| file.path.starts_with(folder));
    let is_binary =
        |file: &File| file.path.ends_with("/src/main.rs") || file.path.contains("/src/bin/");
    let lines = |file| File::lines(file).map(move |(number, line)| (file, number, line));
    let files = repository.rust().filter(is_pure).filter(|file| !is_binary(file));
    files
        .flat_map(lines)
        .filter(|(_, _, line)| line.contains(EXCEPTION))
        .map(|(file, number, _)| file.finding(number, "time and randomness are arguments here"))
        .collect()
}
