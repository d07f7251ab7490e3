//! Holders of durable leases: what they ask for, what they believe (protocol section 10, K9 and
//! K10), and what must hold for them after every step.

use paxoslease_core::{Belief, DurableMessage, Event, Instant, Lasts, Message, Request, Tenure};

use super::{Harm, State, World};
use crate::node::{DURABLE_RELEASE_TOKEN, Held, Input, KEEP_TOKEN, RENEWAL_TOKEN, at, lasts};
use crate::search::Checks;

/// What a client knows about the end of its lease, and what it was told about its releases.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub(super) struct Holder {
    /// The highest fence that was confirmed to it.
    fence: u64,
    /// The end that the operation in flight sets.
    asked: Option<Instant>,
    /// The earliest end of its operations that were not answered. It limits every later belief.
    cap: Option<Instant>,
    /// Until when the disks of a majority back its belief.
    backed_until: Instant,
    /// The end that its last operation confirmed, as the time that was left then.
    lasts: Option<Lasts>,
    /// How many releases it began, and how many of them said *held* and *not held*.
    releases: u8,
    held: u8,
    not_held: u8,
    /// A release was confirmed.
    is_over: bool,
}

impl Holder {
    const fn confirm(&mut self, fence: u64) {
        if fence > self.fence {
            self.fence = fence;
        }
    }

    /// The operation in flight is over. Unless it was answered, its end may still come into force.
    fn answered(&mut self, was_done: bool) {
        let Some(ends_at) = self.asked.take() else { return };
        if !was_done {
            self.cap = Some(self.cap.map_or(ends_at, |cap| cap.min(ends_at)));
        }
    }
}

impl World {
    /// What clients and nodes may ask for, beside ordinary leases.
    pub(super) fn durable_choices(&self, state: &State, push: &mut impl FnMut(usize, Input)) {
        let bounds = &self.bounds;
        let proposers = 0..bounds.proposer_count();
        let all: Vec<usize> = proposers.map(|other| bounds.proposer_node(other)).collect();
        for node in &all {
            if state.checks < bounds.checks {
                push(*node, Input::Check { name: 0 });
            }
        }
        for client in 0..state.acquired {
            let spec = bounds.clients[usize::from(client)];
            let Some(belief) = state.beliefs[usize::from(client)] else { continue };
            let (tenure, holder) = (belief.tenure(), state.holders[usize::from(client)]);
            let own = [bounds.proposer_node(spec.proposer)];
            let via = if bounds.any_proposer { &all[..] } else { &own };
            for node in via {
                // A careless client asks after its lease has ended. It waits for the answer to an
                // operation before it begins the next (K10).
                let may_keep = spec.renews && !belief.is_released() && holder.asked.is_none();
                if may_keep && state.keeps < bounds.keeps {
                    for ticks in &bounds.keep_ticks {
                        push(*node, Input::Keep { client, tenure, ticks: *ticks });
                    }
                }
                if spec.releases && state.durable_releases < bounds.durable_releases {
                    push(*node, Input::ReleaseDurable { client, tenure });
                }
            }
        }
    }

    /// K10: what a client does before it sends its request.
    pub(super) fn ask_durably(&self, state: &mut State, input: Input) {
        let now = at(state.tick);
        match input {
            Input::Check { .. } => state.checks += 1,
            Input::Keep { client, ticks, .. } => {
                state.keeps += 1;
                let place = usize::from(client);
                let ends_at = lasts(ticks).ends_at(now);
                let holder = &mut state.holders[place];
                (holder.asked, holder.lasts) = (Some(ends_at), None);
                if let Some(belief) = &mut state.beliefs[place] {
                    let until = belief.ends_at().min(ends_at);
                    *belief = Belief::granted(belief.tenure(), until).with_rules(self.bounds.rules);
                }
            }
            Input::ReleaseDurable { client, .. } | Input::Release { client, .. } => {
                let place = usize::from(client);
                state.holders[place].releases += 1;
                if let Some(belief) = &mut state.beliefs[place] {
                    belief.release();
                }
                if matches!(input, Input::ReleaseDurable { .. }) {
                    state.durable_releases += 1;
                }
            }
            _ => {}
        }
    }

