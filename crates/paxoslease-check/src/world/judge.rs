//! How clients act on events, and what must hold after every step: the lease invariant, the order
//! of fences and, under [`Checks::All`], a majority of acceptors behind every belief.

use std::fmt;

use paxoslease_core::{Belief, Event, Instant, Tenure};

use super::{CLIENTS_MAX, Ending, State, World};
use crate::node::{ADOPTED_TOKEN, DURABLE_RELEASE_TOKEN, NAMES, RELEASE_TOKEN, RENEWAL_TOKEN, at};
use crate::search::Checks;

/// Harm that the search found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Harm {
    /// Two clients hold the same name.
    TwoHolders(String),
    /// A fence of a grant is not above the fences granted before it.
    FencesOutOfOrder(String),
    /// A client learned that its release is confirmed, but no majority of acceptors received the
    /// Release.
    ReleaseUnconfirmed(String),
    /// The releases of one tenure were told that several of them ended it, or that none did.
    EndedWrongly(String),
    /// An acceptor stored a tenure after it had confirmed its release (A8), or a majority holds a
    /// tenure again after a durable release was confirmed (K8).
    ReleasedReturns(String),
    /// A confirmed end of a lease was forgotten: a majority keeps the lease for longer.
    EndForgotten(String),
    /// A node issued a ballot that is not above those it had issued.
    BallotReused(String),
    /// A client could not renew the lease that it holds, although all nodes answer.
    LeaseLost(String),
    /// An acceptor or proposer broke a rule; no client has suffered from it yet.
    RuleBroken(String),
}

impl fmt::Display for Harm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TwoHolders(text) => write!(f, "two holders: {text}"),
            Self::FencesOutOfOrder(text) => write!(f, "fences out of order: {text}"),
            Self::ReleaseUnconfirmed(text) => write!(f, "a release confirmed too early: {text}"),
            Self::EndedWrongly(text) => write!(f, "a wrong answer to a release: {text}"),
            Self::ReleasedReturns(text) => write!(f, "a released tenure returned: {text}"),
            Self::EndForgotten(text) => write!(f, "a confirmed end forgotten: {text}"),
            Self::LeaseLost(text) => write!(f, "a lease lost: {text}"),
            Self::BallotReused(text) => write!(f, "a ballot reused: {text}"),
            Self::RuleBroken(text) => write!(f, "a rule broken: {text}"),
        }
    }
}

impl World {
    /// Updates the beliefs of clients after an event of a node.
    pub(super) fn believe(&self, state: &mut State, event: Event) -> Result<(), Harm> {
        let rules = self.bounds.rules;
        let granted = |tenure, ends_at| Belief::granted(tenure, ends_at).with_rules(rules);
        let ends_at = |started_at: Instant, ttl| {
            paxoslease_core::Drift::NONE.with_rules(rules).belief_ends_at(started_at, ttl)
        };
        self.hold(state, &event)?;
        match event {
            Event::Granted { token, tenure, ttl, started_at, .. } => {
                let client = token.0 as usize;
                self.fence(state, client, tenure)?;
                state.beliefs[client] = Some(granted(tenure, ends_at(started_at, ttl)));
            }
            Event::Renewed { token, tenure, ttl, started_at } if token.0 < ADOPTED_TOKEN => {
                let client = (token.0 - RENEWAL_TOKEN) as usize;
                let now = at(state.tick);
                if let Some(belief) = &mut state.beliefs[client] {
                    belief.renewed(tenure, ends_at(started_at, ttl));
                    if belief.is_held(now) {
                        self.fence(state, client, tenure)?;
                    }
                }
            }
            Event::Renewed { tenure, ttl, started_at, .. } => {
                state.adopted = Some(granted(tenure, ends_at(started_at, ttl)));
            }
            Event::Released { token, held, confirmed: true }
                if self.bounds.proposers > 0
                    && self.bounds.targets.is_empty()
                    && token.0 < DURABLE_RELEASE_TOKEN =>
            {
                let client = (token.0 - RELEASE_TOKEN) as usize;
                self.told(&mut state.endings[client], held)?;
                let belief = state.beliefs[client].expect("only what was granted is released");
                self.released_by_majority(state, belief.tenure())?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Of several releases of a tenure, exactly one ended it (A9, P6).
    fn told(&self, ending: &mut Ending, held: Option<bool>) -> Result<(), Harm> {
        ending.ended += u8::from(held == Some(true));
        ending.not_ended += u8::from(held == Some(false));
        let is_right = ending.ended <= 1 && u32::from(ending.not_ended) < ending.asked.count_ones();
        if is_right || !self.bounds.rivals {
            return Ok(());
        }
        Err(Harm::EndedWrongly(format!("{ending:?}")))
    }

    /// A confirmed release has reached a majority of acceptors (P6).
    fn released_by_majority(&self, state: &State, tenure: Tenure) -> Result<(), Harm> {
        let acceptors = usize::from(self.bounds.acceptors);
        let heard = |node: &usize| self.view(state, *node).released.contains(&tenure);
        let count = (0..acceptors).filter(heard).count();
        if count * 2 > acceptors {
            return Ok(());
        }
        Err(Harm::ReleaseUnconfirmed(format!("{tenure} by {count} acceptors only")))
    }

    /// The lease invariant, and that a majority backs every belief (invariants 1 and 2).
    pub(super) fn judge(&self, state: &State) -> Result<(), Harm> {
        let now = at(state.tick);
        for name in 0..NAMES.len() {
            let believers = state.beliefs.iter().chain([&state.adopted]).enumerate().filter(
                |(number, belief)| {
                    // The adopter has the last index and acquires the name of client 0.
                    let client = self.bounds.clients.get(number % CLIENTS_MAX);
                    client.is_some_and(|client| usize::from(client.name) == name)
                        && belief.is_some_and(|belief| belief.is_held(now))
                },
            );
            let mut held: Vec<Belief> = believers.filter_map(|(_, belief)| *belief).collect();
            if held.len() > 1 {
                held.sort_unstable_by_key(Belief::tenure);
                let tenures: Vec<Tenure> = held.iter().map(Belief::tenure).collect();
                return Err(Harm::TwoHolders(format!("{tenures:?} at tick {}", state.tick)));
            }
            if self.checks == Checks::All
                && self.bounds.targets.is_empty()
                && !self.bounds.has_registers()
                && let Some(belief) = held.first()
                && state.crashes == 0
                && state.clean_restarts == 0
            {
                self.backed(state, name, belief)?;
            }
        }
        Ok(())
    }

    fn backed(&self, state: &State, name: usize, belief: &Belief) -> Result<(), Harm> {
        let acceptors = usize::from(self.bounds.acceptors);
        let backing = (0..acceptors)
            .filter_map(|node| self.view(state, node).stored[name])
            .filter(|(tenure, until)| *tenure == belief.tenure() && *until >= belief.ends_at())
            .count();
        if backing * 2 > acceptors {
            return Ok(());
        }
        let text = format!("{:?} is believed, backed by {backing} acceptors", belief.tenure());
        Err(Harm::RuleBroken(text))
    }
}
