//! Runs the targets of `fuzz/`, which is a workspace of its own because it needs nightly.

use anyhow::ensure;

use crate::install::Tool;
use crate::invocation::cargo;

/// Every target for `seconds` each; the first crash stops it and names its input.
pub(crate) fn run(seconds: u32) -> anyhow::Result<()> {
    Tool::Nightly.ensure()?;
    Tool::Fuzz.ensure()?;
    let list = cargo(["+nightly", "fuzz", "list"]).stdout()?;
    let targets: Vec<&str> = list.split_whitespace().collect();
    ensure!(!targets.is_empty(), "fuzz/ has no targets");
    for target in &targets {
        cargo(["+nightly", "fuzz", "run", target, "--"])
            .arg(format!("-max_total_time={seconds}"))
            .run()?;
    }
    eprintln!("\n{} targets, {seconds} s each, no crash: {}", targets.len(), targets.join(", "));
    Ok(())
}
