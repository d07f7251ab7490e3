//! A cell of processes: this very program, started again as its nodes, on loopback.
//!
//! Every answer has a deadline. Processes are killed by their ids and folders are removed when the
//! cell is dropped, also after a failure.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use paxoslease_bench::clock::{now, sleep};

use crate::orders::{Answer, Load, Loaded, NodeStatus, Order, Pinging, Spans, Usage};

/// Nothing takes longer than filling a node with ten million leases.
const ANSWER_MAX: Duration = Duration::from_secs(300);
/// Nodes hand their counters on a little more often.
const COUNTED_EVERY: Duration = Duration::from_millis(700);

/// How a cell is to be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) shards: u16,
    pub(crate) spin: Duration,
    pub(crate) max_lease: Duration,
    /// The first member stays on the first core, all others on the second.
    pub(crate) pinned: bool,
}

impl Default for Plan {
    fn default() -> Self {
        let (spin, max_lease) = (Duration::ZERO, Duration::from_secs(60));
        Self { shards: 1, spin, max_lease, pinned: false }
    }
}

pub(crate) struct Cell {
    /// A, B and C of the figures. Dropped before their folder.
    pub(crate) members: Vec<Process>,
    plan: Plan,
    addresses: Vec<String>,
    folder: Folder,
}

/// Removed in the end.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            eprintln!("cannot remove {}: {error}", self.0.display());
        }
    }
}

const MEMBERS: u16 = 3;

impl Cell {
    /// Three members that reach each other.
    pub(crate) fn start(plan: Plan) -> Result<Self> {
        let folder = std::env::temp_dir().join(format!("paxoslease-bench-{}", std::process::id()));
        fs::create_dir_all(&folder)?;
        let folder = Folder(folder);
        let addresses = free_addresses()?;
        let mut cell = Self { plan, addresses, folder, members: Vec::new() };
        for node in 1..=MEMBERS {
            let process = cell.spawn(node, true)?;
            cell.members.push(process);
        }
        for index in 0..cell.members.len() {
            cell.await_member(index)?;
        }
        Ok(cell)
    }

    /// A process that takes leases and votes on none, connected to all members.
    pub(crate) fn proposer(&self) -> Result<Process> {
        let mut process = self.spawn(MEMBERS + 1, true)?;
        process.await_peers(usize::from(MEMBERS))?;
        Ok(process)
    }

    /// Starts a member again, where its last life ended.
    pub(crate) fn restart(&mut self, index: usize) -> Result<()> {
        self.members[index] = self.spawn(index as u16 + 1, false)?;
        Ok(())
    }

    /// Waits until a member is connected to all others and votes.
    pub(crate) fn await_member(&mut self, index: usize) -> Result<()> {
        self.members[index].await_status(|status| {
            status.quarantine_remaining.is_zero() && status.peers_up >= usize::from(MEMBERS) - 1
        })
    }

    /// What the members used so far, everything counted if they were idle for a moment.
    pub(crate) fn usages(&mut self) -> Result<Vec<Usage>> {
        sleep(COUNTED_EVERY);
        self.members.iter_mut().map(Process::usage).collect()
    }

    fn spawn(&self, node: u16, new_cell: bool) -> Result<Process> {
        let mut command = Command::new(std::env::current_exe()?);
        command
            .arg("member")
            .args(["--node", &node.to_string()])
            .args(["--members", &self.addresses.join(",")])
            .args(["--shards", &self.plan.shards.to_string()])
            .args(["--spin-us", &self.plan.spin.as_micros().to_string()])
            .args(["--max-lease-ms", &self.plan.max_lease.as_millis().to_string()])
            .arg("--data-dir")
            .arg(self.folder.0.join(node.to_string()));
        if new_cell {
            command.arg("--new-cell");
        }
        if self.plan.pinned {
            command.args(["--core", if node == 1 { "0" } else { "1" }]);
        }
        Process::spawn(command)
    }
}

