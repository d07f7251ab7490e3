//! The layering of ARCHITECTURE.md, read from the manifests.

use crate::tidy::Finding;
use crate::tidy::repository::Repository;

/// What stands where: a crate, which of ours it may use, and whether it is pure: no runtime, no
/// ambient clock or randomness, no logging among its own dependencies. What those bring along in
/// turn is for `deny.toml`, which sees the resolved graph.
struct Layer {
    name: &'static str,
    below: &'static [&'static str],
    pure: bool,
}

const LAYERS: &[Layer] = &[
    Layer { name: "paxoslease-core", below: &[], pure: true },
    Layer { name: "paxoslease-wire", below: &["paxoslease-core"], pure: true },
    // Proves that both need no std.
    Layer { name: "paxoslease-no-std", below: &["paxoslease-core", "paxoslease-wire"], pure: true },
    Layer { name: "paxoslease-clock", below: &["paxoslease-core"], pure: false },
    Layer { name: "paxoslease-tls", below: &[], pure: true },
    Layer { name: "paxoslease-trace", below: &["paxoslease-core", "paxoslease-wire"], pure: true },
    Layer { name: "paxoslease-check", below: &["paxoslease-core"], pure: true },
    Layer { name: "paxoslease-sim", below: &["paxoslease-core", "paxoslease-wire"], pure: true },
    Layer {
        name: "paxoslease-holder",
        below: &["paxoslease-core", "paxoslease-clock"],
        pure: false,
    },
    // The simulator's checkers judge the node's own tests.
    Layer { name: "paxoslease-node", below: BELOW_THE_NODE, pure: false },
    // One name for users; no code of its own.
    Layer { name: "paxoslease", below: BELOW_THE_FACADE, pure: false },
    // A client never sees a server.
    Layer { name: "paxoslease-client", below: BELOW_THE_CLIENT, pure: false },
    // Only for how a client speaks TLS.
    Layer { name: "paxoslease-load", below: BELOW_THE_LOAD, pure: false },
    Layer { name: "paxoslease-server", below: BELOW_THE_SERVER, pure: false },
    Layer { name: "paxoslease-cli", below: EVERY_LIBRARY, pure: false },
    Layer { name: "paxoslease-bench", below: EVERY_LIBRARY, pure: false },
    Layer { name: "paxoslease-chaos", below: BELOW_CHAOS, pure: false },
    Layer { name: "paxoslease-fuzz", below: EVERY_LIBRARY, pure: false },
    Layer { name: "paxoslease-fuzz-targets", below: &["paxoslease-fuzz"], pure: false },
    // Any crate may use it in its tests: it knows none of ours.
    Layer { name: "paxoslease-rig", below: &[], pure: false },
    Layer { name: "xtask", below: &[], pure: false },
];

const TLS: &str = "paxoslease-tls";
// Only with the feature of that name.
const TRACE: &str = "paxoslease-trace";

const BELOW_THE_NODE: &[&str] = &[
    "paxoslease-core",
    "paxoslease-clock",
    "paxoslease-wire",
    "paxoslease-holder",
    "paxoslease-sim",
    TLS,
    TRACE,
];

// The rig in tests only.
const BELOW_THE_CLIENT: &[&str] = &[
    "paxoslease-core",
    "paxoslease-clock",
    "paxoslease-wire",
    "paxoslease-holder",
    "paxoslease-rig",
    TLS,
];

const BELOW_THE_FACADE: &[&str] = &["paxoslease-holder", "paxoslease-client", "paxoslease-node"];

const BELOW_THE_LOAD: &[&str] = &["paxoslease-core", "paxoslease-wire", "paxoslease-client", TLS];

// The client is seen by the server's tests only: neither is any use without the other.
const BELOW_THE_SERVER: &[&str] =
    &["paxoslease-core", "paxoslease-wire", "paxoslease-node", "paxoslease-client", TLS];

const BELOW_CHAOS: &[&str] = &[
    "paxoslease-core",
    "paxoslease-clock",
    "paxoslease-wire",
    "paxoslease-sim",
    "paxoslease-node",
    "paxoslease-client",
    "paxoslease-rig",
    TRACE,
];

const EVERY_LIBRARY: &[&str] = &[
    "paxoslease-core",
    "paxoslease-clock",
    "paxoslease-wire",
    "paxoslease-check",
    "paxoslease-sim",
    "paxoslease-node",
    "paxoslease-client",
    "paxoslease-load",
    "paxoslease-rig",
    "paxoslease-server",
];

