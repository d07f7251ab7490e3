//! How long it takes from nothing to a first grant, and from a member's restart until it serves;
//! of ours, also until it votes: at once after a clean stop, which left a snapshot, and after the
//! longest lease when it was killed, since it may have forgotten one.

use std::time::Duration;

use anyhow::{Result, ensure};
use paxoslease_bench::peers::{Load, Ours, Service, Target};
use paxoslease_load::Extent;
use paxoslease_rig::clock::{now, sleep};
use serde::{Deserialize, Serialize};

use super::{HELD_FOR, Plan, Told, fill, metrics, millis, pairs};
use crate::side::Side;

const SIDES: [Side; 6] =
    [Side::OursDefault, Side::Ours, Side::Redis, Side::Redlock, Side::ZooKeeper, Side::Etcd];
/// What a member that was killed waits for.
pub(crate) const MAX_LEASE: Duration = Duration::from_secs(2);
const GRANTS_MAX: Duration = Duration::from_secs(60);
const VOTES_MAX: Duration = Duration::from_secs(60);
const IN_FLIGHT: u32 = 16;
const LOADED_FOR: Duration = Duration::from_millis(500);
const LEASES: u32 = 1_000_000;
const QUICK_LEASES: u32 = 100_000;
/// The last, as in a fail-over: the others go on.
const MEMBER: usize = 2;

/// What went before.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum After {
    /// Nothing: all members start, with empty folders.
    Nothing,
    /// One member was killed.
    Kill,
    /// One member was stopped cleanly.
    Stop,
}

/// One kind of start of one side, turn by turn.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) side: Side,
    pub(crate) after: After,
    /// Leases held meanwhile.
    pub(crate) held: u32,
    /// Until every member that started had granted a lease to a client of its own.
    pub(crate) serves_ms: Vec<f64>,
    /// Of ours, until it voted again.
    pub(crate) votes_ms: Vec<f64>,
}

pub(super) fn measure(plan: &Plan, told: Told<'_>) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for side in plan.among(&SIDES) {
        told(&format!("{}: starts", side.title()));
        let turns = match side {
            Side::ZooKeeper | Side::Etcd => plan.pick(1, 3),
            _ => plan.pick(1, 5),
        };
        let mut cold = Row::new(side, After::Nothing, 0);
        for _ in 0..turns {
            let began_at = now();
            let service = plan.start(side, MAX_LEASE)?;
            await_grants(&*service)?;
            cold.serves_ms.push(millis(began_at.elapsed()));
        }
        rows.push(cold);
        if side.is_ours() {
            rows.push(of_ours(plan, Row::new(side, After::Kill, 0), MAX_LEASE, turns)?);
            let leases = plan.pick(QUICK_LEASES, LEASES);
            rows.push(of_ours(plan, Row::new(side, After::Stop, leases), HELD_FOR, turns)?);
        } else if side != Side::Redis {
            rows.push(of_peer(plan, side, turns)?);
        }
    }
    Ok(rows)
}

impl Row {
    const fn new(side: Side, after: After, held: u32) -> Self {
        Self { side, after, held, serves_ms: Vec::new(), votes_ms: Vec::new() }
    }
}

fn of_ours(plan: &Plan, mut row: Row, max_lease: Duration, turns: u32) -> Result<Row> {
    let mut cell = plan.start_ours(row.side, max_lease)?;
    if row.held > 0 {
        fill(&cell, 0, row.held)?;
    }
    for _ in 0..turns {
        match row.after {
            After::Stop => cell.members()[MEMBER].stop()?,
            After::Kill | After::Nothing => {
                // Without leases of late there would be nothing to wait for.
                cell.run(&Load { ttl: max_lease, ..pairs(IN_FLIGHT, LOADED_FOR) }, Target::One)?;
                cell.members()[MEMBER].kill()?;
            }
        }
        let began_at = now();
        cell.restart(MEMBER)?;
        await_grants(&cell)?;
        row.serves_ms.push(millis(began_at.elapsed()));
        await_vote(&cell)?;
        row.votes_ms.push(millis(began_at.elapsed()));
    }
    Ok(row)
}

/// Waits until clients of every member have taken a lease and given it back, each one.
fn await_grants(service: &dyn Service) -> Result<()> {
    let members = service.members().len() as u32;
    let load = Load {
        connections: members,
        extent: Extent::Count(u64::from(members)),
        ttl: MAX_LEASE,
        ..pairs(members, LOADED_FOR)
    };
    let began_at = now();
    while !service.run(&load, Target::Spread).is_ok_and(|loaded| loaded.failures() == 0) {
        ensure!(began_at.elapsed() < GRANTS_MAX, "{} grants nothing", service.name());
        sleep(Duration::from_millis(1));
    }
    Ok(())
}

fn await_vote(cell: &Ours) -> Result<()> {
    let began_at = now();
    while !metrics::quarantine(&cell.http_endpoints()[MEMBER])?.is_zero() {
        ensure!(began_at.elapsed() < VOTES_MAX, "it does not vote");
        sleep(Duration::from_millis(1));
    }
    Ok(())
}

fn of_peer(plan: &Plan, side: Side, turns: u32) -> Result<Row> {
    let mut row = Row::new(side, After::Kill, 0);
    let mut service = side.start(&plan.paxoslease)?;
    for _ in 0..turns {
        service.members()[MEMBER].kill()?;
        let began_at = now();
        service.restart(MEMBER)?;
        await_grants(&*service)?;
        row.serves_ms.push(millis(began_at.elapsed()));
    }
    Ok(row)
}
