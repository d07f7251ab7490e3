//! One seed draws a whole cell, its users, and everything that goes wrong in it.
//!
//! First faults come and go while users take and lose leases, and the judge sees every event. Then
//! all faults end, and the run demands progress: every user gets its lease within a bound, a
//! majority serves while one member is away, contenders take turns, and no node keeps state for
//! requests that are over.

mod changes;
mod disks;
mod durable;
mod service;
mod user;

use std::cell::Cell;
use std::io::ErrorKind;
use std::rc::Rc;
use std::time::Duration;

use paxoslease_core::Rules;
use paxoslease_sim::{Check, Options, Report, Rng};

use crate::network::{Conditions, Presence};
use crate::simulation::{Setup, Simulation};
use user::User;

const SEMAPHORE: &str = "pool";

/// How long faults come and go.
const FAULT_PHASE: Duration = Duration::from_secs(60);

struct Swarm {
    simulation: Simulation,
    setup: Setup,
    rng: Rng,
    /// Draws changes of the members.
    changes: Rng,
    /// Draws lost data folders, in worlds that have them.
    disks: Option<Rng>,
    users_per_host: u64,
    is_last_round: Rc<Cell<bool>>,
}

/// Runs the cell that a seed draws. The options decide what the seed does not.
///
/// Of the options, this run follows the number of nodes, proposers, clients and names, and what is
/// kept of the trace. Clients are processes of their own here, with several users each.
#[must_use]
pub fn run(seed: u64, options: &Options) -> Report {
    run_with(seed, options, Rules::ALL, Rules::ALL)
}

/// The same for nodes, and for beliefs of clients, that follow only these rules of the protocol.
#[must_use]
pub fn run_with(seed: u64, options: &Options, rules: Rules, client_rules: Rules) -> Report {
    let mut rng = Rng::new(seed, 0);
    let names = rng.pick(&[1, 2, 3, 3, 20]);
    let longest = rng.pick(&[4000, 4000, 20_000]);
    let max_lease = rng.millis(500, longest);
    let (proposers, clients) = (rng.between(0, 2) as u16, rng.between(0, 4) as u16);
    let (shards, drift_ppm) = (rng.between(1, 4) as u16, rng.pick(&[100, 1000, 20_000]));
    let (disk, members) = (!rng.chance(200), rng.pick(&[1, 2, 3, 3, 3, 3, 4, 5]));
    let mut all: Vec<String> =
        (0..options.names.unwrap_or(names)).map(|name| format!("jobs/{name}")).collect();
    // Some cells have a semaphore. The judge sees its permits as the leases that they are.
    let permits = Rng::new(seed, 99).pick(&[0, 0, 2, 3]);
    all.extend((1..=permits).map(|number| format!("{SEMAPHORE}#{number}")));
    // In some cells with disks the members change.
    let mut changes = Rng::new(seed, 98);
    let spares = if disk && changes.chance(480) { changes.between(1, 3) as u16 } else { 0 };
    // In most of these, data folders are lost, and with them ids.
    let mut disks = Rng::new(seed, 97);
    let disks = (spares > 0 && disks.chance(750)).then_some(disks);
    let setup = Setup {
        spares: spares + u16::from(disks.is_some()),
        proposers: options.proposers.unwrap_or(proposers),
        clients: options.clients.map_or(clients, |count| count as u16),
        shards,
        names: all,
        max_lease,
        drift_ppm,
        disk,
        durable: disk && Rng::new(seed, 96).chance(400),
        rules,
        client_rules,
        keep: options.keep,
        ..Setup::new(seed, options.nodes.unwrap_or(members))
    };
    let mut simulation = Simulation::new(&setup);
    simulation.world.turn_latency = rng.up_to(Duration::from_micros(300));
    simulation.world.write_latency = rng.millis(0, 30);
    let users_per_host = rng.between(1, 3);
    let is_last_round = Rc::default();
    let mut swarm = Swarm { simulation, setup, rng, changes, disks, users_per_host, is_last_round };
    swarm.run();
    swarm.into_report()
}

impl Swarm {
    fn run(&mut self) {
        self.simulation.world.network.conditions = self.draw_conditions();
        (0..self.setup.hosts()).for_each(|host| self.spawn_users(host));
        self.inject_faults();
        if self.is_sound() {
            self.heal();
            self.demand_progress();
            self.demand_service();
            self.demand_turns();
            self.demand_nothing_left();
        }
    }

