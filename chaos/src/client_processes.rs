//! Starts, pauses and kills the client processes, each with a new log for every start: contenders
//! of every kind in every group, which faults pause and kill; waiters that hand one name over; and
//! for every node a client that uses this node only.

use anyhow::{Context as _, Result};
use paxoslease_rig::{Process, clock};
use rustix::process::{Signal, kill_process_group};

use crate::cell::POLL_INTERVAL;
use crate::clients::{Behaviour, ClientOptions, Part};
use crate::log::Kind;
use crate::network::{Interface, Network, Place};
use crate::run::RunOptions;

/// How many polls a client may take to stop.
const STOP_POLLS_MAX: u32 = 1000;

/// The names that contenders acquire. They are few, so that clients contend.
pub const NAMES: [&str; 4] = ["alpha", "beta", "gamma", "delta"];
/// The name that waiting clients hand over.
const HANDED: &str = "handed";

#[derive(Clone, Copy)]
enum Role {
    Contend,
    Wait,
    Through(u16),
}

struct Client {
    role: Role,
    kind: Kind,
    group: u16,
    process: Option<Process>,
    starts: u64,
}

pub struct ClientProcesses {
    options: RunOptions,
    clients: Vec<Client>,
    bugs: Vec<String>,
}

impl ClientProcesses {
    pub fn new(options: &RunOptions) -> Self {
        let plan = &options.plan;
        let group = |place: u16| 1 + place % plan.groups;
        let client = |role, kind, group| Client { role, kind, group, process: None, starts: 0 };
        let contenders = (1..=plan.groups)
            .flat_map(|group| Kind::ALL.map(|kind| client(Role::Contend, kind, group)));
        // `lock` is not a waiter: it logs no grant before its command runs.
        let patient = [Kind::Library, Kind::Resp, Kind::Http];
        let waiters =
            (0..).zip(patient).map(|(place, kind)| client(Role::Wait, kind, group(place)));
        let probes = (1..=plan.nodes).map(|node| {
            let kind = if node % 2 == 0 { Kind::Http } else { Kind::Resp };
            client(Role::Through(node), kind, group(node))
        });
        let clients = contenders.chain(waiters).chain(probes).collect();
        Self { options: options.clone(), clients, bugs: Vec::new() }
    }

    pub fn ids(&self) -> impl Iterator<Item = u16> + use<> {
        1..=self.clients.len() as u16
    }

    /// Clients from 1 to this are contenders. Faults concern only them.
    pub fn contenders(&self) -> u16 {
        self.clients.iter().filter(|client| matches!(client.role, Role::Contend)).count() as u16
    }

    fn client(&mut self, id: u16) -> &mut Client {
        &mut self.clients[usize::from(id) - 1]
    }

    /// Starts a client, unless it runs.
    pub fn start(&mut self, id: u16, network: &dyn Network) -> Result<()> {
        let Self { options, clients, .. } = self;
        let client = &mut clients[usize::from(id) - 1];
        if client.process.is_some() {
            return Ok(());
        }
        client.starts += 1;
        let Client { role, kind, group, starts, .. } = *client;
        let place = Place::Clients(group);
        let interface = match kind {
            Kind::Library | Kind::Resp | Kind::Lock => Interface::Clients,
            Kind::Http => Interface::Http,
        };
        let all = 1..=options.plan.nodes;
        let (nodes, behaviour, names, through) = match role {
            Role::Contend => (all, Behaviour::Contend, NAMES.map(str::to_owned).to_vec(), None),
            Role::Wait => (all, Behaviour::Wait, vec![HANDED.to_owned()], None),
            Role::Through(node) => {
                (node..=node, Behaviour::Probe, vec![format!("node-{node}")], Some(node))
            }
        };
        let arguments = ClientOptions {
            kind,
            id: format!("{kind}-{id}.{starts}"),
            endpoints: nodes.map(|node| network.address(node, interface)).collect(),
            names,
            behaviour,
            through,
            seed: options.plan.seed ^ u64::from(id) << 32 ^ starts << 48,
            ttl_max_ms: options.plan.max_lease.as_millis() as u64,
            drift_ppm: options.drift_ppm(),
            log: options.events().join(format!("client-{id}-{starts}.jsonl")),
            paxoslease: options.paxoslease.clone(),
            part: Part::Client,
        };
        let mut command = network.command(place, &options.client);
        command.arg(arguments.to_json());
        // Each client is a process group, so that signals reach its workers, too.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        // The largest allowed rate error, positive or negative, as nodes have: every margin has two
        // clocks.
        let most = i64::from(options.drift_ppm().saturating_sub(1));
        let ppm = if group % 2 == 0 { most } else { -most };
        // A build without the feature `chaos` refuses the variable.
        if ppm != 0 {
            command.env("PAXOSLEASE_CLOCK_PPM", ppm.to_string());
        }
        command.envs(options.without_rule.as_ref().map(|rule| ("PAXOSLEASE_WITHOUT_RULE", rule)));
        let log = options.folder.join("clients").join(format!("client-{id}.log"));
        client.process = Some(Process::spawn(command, &log)?);
        Ok(())
    }

    /// Kills a client and its processes.
    pub fn kill(&mut self, id: u16) -> Result<()> {
        let Some(process) = self.client(id).process.take() else { return Ok(()) };
        signal(&process, Signal::KILL)?;
        process.kill()
    }

    pub fn pause(&mut self, id: u16, paused: bool) -> Result<()> {
        let what = if paused { Signal::STOP } else { Signal::CONT };
        self.client(id).process.as_ref().map_or(Ok(()), |process| signal(process, what))
    }

    /// Finds clients that ended by themselves.
    pub fn look(&mut self) -> Result<()> {
        for (id, client) in (1..).zip(&mut self.clients) {
            let Some(process) = &client.process else { continue };
            if let Some(status) = process.ended()? {
                let (kind, said) = (client.kind, process.log_tail());
                self.bugs
                    .push(format!("client {id} ({kind}) ended: {status}; its log ends: {said}"));
                client.process = None;
            }
        }
        Ok(())
    }

    pub fn stop(&mut self) -> Result<()> {
        for process in self.clients.iter().filter_map(|client| client.process.as_ref()) {
            process.signal(Signal::TERM)?;
        }
        for (id, client) in (1..).zip(&mut self.clients) {
            let Some(process) = client.process.take() else { continue };
            let mut looks = 0;
            while process.ended()?.is_none() && looks < STOP_POLLS_MAX {
                clock::sleep(POLL_INTERVAL);
                looks += 1;
            }
            if looks == STOP_POLLS_MAX {
                self.bugs.push(format!("client {id} ({}) did not stop", client.kind));
            }
            signal(&process, Signal::KILL)?;
        }
        Ok(())
    }

    pub fn is_alive(&self) -> bool {
        self.clients.iter().any(|client| client.process.is_some())
    }

    pub fn bugs(&self) -> &[String] {
        &self.bugs
    }
}

/// Signals a process group.
fn signal(process: &Process, signal: Signal) -> Result<()> {
    match kill_process_group(process.pid(), signal) {
        // All processes of the group have ended.
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(error) => Err(error).context("cannot signal a client"),
    }
}
