//! Invariant 6: the core does no I/O, reads no clock, draws no ambient randomness, logs nothing.
//!
//! The simulator and the checker follow the same rule, so that a seed determines a whole run. Their
//! binaries may read a clock to tell people how long something took.

use crate::tidy::Finding;
use crate::tidy::repository::{File, Repository, numbered};
use crate::tidy::rust::{code, has_word, without_tests};

const CORE: &str = "crates/paxoslease-core/";
const PURE: &[&str] =
    &[CORE, "crates/paxoslease-wire/", "crates/paxoslease-sim/", "crates/paxoslease-check/"];

/// Words that use something that is not an argument.
const AMBIENT: &[(&str, &str)] = &[
    ("Instant::now", "time is an argument"),
    ("SystemTime", "time is an argument"),
    ("thread_rng", "randomness is seeded"),
    ("rand::", "randomness is seeded"),
    ("getrandom", "randomness is seeded"),
    ("RandomState", "its order differs in every process"),
    ("thread::sleep", "time is virtual"),
    ("tokio", "no runtime here"),
];

/// Words that the core must not use outside its tests.
const CORE_ONLY: &[(&str, &str)] = &[
    ("std::", "the core is no_std"),
    ("extern crate std", "the core is no_std"),
    ("println!", "the core logs nothing"),
    ("eprintln!", "the core logs nothing"),
    ("log::", "the core logs nothing"),
    ("tracing::", "the core logs nothing"),
];

/// The core has the attribute `no_std`.
pub(super) fn core_is_no_std(repository: &Repository) -> Vec<Finding> {
    let path = format!("{CORE}src/lib.rs");
    let is_no_std = repository
        .file(&path)
        .is_some_and(|file| code(&file.text).lines().any(|line| line.trim() == "#![no_std]"));
    if is_no_std { Vec::new() } else { vec![Finding::new(&path, 1, "lacks `#![no_std]`")] }
}

/// No clock, no randomness, no random order; in the core no `std` and no output either.
pub(super) fn hold(repository: &Repository) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in repository.rust() {
        if !PURE.iter().any(|folder| file.path.starts_with(folder)) || is_binary(file) {
            continue;
        }
        let all = code(&file.text);
        findings.extend(forbidden(file, &all, AMBIENT));
        findings.extend(std_hashing(file, &all));
        if file.path.starts_with(CORE) && !is_test(file) {
            findings.extend(forbidden(file, &without_tests(&all), CORE_ONLY));
        }
    }
    findings
}

fn forbidden(file: &File, code: &str, words: &[(&str, &str)]) -> Vec<Finding> {
    numbered(code)
        .flat_map(|(number, line)| words.iter().map(move |word| (number, line, word)))
        .filter(|(_, line, (word, _))| has_word(line, word))
        .map(|(number, _, (word, why))| file.finding(number, format!("`{word}`: {why}")))
        .collect()
}

/// `HashMap` alone may be hashbrown's; with `std::collections` in the same statement it is not.
fn std_hashing(file: &File, code: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (start, _) in code.match_indices("std::collections") {
        let statement = code[start..].split(';').next().unwrap_or_default();
        if has_word(statement, "HashMap") || has_word(statement, "HashSet") {
            let number = code[..start].matches('\n').count() + 1;
            let message = "std's hashed collections: their order differs in every process";
            findings.push(file.finding(number, message));
        }
    }
    findings
}

fn is_binary(file: &File) -> bool {
    file.path.ends_with("/src/main.rs") || file.path.contains("/src/bin/")
}

fn is_test(file: &File) -> bool {
    ["/tests/", "/benches/", "/examples/"].iter().any(|folder| file.path.contains(folder))
        || file.path.ends_with("tests.rs")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::repository;

    fn found(path: &str, text: &str) -> Vec<String> {
        repository::found(hold, &[(path, text)])
    }

    #[test]
    fn a_core_with_std_is_found() {
        let path = format!("{CORE}src/lib.rs");
        let lib = |text| repository::found(core_is_no_std, &[(&path, text)]);
        assert_eq!(lib("//! Docs.\n#![no_std]\n"), [""; 0]);
        assert_eq!(lib("// #![no_std]\n").len(), 1);
        assert_eq!(lib("#![cfg_attr(not(test), no_std)]").len(), 1);
    }

    #[test]
    fn a_clock_in_the_simulator_is_found_even_in_its_tests() {
        let text = "#[cfg(test)]\nmod tests {\n    fn f() { Instant::now(); }\n}";
        let path = "crates/paxoslease-sim/src/world.rs";
        assert_eq!(found(path, text), [format!("{path}:3: `Instant::now`: time is an argument")]);
        assert_eq!(found(path, "/// Not `Instant::now`.\nfn f() {}"), [""; 0]);
        assert_eq!(found("crates/paxoslease-cli/src/sim.rs", text), [""; 0]);
        assert_eq!(found("crates/paxoslease-check/src/main.rs", text), [""; 0]);
    }

    #[test]
    fn ambient_randomness_and_random_order_are_found() {
        let path = "crates/paxoslease-check/src/search.rs";
        assert_eq!(found(path, "let x = rand::random();").len(), 1);
        assert_eq!(found(path, "use std::collections::{\n    BTreeMap, HashMap,\n};").len(), 1);
        assert_eq!(found(path, "let m: std::collections::HashSet<u8>;").len(), 1);
        let fine = "use std::collections::BTreeMap;\nuse hashbrown::HashMap;";
        assert_eq!(found(path, fine), [""; 0]);
    }

    #[test]
    fn std_in_the_core_is_found_outside_its_tests_only() {
        let path = "crates/paxoslease-core/src/acceptor.rs";
        assert_eq!(found(path, "use std::vec::Vec;").len(), 1);
        assert_eq!(found(path, "extern crate std;").len(), 1);
        assert_eq!(found(path, "fn f() { println!(); }").len(), 1);
        assert_eq!(found(path, "#[cfg(test)]\nextern crate std;"), [""; 0]);
        assert_eq!(found("crates/paxoslease-core/tests/paper.rs", "use std::fmt;"), [""; 0]);
    }
}
