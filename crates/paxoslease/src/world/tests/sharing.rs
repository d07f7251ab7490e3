//! Clients that take the same name in turn, and how the name went round among them.

use std::cell::RefCell;

use super::*;

/// How each client goes about it. Every one of them waits for as long as it takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Workers {
    pub(super) per_host: usize,
    /// How long a lease is held.
    pub(super) held: Duration,
    /// Waits until the release is confirmed before it asks again, or drops the guard.
    pub(super) confirms: bool,
    /// How long it pauses before it asks again.
    pub(super) pause: Duration,
}

impl Workers {
    /// Gives the name back and asks again in the same turn.
    pub(super) const GREEDY: Self = Self {
        per_host: 1,
        held: Duration::from_millis(5),
        confirms: false,
        pause: Duration::ZERO,
    };
}

/// How a name went round. One hand-over is one grant.
#[derive(Clone, Default, Debug)]
pub(super) struct Sharing {
    /// By client.
    pub(super) grants: Vec<u64>,
    hand_overs: u64,
    /// How many hand-overs there had been when a client that waits began to.
    waits_since: Vec<Option<u64>>,
    waited_max: u64,
}

impl Sharing {
    /// Forgets what was, except who waits.
    fn begin(&mut self) {
        self.grants.fill(0);
        (self.hand_overs, self.waited_max) = (0, 0);
        self.waits_since.iter_mut().flatten().for_each(|since| *since = 0);
    }

    fn asks(&mut self, worker: usize) {
        self.waits_since[worker] = Some(self.hand_overs);
    }

    fn granted(&mut self, worker: usize) {
        self.waited_max = self.hand_overs_waited_max();
        self.waits_since[worker] = None;
        self.hand_overs += 1;
        self.grants[worker] += 1;
    }

    pub(super) const fn hand_overs(&self) -> u64 {
        self.hand_overs
    }

    /// Through how many hand-overs to others any client has waited, those that still wait included.
    pub(super) fn hand_overs_waited_max(&self) -> u64 {
        let waiting = self.waits_since.iter().flatten().map(|since| self.hand_overs - since);
        waiting.max().unwrap_or(0).max(self.waited_max)
    }

    /// Every client has a share of at least a quarter of what is fair, and none waits through more
    /// than four rounds of all contenders.
    #[track_caller]
    pub(super) fn assert_fair(&self, setting: impl std::fmt::Debug) {
        let contenders = self.grants.len() as u64;
        let least = self.grants.iter().min().copied().unwrap_or(0);
        assert!(self.hand_overs > 0, "{setting:?}: nobody got anything");
        let fair = least >= self.hand_overs / (4 * contenders);
        let waited = self.hand_overs_waited_max();
        let text = format!("grants {:?}, hand-overs waited {waited}", self.grants);
        assert!(fair && waited <= 4 * contenders, "{setting:?}: {text}");
    }
}

impl Simulation {
    /// Lets workers on these hosts share the name for a while.
    pub(super) fn share(&mut self, hosts: &[usize], workers: Workers, span: Duration) -> Sharing {
        self.share_after(Duration::ZERO, hosts, workers, span)
    }

    /// The same, but what happens while the contenders find their order is not counted.
    pub(super) fn share_after(
        &mut self,
        finding: Duration,
        hosts: &[usize],
        workers: Workers,
        span: Duration,
    ) -> Sharing {
        let sharing = Rc::new(RefCell::new(Sharing::default()));
        for worker in 0..hosts.len() * workers.per_host {
            let host = hosts[worker % hosts.len()];
            sharing.borrow_mut().grants.push(0);
            sharing.borrow_mut().waits_since.push(None);
            self.spawn_worker(host, worker, workers, &sharing);
        }
        self.run_for(finding);
        sharing.borrow_mut().begin();
        self.run_for(span);
        let shared = sharing.borrow().clone();
        hosts.iter().for_each(|host| self.end_tasks_of(*host));
        shared
    }

    fn spawn_worker(
        &mut self,
        host: usize,
        worker: usize,
        how: Workers,
        sharing: &Rc<RefCell<Sharing>>,
    ) {
        let (node, client) = (self.node(host), self.next_task());
        let (judge, timer) = (self.judge_handle(), self.timer());
        let sharing = Rc::clone(sharing);
        self.spawn(host, async move {
            loop {
                sharing.borrow_mut().asks(worker);
                let guard = Rc::new(node.acquire(MASTER, TTL).await.expect("it waits"));
                judge.borrow_mut().granted(client, host, 0, Rc::clone(&guard));
                sharing.borrow_mut().granted(worker);
                timer.sleep(how.held).await;
                judge.borrow_mut().gives_up(client);
                let guard = Rc::into_inner(guard).expect("the judge let go of it");
                if how.confirms {
                    guard.release().await.expect("nothing is wrong");
                } else {
                    drop(guard);
                }
                timer.sleep(how.pause).await;
            }
        });
    }
}
