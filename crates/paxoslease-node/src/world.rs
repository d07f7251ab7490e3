//! A world for nodes without sockets, disks or time of their own: the simulated host beside
//! `event_loop.rs`.
//!
//! It runs the real [`Driver`](crate::driver::Driver), handles, futures and guards around a
//! simulated network, disk and clock each. One thread, one seed, one agenda: same seed, same
//! trace. It decides nothing about what goes wrong; simulations and
//! [`TestCell`](crate::TestCell) do.

mod agenda;
mod clock;
mod dice;
mod host;
mod lines;
mod network;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod swarm;
#[cfg(test)]
mod tests;
mod writer;

use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use paxoslease_core::Rules;

pub(crate) use clock::HostClock;
pub(crate) use dice::Dice;
pub(crate) use network::{Network, Presence};

use agenda::{Agenda, Happening};
use host::{Host, Process, Shard, Surroundings};
use writer::Writer;

use crate::board::Board;
use crate::clock::wall_counter_at;
use crate::command::Command;
use crate::config::Config;
use crate::front::Waiting;
use crate::mailbox::Mailbox;
use crate::node::{CommandSender, Node, Run, Shared, make_driver};
use crate::stable::{Folder, MemoryDisk, StableError, Startup, Wishes};
use crate::tls::CurrentTls;

/// A point in true time, in nanoseconds since the world began. No node ever sees it.
pub(crate) type At = u64;

/// When the world begins, as wall clocks show it, in milliseconds: ballots begin there (R5).
const EPOCH_MILLIS: u64 = 1_750_000_000_000;

/// Rings for shards that were posted something, by host and shard.
pub(crate) struct Bells {
    rung: Mutex<BTreeSet<(usize, usize)>>,
    /// Somebody outside the world's thread may have rung.
    tell: Box<dyn Fn() + Send + Sync>,
}