    /// Updates what clients know after an event of a node.
    pub(super) fn hold(&self, state: &mut State, event: &Event) -> Result<(), Harm> {
        match *event {
            Event::Granted { token, ttl, started_at, .. } => {
                let place = token.0 as usize;
                let client = self.bounds.clients[place];
                if client.lasts > 0 {
                    let holder = &mut state.holders[place];
                    holder.backed_until = started_at.after(ttl.as_duration());
                    holder.lasts = Some(lasts(client.lasts));
                }
            }
            Event::Kept { token, fence, lasts, started_at } => {
                let place = kept_by(token.0);
                let now = at(state.tick);
                let holder = &mut state.holders[place];
                holder.answered(true);
                holder.lasts = Some(lasts);
                let ends_at = lasts.ends_at(started_at);
                let ends_at = holder.cap.map_or(ends_at, |cap| cap.min(ends_at));
                holder.backed_until = holder.backed_until.max(ends_at);
                let Some(belief) = &mut state.beliefs[place] else { return Ok(()) };
                belief.renewed(belief.tenure(), ends_at);
                if belief.is_held(now) {
                    self.fence(state, place, fence)?;
                }
            }
            Event::NotHeld { token, tenure } if token.0 >= KEEP_TOKEN => {
                let place = (token.0 - KEEP_TOKEN) as usize;
                state.holders[place].answered(false);
                if self.is_backed(state, place) && self.checks != Checks::TwoHolders {
                    return Err(Harm::LeaseLost(format!("{tenure} is over, says a node")));
                }
            }
            Event::NoQuorum { token } if token.0 >= KEEP_TOKEN => {
                state.holders[(token.0 - KEEP_TOKEN) as usize].answered(false);
            }
            Event::Released { token, held, confirmed: true }
                if token.0 >= DURABLE_RELEASE_TOKEN =>
            {
                return self.released(state, (token.0 - DURABLE_RELEASE_TOKEN) as usize, held);
            }
            _ => {}
        }
        Ok(())
    }

    /// A fence was confirmed. No fence of another tenure of the name that was confirmed before may
    /// be higher.
    pub(super) fn fence(&self, state: &mut State, place: usize, fence: Tenure) -> Result<(), Harm> {
        let highest = self.highest_fence(state, place);
        let fence = fence.fence();
        if fence <= highest && self.checks != Checks::TwoHolders {
            let shown = [fence, highest].map(|fence| Tenure::from_fence(fence).map(Tenure::ballot));
            return Err(Harm::FencesOutOfOrder(format!("{:?} after {:?}", shown[0], shown[1])));
        }
        state.holders[place].confirm(fence);
        Ok(())
    }

    /// The highest fence that was confirmed to another client of the name.
    fn highest_fence(&self, state: &State, place: usize) -> u64 {
        let name = |client: usize| self.bounds.clients[client].name;
        let alike = |other: &usize| *other != place && name(*other) == name(place);
        let others = (0..self.bounds.clients.len()).filter(alike);
        others.map(|other| state.holders[other].fence).max().unwrap_or(0)
    }

    /// Of all releases of a tenure, one says *held* if the tenure was held.
    fn released(&self, state: &mut State, place: usize, held: Option<bool>) -> Result<(), Harm> {
        let holder = &mut state.holders[place];
        holder.is_over = true;
        holder.held += u8::from(held == Some(true));
        holder.not_held += u8::from(held == Some(false));
        if self.checks == Checks::TwoHolders {
            return Ok(());
        }
        if holder.held > 1 {
            return Err(Harm::EndedWrongly(format!("client {place} was told twice it was held")));
        }
        let was_kept = holder.lasts == Some(Lasts::FOREVER) && holder.cap.is_none();
        if was_kept && holder.not_held == holder.releases {
            return Err(Harm::EndedWrongly(format!("client {place} was told it was not held")));
        }
        Ok(())
    }

    /// Whether a client believes in its lease because of a durable operation.
    fn is_backed(&self, state: &State, place: usize) -> bool {
        let now = at(state.tick);
        let believes = state.beliefs[place].is_some_and(|belief| belief.is_held(now));
        believes && now < state.holders[place].backed_until
    }

