//! The latest status of each shard of a node, so that any thread of the node can read the status of
//! the whole node without waiting for a shard.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use metrics::{gauge, histogram};
use paxoslease_core::Instant;
use paxoslease_holder::Status;

use crate::config::Settings;
use crate::tls::CurrentTls;

/// How many names with waiters a status shows.
pub(crate) const QUEUED_NAMES_MAX: usize = 20;

/// The status of one shard. The board fills in the fields that describe the node and its cell.
pub(crate) type ShardStatus = Status;

/// Describes the problem of a file, if there is one.
pub(crate) type DiskProblem = Box<dyn Fn() -> Option<String> + Send + Sync>;

/// What the writers of the data folder say.
pub(crate) struct Disk {
    /// Why the last write of the stable record failed, if it did.
    pub(crate) record_problem: DiskProblem,
    /// The same for the file of durable leases. Ordinary leases do without that file.
    pub(crate) durable_problem: DiskProblem,
    /// How long the writes of that file took since the last call.
    pub(crate) write_times: Box<dyn Fn() -> Vec<Duration> + Send + Sync>,
}

/// A node without a data folder.
impl Default for Disk {
    fn default() -> Self {
        Self {
            record_problem: Box::new(|| None),
            durable_problem: Box::new(|| None),
            write_times: Box::new(Vec::new),
        }
    }
}

/// A shard that has reported nothing for this long is stuck: it reports every half second.
const STALE_AFTER: Duration = Duration::from_secs(5);

pub(crate) struct Board {
    settings: Settings,
    /// Whether the node found its stable record when it started.
    pub(crate) has_record: bool,
    disk: Disk,
    tls: CurrentTls,
    /// By shard, with the time of the report.
    parts: Mutex<Vec<(Instant, ShardStatus)>>,
}

impl Board {
    pub(crate) fn new(settings: &Settings, has_record: bool, disk: Disk, tls: CurrentTls) -> Self {
        // A shard that has not reported yet must not look like one without ballots.
        let part = ShardStatus { ballots_remaining_ratio: 1.0, ..ShardStatus::default() };
        let parts = vec![(Instant::ZERO, part); usize::from(settings.shards.get())];
        let (settings, parts) = (settings.clone(), Mutex::new(parts));
        Self { settings, has_record, disk, tls, parts }
    }

    /// Takes the report of a shard. The gauges describe the whole node.
    pub(crate) fn show(&self, now: Instant, shard: u16, part: ShardStatus) {
        let whole = {
            let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
            parts[usize::from(shard)] = (now, part);
            join(parts.iter().map(|(_, part)| part))
        };
        gauge!("paxoslease_epoch").set(f64::from(whole.epoch));
        let change = whole.change.as_ref();
        let to = change.map_or(f64::NAN, |change| change.to.len() as f64);
        gauge!("paxoslease_members", "set" => "old").set(whole.members.len() as f64);
        gauge!("paxoslease_members", "set" => "new").set(to);
        gauge!("paxoslease_change_state").set(if change.is_some() { 1.0 } else { 0.0 });
        gauge!("paxoslease_change_seconds_left")
            .set(change.map_or(0.0, |change| change.wait_remaining.as_secs_f64()));
        gauge!("paxoslease_leases").set(whole.leases as f64);
        gauge!("paxoslease_durable_leases").set(whole.durable as f64);
        gauge!("paxoslease_durable_unsettled").set(whole.durable_unsettled as f64);
        gauge!("paxoslease_durable_free").set(whole.durable_free as f64);
        gauge!("paxoslease_waiters").set(whole.waiters as f64);
        gauge!("paxoslease_acceptor_bytes").set(whole.acceptor_bytes as f64);
        gauge!("paxoslease_ballots_remaining_ratio").set(whole.ballots_remaining_ratio);
        gauge!("paxoslease_turn_seconds_max").set(whole.longest_turn.as_secs_f64());
        gauge!("paxoslease_quarantine_remaining_seconds")
            .set(whole.quarantine_remaining.as_secs_f64());
        if let Some(not_after) = self.tls.not_after() {
            gauge!("paxoslease_certificate_not_after_seconds").set(not_after.as_secs() as f64);
        }
    }

