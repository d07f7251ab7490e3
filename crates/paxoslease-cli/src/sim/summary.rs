//! The results of a simulation, for people and for programs.

use std::fmt::Write as _;
use std::time::Duration;

use paxoslease_sim::scenario::Scenario;
use paxoslease_sim::{Faults, Report, transcript};
use serde::Serialize;

use super::runs::Totals;
use crate::args::{Algorithm, SimArgs};
use crate::output::grouped;

/// The machine-readable summary; the table shows the same.
#[derive(Serialize)]
pub(super) struct Summary {
    algorithm: String,
    /// Whether whole processes ran, not the protocol alone.
    stack: bool,
    scenario: Option<&'static str>,
    faults: Option<&'static str>,
    seed: Option<u64>,
    nodes: Option<u16>,
    clients: Option<u32>,
    runs: u64,
    events: u64,
    messages: u64,
    acquires: u64,
    renewals: u64,
    releases: u64,
    denials: u64,
    no_quorums: u64,
    crashes: u64,
    stops: u64,
    simulated_ms: u64,
    violations: u64,
    broken_runs: u64,
    trace_hash: String,
    broken: Option<Broken>,
}

/// The first run with a violation.
#[derive(Serialize)]
struct Broken {
    seed: Option<u64>,
    at_ms: f64,
    check: String,
    text: String,
    trace_hash: String,
    replay: String,
}

impl Summary {
    pub(super) fn new(
        args: &SimArgs,
        scenario: Option<Scenario>,
        totals: &Totals,
        shown: Option<&Report>,
    ) -> Self {
        let counts = totals.counts;
        let free = scenario.is_none();
        let broken = shown.and_then(|report| {
            let violation = report.violations.first()?;
            Some(Broken {
                seed: free.then_some(report.seed),
                at_ms: violation.at.0 as f64 / 1e6,
                check: format!("{:?}", violation.check),
                text: violation.text.clone(),
                trace_hash: hex(report.trace_hash),
                replay: replay(args, scenario, report.seed),
            })
        });
        let played = shown.filter(|_| !free);
        Self {
            algorithm: args.algorithm.name(),
            stack: args.stack,
            scenario: scenario.map(Scenario::name),
            faults: free.then(|| args.faults.name()),
            seed: free.then_some(args.seed),
            nodes: played.map(|report| report.nodes).or(args.nodes),
            clients: played.map(|report| report.clients).or(args.clients),
            runs: totals.runs,
            events: counts.events,
            messages: counts.messages,
            acquires: counts.acquires,
            renewals: counts.renewals,
            releases: counts.releases,
            denials: counts.denials,
            no_quorums: counts.no_quorums,
            crashes: counts.crashes,
            stops: counts.stops,
            simulated_ms: totals.lasted.as_millis() as u64,
            violations: totals.violations,
            broken_runs: totals.broken_runs,
            trace_hash: hex(totals.trace_hash),
            broken,
        }
    }

    /// One line of JSON.
    pub(super) fn json(&self) -> serde_json::Result<String> {
        serde_json::to_string(self).map(|line| line + "\n")
    }

    pub(super) fn table(&self) -> String {
        let what = match (self.scenario, self.seed, self.faults) {
            (Some(scenario), ..) => format!("scenario {scenario}"),
            (None, Some(seed), Some(faults)) if self.runs == 1 => {
                format!("seed {seed}, {faults} faults")
            }
            (None, Some(seed), Some(faults)) => {
                let last = seed.wrapping_add(self.runs - 1);
                format!("seeds {seed} to {last}, {faults} faults")
            }
            (None, ..) => String::new(),
        };
        let stack = if self.stack { ", the whole stack" } else { "" };
        let mut text = format!("{}{stack}: {what}\n\n", self.algorithm);
        let rows = [
            ("events", self.events),
            ("messages", self.messages),
            ("acquires", self.acquires),
            ("renewals", self.renewals),
            ("releases", self.releases),
            ("denied", self.denials),
            ("no quorum", self.no_quorums),
            ("crashes", self.crashes),
            ("clean stops", self.stops),
        ];
        for (name, count) in rows {
            line(&mut text, name, &grouped(count));
        }
        let simulated = Duration::from_millis(self.simulated_ms).as_secs_f64();
        line(&mut text, "simulated", &format!("{simulated:.1} s"));
        line(&mut text, "trace hash", &self.trace_hash);
        let verdict = match (self.broken_runs, self.runs) {
            (0, 1) => "all held".to_owned(),
            (0, runs) => format!("all held in {} runs", grouped(runs)),
            (_, 1) => format!("{} BROKEN", self.violations),
            (broken, runs) => format!("BROKEN in {} of {} runs", grouped(broken), grouped(runs)),
        };
        line(&mut text, "invariants", &verdict);
        text
    }

    /// The violation, the trace around it, and how to repeat the run.
    pub(super) fn explanation(&self, report: &Report) -> String {
        let mut text = String::from("\nAn invariant broke");
        let Some(broken) = &self.broken else { return String::new() };
        match broken.seed {
            Some(seed) => writeln!(text, " with seed {seed}:"),
            None => writeln!(text, ":"),
        }
        .expect("a String takes every text");
        for violation in &report.violations {
            text += &format!("  {violation}\n");
        }
        text += "\nThe trace around it:\n";
        text += &transcript::around_violation(&report.trace);
        text += &format!(
            "\nTo see it again (with --diagram FILE.svg, as a picture):\n  {}\n",
            broken.replay
        );
        text
    }
}

fn line(text: &mut String, name: &str, value: &str) {
    writeln!(text, "  {name:<12} {value:>20}").expect("a String takes every text");
}

/// The command that repeats this seed or schedule alone.
fn replay(args: &SimArgs, scenario: Option<Scenario>, seed: u64) -> String {
    let mut command = String::from("paxoslease sim");
    match scenario {
        Some(scenario) => command += &format!(" --scenario {scenario}"),
        None => {
            command += &format!(" --seed {seed} --runs 1");
            if args.faults != Faults::Swarm {
                command += &format!(" --faults {}", args.faults);
            }
            if let Some(nodes) = args.nodes {
                command += &format!(" --nodes {nodes}");
            }
            if let Some(clients) = args.clients {
                command += &format!(" --clients {clients}");
            }
        }
    }
    if args.stack {
        command += " --stack";
    }
    if args.algorithm != Algorithm::Paxoslease {
        command += &format!(" --algorithm {}", args.algorithm.name());
    }
    command
}

fn hex(hash: u64) -> String {
    format!("{hash:016x}")
}
