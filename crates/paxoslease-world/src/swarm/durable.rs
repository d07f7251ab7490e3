//! Users with durable leases: they outlast their users, all crashes, and changes of the members.

use std::cell::RefCell;
use std::time::Duration;

use paxoslease_core::{Holder, Instant, Lasts, Name, Tenure};
use paxoslease_node::front::{Answer, Request};
use paxoslease_node::{MembersChange, Remote};

use super::Swarm;
use super::user::User;
use crate::simulation::{Judge, address, holder_text};

/// The longest time of a lease with an end: longer than any wait of a change (C6).
pub(super) fn lasts_max(max_lease: Duration) -> Duration {
    max_lease * 2 + Duration::from_secs(4)
}

impl Swarm {
    /// Sometimes a member is stopped for a while, and misses what is granted. When it is back,
    /// another one is cut off, so that only this one and a third member may have stored a lease.
    /// The operator replaces the member that is cut off.
    pub(super) fn replace_absent(&mut self) {
        let members = self.simulation.judge().members.hosts();
        if !self.setup.durable || members.len() < 3 || !self.changes.chance(150) {
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

    /// An operator breaks every durable lease whose user is gone, through some node (P9).
    pub(super) fn break_orphans(&mut self) {
        let hosts = (0..self.setup.nodes()).filter(|host| self.is_served(*host));
        let hosts: Vec<usize> = hosts.collect();
        if !self.setup.durable || hosts.is_empty() {
            return;
        }
        let host = self.rng.pick(&hosts);
        let (remote, judge) = (self.simulation.node(host).remote(), self.simulation.judge_handle());
        let names = self.setup.names.clone();
        self.simulation.spawn(host, async move {
            for (place, name) in names.iter().enumerate() {
                break_orphan(&remote, &judge, place, name).await;
            }
        });
    }
}

/// Breaks the durable lease of a name if its user is gone.
async fn break_orphan(remote: &Remote, judge: &RefCell<Judge>, place: usize, name: &str) {
    let lease = Name::new(name).expect("a name");
    let asked_at = judge.borrow().now();
    let Answer::Inspected(seen) = remote.ask(Request::Inspect { lease: lease.into() }).await else {
        return;
    };
    judge.borrow_mut().inspected(place, asked_at, seen.as_deref());
    let Some(seen) = seen.filter(|seen| seen.durable.is_some()) else { return };
    let holder = String::from_utf8_lossy(seen.label.holder().as_bytes()).into_owned();
    if !judge.borrow_mut().breaks(&holder) {
        return;
    }
    let fence = seen.tenure.fence();
    let release = Request::Release { lease: lease.into(), fence, is_durable: true };
    let Answer::Released { confirmed: true, held } = remote.ask(release).await else { return };
    if held == Some(false) && has_other_number(remote, lease, &holder, seen.tenure).await {
        return;
    }
    judge.borrow_mut().released_durable(holder);
}

/// Whether a holder has its lease by a number that it was not told. A register knows a tenure by
/// the number of its grant and by its fence now (K8). Checks may have raised the fence twice since
/// the holder heard of it (K7). Then members take the number that the holder knows for that of
/// another tenure, and their answer says nothing about the lease.
async fn has_other_number(remote: &Remote, name: Name<'_>, holder: &str, known: Tenure) -> bool {
    match remote.ask(Request::Inspect { lease: name.into() }).await {
        Answer::Inspected(Some(seen)) => {
            seen.label.holder().as_bytes() == holder.as_bytes() && seen.tenure != known
        }
        _ => false,
    }
}

/// The lease of a user.
#[derive(Clone, Copy)]
struct Kept<'a> {
    name: Name<'a>,
    place: usize,
    /// The number of its holder.
    client: u32,
    tenure: Tenure,
}

impl User {
    /// Takes a durable lease, which may outlast this user. Returns whether there was one.
    pub(super) async fn keep(&mut self, remote: &Remote, place: usize, wait: Duration) -> bool {
        let text = self.judge.borrow().names()[place].clone();
        if self.rng.chance(300) {
            break_orphan(remote, &self.judge, place, &text).await;
        }
        let name = Name::new(&text).expect("a name");
        let client = self.judge.borrow_mut().asks_durable(self.host);
        let lasts = self.draw_lasts();
        let Some((tenure, started_at)) =
            self.acquire_durable(remote, name, client, (lasts, wait)).await
        else {
            self.judge.borrow_mut().leaves_durable(client);
            return false;
        };
        let mut lease = Kept { name, place, client, tenure };
        let end = (started_at, lasts);
        self.judge.borrow_mut().granted_durable((client, self.host), (place, tenure), end);
        let operations = self.rng.between(0, 3);
        for _ in 0..operations {
            if !self.is_last_round.get() {
                let pause = self.rng.up_to(self.max_lease);
                self.timer.sleep(pause).await;
            }
            self.inspect(remote, lease).await;
            if self.is_last_round.get() || !self.set_end(remote, &mut lease).await {
                break;
            }
        }
        if self.is_last_round.get() || self.rng.chance(500) {
            self.release(remote, lease).await;
        }
        self.judge.borrow_mut().leaves_durable(client);
        true
    }

