//! `paxoslease serve`: one node of a cell, until it is told to stop.
//!
//! What it does with peers, clock and disk is the library's. Protocols for clients are not here
//! yet, and it says so.

mod plan;
mod report;

use std::sync::mpsc::RecvTimeoutError;

use paxoslease::{Config, Node};
use tracing::{info, warn};
use tracing_subscriber::filter::LevelFilter;

use self::report::{LOOK_EVERY, Report};
use crate::args::ServeArgs;
use crate::{Verdict, log, output, signals};

pub(crate) fn run(args: ServeArgs) -> anyhow::Result<Verdict> {
    let config = plan::config(&args)?;
    if args.check {
        plan::check_files(&config)?;
        let text = if args.json { plan::json(&config) } else { plan::text(&config) };
        output::to_stdout(&text)?;
        return Ok(Verdict::Well);
    }
    log::begin(&args.log, LevelFilter::INFO)?;
    let stop = signals::stop()?;
    announce(&config);
    let node = Node::start_blocking(config)?;
    info!("running. Leases are taken by embedding a node; protocols for clients are yet to come");
    let mut report = Report::default();
    let stopped_by = loop {
        let status = pollster::block_on(node.status())?;
        if report.look(&status) && args.json {
            output::to_stdout(&format!("{}\n", serde_json::to_string(&status)?))?;
        }
        match stop.recv_timeout(LOOK_EVERY) {
            Err(RecvTimeoutError::Timeout) => {}
            asked => break asked?,
        }
    };
    info!("{stopped_by}: stopping");
    node.shutdown_blocking();
    info!("stopped");
    Ok(Verdict::Well)
}

/// Logs what is about to run, and what it lacks.
fn announce(config: &Config) {
    info!(
        node = config.node,
        cell = config.cell,
        role = %config.role,
        members = plan::members(config),
        listen = plan::listen(config),
        max_lease = ?config.max_lease,
        data_dir = config.data_dir.as_ref().map(|path| path.display().to_string()),
        tls = config.tls.is_some(),
        "starting"
    );
    for (key, address) in [("clients", &config.listen.clients), ("http", &config.listen.http)] {
        if let Some(address) = address {
            warn!("nothing listens on {address}: `listen.{key}` is for a version to come");
        }
    }
}
