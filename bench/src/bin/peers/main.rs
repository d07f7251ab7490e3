//! A cell of ours beside the services that people use for locks: real processes on loopback, the
//! same load on each in turn and again and again, and the page that says what came of it.
//!
//! What differs within one run is what counts; no machine is quiet, so measuring is never part of
//! the tests. That the page in `docs/` is what its figures make it, is.

mod case;
mod figures;
mod machine;
mod measure;
mod page;
mod progress;
mod scale;
mod side;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::{Parser, Subcommand};
use paxoslease_bench::cores;
use paxoslease_rig::{interrupt, paxoslease_beside_this};

use crate::case::Case;
use crate::figures::Figures;
use crate::machine::{Machine, Ticks};
use crate::measure::{Plan, QUICK_SETTLE, Running, SETTLE};
use crate::progress::Progress;
use crate::scale::Part;
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
    /// Writes the page in spite of `--quick`, or of `--only` some of the parts about scale
    #[arg(long)]
    write: bool,
    /// Measures nothing; writes the page from the figures that are there
    #[arg(long)]
    render: bool,
    /// Only loads and parts whose title contains this
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
    cli.refuse_to_mix()?;
    let mut figures = cli.measure()?;
    if let Some(path) = &cli.json {
        write(path, &figures.to_json()?)?;
    }
    let is_whole = !cli.quick && cli.only.is_none() && cli.peers.is_none();
    if is_whole || cli.write {
        let path = cli.folder.join(FIGURES);
        if !is_whole && let Ok(earlier) = fs::read_to_string(&path) {
            figures.complete_from(Figures::read(&earlier)?)?;
        }
        write(&path, &figures.to_json()?)?;
        return render(&cli.folder);
    }
    print!("{}", page::pages(&figures)[0].text()?);
    Ok(())
}

impl Cli {
    /// Sides are compared within a round, so loads are written all together or not at all. Parts
    /// about scale have rounds of their own, and keep the rest of the page.
    fn refuse_to_mix(&self) -> Result<()> {
        let meant = self.plan().cases.len();
        let is_some = meant > 0 && meant < case::all(self.quick).len();
        ensure!(
            !self.write || (self.peers.is_none() && !is_some),
            "--write would mix loads or peers of different runs, which are compared round by round; \
             leave out --peers, and --only unless it means parts about scale alone"
        );
        Ok(())
    }

    fn measure(&self) -> Result<Figures> {
        let (mut machine, ticks) = (Machine::here(), Ticks::now());
        let (plan, scale) = (self.plan(), self.scale()?);
        let is_meant = |part: &Part| self.means(part.title());
        let parts: Vec<Part> = Part::ALL.into_iter().filter(is_meant).collect();
        let lasts = parts.iter().map(|part| part.expected(self.quick)).sum::<Duration>();
        let progress = Progress::new(plan.expected(&scale.sides) + lasts);
        let mut figures = Figures {
            machine: Machine::default(),
            method: plan.method(),
            services: Vec::new(),
            rows: Vec::new(),
            troubles: Vec::new(),
            scale: None,
        };
        if !plan.cases.is_empty() {
            let services = start(&scale, &progress)?;
            figures.services = services.iter().map(|running| running.described.clone()).collect();
            measure::run(&plan, services, &mut figures, &progress)?;
        }
        for part in parts {
            progress.at(part.title());
            let measured = figures.scale.get_or_insert_default();
            if let Err(error) = scale::measure(&scale, part, measured, &|doing| progress.at(doing))
            {
                progress.note(&format!("{}: {error:#}", part.title()));
                figures.troubles.push(part.title().to_owned());
            }
            progress.done(part.expected(self.quick));
        }
        progress.finish();
        machine.stolen_percent = figures::rounded(ticks.stolen_percent());
        figures.machine = machine;
        Ok(figures)
    }

    fn scale(&self) -> Result<scale::Plan> {
        Ok(scale::Plan {
            paxoslease: self.paxoslease.clone().map_or_else(paxoslease_beside_this, Ok)?,
            sides: Side::ALL.into_iter().filter(|side| self.wants(*side)).collect(),
            quick: self.quick,
        })
    }

    fn means(&self, title: &str) -> bool {
        self.only.as_ref().is_none_or(|only| title.contains(only))
    }

    fn plan(&self) -> Plan {
        let (rounds, span, warmup) = if self.quick { (1, 300, 100) } else { (3, 1000, 250) };
        let is_meant = |case: &Case| self.means(&case.to_string());
        Plan {
            rounds: self.rounds.unwrap_or(rounds),
            span: Duration::from_millis(span),
            warmup: Duration::from_millis(warmup),
            settle: if self.quick { QUICK_SETTLE } else { SETTLE },
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

/// Starts everything that takes turns.
fn start(scale: &scale::Plan, progress: &Progress) -> Result<Vec<Running>> {
    let start = |side: &Side| {
        progress.at(&format!("{}: starting", side.title()));
        let service = side.start(&scale.paxoslease).with_context(|| side.title())?;
        Running::new(*side, service)
    };
    scale.sides.iter().map(start).collect()
}

/// Writes the pages from the figures beside the first.
fn render(folder: &Path) -> Result<()> {
    let path = folder.join(FIGURES);
    let json = fs::read_to_string(&path).with_context(|| format!("no {}", path.display()))?;
    page::pages(&Figures::read(&json)?).iter().try_for_each(|page| page.write(folder))
}

fn write(path: &Path, text: &str) -> Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_what_its_figures_make_it() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
        let json = fs::read_to_string(folder.join(FIGURES)).expect("the figures of the page");
        let figures = Figures::read(&json).expect("figures");
        assert_eq!(figures.to_json().expect("plain data"), json);
        for page in page::pages(&figures) {
            page.check(&folder).expect("up to date");
        }
    }
}
