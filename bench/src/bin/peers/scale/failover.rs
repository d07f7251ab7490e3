//! Kills a member during a load: the longest time in which no client succeeds, beside the longest
//! in an equal load without a kill. The killed member is the leader, if there is one, and it runs
//! again before the next turn.
//!
//! PaxosLease has two more rows: clients of a member that lives, and clients of the killed member,
//! which have to connect to another one.

use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use paxoslease_bench::peers::{Load, Service, Target};
use paxoslease_load::Extent;
use paxoslease_rig::clock::sleep;
use serde::{Deserialize, Serialize};

use super::{ScalePlan, await_success, await_vote, pairs};
use crate::figures::rounded;
use crate::side::Side;

const SIDES: [Side; 4] = [Side::Ours, Side::Redlock, Side::ZooKeeper, Side::Etcd];
const IN_FLIGHT: u32 = 16;
const CONNECTIONS: u32 = 6;
/// Short, so that a killed PaxosLease node votes again soon.
pub(crate) const MAX_LEASE: Duration = Duration::from_secs(1);
pub(crate) const TTL: Duration = Duration::from_millis(900);
const BEFORE: Duration = Duration::from_millis(700);
const AFTER: Duration = Duration::from_millis(1300);
/// The election of a leader takes seconds.
const AFTER_LEADER: Duration = Duration::from_secs(6);

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Clients {
    All,
    OfSurvivor,
    OfVictim,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct FailoverRow {
    pub(crate) side: Side,
    pub(crate) clients: Clients,
    /// The longest time without a success, in turns in which a member was killed.
    pub(crate) gaps_ms: Vec<f64>,
    /// The same, in turns without a kill.
    pub(crate) quiet_ms: Vec<f64>,
    /// Failed operations, in turns in which a member was killed.
    pub(crate) failures: Vec<u64>,
}

pub(super) fn measure(plan: &ScalePlan) -> Result<Vec<FailoverRow>> {
    let mut rows = Vec::new();
    for side in plan.among(&SIDES) {
        let is_led = matches!(side, Side::ZooKeeper | Side::Etcd);
        let turns = plan.pick(1, 3);
        let after = if is_led { AFTER_LEADER } else { AFTER };
        let mut service = plan.start(side, MAX_LEASE)?;
        let kinds = [Clients::All, Clients::OfSurvivor, Clients::OfVictim];
        let count = if side.is_ours() { plan.pick(1, kinds.len()) } else { 1 };
        for clients in kinds.into_iter().take(count) {
            let (gaps_ms, quiet_ms, failures) = Default::default();
            let mut row = FailoverRow { side, clients, gaps_ms, quiet_ms, failures };
            for turn in 1..=turns {
                eprintln!("{}: fail-over, turn {turn} of {turns}", side.title());
                let killed = row.add(&*service, after)?;
                service.restart(killed)?;
                await_votes(&*service)?;
            }
            rows.push(row);
        }
    }
    Ok(rows)
}

impl FailoverRow {
    /// Runs one turn without a kill and one with it. Returns the killed member.
    fn add(&mut self, service: &dyn Service, after: Duration) -> Result<usize> {
        let victim = service.first_to_kill()?.context("the only member cannot be killed")?;
        let target = match self.clients {
            Clients::All => Target::Spread,
            Clients::OfSurvivor => Target::One,
            Clients::OfVictim => Target::Member(victim),
        };
        let load = Load { connections: CONNECTIONS, ttl: TTL, ..pairs(IN_FLIGHT, BEFORE + after) };
        let quiet = Load { extent: Extent::Lasting(BEFORE + AFTER), ..load.clone() };
        let quiet = service.run(&quiet, target)?;
        // The leader may have changed.
        let victim = service.first_to_kill()?.context("the only member cannot be killed")?;
        let killed = thread::scope(|scope| {
            let running = scope.spawn(|| service.run(&load, target));
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

/// Waits until every PaxosLease node votes, and a short load on all members has no failure.
fn await_votes(service: &dyn Service) -> Result<()> {
    service.http_endpoints().iter().try_for_each(|http| await_vote(http))?;
    let half_second = pairs(IN_FLIGHT, Duration::from_millis(500));
    let load = Load { connections: CONNECTIONS, ttl: TTL, ..half_second };
    await_success(service, &load, Duration::from_millis(100))
}
