//! Releases (P6; paper, section 7 "Releasing leases").
//!
//! The holder has dropped its belief before it asked. A release is repeated until a majority
//! confirmed it or the lease would have expired anyway; a release that timed out is still one.
//! While a renewal is in flight here it is remembered for one attempt longer, so that none can
//! bring the tenure back. Undoing a void round (P4) is a release that nobody waits for.

use alloc::vec::Vec;

use super::{Env, Proposer};
use crate::outbox::{Body, To, Token};
use crate::rules::Rule;
use crate::{Event, Instant, Label, MemberSet, Tenure};

/// How often undoing a void round is tried.
const UNDO_ATTEMPTS: u32 = 3;

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Releasing {
    label: Label,
    /// Who asked; nobody where a void round is undone.
    token: Option<Token>,
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
                self.releases_open += 1;
            }
            return;
        }
        for learner in env.learners {
            env.out.send(To::Node(*learner), Body::Freed { label: label.clone() });
        }
        let nobody = MemberSet::EMPTY;
        self.send_release(env, now, (Some(token), label), tenure, nobody, give_up_at);
    }

    /// P4: undoes a void round where it may have left a trace. Repeated a few times only: what is
    /// left then expires.
    pub(super) fn undo(
        &mut self,
        env: &mut Env<'_>,
        now: Instant,
        label: Label,
        tenure: Tenure,
        traces: MemberSet,
    ) {
        if self.releases.get(&tenure).is_some_and(|releasing| !releasing.answered) {
            // Somebody guessed it and has asked for the same: that goes on until it is answered.
            return;
        }
        let give_up_at = now.after(env.config.attempt_timeout.saturating_mul(UNDO_ATTEMPTS));
        let untouched = env.cell().everyone().without(traces);
        self.send_release(env, now, (None, label), tenure, untouched, give_up_at);
    }

    fn send_release(
        &mut self,
        env: &mut Env<'_>,
        now: Instant,
        (token, label): (Option<Token>, Label),
        tenure: Tenure,
        confirmed: MemberSet,
        give_up_at: Instant,
    ) {
        let silent = env.cell().everyone().without(confirmed);
        env.send(silent, Body::Release { label: label.clone(), tenure });
        let (also, held, answered) = (Vec::new(), false, false);
        let releasing = Releasing { label, token, also, confirmed, held, give_up_at, answered };
        self.releases_open += 1;
        if let Some(before) = self.releases.insert(tenure, releasing)
            && !before.answered
        {
            self.releases_open -= 1 + before.also.len();
        }
        self.release_ends.push(now.after(env.config.attempt_timeout), tenure);
    }

    pub(super) fn is_released(&self, tenure: Tenure) -> bool {
        !self.releases.is_empty() && self.releases.contains_key(&tenure)
    }

    /// The releases that are remembered, with the acceptors that confirmed, and whether the
    /// callers are answered.
    #[cfg(feature = "digest")]
    pub(crate) fn releases(&self) -> Vec<(Tenure, MemberSet, bool)> {
        let releases = self.releases.iter();
        let mut releases: Vec<(Tenure, MemberSet, bool)> = releases
            .map(|(tenure, releasing)| (*tenure, releasing.confirmed, releasing.answered))
            .collect();
        releases.sort_unstable_by_key(|(tenure, _, _)| *tenure);
        releases
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
        let by_majority = env.rules().on(Rule::ReleaseNeedsMajority);
        let quorum = if by_majority { env.cell().quorum(env.rules()) } else { 1 };
        let Some(releasing) = self.releases.get_mut(&tenure) else { return };
        releasing.confirmed = releasing.confirmed.with(member);
        releasing.held |= held;
        let enough = match releasing.token {
            Some(_) => releasing.confirmed.len() >= quorum,
            None => releasing.confirmed.contains(env.cell().everyone()),
        };
        if enough {
            self.releases_open -= releasing.answer(env, true);
        }
        // Once everybody confirmed, all that was said before of this tenure was heard, too.
        if self.renewals == 0 && releasing.confirmed.contains(env.cell().everyone()) {
            self.releases.remove(&tenure);
        }
    }

    pub(super) fn release_timed_out(&mut self, env: &mut Env<'_>, now: Instant, tenure: Tenure) {
        let Some(releasing) = self.releases.get_mut(&tenure) else { return };
        if !releasing.answered && now < releasing.give_up_at {
            let silent = env.cell().everyone().without(releasing.confirmed);
            let label = releasing.label.clone();
            self.release_ends.push(now.after(env.config.attempt_timeout), tenure);
            return env.send(silent, Body::Release { label, tenure });
        }
        self.releases_open -= releasing.answer(env, false);
        self.releases.remove(&tenure);
    }
}

impl Releasing {
    /// Answers all who asked, once. Returns how many that was, with nobody for one.
    fn answer(&mut self, env: &mut Env<'_>, confirmed: bool) -> usize {
        if self.answered {
            return 0;
        }
        self.answered = true;
        let (held, open) = (self.held, 1 + self.also.len());
        for token in self.token.take().into_iter().chain(self.also.drain(..)) {
            env.out.emit(Event::Released { token, held, confirmed });
        }
        open
    }
}
