//! A process of the cell under test: one node, and the orders it carries out, one after the other.
//!
//! It ends when its orders do, so nothing is left behind when the benchmark is gone.

use std::io::{BufRead, Write};
use std::process::exit;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use paxoslease::{Config, LeaseGuard, Node, Role};
use paxoslease_bench::clock::{now, process_time};

use crate::counters::Counters;
use crate::load::{self, HOLDER, write_name};
use crate::orders::{Answer, NodeStatus, Order, Spans, Usage, histogram};
use crate::{ping, system};

/// What a process is started with.
#[derive(Args, Clone, Debug)]
pub(crate) struct Member {
    /// Members and their addresses, from number 1 on; any other number is a proposer
    #[arg(long)]
    pub(crate) node: u16,
    #[arg(long, value_delimiter = ',')]
    pub(crate) members: Vec<String>,
    #[arg(long)]
    pub(crate) shards: u16,
    #[arg(long)]
    pub(crate) spin_us: u64,
    #[arg(long)]
    pub(crate) max_lease_ms: u64,
    /// Nobody used this cell before
    #[arg(long)]
    pub(crate) new_cell: bool,
    #[arg(long)]
    pub(crate) data_dir: Option<std::path::PathBuf>,
    /// The core to stay on
    #[arg(long)]
    pub(crate) core: Option<usize>,
}

impl Member {
    fn config(&self) -> Config {
        let mut config = Config::new("bench", self.node)
            .shards(self.shards)
            .spin(Duration::from_micros(self.spin_us))
            .max_lease(Duration::from_millis(self.max_lease_ms))
            .new_cell(self.new_cell);
        for (address, member) in self.members.iter().zip(1..) {
            config = config.peer(member, address);
        }
        if usize::from(self.node) > self.members.len() {
            config = config.role(Role::Proposer);
        }
        match &self.data_dir {
            Some(folder) => config.data_dir(folder),
            None => config,
        }
    }
}

/// Runs a node until its orders end.
pub(crate) fn run(member: &Member) -> Result<()> {
    if let Some(core) = member.core {
        system::pin(core)?;
    }
    let counters = Counters::install()?;
    let node = Node::start_blocking(member.config())?;
    let mut process = Process { node, counters, load: None, held: Vec::new() };
    for order in orders() {
        let last = matches!(order, Order::Shutdown);
        let answer = process.carry_out(order);
        let answer = answer.unwrap_or_else(|error| Answer::Failed(format!("{error:#}")));
        let mut stdout = std::io::stdout().lock();
        serde_json::to_writer(&mut stdout, &answer)?;
        stdout.write_all(b"\n")?;
        stdout.flush()?;
        if last {
            exit(0);
        }
    }
    Ok(())
}

/// Orders as they come. Whatever is being done ends with them.
fn orders() -> mpsc::Receiver<Order> {
    let (sender, orders) = mpsc::channel();
    thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let order = line.ok().and_then(|line| serde_json::from_str(&line).ok());
            let Some(order) = order else { break };
            if sender.send(order).is_err() {
                break;
            }
        }
        exit(1);
    });
    orders
}

struct Process {
    node: Node,
    counters: Counters,
    load: Option<load::Running>,
    held: Vec<LeaseGuard>,
}

impl Process {
    fn carry_out(&mut self, order: Order) -> Result<Answer> {
        match order {
            Order::Status => self.status(),
            Order::Usage => self.usage(),
            Order::Acquire { count } => self.acquire(count),
            Order::Echo(pinging) => ping::echo(pinging).map(Answer::Echoing),
            Order::Ping { at, count, pinging } => ping::ping(at, count, pinging).map(Answer::Timed),
            Order::StartLoad(load) => {
                self.load = Some(load::Running::start(self.node.clone(), load)?);
                Ok(Answer::Done)
            }
            Order::StopLoad => {
                let load = self.load.take().context("there is no load")?;
                load.stop().map(Answer::Loaded)
            }
            Order::Fill { leases, ttl } => {
                load::fill(&self.node, &mut self.held, leases, ttl)?;
                Ok(Answer::Done)
            }
            Order::Held => {
                let held = self.held.iter().filter(|lease| lease.is_held()).count();
                let lost = self.held.len() - held;
                Ok(Answer::Held { held: held as u32, lost: lost as u32 })
            }
            Order::Shutdown => {
                self.node.shutdown_blocking();
                Ok(Answer::Done)
            }
        }
    }

    fn status(&self) -> Result<Answer> {
        let status = load::block_on(self.node.status())?;
        Ok(Answer::Status(NodeStatus {
            quarantine_remaining: status.quarantine_remaining,
            peers_up: status.peers.iter().filter(|peer| peer.up).count(),
            leases: status.leases,
            acceptor_bytes: status.acceptor_bytes,
            longest_turn: status.longest_turn,
        }))
    }

    fn usage(&self) -> Result<Answer> {
        let sum = |name: &str, label| self.counters.sum(name, label);
        Ok(Answer::Usage(Usage {
            cpu: process_time(),
            resident_bytes: system::resident_bytes()?,
            sleeps: system::sleeps()?,
            messages: sum("paxoslease_messages_total", Some(("direction", "out"))),
            renewals: sum("paxoslease_renewals_total", Some(("result", "granted"))),
            pauses: sum("paxoslease_pauses_total", None),
        }))
    }

    /// On this thread, as a program without a runtime would.
    fn acquire(&self, count: u32) -> Result<Answer> {
        let mut nanos = histogram();
        let mut name = String::new();
        for number in 0..count {
            write_name(&mut name, "load", self.node.id(), number);
            let asked_at = now();
            let lease = self.node.acquire(&name, Duration::from_secs(5)).holder(HOLDER).blocking();
            nanos.saturating_record(asked_at.elapsed().as_nanos() as u64);
            if let Err(error) = lease.map(LeaseGuard::release_blocking) {
                bail!("{name}: {error}");
            }
        }
        Ok(Answer::Timed(Spans::of(&nanos)))
    }
}
