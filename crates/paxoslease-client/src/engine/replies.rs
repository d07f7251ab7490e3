//! What the engine does with a reply. Here a grant becomes a belief, within its bounds (T2): not
//! longer than requested, not queued for longer than time has passed, and not over already.

use std::task::Waker;

use paxoslease_core::{Belief, Drift, Instant, Permits, Tenure, Ttl, TtlError};
use paxoslease_holder::transport::{GuardId, ReleaseOutcome, Span, is_worthwhile};
use paxoslease_holder::{AcquireError, AskError, RenewError};
use paxoslease_wire::resp::Value;

use super::acquires::PendingAcquire;
use super::protocol::{self, Granted, Greeting, Push, Refusal, unexpected};
use super::request::{NodeRequest, PendingRequest};
use super::{Engine, Sent};
use crate::command::{Keep, Query, Release, Renew, Reply};
use crate::status::NodeStatus;

impl Engine {
    pub(super) fn answered(&mut self, now: Instant, sent: Sent, value: Value<'_>) {
        let Sent { mut pending, sent_at } = sent;
        if let NodeRequest::Acquire(id) = pending.request
            && !self.acquires.is_open(id, sent_at)
        {
            // A push has overtaken this reply: the acquire is gone, or was sent again.
            return;
        }
        let Value::Error(text) = value else {
            return self.served_with(now, pending, sent_at, value);
        };
        let refusal = Refusal::new(text);
        if !self.may_move(now, &pending, sent_at, &refusal) {
            if let NodeRequest::RenewGuard(_) = pending.request
                && let Refusal::Elsewhere(error) = &refusal
                && self.is_worse_than_others(sent_at)
            {
                // All nodes have refused it. The next try begins at another node.
                self.leave_because(error.clone());
            }
            return self.refused(now, pending.request, refusal);
        }
        match refusal {
            Refusal::Elsewhere(error) => {
                pending.refused_by.push(self.endpoint());
                self.remember(&mut pending, &error);
                self.leave_because(error);
            }
            _ => self.leave_node(&String::from_utf8_lossy(text)),
        }
        if let Some(session) = &mut self.session {
            session.again.push(pending);
        }
    }

    /// Handles any reply except an error. A reply that does not fit its request may belong to
    /// another one. The engine trusts no later reply of that connection either.
    fn served_with(
        &mut self,
        now: Instant,
        pending: PendingRequest,
        sent_at: Instant,
        value: Value<'_>,
    ) {
        if pending.request.needs_majority() {
            self.renewal_timeout.record(now.since(sent_at));
        }
        match pending.request {
            NodeRequest::Acquire(id) => self.acquire_answered(now, id, value),
            NodeRequest::Holder(id) => {
                let Some(label) = self.acquires.held_label(id) else { return };
                match protocol::parse_get(label.name().as_str(), value) {
                    Ok(seen) => self.holder_seen(now, id, seen),
                    Err(error) => self.unexpected_reply(now, NodeRequest::Holder(id), error),
                }
            }
            NodeRequest::RenewGuard(id) => self.guard_renewed(now, id, sent_at, value),
            NodeRequest::Renew(renew) => self.renewed(now, renew, sent_at, value),
            NodeRequest::Keep(keep) => self.kept(now, keep, sent_at, value),
            NodeRequest::Release(release) => self.released(now, release, pending.was_sent, value),
            NodeRequest::Query(query) => self.query_answered(now, query, value),
            NodeRequest::Cancel(number) if value.integer().is_some() => self.cancelled(number),
            NodeRequest::Hello => match Greeting::new(value) {
                Ok(greeting) => self.endpoints.learn(&greeting),
                Err(error) => self.unexpected_reply(now, NodeRequest::Hello, error),
            },
            NodeRequest::Ping if value == Value::Simple(b"PONG") => {}
            request => self.unexpected_reply(now, request, unexpected("PING")),
        }
    }

    fn query_answered(&mut self, now: Instant, query: Query, value: Value<'_>) {
        let Some(session) = &self.session else { return };
        match query {
            Query::Get { name, reply } => {
                let seen = protocol::parse_get(&name, value);
                if seen.is_ok() {
                    self.served(now);
                }
                self.answer_query(reply, seen);
            }
            Query::List { reply, .. } => {
                let page = protocol::parse_list(session.number, value);
                self.answer_query(reply, page);
            }
            Query::Status { reply } => {
                let fields = value.items().map(|_| protocol::owned_value(value));
                let status = fields.map(|fields| NodeStatus::new(session.endpoint.clone(), fields));
                self.answer_query(reply, status.ok_or_else(|| unexpected("CELL.STATUS")));
            }
        }
    }

