//! The clients as processes, each with a log of its own for every time it is started: contenders
//! of every kind in every group, which faults pause and kill; some that hand a name on among
//! themselves; and for every node one that speaks to no other. What they do and believe is theirs;
//! here they are started, paused and killed.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use paxoslease_rig::{Process, clock};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::cell::LOOK_EVERY;
use crate::log::Kind;
use crate::network::{Door, Network, Place};

/// How many looks a client has to end after it was asked to.
const STOP_LOOKS: u32 = 1000;

/// What all clients are started with.
#[derive(Clone, Debug)]
pub struct Manner {
    /// The binary `chaos-client`.
    pub binary: PathBuf,
    /// The binary `paxoslease`, for its `lock`.
    pub paxoslease: PathBuf,
    /// Draws what they do.
    pub seed: u64,
    /// How many nodes they know.
    pub nodes: u16,
    /// How many groups they are in.
    pub groups: u16,
    /// What contenders want.
    pub names: Vec<String>,
    /// The longest lease, in milliseconds.
    pub ttl_max_ms: u128,
    /// How far the cell allows clocks to be off.
    pub drift_ppm: u32,
    /// A safety rule that is off.
    pub without_rule: Option<String>,
    /// Where their events go.
    pub events: PathBuf,
    /// Where whatever else they say goes.
    pub logs: PathBuf,
}

/// What is handed on.
const HANDED: &str = "handed";

/// What one of them is there for.
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
    /// How many times it was started.
    starts: u64,
}

/// All clients.
pub struct Crowd {
    manner: Manner,
    clients: Vec<Client>,
    bugs: Vec<String>,
}

impl Crowd {
    /// Nobody runs yet.
    #[must_use]
    pub fn new(manner: Manner) -> Self {
        let group = |place: u16| 1 + place % manner.groups;
        let client = |role, kind, group| Client { role, kind, group, process: None, starts: 0 };
        let contenders = (1..=manner.groups)
            .flat_map(|group| Kind::ALL.map(|kind| client(Role::Contend, kind, group)));
        // `lock` does not say that it was granted anything until its command runs.
        let patient = [Kind::Library, Kind::Resp, Kind::Http];
        let waiters =
            (0..).zip(patient).map(|(place, kind)| client(Role::Wait, kind, group(place)));
        let probes = (1..=manner.nodes).map(|node| {
            let kind = if node % 2 == 0 { Kind::Http } else { Kind::Resp };
            client(Role::Through(node), kind, group(node))
        });
        let clients = contenders.chain(waiters).chain(probes).collect();
        Self { manner, clients, bugs: Vec::new() }
    }

    /// All numbers.
    pub fn ids(&self) -> impl Iterator<Item = u16> + use<> {
        1..=self.clients.len() as u16
    }

    /// The numbers from 1 to this are those of contenders, whom faults may break.
    #[must_use]
    pub fn contenders(&self) -> u16 {
        self.clients.iter().filter(|client| matches!(client.role, Role::Contend)).count() as u16
    }

    fn client(&mut self, id: u16) -> &mut Client {
        &mut self.clients[usize::from(id) - 1]
    }

