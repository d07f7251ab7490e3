//! Users of leases: some wait for long and some give up, some hold for long, some release and some
//! only drop. Each lives in the process of a node or of a client, and uses the public API only.

use std::cell::{Cell, RefCell};
use std::future::IntoFuture;
use std::rc::Rc;
use std::time::Duration;

use paxoslease_holder::AcquireError;
use paxoslease_sim::trace::TraceEvent;
use paxoslease_sim::{Check, Rng};

use super::SEMAPHORE;
use crate::simulation::{Handle, Judge, Setup, Simulation, Timer};

pub(super) struct User {
    id: u32,
    pub(super) host: usize,
    handle: Handle,
    pub(super) judge: Rc<RefCell<Judge>>,
    pub(super) timer: Rc<Timer>,
    pub(super) rng: Rng,
    pub(super) max_lease: Duration,
    /// Whether it takes durable leases.
    is_durable: bool,
    /// All faults have ended: the user takes one last lease, and ends.
    pub(super) is_last_round: Rc<Cell<bool>>,
}

impl User {
    /// Starts a user in the process of a host.
    pub(super) fn spawn(
        simulation: &mut Simulation,
        host: usize,
        setup: &Setup,
        is_last_round: &Rc<Cell<bool>>,
    ) {
        let id = simulation.next_task();
        let user = Self {
            id,
            host,
            handle: simulation.handle(host),
            judge: simulation.judge_handle(),
            timer: simulation.timer(),
            rng: Rng::new(setup.seed, 100 + u64::from(id)),
            max_lease: setup.max_lease,
            is_durable: setup.durable,
            is_last_round: Rc::clone(is_last_round),
        };
        simulation.spawn(host, user.live());
    }

    async fn live(mut self) {
        let mut is_last = false;
        while !is_last {
            let pause = self.rng.millis(0, 300);
            self.timer.sleep(pause).await;
            is_last = self.is_last_round.get();
            let granted = self.ask(is_last).await;
            is_last &= granted;
        }
    }

    /// Returns whether there was a lease. In the last round the user asks until there is.
    async fn ask(&mut self, is_last: bool) -> bool {
        let names = self.judge.borrow().names().to_vec();
        let name = self.rng.between(0, names.len() as u64 - 1) as usize;
        let is_permit = |name: &&String| name.starts_with(SEMAPHORE);
        let permits = names.iter().filter(is_permit).count() as u64;
        let is_for_permit = is_permit(&&names[name]);
        let text = if is_for_permit { SEMAPHORE } else { &names[name] };
        let ttl = self.rng.span((Duration::from_millis(50), self.max_lease));
        let wait = match self.rng.between(0, 3) {
            _ if is_last => Duration::MAX,
            0 => Duration::ZERO,
            1 => self.rng.millis(1, 3000),
            _ => Duration::MAX,
        };
        let asked_at = self.judge.borrow().now();
        if matches!(self.handle, Handle::Node(_)) {
            let (client, node) = (self.id, self.host as u16 + 1);
            let asked = || TraceEvent::Asked { client, node, text: format!("acquire {text}") };
            self.judge.borrow_mut().record(asked);
        }
        if self.is_durable
            && !is_last
            && !is_for_permit
            && self.rng.chance(250)
            && let Handle::Node(node) = &self.handle
        {
            let remote = node.remote();
            return self.keep(&remote, name, wait).await;
        }
        let acquire = self.handle.acquire(text, ttl).wait(wait);
        let acquire = if is_for_permit { acquire.permits(permits) } else { acquire };
        // Some users give up and drop the future.
        let answer = if !is_last && self.rng.chance(300) {
            let patience = self.rng.millis(0, 2000);
            self.timer.within(patience, acquire.into_future()).await
        } else {
            Some(acquire.await)
        };
        // A client looks the holder up after it was denied, and may find an older lease.
        if matches!(self.handle, Handle::Node(_))
            && let Some(Err(AcquireError::Held { holder: Some(by), .. })) = &answer
        {
            self.judge.borrow_mut().denied(self.host, asked_at, by.name.clone(), by.fence);
        }
        let Some(Ok(guard)) = answer else { return false };
        let Some(name) = names.iter().position(|name| name == guard.name()) else {
            let (id, host) = (self.id, self.host);
            let text = || {
                format!(
                    "client {id} at host {host} was granted {} instead of one of {permits} permits",
                    guard.name()
                )
            };
            self.judge.borrow_mut().broken(Check::OneHolder, text);
            return false;
        };
        let guard = self.judge.borrow_mut().granted(self.id, self.host, name, guard);
        let hold = match self.rng.between(0, 9) {
            _ if self.is_last_round.get() => Duration::ZERO,
            0..=5 => self.rng.millis(0, 50),
            6..=8 => self.rng.millis(0, 1500),
            _ => self.max_lease * 3,
        };
        let lost = self.timer.within(hold, guard.lost()).await.is_some();
        if lost {
            self.judge.borrow_mut().told_lost(self.id);
        }
        let guard = self.judge.borrow_mut().return_guard(self.id, guard);
        if self.rng.chance(800) {
            // Whether it is confirmed depends on the network.
            let _confirmed = Judge::release(&self.judge, guard).await;
        }
        true
    }
}
