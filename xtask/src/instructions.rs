//! Holds the instructions of the hot paths against their record, `bench/instructions.toml`.
//!
//! What is counted and how it is compared is the benchmark's own; here is only how it is run, the
//! same for people and in the tests. No verdict is about time; what comes by the clock moves two of
//! the counts a little, well within the tolerance.

use crate::install::Tool;
use crate::invocation::{Invocation, cargo};

/// What has to be there to count.
pub(crate) const TOOL: Tool = Tool::Valgrind;

/// Counts and compares. The profile is that of what ships.
pub(crate) fn command() -> Invocation {
    cargo(["run", "--release", "-p", "paxoslease-bench", "--bin", "instructions", "--"])
}

/// Compares, or records instead, or shows where the instructions of one path go.
pub(crate) fn run(record: bool, show: Option<String>) -> anyhow::Result<()> {
    TOOL.ensure()?;
    let command = if record { command().arg("--record") } else { command() };
    show.into_iter().fold(command, |command, path| command.arg("--show").arg(path)).run()
}
