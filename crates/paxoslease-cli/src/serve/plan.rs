//! The configuration of a node: the file, overridden by environment variables and options.

use std::fmt::Write as _;

use clap::CommandFactory as _;
use clap::error::ErrorKind;
use paxoslease_node::{DataDirCheck, Limits, Role, Tls, check_data_dir};
use paxoslease_server::{ClientTls, Config, StartError};
use serde_json::json;
use time::OffsetDateTime;

use crate::args::{Args, CELL_DEFAULT, ServeArgs};

/// Resolves and checks the configuration. Contradicting options are a usage error.
pub(super) fn config(args: &ServeArgs) -> anyhow::Result<Config> {
    let mut config = match &args.config {
        Some(path) => Config::load(path)?,
        None => Config::new(paxoslease_node::Config::new(CELL_DEFAULT, 0)),
    };
    for limit in &args.limits {
        if let Err(error) = config.set_limit(limit) {
            return Err(misused(&format!("--limit {limit}: {}", error.problem())));
        }
    }
    override_with(&mut config.client_tls, &args.tls_clients);
    config.redis.testing |= args.redis_testing;
    let listen = &mut config.listen;
    listen.clients = args.listen_clients.clone().or(listen.clients.take());
    listen.http = args.listen_http.clone().or(listen.http.take());
    listen.peers_out_of_reach |= args.peers_out_of_reach;
    let node = &mut config.node;
    if !args.peers.is_empty() {
        node.peers.clear();
    }
    for (id, address) in &args.peers {
        if let Some(other) = node.peers.insert(*id, address.clone()) {
            let why = format!("node {id} is given twice, as {other} and as {address}; drop one");
            return Err(misused(&why));
        }
    }
    override_with(&mut node.cell, &args.cell);
    override_with(&mut node.node, &args.node);
    override_with(&mut node.role, &args.role);
    override_with(&mut node.max_lease, &args.max_lease);
    override_with(&mut node.clock_drift_ppm, &args.clock_drift_ppm);
    override_with(&mut node.shards, &args.shards);
    override_with(&mut node.spin, &args.spin);
    node.listen.peers = args.listen_peers.clone().or(node.listen.peers.take());
    node.data_dir = args.data_dir.clone().or(node.data_dir.take());
    node.new_cell |= args.new_cell;
    node.reset_stable_record |= args.reset_stable_record;
    node.listen.allow_plaintext |= args.insecure_plaintext;
    node.tls = tls(args, node.tls.take())?;
    config.check()?;
    Ok(config)
}

fn override_with<T: Clone>(setting: &mut T, option: &Option<T>) {
    if let Some(value) = option {
        *setting = value.clone();
    }
}

fn tls(args: &ServeArgs, file: Option<Tls>) -> anyhow::Result<Option<Tls>> {
    let (cert, key, ca) = match file {
        Some(Tls { cert, key, ca, .. }) => (Some(cert), Some(key), Some(ca)),
        None => (None, None, None),
    };
    let cert = args.tls_cert.clone().or(cert);
    let key = args.tls_key.clone().or(key);
    let ca = args.tls_ca.clone().or(ca);
    let missing: Vec<String> = [("cert", &cert), ("key", &key), ("ca", &ca)]
        .into_iter()
        .filter(|(_, path)| path.is_none())
        .map(|(file, _)| format!("--tls-{file} (PAXOSLEASE_NODE_TLS_{})", file.to_uppercase()))
        .collect();
    match (cert, key, ca) {
        (Some(cert), Some(key), Some(ca)) => Ok(Some(Tls::new(cert, key, ca))),
        (None, None, None) => Ok(None),
        _ => Err(misused(&format!(
            "TLS needs a certificate, a key and an authority, or none of them; missing: {}",
            missing.join(", ")
        ))),
    }
}

/// The same format as clap's usage errors.
fn misused(why: &str) -> anyhow::Error {
    let mut definition = Args::command();
    definition.build();
    let serve = definition.find_subcommand_mut("serve").expect("it is being run");
    serve.error(ErrorKind::ArgumentConflict, why).into()
}

/// `1 at host:port, 2 at host:port`.
pub(super) fn peers(config: &paxoslease_node::Config) -> String {
    let peers = config.peers.iter().map(|(id, address)| format!("{id} at {address}"));
    peers.collect::<Vec<_>>().join(", ")
}

/// Whether tokens protect leases only as long as peer ports cannot be reached from outside the
/// cell.
pub(super) const fn trusts_peers(config: &Config) -> bool {
    config.listen.peers_out_of_reach && config.node.tls.is_none() && !config.access.is_empty()
}

/// What a check of the files of a configuration found.
pub(super) struct Found {
    /// The end of the certificate, in seconds since 1970.
    tls_until: Option<u64>,
    data_dir: DataDirCheck,
}

