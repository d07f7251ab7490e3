//! Whole cells under simulation: a swarm of seeds, and each fault by itself.

mod durable;
mod lists;
mod overload;
mod reconnect;
mod remote;
mod scenes;
mod semaphores;
mod status;
mod swarm;
mod views;

use std::rc::Rc;
use std::time::Duration;

use crate::network::{Conditions, Presence};
use crate::simulation::{Setup, Simulation, Workers};
use paxoslease_holder::{AcquireError, AskError, LeaseGuard, Status};

const MASTER: &str = "master";
const TTL: Duration = Duration::from_secs(2);
const SECOND: Duration = Duration::from_secs(1);

/// A cell whose nodes are connected, on a network that takes a little time.
fn cell(setup: &Setup) -> Simulation {
    let delay = (Duration::from_micros(100), Duration::from_micros(500));
    cell_in(setup, Conditions { delay, chop: 300, ..Conditions::PERFECT })
}

/// A cell whose nodes are connected, in these conditions.
fn cell_in(setup: &Setup, conditions: Conditions) -> Simulation {
    let mut simulation = Simulation::new(setup);
    let settled = SECOND + conditions.delay.1 * 10;
    simulation.world.network.conditions = conditions;
    simulation.run_for(settled);
    simulation
}

impl Simulation {
    /// Acquires at a host. The judge is told of the grant and keeps the guard too.
    fn take(&mut self, host: usize, wait: Duration) -> Result<Rc<LeaseGuard>, AcquireError> {
        let (handle, client) = (self.handle(host), self.next_task());
        let judge = self.judge_handle();
        self.run(host, async move {
            let guard = handle.acquire(MASTER, TTL).wait(wait).await?;
            Ok(judge.borrow_mut().granted(client, host, 0, guard))
        })
    }

    /// Acquires at a host, and spawns a task that waits for the loss. Returns the client's number.
    fn hold(&mut self, host: usize) -> (u32, Rc<LeaseGuard>) {
        let client = self.next_task();
        let guard = self.take(host, Duration::MAX).expect("granted");
        let (watched, judge) = (Rc::clone(&guard), self.judge_handle());
        self.spawn(host, async move {
            watched.lost().await;
            judge.borrow_mut().told_lost(client);
        });
        (client, guard)
    }

    fn status(&mut self, host: usize) -> Status {
        let node = self.node(host);
        self.run(host, async move { node.status().await }).expect("it runs")
    }

    fn block(&mut self, from: usize, to: usize) {
        self.world.network.blocked.insert((from, to));
    }

    fn isolate(&mut self, host: usize) {
        for other in 0..self.world.len() {
            self.block(host, other);
            self.block(other, host);
        }
    }

    fn heal(&mut self) {
        self.world.network.blocked.clear();
        self.world.network.swallowed.clear();
    }

    /// Stops a node cleanly, with all tasks in its process.
    fn stop(&mut self, host: usize) {
        let node = self.node(host);
        self.run(host, async move { node.shutdown().await });
        assert!(!self.world.is_running(host));
        self.end_tasks_of(host);
    }

    /// Acquires without the judge, which must not see another grant meanwhile.
    fn lease(&mut self, host: usize, ttl: Duration) -> LeaseGuard {
        let node = self.node(host);
        self.run(host, async move { node.acquire(MASTER, ttl).await }).expect("granted")
    }
}