impl Bells {
    pub(crate) fn new(tell: impl Fn() + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self { rung: Mutex::default(), tell: Box::new(tell) })
    }

    fn ring(&self, host: usize, shard: usize) {
        self.rung.lock().unwrap_or_else(PoisonError::into_inner).insert((host, shard));
        (self.tell)();
    }

    fn take(&self) -> BTreeSet<(usize, usize)> {
        std::mem::take(&mut self.rung.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

pub(crate) struct World {
    now: At,
    agenda: Agenda,
    pub(crate) network: Network,
    hosts: Vec<Host>,
    bells: Arc<Bells>,
    dice: Dice,
    /// How long a thread may take to notice that there is something to do.
    pub(crate) turn_latency: Duration,
    /// How long a thread is busy with one command, or with one message of a peer.
    pub(crate) work_cost: Duration,
    /// How long a write to disk may take.
    pub(crate) write_latency: Duration,
    hash: Fnv,
}

impl World {
    pub(crate) fn new(seed: u64, bells: Arc<Bells>) -> Self {
        Self {
            now: 0,
            agenda: Agenda::default(),
            network: Network::new(seed),
            hosts: Vec::new(),
            bells,
            dice: Dice::new(seed, 2),
            turn_latency: Duration::ZERO,
            work_cost: Duration::ZERO,
            write_latency: Duration::ZERO,
            hash: Fnv(0xcbf2_9ce4_8422_2325),
        }
    }

    /// A machine for a node, with a clock and perhaps a disk. Nothing runs there yet.
    pub(crate) fn add(&mut self, config: Config, clock: HostClock, has_disk: bool) -> usize {
        let settings = config.settings().expect("worlds have valid settings");
        self.network.add_host(settings.listen);
        clock.show(self.now);
        self.hosts.push(Host {
            config,
            rules: Rules::ALL,
            clock,
            disk: has_disk.then(MemoryDisk::default),
            process: None,
            paused: false,
            run: 0,
            orphans: Vec::new(),
        });
        self.hosts.len() - 1
    }

    pub(crate) const fn now(&self) -> At {
        self.now
    }

    /// Same seed and same deeds, same value.
    pub(crate) const fn trace_hash(&self) -> u64 {
        self.hash.0
    }

    pub(crate) fn host(&self, host: usize) -> &Host {
        &self.hosts[host]
    }

    pub(crate) fn host_mut(&mut self, host: usize) -> &mut Host {
        &mut self.hosts[host]
    }

    /// How many hosts there are.
    pub(crate) const fn len(&self) -> usize {
        self.hosts.len()
    }

    pub(crate) fn is_running(&self, host: usize) -> bool {
        self.hosts[host].process.is_some()
    }

    /// The handle of the node that runs on a host.
    pub(crate) fn node(&self, host: usize) -> Option<Node> {
        self.hosts[host].process.as_ref().map(|process| process.node.clone())
    }

    /// Starts a node with what its disk holds.
    pub(crate) fn start(&mut self, host: usize) -> Result<Node, StableError> {
        assert!(!self.is_running(host), "it runs already");
        let wall_counter = wall_counter_at(EPOCH_MILLIS + self.now / 1_000_000);
        let run = Run { seed: self.dice.bits(), wall_counter };
        let state = &mut self.hosts[host];
        let mut settings = state.config.settings().expect("checked before");
        settings.rules = state.rules;
        let wishes = Wishes {
            new_cell: std::mem::take(&mut state.config.ephemeral),
            reset: settings.reset_stable_record,
            max_lease: settings.cell.max_lease(),
            counter: wall_counter,
        };
        let mut folder = state.disk.clone().map(|disk| Folder::on(disk, settings.node));
        let startup = match &mut folder {
            Some(folder) => folder.start(wishes)?,
            None => Startup::decide(None, None, wishes),
        };
        let count = usize::from(settings.shards.get());
        let writer = folder.zip(startup.record());
        let writer = writer.map(|(folder, record)| Writer::new(folder, count, record));
        let clock = state.clock.handle();
        let last_error = writer.as_ref().map(Writer::last_error);
        let disk_problem = Box::new(move || {
            last_error.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner).clone()
        });
        let board = Arc::new(Board::new(&settings, disk_problem, CurrentTls::default()));
        let waiting = Arc::<Waiting>::default();
        let mut shards = Vec::new();
        let mut senders: Vec<CommandSender> = Vec::new();
        for shard in 0..count {
            let bells = Arc::clone(&self.bells);
            let mailbox = Arc::new(Mailbox::new(Box::new(move || bells.ring(host, shard))));
            mailbox.fall_asleep();
            senders.push(command_sender(&mailbox));
            let board = Arc::clone(&board);
            let driver = make_driver(&settings, &startup, shard as u16, run, &clock, board);
            shards.push(Some(Shard::new(driver, mailbox, Arc::clone(&waiting))));
        }
        let holder = format!("node-{}", settings.node);
        let mut shared = Shared::new(settings, clock, senders, holder, board);
        shared.waiting = waiting;
        let node = Node { shared: Arc::new(shared) };
        state.run += 1;
        state.paused = false;
        let snapshots = Vec::new();
        state.process = Some(Process { node: node.clone(), shards, snapshots, writer });
        self.network.set_presence(&mut self.agenda, self.now, host, Presence::Listening);
        (0..count).for_each(|shard| self.wake(host, shard, self.now));
        Ok(node)
    }

    /// The process on a host is gone in the middle of whatever it did; its disk is kept. The
    /// machine closes its connections, unless it goes dark with the process. What guards of it
    /// are left believe for as long as their time lasts, and are told then.
    pub(crate) fn kill(&mut self, host: usize, presence: Presence) {
        let state = &mut self.hosts[host];
        let Some(process) = state.process.take() else { return };
        if let Some(mut writer) = process.writer
            && self.dice.chance(500)
        {
            // The write under way may be done before the end is noticed.
            writer.end();
        }
        for shard in process.shards.into_iter().flatten() {
            let tickets = shard.driver.die();
            for ends_at in tickets.iter().filter_map(|ticket| ticket.lock().belief()) {
                let at = state.clock.first_shows(ends_at.ends_at());
                self.agenda.add(at.max(self.now), Happening::Lapsed { host });
            }
            state.orphans.extend(tickets);
        }
        state.paused = false;
        process.node.shared.over();
        self.network.set_presence(&mut self.agenda, self.now, host, presence);
    }

    /// A clean stop, which takes as long as the farewell does.
    pub(crate) fn stop(&mut self, host: usize) {
        let Some(node) = self.node(host) else { return };
        self.resume(host);
        node.shared.stop();
        while self.is_running(host) {
            self.step();
        }
    }

    /// A host's process stands still; its clock goes on, and so does the world.
    pub(crate) fn pause(&mut self, host: usize) {
        self.hosts[host].paused = true;
    }

    /// It goes on, with everything that arrived meanwhile.
    pub(crate) fn resume(&mut self, host: usize) {
        self.hosts[host].paused = false;
        let count = self.hosts[host].process.as_ref().map_or(0, |process| process.shards.len());
        for shard in 0..count {
            if let Some(shard) = self.shard(host, shard) {
                shard.turn_at = At::MAX;
            }
            self.wake(host, shard, self.now);
        }
    }

    /// Whether a shard of a host was posted something that it has not taken yet.
    #[cfg(test)]
    pub(crate) fn has_post(&self, host: usize) -> bool {
        let process = self.hosts[host].process.iter();
        let mut shards = process.flat_map(|process| process.shards.iter().flatten());
        shards.any(|shard| shard.mailbox.0.is_filled())
    }

    fn shard(&mut self, host: usize, shard: usize) -> Option<&mut Shard> {
        self.hosts[host].process.as_mut()?.shards[shard].as_mut()
    }

    /// A shard is to have a turn at `at`, or before.
    fn wake(&mut self, host: usize, shard: usize, at: At) {
        if let Some(state) = self.shard(host, shard)
            && at.max(state.busy_until) < state.turn_at
        {
            let at = at.max(state.busy_until);
            state.turn_at = at;
            self.agenda.add(at, Happening::Turn { host, shard });
        }
    }

    /// Lets shards notice what arrived for them.
    fn spread(&mut self) {
        for (host, shard, end) in self.network.take_ready() {
            if let Some(state) = self.shard(host, shard) {
                state.ready.insert(end);
                self.wake_soon(host, shard);
            }
        }
        for (host, shard) in self.bells.take() {
            self.wake_soon(host, shard);
        }
    }

    fn wake_soon(&mut self, host: usize, shard: usize) {
        let latency = self.dice.span(Duration::ZERO, self.turn_latency);
        self.wake(host, shard, self.now + latency.as_nanos() as u64);
    }

    /// When something happens next.
    pub(crate) fn next_at(&mut self) -> Option<At> {
        self.spread();
        self.agenda.next_at()
    }

    /// The next thing happens. Says on which host, where that is known.
    pub(crate) fn step(&mut self) -> Option<usize> {
        self.spread();
        let (at, happening) = self.agenda.pop()?;
        self.pass_to(at);
        (at, happening).hash(&mut self.hash);
        let host = match happening {
            Happening::Turn { host, shard } => {
                self.turn(host, shard);
                Some(host)
            }
            Happening::Left { host, shard } => {
                self.left(host, shard);
                Some(host)
            }
            Happening::Written { host, run } => {
                self.written(host, run);
                Some(host)
            }
            Happening::Lapsed { host } => {
                self.lapse(host);
                Some(host)
            }
            Happening::Dialled(_)
            | Happening::Answered(_)
            | Happening::Arrives(_)
            | Happening::Room(..)
            | Happening::Reset(_) => {
                self.network.happens(&mut self.agenda, self.now, happening);
                None
            }
        };
        self.spread();
        host
    }

    /// Time passes, and nothing happens meanwhile.
    pub(crate) fn pass_to(&mut self, at: At) {
        if at > self.now {
            self.now = at;
            self.hosts.iter().for_each(|host| host.clock.show(at));
        }
    }

    /// Everything up to then happens.
    pub(crate) fn run_until(&mut self, at: At) {
        while self.next_at().is_some_and(|next_at| next_at <= at) {
            self.step();
        }
        self.pass_to(at);
    }

    fn turn(&mut self, host: usize, shard: usize) {
        let state = &mut self.hosts[host];
        let now = state.clock.read(self.now);
        let Some(process) = state.process.as_mut().filter(|_| !state.paused) else { return };
        let Some(driven) = &mut process.shards[shard] else { return };
        if driven.turn_at != self.now || driven.leaving {
            return;
        }
        driven.turn_at = At::MAX;
        let work = driven.turn(
            now,
            Surroundings {
                network: &mut self.network,
                agenda: &mut self.agenda,
                writer: process.writer.as_mut(),
                at: self.now,
                own: (host, shard),
            },
        );
        driven.busy_until = self.now + self.work_cost.as_nanos() as u64 * work;
        if driven.leaving {
            return self.agenda.add(self.now, Happening::Left { host, shard });
        }
        let next_at = state.clock.first_shows(driven.driver.next_at()).max(self.now);
        let awaited = driven.mailbox.0.fall_asleep();
        self.wake(host, shard, if awaited { next_at } else { self.now });
        self.write(host);
    }

    /// A shard had its last turn. The last one leaves the snapshot behind (R4).
    fn left(&mut self, host: usize, shard: usize) {
        let state = &mut self.hosts[host];
        let Some(process) = &mut state.process else { return };
        let Some(left) = process.shards[shard].take_if(|shard| shard.leaving) else { return };
        process.snapshots.push(left.driver.stop(state.clock.read(self.now)));
        if process.shards.iter().all(Option::is_none) {
            self.stopped(host);
        }
    }

    fn write(&mut self, host: usize) {
        let state = &mut self.hosts[host];
        let writer = state.process.as_mut().and_then(|process| process.writer.as_mut());
        if writer.is_some_and(Writer::begin) {
            let span = self.dice.span(Duration::ZERO, self.write_latency);
            let written = Happening::Written { host, run: state.run };
            self.agenda.add(self.now + span.as_nanos() as u64, written);
        }
    }

    fn written(&mut self, host: usize, run: u64) {
        let state = &mut self.hosts[host];
        let Some(process) = state.process.as_mut().filter(|_| state.run == run) else { return };
        let Some(writer) = &mut process.writer else { return };
        let Some(answers) = writer.end() else {
            let again_at = self.now + writer::RETRY.as_nanos() as u64;
            writer.begin();
            return self.agenda.add(again_at, Happening::Written { host, run });
        };
        for (shard, record) in answers {
            if let Some(shard) = &process.shards[shard] {
                // A shard that left needs no answer.
                let _left = shard.mailbox.0.post(Command::RecordWritten(record));
            }
        }
        self.write(host);
    }

    fn stopped(&mut self, host: usize) {
        let Some(process) = self.hosts[host].process.take() else { return };
        if let Some(writer) = process.writer {
            // A disk that fails leaves no snapshot, and the next start is one after a crash.
            let _failed = writer.into_folder().write_snapshot(&process.snapshots);
        }
        process.node.shared.over();
        self.network.set_presence(&mut self.agenda, self.now, host, Presence::Refusing);
    }

    /// Tells whoever still held a lease of a process that was killed that its time is over.
    fn lapse(&mut self, host: usize) {
        let state = &mut self.hosts[host];
        let now = state.clock.read(self.now);
        let is_over = |ticket: &mut Arc<_>| {
            let ticket: &paxoslease_holder::transport::Ticket = ticket;
            !ticket.lock().belief().is_some_and(|belief| belief.is_held(now))
        };
        for ticket in state.orphans.extract_if(.., is_over) {
            ticket.lose();
        }
    }
}

/// Nobody waits for a world that is gone.
impl Drop for World {
    fn drop(&mut self) {
        for host in &self.hosts {
            host.process.iter().for_each(|process| process.node.shared.over());
            host.orphans.iter().for_each(|ticket| ticket.lose());
        }
    }
}

fn command_sender(mailbox: &Arc<Mailbox<Command>>) -> CommandSender {
    let mailbox = Arc::clone(mailbox);
    Box::new(move |command| mailbox.post(command))
}

/// FNV-1a: plain enough to be the same everywhere.
struct Fnv(u64);

impl Hasher for Fnv {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
