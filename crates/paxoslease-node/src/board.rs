//! Where the shards of a node show how they stand, so that any of its threads can see the whole of
//! it without waiting for the others.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use metrics::gauge;
use paxoslease_core::Instant;
use paxoslease_holder::Status;

use crate::config::Settings;
use crate::status::ShardStatus;
use crate::tls::CurrentTls;

/// What is wrong with the disk, if anything.
pub(crate) type DiskProblem = Box<dyn Fn() -> Option<String> + Send + Sync>;

/// A shard that has shown nothing for this long is stuck: it shows itself every half second.
const STALE_AFTER: Duration = Duration::from_secs(5);

pub(crate) struct Board {
    settings: Settings,
    disk_problem: DiskProblem,
    tls: CurrentTls,
    /// By shard, with the time it was shown.
    parts: Mutex<Vec<(Instant, ShardStatus)>>,
}

impl Board {
    pub(crate) fn new(settings: &Settings, disk_problem: DiskProblem, tls: CurrentTls) -> Self {
        let parts = vec![Default::default(); usize::from(settings.shards.get())];
        Self { settings: settings.clone(), disk_problem, tls, parts: Mutex::new(parts) }
    }

    /// A shard shows how it stands; the gauges count the whole node.
    pub(crate) fn show(&self, now: Instant, shard: u16, part: ShardStatus) {
        let whole = {
            let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
            parts[usize::from(shard)] = (now, part);
            join(parts.iter().map(|(_, part)| part))
        };
        gauge!("paxoslease_leases").set(whole.leases as f64);
        gauge!("paxoslease_waiters").set(whole.waiters as f64);
        gauge!("paxoslease_acceptor_bytes").set(whole.acceptor_bytes as f64);
        gauge!("paxoslease_ballots_remaining_ratio").set(whole.ballots_remaining_ratio());
        gauge!("paxoslease_turn_seconds_max").set(whole.longest_turn.as_secs_f64());
        gauge!("paxoslease_quarantine_remaining_seconds")
            .set(whole.quarantine_remaining.as_secs_f64());
        if let Some(not_after) = self.tls.not_after() {
            gauge!("paxoslease_certificate_not_after_seconds").set(not_after.as_secs() as f64);
        }
    }

    /// The whole node, with a fresh look at one of its shards.
    pub(crate) fn status(&self, shard: u16, part: ShardStatus) -> Status {
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner).clone();
        parts[usize::from(shard)].1 = part;
        self.describe(join(parts.iter().map(|(_, part)| part)))
    }

    /// The whole node, as its shards showed it last. Not ready if one of them is stuck.
    pub(crate) fn seen(&self, now: Instant) -> Status {
        let parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let is_fresh = parts.iter().all(|(shown_at, _)| now.since(*shown_at) < STALE_AFTER);
        let mut whole = join(parts.iter().map(|(_, part)| part));
        drop(parts);
        whole.ready &= is_fresh;
        self.describe(whole)
    }

    pub(crate) fn describe(&self, whole: ShardStatus) -> Status {
        let settings = &self.settings;
        let members = settings.cell.members();
        let ballots_remaining_ratio = whole.ballots_remaining_ratio();
        Status {
            cell: settings.cell_name().as_str().to_owned(),
            node: settings.node.get(),
            role: settings.role,
            members: members.iter().map(|member| member.get()).collect(),
            max_lease: settings.cell.max_lease().as_duration(),
            ready: whole.ready,
            quarantine_remaining: whole.quarantine_remaining,
            peers: whole.peers,
            leases: whole.leases,
            acceptor_bytes: whole.acceptor_bytes,
            waiters: whole.waiters,
            waiting: whole.waiting,
            guards: whole.guards,
            rounds_in_flight: whole.rounds_in_flight,
            rates: whole.rates,
            longest_turn: whole.longest_turn,
            ballots_remaining_ratio,
            ballot_problem: whole.ballot_problem,
            shards: settings.shards.get(),
            disk_problem: (self.disk_problem)(),
        }
    }
}

/// What the shards of a node say together.
pub(crate) fn join<'a>(parts: impl IntoIterator<Item = &'a ShardStatus>) -> ShardStatus {
    let joined = parts.into_iter().cloned().reduce(ShardStatus::join);
    joined.unwrap_or_default()
}
