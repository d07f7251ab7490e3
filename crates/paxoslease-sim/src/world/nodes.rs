//! Starts, crashes, clean stops and pauses of nodes, and their effects on disks.

use std::time::Duration;

use paxoslease_core::NodeId;

use super::{WALL_MILLIS, World, WorldEvent};
use crate::algorithm::{Algorithm, Boot, Process};
use crate::checker::Stored;
use crate::trace::{TraceEvent, TrueTime};

impl<A: Algorithm> World<A> {
    /// Starts a node that does not run.
    pub fn start(&mut self, id: u16) {
        let (now_true, seed) = (self.now, self.rng.bits());
        let place = usize::from(id) - 1;
        let state = &mut self.nodes[place];
        if state.process.is_some() {
            return;
        }
        let boot = Boot {
            node: NodeId::new(id).expect("nodes' ids are in bounds"),
            cell: &self.setup.cell,
            tuning: &self.setup.tuning,
            seed,
            now: state.clock.read(now_true),
            new_cell: state.run == 0,
            wall_millis: WALL_MILLIS + now_true.0 / 1_000_000,
            disk: state.disk.as_mut(),
        };
        let first_run = state.run == 0;
        state.run += 1;
        state.timer_at = None;
        let process = self.algorithm.start(boot);
        let quarantine = process.quarantine_until(state.clock.read(now_true));
        let quarantine_until = quarantine.map(|until| state.clock.first_shows(until));
        state.process = Some(process);
        self.tracer.hash(&[now_true.0, 6, u64::from(id), u64::from(quarantine.is_some())]);
        self.tracer.record(now_true, || TraceEvent::Started { node: id, quarantine_until });
        if place < self.setup.cell.members().len() {
            let names = 0..self.setup.names.len();
            let stored: Vec<Stored> = names.map(|name| self.stored(id, name)).collect();
            self.checker.started(now_true, place, &stored);
            self.trace_violations();
        }
        if first_run {
            let tick = self.setup.tick.as_nanos() as u64;
            let first = self.rng.below(tick + 1);
            self.schedule_in(first, id, WorldEvent::Tick);
        }
        self.settle(id);
    }

    /// Crashes a node. A write under way reaches the disk or not, at random.
    pub fn crash(&mut self, id: u16) {
        if self.state(id).process.take().is_some() {
            self.counts.crashes += 1;
            self.tracer.record(self.now, || TraceEvent::Crashed(id));
            self.end(id, true);
        }
    }

    /// Stops a node cleanly.
    pub fn stop(&mut self, id: u16) {
        let now_true = self.now;
        let state = self.state(id);
        let Some(process) = state.process.take() else { return };
        let now = state.clock.read(now_true);
        process.stop(now, state.disk.as_mut());
        let forgotten = state.disk.as_ref().is_none_or(|disk| disk.snapshot.is_none());
        self.counts.stops += 1;
        self.tracer.record(self.now, || TraceEvent::Stopped(id));
        self.end(id, forgotten);
    }

    fn end(&mut self, id: u16, forgotten: bool) {
        let survives = self.rng.chance(500);
        let queued = self.state(id).durable.len() as u64;
        // Without durable leases, no random number is drawn.
        let written = if queued > 0 { self.rng.below(queued + 1) as usize } else { 0 };
        let state = self.state(id);
        state.write_durable(written);
        state.durable.clear();
        state.is_syncing = false;
        state.run += 1;
        state.timer_at = None;
        state.paused_until = None;
        let ticks = state.backlog.iter().filter(|w| matches!(w, WorldEvent::Tick)).count();
        state.backlog.clear();
        if let (Some(bytes), Some(disk)) = (state.writing.take(), &mut state.disk)
            && survives
        {
            disk.record = Some(bytes);
        }
        self.counts.events += 1;
        self.tracer.hash(&[self.now.0, 7, u64::from(id), u64::from(forgotten)]);
        for _ in 0..ticks {
            self.schedule_in(self.setup.tick.as_nanos() as u64, id, WorldEvent::Tick);
        }
        self.checker.ended(self.now, usize::from(id) - 1, forgotten);
    }

    /// Pauses a node; its clock and the world continue. What arrives meanwhile waits.
    pub fn pause(&mut self, id: u16, span: Duration) {
        let until = TrueTime(self.now.0 + span.as_nanos() as u64);
        let state = self.state(id);
        if state.process.is_none() || state.paused_until.is_some_and(|end| end >= until) {
            return;
        }
        state.paused_until = Some(until);
        self.tracer.hash(&[self.now.0, 8, u64::from(id), until.0]);
        self.tracer.record(self.now, || TraceEvent::Paused { node: id, until });
        self.schedule(until, id, WorldEvent::Resumed);
    }

    pub(super) fn resume(&mut self, id: u16) {
        let now_true = self.now;
        let state = self.state(id);
        if state.paused_until != Some(now_true) {
            return;
        }
        state.paused_until = None;
        for event in std::mem::take(&mut state.backlog) {
            self.dispatch_running(id, event);
        }
    }
}