    /// Starts a client; one that runs is left alone.
    ///
    /// # Errors
    /// When the binary cannot be started.
    pub fn start(&mut self, id: u16, network: &dyn Network) -> Result<()> {
        let manner = self.manner.clone();
        let client = self.client(id);
        if client.process.is_some() {
            return Ok(());
        }
        client.starts += 1;
        let Client { role, kind, group, starts, .. } = *client;
        let place = Place::Clients(group);
        let door = match kind {
            Kind::Library | Kind::Resp | Kind::Lock => Door::Clients,
            Kind::Http => Door::Http,
        };
        let (nodes, what, names) = match role {
            Role::Contend => (1..=manner.nodes, "contend", manner.names.join(",")),
            Role::Wait => (1..=manner.nodes, "wait", HANDED.to_owned()),
            Role::Through(node) => (node..=node, "probe", format!("node-{node}")),
        };
        let endpoints = nodes.map(|node| network.address(place, node, door));
        let mut command = network.command(place, &manner.binary);
        // One group of processes each, so that what it started is paused and killed with it.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        command.args(["--kind", &kind.to_string(), "--id", &format!("{kind}-{id}.{starts}")]);
        command.args(["--endpoints", &endpoints.collect::<Vec<_>>().join(",")]);
        command.args(["--names", &names, "--manner", what]);
        if let Role::Through(node) = role {
            command.args(["--through", &node.to_string()]);
        }
        // As far off as is allowed, one way or the other: nodes are, too, and there are two clocks
        // in every margin.
        let most = i64::from(manner.drift_ppm.saturating_sub(1));
        let ppm = if group % 2 == 0 { most } else { -most };
        command.env("PAXOSLEASE_CLOCK_PPM", ppm.to_string());
        command.args(["--seed", &(manner.seed ^ u64::from(id) << 32 ^ starts << 48).to_string()]);
        command.args(["--ttl-max-ms", &manner.ttl_max_ms.to_string()]);
        command.args(["--drift-ppm", &manner.drift_ppm.to_string()]);
        command.arg("--log").arg(manner.events.join(format!("client-{id}-{starts}.jsonl")));
        command.arg("--paxoslease").arg(&manner.paxoslease);
        if let Some(rule) = &manner.without_rule {
            command.env("PAXOSLEASE_WITHOUT_RULE", rule);
        }
        let log = manner.logs.join(format!("client-{id}.log"));
        client.process = Some(Process::spawn(command, &log)?);
        Ok(())
    }

    /// Kills a client and whatever it started.
    ///
    /// # Errors
    /// When the system does not let us.
    pub fn kill(&mut self, id: u16) -> Result<()> {
        let Some(process) = self.client(id).process.take() else { return Ok(()) };
        signal(&process, Signal::KILL)?;
        process.kill()
    }

    /// Lets a client and whatever it started stand still, or go on.
    ///
    /// # Errors
    /// When the system does not let us.
    pub fn pause(&mut self, id: u16, paused: bool) -> Result<()> {
        let what = if paused { Signal::STOP } else { Signal::CONT };
        self.client(id).process.as_ref().map_or(Ok(()), |process| signal(process, what))
    }

    /// Looks for clients that are gone although nobody ended them.
    ///
    /// # Errors
    /// When the system does not know.
    pub fn look(&mut self) -> Result<()> {
        for (id, client) in (1..).zip(&mut self.clients) {
            let Some(process) = &client.process else { continue };
            if let Some(status) = process.ended()? {
                let (kind, said) = (client.kind, process.log_tail());
                self.bugs.push(format!("client {id} ({kind}) ended: {status}; it said: {said}"));
                client.process = None;
            }
        }
        Ok(())
    }

    /// Asks all to stop, and waits until they have.
    ///
    /// # Errors
    /// When the system does not let us.
    pub fn stop(&mut self) -> Result<()> {
        for process in self.clients.iter().filter_map(|client| client.process.as_ref()) {
            process.signal(Signal::TERM)?;
        }
        for (id, client) in (1..).zip(&mut self.clients) {
            let Some(process) = client.process.take() else { continue };
            let mut looks = 0;
            while process.ended()?.is_none() && looks < STOP_LOOKS {
                clock::sleep(LOOK_EVERY);
                looks += 1;
            }
            if looks == STOP_LOOKS {
                self.bugs.push(format!("client {id} ({}) did not stop", client.kind));
            }
            signal(&process, Signal::KILL)?;
        }
        Ok(())
    }

    /// Whether anybody is left.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.clients.iter().any(|client| client.process.is_some())
    }

    /// What no client may do and one did.
    #[must_use]
    pub fn bugs(&self) -> &[String] {
        &self.bugs
    }
}

/// To a process and whatever it started.
fn signal(process: &Process, signal: Signal) -> Result<()> {
    let group = i32::try_from(process.id()).ok().and_then(Pid::from_raw).context("no such id")?;
    match kill_process_group(group, signal) {
        // All of them ended meanwhile.
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(error) => Err(error).context("cannot signal a client"),
    }
}
