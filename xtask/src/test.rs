//! The steps that a change must pass. The first failure stops the run and shows the command that
//! repeats it.

use std::collections::BTreeMap;
use std::fs;
use std::num::NonZero;
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use anyhow::Context;

use crate::invocation::{Invocation, Optimised, cargo, repository_root};
use crate::{chaos, install, package, python, redis, tidy};

const STEPS: &str = include_str!("steps.txt");

/// The line of the list behind which steps run only with `--all`.
const SECOND_GATE: &str = "--all";

pub(crate) struct Step {
    title: &'static str,
    is_of_second_gate: bool,
    pub(crate) tools: &'static str,
    commands: Vec<&'static str>,
}

/// Runs the steps of the first gate, or those of both, and says how long each took.
pub(crate) fn run(all: bool) -> anyhow::Result<()> {
    let mut steps = steps();
    steps.retain(|step| all || !step.is_of_second_gate);
    let count = steps.len();
    let titles: Vec<&str> = steps.iter().map(|step| step.title).collect();
    let minutes = if all { "30 minutes" } else { "10 minutes; `--all` runs the rest" };
    eprintln!(
        "This runs {count} steps: {}.\nFrom nothing it takes about {minutes}, on two cores.",
        titles.join(", ")
    );
    let mut passed = Vec::with_capacity(count);
    for (place, step) in steps.iter().enumerate() {
        eprintln!("\n=== {}/{count} {} ===", place + 1, step.title);
        let took = timed(|| step.run()).with_context(|| format!("{} failed", step.title))?;
        passed.push(format!("{} {}", step.title, seconds(took)));
    }
    eprintln!("\nAll {count} steps passed: {}.", passed.join(", "));
    Ok(())
}

impl Step {
    fn run(&self) -> anyhow::Result<()> {
        install::ensure(self.tools)?;
        match self.commands[..] {
            ["tidy"] => tidy::run(),
            ["chaos"] => chaos::quick(),
            ["python"] => python::run(Vec::new()),
            ["redis"] => redis::run(Vec::new()),
            ["packages"] => {
                package::build(Optimised::Quickly)?;
                package::try_out(Vec::new())
            }
            _ => self.invocations().iter().try_for_each(Invocation::run),
        }
    }

    fn invocations(&self) -> Vec<Invocation> {
        match self.commands[..] {
            ["features"] => features(),
            _ => self.commands.iter().map(|line| typed(line)).collect(),
        }
    }
}

/// A command of a step. Many tests wait for real time, so more of them run at once than there are
/// cores.
fn typed(line: &'static str) -> Invocation {
    let command = Invocation::typed(line);
    if !line.starts_with("cargo nextest run") {
        return command;
    }
    let threads = 2 * available_parallelism().map_or(1, NonZero::get);
    command.args([format!("--test-threads={threads}")])
}

pub(crate) fn steps() -> Vec<Step> {
    let mut steps = Vec::<Step>::new();
    let mut is_of_second_gate = false;
    for line in STEPS.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        match (line.strip_prefix("  "), steps.last_mut()) {
            (Some(command), Some(step)) => step.commands.push(command),
            _ if line == SECOND_GATE => is_of_second_gate = true,
            _ => {
                let (title, tools) = line.split_once(':').unwrap_or((line, ""));
                steps.push(Step { title, is_of_second_gate, tools, commands: Vec::new() });
            }
        }
    }
    steps
}

/// Core and codec build without std. Every crate builds with every combination of its features.
fn features() -> Vec<Invocation> {
    let no_std = cargo(["check", "--manifest-path", "crates/paxoslease-core/no_std/Cargo.toml"]);
    let mut commands = vec![no_std.args(["--locked", "--target-dir", "target"])];
    for (package, features) in features_of_crates().expect("manifests that cargo has read") {
        for chosen in 0..1_usize << features.len() {
            let is_chosen = |(place, _): &(usize, _)| chosen & 1 << place != 0;
            let chosen = features.iter().enumerate().filter(is_chosen).map(|(_, name)| &**name);
            let chosen: Vec<&str> = chosen.collect();
            let check = ["check", "-p", &package, "--no-default-features", "--features"];
            commands.push(cargo(check).args([chosen.join(",")]));
        }
    }
    commands
}

/// The features of each crate that has any, except `default`.
fn features_of_crates() -> anyhow::Result<BTreeMap<String, Vec<String>>> {
    let mut all = BTreeMap::new();
    for folder in fs::read_dir(repository_root().join("crates"))? {
        let manifest: toml::Table =
            fs::read_to_string(folder?.path().join("Cargo.toml"))?.parse()?;
        let Some(toml::Value::Table(features)) = manifest.get("features") else { continue };
        let name = manifest["package"]["name"].as_str().context("a package without a name")?;
        let features = features.keys().filter(|name| *name != "default").cloned().collect();
        all.insert(name.to_owned(), features);
    }
    Ok(all)
}

#[expect(clippy::disallowed_methods, reason = "how long a step took is for people to read")]
fn timed(work: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<Duration> {
    let started_at = Instant::now();
    work()?;
    Ok(started_at.elapsed())
}

fn seconds(took: Duration) -> String {
    format!("{:.1} s", took.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown() -> Vec<String> {
        let commands = steps().iter().flat_map(Step::invocations).collect::<Vec<_>>();
        commands.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn warnings_are_errors_wherever_the_compiler_can_warn() {
        let shown = shown();
        let lints: Vec<_> = shown.iter().filter(|line| line.contains("cargo clippy")).collect();
        assert_eq!(lints.len(), 5);
        assert!(lints.iter().all(|line| line.ends_with(" -- -D warnings")), "{lints:?}");
        let docs = "RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps";
        assert!(shown.iter().any(|line| line == docs), "{shown:?}");
    }

    #[test]
    fn every_combination_of_features_is_checked() {
        let shown = shown();
        let checked = |package: &str, features: &str| {
            let start =
                format!("cargo check -p {package} --no-default-features --features {features}");
            shown.iter().filter(|line| **line == start).count()
        };
        assert_eq!(checked("paxoslease-core", "''"), 1);
        assert_eq!(checked("paxoslease-core", "digest,mutants"), 1);
        assert_eq!(checked("paxoslease-node", "chaos,simulation,trace"), 1);
    }

    #[test]
    fn every_test_runs_in_one_of_the_gates() {
        let config = fs::read_to_string(repository_root().join(".config/nextest.toml"));
        let config: toml::Table = config.expect("readable").parse().expect("TOML");
        let filter = |profile: &str| match &config["profile"][profile]["default-filter"] {
            toml::Value::String(text) => text.clone(),
            other => panic!("{other:?}"),
        };
        assert_eq!(filter("default"), format!("not {}", filter("rest")));
        let shown = shown();
        for arguments in [" --test-threads=", " --profile rest --test-threads="] {
            let command = format!("cargo nextest run --workspace{arguments}");
            assert!(shown.iter().any(|line| line.starts_with(&command)), "{shown:?}");
        }
    }

    #[test]
    fn a_step_that_fails_stops_the_run_with_the_command_to_repeat() {
        let commands = vec!["cargo no-such-step", "cargo never-reached"];
        let step = Step { title: "made up", is_of_second_gate: false, tools: "", commands };
        let error = step.run().expect_err("it fails");
        assert!(format!("{error:#}").contains("to repeat it:\n  cargo no-such-step"), "{error:#}");
        assert!(!format!("{error:#}").contains("never-reached"), "{error:#}");
    }
}
