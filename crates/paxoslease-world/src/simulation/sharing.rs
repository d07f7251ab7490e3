//! Clients that take turns with one name, and counts of the hand-overs among them.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use super::Simulation;
use crate::world::At;

/// The behaviour of each client. All clients wait without a limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Workers {
    pub(crate) per_host: usize,
    pub(crate) ttl: Duration,
    /// How long a lease is held.
    pub(crate) held: Duration,
    /// Whether a client waits for the confirmation of its release, or drops the guard.
    pub(crate) confirms: bool,
    /// How long it pauses before it asks again.
    pub(crate) pause: Duration,
}

#[cfg(test)]
impl Workers {
    /// Gives the name back and asks again in the same turn.
    pub(crate) const GREEDY: Self = Self {
        per_host: 1,
        ttl: Duration::from_secs(2),
        held: Duration::from_millis(5),
        confirms: false,
        pause: Duration::ZERO,
    };
}

/// How many hand-overs a client may wait through, for each contender.
const TURNS_MAX: u64 = 8;

/// The hand-overs of a name. One hand-over is one grant.
#[derive(Clone, Default, Debug)]
pub(crate) struct Sharing {
    /// By client.
    pub(crate) grants: Vec<u64>,
    hand_overs: u64,
    /// For each client that waits: the hand-overs before its wait, and when the wait began.
    waits_since: Vec<Option<(u64, At)>>,
    /// How many workers got an error instead of a lease.
    failures: u64,
    /// The most hand-overs that any client has waited through.
    waited_max: u64,
    /// The longest wait among those of more than twice the fair number of hand-overs.
    passed_over: Duration,
}

impl Sharing {
    /// Resets the counts. Clients that wait now begin their wait here.
    fn begin(&mut self, now: At) {
        self.grants.fill(0);
        (self.hand_overs, self.waited_max, self.passed_over) = (0, 0, Duration::ZERO);
        self.waits_since.iter_mut().flatten().for_each(|since| *since = (0, now));
    }

    fn asks(&mut self, worker: usize, now: At) {
        self.waits_since[worker] = Some((self.hand_overs, now));
    }

    fn granted(&mut self, worker: usize, now: At) {
        self.wait_ends(worker, now);
        self.hand_overs += 1;
        self.grants[worker] += 1;
    }

    fn wait_ends(&mut self, worker: usize, now: At) {
        let Some((hand_overs, at)) = self.waits_since[worker].take() else { return };
        let waited = self.hand_overs - hand_overs;
        self.waited_max = self.waited_max.max(waited);
        if waited > 2 * TURNS_MAX * self.grants.len() as u64 {
            self.passed_over = self.passed_over.max(Duration::from_nanos(now - at));
        }
    }

    #[cfg(test)]
    pub(crate) const fn hand_overs(&self) -> u64 {
        self.hand_overs
    }

    /// The longest time that a client was passed over, if that took longer than this.
    pub(crate) fn starved(&self, longest: Duration) -> Option<String> {
        let passed_over = self.passed_over;
        let text = || format!("passed over for {passed_over:?}, {}", self.text());
        (self.hand_overs == 0 || self.failures > 0 || passed_over > longest).then(text)
    }

    /// The counts, if they are unfair: a client got less than a quarter of a fair share, or waited
    /// through more hand-overs than are fair.
    #[cfg(test)]
    pub(crate) fn unfair(&self) -> Option<String> {
        let contenders = self.grants.len() as u64;
        let least = self.grants.iter().min().copied().unwrap_or(0);
        let is_fair = self.hand_overs > 0
            && self.failures == 0
            && least >= self.hand_overs / (4 * contenders)
            && self.waited_max <= TURNS_MAX * contenders;
        (!is_fair).then(|| self.text())
    }

    fn text(&self) -> String {
        let (grants, failures, waited) = (&self.grants, self.failures, self.waited_max);
        format!("grants {grants:?}, {failures} failed, hand-overs waited {waited}")
    }
}

impl Simulation {
    /// Lets workers on these hosts share the first name for a while.
    pub(crate) fn share(&mut self, hosts: &[usize], workers: Workers, span: Duration) -> Sharing {
        self.share_after(Duration::ZERO, hosts, workers, span)
    }

    /// The same, but counts only after `finding`, in which the contenders find their order.
    pub(crate) fn share_after(
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
        sharing.borrow_mut().begin(self.world.now());
        self.run_for(span);
        let mut shared = sharing.borrow().clone();
        (0..shared.grants.len()).for_each(|worker| shared.wait_ends(worker, self.world.now()));
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
        let (handle, client) = (self.handle(host), self.next_task());
        let (judge, timer) = (self.judge_handle(), self.timer());
        let (sharing, name) = (Rc::clone(sharing), self.judge().names()[0].clone());
        self.spawn(host, async move {
            loop {
                sharing.borrow_mut().asks(worker, timer.now());
                let Ok(guard) = handle.acquire(&name, how.ttl).await else {
                    sharing.borrow_mut().failures += 1;
                    return;
                };
                let guard = judge.borrow_mut().granted(client, host, 0, guard);
                sharing.borrow_mut().granted(worker, timer.now());
                timer.sleep(how.held).await;
                let guard = judge.borrow_mut().return_guard(client, guard);
                if how.confirms {
                    // A client that changes its node may not hear of the confirmation.
                    let _unconfirmed = guard.release().await;
                } else {
                    drop(guard);
                }
                timer.sleep(how.pause).await;
            }
        });
    }
}
