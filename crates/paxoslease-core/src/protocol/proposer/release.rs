//! Releases (P6; paper, section 7 "Releasing leases").
//!
//! The holder has dropped its belief before it asked. The caller is answered when a majority
//! confirmed, or when the lease would have expired anyway; a release that timed out is still one.
//! The release itself goes on until every acceptor that may store the tenure confirmed it, or the
//! lease is over: an acceptor that missed it would keep others out, and one more acceptor that
//! fails would then stop the name. It is repeated now and then, and at once when an acceptor that
//! was silent is back. While a renewal is in flight here a release is remembered for one attempt
//! longer, so that none can bring the tenure back. Undoing a void round (P4) is a release without
//! a caller.

use alloc::vec::Vec;
use core::time::Duration;

use super::{Env, MEMBERS_MAX, Proposer};
use crate::outbox::{Body, To, Token};
use crate::rules::Rule;
use crate::{Event, Instant, Label, MemberSet, Tenure, Ttl};

/// How many attempts the undoing of a void round counts as work in flight.
const UNDO_ATTEMPTS: u32 = 3;
/// How often an acceptor that can be reached hears again of a release it has not confirmed.
const RESEND_EVERY: Duration = Duration::from_secs(1);
/// How many answered releases are kept for acceptors that have not confirmed them.
const UNCONFIRMED_MAX: usize = 1 << 14;

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Releasing {
    label: Label,
    /// The caller; `None` where a void round is undone.
    token: Option<Token>,
    /// Callers that asked for the same release meanwhile.
    also: Vec<Token>,
    confirmed: MemberSet,
    held: bool,
    /// Callers are answered by then.
    answer_by: Instant,
    /// From then on no acceptor can store the tenure any more.
    over_at: Instant,
    /// When its confirmations are looked for next.
    look_at: Instant,
    answered: bool,
}

impl Proposer {
    pub(crate) fn release(
        &mut self,
        env: &mut Env<'_>,
        now: Instant,
        (token, label): (Token, Label),
        tenure: Tenure,
        answer_by: Instant,
    ) {
        let quorum = env.cell().quorum();
        if let Some(releasing) = self.releases.get_mut(&tenure) {
            if !releasing.answered {
                releasing.also.push(token);
                self.releases_open += 1;
                return;
            }
            if releasing.confirmed.len() >= quorum {
                let (held, confirmed) = (false, true);
                return env.out.emit(Event::Released { token, held, confirmed });
            }
            // No majority confirmed it in time: it is asked for anew.
        }
        // Whose turn it is, the acceptors tell those that they turned away.
        let nodes_before = env.cell().members().len() as u8;
        for learner in env.learners {
            env.out.send(To::Node(*learner), Body::Freed { label: label.clone(), nodes_before });
        }
        if self.has_healed() {
            self.healed.remove(&tenure);
        }
        let over_at = now.after(env.cell().max_lease().as_duration());
        let (asked, until) = ((Some(token), label), (answer_by, over_at));
        self.send_release(env, now, asked, tenure, MemberSet::EMPTY, until);
    }

    /// P4: undoes a void round where it may have left a trace.
    pub(super) fn undo(
        &mut self,
        env: &mut Env<'_>,
        now: Instant,
        (label, ttl): (Label, Ttl),
        tenure: Tenure,
        traces: MemberSet,
    ) {
        if self.releases.get(&tenure).is_some_and(|releasing| !releasing.answered) {
            // A client guessed it and has asked for the same: that goes on until it is answered.
            return;
        }
        let untouched = env.cell().everyone().without(traces);
        let over_at = now.after(ttl.as_duration());
        let attempts = self.attempt_timeout(env.config).saturating_mul(UNDO_ATTEMPTS);
        let answer_by = now.after(attempts).min(over_at);
        self.send_release(env, now, (None, label), tenure, untouched, (answer_by, over_at));
    }

