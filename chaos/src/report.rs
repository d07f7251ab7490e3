//! A verdict for people: a page in Markdown and a picture of the time that matters most.
//!
//! Violations come first. Every figure is counted from the events of the run; what only the
//! harness knows comes as [`Facts`].

mod page;
mod timeline;

use std::path::Path;
use std::time::Duration;
use std::{fs, io};

use crate::check::{Rule, Verdict};
use crate::log::Records;

pub use timeline::Window;

/// What the events do not say.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Facts {
    /// What everything was drawn from.
    pub seed: u64,
    /// How many nodes.
    pub nodes: u16,
    /// How they were joined.
    pub network: String,
    /// What was tested: its version, and that of whatever it was replaced by.
    pub versions: Vec<String>,
    /// How long after healing every name had to be granted again.
    pub bound: Duration,
    /// The command that plays the same schedule again.
    pub replay: String,
    /// What no process may do and one did.
    pub bugs: Vec<String>,
    /// Why the run ended before its time, if it did.
    pub failure: Option<String>,
    /// What a run like this breaks, because that is what it is about.
    pub expected: Vec<Rule>,
}

/// Writes `report.md` and `timeline.svg` into a folder.
///
/// # Errors
/// When they cannot be written.
pub fn write(folder: &Path, facts: &Facts, records: &Records, verdict: &Verdict) -> io::Result<()> {
    let window = Window::of_interest(verdict);
    fs::write(folder.join("timeline.svg"), timeline::draw(facts, verdict, window))?;
    fs::write(folder.join("report.md"), page::page(facts, records, verdict, window))
}
