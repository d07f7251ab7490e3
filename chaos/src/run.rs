//! One run: builds the testbed, runs a schedule, and stops everything.
//!
//! Owns the folder of the run. Deliberately lacks judgement, which is in [`crate::check`].

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use paxoslease_rig::{Certificates, clock};

use crate::cell::{self, CELL, Cell};
use crate::client_processes::ClientProcesses;
use crate::directed::DirectedSchedule;
use crate::log::{EXTENSION, EventKind, Log, now};
use crate::nemesis::Testbed;
use crate::network::{self, spaces};
use crate::schedule::{Plan, Round, Schedule};
use crate::store::Store;

const POLL_INTERVAL: Duration = Duration::from_millis(50);

#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    pub plan: Plan,
    /// The duration of a drawn schedule.
    pub len: Duration,
    pub directed: Option<DirectedSchedule>,
    /// The safety rule that the mutant lacks.
    pub without_rule: Option<String>,
    pub paxoslease: PathBuf,
    /// The binary that rolling upgrades switch to, and back.
    pub upgrade: Option<PathBuf>,
    pub client: PathBuf,
    pub is_diskless: bool,
    /// Whether to use loopback even if namespaces are possible.
    pub on_loopback: bool,
    /// Whether nodes that can write traces do.
    pub has_traces: bool,
    pub folder: PathBuf,
}

impl RunOptions {
    /// The configured bound of the drift.
    pub fn drift_ppm(&self) -> u32 {
        let directed = self.directed.as_ref().and_then(|directed| directed.drift_ppm);
        directed.unwrap_or(self.plan.drift_ppm)
    }

    /// The rate error of all nodes.
    pub fn clocks_ppm(&self) -> i64 {
        self.directed.as_ref().map_or(0, |directed| directed.clocks_ppm)
    }

    /// The folder of the logged events.
    pub fn events(&self) -> PathBuf {
        self.folder.join("events")
    }
}

/// The outcome, except the events.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RunOutcome {
    /// What processes did wrong.
    pub bugs: Vec<String>,
    pub network: String,
    pub faults: u64,
    /// The time after healing in which every name had to be granted.
    pub bound: Duration,
    /// The failure of the harness that ended the run early.
    pub failure: Option<String>,
}

/// Runs a schedule. Once it has begun, a failure is in [`RunOutcome::failure`].
pub fn play(options: &RunOptions) -> Result<RunOutcome> {
    spaces::remove(false);
    cell::remove_leftovers();
    let (mut testbed, schedule) = prepare(options)?;
    fs::write(options.folder.join("schedule.txt"), format!("{schedule:#?}\n"))?;
    // The harm of a missing rule shows without a quiet time.
    let quiet = if options.without_rule.is_some() { Duration::ZERO } else { Plan::QUIET };
    let mut faults = 0;
    let failure = perform(&mut testbed, &schedule, quiet, &mut faults).err();
    let failure = failure.map(|error| format!("{error:#}"));
    let bugs = [testbed.cell.bugs()?, testbed.clients.bugs().to_vec()].concat();
    let encryption = if testbed.cell.has_tls() { "mutual TLS between nodes" } else { "in clear" };
    let network = format!("{}, {encryption}", testbed.network.description());
    Ok(RunOutcome { bugs, network, faults, bound: schedule.bound, failure })
}

fn perform(
    testbed: &mut Testbed,
    schedule: &Schedule,
    quiet: Duration,
    faults: &mut u64,
) -> Result<()> {
    testbed.start_all()?;
    heal(testbed, schedule.bound, quiet)?;
    let count = schedule.rounds.len();
    for (number, round) in (1..).zip(&schedule.rounds) {
        eprintln!("round {number} of {count}: {}", describe(round));
        play_round(testbed, round, *faults)?;
        *faults += round.episodes();
        heal(testbed, schedule.bound, quiet)?;
    }
    testbed.log.write(EventKind::Closed)?;
    testbed.clients.stop()?;
    testbed.cell.look(&mut testbed.log)?;
    for id in testbed.cell.ids() {
        testbed.cell.ask_to_stop(id)?;
        testbed.cell.await_stop(id, &mut testbed.log)?;
    }
    Ok(())
}

