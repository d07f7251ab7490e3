//! A cluster of three etcd members, and keys attached to leases as locks.
//!
//! The load uses gRPC, as etcd's own clients do: one thread, and as many connections as for the
//! other services. The locks are in `client.rs`.

mod call;
mod client;
mod messages;

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use paxoslease_load::{Plan, Report, Session};
use paxoslease_rig::clock::now;
use tokio::runtime::{Builder, Runtime};
use tokio::task::LocalSet;

use self::call::{call, channel};
use self::client::{CLIENT_TTL, EtcdClient};
use self::messages::{STATUS, StatusRequest, StatusResponse};
use super::{Service, Storage, Target, addresses, connected, started};
use paxoslease_rig::{Folder, Process, free_ports};

const MEMBERS: usize = 3;
const TURN_MAX: Duration = Duration::from_millis(100);

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
    pub fn start(storage: Storage) -> Result<Self> {
        let folder = storage.folder("etcd")?;
        let (clients, peers) = (free_ports()?, free_ports()?);
        started(Self { storage, clients, peers, members: Vec::new(), folder }, MEMBERS)
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
        (0..MEMBERS).find(leads).context("there is no leader")
    }
}

impl Service for Etcd {
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

    fn members_mut(&mut self) -> &mut Vec<Process> {
        &mut self.members
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

    fn probe(&self, member: usize) -> Result<()> {
        ensure!(self.status(member)?.leader != 0, "it knows no leader");
        Ok(())
    }

    /// [`Target::One`] is the leader: the others would only forward.
    fn run(&self, plan: &Plan, target: Target) -> Result<Report> {
        let mut ports = self.clients;
        let used = match target {
            Target::One => {
                ports.swap(0, self.leader()?);
                1
            }
            Target::Spread | Target::Member(_) => MEMBERS,
        };
        let plan = connected(plan, addresses(&ports));
        plan.check()?;
        let (used, spare) = ports.split_at(used);
        LocalSet::new().block_on(&runtime()?, converse(&plan, used, spare))
    }

    fn first_to_kill(&self) -> Result<Option<usize>> {
        self.leader().map(Some)
    }
}

/// Drives the load: gRPC has its own sockets and cannot use the load's event loop.
async fn converse(plan: &Plan, used: &[u16], spare: &[u16]) -> Result<Report> {
    let client = EtcdClient::new(plan, used, spare)?;
    let (heard, started_at) = (client.heard(), now());
    let mut session = Session::new(plan, client);
    loop {
        let elapsed = now() - started_at;
        session.pump(elapsed)?;
        if session.is_done() {
            return Ok(session.report(plan));
        }
        let wait = session.wake_at().map_or(TURN_MAX, |at| at.saturating_sub(elapsed));
        let _timeout = tokio::time::timeout(wait.min(TURN_MAX), heard.notified()).await;
    }
}

fn runtime() -> Result<Runtime> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}
