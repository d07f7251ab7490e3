//! Redis lock libraries of other languages against a real cell (`tests/redis`).
//!
//! The programs there start the cells and install the libraries under `target/redis`.

use crate::install;
use crate::invocation::{Invocation, cargo};

/// With the profile of the tests, all packages and a test, cargo chooses the same features for all
/// dependencies as it does for the tests, so that these are not built again.
const AS_TESTED: &str = "--profile test --workspace --bin paxoslease --test cli";

/// Unmodified libraries, and their own test suites.
pub(crate) fn run(args: Vec<String>) -> anyhow::Result<()> {
    install::ensure("venv npm redis")?;
    cargo(["build"]).args(AS_TESTED.split_whitespace()).run()?;
    Invocation::new("python3", ["tests/redis/run.py"]).args(args).run()
}
