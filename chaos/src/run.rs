//! One run: builds the arena, plays a schedule in it, takes it down, and has the events judged.
//!
//! Owns the order of things and the folder of the run. Deliberately lacks judgement: two holders
//! and the like are found by [`crate::check`], and a process that ends by itself or panics by
//! whoever started it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use paxoslease_rig::{Certificates, clock};

use crate::cell::{self, CELL, Cell, Setup};
use crate::crowd::{Crowd, Manner};
use crate::directed::Directed;
use crate::log::{EXTENSION, Log, What, now};
use crate::nemesis::Arena;
use crate::network::{self, Place, spaces};
use crate::schedule::{Plan, Round, Schedule};
use crate::store::Store;

/// How often processes are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// What clients want: few, so that they meet.
const NAMES: [&str; 4] = ["alpha", "beta", "gamma", "delta"];

/// What to run.
#[derive(Clone, Debug)]
pub struct Order {
    /// What the schedule is drawn for.
    pub plan: Plan,
    /// How long, where the schedule is drawn.
    pub len: Duration,
    /// A schedule that is not drawn.
    pub directed: Option<Directed>,
    /// A safety rule that is off.
    pub without_rule: Option<String>,
    /// The binary `paxoslease`.
    pub paxoslease: PathBuf,
    /// What a rolling upgrade puts in its place.
    pub upgrade: Option<PathBuf>,
    /// The binary `chaos-client`.
    pub client: PathBuf,
    /// Whether nodes have no data folder.
    pub is_diskless: bool,
    /// Whether namespaces are left alone even where we could have them.
    pub on_loopback: bool,
    /// Where everything goes.
    pub folder: PathBuf,
}

/// What came of it, besides the events.
#[derive(Debug)]
pub struct Played {
    /// Where the events are.
    pub events: PathBuf,
    /// What no process may do and one did.
    pub bugs: Vec<String>,
    /// How the places were joined.
    pub network: String,
    /// How many faults were played.
    pub faults: u64,
    /// How long after healing every name had to be granted again.
    pub bound: Duration,
    /// What the machine did not do that it was asked to, which ended the run early.
    pub failure: Option<anyhow::Error>,
}

/// Runs it.
///
/// # Errors
/// When nothing could be begun. A run that was begun is judged by what it logged, see
/// [`Played::failure`].
pub fn play(order: &Order) -> Result<Played> {
    spaces::remove(false);
    cell::remove_leftovers();
    let folder = fresh(&order.folder)?;
    let events = folder.join("events");
    fs::create_dir(&events)?;
    let _store = Store::start(&events)?;
    let (mut arena, schedule) = build(order, &folder, &events)?;
    fs::write(folder.join("schedule.txt"), format!("{schedule:#?}\n"))?;
    // What a missing rule breaks is found without.
    let quiet = if order.without_rule.is_some() { Duration::ZERO } else { Plan::QUIET };
    let mut faults = 0;
    let failure = perform(&mut arena, &schedule, quiet, &mut faults).err();
    let bugs = [arena.cell.bugs()?, arena.crowd.bugs().to_vec()].concat();
    let spoken = if arena.cell.has_tls() { "mutual TLS between nodes" } else { "in clear" };
    let network = format!("{}, {spoken}", arena.network.description());
    Ok(Played { events, bugs, network, faults, bound: schedule.bound, failure })
}

fn perform(
    arena: &mut Arena,
    schedule: &Schedule,
    quiet: Duration,
    faults: &mut u64,
) -> Result<()> {
    for id in arena.cell.ids() {
        arena.cell.start(id, &*arena.network, &mut arena.log)?;
    }
    for id in arena.crowd.ids() {
        arena.crowd.start(id, &*arena.network)?;
    }
    arena.ran_at = now();
    heal(arena, schedule.bound, quiet)?;
    let count = schedule.rounds.len();
    for (number, round) in (1..).zip(&schedule.rounds) {
        eprintln!("round {number} of {count}: {}", spoken(round));
        play_round(arena, round, *faults)?;
        *faults += round.episodes();
        heal(arena, schedule.bound, quiet)?;
    }
    arena.log.write(What::Closed)?;
    arena.crowd.stop()?;
    arena.cell.look(&mut arena.log)?;
    for id in arena.cell.ids() {
        arena.cell.ask_to_stop(id)?;
        arena.cell.await_stop(id, &mut arena.log)?;
    }
    Ok(())
}

