//! `paxoslease dev`: a whole cell on this machine, to try things out.
//!
//! Its name is random at every start, so no client can hold a lease of it and no quarantine is
//! needed. All nodes run in this process, or each in a process of its own that can be killed. What
//! they keep on disk is in a temporary folder.

mod processes;

use std::fmt::{self, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;
use std::{env, fs, io};

use anyhow::{Context as _, anyhow};
use paxoslease_client::Client;
use paxoslease_node::StartError as NodeError;
use paxoslease_server::{Config, Server, StartError};
use serde_json::{Value, json};
use tracing_subscriber::filter::LevelFilter;

use self::processes::Processes;
use crate::args::DevArgs;
use crate::{Verdict, log, output, signals};

/// The interval of checks whether the cell is ready, and whether its processes still run.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

pub(crate) fn run(args: DevArgs) -> anyhow::Result<Verdict> {
    log::begin(&args.log, LevelFilter::ERROR)?;
    let stop = signals::stop()?;
    let cell = DevCell::draw(&args)?;
    if args.processes {
        let mut processes = Processes::start(&cell)?;
        let client = cell.client()?;
        if wait_until(&stop, || Ok(processes.all_run()? && cell.is_ready(&client)))? {
            print_summary(&args, &cell, Some(&processes.pids()))?;
            wait_until(&stop, || processes.report_ended(|| cell.votes(&client)))?;
        }
        return Ok(Verdict::Well);
    }
    let folder = CellFolder::of(&cell);
    let servers = cell.start(folder.path()).map_err(name_port)?;
    let client = cell.client()?;
    if wait_until(&stop, || Ok(cell.is_ready(&client)))? {
        print_summary(&args, &cell, None)?;
        output::to_stderr(&format!("{}: stopping\n", stop.recv()?));
    }
    servers.into_iter().for_each(Server::shutdown);
    Ok(Verdict::Well)
}

/// Waits for a condition; `false` if a signal came first.
fn wait_until(
    stop: &Receiver<&'static str>,
    mut is_so: impl FnMut() -> anyhow::Result<bool>,
) -> anyhow::Result<bool> {
    loop {
        match stop.recv_timeout(POLL_INTERVAL) {
            Err(RecvTimeoutError::Timeout) if is_so()? => return Ok(true),
            Err(RecvTimeoutError::Timeout) => {}
            asked => {
                output::to_stderr(&format!("{}: stopping\n", asked?));
                return Ok(false);
            }
        }
    }
}

fn print_summary(args: &DevArgs, cell: &DevCell, pids: Option<&[u32]>) -> anyhow::Result<()> {
    output::to_stderr(&cell.summary(pids));
    if args.json {
        output::to_stdout(&cell.json(pids))?;
    }
    Ok(())
}

struct DevCell {
    name: String,
    max_lease: Duration,
    redis_testing: bool,
    nodes: Vec<Addresses>,
}

/// The folder of the nodes' data, removed with the cell.
struct CellFolder(PathBuf);

impl CellFolder {
    fn of(cell: &DevCell) -> Self {
        Self(env::temp_dir().join(format!("paxoslease-{}", cell.name)))
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for CellFolder {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            tracing::debug!(%error, "cannot remove the folder of the cell");
        }
    }
}

/// How many nodes vote.
struct Votes {
    voting: usize,
    all: usize,
}

impl fmt::Display for Votes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { voting, all } = self;
        let outlook = if *voting > all / 2 {
            "a majority is left, so leases are granted and renewed as before"
        } else {
            "no majority is left: nothing is granted, and leases expire"
        };
        write!(f, "{voting} of {all} nodes vote: {outlook}")
    }
}

/// The error of a cell that did not start, with the option for another port if one is taken.
fn name_port(error: StartError) -> anyhow::Error {
    let source = match &error {
        StartError::Listen { source, .. } => Some(source),
        StartError::Node(NodeError::Listen { source, .. }) => Some(source),
        _ => None,
    };
    if source.is_some_and(|source| source.kind() == io::ErrorKind::AddrInUse) {
        return anyhow!("{error}: see --port");
    }
    error.into()
}

struct Addresses {
    id: u16,
    clients: String,
    peers: String,
    http: String,
}

impl DevCell {
    fn draw(args: &DevArgs) -> anyhow::Result<Self> {
        let random = getrandom::u32().map_err(|error| anyhow!("no randomness: {error}"))?;
        let addresses = |index| {
            let at = |offset| -> io::Result<String> {
                let port = match args.port {
                    0 => reserved_port()?,
                    first => first + 10 * index + offset,
                };
                Ok(format!("127.0.0.1:{port}"))
            };
            Ok(Addresses { id: index + 1, clients: at(0)?, peers: at(1)?, http: at(2)? })
        };
        let nodes: io::Result<Vec<Addresses>> = (0..args.nodes).map(addresses).collect();
        Ok(Self {
            name: format!("dev-{random:08x}"),
            max_lease: args.max_lease,
            redis_testing: args.redis_testing,
            nodes: nodes.context("cannot find free ports")?,
        })
    }

