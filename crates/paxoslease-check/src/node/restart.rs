//! The disk of a node, and what remains of a node after a crash or a clean stop (protocol section
//! 6).

use paxoslease_core::{Holder, Instant, Name, Rule, Shard, SnapshotLease, Start};

use super::{NAMES, NodeState, NodeStates, name};

impl NodeState {
    pub(super) fn written(&mut self, now: Instant) {
        if let Some(record) = self.writing.take() {
            self.record = record;
            self.shard.record_written(now, record);
        }
    }

    /// The next write of a register is durable.
    pub(super) fn sync(&mut self, now: Instant) {
        if let Some(sequence) = self.file.sync() {
            self.shard.durable_written(now, sequence);
        }
    }

    /// K12: a start takes back the registers before anything else.
    fn restore_registers(&mut self, now: Instant) {
        for register in self.file.registers() {
            self.shard.restore_durable(now, register.clone());
        }
    }

    pub(super) fn lose_power(&mut self, landed: bool) {
        if let Some(record) = self.writing.take().filter(|_| landed) {
            self.record = record;
        }
    }
}

impl NodeStates {
    pub(super) fn crash(
        &self,
        node_state: &mut NodeState,
        node: usize,
        now: Instant,
        tick: u8,
        nth: u8,
    ) {
        let rules = self.bounds.rules;
        node_state.is_stopped = false;
        if !rules.on(Rule::SnapshotIsUsedOnce) && node_state.snapshot.is_some() {
            return self.restart_from_disk(node_state, node, now);
        }
        node_state.snapshot = None;
        let start = if self.bounds.disk {
            Start::Crash(node_state.record)
        } else {
            // The wall clock: above every ballot of all runs before.
            let counter = (u64::from(tick) + 1) * 1000 + u64::from(nth) * 100;
            Start::NoRecord { counter, longest: self.cell.max_lease(), disk: false }
        };
        let shard = Shard::start(self.config(node, node_state.configured), now, start);
        node_state.shard = self.started(shard, node);
        node_state.restore_registers(now);
    }

    /// C6: after a start the wait counts anew.
    pub(super) fn start_decider(&self, node_state: &mut NodeState, node: usize, tick: u8) {
        node_state.decider = self.decider(node, tick, node_state);
        let is_joint = self.configured(node_state.configured).cell.is_joint();
        node_state.enter(tick, is_joint);
    }

    pub(super) fn stop(&self, node_state: &mut NodeState, node: usize, now: Instant) {
        // A stopped node has no state.
        let start = Start::NewCell { counter: self.bounds.counter(node), disk: false };
        let nothing = Shard::start(self.config(node, node_state.configured), Instant::ZERO, start);
        let old = core::mem::replace(&mut node_state.shard, nothing);
        node_state.snapshot = old.stop(now).map(|snapshot| {
            let leases = snapshot.leases();
            let stopped = |lease: SnapshotLease<'_>| {
                let SnapshotLease { tenure, remaining, is_dated, .. } = lease;
                (number_of(lease.name), tenure, remaining, is_dated)
            };
            leases.map(stopped).collect()
        });
        node_state.file.end(now, node_state.file.pending() as u8, true);
        node_state.is_stopped = true;
    }

    pub(super) fn restart(&self, node_state: &mut NodeState, node: usize, now: Instant) {
        node_state.is_stopped = false;
        if node_state.snapshot.is_none() {
            let config = self.config(node, node_state.configured);
            let shard = Shard::start(config, now, Start::Crash(node_state.record));
            node_state.shard = self.started(shard, node);
        } else {
            self.restart_from_disk(node_state, node, now);
        }
        node_state.restore_registers(now);
    }

    fn restart_from_disk(&self, node_state: &mut NodeState, node: usize, now: Instant) {
        let leases = node_state.snapshot.clone().unwrap_or_default();
        if self.bounds.rules.on(Rule::SnapshotIsUsedOnce) {
            node_state.snapshot = None;
        }
        let leases = leases.into_iter().map(|(number, tenure, remaining, is_dated)| {
            let (name, holder) = (name(number), Holder::NONE);
            SnapshotLease { name, holder, tenure, remaining, is_dated }
        });
        node_state.shard = Shard::start_from_snapshot(
            self.config(node, node_state.configured),
            now,
            node_state.record,
            leases,
        );
    }
}

fn number_of(name: Name<'_>) -> u8 {
    NAMES.iter().position(|known| *known == name.as_str()).expect("one of ours") as u8
}
