//! Measures the paper's claims in the simulator, and writes `docs/paper.md`, its plots and the
//! diagrams of every schedule.
//!
//! All figures are simulated times and counted messages from fixed seeds, so every machine writes
//! the same files. Each module measures one section of the template.

mod contention;
mod holes;
mod loss;
mod memory;
mod messages;
mod recovery;
mod round_trips;
mod sample;
mod worlds;

use std::path::PathBuf;

use clap::Parser;
use paxoslease_bench::page::Page;

/// Measures the paper's claims in the simulator
#[derive(Parser)]
#[command(version)]
struct Cli {
    /// Where paper.md, plots/ and diagrams/ are
    folder: PathBuf,
}

const TEMPLATE: &str = include_str!("paper.md.in");

fn main() -> anyhow::Result<()> {
    page()?.write(&Cli::parse().folder)
}

fn page() -> anyhow::Result<Page> {
    let mut page = Page::new("paper.md", "cargo xtask paper", TEMPLATE);
    let tuning = worlds::setup(3, 1).tuning;
    page.set("link", worlds::LINK_IN_WORDS);
    page.set("attempt_min_ms", tuning.attempt_timeout_min.as_millis());
    page.set("attempt_ms", tuning.attempt_timeout.as_millis());
    page.set("request_ms", tuning.request_timeout.as_millis());
    for (what, section) in [
        ("contention", contention::section as fn(&mut Page) -> anyhow::Result<()>),
        ("round trips", round_trips::section),
        ("recovery", recovery::section),
        ("loss", loss::section),
        ("messages", messages::section),
        ("memory", memory::section),
        ("what the paper lacks", holes::section),
    ] {
        eprintln!("{what} ...");
        section(&mut page)?;
    }
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_the_measured_figures() {
        let docs = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs");
        page().expect("a page").check(&docs).expect("up to date");
    }
}
