//! Releases (P6; paper, section 7 "Releasing leases").
//!
//! The holder has dropped its belief before it asked. The caller is answered when a majority has
//! confirmed, or when the lease would have expired; a release that timed out has still happened.
//! It is repeated until every acceptor that may store the tenure has confirmed it, or the lease is
//! over: an acceptor that missed it would go on refusing others. While a renewal is in flight here,
//! a confirmed release is remembered for one attempt longer, so that no answer can bring the tenure
//! back. The undo of a void round (P4) is a release without a caller.

use alloc::vec::Vec;
use core::cmp::Reverse;
use core::time::Duration;

use super::{Env, PLACES_MAX, Proposer};
use crate::outbox::{Body, To, Token};
use crate::rules::Rule;
use crate::{Cell, Event, Instant, Label, MemberSet, ReleaseId, Tenure, Ttl};

/// The undo of a void round counts as work in flight for this many attempts.
const UNDO_ATTEMPTS: u32 = 3;
/// How often a release is repeated to a reachable acceptor that has not confirmed it.
const RESEND_EVERY: Duration = Duration::from_secs(1);
/// The most answered releases that are kept for acceptors that have not confirmed them.
const UNCONFIRMED_MAX: usize = 1 << 14;

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Releasing {
    id: ReleaseId,
    label: Label,
    /// The caller; `None` for the undo of a void round.
    token: Option<Token>,
    /// Callers that asked for the same release meanwhile.
    also: Vec<Token>,
    confirmed: MemberSet,
    /// Those at which this Release ended it.
    ended: MemberSet,
    /// Those at which another one did.
    others: Vec<OtherRelease>,
    /// Those that may have forgotten it.
    forgot: MemberSet,
    /// By then the callers are answered.
    answer_by: Instant,
    /// From then on no acceptor can store the tenure.
    over_at: Instant,
    /// When the release is repeated or given up.
    check_at: Instant,
    answered: bool,
}

/// A Release of the same tenure through another node, or an earlier one of this node.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
struct OtherRelease {
    id: ReleaseId,
    ended: MemberSet,
}

impl Proposer {
    pub(super) fn next_release(&mut self, env: &Env<'_>) -> ReleaseId {
        self.releases_begun = self.releases_begun.wrapping_add(1);
        ReleaseId::new(self.releases_begun, env.config.node)
    }

    pub(crate) fn release(
        &mut self,
        env: &mut Env<'_>,
        now: Instant,
        token: Token,
        label: Label,
        tenure: Tenure,
        answer_by: Instant,
    ) {
        if self.changes.is_releasing(tenure) {
            // K8: it is told who ended the tenure once that is known.
            let tokens = alloc::vec![token];
            return self.release_durable(env, now, tokens, label, tenure, answer_by);
        }
        // The same Release goes on: the acceptors remember it.
        let mut id = None;
        if let Some(releasing) = self.releases.get_mut(&tenure) {
            id = Some(releasing.id);
            if !releasing.answered {
                releasing.also.push(token);
                self.releases_open += 1;
                return;
            }
            if env.cell().is_quorum(releasing.confirmed) {
                let (held, confirmed) = (Some(false), true);
                return env.out.emit(Event::Released { token, held, confirmed });
            }
            // No majority confirmed it in time, so it begins anew.
        }
        // A learner has no turn: the acceptors tell the nodes in their queues.
        let nodes_before = env.cell().members().len() as u8;
        for learner in env.learners {
            env.out.send(To::Node(*learner), Body::Freed { label: label.clone(), nodes_before });
        }
        if self.has_healed() {
            self.healed.remove(&tenure);
        }
        let over_at = now.after(env.cell().max_lease().as_duration());
        let id = id.unwrap_or_else(|| self.next_release(env));
        let releasing = Releasing::new(id, Some(token), label, answer_by, over_at);
        self.begin_release(env, now, tenure, releasing);
    }

    /// Whether a tenure is that of a void round, which is being undone.
    pub(crate) fn is_undone(&self, tenure: Tenure) -> bool {
        self.releases.get(&tenure).is_some_and(|releasing| releasing.token.is_none())
    }

