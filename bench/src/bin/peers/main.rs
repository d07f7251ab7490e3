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
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use paxoslease_bench::cores;
use paxoslease_rig::interrupt;

use crate::case::Case;
use crate::figures::Figures;
use crate::machine::{Machine, Ticks};
use crate::measure::{Plan, QUICK_SETTLE, Running, SETTLE};
use crate::side::{Family, Side};

/// Of the pages.
const FOLDER: &str = "docs";
/// In the folder of the pages.
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
    /// Measures nothing; writes the page from the figures that are there
    #[arg(long)]
    render: bool,
    /// Only loads and parts whose title contains this
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Only these beside ours
    #[arg(long, value_enum, value_delimiter = ',', value_name = "PEER,...")]
    peers: Option<Vec<Family>>,
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
        return render();
    }
    interrupt::watch(|| {})?;
    let figures = cli.measure()?;
    // Sides are compared within a round, so the page has the figures of one whole run.
    let is_whole = !cli.quick && cli.only.is_none() && cli.peers.is_none();
    if is_whole {
        let path = Path::new(FOLDER).join(FIGURES);
        fs::write(&path, figures.to_json()?).with_context(|| path.display().to_string())?;
        return render();
    }
    print!("{}", page::pages(&figures)?[0].text()?);
    Ok(())
}

impl Cli {
    fn measure(&self) -> Result<Figures> {
        let (mut machine, ticks) = (Machine::here(), Ticks::now());
        let (plan, scale) = (self.plan(), self.scale());
        let mut figures = Figures { method: plan.method(), ..Figures::default() };
        if !plan.cases.is_empty() {
            let services = start(&scale)?;
            figures.services = services.iter().map(|running| running.described.clone()).collect();
            measure::run(&plan, services, &mut figures)?;
        }
        for (title, measure) in scale::PARTS.iter().filter(|(title, _)| self.means(title)) {
            eprintln!("{title}");
            if let Err(error) = measure(&scale, figures.scale.get_or_insert_default()) {
                eprintln!("{title}: {error:#}");
                figures.troubles.push((*title).to_owned());
            }
        }
        machine.stolen_percent = figures::rounded(ticks.stolen_percent());
        figures.machine = machine;
        Ok(figures)
    }

    fn scale(&self) -> scale::ScalePlan {
        let sides = Side::all().filter(|side| self.wants(*side)).collect();
        scale::ScalePlan { sides, quick: self.quick }
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
        let service = side.start().with_context(|| side.title())?;
        Running::new(*side, service)
    };
    scale.sides.iter().map(start).collect()
}

/// Writes the pages from the stored figures.
fn render() -> Result<()> {
    let path = Path::new(FOLDER).join(FIGURES);
    let json = fs::read_to_string(&path).with_context(|| format!("no {}", path.display()))?;
    page::pages(&Figures::read(&json)?)?.iter().try_for_each(|page| page.write(FOLDER.as_ref()))
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
        for page in page::pages(&figures).expect("goals of known figures") {
            page.check(&folder).expect("up to date");
        }
    }
}
