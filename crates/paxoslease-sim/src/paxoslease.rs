//! PaxosLease itself: the shipping [`Shard`] and codec behind [`Process`].
//!
//! It adds what an embedding adds: frames, the two files, and the kind of start.

use std::collections::BTreeMap;
use std::time::Duration;

use paxoslease_core::{
    Acquire, Birth, Config, Durability, Event, Holder, Instant, Label, Name, NodeId, Record, Renew,
    Rule, Rules, Shard, Start, To, Token,
};
use paxoslease_wire::{
    FrameReader, SnapshotReader, SnapshotWriter, StableRecord, decode_record, encode_record,
};

use crate::algorithm::{Algorithm, Answer, Boot, Command, Disk, Output, Process, Tuning, View};
use crate::packet::Outbox;

/// How many slots one tick of housekeeping visits.
const SWEEP_SLOTS: u32 = 64;

/// The protocol of this workspace.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PaxosLease {
    /// All rules, except in tests of mutants.
    pub rules: Rules,
    /// Prepares every round, as the paper does, instead of beginning with a direct round (P1).
    pub prepared_only: bool,
}

impl Algorithm for PaxosLease {
    type Process = Node;

    fn start(&self, boot: Boot<'_>) -> Node {
        let Boot { node, cell, tuning, seed, now, new_cell, wall_millis, disk } = boot;
        let Tuning { attempt_timeout, request_timeout, reclaim_after, stagger_max, .. } = *tuning;
        let config = Config {
            attempt_timeout,
            attempt_timeout_min: tuning.attempt_timeout_min,
            request_timeout,
            reclaim_after,
            stagger_max,
            backoff_max: attempt_timeout.max(Duration::from_millis(2)),
            direct_rounds: !self.prepared_only,
            rules: self.rules,
            durability: if disk.is_some() { Durability::Disk } else { Durability::Refused },
            ..Config::new(node, *cell, seed)
        };
        let counter = wall_millis << 10;
        let longest = cell.max_lease();
        let registers = disk.as_ref().map(|disk| disk.registers.clone()).unwrap_or_default();
        let mut shard = match disk {
            None if new_cell => Shard::start(config, now, Start::NewCell { counter, disk: false }),
            None => Shard::start(config, now, Start::NoRecord { counter, longest, disk: false }),
            Some(disk) => {
                // The snapshot is deleted before anything else happens (R4).
                let snapshot = if self.rules.on(Rule::SnapshotIsUsedOnce) {
                    disk.snapshot.take()
                } else {
                    disk.snapshot.clone()
                };
                let record = disk.record.as_ref().map(|bytes| ceilings_in(node, bytes));
                match (record, snapshot) {
                    (Some(record), Some(bytes)) => {
                        let leases = SnapshotReader::new(node, &bytes).expect("it is whole");
                        Shard::start_from_snapshot(config, now, record, leases)
                    }
                    (Some(record), None) => Shard::start(config, now, Start::Crash(record)),
                    (None, _) => {
                        let start = if new_cell {
                            Start::NewCell { counter: 0, disk: true }
                        } else {
                            Start::NoRecord { counter, longest, disk: true }
                        };
                        Shard::start(config, now, start)
                    }
                }
            }
        };
        for register in registers.into_values() {
            shard.restore_durable(now, register);
        }
        Node { node, shard, open: BTreeMap::new(), out: Outbox::new(node) }
    }

    fn rules(&self) -> Rules {
        self.rules
    }
}

/// One run of one node.
#[derive(Clone, Debug)]
pub struct Node {
    node: NodeId,
    shard: Shard,
    /// How many requests with each token wait for their answer. A careless client sends a request
    /// twice, with one token.
    open: BTreeMap<Token, usize>,
    out: Outbox,
}

impl Node {
    /// A request was answered or abandoned.
    fn close(&mut self, token: Token) {
        match self.open.get_mut(&token) {
            Some(1) => drop(self.open.remove(&token)),
            Some(open) => *open -= 1,
            None => self.out.outputs.push_back(Output::Unasked(token)),
        }
    }

    fn send(&mut self) {
        while let Some(transmit) = self.shard.poll_transmit() {
            let (counter, message) = (self.shard.counter(), transmit.message());
            match transmit.to {
                To::Node(to) => self.out.send([to], counter, &message),
                To::Members(set) => {
                    let members = self.shard.config().cell.nodes(set);
                    self.out.send(members, counter, &message);
                }
            }
        }
    }