    /// Whether a tenure is that of a round of this node that no majority has accepted yet.
    pub(crate) fn is_undecided(&self, tenure: Tenure) -> bool {
        self.rounds.contains_key(&tenure.ballot())
    }

    /// P4: undoes a void round at the acceptors that may have stored it.
    pub(super) fn undo(
        &mut self,
        env: &mut Env<'_>,
        now: Instant,
        label: Label,
        tenure: Tenure,
        ttl: Ttl,
        traces: MemberSet,
    ) {
        if self.releases.get(&tenure).is_some_and(|releasing| !releasing.answered) {
            // A client guessed the tenure and asked for the same; its release goes on.
            return;
        }
        let over_at = now.after(ttl.as_duration());
        let attempts = self.attempt_timeout(env.config).saturating_mul(UNDO_ATTEMPTS);
        let answer_by = now.after(attempts).min(over_at);
        let id = self.next_release(env);
        let mut releasing = Releasing::new(id, None, label, answer_by, over_at);
        releasing.confirmed = env.cell().everyone().without(traces);
        self.begin_release(env, now, tenure, releasing);
    }

    /// Replaces a release of the same tenure only if that one is answered.
    fn begin_release(
        &mut self,
        env: &mut Env<'_>,
        now: Instant,
        tenure: Tenure,
        mut releasing: Releasing,
    ) {
        releasing.check_at = now.after(self.settled_span(env.config));
        self.release_ends.push(releasing.check_at, tenure);
        let unconfirmed = env.cell().everyone().without(releasing.confirmed);
        let (label, id) = (releasing.label.clone(), releasing.id);
        env.send(unconfirmed, Body::Release { label, tenure, id });
        self.releases_open += 1;
        self.releases.insert(tenure, releasing);
    }

    /// Another node sent a Release. Acceptors that this node sent a Heal of the tenure may have
    /// received that Release first, so it is sent to them again, behind the Heal. A renewal that
    /// is in flight here heals nothing any more.
    pub(crate) fn on_foreign_release(
        &mut self,
        env: &mut Env<'_>,
        label: Label,
        tenure: Tenure,
        id: ReleaseId,
    ) {
        if let Some(members) = self.healed.remove(&tenure) {
            env.send(members, Body::Release { label, tenure, id });
        }
        if self.renewals > 0 {
            if self.released_elsewhere.len() >= UNCONFIRMED_MAX {
                self.released_elsewhere.pop_first();
            }
            self.released_elsewhere.insert(tenure);
        }
    }

    pub(crate) fn is_released(&self, tenure: Tenure) -> bool {
        (!self.releases.is_empty() && self.releases.contains_key(&tenure))
            || self.released_elsewhere.contains(&tenure)
            || self.changes.is_releasing(tenure)
    }

    /// K8: a register holds the tenure, so a change has to end it. Takes the callers, unless they
    /// are answered. An undo has none.
    #[cold]
    pub(crate) fn take_release(&mut self, tenure: Tenure) -> Option<(Vec<Token>, Label, Instant)> {
        let releasing = self.releases.get(&tenure).filter(|releasing| !releasing.answered)?;
        self.releases_open -= 1 + releasing.also.len();
        let releasing = self.releases.remove(&tenure)?;
        let tokens = releasing.token.into_iter().chain(releasing.also).collect();
        Some((tokens, releasing.label, releasing.answer_by))
    }

    /// The remembered releases: tenure, acceptors that confirmed, and whether callers are answered.
    #[cfg(feature = "digest")]
    pub(crate) fn releases(&self) -> Vec<(Tenure, MemberSet, bool)> {
        let releases = self.releases.iter();
        let mut releases: Vec<(Tenure, MemberSet, bool)> = releases
            .map(|(tenure, releasing)| (*tenure, releasing.confirmed, releasing.answered))
            .collect();
        releases.sort_unstable_by_key(|(tenure, _, _)| *tenure);
        releases
    }