    fn answer_query<T>(&mut self, reply: Reply<T>, answer: Result<T, AskError>) {
        if let Err(error) = &answer {
            self.distrust(error.clone());
        }
        let _left = reply.send(answer);
    }

    /// The node of the session has shown that it reaches a majority.
    fn served(&mut self, now: Instant) {
        if let Some(session) = &mut self.session {
            session.served_at = now;
        }
    }

    /// Whether another node may do better with a request that was sent then. If this node has
    /// reached a majority since, contenders have split the vote, and another node would fail too.
    fn is_worse_than_others(&self, sent_at: Instant) -> bool {
        let has_served = self.session.as_ref().is_some_and(|session| session.served_at >= sent_at);
        !has_served && self.endpoints.len() > 1
    }

    /// Whether to retry a refused request at another node.
    fn may_move(
        &self,
        now: Instant,
        pending: &PendingRequest,
        sent_at: Instant,
        refusal: &Refusal,
    ) -> bool {
        let may = match refusal {
            Refusal::Stopping => true,
            Refusal::Elsewhere(_) => {
                self.is_worse_than_others(sent_at)
                    && pending.refused_by.len() + 1 < self.endpoints.len()
            }
            Refusal::NotHeld | Refusal::Unknown | Refusal::Ttl | Refusal::Final(_) => false,
        };
        may && now < pending.give_up_at
    }

    fn refused(&mut self, now: Instant, request: NodeRequest, refusal: Refusal) {
        match (request, refusal) {
            (NodeRequest::RenewGuard(id), Refusal::NotHeld) => {
                if let Some(guard) = self.guards.remove(id) {
                    guard.ticket.lose();
                }
            }
            (NodeRequest::RenewGuard(id), _) => self.guards.renewal_failed(id, now),
            (NodeRequest::Renew(Renew { label, tenure, ttl, reply }), refusal) => {
                let (name, fence) = (label.name().to_string(), tenure.fence());
                let _left = reply.send(Err(match refusal {
                    Refusal::NotHeld => RenewError::NotHeld { name, fence },
                    Refusal::Ttl => RenewError::Ttl(self.too_long(ttl)),
                    refusal => RenewError::Ask(refusal.into_ask_error()),
                }));
            }
            (NodeRequest::Keep(keep), Refusal::NotHeld) => self.not_kept(keep),
            (NodeRequest::Release(release), Refusal::NotHeld) => {
                release.over(ReleaseOutcome::NotHeld);
            }
            (NodeRequest::Release(release), Refusal::Unknown) => {
                release.over(ReleaseOutcome::Confirmed);
            }
            (NodeRequest::Acquire(id), Refusal::Elsewhere(error)) => {
                self.no_majority(now, id, error);
            }
            (NodeRequest::Acquire(id), refusal) => {
                let Some(acquire) = self.acquires.remove(id) else { return };
                let error = match refusal {
                    Refusal::Ttl => AcquireError::Ttl(self.too_long(acquire.span.ttl)),
                    refusal => AcquireError::Ask(refusal.into_ask_error()),
                };
                acquire.fail(error);
            }
            (request, refusal) => self.fail(now, request, refusal.into_ask_error()),
        }
    }

    fn acquire_answered(&mut self, now: Instant, id: u64, value: Value<'_>) {
        match value {
            Value::Simple(b"QUEUED") => self.queue(now, id),
            Value::Null => {
                self.served(now);
                if let Some(acquire) = self.acquires.remove(id) {
                    self.not_granted(now, acquire);
                }
            }
            value => match value.items().and_then(Granted::new) {
                Some(granted) => self.granted(now, id, granted),
                None => {
                    self.unexpected_reply(
                        now,
                        NodeRequest::Acquire(id),
                        unexpected("LEASE.ACQUIRE"),
                    );
                }
            },
        }
    }

