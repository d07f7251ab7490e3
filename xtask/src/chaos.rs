//! Builds and runs the chaos harness (`chaos/`), with a node that has test-only knobs, which no
//! shipped build has.

use crate::install;
use crate::invocation::{Invocation, cargo};

/// Builds a node in a folder of its own, apart from shipped ones, and runs the harness.
/// The exit code is 3 after a violation.
pub(crate) fn run(args: Vec<String>) -> anyhow::Result<()> {
    install_tools()?;
    // Optimisation across crates would make the build much slower and the node hardly faster.
    let quick = ["profile.release.lto=false", "profile.release.codegen-units=16"];
    let options = quick.iter().flat_map(|setting| ["--config", *setting]);
    let packages = ["-p", "paxoslease-chaos", "-p", "paxoslease-cli"];
    let folder = ["--target-dir", "target/chaos/build", "--release"];
    build().args(packages).args(folder).args(options).run()?;
    Invocation::new("target/chaos/build/release/chaos", []).args(args).run_or_exit()
}

/// A short run without violations, and one with a rule switched off that must have some.
pub(crate) fn quick() -> anyhow::Result<()> {
    install_tools()?;
    build().args(AS_TESTED.split_whitespace()).run()?;
    Invocation::new("target/debug/chaos", ["--quick"]).run()
}

/// With the profile of the tests, all packages and a test, cargo chooses the same features for all
/// dependencies as it does for the tests, so that these are not built again.
const AS_TESTED: &str = "--profile test --workspace --bin chaos --bin chaos-client --bin paxoslease \
                         --test real_cell";

/// Network namespaces need tools and root. Without root the harness uses loopback.
fn install_tools() -> anyhow::Result<()> {
    if install::is_root() { install::ensure("nftables iproute") } else { Ok(()) }
}

fn build() -> Invocation {
    cargo(["build", "--features", "paxoslease-cli/chaos,paxoslease-cli/trace"])
}