    /// The status of the node, with a newer report of one shard.
    pub(crate) fn status(&self, shard: u16, part: ShardStatus) -> Status {
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner).clone();
        parts[usize::from(shard)].1 = part;
        self.describe(join(parts.iter().map(|(_, part)| part)))
    }

    /// The status of the node by the latest reports. Not ready if a shard is stuck.
    pub(crate) fn seen(&self, now: Instant) -> Status {
        let parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let is_fresh = parts.iter().all(|(shown_at, _)| now.since(*shown_at) < STALE_AFTER);
        let mut whole = join(parts.iter().map(|(_, part)| part));
        drop(parts);
        whole.ready &= is_fresh;
        self.describe(whole)
    }

    /// Why the last write of the stable record failed, if it did.
    pub(crate) fn record_problem(&self) -> Option<String> {
        (self.disk.record_problem)()
    }

    /// Publishes how long writes of durable leases took since the last call.
    pub(crate) fn publish_write_times(&self) {
        let seconds = histogram!("paxoslease_durable_write_seconds");
        (self.disk.write_times)().iter().for_each(|took| seconds.record(*took));
    }

    /// Adds what all shards have in common.
    pub(crate) fn describe(&self, whole: ShardStatus) -> Status {
        let settings = &self.settings;
        let record_problem = self.record_problem();
        Status {
            // It votes, but it accepts no lease longer than those it recorded (R2).
            ready: whole.ready && record_problem.is_none(),
            cell: settings.config.cell.clone(),
            node: settings.node.get(),
            role: settings.config.role,
            clients: settings.config.client_address.clone(),
            max_lease: settings.cell.max_lease().as_duration(),
            shards: settings.shards.get(),
            has_record: self.has_record,
            disk_problem: record_problem.or_else(&self.disk.durable_problem),
            ..whole
        }
    }
}

/// Joins the statuses of all shards of a node.
pub(crate) fn join<'a>(parts: impl IntoIterator<Item = &'a ShardStatus>) -> ShardStatus {
    parts.into_iter().cloned().reduce(join_two).unwrap_or_default()
}

/// Joins the statuses of two shards of one node.
fn join_two(mut one: ShardStatus, other: ShardStatus) -> ShardStatus {
    one.quarantine_remaining = one.quarantine_remaining.max(other.quarantine_remaining);
    one.ready &= other.ready;
    one.change = one.change.or(other.change);
    one.epoch = one.epoch.min(other.epoch);
    one.longest_turn = one.longest_turn.max(other.longest_turn);
    one.leases += other.leases;
    one.acceptor_bytes += other.acceptor_bytes;
    one.durable += other.durable;
    one.durable_unsettled += other.durable_unsettled;
    one.durable_free += other.durable_free;
    one.waiters += other.waiters;
    one.waiting.extend(other.waiting);
    one.waiting.sort_by_key(|queued| std::cmp::Reverse(queued.waiters));
    one.waiting.truncate(QUEUED_NAMES_MAX);
    one.rates.acquires += other.rates.acquires;
    one.rates.renewals += other.rates.renewals;
    one.rates.releases += other.rates.releases;
    one.guards += other.guards;
    one.rounds_in_flight += other.rounds_in_flight;
    one.ballots_remaining_ratio = one.ballots_remaining_ratio.min(other.ballots_remaining_ratio);
    one.ballot_problem = one.ballot_problem.or(other.ballot_problem);
    for theirs in other.peers {
        match one.peers.iter_mut().find(|ours| ours.node == theirs.node) {
            Some(ours) => {
                ours.up &= theirs.up;
                ours.rtt = ours.rtt.max(theirs.rtt);
                ours.quarantine_remaining =
                    ours.quarantine_remaining.max(theirs.quarantine_remaining);
                ours.problem = ours.problem.take().or(theirs.problem);
            }
            None => one.peers.push(theirs),
        }
    }
    one
}
