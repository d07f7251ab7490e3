//! Breaks cells of real processes. What is broken and how it is judged is the harness's own
//! (`chaos/`); here is only how it is built and run.
//!
//! The node is built with its test-only knobs, which no build that ships has.

use std::process::exit;

use crate::install::{Tool, is_root};
use crate::invocation::{Invocation, cargo};

/// Builds what is needed and runs it; its exit code is ours, as 3 means a violation.
pub(crate) fn run(args: Vec<String>) -> anyhow::Result<()> {
    install()?;
    // A folder of its own: nobody must take this build for one that ships.
    // What makes the shipped binary a little faster would make this build a lot slower.
    let build = build("target/chaos/build").arg("--release");
    let build = build.arg("--config").arg("profile.release.lto=false");
    build.arg("--config").arg("profile.release.codegen-units=16").run()?;
    let harness = Invocation::new("target/chaos/build/release/chaos", []);
    match args.into_iter().fold(harness, Invocation::arg).code()? {
        0 => Ok(()),
        code => exit(code),
    }
}

/// A short run that must be clean, and one with a rule switched off that must not: for the tests,
/// in the profile of which they have built most already.
pub(crate) fn quick() -> anyhow::Result<()> {
    install()?;
    build("target").arg("--profile").arg("test").run()?;
    Invocation::new("target/debug/chaos", ["--quick"]).run()
}

/// Real networks need tools, and root; without, the harness stays on loopback and says so.
fn install() -> anyhow::Result<()> {
    if is_root() {
        Tool::Nftables.ensure()?;
        Tool::Iproute.ensure()?;
    }
    Ok(())
}

fn build(folder: &str) -> Invocation {
    cargo(["build", "-p", "paxoslease-chaos", "-p", "paxoslease-cli"])
        .arg("--features")
        .arg("paxoslease-cli/chaos,paxoslease-cli/trace")
        .arg("--target-dir")
        .arg(folder)
}
