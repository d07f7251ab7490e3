//! A cell of ours beside the services that people use for locks: real processes on loopback, the
//! same load on each in turn and again and again, and the page that says what came of it.
//!
//! What differs within one run is what counts; no machine is quiet, so measuring is never part of
//! the tests. That the page in `docs/` is what its figures make it, is.

mod case;
mod figures;
mod interrupt;
mod machine;
mod measure;
mod page;
mod side;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use paxoslease_bench::{cores, process};

use crate::case::Case;
use crate::figures::{Figures, Method};
use crate::machine::{Machine, Ticks};
use crate::measure::{Plan, Running};
use crate::side::{Family, Side};

/// Beside the page, in its folder of plots.
const FIGURES: &str = "benchmarks/benchmarks.json";

/// Measures a cell of three processes beside Redis, Redlock, ZooKeeper and etcd
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    task: Option<Task>,
    /// Fewer and shorter turns: less than five minutes, and nothing is written
    #[arg(long)]
    quick: bool,
    /// Writes the page in spite of `--quick`, `--only` or `--peers`
    #[arg(long)]
    write: bool,
    /// Measures nothing; writes the page from the figures that are there
    #[arg(long)]
    render: bool,
    /// Only loads whose title contains this, and nothing about scale
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Only these beside ours
    #[arg(long, value_enum, value_delimiter = ',', value_name = "PEER,...")]
    peers: Option<Vec<Family>>,
    /// How often each load has its turn
    #[arg(long, value_name = "N")]
    rounds: Option<u32>,
    /// Writes the figures here, too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Where benchmarks.md and benchmarks/ are
    #[arg(long, value_name = "FOLDER", default_value = "docs")]
    folder: PathBuf,
    /// The binary `paxoslease` [default: the one beside this]
    #[arg(long, value_name = "FILE")]
    paxoslease: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Task {
    /// Keeps a core busy until its input ends
    #[command(hide = true)]
    Busy { core: usize },
}

fn main() -> Result<()> {
    let cli = Cli::parse();
    if let Some(Task::Busy { core }) = cli.task {
        return cores::keep_busy(core);
    }
    if cli.render {
        return render(&cli.folder);
    }
    interrupt::watch()?;
    let figures = cli.measure()?;
    let json = figures.to_json()?;
    if let Some(path) = &cli.json {
        write(path, &json)?;
    }
    let is_whole = !cli.quick && cli.only.is_none() && cli.peers.is_none();
    if is_whole || cli.write {
        write(&cli.folder.join(FIGURES), &json)?;
        return render(&cli.folder);
    }
    print!("{}", page::page(&figures)?.text());
    Ok(())
}

impl Cli {
    fn measure(&self) -> Result<Figures> {
        let plan = self.plan();
        let sides: Vec<Side> = Side::ALL.into_iter().filter(|side| self.wants(*side)).collect();
        let bar = progress(measure::turns(&plan, &sides));
        let (mut machine, ticks) = (Machine::here(), Ticks::now());
        let binary = self.paxoslease.clone().map_or_else(process::paxoslease_beside_this, Ok)?;
        let mut services = Vec::new();
        for side in sides {
            bar.set_message(format!("{}: starting", side.title()));
            let service = side.start(&binary).with_context(|| side.title())?;
            services.push(Running::new(side, service)?);
        }
        let described = services.iter().map(Running::described).collect::<Result<_>>()?;
        let method = Method {
            rounds: plan.rounds,
            turn_ms: plan.span.as_millis() as u64,
            warmup_ms: plan.warmup.as_millis() as u64,
        };
        let mut figures = Figures {
            machine: Machine::default(),
            method,
            services: described,
            rows: Vec::new(),
            troubles: Vec::new(),
        };
        measure::run(&plan, services, &mut figures, &bar)?;
        bar.finish_and_clear();
        machine.stolen_percent = figures::rounded(ticks.stolen_percent());
        figures.machine = machine;
        Ok(figures)
    }

    fn plan(&self) -> Plan {
        let (rounds, span, warmup) = if self.quick { (2, 250, 100) } else { (5, 1000, 250) };
        let only = self.only.as_deref().unwrap_or_default();
        let is_meant = |case: &Case| case.to_string().contains(only);
        Plan {
            rounds: self.rounds.unwrap_or(rounds),
            span: Duration::from_millis(span),
            warmup: Duration::from_millis(warmup),
            cases: case::all(self.quick).into_iter().filter(is_meant).collect(),
        }
    }

    fn wants(&self, side: Side) -> bool {
        match (&self.peers, side.family()) {
            (Some(families), Some(family)) => families.contains(&family),
            (_, None) | (None, _) => true,
        }
    }
}

/// On a terminal only.
fn progress(turns: u64) -> ProgressBar {
    let style = "{elapsed_precise} [{bar:30}] {pos}/{len}, {eta} left  {wide_msg}";
    let style = ProgressStyle::with_template(style).expect("a template that was tried");
    let bar = ProgressBar::new(turns).with_style(style.progress_chars("=> "));
    bar.enable_steady_tick(Duration::from_millis(500));
    bar
}

/// Writes the page from the figures beside it.
fn render(folder: &Path) -> Result<()> {
    let path = folder.join(FIGURES);
    let json = fs::read_to_string(&path).with_context(|| format!("no {}", path.display()))?;
    page::page(&Figures::read(&json)?)?.write(folder)
}

fn write(path: &Path, text: &str) -> Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
