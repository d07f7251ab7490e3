//! What comes of an answer. Here is where a server's word becomes a belief, and where its bounds
//! are: no longer than asked for, no more waited than time has passed, nothing that is over (T2).

use std::task::Waker;

use paxoslease_core::{Belief, Drift, Instant, Ttl, TtlError};
use paxoslease_holder::transport::{GuardId, ReleaseOutcome, is_worthwhile};
use paxoslease_holder::{AcquireError, AskError, RenewError};
use paxoslease_wire::resp::Value;

use super::ask::{Ask, Question};
use super::speech::{self, Granted, Push, Refusal, unexpected};
use super::wishes::Wished;
use super::{Engine, Sent};
use crate::command::{Release, Renew};
use crate::status::NodeStatus;

impl Engine {
    pub(super) fn answered(&mut self, now: Instant, sent: Sent, value: Value<'_>) {
        let Sent { mut ask, sent_at } = sent;
        if let Question::Acquire(id) = ask.question
            && !self.wishes.is_open(id, sent_at)
        {
            // A push has overtaken this: the wish is gone, or was sent anew.
            return;
        }
        let Value::Error(text) = value else { return self.served_with(now, ask, sent_at, value) };
        let refusal = Refusal::new(text);
        if !self.may_move(now, &ask, sent_at, &refusal) {
            if let Question::RenewGuard(_) = ask.question
                && let Refusal::Elsewhere(error) = &refusal
                && self.is_of_no_use(sent_at)
            {
                // All were asked, and will be again; not this one first.
                self.leave_for(error.clone());
            }
            return self.refused(now, ask.question, refusal);
        }
        ask.refused += 1;
        match refusal {
            Refusal::Elsewhere(error) => {
                self.remember(&mut ask, &error);
                self.leave_for(error);
            }
            _ => self.go_elsewhere(&String::from_utf8_lossy(text)),
        }
        if let Some(session) = &mut self.session {
            session.again.push(ask);
        }
    }

    /// Anything but an error. A reply that is none for its question may belong to another: then
    /// nothing that follows can be trusted either.
    fn served_with(&mut self, now: Instant, ask: Ask, sent_at: Instant, value: Value<'_>) {
        let Some(session) = &self.session else { return };
        let number = session.number;
        if ask.question.needs_majority() {
            self.pace.took(now.since(sent_at));
        }
        match ask.question {
            Question::Acquire(id) => self.acquire_answered(now, id, value),
            Question::Holder(wished) => {
                match speech::seen(wished.wish.label.name().as_str(), value) {
                    Ok(seen) => wished.held(seen),
                    Err(error) => self.garbled(Question::Holder(wished), error),
                }
            }
            Question::RenewGuard(id) => self.guard_renewed(now, id, sent_at, value),
            Question::Renew(renew) => self.renewed(now, renew, sent_at, value),
            Question::Release(release) => self.released(now, release, ask.was_sent, value),
            Question::Get { name, reply } => match speech::seen(&name, value) {
                Ok(seen) => {
                    self.served(now);
                    let _left = reply.send(Ok(seen));
                }
                Err(error) => self.garbled(Question::Get { name, reply }, error),
            },
            Question::List { from, prefix, count, reply } => match speech::page(number, value) {
                Ok(page) => {
                    let _left = reply.send(Ok(page));
                }
                Err(error) => {
                    self.garbled(Question::List { from, prefix, count, reply }, error);
                }
            },
            Question::Status { reply } => match value.items() {
                Some(_) => {
                    let status = NodeStatus::new(session.endpoint.clone(), speech::owned(value));
                    let _left = reply.send(Ok(status));
                }
                None => self.garbled(Question::Status { reply }, unexpected("CELL.STATUS")),
            },
            Question::Cancel(number) if value.integer().is_some() => self.cancelled(number),
            Question::Ping if value == Value::Simple(b"PONG") => {}
            question => self.garbled(question, unexpected("PING")),
        }
    }

    /// Its node shows that it reaches a majority.
    fn served(&mut self, now: Instant) {
        if let Some(session) = &mut self.session {
            session.served_at = now;
        }
    }