/// Checks certificates and the data folder.
pub(super) fn check(config: &Config) -> anyhow::Result<Found> {
    let node = &config.node;
    let tls_until = match &node.tls {
        Some(tls) => Some(tls.check(&node.cell, node.node, node.role)?),
        None => None,
    };
    let data_dir = match &node.data_dir {
        Some(path) => check_data_dir(path).map_err(|error| StartError::Node(error.into()))?,
        None => DataDirCheck::Usable,
    };
    Ok(Found { tls_until, data_dir })
}

/// The configuration for people.
pub(super) fn text(config: &Config, found: &Found) -> String {
    let Config { node, listen, client_tls, access, audit, limits, .. } = config;
    let (role, max_lease) = (node.role, node.max_lease);
    let mut text = "The configuration is valid. It would run\n".to_owned();
    let mut line = |what: &str, value: &str| {
        let _ = writeln!(text, "  {what:<11}  {value}");
    };
    line("node", &format!("{} of cell {}, a {role}", node.node, node.cell));
    line("list", &peers(node));
    let encrypted = if node.tls.is_some() { "mutual TLS" } else { "unencrypted" };
    match (node.listen_for_peers(), role) {
        (Some(address), _) => line("peers", &format!("on {address}, {encrypted}")),
        (None, Role::Member) => line("peers", "off"),
        (None, Role::Proposer) => line("peers", &format!("connects to the members, {encrypted}")),
    }
    let way = match client_tls {
        ClientTls::Off => "unencrypted",
        ClientTls::Server => "TLS",
        ClientTls::Mutual => "mutual TLS",
    };
    let on = |at: Option<&str>| at.map_or("off".to_owned(), |at| format!("on {at}, {way}"));
    line("clients", &on(listen.for_clients()));
    line("http", &on(listen.for_http()));
    if let Some(until) = found.tls_until {
        line("certificate", &format!("valid until {}", date(until)));
    }
    match access.len() {
        0 => line("access", "any client that can connect may do everything"),
        entries => line("access", &format!("by token, {entries} in [[access]]")),
    }
    if trusts_peers(config) {
        line("", "but a node that reaches a peer port needs no token");
    }
    line("max lease", &format!("{max_lease:?}, clocks off by up to {} ppm", node.clock_drift_ppm));
    match (&node.data_dir, role) {
        (Some(path), _) => line("data", &path.display().to_string()),
        (None, Role::Member) => line("data", &format!("none: waits {max_lease:?} at every start")),
        (None, Role::Proposer) => line("data", "none"),
    }
    if found.data_dir == DataDirCheck::MustBeCreated {
        line(
            "",
            "which is missing: this user cannot create it, so systemd or an administrator must",
        );
    }
    if let Some(path) = audit {
        line("audit", &path.display().to_string());
    }
    line("shards", &node.shards.to_string());
    let Limits { leases, names_bytes, .. } = node.limits;
    let memory = u64::from(leases) * Limits::LEASE_BYTES + names_bytes;
    line(
        "limits",
        &format!(
            "{leases} leases and {names_bytes} bytes of long names, up to {} MB together; \
             {} connections",
            memory / 1_000_000,
            limits.connections
        ),
    );
    if node.new_cell {
        line("new cell", "founds it with all its peers if the data folder is empty");
    }
    if node.reset_stable_record {
        line("reset", "the stable record: the node is no longer the member that it was");
    }
    text
}

/// A day, such as `2027-11-18, for 365 days`.
fn date(until: u64) -> String {
    let seconds = i64::try_from(until).unwrap_or(i64::MAX);
    let Ok(at) = OffsetDateTime::from_unix_timestamp(seconds) else {
        return "the end of time".to_owned();
    };
    let left = (at - OffsetDateTime::now_utc()).whole_days();
    format!("{}, for {left} days", at.date())
}

/// The configuration for programs.
pub(super) fn json(config: &Config, found: &Found) -> String {
    let Config { node, listen, client_tls, access, limits, .. } = config;
    let plan = json!({
        "cell": node.cell,
        "node": node.node,
        "role": node.role,
        "list": node.peers,
        "listen": {
            "peers": node.listen_for_peers(),
            "clients": listen.for_clients(),
            "http": listen.for_http(),
        },
        "max_lease_ms": u64::try_from(node.max_lease.as_millis()).unwrap_or(u64::MAX),
        "clock_drift_ppm": node.clock_drift_ppm,
        "data_dir": node.data_dir,
        "tls": node.tls.is_some(),
        "tls_not_after_seconds": found.tls_until,
        "tls_clients": client_tls.to_string(),
        "access": access.len(),
        "peers_out_of_reach": listen.peers_out_of_reach,
        "shards": node.shards,
        "limits": {
            "leases": node.limits.leases,
            "names_bytes": node.limits.names_bytes,
            "connections": limits.connections,
        },
        "new_cell": node.new_cell,
        "reset_stable_record": node.reset_stable_record,
    });
    format!("{plan}\n")
}
