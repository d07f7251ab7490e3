//! Breaks cells of real processes. What is broken and how it is judged is the harness's own
//! (`chaos/`); here is only how it is built and run.
//!
//! The node is built with its test-only knobs, apart from what ships, in a folder of its own.

use std::process::exit;

use crate::install::{Tool, is_root};
use crate::invocation::{Invocation, cargo};

/// Where everything is built; reports go beside it.
const FOLDER: &str = "target/chaos/build";

/// Builds what is needed and runs it; its exit code is ours, as 3 means a violation.
pub(crate) fn run(args: Vec<String>) -> anyhow::Result<()> {
    install()?;
    build().arg("--release").run()?;
    let harness = Invocation::new("target/chaos/build/release/chaos", []);
    match args.into_iter().fold(harness, Invocation::arg).code()? {
        0 => Ok(()),
        code => exit(code),
    }
}

/// Real networks need tools, and root; without, the harness stays on loopback and says so.
fn install() -> anyhow::Result<()> {
    if is_root() {
        Tool::Nftables.ensure()?;
        Tool::Iproute.ensure()?;
    }
    Ok(())
}

/// A short run that must be clean, and one with a rule switched off that must not: for the tests.
pub(crate) fn quick() -> anyhow::Result<()> {
    install()?;
    build().run()?;
    Invocation::new("target/chaos/build/debug/chaos", ["--quick"]).run()
}

fn build() -> Invocation {
    cargo(["build", "-p", "paxoslease-chaos", "-p", "paxoslease-cli"])
        .arg("--features")
        .arg("paxoslease-cli/chaos")
        .arg("--target-dir")
        .arg(FOLDER)
}
