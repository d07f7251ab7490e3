//! The configuration of a node: the file, overridden by environment variables and options.

use std::fmt::Write as _;

use clap::CommandFactory as _;
use clap::error::ErrorKind;
use paxoslease_node::{ClientTls, Config, Limits, Role, Tls};
use serde_json::json;

use crate::args::{Args, CELL_DEFAULT, ServeArgs};

/// Resolves and checks the configuration. Contradicting options are a usage error.
pub(super) fn config(args: &ServeArgs) -> anyhow::Result<Config> {
    let mut config = match &args.config {
        Some(path) => Config::load(path)?,
        None => Config::new(CELL_DEFAULT, 0),
    };
    if !args.peers.is_empty() {
        config.peers.clear();
    }
    for (id, address) in &args.peers {
        if let Some(other) = config.peers.insert(*id, address.clone()) {
            let why = format!("node {id} is given twice, as {other} and as {address}; drop one");
            return Err(misused(&why));
        }
    }
    override_with(&mut config.cell, &args.cell);
    override_with(&mut config.node, &args.node);
    override_with(&mut config.role, &args.role);
    override_with(&mut config.max_lease, &args.max_lease);
    override_with(&mut config.clock_drift_ppm, &args.clock_drift_ppm);
    override_with(&mut config.spin, &args.spin);
    config.listen.peers = args.listen_peers.clone().or(config.listen.peers);
    config.listen.clients = args.listen_clients.clone().or(config.listen.clients);
    config.listen.http = args.listen_http.clone().or(config.listen.http);
    for limit in &args.limits {
        if let Err(error) = config.limits.set(limit) {
            return Err(misused(&format!("--limit {limit}: {}", error.problem())));
        }
    }
    config.new_cell |= args.new_cell;
    config.data_dir = args.data_dir.clone().or(config.data_dir);
    config.shards = args.shards.or(config.shards);
    config.reset_stable_record |= args.reset_stable_record;
    config.tls = tls(args, config.tls)?;
    config.listen.allow_plaintext |= args.insecure_plaintext;
    config.listen.peers_out_of_reach |= args.peers_out_of_reach;
    config.check()?;
    Ok(config)
}

fn override_with<T: Clone>(setting: &mut T, option: &Option<T>) {
    if let Some(value) = option {
        *setting = value.clone();
    }
}

fn tls(args: &ServeArgs, file: Option<Tls>) -> anyhow::Result<Option<Tls>> {
    let (cert, key, ca, clients) = match file {
        Some(Tls { cert, key, ca, clients, .. }) => (Some(cert), Some(key), Some(ca), clients),
        None => (None, None, None, ClientTls::Off),
    };
    let cert = args.tls_cert.clone().or(cert);
    let key = args.tls_key.clone().or(key);
    let ca = args.tls_ca.clone().or(ca);
    let clients = args.tls_clients.unwrap_or(clients);
    match (cert, key, ca) {
        (Some(cert), Some(key), Some(ca)) => Ok(Some(Tls::new(cert, key, ca).clients(clients))),
        (None, None, None) if clients == ClientTls::Off => Ok(None),
        _ => Err(misused("TLS needs --tls-cert, --tls-key and --tls-ca, or none of them")),
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
pub(super) fn members(config: &Config) -> String {
    let members = config.peers.iter().map(|(id, address)| format!("{id} at {address}"));
    members.collect::<Vec<_>>().join(", ")
}

/// Whether tokens protect leases only as long as peer ports cannot be reached from outside the
/// cell.
pub(super) const fn trusts_peers(config: &Config) -> bool {
    config.listen.peers_out_of_reach && config.tls.is_none() && !config.access.is_empty()
}

/// The configuration for people.
pub(super) fn text(config: &Config) -> String {
    let Config { cell, node, role, max_lease, clock_drift_ppm, .. } = config;
    let mut text = "The configuration makes sense. It would run\n".to_owned();
    let mut line = |what: &str, value: &str| {
        let _ = writeln!(text, "  {what:<10}  {value}");
    };
    line("node", &format!("{node} of cell {cell}, a {role}"));
    line("members", &members(config));
    let encrypted = if config.tls.is_some() { "mutual TLS" } else { "unencrypted" };
    match (config.listen_for_peers(), role) {
        (Some(address), _) => line("peers", &format!("on {address}, {encrypted}")),
        (None, Role::Member) => line("peers", "off"),
        (None, Role::Proposer) => line("peers", &format!("connects to the members, {encrypted}")),
    }
    let way = match config.tls.as_ref().map_or(ClientTls::Off, |tls| tls.clients) {
        ClientTls::Off => "unencrypted",
        ClientTls::Server => "TLS",
        ClientTls::Mutual => "mutual TLS",
    };
    let on = |at: Option<&str>| at.map_or("off".to_owned(), |at| format!("on {at}, {way}"));
    line("clients", &on(config.listen.for_clients()));
    line("http", &on(config.listen.for_http()));
    match config.access.len() {
        0 => line("access", "any client that can connect may do everything"),
        entries => line("access", &format!("by token, {entries} in [[access]]")),
    }
    if trusts_peers(config) {
        line("", "but a node that reaches a peer port needs no token");
    }
    line("max lease", &format!("{max_lease:?}, clocks off by up to {clock_drift_ppm} ppm"));
    match (&config.data_dir, config.role) {
        (Some(path), _) => line("data", &path.display().to_string()),
        (None, Role::Member) => line("data", &format!("none: waits {max_lease:?} at every start")),
        (None, Role::Proposer) => line("data", "none"),
    }
    match config.shards {
        Some(shards) => line("shards", &shards.to_string()),
        None => line("shards", "one per core"),
    }
    let Limits { leases, names_bytes, connections, .. } = config.limits;
    let memory = u64::from(leases) * Limits::LEASE_BYTES + names_bytes;
    line(
        "limits",
        &format!(
            "{leases} leases and {names_bytes} bytes of long names, up to {} MB together; \
             {connections} connections",
            memory / 1_000_000
        ),
    );
    if config.new_cell {
        line("new cell", "votes at once if the data folder is empty");
    }
    if config.reset_stable_record {
        line("reset", &format!("the stable record; waits {max_lease:?} before it votes"));
    }
    text
}

/// The configuration for programs.
pub(super) fn json(config: &Config) -> String {
    let plan = json!({
        "cell": config.cell,
        "node": config.node,
        "role": config.role,
        "members": config.peers,
        "listen": {
            "peers": config.listen_for_peers(),
            "clients": config.listen.for_clients(),
            "http": config.listen.for_http(),
        },
        "max_lease_ms": u64::try_from(config.max_lease.as_millis()).unwrap_or(u64::MAX),
        "clock_drift_ppm": config.clock_drift_ppm,
        "data_dir": config.data_dir,
        "tls": config.tls.is_some(),
        "tls_clients": config.tls.as_ref().map_or(ClientTls::Off, |tls| tls.clients).to_string(),
        "access": config.access.len(),
        "peers_out_of_reach": config.listen.peers_out_of_reach,
        "shards": config.shards,
        "limits": {
            "leases": config.limits.leases,
            "names_bytes": config.limits.names_bytes,
            "connections": config.limits.connections,
        },
        "new_cell": config.new_cell,
        "reset_stable_record": config.reset_stable_record,
    });
    format!("{plan}\n")
}
