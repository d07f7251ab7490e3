//! Runs many seeds on all cores. The totals do not depend on the order of the runs.

use std::io::{IsTerminal as _, stderr};
use std::num::NonZero;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use paxoslease_sim::{Counts, Options, Report};

use super::run_one;
use crate::args::SimArgs;
use crate::output;

#[derive(Clone, Copy, Default)]
pub(super) struct Totals {
    pub(super) runs: u64,
    pub(super) counts: Counts,
    pub(super) lasted: Duration,
    pub(super) violations: u64,
    /// The number of runs with violations.
    pub(super) broken_runs: u64,
    /// The lowest seed with a violation.
    pub(super) first_broken: Option<u64>,
    /// A sum, so that the order does not matter; for one run, the hash of that run.
    pub(super) trace_hash: u64,
}

impl Totals {
    pub(super) fn of(report: &Report) -> Self {
        let broken = !report.violations.is_empty();
        Self {
            runs: 1,
            counts: report.counts,
            lasted: report.lasted,
            violations: report.violations.len() as u64,
            broken_runs: u64::from(broken),
            first_broken: broken.then_some(report.seed),
            trace_hash: report.trace_hash,
        }
    }

    fn add(&mut self, other: &Self) {
        self.runs += other.runs;
        self.counts += other.counts;
        self.lasted += other.lasted;
        self.violations += other.violations;
        self.broken_runs += other.broken_runs;
        self.first_broken = self.first_broken.into_iter().chain(other.first_broken).min();
        self.trace_hash = self.trace_hash.wrapping_add(other.trace_hash);
    }
}

/// Runs every requested seed. The duration goes to stderr.
#[expect(clippy::disallowed_methods, reason = "how long it took is for people to read")]
pub(super) fn run_all(args: &SimArgs, options: &Options) -> Totals {
    let began_at = Instant::now();
    let bar = progress(args.runs);
    let next = AtomicU64::new(0);
    let worker = || {
        let mut totals = Totals::default();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= args.runs {
                return totals;
            }
            let report = run_one(args, args.seed.wrapping_add(index), options);
            totals.add(&Totals::of(&report));
            bar.inc(1);
        }
    };
    let threads = thread::available_parallelism().map_or(1, NonZero::get) as u64;
    let mut totals = Totals::default();
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads.min(args.runs)).map(|_| scope.spawn(worker)).collect();
        for worker in workers {
            match worker.join() {
                Ok(part) => totals.add(&part),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
    });
    bar.finish_and_clear();
    let took = began_at.elapsed();
    let rate = totals.counts.events as f64 / took.as_secs_f64().max(1e-9) / 1e3;
    output::to_stderr(&format!("took {took:.1?}, {rate:.0} thousand events per second\n"));
    totals
}

/// Shown on a terminal only.
fn progress(runs: u64) -> ProgressBar {
    if !stderr().is_terminal() || runs < 2 {
        return ProgressBar::hidden();
    }
    let style =
        ProgressStyle::with_template("{bar:40} {human_pos} of {human_len} runs, {eta} left")
            .expect("the template is well-formed");
    ProgressBar::new(runs).with_style(style)
}