/// Makes the folders, the network, the store, and the cell and clients without starting them.
pub fn prepare(options: &RunOptions) -> Result<(Testbed, Schedule)> {
    let folder = fresh(&options.folder)?;
    let options = &RunOptions { folder: folder.clone(), ..options.clone() };
    fs::create_dir(options.events())?;
    fs::create_dir(folder.join("clients"))?;
    let store = Store::start(&options.events())?;
    let plan = &options.plan;
    let places = plan.all_places();
    let network = network::build(&places, plan.seed, options.on_loopback)?;
    // Directed schedules depend on milliseconds, and handshakes take as long.
    let has_tls = options.directed.is_none() && plan.has_tls();
    let nodes = usize::from(plan.nodes);
    let make = || Certificates::make(&options.paxoslease, CELL, nodes, folder.join("certificates"));
    let certificates = has_tls.then(make).transpose()?;
    let cell = Cell::new(options, certificates)?;
    let clients = ClientProcesses::new(options);
    let schedule = match &options.directed {
        Some(directed) => directed.schedule.clone(),
        None => {
            let (clients, has_disks) = (clients.contenders(), cell.has_disks());
            let has_network = network.can_break();
            Plan { clients, has_disks, has_network, ..plan.clone() }.draw(options.len)
        }
    };
    let log = Log::create(&options.events().join("harness").with_extension(EXTENSION))?;
    let broken = BTreeMap::new();
    let members_change = plan.members < plan.nodes;
    let (commands, ran_at) = (Vec::new(), now());
    let testbed = Testbed {
        network,
        cell,
        clients,
        store,
        log,
        places,
        broken,
        members_change,
        commands,
        ran_at,
    };
    Ok((testbed, schedule))
}

/// The empty folder of this run. It replaces the folder of an earlier run, but no other one.
fn fresh(folder: &Path) -> Result<PathBuf> {
    if folder.exists() {
        let is_ours = folder.join("events").is_dir() || fs::read_dir(folder)?.next().is_none();
        ensure!(
            is_ours,
            "{} holds something that is no run of this harness; name another folder by --out",
            folder.display()
        );
        fs::remove_dir_all(folder).with_context(|| format!("cannot empty {}", folder.display()))?;
    }
    fs::create_dir_all(folder)?;
    Ok(folder.canonicalize()?)
}

fn describe(round: &Round) -> String {
    let mut faults: Vec<&str> = Vec::new();
    for episode in 0..round.episodes() {
        let first = round.entries.iter().find(|entry| entry.episode == episode);
        faults.extend(first.map(|entry| entry.fault.kind()));
    }
    if faults.is_empty() { "nothing but clients".to_owned() } else { faults.join(", ") }
}

fn play_round(testbed: &mut Testbed, round: &Round, first_id: u64) -> Result<()> {
    let mut steps: Vec<(Duration, bool, usize)> = Vec::new();
    for (index, entry) in round.entries.iter().enumerate() {
        steps.push((entry.begin_at, true, index));
        steps.push((entry.end_at, false, index));
    }
    // At the same instant, ends come before begins.
    steps.sort();
    let begun_at = now();
    for (at, begins, index) in steps {
        wait_until(testbed, begun_at + at.as_nanos() as u64)?;
        let entry = &round.entries[index];
        let step = (first_id + entry.episode + 1, index);
        if begins {
            testbed.begin(step, &entry.fault)?;
        } else {
            testbed.end(step)?;
        }
    }
    wait_until(testbed, begun_at + round.len.as_nanos() as u64)?;
    ensure!(testbed.broken.is_empty(), "a round ends with something broken");
    Ok(())
}

/// Logs the healing, and waits for the bound and the quiet time.
fn heal(testbed: &mut Testbed, bound: Duration, quiet: Duration) -> Result<()> {
    testbed.log.write(EventKind::Healed { bound: bound.as_nanos() as u64 })?;
    wait_until(testbed, now() + (bound + quiet).as_nanos() as u64)
}

fn wait_until(testbed: &mut Testbed, at: u64) -> Result<()> {
    loop {
        testbed.cell.look(&mut testbed.log)?;
        testbed.clients.look()?;
        if !testbed.clients.is_alive() {
            bail!("no client is left: {}", testbed.clients.bugs().join("; "));
        }
        testbed.note_stall(now())?;
        let before = now();
        if before >= at {
            return Ok(());
        }
        clock::sleep(POLL_INTERVAL.min(Duration::from_nanos(at - before)));
    }
}
