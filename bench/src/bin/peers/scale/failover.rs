//! A member is killed in the middle of a load: the longest time in which no client succeeded,
//! beside the longest of an equal load in which nobody died. The member is the one whose death
//! hurts most, and it is back before the next turn.
//!
//! Clients of ours are looked at in two more ways: those of a member that lives, who only lose a
//! vote, and those of the member that dies, who have to go elsewhere.

use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use paxoslease_bench::peers::{Load, Ours, Service, Target};
use paxoslease_load::{Extent, Report};
use paxoslease_rig::clock::{now, sleep};
use serde::{Deserialize, Serialize};

use super::{Plan, Told, metrics, pairs};
use crate::figures::rounded;
use crate::side::Side;

const SIDES: [Side; 6] =
    [Side::OursDefault, Side::Ours, Side::OursSpinning, Side::Redlock, Side::ZooKeeper, Side::Etcd];
const IN_FLIGHT: u32 = 16;
/// A multiple of three members.
const CONNECTIONS: u32 = 6;
/// Short, so that a member of ours that was killed votes again soon.
pub(crate) const MAX_LEASE: Duration = Duration::from_secs(1);
pub(crate) const TTL: Duration = Duration::from_millis(900);
const BEFORE: Duration = Duration::from_millis(700);
const AFTER: Duration = Duration::from_millis(1300);
/// Those who elect a leader need seconds for it.
const AFTER_LEADER: Duration = Duration::from_secs(6);
const RECOVERED_MAX: Duration = Duration::from_secs(60);

/// Whose clients.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Clients {
    /// Of all members alike.
    All,
    /// Of one that lives.
    OfSurvivor,
    /// Of the one that dies.
    OfVictim,
}

/// One kind of clients of one side, turn by turn.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) side: Side,
    pub(crate) clients: Clients,
    /// The longest without a success when a member was killed.
    pub(crate) gaps_ms: Vec<f64>,
    /// The same when none was.
    pub(crate) quiet_ms: Vec<f64>,
    /// Operations that failed when a member was killed.
    pub(crate) failures: Vec<u64>,
}

pub(super) fn measure(plan: &Plan, told: Told<'_>) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for side in plan.among(&SIDES) {
        let is_led = matches!(side, Side::ZooKeeper | Side::Etcd);
        let turns = if is_led { 3 } else { 4 };
        let turns = plan.pick(1, turns);
        let after = if is_led { AFTER_LEADER } else { AFTER };
        if side.is_ours() {
            let mut cell = plan.start_ours(side, MAX_LEASE)?;
            let kinds = [Clients::All, Clients::OfSurvivor, Clients::OfVictim];
            for clients in kinds.into_iter().take(plan.pick(1, kinds.len())) {
                let mut row = Row::new(side, clients);
                for turn in 1..=turns {
                    told(&format!("{}: fail-over, turn {turn} of {turns}", side.title()));
                    row.add(&cell, after, |cell, load| ask(cell, clients, load))?;
                    cell.restart(victim(&cell)?)?;
                    await_votes(&cell)?;
                }
                rows.push(row);
            }
        } else {
            let mut service = side.start(&plan.paxoslease)?;
            let mut row = Row::new(side, Clients::All);
            for turn in 1..=turns {
                told(&format!("{}: fail-over, turn {turn} of {turns}", side.title()));
                let victim =
                    row.add(&*service, after, |service, load| service.run(load, Target::Spread))?;
                service.restart(victim)?;
                await_calm(&*service)?;
            }
            rows.push(row);
        }
    }
    Ok(rows)
}

impl Row {
    fn new(side: Side, clients: Clients) -> Self {
        let (gaps_ms, quiet_ms, failures) = Default::default();
        Self { side, clients, gaps_ms, quiet_ms, failures }
    }

    /// One turn without a death and one with it; says who died.
    fn add<S: Service + ?Sized>(
        &mut self,
        service: &S,
        after: Duration,
        run: impl Fn(&S, &Load) -> Result<Report> + Sync,
    ) -> Result<usize> {
        let load = Load { connections: CONNECTIONS, ttl: TTL, ..pairs(IN_FLIGHT, BEFORE + after) };
        let quiet =
            run(service, &Load { extent: Extent::Lasting(BEFORE + AFTER), ..load.clone() })?;
        let victim = victim(service)?;
        let killed = thread::scope(|scope| {
            let running = scope.spawn(|| run(service, &load));
            sleep(BEFORE);
            service.members()[victim].kill()?;
            running.join().ok().context("the load panicked")?
        })?;
        self.quiet_ms.push(rounded(quiet.longest_gap_ms));
        self.gaps_ms.push(rounded(killed.longest_gap_ms));
        self.failures.push(killed.failures());
        Ok(victim)
    }
}

fn victim<S: Service + ?Sized>(service: &S) -> Result<usize> {
    service.first_to_kill()?.context("the death of one is the death of all")
}

/// Puts the load on some nodes of ours. Whoever loses a connection goes on to the next node.
fn ask(cell: &Ours, clients: Clients, load: &Load) -> Result<Report> {
    match clients {
        Clients::All => cell.run(load, Target::Spread),
        Clients::OfSurvivor => cell.run(load, Target::One),
        Clients::OfVictim => {
            let mut endpoints = cell.endpoints();
            endpoints.rotate_left(victim(cell)?);
            // A single connection goes to the first of them.
            let load = Load { endpoints, connections: 1, ..load.clone() };
            Ok(paxoslease_load::run(&load, &mut |_| {})?)
        }
    }
}

/// Waits until every node of ours votes.
fn await_votes(cell: &Ours) -> Result<()> {
    let began_at = now();
    for http in cell.http_endpoints() {
        while !metrics::quarantine(&http)?.is_zero() {
            ensure!(began_at.elapsed() < RECOVERED_MAX, "{http} does not vote");
            sleep(Duration::from_millis(10));
        }
    }
    await_calm(cell)
}

/// Waits until a short load on all members has no failure.
fn await_calm<S: Service + ?Sized>(service: &S) -> Result<()> {
    let half_second = pairs(IN_FLIGHT, Duration::from_millis(500));
    let load = Load { connections: CONNECTIONS, ttl: TTL, ..half_second };
    let began_at = now();
    while !service.run(&load, Target::Spread).is_ok_and(|loaded| loaded.failures() == 0) {
        ensure!(began_at.elapsed() < RECOVERED_MAX, "{} did not recover", service.name());
        sleep(Duration::from_millis(100));
    }
    Ok(())
}
