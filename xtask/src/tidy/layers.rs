//! The layering of ARCHITECTURE.md, read from the manifests.

use crate::tidy::Finding;
use crate::tidy::repository::Repository;

/// For each crate, the crates of ours that it may use.
const LAYERS: &str = include_str!("layers.txt");

/// Whether the crate has no runtime, no ambient clock or randomness, and no logging among its own
/// dependencies. `deny.toml` is for the dependencies of dependencies, because it sees the resolved
/// graph.
const PURE: &str = "(pure)";

/// Crates with a runtime, a clock, randomness or logging.
const IMPURE: &str =
    "async-std chrono env_logger fastrand getrandom log mio rand smol time tokio tracing";

/// Every dependency on a crate of ours is one the layer allows, tests included.
pub(super) fn point_down(repository: &Repository) -> Vec<Finding> {
    let mut findings = Vec::new();
    for manifest in repository.manifests() {
        let Some(package) = manifest.package() else { continue };
        let Some(allowed) = below(package) else {
            let message = format!("`{package}` has no place in xtask/src/tidy/layers.txt");
            findings.push(manifest.file.finding_at("name =", message));
            continue;
        };
        for dependency in manifest.dependencies() {
            let name = dependency.name.as_str();
            let is_ours = below(name).is_some() || dependency.is_path;
            let short = name.strip_prefix("paxoslease-").unwrap_or(name);
            if is_ours && name != package && !has_word(allowed, short) {
                let message = format!("`{package}` must not depend on `{name}`");
                findings.push(manifest.file.finding_at(name, message));
            }
            if has_word(allowed, PURE) && has_word(IMPURE, name) {
                let message = format!("`{package}` is pure, `{name}` is not");
                findings.push(manifest.file.finding_at(name, message));
            }
        }
    }
    findings
}

/// The words after the name of a crate.
fn below(package: &str) -> Option<&'static str> {
    let mut layers = LAYERS.lines().filter_map(|line| line.split_once(':'));
    layers.find(|(name, _)| *name == package).map(|(_, below)| below)
}

fn has_word(words: &str, wanted: &str) -> bool {
    words.split(' ').any(|word| word == wanted)
}

/// `unsafe_code = "forbid"` and the other lints apply only where they are inherited.
pub(super) fn take_the_lints(repository: &Repository) -> Vec<Finding> {
    let manifests = repository.manifests();
    let members = manifests.iter().filter(|manifest| !manifest.is_workspace());
    members
        .filter(|manifest| !manifest.inherits_lints())
        .map(|manifest| manifest.file.finding(1, "lacks `[lints] workspace = true`"))
        .collect()
}
