//! The feature `mutants` lets a test switch a safety rule off, `chaos` lets the environment do so
//! or set the rate of the clock, and `trace` logs every step. The shipped binary must not reach
//! them.
//!
//! The check follows the manifests as cargo's resolver does, from the command line down, without
//! development dependencies.

use std::collections::{BTreeMap, BTreeSet};

use crate::tidy::Finding;
use crate::tidy::manifest::{Kind, Manifest};
use crate::tidy::repository::Repository;

const SHIPPED: &str = "paxoslease-cli";
const FORBIDDEN: [&str; 3] = ["mutants", "chaos", "trace"];

/// A feature of a package, as `(package, feature)`.
type Enabled = (String, String);

/// Follows features from the shipped binary. A package with one of these features is a finding.
pub(super) fn are_out_of_reach(repository: &Repository) -> Vec<Finding> {
    let manifests = repository.manifests();
    let packages: BTreeMap<&str, &Manifest<'_>> =
        manifests.iter().filter_map(|manifest| Some((manifest.package()?, manifest))).collect();

    let mut findings = Vec::new();
    let mut seen: BTreeSet<Enabled> = BTreeSet::new();
    let mut queue: Vec<Enabled> = vec![(SHIPPED.to_owned(), "default".to_owned())];
    while let Some((package, feature)) = queue.pop() {
        let Some(manifest) = packages.get(package.as_str()) else { continue };
        if !seen.insert((package.clone(), feature.clone())) {
            continue;
        }
        if FORBIDDEN.contains(&feature.as_str()) {
            let message = format!("`{SHIPPED}` reaches the feature `{feature}` of `{package}`");
            findings.push(manifest.file.finding_at("[features]", message));
        }
        queue.extend(consequences(&package, &feature, manifest));
    }
    findings
}

/// The features that a feature of a package switches on, in it and in its dependencies.
fn consequences(package: &str, feature: &str, manifest: &Manifest<'_>) -> Vec<Enabled> {
    let listed = manifest.feature(feature).into_iter().map(|name| match name.split_once('/') {
        Some((of, name)) => (of.trim_end_matches('?').to_owned(), name.to_owned()),
        None => (package.to_owned(), name.to_owned()),
    });
    let dependencies = manifest.dependencies();
    let shipped = dependencies.iter().filter(|dependency| dependency.kind != Kind::Dev);
    let required = shipped.flat_map(|dependency| {
        let default = dependency.default_features.then(|| "default".to_owned());
        // A dependency with no features at all still has dependencies to follow.
        let features = dependency.features.iter().cloned().chain(default).chain([String::new()]);
        features.map(|feature| (dependency.name.clone(), feature))
    });
    listed.chain(required).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::repository;

    fn found(cli: &str, sim: &str) -> Vec<String> {
        let cli = format!("[package]\nname = \"paxoslease-cli\"\n{cli}");
        let sim = format!("[package]\nname = \"sim\"\n{sim}");
        let root = "[workspace.dependencies]\ncore = { path = \"core\", default-features = false }";
        let core = "[package]\nname = \"core\"\n[features]\nmutants = []";
        let files = [
            ("Cargo.toml", root),
            ("cli/Cargo.toml", &cli),
            ("sim/Cargo.toml", &sim),
            ("core/Cargo.toml", core),
        ];
        repository::found(are_out_of_reach, &files)
    }

    #[test]
    fn a_binary_whose_dependencies_only_test_with_mutants_is_fine() {
        let cli = "[dependencies]\nsim = { path = \"sim\" }";
        let sim = "[features]\nmutants = [\"core/mutants\"]\n[dependencies]\ncore.workspace = true\n\
                   [dev-dependencies]\ncore = { workspace = true, features = [\"mutants\"] }";
        assert_eq!(found(cli, sim), [""; 0]);
    }

    #[test]
    fn mutants_switched_on_by_a_dependency_are_found() {
        let cli = "[dependencies]\nsim = { path = \"sim\", default-features = false }";
        let sim = "[dependencies]\ncore = { workspace = true, features = [\"mutants\"] }";
        let message = "`paxoslease-cli` reaches the feature `mutants` of `core`";
        assert_eq!(found(cli, sim), [format!("core/Cargo.toml:3: {message}")]);
    }

    #[test]
    fn a_clock_that_can_be_set_and_a_node_that_is_traced_are_found() {
        for feature in ["chaos", "trace"] {
            let cli =
                format!("[dependencies]\nsim = {{ path = \"sim\", features = [\"{feature}\"] }}");
            assert_eq!(found(&cli, &format!("[features]\n{feature} = []")).len(), 1);
        }
    }

    #[test]
    fn mutants_behind_another_feature_are_found() {
        let cli = "[dependencies]\nsim = { path = \"sim\" }";
        let sim = "[features]\ndefault = [\"hostile\"]\nhostile = [\"core?/mutants\"]\n\
                   [dependencies]\ncore.workspace = true";
        assert_eq!(found(cli, sim).len(), 1);
    }
}
