//! A cluster of three etcd members, and keys attached to leases as locks.
//!
//! etcd is spoken to by gRPC, as its own clients do: one thread, and as many connections as the
//! other services get. How its locks are taken is in `client.rs`.

mod call;
mod client;
mod messages;

use std::process::Command;

use anyhow::{Context, Result, ensure};
use tokio::runtime::{Builder, Runtime};
use tokio::task::LocalSet;

use self::call::{call, channel};
use self::client::CLIENT_TTL;
use self::messages::{StatusRequest, StatusResponse};
use super::resp::await_until;
use super::{Load, Loaded, Service, Storage, Target};
use paxoslease_rig::{Folder, Process, free_ports};

const MEMBERS: usize = 3;
const STATUS: &str = "/etcdserverpb.Maintenance/Status";

/// A cluster of three.
#[derive(Debug)]
pub struct Etcd {
    storage: Storage,
    clients: [u16; MEMBERS],
    peers: [u16; MEMBERS],
    members: Vec<Process>,
    folder: Folder,
}

impl Etcd {
    /// Starts a cluster and waits until every member knows a leader.
    ///
    /// # Errors
    /// When it is not installed or does not come up.
    pub fn start(storage: Storage) -> Result<Self> {
        let folder = storage.folder("etcd")?;
        let ports: [u16; 2 * MEMBERS] = free_ports()?;
        let clients = std::array::from_fn(|member| ports[member]);
        let peers = std::array::from_fn(|member| ports[MEMBERS + member]);
        let mut cluster = Self { storage, clients, peers, members: Vec::new(), folder };
        for member in 0..MEMBERS {
            cluster.members.push(cluster.spawn(member)?);
        }
        for member in 0..MEMBERS {
            cluster.await_member(member)?;
        }
        Ok(cluster)
    }

    fn spawn(&self, member: usize) -> Result<Process> {
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let cluster: Vec<String> =
            (0..MEMBERS).map(|member| format!("m{member}={}", url(self.peers[member]))).collect();
        let mut command = Command::new("etcd");
        command.args(["--name", &format!("m{member}")]);
        command.arg("--data-dir").arg(self.folder.join(member.to_string()));
        for option in ["--listen-client-urls", "--advertise-client-urls"] {
            command.args([option, &url(self.clients[member])]);
        }
        for option in ["--listen-peer-urls", "--initial-advertise-peer-urls"] {
            command.args([option, &url(self.peers[member])]);
        }
        command.args(["--initial-cluster", &cluster.join(",")]);
        Process::spawn(command, &self.folder.join(format!("{member}.log")))
            .context("is etcd installed? On Debian: apt-get install etcd-server")
    }

    fn await_member(&self, member: usize) -> Result<()> {
        await_until("an etcd member", || {
            let status = self.status(member)?;
            ensure!(status.leader != 0, "it knows no leader");
            Ok(())
        })
        .with_context(|| self.members[member].said())
    }

    fn status(&self, member: usize) -> Result<StatusResponse> {
        let port = self.clients[member];
        let status = async { Ok(call(&channel(port)?, STATUS, StatusRequest {}).await?) };
        runtime()?.block_on(status)
    }

    fn leader(&self) -> Result<usize> {
        let leads = |member: &usize| {
            self.status(*member).is_ok_and(|status| {
                status.header.is_some_and(|header| header.member_id == status.leader)
            })
        };
        (0..MEMBERS).find(leads).context("nobody leads")
    }
}

impl Service for Etcd {
    fn name(&self) -> &'static str {
        match self.storage {
            Storage::Disk => "etcd",
            Storage::Memory => "etcd on tmpfs",
        }
    }

    fn version(&self) -> Result<String> {
        Ok(self.status(self.leader()?)?.version)
    }

    fn settings(&self) -> String {
        let ttl = CLIENT_TTL.as_secs();
        format!("{}; clients' own leases last {ttl} s", self.storage.text())
    }

    fn members(&self) -> &[Process] {
        &self.members
    }

    /// One is the leader, to whom all others would only pass it on.
    fn run(&self, load: &Load) -> Result<Loaded> {
        let mut ports = self.clients;
        let used = match load.target {
            Target::One => {
                ports.swap(0, self.leader()?);
                1
            }
            Target::Spread => MEMBERS,
        };
        let (used, spare) = ports.split_at(used);
        let tasks = LocalSet::new();
        tasks.block_on(&runtime()?, client::run(load, used, spare))
    }

    fn first_to_kill(&self) -> Result<Option<usize>> {
        self.leader().map(Some)
    }

    fn restart(&mut self, member: usize) -> Result<()> {
        self.members[member].kill()?;
        self.members[member] = self.spawn(member)?;
        self.await_member(member)
    }
}

/// All on the thread that runs the load.
fn runtime() -> Result<Runtime> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}
