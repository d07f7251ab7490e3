//! A client that the chaos harness starts, pauses and kills.

use clap::Parser as _;
use paxoslease_chaos::clients::{self, Options};

fn main() -> anyhow::Result<()> {
    clients::run(&Options::parse())
}
