//! A cell under test: a world, the users of its leases, and a judge that sees every event.

mod durable;
mod judge;
mod members;
mod sharing;
mod tasks;

use std::cell::{RefCell, RefMut};
use std::future::{Future, IntoFuture};
use std::rc::Rc;
use std::time::Duration;

pub(crate) use durable::holder_text;
pub(crate) use judge::Judge;
use paxoslease_core::Rules;
pub(crate) use sharing::Workers;
use tasks::Tasks;
pub(crate) use tasks::Timer;

use paxoslease_client::Client;
use paxoslease_holder::{Acquire, LeaseGuard};
use paxoslease_node::{Config, Node, Role};
use paxoslease_sim::{Keep, Rng};

use crate::clock::HostClock;
use crate::network::Presence;
use crate::world::{At, Bells, World};

/// The properties of a cell.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) seed: u64,
    pub(crate) members: u16,
    /// Nodes that may become members while the cell runs.
    pub(crate) spares: u16,
    pub(crate) proposers: u16,
    /// Processes with a client each, on hosts of their own.
    pub(crate) clients: u16,
    pub(crate) shards: u16,
    pub(crate) names: Vec<String>,
    pub(crate) max_lease: Duration,
    /// The drift bound of the cell. Clocks are drawn within it.
    pub(crate) drift_ppm: u32,
    pub(crate) disk: bool,
    /// Whether some users take durable leases.
    pub(crate) durable: bool,
    /// The rules that nodes follow.
    pub(crate) rules: Rules,
    /// The rules that the beliefs of clients follow.
    pub(crate) client_rules: Rules,
    /// How much of the trace is kept.
    pub(crate) keep: Keep,
}

impl Setup {
    /// A cell without faults.
    pub(crate) fn new(seed: u64, members: u16) -> Self {
        Self {
            seed,
            members,
            spares: 0,
            proposers: 0,
            clients: 0,
            shards: 1,
            names: vec!["master".to_owned()],
            max_lease: Duration::from_secs(5),
            drift_ppm: 1000,
            disk: true,
            durable: false,
            rules: Rules::ALL,
            client_rules: Rules::ALL,
            keep: Keep::Nothing,
        }
    }

    /// The configuration of a node. The members come first, then the spares, and then nodes that
    /// only propose.
    pub(crate) fn config(&self, id: u16) -> Config {
        let config = Config::new("world", id).max_lease(self.max_lease).shards(self.shards);
        let mut config = config.ephemeral().allow_plaintext();
        config.clock_drift_ppm = self.drift_ppm;
        for member in 1..=self.members {
            config = config.peer(member, address(member));
        }
        if usize::from(id) > self.acceptors() {
            config = config.role(Role::Proposer);
        } else if id > self.members {
            config = config.peer(id, address(id));
            config.ephemeral = false;
        }
        config
    }

    /// How many nodes are members, or may become members.
    pub(crate) const fn acceptors(&self) -> usize {
        (self.members + self.spares) as usize
    }

    /// How many hosts have a node.
    pub(crate) const fn nodes(&self) -> usize {
        self.acceptors() + self.proposers as usize
    }

    /// How many hosts there are: those with a node come first.
    pub(crate) const fn hosts(&self) -> usize {
        self.nodes() + self.clients as usize
    }
}

pub(crate) fn address(id: u16) -> String {
    format!("node-{id}:7401")
}

/// How the users on a host reach the cell.
#[derive(Clone, Debug)]
pub(crate) enum Handle {
    Node(Node),
    Client(Client),
}

impl Handle {
    pub(crate) fn acquire<'a>(&'a self, name: &'a str, ttl: Duration) -> Acquire<'a> {
        match self {
            Self::Node(node) => node.acquire(name, ttl),
            Self::Client(client) => client.acquire(name, ttl),
        }
    }
}

pub(crate) struct Simulation {
    pub(crate) world: World,
    judge: Rc<RefCell<Judge>>,
    tasks: Tasks,
}

