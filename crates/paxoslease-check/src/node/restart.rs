//! The disk of a node, and what is left of the node after a crash or a clean stop (protocol
//! section 6).

use paxoslease_core::{Holder, Instant, Name, Rule, Shard, SnapshotLease, Start};

use super::{Local, Locals, NAMES, name};

impl Local {
    pub(super) fn written(&mut self, now: Instant) {
        if let Some(record) = self.writing.take() {
            self.record = record;
            self.shard.record_written(now, record);
        }
    }

    pub(super) fn lose_power(&mut self, landed: bool) {
        if let Some(record) = self.writing.take().filter(|_| landed) {
            self.record = record;
        }
    }
}

impl Locals {
    pub(super) fn crash(&self, local: &mut Local, node: usize, now: Instant, tick: u8, nth: u8) {
        let rules = self.bounds.rules;
        local.is_stopped = false;
        if !rules.on(Rule::SnapshotIsUsedOnce) && local.snapshot.is_some() {
            return self.restart_from_disk(local, node, now);
        }
        local.snapshot = None;
        let start = if self.bounds.disk {
            Start::Crash(local.record)
        } else {
            // The wall clock: above every ballot of the runs before, whatever they were.
            let counter = (u64::from(tick) + 1) * 1000 + u64::from(nth) * 100;
            Start::NoRecord { counter, longest: self.cell.max_lease(), disk: false }
        };
        local.shard = Shard::start(self.config(node), now, start);
    }

    pub(super) fn stop(&self, local: &mut Local, node: usize, now: Instant) {
        // What is not running has no state.
        let start = Start::NewCell { counter: self.bounds.counter(node), disk: false };
        let nothing = Shard::start(self.config(node), Instant::ZERO, start);
        let old = core::mem::replace(&mut local.shard, nothing);
        local.snapshot = old.stop(now).map(|snapshot| {
            let leases = snapshot.leases();
            leases.map(|lease| (number_of(lease.name), lease.tenure, lease.remaining)).collect()
        });
        local.is_stopped = true;
    }

    pub(super) fn restart(&self, local: &mut Local, node: usize, now: Instant) {
        local.is_stopped = false;
        if local.snapshot.is_none() {
            local.shard = Shard::start(self.config(node), now, Start::Crash(local.record));
        } else {
            self.restart_from_disk(local, node, now);
        }
    }

    fn restart_from_disk(&self, local: &mut Local, node: usize, now: Instant) {
        let leases = local.snapshot.clone().unwrap_or_default();
        if self.bounds.rules.on(Rule::SnapshotIsUsedOnce) {
            local.snapshot = None;
        }
        let leases = leases.into_iter().map(|(number, tenure, remaining)| SnapshotLease {
            name: name(number),
            holder: Holder::NONE,
            tenure,
            remaining,
        });
        local.shard = Shard::start_from_snapshot(self.config(node), now, local.record, leases);
    }
}

fn number_of(name: Name<'_>) -> u8 {
    NAMES.iter().position(|known| *known == name.as_str()).expect("one of ours") as u8
}
