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

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};
use paxoslease_bench::cores;
use paxoslease_rig::clock::now;
use paxoslease_rig::interrupt;

use crate::case::Case;
use crate::figures::Figures;
use crate::machine::{Machine, Ticks};
use crate::measure::{Plan, QUICK_SETTLE, Running, SETTLE};
use crate::side::Side;

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
    /// Fewer and shorter turns: less than five minutes
    #[arg(long)]
    quick: bool,
    /// Measures nothing; writes the page from the figures that are there
    #[arg(long)]
    render: bool,
    /// Only these loads and parts
    ///
    /// A load is `pairs-64` or `handovers-16-spread`; `pairs` means all loads of this kind. A part
    /// is `start` or `clients`. A name that does not exist shows all names.
    #[arg(long, value_delimiter = ',', value_name = "LOAD,...")]
    only: Vec<String>,
    /// Only these services
    #[arg(long, value_enum, value_delimiter = ',', value_name = "SERVICE,...")]
    services: Vec<Side>,
    /// Rounds of the loads [default: 3, or 1 if --quick]
    #[arg(long)]
    rounds: Option<u32>,
    /// Where the page goes, also after a part of a run [default: docs, after a whole run]
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Task {
    /// Keeps a core busy until its input ends
    #[command(hide = true)]
    Busy { core: usize },
    /// Runs a load with the Rust client
    #[command(hide = true)]
    Client,
}

fn main() -> Result<()> {
    let cli = Cli::parse();
    match cli.task {
        Some(Task::Busy { core }) => return cores::keep_busy(core),
        Some(Task::Client) => return scale::run_rust_client(),
        None => {}
    }
    let folder = cli.folder.as_deref().unwrap_or(FOLDER.as_ref());
    if cli.render {
        return render(folder);
    }
    cli.check()?;
    interrupt::watch(|| {})?;
    let figures = cli.measure()?;
    // Sides are compared within a round, so the page has the figures of one whole run.
    let is_part = cli.quick || cli.rounds.is_some();
    let is_whole = !is_part && cli.only.is_empty() && cli.services.is_empty();
    if is_whole || cli.folder.is_some() {
        let path = folder.join(FIGURES);
        fs::create_dir_all(path.parent().unwrap_or(folder))?;
        fs::write(&path, figures.to_json()?).with_context(|| path.display().to_string())?;
        return render(folder);
    }
    print_tables(&page::pages(&figures)?[0].text()?);
    Ok(())
}

/// Prints the tables of a page and their headings.
fn print_tables(page: &str) {
    let mut heading = "";
    for block in page.split("\n\n") {
        if block.starts_with('#') {
            heading = block;
        } else if block.starts_with('|') {
            println!("{heading}\n\n{block}\n");
        }
    }
}

impl Cli {
    /// Checks that `--only` has names of loads and parts.
    fn check(&self) -> Result<()> {
        let cases = case::all(false).into_iter().map(Case::name);
        let parts = scale::PARTS.iter().map(|(part, _)| (*part).to_owned());
        let names: Vec<String> = cases.chain(parts).collect();
        let is_known = |only: &&String| names.iter().any(|name| is_meant(name, only));
        match self.only.iter().find(|only| !is_known(only)) {
            Some(unknown) => bail!("no load or part {unknown}; there are {}", names.join(", ")),
            None => Ok(()),
        }
    }

    fn measure(&self) -> Result<Figures> {
        let (mut machine, ticks) = (Machine::here(), Ticks::now());
        let (plan, scale) = (self.plan(), self.scale());
        let mut figures = Figures { method: plan.method(), ..Figures::default() };
        if !plan.cases.is_empty() {
            let services = start(&plan, &scale)?;
            figures.services = services.iter().map(|running| running.described.clone()).collect();
            measure::run(&plan, services, &mut figures)?;
        }
        for (part, measure) in scale::PARTS.iter().filter(|(part, _)| self.means(part)) {
            eprintln!("{part}");
            let began_at = now();
            if let Err(error) = measure(&scale, figures.scale.get_or_insert_default()) {
                eprintln!("{part}: {error:#}");
                figures.troubles.push((*part).to_owned());
            }
            eprintln!("{part}: {:.0?}", began_at.elapsed());
        }
        machine.stolen_percent = figures::rounded(ticks.stolen_percent());
        figures.machine = machine;
        Ok(figures)
    }

    fn scale(&self) -> scale::ScalePlan {
        let is_wanted = |side: &Side| self.services.is_empty() || self.services.contains(side);
        scale::ScalePlan { sides: Side::all().filter(is_wanted).collect(), quick: self.quick }
    }

    fn means(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| is_meant(name, only))
    }

    fn plan(&self) -> Plan {
        let (rounds, span, warmup) = if self.quick { (1, 300, 100) } else { (3, 1000, 250) };
        let is_meant = |case: &Case| self.means(&case.name());
        Plan {
            rounds: self.rounds.unwrap_or(rounds),
            span: Duration::from_millis(span),
            warmup: Duration::from_millis(warmup),
            settle: if self.quick { QUICK_SETTLE } else { SETTLE },
            cases: case::all(self.quick).into_iter().filter(is_meant).collect(),
        }
    }
}

/// Whether `only` is the name, or its first words.
fn is_meant(name: &str, only: &str) -> bool {
    name.strip_prefix(only).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

/// Starts the services that take any of the loads.
fn start(plan: &Plan, scale: &scale::ScalePlan) -> Result<Vec<Running>> {
    let start = |side: &Side| {
        eprintln!("{}: starting", side.title());
        let service = side.start().with_context(|| side.title())?;
        Running::new(*side, service)
    };
    let takes_some = |side: &&Side| plan.cases.iter().any(|case| side.takes(*case));
    scale.sides.iter().filter(takes_some).map(start).collect()
}

/// Writes the pages from the stored figures.
fn render(folder: &Path) -> Result<()> {
    let path = folder.join(FIGURES);
    let json = fs::read_to_string(&path).with_context(|| format!("no {}", path.display()))?;
    page::pages(&Figures::read(&json)?)?.iter().try_for_each(|page| page.write(folder))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scale::{MemoryRow, ScaleFigures};

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

    #[test]
    fn a_service_without_a_figure_leaves_the_goal_of_ours() {
        let row = |side, bytes: &[f64], problem: Option<&str>| {
            let (bytes, problem) = (bytes.to_vec(), problem.map(str::to_owned));
            MemoryRow { side, leases: 100_000, bytes, problem }
        };
        let memory =
            vec![row(Side::Ours, &[80.0, 81.0], None), row(Side::Etcd, &[], Some("too|slow"))];
        let scale = Some(ScaleFigures { memory, ..ScaleFigures::default() });
        let [page, goals] = page::pages(&Figures { scale, ..Figures::default() }).expect("pages");
        let (page, goals) = (page.text().expect("a page"), goals.text().expect("goals"));
        assert!(page.contains("| etcd x 3 | 100 k | not measured: too slow |"), "{page}");
        assert!(page.contains("| PaxosLease x 3 | 100 k | 81.0 |"), "{page}");
        assert!(goals.contains("at most 88 bytes | 81.0, met |"), "{goals}");
    }
}