    fn into_report(self) -> Report {
        let Self { simulation, setup, users_per_host, .. } = self;
        let mut judge = simulation.judge();
        let mut counts = judge.counts;
        (counts.events, counts.changes) = (simulation.world.events(), judge.members.changes());
        counts.lost_members_removed = judge.members.lost_and_removed;
        Report {
            seed: setup.seed,
            nodes: setup.members,
            proposers: setup.proposers,
            clients: (setup.hosts() as u64 * users_per_host) as u32,
            names: setup.names.len(),
            counts,

            lasted: Duration::from_nanos(simulation.world.now()),
            violations: judge.violations().to_vec(),
            trace_hash: simulation.world.trace_hash(),
            trace: judge.take_trace(),
        }
    }

    fn is_sound(&self) -> bool {
        self.simulation.judge().violations().is_empty()
    }

    fn draw_conditions(&mut self) -> Conditions {
        let delay_max = self.rng.pick(&[100, 1000, 1000, 20_000, 150_000]);
        Conditions {
            delay: (Duration::from_micros(10), Duration::from_micros(delay_max)),
            spike: (self.rng.pick(&[0, 5, 50]), self.rng.millis(1, 400)),
            chop: self.rng.pick(&[0, 300, 900]),
            dial_failure: self.rng.pick(&[0, 100, 500]),
            window: self.rng.pick(&[(1024, 2048), (1 << 16, 1 << 20)]),
        }
    }

    fn spawn_users(&mut self, host: usize) {
        for _ in 0..self.users_per_host {
            User::spawn(&mut self.simulation, host, &self.setup, &self.is_last_round);
        }
    }

    fn start(&mut self, host: usize) {
        if !self.simulation.world.is_running(host) {
            // The users of the process that stopped.
            self.simulation.end_tasks_of(host);
            // A node whose snapshot cannot be removed does not start.
            self.set_disk_fault(host, None);
            self.simulation.start(host);
            self.spawn_users(host);
        }
    }

    fn inject_faults(&mut self) {
        let until = self.simulation.world.now() + FAULT_PHASE.as_nanos() as u64;
        while self.simulation.world.now() < until && self.is_sound() {
            let pause = self.rng.millis(1, 2500);
            self.simulation.run_for(pause);
            self.change_members();
            self.lose_disk();
            self.replace_absent();
            self.inject_fault();
        }
    }

    /// Something goes wrong, or is repaired.
    fn inject_fault(&mut self) {
        let hosts = self.setup.hosts();
        let host = self.rng.below(hosts as u64) as usize;
        let other = self.rng.below(hosts as u64) as usize;
        match self.rng.between(0, 18) {
            0 => drop(self.simulation.world.network.blocked.insert((host, other))),
            1 => {
                let blocked = &mut self.simulation.world.network.blocked;
                blocked.extend((0..hosts).flat_map(|peer| [(host, peer), (peer, host)]));
            }
            2 | 3 => self.simulation.world.network.blocked.clear(),
            4 => self.simulation.kill(host, Presence::Refusing),
            5 => self.simulation.kill(host, Presence::Silent),
            6 => self.stop(host),
            7 | 8 => self.start_all(),
            9 => {
                let span = self.rng.up_to(self.setup.max_lease * 2);
                self.simulation.pause(host);
                self.simulation.run_for(span);
                self.simulation.resume(host);
            }
            10 | 11 => {
                let pipes = self.simulation.world.network.pipes();
                let told = self.rng.pick(&[[true, true], [true, false], [false, true]]);
                if !pipes.is_empty() {
                    let pipe = self.rng.pick(&pipes);
                    self.simulation.world.network.cut(pipe, told);
                }
            }
            12 => {
                // No space is left, or the disk is broken.
                let fault = self.rng.pick(&[ErrorKind::StorageFull, ErrorKind::Other]);
                self.set_disk_fault(host, Some(fault));
            }
            13 => self.repair_disks(),
            14 => self.simulation.world.set_disk_stalled(host, true),
            15 | 16 => self.simulation.cut_power(host),
            17 => self.simulation.world.network.conditions = self.draw_conditions(),
            _ => {
                // A rolling restart of the whole cell.
                for host in 0..self.setup.nodes() {
                    self.stop(host);
                    let pause = self.rng.millis(0, 1000);
                    self.simulation.run_for(pause);
                    self.start(host);
                }
            }
        }
    }

