//! The page: figures in, text and pictures out, the same ones for the same figures on every
//! machine. Each module is a part of it; the words stand with the figures they are about.

mod goals;
mod method;
mod numbers;
mod scale;
mod speed;

use anyhow::Result;
use paxoslease_bench::page::Page;

use crate::figures::Figures;

const INTRODUCTION: &str = "\
# Beside the services people use

Written by `cargo xtask bench peers`; do not edit. A cell of three PaxosLease processes, with a quorum
on every operation, beside one Redis server that asks nobody, Redlock over three of them, ZooKeeper
and etcd: real processes on one machine, under the same load in the same run.
";

/// Everything that was measured.
pub(crate) fn page(figures: &Figures) -> Result<Page> {
    let command = "cargo xtask bench peers -- --render";
    let mut page = Page::new("benchmarks.md", command, INTRODUCTION);
    speed::headline(&mut page, figures)?;
    method::how_to_read(&mut page, figures);
    goals::section(&mut page, figures);
    speed::pairs(&mut page, figures)?;
    speed::latency(&mut page, figures)?;
    speed::renewals(&mut page, figures);
    speed::handovers(&mut page, figures)?;
    speed::cost(&mut page, figures);
    if let Some(measured) = &figures.scale {
        scale::sections(&mut page, measured)?;
    }
    method::section(&mut page, figures);
    Ok(page)
}
