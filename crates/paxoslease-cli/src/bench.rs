//! `paxoslease bench`: a load on a cell, and its results. The load itself is in
//! [`paxoslease_load`]; this module has the options, the progress bar and the table.

use std::fmt::Write as _;
use std::io::{IsTerminal as _, stderr};
use std::time::Duration;

use anyhow::anyhow;
use clap::CommandFactory as _;
use clap::error::ErrorKind;
use indicatif::{ProgressBar, ProgressStyle};
use paxoslease_load::{Extent, Latency, LoadError, Plan, Progress, Report, Secret, Workload};

use crate::args::{Args, BenchArgs, WorkloadKind};
use crate::client::{Failure, UNAVAILABLE};
use crate::output::grouped;
use crate::trust::Trust;
use crate::{Verdict, output};

pub(crate) fn run(args: BenchArgs) -> anyhow::Result<Verdict> {
    let plan = plan(&args)?;
    let bar = bar();
    let outcome = paxoslease_load::run(&plan, &mut |progress| show(&bar, &plan, progress));
    bar.finish_and_clear();
    let report = outcome?;
    let text =
        if args.json { serde_json::to_string(&report)? + "\n" } else { table(&plan, &report) };
    output::to_stdout(&text)?;
    match &report.last_error {
        Some(error) if report.operations == 0 => {
            Err(Failure::new(UNAVAILABLE, format!("no operation succeeded: {error}")).into())
        }
        _ => Ok(Verdict::Well),
    }
}

/// `None` for errors of other modules.
pub(crate) fn exit_code(error: &anyhow::Error) -> Option<u8> {
    error.downcast_ref().map(|error| match error {
        error if error.is_unavailable() => UNAVAILABLE,
        LoadError::Plan(_) | LoadError::Resolve { .. } => 2,
        LoadError::Tls { .. } => 77,
        LoadError::Refused { text, .. } => match text.split(' ').next() {
            Some("NAME" | "TTL") => 2,
            Some("NOAUTH" | "NOPERM" | "WRONGPASS") => 77,
            _ => 1,
        },
        _ => 1,
    })
}

fn plan(args: &BenchArgs) -> anyhow::Result<Plan> {
    let workload = workload(args);
    let trust = Trust::load(&args.trust)?;
    let mut plan = Plan::new(args.endpoints.clone(), workload);
    plan.dialect = args.dialect;
    plan.tls = trust.tls;
    plan.token = trust.token.map(Secret);
    plan.token_in_clear = trust.token_in_clear;
    if let Some(in_flight) = args.inflight {
        plan.in_flight = in_flight;
        let is_handover = workload == Workload::Handover;
        plan.connections = if is_handover { in_flight } else { plan.connections.min(in_flight) };
    }
    plan.connections = args.connections.unwrap_or(plan.connections);
    plan.rate = args.rate;
    plan.ttl = args.ttl;
    if let Some(count) = args.count {
        (plan.extent, plan.warmup) = (Extent::Count(count), Duration::ZERO);
    }
    if let Some(duration) = args.duration {
        plan.extent = Extent::Lasting(duration);
    }
    plan.warmup = args.warmup.unwrap_or(plan.warmup);
    plan.names = match &args.names {
        Some(names) => names.clone(),
        None => {
            // A new prefix, so that no name is still held by an earlier load.
            let random = getrandom::u32().map_err(|error| anyhow!("no randomness: {error}"))?;
            format!("bench/{random:08x}/")
        }
    };
    Ok(plan)
}

fn workload(args: &BenchArgs) -> Workload {
    let refuse = |is_given: bool, option: &str, of: &str| {
        if is_given {
            let message = format!("--{option} is for the workload `{of}`");
            Args::command().error(ErrorKind::ArgumentConflict, message).exit();
        }
    };
    refuse(args.leases.is_some() && args.workload != WorkloadKind::Renew, "leases", "renew");
    let is_hot = args.workload == WorkloadKind::Mixed;
    refuse(args.hot_names.is_some() && !is_hot, "hot-names", "mixed");
    refuse(args.hot_share.is_some() && !is_hot, "hot-share", "mixed");
    match args.workload {
        WorkloadKind::Pairs => Workload::Pairs,
        WorkloadKind::Renew => Workload::Renew { leases: args.leases.unwrap_or(10_000) },
        WorkloadKind::Handover => Workload::Handover,
        WorkloadKind::Mixed => Workload::Mixed {
            hot_names: args.hot_names.unwrap_or(4),
            hot_share: args.hot_share.unwrap_or(0.1),
        },
    }
}

