//! Compares a PaxosLease cell with services that people use for locks: real processes on loopback,
//! the same loads on each in turns, and the page with the results.
//!
//! Only differences within one run count. No machine is quiet, so no test measures; a test checks
//! that the page in `docs/` is made from its figures.

mod case;
mod figures;
mod machine;
mod measure;
mod page;
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
use crate::scale::Part;
use crate::side::{Family, Side};

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
    let is_whole = !cli.quick && cli.only.is_none() && cli.peers.is_none();
    if is_whole || cli.write {
        let path = cli.folder.join(FIGURES);
        if !is_whole && let Ok(earlier) = fs::read_to_string(&path) {
            figures.complete_from(Figures::read(&earlier)?)?;
        }
        fs::write(&path, figures.to_json()?).with_context(|| path.display().to_string())?;
        return render(&cli.folder);
    }
    print!("{}", page::pages(&figures)[0].text()?);
    Ok(())
}

impl Cli {
    /// Sides are compared within a round, so the page needs the loads of one run. Parts about scale
    /// have their own rounds, so they may be written alone.
    fn refuse_to_mix(&self) -> Result<()> {
        let meant = self.plan().cases.len();
        let is_some = meant > 0 && meant < case::all(self.quick).len();
        ensure!(
            !self.write || (self.peers.is_none() && !is_some),
            "--write would mix loads or peers of different runs, which are compared by round: omit \
             --peers, and pass --only for parts about scale only"
        );
        Ok(())
    }

    fn measure(&self) -> Result<Figures> {
        let (mut machine, ticks) = (Machine::here(), Ticks::now());
        let (plan, scale) = (self.plan(), self.scale()?);
        let is_meant = |part: &Part| self.means(part.title);
        let parts: Vec<Part> = Part::ALL.into_iter().filter(is_meant).collect();
        let mut figures = Figures {
            machine: Machine::default(),
            method: plan.method(),
            services: Vec::new(),
            rows: Vec::new(),
            troubles: Vec::new(),
            scale: None,
        };
        if !plan.cases.is_empty() {
            let services = start(&scale)?;
            figures.services = services.iter().map(|running| running.described.clone()).collect();
            measure::run(&plan, services, &mut figures)?;
        }
        for part in parts {
            eprintln!("{}", part.title);
            let measured = figures.scale.get_or_insert_default();
            if let Err(error) = part.measure(&scale, measured) {
                eprintln!("{}: {error:#}", part.title);
                figures.troubles.push(part.title.to_owned());
            }
        }
        machine.stolen_percent = figures::rounded(ticks.stolen_percent());
        figures.machine = machine;
        Ok(figures)
    }

    fn scale(&self) -> Result<scale::ScalePlan> {
        Ok(scale::ScalePlan {
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
            rounds,
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

/// Starts all services.
fn start(scale: &scale::ScalePlan) -> Result<Vec<Running>> {
    let start = |side: &Side| {
        eprintln!("{}: starting", side.title());
        let service = side.start(&scale.paxoslease).with_context(|| side.title())?;
        Running::new(*side, service)
    };
    scale.sides.iter().map(start).collect()
}

/// Writes the pages from the stored figures.
fn render(folder: &Path) -> Result<()> {
    let path = folder.join(FIGURES);
    let json = fs::read_to_string(&path).with_context(|| format!("no {}", path.display()))?;
    page::pages(&Figures::read(&json)?).iter().try_for_each(|page| page.write(folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pages_are_made_from_the_figures() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
        let json = fs::read_to_string(folder.join(FIGURES)).expect("the figures of the page");
        let figures = Figures::read(&json).expect("figures");
        assert_eq!(figures.to_json().expect("plain data"), json);
        for page in page::pages(&figures) {
            page.check(&folder).expect("up to date");
        }
    }
}
