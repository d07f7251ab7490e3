//! The tools that a task needs beside the compiler. A missing tool is installed.
//!
//! Versions are not pinned: these tools check the code and are not part of it.

use anyhow::{Context, ensure};

use crate::invocation::Invocation;

/// Each tool, the command that finds it, and the one that installs it.
const TOOLS: &str = include_str!("tools.txt");

/// Needs root.
const APT: &str = "apt-get";

/// Installs those of these tools that are missing. Their names are separated by spaces.
pub(crate) fn ensure(tools: &'static str) -> anyhow::Result<()> {
    for tool in tools.split_whitespace() {
        let (probe, remedy) = commands(tool).with_context(|| format!("unknown tool `{tool}`"))?;
        if probe.succeeds() {
            continue;
        }
        let missing = || format!("a tool is missing: `{probe}` fails");
        ensure!(!remedy.runs(APT) || is_root(), "{}; as root:\n  {remedy}", missing());
        remedy.run().with_context(missing)?;
    }
    Ok(())
}

fn commands(tool: &str) -> Option<(Invocation, Invocation)> {
    let mut rows = TOOLS.lines().filter_map(|line| line.split_once(" | "));
    let (_, commands) = rows.find(|(name, _)| *name == tool)?;
    let (probe, remedy) = commands.split_once(" | ")?;
    Some((Invocation::typed(probe), Invocation::typed(remedy)))
}

/// True if it is unknown: then the installation itself fails.
pub(crate) fn is_root() -> bool {
    Invocation::new("id", ["-u"]).stdout().map_or(true, |id| id.trim() == "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tool_of_a_task_can_be_installed() {
        let steps = crate::test::steps().into_iter().map(|step| step.tools);
        let sources = [
            include_str!("main.rs"),
            include_str!("fuzz.rs"),
            include_str!("chaos.rs"),
            include_str!("package.rs"),
            include_str!("python.rs"),
            include_str!("redis.rs"),
        ];
        let calls = sources.iter().flat_map(|source| source.split("install::ensure(\"").skip(1));
        let tools = calls.filter_map(|call| call.split('"').next()).chain(steps);
        let tools: Vec<&str> = tools.flat_map(str::split_whitespace).collect();
        assert!(["deny", "fuzz", "iproute", "s3"].iter().all(|tool| tools.contains(tool)));
        assert!(tools.iter().all(|tool| commands(tool).is_some()), "{tools:?}");
    }
}
