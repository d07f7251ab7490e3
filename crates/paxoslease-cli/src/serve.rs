//! `paxoslease serve`: runs one node of a cell until it is stopped.
//!
//! The libraries handle peers, clock, disk and clients. This module resolves the configuration,
//! reports the status, and stops the node.

mod files;
mod plan;
mod probe;
mod report;

use std::sync::mpsc::RecvTimeoutError;

use paxoslease_server::{Config, Server};
use sd_notify::NotifyState;
use tracing::{error, info, warn};
use tracing_subscriber::filter::LevelFilter;

use self::report::{POLL_INTERVAL, StatusLog};
use crate::args::ServeArgs;
use crate::signals::{self, Asked};
use crate::{Verdict, log, output};

pub(crate) fn run(args: ServeArgs) -> anyhow::Result<Verdict> {
    let mut config = match plan::config(&args) {
        Err(error) => match error.downcast::<clap::Error>() {
            Ok(misused) => misused.exit(),
            Err(error) => return Err(error),
        },
        planned => planned?,
    };
    if args.check {
        let found = plan::check(&config)?;
        let text = match args.json {
            true => plan::json(&config, &found),
            false => plan::text(&config, &found),
        };
        output::to_stdout(&text)?;
        return Ok(Verdict::Well);
    }
    if let Some(probe) = args.probe {
        return probe::run(&config, probe);
    }
    log::begin(&args.log, LevelFilter::INFO)?;
    let asked = signals::stop_or_reload(args.with_parent)?;
    announce(&config);
    files::fit(&mut config);
    let server = Server::start(config)?;
    for (what, address) in [("clients", server.clients()), ("http", server.http())] {
        match address {
            Some(address) => info!(%address, "listening for {what}"),
            None => info!("not listening for {what}"),
        }
    }
    notify(&[NotifyState::Ready]);
    let mut report = StatusLog::default();
    let stopped_by = loop {
        let status = paxoslease_client::block_on(server.node().status())?;
        if report.poll(&status) {
            notify(&[NotifyState::Status(&report::summary(&status))]);
            if args.json {
                output::to_stdout(&format!("{}\n", serde_json::to_string(&status)?))?;
            }
        }
        match asked.recv_timeout(POLL_INTERVAL) {
            Err(RecvTimeoutError::Timeout) => {}
            asked => match asked? {
                Asked::Stop(by) => break by,
                Asked::Reload => reload(&server, &args),
            },
        }
    };
    info!("{stopped_by}: stopping");
    notify(&[NotifyState::Stopping]);
    server.shutdown();
    info!("stopped");
    Ok(Verdict::Well)
}

/// Reads certificates and tokens again. If any cannot be used, nothing changes.
fn reload(server: &Server, args: &ServeArgs) {
    let read = || {
        let mut config = plan::config(args)?;
        files::fit(&mut config);
        Ok(config)
    };
    match server.reload(read) {
        Ok(reloaded) => {
            info!(access = reloaded.access, "SIGHUP: certificates and tokens were read again");
            if reloaded.needs_restart {
                warn!("the configuration has other changes too, which require a restart");
            }
        }
        Err(error) => error!("SIGHUP: nothing was changed: {error}"),
    }
}

/// Notifies systemd, if it started this process.
fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        warn!(%error, "cannot notify systemd");
    }
}

/// Logs the configuration.
fn announce(config: &Config) {
    let Config { node, listen, client_tls, access, .. } = config;
    info!(
        node = node.node,
        cell = node.cell,
        role = %node.role,
        list = plan::peers(node),
        listen = node.listen_for_peers(),
        max_lease = ?node.max_lease,
        data_dir = node.data_dir.as_ref().map(|path| path.display().to_string()),
        tls = node.tls.is_some(),
        tls_clients = node.tls.as_ref().map(|_| client_tls.to_string()),
        access = access.len(),
        peers_out_of_reach = listen.peers_out_of_reach,
        leases_max = node.limits.leases,
        names_bytes_max = node.limits.names_bytes,
        "starting"
    );
    if plan::trusts_peers(config) {
        warn!(
            "peers use no TLS, so a program that reaches a peer port needs no token; set [tls], or \
             block access to the peer ports (peers_out_of_reach confirms that)"
        );
    }
}
