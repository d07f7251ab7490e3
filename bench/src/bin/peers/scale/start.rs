//! The time from the start of a service to its first grants, and from the restart of a member until
//! it serves. A PaxosLease node votes at once after a clean stop, which leaves a snapshot, and
//! after `max_lease` when it was killed, because it may have forgotten a lease.

use std::time::Duration;

use anyhow::Result;
use paxoslease_bench::peers::{Load, Service, Target};
use paxoslease_load::Extent;
use paxoslease_rig::Process;
use paxoslease_rig::clock::now;
use serde::{Deserialize, Serialize};

use super::{HELD_FOR, ScalePlan, await_success, await_vote, fill, millis, pairs};
use crate::side::Side;

const SIDES: [Side; 5] = [Side::Ours, Side::Redis, Side::Redlock, Side::ZooKeeper, Side::Etcd];
/// How long a killed node does not vote.
pub(crate) const MAX_LEASE: Duration = Duration::from_secs(2);
const IN_FLIGHT: u32 = 16;
const LOADED_FOR: Duration = Duration::from_millis(500);
const LEASES: u32 = 1_000_000;
const QUICK_LEASES: u32 = 100_000;
const MEMBER: usize = 2;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum After {
    /// All members start, with empty folders.
    Nothing,
    Kill,
    /// All members are killed, and started again.
    KillAll,
    Stop,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct StartRow {
    pub(crate) side: Side,
    pub(crate) after: After,
    pub(crate) held: u32,
    /// Until every started member has granted a lease to a client; after [`After::KillAll`], until
    /// any has.
    pub(crate) serves_ms: Vec<f64>,
    /// Until a PaxosLease node voted again.
    pub(crate) votes_ms: Vec<f64>,
}

pub(super) fn measure(plan: &ScalePlan) -> Result<Vec<StartRow>> {
    let mut rows = Vec::new();
    for side in plan.among(&SIDES) {
        eprintln!("{}: starts", side.title());
        let turns = plan.pick(1, 3);
        let mut cold = StartRow::new(side, After::Nothing, 0);
        for _ in 0..turns {
            let began_at = now();
            let service = plan.start(side, MAX_LEASE)?;
            await_grants(&*service)?;
            cold.serves_ms.push(millis(began_at.elapsed()));
        }
        rows.push(cold);
        rows.push(whole_restarts(plan, side, turns)?);
        if side != Side::Redis {
            rows.push(restarts(plan, StartRow::new(side, After::Kill, 0), MAX_LEASE, turns)?);
        }
        if side.is_ours() {
            let leases = plan.pick(QUICK_LEASES, LEASES);
            rows.push(restarts(plan, StartRow::new(side, After::Stop, leases), HELD_FOR, turns)?);
        }
    }
    Ok(rows)
}

impl StartRow {
    const fn new(side: Side, after: After, held: u32) -> Self {
        Self { side, after, held, serves_ms: Vec::new(), votes_ms: Vec::new() }
    }
}

/// Restarts a member of a running service after a kill or a clean stop.
fn restarts(
    plan: &ScalePlan,
    mut row: StartRow,
    max_lease: Duration,
    turns: u32,
) -> Result<StartRow> {
    let mut service = plan.start(row.side, max_lease)?;
    if row.held > 0 {
        fill(&*service, 0, row.held)?;
    }
    for _ in 0..turns {
        if row.after == After::Stop {
            service.members()[MEMBER].stop()?;
        } else if row.side.is_ours() {
            load_before_kill(&*service)?;
        }
        // A restart kills a member that runs.
        let began_at = now();
        service.restart(MEMBER)?;
        await_grants(&*service)?;
        row.serves_ms.push(millis(began_at.elapsed()));
        if let Some(http) = service.http_endpoints().get(MEMBER) {
            await_vote(http)?;
            row.votes_ms.push(millis(began_at.elapsed()));
        }
    }
    Ok(row)
}

/// Kills all members of a loaded service at once, and starts them again.
fn whole_restarts(plan: &ScalePlan, side: Side, turns: u32) -> Result<StartRow> {
    let mut row = StartRow::new(side, After::KillAll, 0);
    let mut service = plan.start(side, MAX_LEASE)?;
    for _ in 0..turns {
        if side.is_ours() {
            load_before_kill(&*service)?;
        }
        let began_at = now();
        service.members().iter().try_for_each(Process::kill)?;
        for member in 0..service.members().len() {
            let process = service.spawn(member)?;
            service.members_mut()[member] = process;
        }
        let load = Load { extent: Extent::Count(1), ttl: MAX_LEASE, ..pairs(1, LOADED_FOR) };
        await_success(&*service, &load, Duration::from_millis(1))?;
        row.serves_ms.push(millis(began_at.elapsed()));
        // The next turn kills a service that works.
        await_grants(&*service)?;
    }
    Ok(row)
}

/// Without recent leases a node would not have to wait before it votes.
fn load_before_kill(service: &dyn Service) -> Result<()> {
    let load = Load { ttl: MAX_LEASE, ..pairs(IN_FLIGHT, LOADED_FOR) };
    service.run(&load, Target::One).map(drop)
}

/// Waits until a client of every member has acquired and released a lease.
fn await_grants(service: &dyn Service) -> Result<()> {
    let members = service.members().len() as u32;
    let load = Load {
        connections: members,
        extent: Extent::Count(u64::from(members)),
        ttl: MAX_LEASE,
        ..pairs(members, LOADED_FOR)
    };
    await_success(service, &load, Duration::from_millis(1))
}