    /// Whether a node that could not do what was sent then is worse than others. Not if it could
    /// do other things since: then contenders split the vote, and another would find the same.
    fn is_of_no_use(&self, sent_at: Instant) -> bool {
        let has_served = self.session.as_ref().is_some_and(|session| session.served_at >= sent_at);
        !has_served && self.endpoints.len() > 1
    }

    /// Whether to ask elsewhere what this node cannot do.
    fn may_move(&self, now: Instant, ask: &Ask, sent_at: Instant, refusal: &Refusal) -> bool {
        let may = match refusal {
            Refusal::Stopping => true,
            Refusal::Elsewhere(_) => {
                self.is_of_no_use(sent_at) && ask.refused + 1 < self.endpoints.len()
            }
            Refusal::NotHeld | Refusal::Ttl | Refusal::Final(_) => false,
        };
        may && now < ask.give_up_at
    }

    fn refused(&mut self, now: Instant, question: Question, refusal: Refusal) {
        match (question, refusal) {
            (Question::RenewGuard(id), Refusal::NotHeld) => {
                if let Some(guard) = self.guards.remove(id) {
                    guard.ticket.lose();
                }
            }
            (Question::RenewGuard(id), _) => self.guards.renewal_failed(id, now),
            (Question::Renew(Renew { label, tenure, ttl, reply }), refusal) => {
                let (name, fence) = (label.name().to_string(), tenure.fence());
                let _left = reply.send(Err(match refusal {
                    Refusal::NotHeld => RenewError::NotHeld { name, fence },
                    Refusal::Ttl => RenewError::Ttl(self.too_long(ttl)),
                    refusal => RenewError::Ask(refusal.into_ask_error()),
                }));
            }
            (Question::Release(release), Refusal::NotHeld) => release.over(ReleaseOutcome::NotHeld),
            (Question::Acquire(id), Refusal::Elsewhere(error)) => self.no_majority(now, id, error),
            (Question::Acquire(id), refusal) => {
                let Some(wished) = self.wishes.remove(id) else { return };
                let error = match refusal {
                    Refusal::Ttl => AcquireError::Ttl(self.too_long(wished.wish.ttl)),
                    refusal => AcquireError::Ask(refusal.into_ask_error()),
                };
                wished.fail(error);
            }
            (question, refusal) => question.fail(refusal.into_ask_error()),
        }
    }

    fn acquire_answered(&mut self, now: Instant, id: u64, value: Value<'_>) {
        match value {
            Value::Simple(b"QUEUED") => self.queue(now, id),
            Value::Null => {
                self.served(now);
                if let Some(wished) = self.wishes.remove(id) {
                    self.not_granted(now, wished);
                }
            }
            value => match value.items().and_then(Granted::new) {
                Some(granted) => self.granted(now, id, granted),
                None => self.garbled(Question::Acquire(id), unexpected("LEASE.ACQUIRE")),
            },
        }
    }

    pub(super) fn pushed(&mut self, now: Instant, push: Push) {
        match push {
            Push::Granted(number, granted) => {
                if let Some(id) = self.wishes.sent_as(number) {
                    self.granted(now, id, granted);
                }
            }
            Push::Timeout(number) => {
                let id = self.wishes.sent_as(number);
                if let Some(wished) = id.and_then(|id| self.wishes.remove(id)) {
                    self.not_granted(now, wished);
                }
            }
            // Watches have connections of their own.
            Push::Change(_) => {}
        }
    }

    /// Somebody else has it, and the node waits no longer. If the wish does, it is asked anew; if
    /// not, whoever wished hears who has it.
    fn not_granted(&mut self, now: Instant, wished: Wished) {
        if wished.wish.is_abandoned() {
            return;
        }
        if wished.wait(now).is_some() {
            return self.wish_again(wished);
        }
        self.ask(now, Question::Holder(Box::new(wished)));
    }

