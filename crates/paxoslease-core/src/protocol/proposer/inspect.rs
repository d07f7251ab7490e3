//! Inspections: what a quorum stores for a name. The answer is a hint and changes nothing.

use super::{Env, Proposer};
use crate::outbox::{Body, Sighting, Token};
use crate::{Event, Instant, Label, MemberSet, Seen};

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Inspection {
    token: Token,
    label: Label,
    answered: MemberSet,
    accepted: Option<Sighting>,
}

impl Proposer {
    pub(crate) fn inspect(&mut self, env: &mut Env<'_>, now: Instant, token: Token, label: Label) {
        self.inspections_begun += 1;
        let query = self.inspections_begun;
        let inspection =
            Inspection { token, label: label.clone(), answered: MemberSet::EMPTY, accepted: None };
        self.inspections.insert(query, inspection);
        self.inspection_ends.push(now.after(self.settled_span(env.config)), query);
        env.broadcast(Body::Inspect { label, query });
    }

    pub(super) fn on_inspected(
        &mut self,
        env: &mut Env<'_>,
        member: MemberSet,
        query: u64,
        accepted: Option<Seen<'_>>,
    ) {
        let quorum = env.cell().quorum();
        let Some(inspection) = self.inspections.get_mut(&query) else { return };
        inspection.answered = inspection.answered.with(member);
        if let Some(seen) = accepted
            && inspection.accepted.as_ref().is_none_or(|best| best.tenure < seen.tenure)
        {
            let Seen { tenure, remaining, holder } = seen;
            let label = inspection.label.with_holder(holder);
            inspection.accepted = Some(Sighting { tenure, remaining, label, standing: None });
        }
        if inspection.answered.len() < quorum {
            return;
        }
        if let Some(Inspection { token, accepted, .. }) = self.inspections.remove(&query) {
            env.out.emit(Event::Inspected { token, accepted });
        }
    }

    pub(super) fn inspection_timed_out(&mut self, env: &mut Env<'_>, query: u64) {
        if let Some(Inspection { token, .. }) = self.inspections.remove(&query) {
            env.out.emit(Event::NoQuorum { token });
        }
    }
}