    /// Hashes the releases in the order of their tenures, with every set of acceptors mapped.
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
            releasing.others.sort_unstable_by_key(|other| other.id);
            let others = releasing.others.iter_mut().map(|other| &mut other.ended);
            let sets = [&mut releasing.confirmed, &mut releasing.ended, &mut releasing.forgot];
            for set in others.chain(sets) {
                *set = place(*set);
            }
        }
        core::hash::Hash::hash(&releases, hasher);
        for (tenure, members) in &self.healed {
            core::hash::Hash::hash(&(tenure, place(*members)), hasher);
        }
        core::hash::Hash::hash(&self.released_elsewhere, hasher);
    }

    pub(super) fn on_released(
        &mut self,
        env: &mut Env<'_>,
        member: MemberSet,
        tenure: Tenure,
        by: Option<ReleaseId>,
    ) {
        let by_majority = env.rules().on(Rule::ReleaseNeedsMajority);
        let Some(releasing) = self.releases.get_mut(&tenure) else { return };
        releasing.note(member, by);
        let missing = env.cell().everyone().without(releasing.confirmed);
        let enough = match releasing.token {
            // Who ended it is the answer.
            Some(_) => {
                let is_known = releasing.verdict(env.cell()).is_some();
                let is_over = env.cell().is_quorum(releasing.confirmed);
                is_over && (is_known || self.silent.contains(missing)) || !by_majority
            }
            None => missing.is_empty(),
        };
        if enough {
            self.releases_open -= releasing.answer(env, true);
        }
        // An acceptor that confirmed has received every earlier message about this tenure.
        if self.renewals == 0 && releasing.confirmed.contains(env.cell().everyone()) {
            self.releases.remove(&tenure);
        }
    }

    pub(super) fn release_timed_out(&mut self, env: &mut Env<'_>, now: Instant, tenure: Tenure) {
        let pause = self.settled_span(env.config);
        let unconfirmed_count = self.releases.len().saturating_sub(self.releases_open);
        let Some(releasing) = self.releases.get_mut(&tenure) else { return };
        if now < releasing.check_at {
            return;
        }
        let is_confirmed = env.cell().is_quorum(releasing.confirmed);
        let absent = env.cell().everyone().without(releasing.confirmed);
        let is_final = is_confirmed && releasing.token.is_some() && self.silent.contains(absent);
        if now >= releasing.answer_by || is_final {
            self.releases_open -= releasing.answer(env, is_confirmed);
        }
        let answered = releasing.answered;
        let missing = self.unconfirmed(env, tenure);
        // If a majority confirmed and never stored the tenure, it has no holder: a client made it
        // up, or it was released before.
        let is_over = self.releases.get(&tenure).is_none_or(|releasing| {
            now >= releasing.over_at || !releasing.was_held() && is_confirmed
        });
        let is_kept = !missing.is_empty() && !is_over && unconfirmed_count < UNCONFIRMED_MAX;
        if answered && !is_kept {
            self.releases.remove(&tenure);
            return;
        }
        let pause = if answered { pause.max(RESEND_EVERY) } else { pause };
        if let Some(releasing) = self.releases.get_mut(&tenure) {
            releasing.check_at = now.after(pause);
            self.release_ends.push(releasing.check_at, tenure);
        }
        self.resend_release(env, tenure, missing);
    }

    /// The acceptors that may store a tenure and have not confirmed its release. An acceptor that
    /// was unreachable when this node began the tenure, and still is, has never stored it.
    fn unconfirmed(&self, env: &Env<'_>, tenure: Tenure) -> MemberSet {
        let Some(releasing) = self.releases.get(&tenure) else { return MemberSet::EMPTY };
        let missing = env.cell().everyone().without(releasing.confirmed);
        if missing.is_empty() || tenure.ballot().node() != Some(env.config.node) {
            return missing;
        }
        let begun = tenure.ballot().counter();
        let never_stored =
            |place: &usize| self.silent.has_place(*place) && begun > self.silent_since[*place];
        let unaware = (0..PLACES_MAX).filter(never_stored);
        unaware.fold(missing, |missing, place| missing.without(MemberSet::at_place(place)))
    }

    /// These acceptors are connected again, and may have missed releases.
    pub(super) fn resend_releases(&mut self, env: &mut Env<'_>, back: MemberSet) {
        let mut tenures: Vec<Tenure> = self.releases.keys().copied().collect();
        tenures.sort_unstable();
        for tenure in tenures {
            let missing = self.unconfirmed(env, tenure).within(back);
            self.resend_release(env, tenure, missing);
        }
    }

    /// J3: the members of another epoch have to confirm. Who stored the tenure stays known.
    pub(crate) fn release_again(&mut self, env: &mut Env<'_>, before: &Cell) {
        for releasing in self.releases.values_mut() {
            releasing.confirmed = MemberSet::EMPTY;
            releasing.forgot = MemberSet::EMPTY;
            let others = releasing.others.iter_mut().map(|other| &mut other.ended);
            for ended in others.chain([&mut releasing.ended]) {
                *ended = before.moved(*ended, env.cell());
            }
        }
        self.resend_releases(env, env.cell().everyone());
    }

    fn resend_release(&self, env: &mut Env<'_>, tenure: Tenure, members: MemberSet) {
        let members = members.without(self.silent);
        if let Some(Releasing { label, id, .. }) = self.releases.get(&tenure)
            && !members.is_empty()
        {
            env.send(members, Body::Release { label: label.clone(), tenure, id: *id });
        }
    }
}

