//! One seed draws a whole cell and everything that goes wrong in it.
//!
//! First faults come and go while clients take and lose leases, and the judge looks at every
//! event. Then everything heals, and progress is demanded: whoever waits gets its lease within a
//! bound, a majority serves while one member is away, contenders take turns, and nothing is kept
//! for requests that are over.

mod client;
mod service;

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use paxoslease_core::Rules;
use paxoslease_sim::Check;

use super::network::Weather;
use super::simulation::{Setup, Simulation};
use super::{Dice, Presence};
use client::Client;

/// What became of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Report {
    pub(crate) seed: u64,
    pub(crate) grants: u64,
    pub(crate) losses: u64,
    pub(crate) broken: Vec<String>,
    pub(crate) trace_hash: u64,
}

/// How long faults come and go.
const STORM: Duration = Duration::from_secs(60);

struct Swarm {
    simulation: Simulation,
    setup: Setup,
    dice: Dice,
    /// Clients per host.
    crowd: u64,
    last_round: Rc<Cell<bool>>,
}

/// Runs the cell a seed draws.
pub(crate) fn run(seed: u64, rules: Rules) -> Report {
    let mut dice = Dice::new(seed, 0);
    let names = *dice.pick(&[1, 2, 3, 3, 20]);
    let longest = *dice.pick(&[4000, 4000, 20_000]);
    let max_lease = dice.millis(500, longest);
    let setup = Setup {
        proposers: dice.between(0, 2) as u16,
        shards: dice.between(1, 4) as u16,
        names: (0..names).map(|number| format!("jobs/{number}")).collect(),
        max_lease,
        drift_ppm: *dice.pick(&[100, 1000, 20_000]),
        disk: !dice.chance(200),
        rules,
        ..Setup::new(seed, *dice.pick(&[1, 2, 3, 3, 3, 3, 4, 5]))
    };
    let mut simulation = Simulation::new(&setup);
    simulation.world.turn_latency = dice.span(Duration::ZERO, Duration::from_micros(300));
    simulation.world.write_latency = dice.millis(0, 30);
    let crowd = dice.between(1, 3);
    let last_round = Rc::default();
    let mut swarm = Swarm { simulation, setup, dice, crowd, last_round };
    swarm.simulation.world.network.weather = swarm.weather();
    (0..swarm.setup.hosts()).for_each(|host| swarm.crowd_in(host));
    swarm.storm();
    if swarm.verdict().is_empty() {
        swarm.heal();
        swarm.demand_progress();
        swarm.demand_service();
        swarm.demand_turns();
        swarm.demand_nothing_left();
    }
    let trace_hash = swarm.simulation.world.trace_hash();
    let judge = swarm.simulation.judge();
    Report { seed, grants: judge.grants, losses: judge.losses, broken: judge.verdict(), trace_hash }
}

impl Swarm {
    fn verdict(&self) -> Vec<String> {
        self.simulation.judge().verdict()
    }

    fn weather(&mut self) -> Weather {
        let delay_max = *self.dice.pick(&[100, 1000, 1000, 20_000, 150_000]);
        Weather {
            delay: (Duration::from_micros(10), Duration::from_micros(delay_max)),
            spike: (*self.dice.pick(&[0, 5, 50]), self.dice.millis(1, 400)),
            chop: *self.dice.pick(&[0, 300, 900]),
            dial_failure: *self.dice.pick(&[0, 100, 500]),
            window: *self.dice.pick(&[(1024, 2048), (1 << 16, 1 << 20)]),
        }
    }

    fn crowd_in(&mut self, host: usize) {
        for _ in 0..self.crowd {
            let (seed, max_lease) = (self.setup.seed, self.setup.max_lease);
            Client::spawn(&mut self.simulation, host, seed, max_lease, &self.last_round);
        }
    }

    fn start(&mut self, host: usize) {
        if !self.simulation.world.is_running(host) {
            // What is left of the process that stopped.
            self.simulation.end_tasks_of(host);
            // A node whose snapshot cannot be removed does not start.
            self.set_disk_full(host, false);
            self.simulation.start(host);
            self.crowd_in(host);
        }
    }

    fn storm(&mut self) {
        let until = self.simulation.world.now() + STORM.as_nanos() as u64;
        while self.simulation.world.now() < until && self.verdict().is_empty() {
            let calm = self.dice.millis(1, 2500);
            self.simulation.run_for(calm);
            self.trouble();
        }
    }