fn build(order: &Order, folder: &Path, events: &Path) -> Result<(Arena, Schedule)> {
    let plan = &order.plan;
    let network = network::build(plan.nodes, plan.groups, plan.seed, order.on_loopback)?;
    let nodes = (1..=plan.nodes).map(Place::Node);
    let places = nodes.chain((1..=plan.groups).map(Place::Clients)).collect();
    let directed = order.directed.as_ref();
    let drift_ppm = directed.and_then(|directed| directed.drift_ppm).unwrap_or(plan.drift_ppm);
    let ppm = directed.map_or(0, |directed| directed.clocks_ppm);
    // What directed schedules are about is a matter of milliseconds, as are handshakes.
    let certificates = if directed.is_none() && plan.has_tls() {
        let made = folder.join("certificates");
        Some(Certificates::make(&order.paxoslease, CELL, plan.nodes.into(), made)?.into())
    } else {
        None
    };
    let cell = Cell::new(Setup {
        binary: order.paxoslease.clone(),
        upgrade: order.upgrade.clone(),
        nodes: plan.nodes,
        max_lease: plan.max_lease,
        drift_ppm,
        clocks_ppm: vec![ppm; usize::from(plan.nodes)],
        without_rule: order.without_rule.clone(),
        is_diskless: order.is_diskless,
        certificates,
        folder: folder.to_owned(),
    })?;
    let logs = folder.join("clients");
    fs::create_dir(&logs)?;
    let crowd = Crowd::new(Manner {
        binary: order.client.clone(),
        paxoslease: order.paxoslease.clone(),
        seed: plan.seed,
        nodes: plan.nodes,
        groups: plan.groups,
        names: NAMES.map(str::to_owned).to_vec(),
        ttl_max_ms: plan.max_lease.as_millis(),
        drift_ppm,
        without_rule: order.without_rule.clone(),
        events: events.to_owned(),
        logs,
    });
    let plan = Plan {
        clients: crowd.contenders(),
        has_disks: cell.has_disks(),
        has_upgrade: order.upgrade.is_some(),
        ..plan.clone()
    };
    let schedule = match directed {
        Some(directed) => directed.schedule.clone(),
        None => plan.draw(order.len),
    };
    let log = Log::create(&events.join("harness").with_extension(EXTENSION))?;
    let broken = BTreeMap::new();
    Ok((Arena { network, cell, crowd, log, places, broken, ran_at: now() }, schedule))
}

/// The folder of this run, empty. One that another run left is replaced; any other is not ours.
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

fn spoken(round: &Round) -> String {
    let mut faults: Vec<&str> = Vec::new();
    for episode in 0..round.episodes() {
        let first = round.entries.iter().find(|entry| entry.episode == episode);
        faults.extend(first.map(|entry| entry.fault.kind()));
    }
    if faults.is_empty() { "nothing but clients".to_owned() } else { faults.join(", ") }
}

fn play_round(arena: &mut Arena, round: &Round, first_id: u64) -> Result<()> {
    let mut steps: Vec<(Duration, bool, usize)> = Vec::new();
    for (index, entry) in round.entries.iter().enumerate() {
        steps.push((entry.begin_at, true, index));
        steps.push((entry.end_at, false, index));
    }
    // What ends at an instant ends before anything begins.
    steps.sort();
    let begun_at = now();
    for (at, begins, index) in steps {
        wait_until(arena, begun_at + at.as_nanos() as u64)?;
        let entry = &round.entries[index];
        let step = (first_id + entry.episode + 1, index);
        if begins {
            arena.begin(step, &entry.fault)?;
        } else {
            arena.end(step)?;
        }
    }
    wait_until(arena, begun_at + round.len.as_nanos() as u64)?;
    ensure!(arena.broken.is_empty(), "a round ends with something broken");
    Ok(())
}

/// Everything is mended: the cell has its time, and then some peace.
fn heal(arena: &mut Arena, bound: Duration, quiet: Duration) -> Result<()> {
    arena.log.write(What::Healed { bound: bound.as_nanos() as u64 })?;
    wait_until(arena, now() + (bound + quiet).as_nanos() as u64)
}

fn wait_until(arena: &mut Arena, at: u64) -> Result<()> {
    loop {
        arena.cell.look(&mut arena.log)?;
        arena.crowd.look()?;
        if !arena.crowd.is_alive() {
            bail!("no client is left: {}", arena.crowd.bugs().join("; "));
        }
        arena.note_stall(now())?;
        let before = now();
        if before >= at {
            return Ok(());
        }
        clock::sleep(LOOK_EVERY.min(Duration::from_nanos(at - before)));
    }
}