    /// Asks for a durable lease, or for an ordinary one that it makes durable.
    async fn acquire_durable(
        &mut self,
        remote: &Remote,
        name: Name<'_>,
        client: u32,
        (lasts, wait): (Lasts, Duration),
    ) -> Option<(Tenure, Instant)> {
        let text = holder_text(client);
        let lease = || (name, Holder::from_bytes(text.as_bytes()).expect("short")).into();
        let is_ordinary_first = self.rng.chance(250);
        let (ttl, permits, is_retried) = (self.max_lease, None, false);
        let asked = if is_ordinary_first { None } else { Some(lasts) };
        let acquire =
            Request::Acquire { lease: lease(), ttl, wait, permits, is_retried, lasts: asked };
        let asked_at = self.judge.borrow().now();
        let (tenure, started_at) = match remote.ask(acquire).await {
            Answer::Granted { tenure, started_at, .. } => (tenure, started_at),
            Answer::Held(seen) => {
                let holder = String::from_utf8_lossy(seen.label.holder().as_bytes()).into_owned();
                self.judge.borrow_mut().is_not_freed(asked_at, Some(&holder));
                return None;
            }
            _ => return None,
        };
        let place = self.judge.borrow().names().iter().position(|own| own == name.as_str());
        self.judge.borrow_mut().granted_fence(place.expect("a name of the world"), tenure);
        if !is_ordinary_first {
            return Some((tenure, started_at));
        }
        let keep = Request::Keep { lease: lease(), fence: tenure.fence(), lasts };
        match remote.ask(keep).await {
            Answer::Kept { fence, started_at, .. } => Some((fence, started_at)),
            _ => {
                let (fence, is_durable) = (tenure.fence(), true);
                self.judge.borrow_mut().leaves_durable(client);
                // Whether it is confirmed depends on the network.
                let release = Request::Release { lease: lease(), fence, is_durable };
                let _confirmed = remote.ask(release).await;
                None
            }
        }
    }

    /// P10: an inspection shows a lease that is believed.
    async fn inspect(&self, remote: &Remote, lease: Kept<'_>) {
        let asked_at = self.judge.borrow().now();
        if let Answer::Inspected(seen) =
            remote.ask(Request::Inspect { lease: lease.name.into() }).await
        {
            self.judge.borrow_mut().inspected(lease.place, asked_at, seen.as_deref());
        }
    }

    /// K10: sets another end, and believes in it once that is confirmed. Returns whether the user
    /// may still have its lease.
    async fn set_end(&mut self, remote: &Remote, lease: &mut Kept<'_>) -> bool {
        let (client, lasts) = (lease.client, self.draw_lasts());
        let asked_at = self.judge.borrow().now();
        let Some(fence) = self.judge.borrow_mut().sets_end(client, lasts) else { return false };
        let text = holder_text(client);
        let label = (lease.name, Holder::from_bytes(text.as_bytes()).expect("short")).into();
        let answer = remote.ask(Request::Keep { lease: label, fence, lasts }).await;
        let is_lost = answer == Answer::NotHeld
            && !has_other_number(remote, lease.name, &text, lease.tenure).await;
        let mut judge = self.judge.borrow_mut();
        judge.note(self.host, format!("{text} asked at {asked_at} for {lasts:?}: {answer:?}"));
        match answer {
            Answer::Kept { fence, started_at, .. } => {
                lease.tenure = fence;
                judge.kept(client, fence, (started_at, lasts));
            }
            Answer::NotHeld => {
                let until = judge.gives_up_durable(client);
                if is_lost {
                    judge.durable_is_over(client, until);
                }
                return false;
            }
            _ => judge.end_is_unknown(client, asked_at, lasts),
        }
        true
    }

    async fn release(&self, remote: &Remote, lease: Kept<'_>) {
        let until = self.judge.borrow_mut().gives_up_durable(lease.client);
        let (fence, is_durable) = (lease.tenure.fence(), true);
        let release = Request::Release { lease: lease.name.into(), fence, is_durable };
        let answer = remote.ask(release).await;
        let text = holder_text(lease.client);
        let denies = matches!(answer, Answer::Released { held: Some(false), .. });
        if denies && has_other_number(remote, lease.name, &text, lease.tenure).await {
            return;
        }
        let mut judge = self.judge.borrow_mut();
        judge.note(self.host, format!("{text} was released: {answer:?}"));
        let Answer::Released { held, confirmed } = answer else { return };
        if held == Some(false) {
            judge.durable_is_over(lease.client, until);
        }
        if confirmed {
            judge.released_durable(text);
        }
    }

    fn draw_lasts(&mut self) -> Lasts {
        if self.rng.chance(300) {
            return Lasts::FOREVER;
        }
        let lasts = self.rng.span((Duration::from_millis(100), lasts_max(self.max_lease)));
        Lasts::from_millis(lasts.as_millis() as u64).expect("not zero")
    }
}
