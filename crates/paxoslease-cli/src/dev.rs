//! `paxoslease dev`: a whole cell in one process, for trying out.
//!
//! Its name is drawn anew at every start, so nobody can hold a lease of it and no quarantine is
//! needed. There are no clients' protocols and there is no disk.

use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use anyhow::anyhow;
use paxoslease::{Config, Node};
use serde_json::json;
use tracing_subscriber::filter::LevelFilter;

use crate::args::DevArgs;
use crate::{Verdict, log, output, signals};

/// How often to look whether the cell is ready.
const LOOK_EVERY: Duration = Duration::from_millis(10);

pub(crate) fn run(args: DevArgs) -> anyhow::Result<Verdict> {
    log::begin(&args.log, LevelFilter::ERROR)?;
    let stop = signals::stop()?;
    let cell = Cell::draw(&args)?;
    let nodes: Vec<Node> = cell.start()?;
    let stopped_by = loop {
        match stop.recv_timeout(LOOK_EVERY) {
            Err(RecvTimeoutError::Timeout) if is_ready(&nodes)? => {
                output::to_stderr(&cell.introduction());
                if args.json {
                    output::to_stdout(&cell.json())?;
                }
                break stop.recv()?;
            }
            Err(RecvTimeoutError::Timeout) => {}
            asked => break asked?,
        }
    };
    output::to_stderr(&format!("{stopped_by}: stopping\n"));
    nodes.iter().for_each(Node::shutdown_blocking);
    Ok(Verdict::Well)
}

fn is_ready(nodes: &[Node]) -> anyhow::Result<bool> {
    for node in nodes {
        if !pollster::block_on(node.status())?.ready {
            return Ok(false);
        }
    }
    Ok(true)
}

/// What is going to run.
struct Cell {
    name: String,
    max_lease: Duration,
    /// Of node 1, 2 and so on, for peers.
    addresses: Vec<String>,
}

impl Cell {
    fn draw(args: &DevArgs) -> anyhow::Result<Self> {
        let random = getrandom::u32().map_err(|error| anyhow!("no randomness: {error}"))?;
        let address = |index| format!("{}:{}", Ipv4Addr::LOCALHOST, args.port + 10 * index);
        Ok(Self {
            name: format!("dev-{random:08x}"),
            max_lease: args.max_lease,
            addresses: (0..args.nodes).map(address).collect(),
        })
    }

    fn nodes(&self) -> impl Iterator<Item = (u16, &str)> {
        (1..).zip(self.addresses.iter().map(String::as_str))
    }

    fn start(&self) -> Result<Vec<Node>, paxoslease::StartError> {
        let start = |(id, _): (u16, &str)| {
            let config = Config::new(&self.name, id).max_lease(self.max_lease).shards(1);
            let config =
                self.nodes().fold(config, |config, (peer, address)| config.peer(peer, address));
            Node::start_blocking(config.ephemeral())
        };
        self.nodes().map(start).collect()
    }

    /// For people: what runs, and what to try.
    fn introduction(&self) -> String {
        let mut text = format!(
            "Cell {} runs in this process: leases of up to {:?}, nothing on disk\n",
            self.name, self.max_lease,
        );
        let mut peers = String::new();
        for (id, address) in self.nodes() {
            let _ = writeln!(text, "  node {id}  {address}  for peers");
            let _ = writeln!(peers, "      .peer({id}, \"{address}\")");
        }
        let nanos = self.max_lease.subsec_nanos();
        let max_lease = if nanos == 0 {
            format!("from_secs({})", self.max_lease.as_secs())
        } else {
            format!("from_nanos({})", self.max_lease.as_nanos())
        };
        let _ = write!(
            text,
            "
What to try: a program that takes leases from it by embedding a node that votes on none

  let config = Config::new(\"{}\", 10)
{peers}      .role(Role::Proposer)
      .max_lease(Duration::{max_lease})
      .shards(1);
  let node = Node::start(config).await?;
  let lease = node.acquire(\"master\", Duration::from_secs(5)).await?;

README.md has the whole of it. Protocols for clients in other processes are yet to come.
Ctrl-C stops the cell.
",
            self.name
        );
        text
    }

    /// For programs: the same.
    fn json(&self) -> String {
        let node = |(id, address)| json!({"node": id, "listen": {"peers": address}});
        let nodes: Vec<_> = self.nodes().map(node).collect();
        let max_lease = u64::try_from(self.max_lease.as_millis()).unwrap_or(u64::MAX);
        let cell =
            json!({"cell": self.name, "max_lease_ms": max_lease, "shards": 1, "nodes": nodes});
        format!("{cell}\n")
    }
}