impl Simulation {
    /// A cell whose nodes were just started. Host `n` has node `n + 1`.
    pub(crate) fn new(setup: &Setup) -> Self {
        let mut world = World::new(setup.seed, Bells::new(|| {}));
        let mut rng = Rng::new(setup.seed, 3);
        let ppm = i32::try_from(setup.drift_ppm).expect("below a million");
        let mut draw_clock = || {
            let off = rng.between(0, 2 * u64::from(setup.drift_ppm)) as i32 - ppm;
            HostClock::new(rng.between(0, 1 << 50), off)
        };
        let clocks: Vec<HostClock> = (0..setup.hosts()).map(|_| draw_clock()).collect();
        for (id, clock) in (1..).zip(&clocks[..setup.nodes()]) {
            let host = world.add_node(setup.config(id), clock.clone(), setup.disk);
            world.set_rules(host, setup.rules);
        }
        world.network.tap = Some(Vec::new());
        let started = (0..setup.nodes()).map(|host| world.start(host).expect("a disk that works"));
        let drift = started.last().expect("a cell has a node").drift();
        let mut judge = Judge::new(setup, clocks.clone(), drift);
        (0..setup.nodes()).for_each(|host| judge.see(&mut world, Some(host)));
        let judge = Rc::new(RefCell::new(judge));
        let mut simulation = Self { world, judge, tasks: Tasks::new() };
        let nodes: Vec<usize> = (0..setup.nodes()).collect();
        for clock in &clocks[setup.nodes()..] {
            // Clients begin with different nodes, and learn the others.
            let mut nodes = nodes.clone();
            let first = rng.below(nodes.len() as u64) as usize;
            nodes.rotate_left(first);
            let known = rng.between(1, nodes.len() as u64) as usize;
            // A node that has lost its data folder knows no others.
            nodes.truncate(if setup.spares > 0 { nodes.len() } else { known });
            simulation.world.add_client(nodes, clock.clone(), setup.client_rules);
        }
        simulation
    }

