//! A cell under observation: a world, the clients in it, and a judge who looks at every event.

mod judge;
mod sharing;
mod tasks;

use std::cell::{RefCell, RefMut};
use std::future::{Future, IntoFuture};
use std::rc::Rc;
use std::time::Duration;

pub(crate) use judge::Judge;
use paxoslease_core::Rules;
pub(crate) use sharing::{Sharing, Workers};
use tasks::Tasks;
pub(crate) use tasks::Timer;

use super::{At, Bells, Dice, HostClock, Presence, World};
use crate::config::{Config, Role};
use crate::node::Node;
use paxoslease_holder::LeaseGuard;

/// What a cell is like.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) seed: u64,
    pub(crate) members: u16,
    pub(crate) proposers: u16,
    pub(crate) shards: u16,
    pub(crate) names: Vec<String>,
    pub(crate) max_lease: Duration,
    /// How far clocks are allowed to be off, and are.
    pub(crate) drift_ppm: u32,
    pub(crate) disk: bool,
    pub(crate) rules: Rules,
}

impl Setup {
    /// Members have perfect luck until told otherwise.
    pub(crate) fn new(seed: u64, members: u16) -> Self {
        Self {
            seed,
            members,
            proposers: 0,
            shards: 1,
            names: vec!["master".to_owned()],
            max_lease: Duration::from_secs(5),
            drift_ppm: 1000,
            disk: true,
            rules: Rules::ALL,
        }
    }

    /// The configuration of a node; those after the members only propose.
    pub(crate) fn config(&self, id: u16) -> Config {
        let config = Config::new("world", id).max_lease(self.max_lease).shards(self.shards);
        let mut config = config.ephemeral().allow_plaintext();
        config.clock_drift_ppm = self.drift_ppm;
        for member in 1..=self.members {
            config = config.peer(member, address(member));
        }
        if id > self.members { config.role(Role::Proposer) } else { config }
    }

    pub(crate) const fn hosts(&self) -> usize {
        (self.members + self.proposers) as usize
    }
}

fn address(id: u16) -> String {
    format!("node-{id}:7401")
}

pub(crate) struct Simulation {
    pub(crate) world: World,
    judge: Rc<RefCell<Judge>>,
    tasks: Tasks,
}

impl Simulation {
    /// A cell whose nodes have just been started. Host `n` has node `n + 1`.
    pub(crate) fn new(setup: &Setup) -> Self {
        let mut world = World::new(setup.seed, Bells::new(|| {}));
        let mut dice = Dice::new(setup.seed, 3);
        let ppm = i32::try_from(setup.drift_ppm).expect("below a million");
        let mut clocks = Vec::new();
        for id in 1..=setup.members + setup.proposers {
            let off = dice.between(0, 2 * u64::from(setup.drift_ppm)) as i32 - ppm;
            let clock = HostClock::new(dice.between(0, 1 << 50), off);
            clocks.push(clock.clone());
            let host = world.add(setup.config(id), clock, setup.disk);
            world.host_mut(host).rules = setup.rules;
        }
        world.network.tap = Some(Vec::new());
        let drift = setup.config(1).settings().expect("valid").cell.drift();
        let judge = Judge::new(setup.names.clone(), setup.members, clocks, drift);
        let judge = Rc::new(RefCell::new(judge));
        let mut simulation = Self { world, judge, tasks: Tasks::new() };
        (0..setup.hosts()).for_each(|host| simulation.start(host));
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

    pub(crate) fn start(&mut self, host: usize) {
        self.world.start(host).expect("a disk that works");
        self.judge.borrow_mut().see(&mut self.world, Some(host));
    }

    /// Everything in the process is gone.
    pub(crate) fn kill(&mut self, host: usize, presence: Presence) {
        self.judge.borrow_mut().process_gone(host);
        self.world.kill(host, presence);
        self.judge.borrow_mut().see(&mut self.world, Some(host));
        self.tasks.end_of(host);
    }

    pub(crate) fn pause(&mut self, host: usize) {
        self.world.pause(host);
        self.judge.borrow_mut().set_paused(host, true);
    }

    /// The judge is told once the process had a chance to look around.
    pub(crate) fn resume(&mut self, host: usize) {
        self.world.resume(host);
        self.run_for(Duration::ZERO);
        self.judge.borrow_mut().set_paused(host, false);
    }

    /// Nothing of a host's clients is left; the node goes on.
    pub(crate) fn end_tasks_of(&mut self, host: usize) {
        self.judge.borrow_mut().process_gone(host);
        self.tasks.end_of(host);
    }

    /// Takes a name at a host within a bound. The judge hears of it, and of the client that has it.
    pub(crate) fn take_within(
        &mut self,
        host: usize,
        name: usize,
        ttl: Duration,
        bound: Duration,
    ) -> Option<(u32, Rc<LeaseGuard>)> {
        let (node, client, timer) = (self.node(host), self.next_task(), self.timer());
        let (judge, text) = (self.judge_handle(), self.judge().names()[name].clone());
        self.run(host, async move {
            let granted = timer.within(bound, node.acquire(&text, ttl).into_future()).await?;
            let guard = Rc::new(granted.ok()?);
            judge.borrow_mut().granted(client, host, name, Rc::clone(&guard));
            Some((client, guard))
        })
    }

    /// Gives back what a client has. Says whether that was confirmed.
    pub(crate) fn give_back(&mut self, host: usize, client: u32, guard: Rc<LeaseGuard>) -> bool {
        let judge = self.judge_handle();
        judge.borrow_mut().gives_up(client);
        let guard = Rc::into_inner(guard).expect("nobody else has it");
        self.run(host, async move { Judge::release(&judge, guard).await })
    }

    pub(crate) const fn next_task(&self) -> u32 {
        self.tasks.next_id()
    }

    pub(crate) fn tasks_left(&self) -> usize {
        self.tasks.len()
    }

    /// Runs something in the process of a host.
    pub(crate) fn spawn(&mut self, host: usize, future: impl Future<Output = ()> + 'static) {
        self.tasks.spawn(host, future);
    }

    fn next_at(&mut self) -> Option<At> {
        let tasks = self.tasks.next_at();
        self.world.next_at().into_iter().chain(tasks).min()
    }

    fn poll_tasks(&mut self) {
        let world = &self.world;
        self.tasks.run(world.now(), |host| world.host(host).paused);
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

    /// Runs until it is no longer so. Says whether that came within the bound.
    pub(crate) fn run_while(
        &mut self,
        bound: Duration,
        mut so: impl FnMut(&mut Self) -> bool,
    ) -> bool {
        let until = self.world.now() + bound.as_nanos() as u64;
        self.poll_tasks();
        while so(self) {
            if self.next_at().is_none_or(|at| at > until) {
                return false;
            }
            self.step();
        }
        true
    }

    /// What becomes of a future in the process of a host, within a minute of true time.
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

    /// Nothing may be broken.
    pub(crate) fn assert_sound(&self) {
        let verdict = self.judge.borrow().verdict();
        assert!(verdict.is_empty(), "{}", verdict.join("\n"));
    }
}
