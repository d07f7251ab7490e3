//! Releases (P6; paper, section 7 "Releasing leases").
//!
//! The holder has dropped its belief before it asked. A release is repeated until a majority
//! confirmed it or the lease would have expired anyway; a release that timed out is still one.
//! It is remembered for one attempt longer, so that a renewal in flight here cannot bring the
//! tenure back.

use alloc::vec::Vec;

use super::{Env, Proposer, Wake};
use crate::outbox::{Body, To, Token};
use crate::{Event, Instant, Label, MemberSet, Tenure};

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Releasing {
    label: Label,
    token: Token,
    /// Others who asked for the same release meanwhile.
    also: Vec<Token>,
    confirmed: MemberSet,
    held: bool,
    give_up_at: Instant,
    answered: bool,
}

impl Proposer {
    pub(crate) fn release(
        &mut self,
        env: &mut Env<'_>,
        now: Instant,
        (token, label): (Token, Label),
        tenure: Tenure,
        give_up_at: Instant,
    ) {
        if let Some(releasing) = self.releases.get_mut(&tenure) {
            if releasing.answered {
                let (held, confirmed) = (false, true);
                env.out.emit(Event::Released { token, held, confirmed });
            } else {
                releasing.also.push(token);
                self.releases_joined += 1;
            }
            return;
        }
        for learner in env.learners {
            env.out.send(To::Node(*learner), Body::Freed { label: label.clone() });
        }
        let releasing = Releasing {
            label: label.clone(),
            token,
            also: Vec::new(),
            confirmed: MemberSet::EMPTY,
            held: false,
            give_up_at,
            answered: false,
        };
        self.releases.insert(tenure, releasing);
        self.timers.push(now.after(env.config.attempt_timeout), Wake::Release(tenure));
        env.broadcast(Body::Release { label, tenure });
    }

    pub(super) fn is_released(&self, tenure: Tenure) -> bool {
        !self.releases.is_empty() && self.releases.contains_key(&tenure)
    }

    /// The releases under way, in the order of their tenures, with every set of acceptors mapped.
    #[cfg(feature = "digest")]
    pub(crate) fn releases_digest(
        &self,
        place: impl Fn(MemberSet) -> MemberSet,
        hasher: &mut impl core::hash::Hasher,
    ) {
        let mut releases: Vec<(Tenure, Releasing)> =
            self.releases.iter().map(|(tenure, releasing)| (*tenure, releasing.clone())).collect();
        releases.sort_unstable_by_key(|(tenure, _)| *tenure);
        for (_, releasing) in &mut releases {
            releasing.confirmed = place(releasing.confirmed);
        }
        core::hash::Hash::hash(&releases, hasher);
    }

    pub(super) fn on_released(
        &mut self,
        env: &mut Env<'_>,
        member: MemberSet,
        tenure: Tenure,
        held: bool,
    ) {
        let quorum = env.cell().quorum(env.rules());
        let Some(releasing) = self.releases.get_mut(&tenure) else { return };
        releasing.confirmed = releasing.confirmed.with(member);
        releasing.held |= held;
        if releasing.confirmed.len() >= quorum {
            self.releases_joined -= releasing.answer(env, true);
        }
    }

    pub(super) fn release_timed_out(&mut self, env: &mut Env<'_>, now: Instant, tenure: Tenure) {
        let Some(releasing) = self.releases.get_mut(&tenure) else { return };
        if !releasing.answered && now < releasing.give_up_at {
            let silent = env.cell().everyone().without(releasing.confirmed);
            let label = releasing.label.clone();
            self.timers.push(now.after(env.config.attempt_timeout), Wake::Release(tenure));
            return env.send(silent, Body::Release { label, tenure });
        }
        self.releases_joined -= releasing.answer(env, false);
        self.releases.remove(&tenure);
    }
}

impl Releasing {
    /// Answers all who asked, once. Returns how many had joined the first.
    fn answer(&mut self, env: &mut Env<'_>, confirmed: bool) -> usize {
        if self.answered {
            return 0;
        }
        self.answered = true;
        let (held, joined) = (self.held, self.also.len());
        for token in core::iter::once(self.token).chain(self.also.drain(..)) {
            env.out.emit(Event::Released { token, held, confirmed });
        }
        joined
    }
}