    /// Something goes wrong, or is repaired.
    fn trouble(&mut self) {
        let hosts = self.setup.hosts();
        let host = self.dice.between(0, hosts as u64 - 1) as usize;
        let other = self.dice.between(0, hosts as u64 - 1) as usize;
        match self.dice.between(0, 15) {
            0 => drop(self.simulation.world.network.blocked.insert((host, other))),
            1 => {
                let blocked = &mut self.simulation.world.network.blocked;
                blocked.extend((0..hosts).flat_map(|peer| [(host, peer), (peer, host)]));
            }
            2 | 3 => self.simulation.world.network.blocked.clear(),
            4 => self.simulation.kill(host, Presence::Refusing),
            5 => self.simulation.kill(host, Presence::Dark),
            6 => self.stop(host),
            7 | 8 => self.start_all(),
            9 => {
                self.simulation.pause(host);
                let span = self.dice.span(Duration::ZERO, self.setup.max_lease * 2);
                self.simulation.run_for(span);
                self.simulation.resume(host);
            }
            10 | 11 => {
                let pipes = self.simulation.world.network.pipes();
                let told = *self.dice.pick(&[[true, true], [true, false], [false, true]]);
                if !pipes.is_empty() {
                    let pipe = *self.dice.pick(&pipes);
                    self.simulation.world.network.cut(pipe, told);
                }
            }
            12 => self.set_disk_full(host, true),
            13 => (0..hosts).for_each(|host| self.set_disk_full(host, false)),
            14 => self.simulation.world.network.weather = self.weather(),
            _ => {
                // A rolling restart of the whole cell.
                for host in 0..hosts {
                    self.stop(host);
                    let pause = self.dice.millis(0, 1000);
                    self.simulation.run_for(pause);
                    self.start(host);
                }
            }
        }
    }

    /// A clean stop takes as long as the farewell.
    fn stop(&mut self, host: usize) {
        if self.simulation.world.is_running(host) {
            let node = self.simulation.node(host);
            self.simulation.spawn(host, async move { node.shutdown().await });
            let world_stopped = |s: &mut Simulation| s.world.is_running(host);
            let stopped = self.simulation.run_while(Duration::from_secs(2), world_stopped);
            if !stopped {
                let seed = self.setup.seed;
                let text = || format!("seed {seed}: node {} did not stop", host + 1);
                self.simulation.judge().broken(Check::Progress, text);
            }
        }
    }

    fn set_disk_full(&mut self, host: usize, full: bool) {
        if let Some(disk) = &self.simulation.world.host(host).disk {
            disk.set_full(full);
        }
    }

    fn start_all(&mut self) {
        (0..self.setup.hosts()).for_each(|host| self.start(host));
    }

    fn heal(&mut self) {
        self.simulation.world.network.blocked.clear();
        self.simulation.world.network.weather =
            Weather { delay: (Duration::ZERO, Duration::from_millis(1)), ..Weather::CALM };
        (0..self.setup.hosts()).for_each(|host| self.set_disk_full(host, false));
        self.start_all();
    }

    fn demand_progress(&mut self) {
        self.last_round.set(true);
        // Peers find each other, quarantines end, leases of the dead run out, and then each
        // client has its turn.
        let bound = self.setup.max_lease * 8 + Duration::from_secs(10);
        let served = self.simulation.run_while(bound, |s| s.tasks_left() > 0);
        if !served {
            let left = self.simulation.tasks_left();
            let text = || format!("{left} clients wait still, {bound:?} after all has healed");
            return self.simulation.judge().broken(Check::Progress, text);
        }
        self.simulation.run_for(self.setup.max_lease * 2 + Duration::from_secs(3));
    }

    fn demand_nothing_left(&mut self) {
        if !self.verdict().is_empty() {
            return;
        }
        for host in 0..self.setup.hosts() {
            let node = self.simulation.node(host);
            let status = self.simulation.run(host, async move { node.status().await });
            let status = status.expect("it runs");
            let kept = status.waiters + status.guards + status.rounds_in_flight;
            if kept > 0 || !status.ready {
                let text = || format!("node {} keeps something for nobody: {status:?}", host + 1);
                self.simulation.judge().broken(Check::NothingLeaks, text);
            }
        }
    }
}
