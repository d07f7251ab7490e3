//! The report: a Markdown page, violations first, and a picture of the most interesting time. Every
//! figure is counted from the events; [`ReportFacts`] has what only the harness knows.

mod page;
mod timeline;

use std::path::Path;
use std::time::Duration;
use std::{fs, io};

use crate::check::{Rule, Verdict};
use crate::log::Records;

pub use timeline::Window;

/// What the events do not contain.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReportFacts {
    pub seed: u64,
    pub nodes: u16,
    pub network: String,
    /// The version of the binary, and of the one for upgrades.
    pub versions: Vec<String>,
    /// The time after healing in which every name had to be granted.
    pub bound: Duration,
    /// The command that repeats the schedule.
    pub replay: String,
    /// What processes did wrong.
    pub bugs: Vec<String>,
    /// Why the run ended early, if it did.
    pub failure: Option<String>,
    /// The violations that this run is meant to cause.
    pub expected: Vec<Rule>,
}

pub fn write(
    folder: &Path,
    facts: &ReportFacts,
    records: &Records,
    verdict: &Verdict,
) -> io::Result<()> {
    let window = Window::of_interest(verdict);
    fs::write(folder.join("timeline.svg"), timeline::draw(facts, verdict, window))?;
    fs::write(folder.join("report.md"), page::page(facts, records, verdict, window))
}