/// Shown on a terminal only.
fn bar() -> ProgressBar {
    if !stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{msg:32} {bar:40} {percent:>3} %");
    ProgressBar::new(1000).with_style(style.expect("a valid template"))
}

fn show(bar: &ProgressBar, plan: &Plan, progress: Progress) {
    let Progress { doing, share, operations, elapsed } = progress;
    bar.set_position((share * 1000.0) as u64);
    if elapsed.is_zero() {
        bar.set_message(doing);
    } else {
        let rate = operations as f64 / elapsed.as_secs_f64();
        bar.set_message(format!("{} {}/s", grouped(rate as u64), plan.workload.unit()));
    }
}

/// The table for people.
fn table(plan: &Plan, report: &Report) -> String {
    let mut text = String::new();
    let unit = plan.workload.unit();
    let _ = writeln!(
        text,
        "{}: {} in flight over {} to {}, {:.1} s",
        report.workload,
        grouped(u64::from(report.in_flight)),
        counted(u64::from(report.connections), "connection"),
        report.endpoints.join(", "),
        report.seconds
    );
    let counted_of = report.shares.map_or(report.operations, |shares| shares.handovers);
    let rate = grouped(report.per_second.round() as u64);
    let _ = writeln!(text, "\n  {rate} {unit}/s, {} in all", grouped(counted_of));
    if !report.latency.is_empty() {
        let heads = ["p50", "p90", "p99", "p99.9", "max"].map(|head| format!("{head:>10}"));
        let _ = writeln!(text, "\n  {:<10}{}", "latency", heads.concat());
    }
    for (kind, latency) in &report.latency {
        let Latency { p50_us, p90_us, p99_us, p99_9_us, max_us, .. } = latency;
        let spans = [p50_us, p90_us, p99_us, p99_9_us, max_us];
        let spans = spans.map(|micros| format!("{:>10}", span(*micros)));
        let _ = writeln!(text, "  {kind:<10}{}", spans.concat());
    }
    let mut line = |head: &str, what: String| {
        let _ = writeln!(text, "  {head:<12}{what}");
    };
    if let Some(shares) = report.shares {
        let (max, min) = (grouped(shares.max), grouped(shares.min));
        line("shares", format!("from {min} to {max} per client, a ratio of {:.2}", shares.ratio()));
    }
    if report.held > 0 {
        line("held", format!("{} found the name held by another", grouped(report.held)));
    }
    let kinds = report.errors.iter().map(|(kind, count)| format!("{} {kind}", grouped(*count)));
    let kinds: Vec<String> = kinds.collect();
    if let Some(error) = &report.last_error {
        line("errors", format!("{}; such as: {error}", kinds.join(", ")));
    }
    if report.behind > 0 {
        let behind = grouped(report.behind);
        line("behind", format!("{behind} were due but never sent: the rate was too high"));
    }
    if report.unanswered > 0 {
        line("unanswered", format!("{} at the end", grouped(report.unanswered)));
    }
    text
}

fn counted(count: u64, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{} {what}{plural}", grouped(count))
}

/// Three significant digits and a unit.
fn span(micros: f64) -> String {
    let (value, unit) = match micros {
        micros if micros >= 1e6 => (micros / 1e6, "s"),
        micros if micros >= 1e3 => (micros / 1e3, "ms"),
        micros => (micros, "us"),
    };
    let decimals = match value {
        value if value >= 100.0 => 0,
        value if value >= 10.0 => 1,
        _ => 2,
    };
    format!("{value:.decimals$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_has_three_digits_and_a_unit() {
        assert_eq!([0.5, 61.183, 254.2].map(span), ["0.50 us", "61.2 us", "254 us"]);
        assert_eq!([2881.5, 1_200_000.0].map(span), ["2.88 ms", "1.20 s"]);
    }
}