/// Where nobody listened a moment ago.
fn free_addresses() -> Result<Vec<String>> {
    let listeners: Vec<TcpListener> = (0..MEMBERS)
        .map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))
        .collect::<std::io::Result<_>>()?;
    let addresses = listeners.iter().map(|listener| Ok(listener.local_addr()?.to_string()));
    addresses.collect()
}

/// One process; killed when dropped.
pub(crate) struct Process {
    child: Child,
    orders: ChildStdin,
    answers: Receiver<String>,
}

impl Process {
    fn spawn(mut command: Command) -> Result<Self> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let orders = child.stdin.take().context("no pipe to a process")?;
        let stdout = child.stdout.take().context("no pipe from a process")?;
        let (sender, answers) = mpsc::channel();
        thread::spawn(move || {
            let lines = BufReader::new(stdout).lines().map_while(Result::ok);
            lines.map_while(|line| sender.send(line).ok()).for_each(drop);
        });
        Ok(Self { child, orders, answers })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// kill -9.
    pub(crate) fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Stops the node, which leaves its snapshot, and the process.
    pub(crate) fn shut_down(&mut self) -> Result<()> {
        self.done(&Order::Shutdown)?;
        self.child.wait()?;
        Ok(())
    }

    fn tell(&mut self, order: &Order) -> Result<()> {
        let line = serde_json::to_string(order)? + "\n";
        self.orders.write_all(line.as_bytes()).context("a process is gone")
    }

    fn answer(&mut self) -> Result<Answer> {
        let line = self.answers.recv_timeout(ANSWER_MAX).context("a process does not answer")?;
        match serde_json::from_str(&line)? {
            Answer::Failed(why) => bail!("a process failed: {why}"),
            answer => Ok(answer),
        }
    }

    fn ask(&mut self, order: &Order) -> Result<Answer> {
        self.tell(order)?;
        self.answer()
    }

    pub(crate) fn done(&mut self, order: &Order) -> Result<()> {
        self.ask(order).map(drop)
    }

    pub(crate) fn start_load(&mut self, load: Load) -> Result<()> {
        self.done(&Order::StartLoad(load))
    }

    pub(crate) fn stop_load(&mut self) -> Result<Loaded> {
        match self.ask(&Order::StopLoad)? {
            Answer::Loaded(loaded) => Ok(loaded),
            other => bail!("a process answered {other:?}"),
        }
    }

    pub(crate) fn timed(&mut self, order: &Order) -> Result<Spans> {
        match self.ask(order)? {
            Answer::Timed(spans) => Ok(spans),
            other => bail!("a process answered {other:?}"),
        }
    }

    pub(crate) fn echo(&mut self, pinging: Pinging) -> Result<std::net::SocketAddr> {
        match self.ask(&Order::Echo(pinging))? {
            Answer::Echoing(at) => Ok(at),
            other => bail!("a process answered {other:?}"),
        }
    }

    pub(crate) fn status(&mut self) -> Result<NodeStatus> {
        match self.ask(&Order::Status)? {
            Answer::Status(status) => Ok(status),
            other => bail!("a process answered {other:?}"),
        }
    }

    pub(crate) fn usage(&mut self) -> Result<Usage> {
        match self.ask(&Order::Usage)? {
            Answer::Usage(usage) => Ok(usage),
            other => bail!("a process answered {other:?}"),
        }
    }

    /// Leases that it still holds, and that it lost.
    pub(crate) fn held(&mut self) -> Result<(u32, u32)> {
        match self.ask(&Order::Held)? {
            Answer::Held { held, lost } => Ok((held, lost)),
            other => bail!("a process answered {other:?}"),
        }
    }

    /// Waits until this many of its peers are connected.
    pub(crate) fn await_peers(&mut self, peers: usize) -> Result<()> {
        self.await_status(|status| status.peers_up >= peers)
    }

    fn await_status(&mut self, wanted: impl Fn(&NodeStatus) -> bool) -> Result<()> {
        let began_at = now();
        while began_at.elapsed() < ANSWER_MAX {
            if wanted(&self.status()?) {
                return Ok(());
            }
            sleep(Duration::from_millis(5));
        }
        bail!("the cell did not come together")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may be gone already.
        let _gone = self.kill();
    }
}