    pub(super) fn pushed(&mut self, now: Instant, push: Push) {
        match push {
            Push::Granted(number, granted) => {
                if let Some(id) = self.acquires.sent_as(number) {
                    self.granted(now, id, granted);
                }
            }
            Push::Timeout(number) => {
                let id = self.acquires.sent_as(number);
                if let Some(acquire) = id.and_then(|id| self.acquires.remove(id)) {
                    self.not_granted(now, acquire);
                }
            }
            Push::Members => {
                if let Some(session) = &mut self.session {
                    session.refresh_at = now;
                }
            }
            // Watches have connections of their own.
            Push::Change(_) => {}
        }
    }

    /// Another client holds the lease, and the node no longer waits. If the caller waits, the
    /// client sends the acquire again. If not, it looks up the holder for the error, unless it
    /// knows the holder.
    fn not_granted(&mut self, now: Instant, acquire: PendingAcquire) {
        if acquire.is_abandoned() {
            return;
        }
        if acquire.queue_options(now).is_some() {
            return self.retry_acquire(acquire);
        }
        self.denied(now, acquire);
    }

    fn granted(&mut self, now: Instant, id: u64, granted: Granted) {
        self.served(now);
        let Some(mut acquire) = self.acquires.remove(id) else { return };
        let Some(drift) = self.drift() else { return };
        let Granted { tenure, permit, .. } = granted;
        let (asked, permits) = (acquire.label.clone(), acquire.permits.map(Permits::count));
        if permit.is_some() != permits.is_some() || permit > permits {
            let error = unexpected("LEASE.ACQUIRE");
            self.distrust(error.clone());
            return acquire.fail(error.into());
        }
        if let Some(label) = permit.and_then(|number| asked.permit(number).ok()) {
            acquire.label = label;
        }
        let (span, is_durable) = (acquire.span, acquire.span.lasts.is_some());
        // The node cannot have queued the acquire for longer than time has passed.
        let waited = granted.waited.min(now.since(acquire.sent_at));
        let began_at = drift.remote_began_at(acquire.sent_at, waited);
        // Zero for ever: a node grants a durable lease for as long as it was asked for.
        let ttl = if is_durable { span.ttl } else { granted.ttl.min(span.ttl) };
        let ends_at = Span { ttl, ..span }.belief_ends_at(drift, began_at);
        if !is_worthwhile(now, span.ttl, ends_at) {
            // The lease was over, or nearly over, when its grant arrived.
            self.release_in_background(now, acquire.label.clone(), tenure, is_durable);
            if acquire.has_time(now) {
                acquire.label = asked;
                return self.retry_acquire(acquire);
            }
            let problem = "the lease was granted, but its time was over".to_owned();
            let endpoints = vec![self.endpoint()];
            return acquire.fail(AskError::Unreachable { endpoints, problem }.into());
        }
        let slot = if acquire.renewed { u64::from(self.guards.next_slot()) } else { u64::MAX };
        let belief = Belief::granted(tenure, ends_at);
        let caller = acquire.caller.take();
        caller.iter().for_each(|caller| caller.ticket().lock().permit = permit);
        let Some((ticket, waker)) = caller.and_then(|caller| caller.grant(belief, slot, waited))
        else {
            return self.release_in_background(now, acquire.label, tenure, is_durable);
        };
        if acquire.renewed {
            self.guards.add(ticket, acquire.label, (tenure, span), began_at, ends_at);
        }
        waker.into_iter().for_each(Waker::wake);
    }

    pub(super) fn drift(&self) -> Option<Drift> {
        self.session.as_ref().map(|session| session.greeting.drift)
    }

    /// A node refused this ttl: it is longer than the longest lease of the cell.
    fn too_long(&self, asked: Ttl) -> TtlError {
        let max_lease =
            self.session.as_ref().map_or(Ttl::MAX, |session| session.greeting.max_lease);
        TtlError::TooLong { asked: asked.as_duration(), max_lease }
    }