    fn granted(&mut self, now: Instant, id: u64, granted: Granted) {
        self.served(now);
        let Some(mut wished) = self.wishes.remove(id) else { return };
        let Some(drift) = self.drift() else { return };
        let Granted { tenure, .. } = granted;
        let ttl = granted.ttl.min(wished.wish.ttl);
        // The node cannot have queued it for longer than time has passed.
        let waited = granted.waited.min(now.since(wished.sent_at));
        let ends_at = drift.remote_belief_ends_at(wished.sent_at, waited, ttl);
        if !is_worthwhile(now, wished.wish.ttl, ends_at) {
            // The lease was over, or nearly over, when its grant arrived.
            self.release_in_background(now, wished.wish.label.clone(), tenure);
            if wished.has_time(now) {
                return self.wish_again(wished);
            }
            let problem = "the lease was granted, but its time was over".to_owned();
            let endpoints = vec![self.endpoint()];
            return wished.fail(AskError::Unreachable { endpoints, problem }.into());
        }
        let slot = if wished.wish.renewed { u64::from(self.guards.next_slot()) } else { u64::MAX };
        let belief = Belief::granted(tenure, ends_at);
        let caller = wished.wish.caller.take();
        let Some((ticket, waker)) = caller.and_then(|caller| caller.grant(belief, slot, waited))
        else {
            return self.release_in_background(now, wished.wish.label, tenure);
        };
        if wished.wish.renewed {
            // When the round that granted it began, as far as the client can know.
            let span = drift.belief_span(ttl).as_nanos() as u64;
            let began_at = Instant::from_nanos(ends_at.as_nanos().saturating_sub(span));
            let asked = wished.wish.ttl;
            self.guards.add(ticket, wished.wish.label, (tenure, asked), began_at, ends_at);
        }
        waker.into_iter().for_each(Waker::wake);
    }

    fn drift(&self) -> Option<Drift> {
        self.session.as_ref().map(|session| session.greeting.drift)
    }

    /// A node refused this ttl: it is longer than the longest lease of the cell.
    fn too_long(&self, asked: Ttl) -> TtlError {
        let max_lease =
            self.session.as_ref().map_or(Ttl::MAX, |session| session.greeting.max_lease);
        TtlError::TooLong { asked: asked.as_duration(), max_lease }
    }

    fn guard_renewed(&mut self, now: Instant, id: GuardId, sent_at: Instant, value: Value<'_>) {
        let Some(ttl) = value.integer().and_then(speech::millis) else {
            self.guards.renewal_failed(id, now);
            return self.garbled(Question::RenewGuard(id), unexpected("LEASE.RENEW"));
        };
        self.served(now);
        let Some(drift) = self.drift() else { return };
        let Some(guard) = self.guards.get(id) else { return };
        let ttl = ttl.min(guard.ttl);
        let ends_at = drift.belief_ends_at(sent_at, ttl);
        if !self.guards.renewed(id, ttl, sent_at, ends_at) {
            self.lose(now, id);
        }
    }

    fn renewed(&mut self, now: Instant, renew: Renew, sent_at: Instant, value: Value<'_>) {
        let Some(ttl) = value.integer().and_then(speech::millis) else {
            return self.garbled(Question::Renew(renew), unexpected("LEASE.RENEW"));
        };
        self.served(now);
        let Some(drift) = self.drift() else { return };
        let ttl = ttl.min(renew.ttl);
        let ends_at = drift.belief_ends_at(sent_at, ttl);
        let _left = renew.reply.send(Ok((Belief::granted(renew.tenure, ends_at), ttl)));
    }

    fn released(&mut self, now: Instant, release: Release, was_sent: bool, value: Value<'_>) {
        match value.integer() {
            Some(1) => release.over(ReleaseOutcome::Confirmed),
            // The node that was asked before may have released it.
            Some(0) if was_sent => release.over(ReleaseOutcome::Confirmed),
            Some(0) => release.over(ReleaseOutcome::NotHeld),
            _ => return self.garbled(Question::Release(release), unexpected("LEASE.RELEASE")),
        }
        self.served(now);
    }

    /// An answer that makes no sense: whoever asked hears so, and nothing more of this connection
    /// is believed.
    fn garbled(&mut self, question: Question, error: AskError) {
        self.leave_for(error.clone());
        if let Some(session) = &mut self.session {
            session.is_garbled = true;
        }
        self.fail(question, error);
    }

    pub(super) fn endpoint(&self) -> String {
        self.session.as_ref().map(|session| session.endpoint.clone()).unwrap_or_default()
    }
}