    pub(crate) fn judge(&self) -> RefMut<'_, Judge> {
        self.judge.borrow_mut()
    }

    pub(crate) fn judge_handle(&self) -> Rc<RefCell<Judge>> {
        Rc::clone(&self.judge)
    }

    pub(crate) fn timer(&self) -> Rc<Timer> {
        Rc::clone(&self.tasks.timer)
    }

    pub(crate) fn node(&self, host: usize) -> Node {
        self.world.node(host).expect("it runs")
    }

    /// The handle that users on a host have.
    pub(crate) fn handle(&self, host: usize) -> Handle {
        let client = self.world.client(host).map(Handle::Client);
        client.unwrap_or_else(|| Handle::Node(self.node(host)))
    }

    pub(crate) fn start(&mut self, host: usize) {
        if self.world.is_client(host) {
            return self.world.start_client(host);
        }
        self.world.start(host).expect("a disk that works");
        self.judge.borrow_mut().see(&mut self.world, Some(host));
    }

    /// Ends the process on a host, with everything in it.
    pub(crate) fn kill(&mut self, host: usize, presence: Presence) {
        self.judge.borrow_mut().process_gone(host);
        self.world.kill(host, presence);
        self.judge.borrow_mut().see(&mut self.world, Some(host));
        self.tasks.end_of(host);
    }

    /// Ends it by a power failure, which costs the disk what was not synced.
    pub(crate) fn cut_power(&mut self, host: usize) {
        self.judge.borrow_mut().process_gone(host);
        self.world.cut_power(host);
        self.judge.borrow_mut().see(&mut self.world, Some(host));
        self.tasks.end_of(host);
    }

    /// The data folder of a node is lost with its process. The wall clock is then behind.
    pub(crate) fn lose_disk(&mut self, host: usize, presence: Presence, wall_behind: Duration) {
        self.kill(host, presence);
        self.world.lose_disk(host, wall_behind.as_millis() as u64);
        self.judge.borrow_mut().lost_disk(host);
    }

    pub(crate) fn pause(&mut self, host: usize) {
        self.world.pause(host);
        self.judge.borrow_mut().set_paused(host, true);
    }

    /// Resumes the process. The judge is told after the process has had a turn.
    pub(crate) fn resume(&mut self, host: usize) {
        self.world.resume(host);
        self.run_for(Duration::ZERO);
        self.judge.borrow_mut().set_paused(host, false);
    }

    /// Ends the users on a host; the node continues.
    pub(crate) fn end_tasks_of(&mut self, host: usize) {
        self.judge.borrow_mut().process_gone(host);
        self.tasks.end_of(host);
    }

    /// Acquires a name at a host within a bound, and tells the judge.
    pub(crate) fn take_within(
        &mut self,
        host: usize,
        name: usize,
        ttl: Duration,
        bound: Duration,
    ) -> Option<(u32, Rc<LeaseGuard>)> {
        let (handle, client, timer) = (self.handle(host), self.next_task(), self.timer());
        let (judge, text) = (self.judge_handle(), self.judge().names()[name].clone());
        self.run(host, async move {
            let granted = timer.within(bound, handle.acquire(&text, ttl).into_future()).await?;
            let guard = judge.borrow_mut().granted(client, host, name, granted.ok()?);
            Some((client, guard))
        })
    }

    /// Releases the lease of a user. Returns whether the release was confirmed.
    pub(crate) fn give_back(&mut self, host: usize, client: u32, guard: Rc<LeaseGuard>) -> bool {
        let judge = self.judge_handle();
        let guard = judge.borrow_mut().return_guard(client, guard);
        self.run(host, async move { Judge::release(&judge, guard).await })
    }

    pub(crate) const fn next_task(&self) -> u32 {
        self.tasks.next_id()
    }

    pub(crate) fn tasks_left(&self) -> usize {
        self.tasks.len()
    }

    /// Runs a future in the process of a host.
    pub(crate) fn spawn(&mut self, host: usize, future: impl Future<Output = ()> + 'static) {
        self.tasks.spawn(host, future);
    }

    fn next_at(&mut self) -> Option<At> {
        let tasks = self.tasks.next_at();
        self.world.next_at().into_iter().chain(tasks).min()
    }

    fn poll_tasks(&mut self) {
        let world = &self.world;
        self.tasks.run(world.now(), |host| world.is_paused(host));
    }

    pub(crate) fn step(&mut self) {
        self.poll_tasks();
        let alarm_at = self.tasks.next_at().unwrap_or(At::MAX);
        let host = match self.world.next_at() {
            Some(at) if at <= alarm_at => self.world.step(),
            _ => {
                self.world.pass_to(alarm_at);
                None
            }
        };
        self.judge.borrow_mut().see(&mut self.world, host);
        self.poll_tasks();
    }

    pub(crate) fn run_for(&mut self, span: Duration) {
        let until = self.world.now() + span.as_nanos() as u64;
        self.poll_tasks();
        while self.next_at().is_some_and(|at| at <= until) {
            self.step();
        }
        self.world.pass_to(until);
    }

    /// Runs while `condition` holds. Returns whether that ended within the bound.
    pub(crate) fn run_while(
        &mut self,
        bound: Duration,
        mut condition: impl FnMut(&mut Self) -> bool,
    ) -> bool {
        let until = self.world.now() + bound.as_nanos() as u64;
        self.poll_tasks();
        while condition(self) {
            if self.next_at().is_none_or(|at| at > until) {
                return false;
            }
            self.step();
        }
        true
    }

    /// Runs a future in the process of a host, for at most a minute of true time.
    pub(crate) fn run<T: 'static>(
        &mut self,
        host: usize,
        future: impl Future<Output = T> + 'static,
    ) -> T {
        let output = Rc::new(RefCell::new(None));
        let slot = Rc::clone(&output);
        self.spawn(host, async move {
            let value = future.await;
            *slot.borrow_mut() = Some(value);
        });
        let done = self.run_while(Duration::from_secs(60), |_| output.borrow().is_none());
        assert!(done, "it took longer than a minute");
        output.take().expect("it is done")
    }

    /// Panics if a check failed.
    #[cfg(test)]
    pub(crate) fn assert_sound(&self) {
        let judge = self.judge.borrow();
        let texts: Vec<String> = judge.violations().iter().map(ToString::to_string).collect();
        assert!(texts.is_empty(), "{}", texts.join("\n"));
    }
}