    /// Stops a process cleanly, which takes as long as its releases do.
    fn stop(&mut self, host: usize) {
        if !self.simulation.world.is_running(host) {
            return;
        }
        if self.simulation.world.is_client(host) {
            return self.simulation.kill(host, Presence::Refusing);
        }
        let node = self.simulation.node(host);
        self.simulation.spawn(host, async move { node.shutdown().await });
        let is_running = |simulation: &mut Simulation| simulation.world.is_running(host);
        if !self.simulation.run_while(Duration::from_secs(2), is_running) {
            let text = || format!("node {} did not stop", host + 1);
            self.simulation.judge().broken(Check::Progress, text);
        }
    }

    fn set_disk_fault(&mut self, host: usize, fault: Option<ErrorKind>) {
        if let Some(files) = self.simulation.world.files(host) {
            files.set_fault(fault);
        }
    }

    fn repair_disks(&mut self) {
        for host in 0..self.setup.nodes() {
            self.set_disk_fault(host, None);
            self.simulation.world.set_disk_stalled(host, false);
        }
    }

    fn start_all(&mut self) {
        (0..self.setup.hosts()).for_each(|host| self.start(host));
    }

    fn heal(&mut self) {
        self.simulation.world.network.blocked.clear();
        self.simulation.world.network.conditions =
            Conditions { delay: (Duration::ZERO, Duration::from_millis(1)), ..Conditions::PERFECT };
        self.repair_disks();
        self.start_all();
    }

    fn demand_progress(&mut self) {
        self.is_last_round.set(true);
        // Nodes connect, quarantines end, leases of dead users run out, and then each user has its
        // turn.
        let bound = self.setup.max_lease * 8 + Duration::from_secs(10);
        self.end_unserved_users();
        let until = self.simulation.world.now() + bound.as_nanos() as u64;
        let mut served = false;
        while !served && self.simulation.world.now() < until {
            self.break_orphans();
            let left = Duration::from_nanos(until - self.simulation.world.now());
            served = self.run_users(left.min(Duration::from_secs(1)));
        }
        // The last change may have listed a data folder that is lost.
        self.end_unserved_users();
        if !served && self.simulation.tasks_left() > 0 {
            let left = self.simulation.tasks_left();
            let nodes = self.nodes();
            let text = || {
                format!("{left} users still wait, {bound:?} after all faults have ended: {nodes}")
            };
            return self.simulation.judge().broken(Check::Progress, text);
        }
        self.simulation.run_for(self.setup.max_lease * 2 + Duration::from_secs(3));
    }

    /// Returns whether all users have ended within this time.
    fn run_users(&mut self, span: Duration) -> bool {
        let until = self.simulation.world.now() + span.as_nanos() as u64;
        let ended = self.simulation.run_while(span, |s| s.tasks_left() > 0);
        if !ended {
            self.simulation.world.pass_to(until);
        }
        ended
    }

    /// How each node sees itself.
    fn nodes(&self) -> String {
        let shown = |host| {
            let status = self.simulation.node(host).status_shown().expect("it runs");
            let up = status.peers.iter().filter(|peer| peer.up).map(|peer| peer.node);
            format!(
                "node {} is {:?} in epoch {} with {:?}, {}",
                host + 1,
                status.membership,
                status.epoch,
                up.collect::<Vec<_>>(),
                if status.ready { "ready" } else { "not ready" }
            )
        };
        (0..self.setup.nodes()).map(shown).collect::<Vec<_>>().join("; ")
    }

    fn demand_nothing_left(&mut self) {
        if !self.is_sound() {
            return;
        }
        for host in 0..self.setup.nodes() {
            let node = self.simulation.node(host);
            let status = self.simulation.run(host, async move { node.status().await });
            let status = status.expect("it runs");
            let kept = status.waiters + status.guards + status.rounds_in_flight;
            let is_served = self.is_served(host);
            // A node that serves no client does not answer requests of clients whose hosts are
            // gone, so it does not learn that they are.
            if is_served && kept > 0 || status.ready != is_served {
                let text = || {
                    format!("node {} keeps state for requests that are over: {status:?}", host + 1)
                };
                self.simulation.judge().broken(Check::NothingLeaks, text);
            }
        }
    }
}