    /// What must hold after every step for registers on a majority of disks.
    pub(super) fn judge_registers(&self, state: &State) -> Result<(), Harm> {
        if self.checks == Checks::TwoHolders || !self.bounds.has_registers() {
            return Ok(());
        }
        let now = at(state.tick);
        for (place, belief) in state.beliefs.iter().enumerate() {
            let Some(belief) = belief else { continue };
            let (tenure, holder) = (belief.tenure(), state.holders[place]);
            let name = usize::from(self.bounds.clients[place].name);
            let majority = |is_so: &dyn Fn(usize) -> bool| {
                let members = 0..usize::from(self.bounds.acceptors);
                members.filter(|node| is_so(*node)).count() * 2 > usize::from(self.bounds.acceptors)
            };
            let holds = |node: usize| {
                let held = self.view(state, node).holds[name];
                held.filter(|held| held.tenure == tenure)
            };
            if holder.is_over && majority(&|node| holds(node).is_some()) {
                return Err(Harm::ReleasedReturns(format!("{tenure} at a majority")));
            }
            let highest = self.highest_fence(state, place);
            let is_stale = |held: Held| held.fence.fence() < highest;
            if majority(&|node| holds(node).is_some_and(is_stale)) {
                let text = format!("{tenure} at a majority after {highest}");
                return Err(Harm::FencesOutOfOrder(text));
            }
            if self.is_backed(state, place)
                && self.checks == Checks::All
                && !majority(&|node| self.view(state, node).holds_on_disk[name] == Some(tenure))
            {
                return Err(Harm::RuleBroken(format!("{tenure} is not on a majority of disks")));
            }
            if let Some(lasts) = holder.lasts
                && holder.asked.is_none()
                && holder.cap.is_none()
                && majority(&|node| {
                    holds(node).is_some_and(|held| held.ends_at > lasts.ends_at(now))
                })
            {
                return Err(Harm::EndForgotten(format!("{tenure} lasts longer than {lasts:?}")));
            }
        }
        Ok(())
    }

    /// Whether an answer about a register matters beside those that were sent before. A promise
    /// that repeats one under the same ballot is left out unless a Prepare `repeats`. Without
    /// another request to come, no proposer has to learn a counter.
    pub(super) fn is_news(
        &self,
        state: &State,
        from: u8,
        to: u8,
        message: DurableMessage<'_>,
    ) -> bool {
        let bounds = &self.bounds;
        match message {
            DurableMessage::Promise { ballot, .. } if !bounds.repeats => {
                !self.is_answered(state, from, to, ballot)
            }
            DurableMessage::Reject { .. } if !bounds.retries => {
                usize::from(state.acquired) < bounds.clients.len()
                    || state.keeps < bounds.keeps
                    || state.durable_releases < bounds.durable_releases
                    || state.checks < bounds.checks
                    || bounds.attempts > 0
                    || bounds.releases > 0
            }
            _ => true,
        }
    }

    /// Whether a node that only proposes does no more than to give up: then it is the same as if
    /// the answers to it are lost. Where leases are durable, each proposer has one acquire only,
    /// and other searches have the Releases that undo a round.
    pub(super) fn gives_up(&self, node: usize, sent: &[(u8, u32)], events: &[Event]) -> bool {
        let is_undo = |content: u32| {
            matches!(self.nodes.content(content), Message::Request(Request::Release { .. }))
        };
        self.bounds.has_registers()
            && self.bounds.releases == 0
            && !self.bounds.is_acceptor(node)
            && sent.iter().all(|(_, content)| is_undo(*content))
            && events
                .iter()
                .all(|event| matches!(event, Event::NoQuorum { token } if token.0 < RENEWAL_TOKEN))
    }

    /// Whether a node issued a ballot for a register by itself, and may not do so any more.
    pub(super) fn out_of_attempts(&self, state: &mut State, input: Input, is_fresh: bool) -> bool {
        if input != Input::Wake || !is_fresh || !self.bounds.has_registers() {
            return false;
        }
        state.attempts += 1;
        state.attempts > self.bounds.attempts
    }
}

/// The client of an operation. A renewal becomes one where a register holds the tenure (K4).
const fn kept_by(token: u64) -> usize {
    (if token >= KEEP_TOKEN { token - KEEP_TOKEN } else { token - RENEWAL_TOKEN }) as usize
}