    fn guard_renewed(&mut self, now: Instant, id: GuardId, sent_at: Instant, value: Value<'_>) {
        if let Some(fence) = protocol::parse_kept(value) {
            return self.guard_kept(now, id, fence, sent_at);
        }
        let Some(ttl) = value.decimal().and_then(protocol::parse_ttl) else {
            self.guards.renewal_failed(id, now);
            return self.unexpected_reply(
                now,
                NodeRequest::RenewGuard(id),
                unexpected("LEASE.RENEW"),
            );
        };
        self.served(now);
        let Some(drift) = self.drift() else { return };
        // K10: a renewal from before the holder asked for a durable lease proves nothing any more.
        let Some(guard) = self.guards.get(id).filter(|guard| !guard.is_durable()) else { return };
        let ttl = ttl.min(guard.ttl());
        let ends_at = drift.belief_ends_at(sent_at, ttl);
        if !self.guards.renewed(id, ttl, sent_at, ends_at) {
            self.lose(now, id);
        }
    }

    /// The lease of a guard is durable. Another client may have made it so, by its fence. If its
    /// fence has risen, the guard's is too low for stores.
    fn guard_kept(&mut self, now: Instant, id: GuardId, fence: Tenure, sent_at: Instant) {
        self.served(now);
        let Some(drift) = self.drift() else { return };
        if fence != id.tenure || !self.guards.kept(id, drift, sent_at) {
            self.lose(now, id);
        }
    }

    fn kept(&mut self, now: Instant, keep: Keep, sent_at: Instant, value: Value<'_>) {
        let Some(fence) = protocol::parse_kept(value) else {
            return self.unexpected_reply(now, NodeRequest::Keep(keep), unexpected("LEASE.RENEW"));
        };
        let Some(drift) = self.drift() else { return };
        if let Some(id) = keep.guard {
            self.guard_kept(now, id, fence, sent_at);
            if self.guards.get(id).is_none() {
                return self.not_kept(keep);
            }
        }
        self.served(now);
        let ends_at = Span::durable(keep.lasts).belief_ends_at(drift, sent_at);
        let _left = keep.reply.send(Ok(Belief::granted(fence, ends_at)));
    }

    /// The tenure is over, or its guard is.
    fn not_kept(&mut self, keep: Keep) {
        let Keep { label, tenure, guard, reply, .. } = keep;
        if let Some(guard) = guard.and_then(|id| self.guards.remove(id)) {
            guard.ticket.lose();
        }
        let (name, fence) = (label.name().to_string(), tenure.fence());
        let _left = reply.send(Err(RenewError::NotHeld { name, fence }));
    }

    fn renewed(&mut self, now: Instant, renew: Renew, sent_at: Instant, value: Value<'_>) {
        let kept = protocol::parse_kept(value);
        let fence = kept.unwrap_or(renew.tenure);
        // A durable lease lasts for the ttl at least.
        let ttl = value.decimal().and_then(protocol::parse_ttl).or(kept.map(|_| renew.ttl));
        let Some(ttl) = ttl else {
            return self.unexpected_reply(
                now,
                NodeRequest::Renew(renew),
                unexpected("LEASE.RENEW"),
            );
        };
        self.served(now);
        let Some(drift) = self.drift() else { return };
        let ttl = ttl.min(renew.ttl);
        let ends_at = drift.belief_ends_at(sent_at, ttl);
        let _left = renew.reply.send(Ok((Belief::granted(fence, ends_at), ttl)));
    }

    fn released(&mut self, now: Instant, release: Release, was_sent: bool, value: Value<'_>) {
        match value.integer() {
            Some(1) => release.over(ReleaseOutcome::Confirmed),
            // The node that was asked before may have released it.
            Some(0) if was_sent => release.over(ReleaseOutcome::Confirmed),
            Some(0) => release.over(ReleaseOutcome::NotHeld),
            _ => {
                return self.unexpected_reply(
                    now,
                    NodeRequest::Release(release),
                    unexpected("LEASE.RELEASE"),
                );
            }
        }
        self.served(now);
    }

    /// The reply does not fit its request. The caller gets an error.
    fn unexpected_reply(&mut self, now: Instant, request: NodeRequest, error: AskError) {
        self.distrust(error.clone());
        self.fail(now, request, error);
    }

    /// A reply did not fit its request. The engine ignores the rest of this connection.
    fn distrust(&mut self, error: AskError) {
        self.leave_because(error);
        if let Some(session) = &mut self.session {
            session.is_out_of_step = true;
        }
    }

    pub(super) fn endpoint(&self) -> String {
        self.session.as_ref().map(|session| session.endpoint.clone()).unwrap_or_default()
    }
}
