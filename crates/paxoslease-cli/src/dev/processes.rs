//! The nodes of `dev --processes`: each is a `serve` process of this binary, with a folder of its
//! own that is removed with the cell. A node that dies is not restarted.

use std::env;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, bail};
use rustix::process::{Pid, Signal, kill_process};

use super::{Addresses, CellFolder, DevCell, Votes, program};
use crate::output;

pub(super) struct Processes {
    nodes: Vec<NodeProcess>,
    folder: CellFolder,
}

struct NodeProcess {
    id: u16,
    child: Child,
    command_line: String,
    gone: bool,
}

impl Processes {
    pub(super) fn start(cell: &DevCell) -> anyhow::Result<Self> {
        let mut processes = Self { nodes: Vec::new(), folder: CellFolder::of(cell) };
        for node in &cell.nodes {
            let process = processes.start_node(cell, node)?;
            processes.nodes.push(process);
        }
        Ok(processes)
    }

    fn start_node(&self, cell: &DevCell, node: &Addresses) -> anyhow::Result<NodeProcess> {
        let id = node.id.to_string();
        let data_dir = self.folder.path().join(&id).display().to_string();
        let max_lease = format!("{}ms", cell.max_lease.as_millis());
        let mut options: Vec<String> = Vec::new();
        for (option, value) in [
            ("--cell", &cell.name),
            ("--node", &id),
            ("--data-dir", &data_dir),
            ("--max-lease", &max_lease),
            ("--listen-clients", &node.clients),
            ("--listen-http", &node.http),
        ] {
            options.extend([option.to_owned(), value.clone()]);
        }
        for peer in &cell.nodes {
            options.extend(["--peer".to_owned(), format!("{}={}", peer.id, peer.peers)]);
        }
        if cell.redis_testing {
            options.push("--redis-testing".to_owned());
        }
        let command_line = format!("{} serve {}", program(), options.join(" "));
        let child = Command::new(env::current_exe().context("cannot find this program")?)
            .arg("serve")
            .args(&options)
            .args(["--new-cell", "--log", "error", "--with-parent"])
            // Open until this process ends, in whatever way.
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            // Ctrl-C is for this process, which then stops the nodes.
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start node {id}"))?;
        Ok(NodeProcess { id: node.id, child, command_line, gone: false })
    }

    pub(super) fn pids(&self) -> Vec<u32> {
        self.nodes.iter().map(|node| node.child.id()).collect()
    }

    /// Fails if a node has ended. That node has logged why on stderr.
    pub(super) fn all_run(&mut self) -> anyhow::Result<bool> {
        for node in &mut self.nodes {
            if let Some(status) = node.child.try_wait().context("cannot check a node")? {
                bail!("node {} did not start: {status}; --port names other ports", node.id);
            }
        }
        Ok(true)
    }

    /// Reports nodes that have ended since the last call, and how many nodes vote now. Never true,
    /// so that a wait goes on.
    pub(super) fn report_ended(&mut self, votes: impl Fn() -> Votes) -> anyhow::Result<bool> {
        let mut news = Vec::new();
        for node in &mut self.nodes {
            if let Some(status) = node.child.try_wait().context("cannot check a node")?
                && !std::mem::replace(&mut node.gone, true)
            {
                news.push((node.id, status, node.command_line.clone()));
            }
        }
        for (id, status, command_line) in news {
            let votes = votes();
            output::to_stderr(&format!(
                "node {id} ended ({status}); {votes}. To restart it, run the command below; it is then silent for as \
                 long as the longest lease it may have forgotten:\n  {command_line}\n",
            ));
        }
        Ok(false)
    }
}

/// Stops the nodes cleanly. The folder is removed after that.
impl Drop for Processes {
    fn drop(&mut self) {
        for node in self.nodes.iter().filter(|node| !node.gone) {
            // The node may just have ended.
            let _ended = kill_process(Pid::from_child(&node.child), Signal::TERM);
        }
        for node in &mut self.nodes {
            // Also closes its stdin.
            let _ended = node.child.wait();
        }
    }
}
