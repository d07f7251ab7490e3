//! The steps that a change must pass, the cheapest ones first. The first failure stops the run and
//! shows the command that repeats it.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use anyhow::Context;

use crate::install::{Tool, redocly};
use crate::invocation::{Invocation, cargo, repository_root};
use crate::{bench, chaos, tidy};

struct Step {
    title: &'static str,
    tools: &'static [Tool],
    work: Work,
}

enum Work {
    Tidy,
    Chaos,
    Commands(Vec<Invocation>),
}

const TOOLS_OF_TESTS: &[Tool] = &[
    Tool::Nextest,
    Tool::RedisCli,
    Tool::Pip,
    Tool::RedisPy,
    Tool::Npm,
    Tool::Ioredis,
    Tool::Redis,
    Tool::Postgres,
    Tool::MariaDb,
    Tool::MariaDbClient,
    Tool::Sqlite,
    Tool::Etcd,
    Tool::EtcdClient,
    Tool::S3,
    Tool::Curl,
    Tool::Systemd,
    Tool::KubernetesSchemas,
];

/// Runs every step and says how long each took.
pub(crate) fn run() -> anyhow::Result<()> {
    let steps = steps();
    let count = steps.len();
    let titles: Vec<&str> = steps.iter().map(|step| step.title).collect();
    eprintln!(
        "This runs {count} steps: {}.\nFrom nothing it takes about 17 minutes on two cores, most of \
         them compiling; the tests themselves took 3.",
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
        self.tools.iter().try_for_each(|tool| tool.ensure())?;
        match &self.work {
            Work::Tidy => tidy::run(),
            Work::Chaos => chaos::quick(),
            Work::Commands(commands) => commands.iter().try_for_each(Invocation::run),
        }
    }
}

fn steps() -> Vec<Step> {
    let step = |title, tools, commands| Step { title, tools, work: Work::Commands(commands) };
    vec![
        Step { title: "tidy", tools: &[], work: Work::Tidy },
        step(
            "format",
            &[Tool::Rustfmt],
            vec![
                cargo(["fmt", "--all", "--check"]),
                cargo(["fmt", "--manifest-path", "fuzz/Cargo.toml", "--check"]),
            ],
        ),
        step(
            "OpenAPI document",
            &[Tool::Npm, Tool::Redocly],
            vec![redocly(["lint", "--extends=recommended-strict", "docs/openapi.json"])],
        ),
        step("clippy", &[Tool::Clippy], clippy()),
        step("without std, and every feature", &[], features()),
        // In the workspace the checkers switch the feature `mutants` on. Here the core has the
        // features that ship.
        step(
            "core and codec as they ship",
            &[Tool::Nextest],
            vec![cargo(["nextest", "run", "-p", "paxoslease-core", "-p", "paxoslease-wire"])],
        ),
        // No other step builds a clock with another rate.
        step(
            "clock of the chaos harness",
            &[Tool::Nextest],
            vec![cargo(["nextest", "run", "-p", "paxoslease-clock", "--all-features"])],
        ),
        step("tests", TOOLS_OF_TESTS, vec![cargo(["nextest", "run", "--workspace"])]),
        Step { title: "chaos, for a minute", tools: &[], work: Work::Chaos },
        step("doc tests", &[], vec![cargo(["test", "--workspace", "--doc"])]),
        step("instructions", &[Tool::Valgrind], vec![bench("instructions")]),
        step(
            "docs",
            &[],
            vec![cargo(["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings")],
        ),
    ]
}

/// In the workspace the features of the core are those of all members together, and no member asks
/// for the knobs of the chaos harness. So these are linted alone as well.
fn clippy() -> Vec<Invocation> {
    let deny = |command: Invocation| command.args(["--", "-D", "warnings"]);
    vec![
        deny(cargo(["clippy", "--workspace", "--all-targets"])),
        deny(cargo(["clippy", "-p", "paxoslease-core", "--no-default-features"])),
        deny(cargo(["clippy", "-p", "paxoslease-core", "--all-targets", "--features", "mutants"])),
        deny(cargo(["clippy", "-p", "paxoslease-cli", "--features", "chaos,trace"])),
        deny(cargo(["clippy", "-p", "paxoslease-clock", "--all-targets", "--all-features"])),
    ]
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
        let commands = |step: Step| match step.work {
            Work::Tidy | Work::Chaos => Vec::new(),
            Work::Commands(commands) => commands,
        };
        steps().into_iter().flat_map(commands).map(|command| command.to_string()).collect()
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
    fn a_step_that_fails_stops_the_run_with_the_command_to_repeat() {
        let never = cargo(["never-reached"]);
        let work = Work::Commands(vec![cargo(["no-such-step"]), never]);
        let error = Step { title: "made up", tools: &[], work }.run().expect_err("it fails");
        assert!(format!("{error:#}").contains("to repeat it:\n  cargo no-such-step"), "{error:#}");
        assert!(!format!("{error:#}").contains("never-reached"), "{error:#}");
    }
}