/// Crates that bring a runtime, a clock, randomness or logging.
const IMPURE: &[&str] = &[
    "async-std",
    "chrono",
    "env_logger",
    "fastrand",
    "getrandom",
    "log",
    "mio",
    "rand",
    "smol",
    "time",
    "tokio",
    "tracing",
];

/// Every dependency on a crate of ours is one the layer allows, tests included.
pub(super) fn point_down(repository: &Repository) -> Vec<Finding> {
    let offered =
        repository.workspace().map(|root| root.workspace_dependencies()).unwrap_or_default();
    let mut findings = Vec::new();
    for manifest in repository.manifests() {
        let Some(package) = manifest.package() else { continue };
        let at = |needle: &str, message: String| {
            Finding::new(&manifest.file.path, manifest.file.line_of(needle), message)
        };
        let Some(layer) = LAYERS.iter().find(|layer| layer.name == package) else {
            let message = format!("`{package}` has no place in xtask/src/tidy/layers.rs");
            findings.push(at("name =", message));
            continue;
        };
        for dependency in manifest.dependencies(&offered) {
            let name = dependency.name.as_str();
            let ours = LAYERS.iter().any(|layer| layer.name == name) || dependency.is_path;
            if ours && name != package && !layer.below.contains(&name) {
                findings.push(at(name, format!("`{package}` must not depend on `{name}`")));
            }
            if layer.pure && IMPURE.contains(&name) {
                findings.push(at(name, format!("`{package}` is pure, `{name}` is not")));
            }
        }
    }
    findings
}

/// `unsafe_code = "forbid"` and its companions hold only where they are inherited.
pub(super) fn take_the_lints(repository: &Repository) -> Vec<Finding> {
    let manifests = repository.manifests();
    let members = manifests.iter().filter(|manifest| !manifest.is_workspace());
    members
        .filter(|manifest| !manifest.inherits_lints())
        .map(|manifest| Finding::new(&manifest.file.path, 1, "lacks `[lints] workspace = true`"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: (&str, &str) =
        ("Cargo.toml", "[workspace.dependencies]\npaxoslease-sim = { path = \"sim\" }");

    fn messages(manifest: &str) -> Vec<String> {
        let repository = Repository::of(&[ROOT, ("crates/x/Cargo.toml", manifest)]);
        point_down(&repository).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_dependency_that_points_up_is_found() {
        let core = "[package]\nname = \"paxoslease-core\"\n[dependencies]\n";
        let found = messages(&format!("{core}paxoslease-sim.workspace = true"));
        let expected =
            "crates/x/Cargo.toml:4: `paxoslease-core` must not depend on `paxoslease-sim`";
        assert_eq!(found, [expected]);
        let wire = "[package]\nname = \"paxoslease-wire\"\n[dependencies]\n";
        assert_eq!(messages(&format!("{wire}paxoslease-core = {{ path = \"c\" }}")), [""; 0]);
    }

    #[test]
    fn a_runtime_is_found_in_a_pure_crate_even_in_its_tests_but_not_above() {
        let tokio = "[dev-dependencies]\ntokio = \"1\"";
        let sim = messages(&format!("[package]\nname = \"paxoslease-sim\"\n{tokio}"));
        assert_eq!(sim, ["crates/x/Cargo.toml:4: `paxoslease-sim` is pure, `tokio` is not"]);
        assert_eq!(messages(&format!("[package]\nname = \"paxoslease-cli\"\n{tokio}")), [""; 0]);
    }

    #[test]
    fn a_crate_without_a_place_is_found() {
        let found = messages("[package]\nname = \"paxoslease-utils\"");
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("has no place"), "{found:?}");
    }

    #[test]
    fn a_crate_that_leaves_the_lints_is_found_unless_it_is_a_workspace_of_its_own() {
        let repository = Repository::of(&[
            ROOT,
            ("a/Cargo.toml", "[package]\nname = \"a\"\n[lints]\nworkspace = true"),
            ("b/Cargo.toml", "[package]\nname = \"b\""),
            ("fuzz/Cargo.toml", "[package]\nname = \"c\"\n[workspace]"),
        ]);
        let found = take_the_lints(&repository);
        assert_eq!(found, [Finding::new("b/Cargo.toml", 1, "lacks `[lints] workspace = true`")]);
    }
}