    fn endpoints(&self) -> String {
        let endpoints: Vec<&str> = self.nodes.iter().map(|node| node.clients.as_str()).collect();
        endpoints.join(",")
    }

    fn client(&self) -> anyhow::Result<Client> {
        Ok(Client::new(&self.endpoints())?)
    }

    /// Whether every node is connected to every other. A majority would be enough to serve, but
    /// then the cell might not survive the death of one node.
    fn is_ready(&self, client: &Client) -> bool {
        self.nodes.iter().all(|node| {
            let status = client.status_of_blocking(&node.clients);
            status.is_ok_and(|status| status.ready && status.peers.iter().all(|peer| peer.up))
        })
    }

    /// How many nodes vote, as each of them says, whichever process they run in.
    fn votes(&self, client: &Client) -> Votes {
        let votes = |node: &&Addresses| {
            let status = client.status_of_blocking(&node.clients);
            status.is_ok_and(|status| status.quarantine_remaining.is_zero())
        };
        Votes { voting: self.nodes.iter().filter(votes).count(), all: self.nodes.len() }
    }

    fn start(&self, folder: &Path) -> Result<Vec<Server>, StartError> {
        let start = |node: &Addresses| {
            let mut config = paxoslease_node::Config::new(&self.name, node.id)
                .max_lease(self.max_lease)
                .data_dir(folder.join(node.id.to_string()))
                .new_cell(true);
            for peer in &self.nodes {
                config = config.peer(peer.id, &peer.peers);
            }
            let mut config = Config::new(config).listen(&node.clients, &node.http);
            config.redis.testing = self.redis_testing;
            Server::start(config)
        };
        self.nodes.iter().map(start).collect()
    }

    /// What runs and what to try, for people.
    fn summary(&self, pids: Option<&[u32]>) -> String {
        let first = &self.nodes[0];
        let nodes = if self.nodes.len() == 1 { "node" } else { "nodes" };
        let mut text = format!(
            "Cell {} of {} {nodes} runs: leases of up to {:?}, the nodes keep their records in \
             temporary folders\n\n",
            self.name,
            self.nodes.len(),
            self.max_lease,
        );
        for (index, node) in self.nodes.iter().enumerate() {
            let pid = pids.map_or(String::new(), |pids| format!("  process {}", pids[index]));
            let Addresses { id, clients, http, .. } = node;
            let _ = writeln!(text, "  node {id}  clients {clients}  http://{http}{pid}");
        }
        let (program, port) = (program(), port_of(&first.clients));
        let kill = match pids {
            Some(pids) => format!("# a node dies, the leases survive\n  kill -9 {}", pids[0]),
            None => format!(
                "# the same with processes, to kill -9\n  {program} dev --processes --port {port}"
            ),
        };
        let _ = write!(
            text,
            include_str!("dev/what_to_try.txt"),
            endpoints = self.endpoints(),
            http = first.http,
            kill = kill,
            port = port,
            program = program,
        );
        text
    }

    /// The same for programs.
    fn json(&self, pids: Option<&[u32]>) -> String {
        let node = |(index, node): (usize, &Addresses)| {
            let Addresses { id, clients, peers, http } = node;
            let pid = pids.map(|pids| pids[index]);
            json!({
                "node": id,
                "listen": {"clients": clients, "peers": peers, "http": http},
                "pid": pid.unwrap_or_else(std::process::id),
            })
        };
        let nodes: Vec<Value> = self.nodes.iter().enumerate().map(node).collect();
        let max_lease = u64::try_from(self.max_lease.as_millis()).unwrap_or(u64::MAX);
        let cell =
            json!({"cell": self.name, "max_lease_ms": max_lease, "shards": 1, "nodes": nodes});
        format!("{cell}\n")
    }
}

/// A free port. The side that ends a connection keeps it in TIME_WAIT for a minute. During that
/// minute the system gives the port only to a process that asks for it by number.
fn reserved_port() -> io::Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    let client = TcpStream::connect(address)?;
    let (server, _) = listener.accept()?;
    drop(server);
    drop(client);
    Ok(address.port())
}

fn port_of(address: &str) -> &str {
    address.rsplit(':').next().unwrap_or(address)
}

/// The path with which this program was called.
fn program() -> String {
    std::env::args().next().unwrap_or_else(|| "paxoslease".to_owned())
}