    fn send_release(
        &mut self,
        env: &mut Env<'_>,
        now: Instant,
        (token, label): (Option<Token>, Label),
        tenure: Tenure,
        confirmed: MemberSet,
        (answer_by, over_at): (Instant, Instant),
    ) {
        let look_at = now.after(self.settled_span(env.config));
        self.release_ends.push(look_at, tenure);
        let unconfirmed = env.cell().everyone().without(confirmed);
        env.send(unconfirmed, Body::Release { label: label.clone(), tenure });
        self.releases_open += 1;
        let (also, held, answered) = (Vec::new(), false, false);
        let releasing = Releasing {
            label,
            token,
            also,
            confirmed,
            held,
            answer_by,
            over_at,
            look_at,
            answered,
        };
        if let Some(before) = self.releases.insert(tenure, releasing)
            && !before.answered
        {
            self.releases_open -= 1 + before.also.len();
        }
    }

    /// A Release that another node sent passed through here. Acceptors that were sent a Heal of
    /// that tenure may have got the Release first: it follows the Heal on the same way.
    pub(crate) fn on_foreign_release(&mut self, env: &mut Env<'_>, label: Label, tenure: Tenure) {
        if let Some(members) = self.healed.remove(&tenure) {
            env.send(members, Body::Release { label, tenure });
        }
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
        for (tenure, members) in &self.healed {
            core::hash::Hash::hash(&(tenure, place(*members)), hasher);
        }
    }

    pub(super) fn on_released(
        &mut self,
        env: &mut Env<'_>,
        member: MemberSet,
        tenure: Tenure,
        held: bool,
    ) {
        let by_majority = env.rules().on(Rule::ReleaseNeedsMajority);
        let quorum = if by_majority { env.cell().quorum() } else { 1 };
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
        let pause = self.settled_span(env.config);
        let unconfirmed_count = self.releases.len().saturating_sub(self.releases_open);
        let Some(releasing) = self.releases.get_mut(&tenure) else { return };
        if now < releasing.look_at {
            return;
        }
        if now >= releasing.answer_by {
            self.releases_open -= releasing.answer(env, false);
        }
        let answered = releasing.answered;
        let missing = self.unconfirmed(env, tenure);
        let is_over = self.releases.get(&tenure).is_none_or(|releasing| now >= releasing.over_at);
        let is_kept = !missing.is_empty() && !is_over && unconfirmed_count < UNCONFIRMED_MAX;
        if answered && !is_kept {
            self.releases.remove(&tenure);
            return;
        }
        let pause = if answered { pause.max(RESEND_EVERY) } else { pause };
        if let Some(releasing) = self.releases.get_mut(&tenure) {
            releasing.look_at = now.after(pause);
            self.release_ends.push(releasing.look_at, tenure);
        }
        self.resend_release(env, tenure, missing);
    }

    /// The acceptors that have not confirmed a release and may store its tenure. An acceptor that
    /// was silent when this node began the tenure, and still is, has never heard of it.
    fn unconfirmed(&self, env: &Env<'_>, tenure: Tenure) -> MemberSet {
        let Some(releasing) = self.releases.get(&tenure) else { return MemberSet::EMPTY };
        let missing = env.cell().everyone().without(releasing.confirmed);
        if missing.is_empty() || tenure.ballot().node() != Some(env.config.node) {
            return missing;
        }
        let begun = tenure.ballot().counter();
        let heard_nothing =
            |place: &usize| self.silent.has_place(*place) && begun > self.silent_since[*place];
        let strangers = (0..MEMBERS_MAX).filter(heard_nothing);
        strangers.fold(missing, |missing, place| missing.without(MemberSet::at_place(place)))
    }

    /// These acceptors can be heard again: they may have missed releases.
    pub(super) fn resend_releases(&self, env: &mut Env<'_>, back: MemberSet) {
        let mut tenures: Vec<Tenure> = self.releases.keys().copied().collect();
        tenures.sort_unstable();
        for tenure in tenures {
            let missing = self.unconfirmed(env, tenure).within(back);
            self.resend_release(env, tenure, missing);
        }
    }

    fn resend_release(&self, env: &mut Env<'_>, tenure: Tenure, members: MemberSet) {
        let members = members.without(self.silent);
        if let Some(releasing) = self.releases.get(&tenure)
            && !members.is_empty()
        {
            env.send(members, Body::Release { label: releasing.label.clone(), tenure });
        }
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
