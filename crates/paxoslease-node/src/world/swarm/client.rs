//! Users of leases as they come: patient or not, tidy or not, holding for long or letting go at
//! once. Each lives in a node's process and uses the public API only.

use std::cell::{Cell, RefCell};
use std::future::IntoFuture;
use std::rc::Rc;
use std::time::Duration;

use crate::node::Node;
use crate::world::Dice;
use crate::world::simulation::{Judge, Simulation, Timer};
use paxoslease_holder::AcquireError;

pub(super) struct Client {
    id: u32,
    host: usize,
    node: Node,
    judge: Rc<RefCell<Judge>>,
    timer: Rc<Timer>,
    dice: Dice,
    max_lease: Duration,
    /// Everything has healed: one last lease, and home.
    last_round: Rc<Cell<bool>>,
}

impl Client {
    /// Moves in with the node of a host.
    pub(super) fn spawn(
        simulation: &mut Simulation,
        host: usize,
        seed: u64,
        max_lease: Duration,
        last_round: &Rc<Cell<bool>>,
    ) {
        let id = simulation.next_task();
        let client = Self {
            id,
            host,
            node: simulation.node(host),
            judge: simulation.judge_handle(),
            timer: simulation.timer(),
            dice: Dice::new(seed, 100 + u64::from(id)),
            max_lease,
            last_round: Rc::clone(last_round),
        };
        simulation.spawn(host, client.live());
    }

    async fn live(mut self) {
        let mut is_last = false;
        while !is_last {
            let pause = self.dice.millis(0, 300);
            self.timer.sleep(pause).await;
            is_last = self.last_round.get();
            let granted = self.ask(is_last).await;
            is_last &= granted;
        }
    }

    /// Says whether there was a lease. The last time it asks until there is.
    async fn ask(&mut self, is_last: bool) -> bool {
        let names = self.judge.borrow().names().len() as u64;
        let name = self.dice.between(0, names - 1) as usize;
        let text = self.judge.borrow().names()[name].clone();
        let ttl = self.dice.span(Duration::from_millis(50), self.max_lease);
        let wait = match self.dice.between(0, 3) {
            _ if is_last => Duration::MAX,
            0 => Duration::ZERO,
            1 => self.dice.millis(1, 3000),
            _ => Duration::MAX,
        };
        let asked_at = self.judge.borrow().now();
        let wish = self.node.acquire(&text, ttl).wait(wait);
        // Some lose patience and drop the future.
        let answer = if !is_last && self.dice.chance(300) {
            let patience = self.dice.millis(0, 2000);
            self.timer.within(patience, wish.into_future()).await
        } else {
            Some(wish.await)
        };
        if let Some(Err(AcquireError::Held { name, holder: Some(by) })) = &answer {
            self.judge.borrow_mut().denied(self.host, asked_at, name.clone(), by.fence);
        }
        let Some(Ok(guard)) = answer else { return false };
        let guard = Rc::new(guard);
        self.judge.borrow_mut().granted(self.id, self.host, name, Rc::clone(&guard));
        let hold = match self.dice.between(0, 9) {
            _ if self.last_round.get() => Duration::ZERO,
            0..=5 => self.dice.millis(0, 50),
            6..=8 => self.dice.millis(0, 1500),
            _ => self.max_lease * 3,
        };
        let lost = self.timer.within(hold, guard.lost()).await.is_some();
        if lost {
            self.judge.borrow_mut().told_lost(self.id);
        }
        self.judge.borrow_mut().gives_up(self.id);
        let guard = Rc::into_inner(guard).expect("the judge let go of it");
        if self.dice.chance(800) {
            // Whether it is confirmed depends on the weather.
            let _confirmed = Judge::release(&self.judge, guard).await;
        }
        true
    }
}