impl Releasing {
    fn new(
        id: ReleaseId,
        token: Option<Token>,
        label: Label,
        answer_by: Instant,
        over_at: Instant,
    ) -> Self {
        Self {
            id,
            label,
            token,
            also: Vec::new(),
            confirmed: MemberSet::EMPTY,
            ended: MemberSet::EMPTY,
            others: Vec::new(),
            forgot: MemberSet::EMPTY,
            answer_by,
            over_at,
            check_at: Instant::ZERO,
            answered: false,
        }
    }

    /// Notes what an acceptor answered. It may have forgotten what it answered in another epoch.
    fn note(&mut self, member: MemberSet, by: Option<ReleaseId>) {
        self.confirmed = self.confirmed.with(member);
        match by {
            None => {}
            Some(ReleaseId::FORGOTTEN) => self.forgot = self.forgot.with(member),
            Some(id) if id == self.id => self.ended = self.ended.with(member),
            Some(id) => match self.others.iter_mut().find(|other| other.id == id) {
                Some(other) => other.ended = other.ended.with(member),
                None => self.others.push(OtherRelease { id, ended: member }),
            },
        }
    }

    /// P6: whether this Release ended the tenure, if the answers so far tell. It did if it came
    /// first at more acceptors than any other; of equal ones, the lowest number counts. A tenure
    /// that no majority stored was over before. In a joint epoch the old set tells.
    fn verdict(&self, cell: &Cell) -> Option<bool> {
        let (old_set, quorum) = (cell.old_set(), cell.quorum());
        let rank = |ended: MemberSet, id| (ended.within(old_set).len(), Reverse(id));
        let missing = old_set.without(self.confirmed.with(self.ended)).len();
        // What these acceptors would tell is not known.
        let hidden = missing + self.forgot.within(old_set).len();
        let (own, own_id) = rank(self.ended, self.id);
        let others = self.others.iter().map(|other| rank(other.ended, other.id));
        let stored_by = own + others.clone().map(|(count, _)| count).sum::<u32>();
        let best = others.max();
        let was_over = own == 0 && (stored_by + missing < quorum || missing == 0);
        if was_over || best > Some((own + hidden, own_id)) {
            return Some(false);
        }
        // One that none of these acceptors told of may have come first at all hidden ones.
        let rival = best.map(|(count, id)| (count + hidden, id));
        (stored_by >= quorum && own > hidden && Some((own, own_id)) > rival).then_some(true)
    }

    /// Whether some acceptor that answered had stored the tenure.
    fn was_held(&self) -> bool {
        !self.ended.is_empty() || !self.others.is_empty()
    }

    /// Answers every caller, once. Only the first of them ended the tenure. Returns how many open
    /// releases that ends; one without a caller counts as one.
    fn answer(&mut self, env: &mut Env<'_>, confirmed: bool) -> usize {
        if self.answered {
            return 0;
        }
        self.answered = true;
        let mut held = self.verdict(env.cell());
        if held.is_none() && !env.rules().on(Rule::UnknownEndIsTold) {
            held = Some(!self.ended.is_empty());
        }
        let open = 1 + self.also.len();
        for token in self.token.take().into_iter().chain(self.also.drain(..)) {
            env.out.emit(Event::Released { token, held, confirmed });
            held = held.and(Some(false));
        }
        open
    }
}
