//! Users with standing leases: they outlast their users, and changes of the members.

use std::time::Duration;

use paxoslease_core::{Lasts, Name, Tenure};
use paxoslease_node::front::{Answer, Request};
use paxoslease_node::{MembersChange, Remote};

use super::Swarm;
use super::user::User;
use crate::simulation::address;

/// The longest time that a lease stands: longer than any wait of a change (C6).
pub(super) fn lasts_max(max_lease: Duration) -> Duration {
    max_lease * 2 + Duration::from_secs(4)
}

impl Swarm {
    /// Sometimes a member is stopped for a while, and misses what is granted. When it is back,
    /// another one is cut off. Leases that only this one and a third member store cannot be
    /// renewed then. The operator replaces the member that is cut off.
    pub(super) fn replace_absent(&mut self) {
        let members = self.simulation.judge().members.hosts();
        if !self.setup.standing || members.len() < 3 || !self.changes.chance(150) {
            return;
        }
        let first = self.changes.below(members.len() as u64) as usize;
        let place = |number: usize| members[(first + number) % members.len()];
        let (stopped, absent, asked) = (place(0), place(1), place(2));
        self.start_all();
        self.simulation.world.network.blocked.clear();
        self.stop(stopped);
        let span = self.changes.millis(500, 4000);
        self.simulation.run_for(span);
        let links = (0..self.setup.hosts()).flat_map(|host| [(host, absent), (absent, host)]);
        self.simulation.world.network.blocked.extend(links);
        self.start(stopped);
        if let Some(new) = self.usable().first().copied() {
            let remove = vec![absent as u16 + 1];
            self.ask_for(asked, MembersChange::Edit { remove, add: vec![(new, address(new))] });
        }
        self.simulation.run_for(lasts_max(self.setup.max_lease));
        self.simulation.world.network.blocked.clear();
    }
}

impl User {
    /// Takes a standing lease, which may outlast this user. Returns whether there was one.
    pub(super) async fn keep(&mut self, remote: &Remote, name: usize, wait: Duration) -> bool {
        let text = self.judge.borrow().names()[name].clone();
        let label = Name::new(&text).expect("a name");
        let lasts = self.draw_lasts();
        let (ttl, permits, is_retried) = (Duration::ZERO, None, false);
        let lease = label.into();
        let acquire =
            Request::Acquire { lease, ttl, wait, permits, is_retried, lasts: Some(lasts) };
        let Answer::Granted { tenure, started_at, .. } = remote.ask(acquire).await else {
            return false;
        };
        let (lease, end) = ((name, tenure), (started_at, lasts));
        let holder = self.judge.borrow_mut().granted_standing(self.host, lease, end);
        if !self.is_last_round.get() {
            let pause = self.rng.up_to(self.max_lease * 2);
            self.timer.sleep(pause).await;
        }
        if !self.is_last_round.get() && self.rng.chance(500) {
            self.set_end(remote, holder, (name, tenure)).await;
        }
        // P10: an inspection shows a lease that is believed.
        let inspect = Request::Inspect { lease: label.into() };
        if let Answer::Inspected(seen) = remote.ask(inspect).await
            && seen.is_none_or(|seen| seen.tenure != tenure)
        {
            self.judge.borrow_mut().standing_over(holder);
        }
        if self.is_last_round.get() || self.rng.chance(400) {
            self.judge.borrow_mut().gives_up_standing(holder);
            let release = Request::Release { lease: label.into(), fence: tenure.fence() };
            // Whether it is confirmed depends on the network.
            let _confirmed = remote.ask(release).await;
        }
        true
    }

    /// S6: sets another end, and believes in it once that is confirmed.
    async fn set_end(&mut self, remote: &Remote, holder: u32, (name, tenure): (usize, Tenure)) {
        let text = self.judge.borrow().names()[name].clone();
        let (lasts, fence) = (self.draw_lasts(), tenure.fence());
        if !self.judge.borrow_mut().sets_standing(holder, lasts) {
            return;
        }
        let lease = Name::new(&text).expect("a name").into();
        match remote.ask(Request::SetEnd { lease, fence, lasts }).await {
            Answer::Renewed { started_at, .. } => {
                self.judge.borrow_mut().renewed_standing(holder, (started_at, lasts));
            }
            Answer::NotHeld => self.judge.borrow_mut().standing_over(holder),
            // The old end or the new one may be in force.
            _ => {}
        }
    }

    fn draw_lasts(&mut self) -> Lasts {
        let lasts = self.rng.span((Duration::from_millis(100), lasts_max(self.max_lease)));
        Lasts::from_millis(lasts.as_millis() as u64).expect("not zero")
    }
}
