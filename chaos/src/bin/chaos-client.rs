//! A client that the chaos harness starts, pauses and kills.

use anyhow::Context as _;
use paxoslease_chaos::clients;

fn main() -> anyhow::Result<()> {
    let options = std::env::args().nth(1).context("only the chaos harness starts this program")?;
    clients::run(&serde_json::from_str(&options)?)
}