    fn act(&mut self) {
        while let Some(event) = self.shard.poll_event() {
            let (token, answer) = match event {
                Event::Granted { token, tenure, ttl, waited, .. } => {
                    (token, Answer::Granted { tenure, ttl, waited })
                }
                Event::Denied { token, .. } => (token, Answer::Denied),
                Event::NoQuorum { token } => (token, Answer::NoQuorum),
                Event::Renewed { token, tenure, ttl, started_at } => {
                    (token, Answer::Renewed { tenure, ttl, started_at: Some(started_at) })
                }
                Event::Kept { token, fence, lasts, .. } => {
                    (token, Answer::Kept { tenure: fence, lasts })
                }
                Event::NotKept { token, .. } => (token, Answer::Refused),
                Event::Doubtful { token } => (token, Answer::Released),
                Event::Durable { sequence, write } => {
                    self.out.outputs.push_back(Output::Durable(sequence, write));
                    continue;
                }
                Event::NotHeld { token, .. } => (token, Answer::NotHeld),
                Event::Released { token, .. } => (token, Answer::Released),
                Event::Persist(record) => {
                    let record = StableRecord {
                        birth: Birth::UNKNOWN,
                        ceilings: record,
                        configuration: None,
                        has_durable: false,
                    };
                    let bytes = encode_record(self.node, &record);
                    self.out.outputs.push_back(Output::Persist(bytes));
                    continue;
                }
                Event::Inspected { .. }
                | Event::NoteHint(_)
                | Event::HeldHint(_)
                | Event::FreedHint { .. }
                | Event::ExpiredHint { .. } => continue,
            };
            self.close(token);
            self.out.answer(token, answer);
        }
    }
}

impl Process for Node {
    fn handle_message(&mut self, now: Instant, from: NodeId, bytes: &[u8]) {
        let frame = FrameReader::new(bytes).expect("the network garbles nothing");
        let within = self.shard.observe_counter(frame.header().counter);
        within.expect("no simulated node lies about its counter");
        for message in frame {
            let message = message.expect("the network garbles nothing");
            // The shard counts a message that it refuses. A refusal is normal.
            let _ = self.shard.handle_message(now, from, message);
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.shard.handle_timeout(now);
    }

    fn handle_tick(&mut self, now: Instant) {
        self.shard.sweep(now, SWEEP_SLOTS);
    }

    fn handle_persisted(&mut self, now: Instant, record: &[u8]) {
        self.shard.record_written(now, ceilings_in(self.node, record));
    }

    fn handle_durable(&mut self, now: Instant, sequence: u64) {
        self.shard.durable_written(now, sequence);
    }

    fn handle_command(&mut self, now: Instant, token: Token, name: Name<'_>, command: Command) {
        let holder = Holder::NONE;
        let taken = match command {
            Command::Acquire { ttl, wait } => {
                self.shard.acquire(now, Acquire { token, name, holder, ttl, wait })
            }
            Command::Renew { tenure, ttl } => {
                self.shard.renew(now, Renew { token, name, holder, tenure, ttl })
            }
            Command::Release { tenure, patience } => {
                self.shard.release(now, token, name, tenure, patience)
            }
            Command::AcquireDurable { lasts, wait } => {
                // The ttl is not used.
                let acquire = Acquire { token, name, holder, ttl: wait, wait };
                self.shard.acquire_durable(now, acquire, lasts)
            }
            Command::Keep { tenure, lasts } => {
                self.shard.keep(now, token, Label::new(name, holder), tenure, lasts)
            }
            Command::ReleaseDurable { tenure, patience } => {
                self.shard.release_durable(now, token, name, tenure, patience)
            }
            Command::Abandon => {
                // The node takes answers at once. So a request that is not open any more was
                // answered before: the node sent the grant, and the client must release it.
                if self.shard.abandon(now, name, token) {
                    self.close(token);
                }
                return;
            }
        };
        match taken {
            Ok(()) => *self.open.entry(token).or_default() += 1,
            Err(_) => self.out.answer(token, Answer::Refused),
        }
    }

    fn poll_output(&mut self) -> Option<Output> {
        if self.out.outputs.is_empty() {
            self.send();
            self.act();
        }
        self.out.outputs.pop_front()
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.shard.poll_timeout()
    }

    fn view(&self, name: Name<'_>) -> Option<View> {
        View::of(&self.shard, name)
    }

    fn quarantine_until(&self, now: Instant) -> Option<Instant> {
        let remaining = self.shard.quarantine_remaining(now);
        (!remaining.is_zero()).then(|| now.after(remaining))
    }

    fn stop(self, now: Instant, disk: Option<&mut Disk>) {
        let Some(disk) = disk else { return };
        let ballot_ceiling = self.shard.record().ballot_ceiling;
        let Some(snapshot) = self.shard.stop(now) else { return };
        let (epoch, mut bytes) = (snapshot.epoch(), Vec::new());
        let mut writer = SnapshotWriter::begin(self.node, ballot_ceiling, epoch, &mut bytes);
        for lease in snapshot.leases() {
            writer.push(&lease, &mut bytes);
        }
        writer.finish(&mut bytes);
        disk.snapshot = Some(bytes);
    }

    fn in_flight(&self) -> usize {
        // Members look at the registers of durable names as long as there are any.
        let has_registers = self.shard.durable_counts().registers > 0;
        let wake_ups = usize::from(self.shard.poll_timeout().is_some() && !has_registers);
        self.shard.rounds().count() + self.shard.waiters() + self.open.len() + wake_ups
    }
}

fn ceilings_in(node: NodeId, record: &[u8]) -> Record {
    decode_record(node, record).expect("the disk corrupts nothing").ceilings
}
