//! What clients make of answers, and what must hold after every step: the lease invariant, fences
//! in order, and, looked at strictly, every belief backed by a majority of records.

use std::fmt;

use paxoslease_core::{Belief, Event, Instant, Tenure};

use super::{State, WISHES_MAX, World};
use crate::local::{ADOPTED_TOKEN, NAMES, RELEASE_TOKEN, RENEWAL_TOKEN, at};
use crate::search::Look;

/// What went wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Harm {
    /// Two clients believe that they hold the same name.
    TwoHolders(String),
    /// A grant completed with a fence not above those before it.
    FencesOutOfOrder(String),
    /// A client was told that its release is confirmed, and a majority has not heard of it.
    ReleaseUnheard(String),
    /// A node issued a ballot that is not above those it had issued.
    BallotReused(String),
    /// Something an acceptor or proposer must never do, harmless as yet.
    Misstep(String),
}

impl fmt::Display for Harm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TwoHolders(text) => write!(f, "two holders: {text}"),
            Self::FencesOutOfOrder(text) => write!(f, "fences out of order: {text}"),
            Self::ReleaseUnheard(text) => write!(f, "a release unheard: {text}"),
            Self::BallotReused(text) => write!(f, "a ballot reused: {text}"),
            Self::Misstep(text) => write!(f, "a misstep: {text}"),
        }
    }
}

impl World {
    /// What a client makes of an answer.
    pub(super) fn believe(&self, state: &mut State, event: Event) -> Result<(), Harm> {
        let rules = self.bounds.rules;
        let granted = |tenure, ends_at| Belief::granted(tenure, ends_at).with_rules(rules);
        let ends_at = |started_at: Instant, ttl| {
            paxoslease_core::Drift::NONE.with_rules(rules).belief_ends_at(started_at, ttl)
        };
        match event {
            Event::Granted { token, tenure, ttl, started_at, .. } => {
                let wish = token.0 as usize;
                let name = usize::from(self.bounds.wishes[wish].name);
                let fence = tenure.fence();
                if fence <= state.fences[name] && self.look != Look::ForTwoHolders {
                    return Err(out_of_order("granted", tenure, state.fences[name]));
                }
                state.fences[name] = fence.max(state.fences[name]);
                state.beliefs[wish] = Some(granted(tenure, ends_at(started_at, ttl)));
            }
            Event::Renewed { token, tenure, ttl, started_at } if token.0 < ADOPTED_TOKEN => {
                let wish = (token.0 - RENEWAL_TOKEN) as usize;
                let name = usize::from(self.bounds.wishes[wish].name);
                let now = at(state.tick);
                if let Some(belief) = &mut state.beliefs[wish] {
                    belief.renewed(tenure, ends_at(started_at, ttl));
                    let behind = tenure.fence() < state.fences[name];
                    if behind && belief.is_held(now) && self.look != Look::ForTwoHolders {
                        return Err(out_of_order("renewed", tenure, state.fences[name]));
                    }
                }
            }
            Event::Renewed { tenure, ttl, started_at, .. } => {
                state.adopted = Some(granted(tenure, ends_at(started_at, ttl)));
            }
            Event::Released { token, confirmed: true, .. } if self.bounds.proposers > 0 => {
                let wish = (token.0 - RELEASE_TOKEN) as usize;
                let belief = state.beliefs[wish].expect("only what was granted is released");
                self.released_by_majority(state, belief.tenure())?;
            }
            _ => {}
        }
        Ok(())
    }

    /// P6: the word that a release is confirmed is true.
    fn released_by_majority(&self, state: &State, tenure: Tenure) -> Result<(), Harm> {
        let acceptors = usize::from(self.bounds.acceptors);
        let heard = |node: &usize| self.view(state, *node).released.contains(&tenure);
        let count = (0..acceptors).filter(heard).count();
        if count * 2 > acceptors {
            return Ok(());
        }
        Err(Harm::ReleaseUnheard(format!("{tenure} by {count} acceptors")))
    }

    /// The lease invariant, and that every belief is backed (invariants 1 and 2).
    pub(super) fn judge(&self, state: &State) -> Result<(), Harm> {
        let now = at(state.tick);
        for name in 0..NAMES.len() {
            let believers = state.beliefs.iter().chain([&state.adopted]).enumerate().filter(
                |(number, belief)| {
                    // The adopter comes after them all and wants what the first wants.
                    let wish = self.bounds.wishes.get(number % WISHES_MAX);
                    wish.is_some_and(|wish| usize::from(wish.name) == name)
                        && belief.is_some_and(|belief| belief.is_held(now))
                },
            );
            let mut held: Vec<Belief> = believers.filter_map(|(_, belief)| *belief).collect();
            if held.len() > 1 {
                held.sort_unstable_by_key(Belief::tenure);
                let tenures: Vec<Tenure> = held.iter().map(Belief::tenure).collect();
                return Err(Harm::TwoHolders(format!("{tenures:?} at tick {}", state.tick)));
            }
            if self.look == Look::Strictly
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
        Err(Harm::Misstep(text))
    }
}

fn out_of_order(what: &str, tenure: Tenure, last: u64) -> Harm {
    let last = Tenure::from_fence(last).map_or_else(String::new, |last| last.to_string());
    Harm::FencesOutOfOrder(format!("{tenure} {what} after {last}"))
}
