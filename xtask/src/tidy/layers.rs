//! The layering of ARCHITECTURE.md, read from the manifests.

use crate::tidy::Finding;
use crate::tidy::repository::Repository;

/// A crate, the crates of ours that it may use, tests included, and whether it is pure: no runtime,
/// no ambient clock or randomness, no logging among its own dependencies. `deny.toml` is for the
/// dependencies of dependencies, because it sees the resolved graph.
struct Layer {
    name: &'static str,
    /// Without the prefix `paxoslease-`.
    below: &'static str,
    is_pure: bool,
}

const fn pure(name: &'static str, below: &'static str) -> Layer {
    Layer { name, below, is_pure: true }
}

const fn layer(name: &'static str, below: &'static str) -> Layer {
    Layer { name, below, is_pure: false }
}

const LAYERS: &[Layer] = &[
    pure("paxoslease-core", ""),
    pure("paxoslease-wire", "core"),
    // Proves that both need no std.
    pure("paxoslease-no-std", "core wire"),
    layer("paxoslease-clock", "core"),
    pure("paxoslease-tls", ""),
    pure("paxoslease-trace", "core wire"),
    pure("paxoslease-check", "core"),
    pure("paxoslease-sim", "core wire"),
    layer("paxoslease-holder", "core clock"),
    // Traces are a feature.
    layer("paxoslease-node", "core clock wire holder tls trace"),
    // The crate that users depend on. It has no code.
    layer("paxoslease", "holder client node world"),
    // A client does not depend on a server. The rig is for tests only.
    layer("paxoslease-client", "core clock wire holder rig tls"),
    // The client only for its TLS settings.
    layer("paxoslease-load", "core wire client tls"),
    // The client only in tests.
    layer("paxoslease-server", "core wire node client tls"),
    layer("paxoslease-world", "core clock wire holder sim node client server"),
    layer("paxoslease-cli", EVERY_LIBRARY),
    layer("paxoslease-bench", EVERY_LIBRARY),
    layer("paxoslease-chaos", "core clock wire sim node client rig trace"),
    layer("paxoslease-fuzz", EVERY_LIBRARY),
    layer("paxoslease-fuzz-targets", "fuzz"),
    // Any crate may use it in its tests, because it depends on none of ours.
    layer("paxoslease-rig", ""),
    layer("xtask", ""),
];

const EVERY_LIBRARY: &str = "core clock wire check sim node client load rig server world";

/// Crates with a runtime, a clock, randomness or logging.
const IMPURE: &str =
    "async-std chrono env_logger fastrand getrandom log mio rand smol time tokio tracing";

/// Every dependency on a crate of ours is one the layer allows, tests included.
pub(super) fn point_down(repository: &Repository) -> Vec<Finding> {
    let mut findings = Vec::new();
    for manifest in repository.manifests() {
        let Some(package) = manifest.package() else { continue };
        let Some(layer) = LAYERS.iter().find(|layer| layer.name == package) else {
            let message = format!("`{package}` has no place in xtask/src/tidy/layers.rs");
            findings.push(manifest.file.finding_at("name =", message));
            continue;
        };
        for dependency in manifest.dependencies() {
            let name = dependency.name.as_str();
            let is_ours = LAYERS.iter().any(|layer| layer.name == name) || dependency.is_path;
            let short = name.strip_prefix("paxoslease-").unwrap_or(name);
            if is_ours && name != package && !has_word(layer.below, short) {
                let message = format!("`{package}` must not depend on `{name}`");
                findings.push(manifest.file.finding_at(name, message));
            }
            if layer.is_pure && has_word(IMPURE, name) {
                let message = format!("`{package}` is pure, `{name}` is not");
                findings.push(manifest.file.finding_at(name, message));
            }
        }
    }
    findings
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::repository::found;

    const ROOT: (&str, &str) =
        ("Cargo.toml", "[workspace.dependencies]\npaxoslease-sim = { path = \"sim\" }");

    /// The findings in a manifest of this package.
    fn messages(package: &str, dependencies: &str) -> Vec<String> {
        let text = format!("[package]\nname = \"{package}\"\n{dependencies}");
        found(point_down, &[ROOT, ("crates/x/Cargo.toml", &text)])
    }

    #[test]
    fn a_dependency_that_points_up_is_found() {
        let sim = "[dependencies]\npaxoslease-sim.workspace = true";
        let expected =
            "crates/x/Cargo.toml:4: `paxoslease-core` must not depend on `paxoslease-sim`";
        assert_eq!(messages("paxoslease-core", sim), [expected]);
        let core = "[dependencies]\npaxoslease-core = { path = \"c\" }";
        assert_eq!(messages("paxoslease-wire", core), [""; 0]);
    }

    #[test]
    fn a_runtime_is_found_in_a_pure_crate_even_in_its_tests() {
        let tokio = "[dev-dependencies]\ntokio = \"1\"";
        let expected = "crates/x/Cargo.toml:4: `paxoslease-sim` is pure, `tokio` is not";
        assert_eq!(messages("paxoslease-sim", tokio), [expected]);
        assert_eq!(messages("paxoslease-cli", tokio), [""; 0]);
    }

    #[test]
    fn a_crate_without_a_place_is_found() {
        let found = messages("paxoslease-utils", "");
        assert!(found.len() == 1 && found[0].contains("has no place"), "{found:?}");
    }

    #[test]
    fn a_crate_without_the_lints_is_found_unless_a_workspace() {
        let files = [
            ROOT,
            ("a/Cargo.toml", "[package]\nname = \"a\"\n[lints]\nworkspace = true"),
            ("b/Cargo.toml", "[package]\nname = \"b\""),
            ("fuzz/Cargo.toml", "[package]\nname = \"c\"\n[workspace]"),
        ];
        assert_eq!(
            found(take_the_lints, &files),
            ["b/Cargo.toml:1: lacks `[lints] workspace = true`"]
        );
    }
}
