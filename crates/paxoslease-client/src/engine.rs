//! The state machine of a client: requests, acquires and guards, and at most one connection.
//!
//! Commands and bytes go in, bytes come out. `now` is always an argument, and the caller reads it
//! *before* it sends the bytes (T2). Whatever a node replies, a lease lasts at most the requested
//! ttl, counted from then. There is no socket and no timer here; `driver` has those.

mod acquires;
pub(crate) mod protocol;
mod renewal_timeout;
mod replies;
mod request;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::Duration;

use paxoslease_core::{Instant, Label, Tenure};
use paxoslease_holder::AskError;
use paxoslease_holder::transport::{
    Caller, Due, Guard, GuardId, Guards, ReleaseOutcome, Request, Span,
};
use paxoslease_wire::resp::{RespError, Value};

use crate::command::{Command, Keep, Query, Release, ReleaseReply, Renew};
use crate::endpoints::Endpoints;
use acquires::Acquires;
use protocol::{Greeting, Push};
use renewal_timeout::RenewalTimeout;
use request::{NodeRequest, PendingRequest};

/// How many requests are in flight at once. The rest waits here, not in the buffers of a node.
const IN_FLIGHT_MAX: usize = 1024;

/// How long the node of a needed connection may be silent before the client probes it.
const SILENCE_MAX: Duration = Duration::from_secs(2);

/// How often the client asks its node who the members are.
pub(crate) const REFRESH: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(crate) struct Engine {
    endpoints: Endpoints,
    request_timeout: Duration,
    renewal_timeout: RenewalTimeout,
    guards: Guards,
    acquires: Acquires,
    /// Requests to send, in this order.
    pending: VecDeque<PendingRequest>,
    /// Acquires that wait here because [`Acquires::is_queue_full`].
    parked: VecDeque<PendingRequest>,
    session: Option<Session>,
    /// How many sessions there were.
    sessions: u64,
    out: Vec<u8>,
    /// Whether an endpoint has failed since one worked, or since all have failed.
    has_pass_begun: bool,
    /// Set while the client stops: the deadline of its releases.
    stop_by: Option<Instant>,
}

/// One connection, from the greeting to its end.
#[derive(Debug)]
struct Session {
    number: u64,
    endpoint: String,
    greeting: Greeting,
    /// The node answers in this order.
    in_flight: VecDeque<Sent>,
    /// Refused requests, for another node.
    again: Vec<PendingRequest>,
    began_at: Instant,
    heard_at: Instant,
    /// When the client asks for the members again.
    refresh_at: Instant,
    /// When the node last showed that it reaches a majority.
    served_at: Instant,
    /// Whether the node has sent any reply except an error.
    was_useful: bool,
    /// Why the client should close this connection.
    leave_reason: Option<AskError>,
    /// Whether a reply did not fit its request. The engine ignores all later ones.
    is_out_of_step: bool,
}

#[derive(Debug)]
struct Sent {
    pending: PendingRequest,
    sent_at: Instant,
}

impl Engine {
    pub(crate) fn new(
        now: Instant,
        endpoints: Endpoints,
        request_timeout: Duration,
        seed: u64,
    ) -> Self {
        Self {
            endpoints,
            request_timeout,
            renewal_timeout: RenewalTimeout::new(request_timeout),
            guards: Guards::new(seed, now),
            acquires: Acquires::new(request_timeout),
            pending: VecDeque::new(),
            parked: VecDeque::new(),
            session: None,
            sessions: 0,
            out: Vec::new(),
            has_pass_begun: false,
            stop_by: None,
        }
    }

    /// Handles a command of a caller, except those that get a connection of their own.
    pub(crate) fn command(&mut self, now: Instant, command: Command) {
        if self.stop_by.is_some() {
            // The client has released its leases. Callers notice that their reply is dropped.
            return drop(command);
        }
        match command {
            Command::Request(request) => self.request(now, request),
            Command::ForceRelease(release) => self.enqueue(now, NodeRequest::Release(release)),
            Command::Query(query) => self.enqueue(now, NodeRequest::Query(query)),
            Command::Stop => self.stop(now),
            Command::StatusOf { .. }
            | Command::MemberStatus { .. }
            | Command::Members { .. }
            | Command::Watch(_)
            | Command::Observe { .. } => unreachable!("has a connection of its own"),
        }
    }

    fn enqueue(&mut self, now: Instant, request: NodeRequest) {
        self.push(PendingRequest::new(request, now.after(self.request_timeout)));
    }

    fn push(&mut self, pending: PendingRequest) {
        self.pending.push_back(PendingRequest { is_late: self.has_pass_begun, ..pending });
    }

    fn request(&mut self, now: Instant, request: Request) {
        match request {
            Request::Acquire(acquire) => {
                let pending = self.acquires.add(now, acquire);
                self.push(pending);
            }
            Request::Abandon(ticket) => self.abandon(now, &ticket),
            Request::Release(caller) => self.release(now, caller),
            Request::RenewTenure { label, tenure, ttl, reply } => {
                self.enqueue(now, NodeRequest::Renew(Renew { label, tenure, ttl, reply }));
            }
            Request::KeepTenure { label, tenure, lasts, reply } => {
                // Without a connection the clock drift is unknown, and nothing is believed for now.
                let ends_at = self
                    .drift()
                    .map_or(now, |drift| Span::durable(lasts).belief_ends_at(drift, now));
                let guard = self.guards.keep(label.name(), tenure, lasts, ends_at);
                let keep = Keep { label, tenure, lasts, guard, reply };
                self.enqueue(now, NodeRequest::Keep(keep));
            }
            Request::ReleaseTenure { label, tenure, is_durable, reply } => {
                let reply = reply.map_or(ReleaseReply::None, ReleaseReply::Caller);
                let release = Release { label, tenure, forced: false, is_durable, reply };
                self.enqueue(now, NodeRequest::Release(release));
            }
        }
    }

    /// P6: the guard has dropped its belief. From now on the lease is not renewed.
    fn release(&mut self, now: Instant, caller: Caller) {
        let id = self.guards.of(caller.ticket());
        let Some(guard) = id.and_then(|id| self.guards.remove(id)) else {
            let waker = caller.released(ReleaseOutcome::NotHeld);
            return waker.into_iter().for_each(std::task::Waker::wake);
        };
        let (is_durable, reply) = (guard.is_durable(), ReleaseReply::Guard(caller));
        let Guard { label, tenure, .. } = guard;
        let release = Release { label, tenure, forced: false, is_durable, reply };
        self.enqueue(now, NodeRequest::Release(release));
    }

    /// Releases a lease without a caller that waits for the result.
    fn release_in_background(
        &mut self,
        now: Instant,
        label: Label,
        tenure: Tenure,
        is_durable: bool,
    ) {
        let reply = ReleaseReply::None;
        let release = Release { label, tenure, forced: false, is_durable, reply };
        self.enqueue(now, NodeRequest::Release(release));
    }

    /// Releases the lease of a guard that is gone.
    fn release_guarded(&mut self, now: Instant, guard: Guard) {
        let is_durable = guard.is_durable();
        self.release_in_background(now, guard.label, guard.tenure, is_durable);
    }

    /// Ends every belief and releases the leases. [`Self::is_done`] tells when that is done.
    pub(crate) fn stop(&mut self, now: Instant) {
        if self.stop_by.is_some() {
            return;
        }
        self.stop_by = Some(now.after(self.request_timeout));
        self.acquires.refuse_all(&AskError::Stopped);
        self.parked.clear();
        let is_release =
            |pending: &PendingRequest| matches!(pending.request, NodeRequest::Release(_));
        for pending in std::mem::take(&mut self.pending) {
            if is_release(&pending) {
                self.pending.push_back(pending);
            } else {
                pending.request.fail(AskError::Stopped);
            }
        }
        for guard in self.guards.give_up() {
            self.release_guarded(now, guard);
        }
    }

    /// Whether a client that stops has released its leases, or has no time left for that.
    pub(crate) fn is_done(&self, now: Instant) -> bool {
        let Some(stop_by) = self.stop_by else { return false };
        let mut in_flight = self.session.iter().flat_map(|session| &session.in_flight);
        // The client has to release the grants of these acquires.
        let matters = |request: &NodeRequest| {
            matches!(request, NodeRequest::Release(_) | NodeRequest::Acquire(_))
        };
        let is_busy =
            !self.pending.is_empty() || in_flight.any(|sent| matters(&sent.pending.request));
        now >= stop_by || !is_busy
    }

    /// Whether the client needs a connection.
    pub(crate) fn wants_session(&self) -> bool {
        !self.pending.is_empty() || !self.guards.is_empty()
    }

    /// A connection is open, and its node has greeted the client.
    pub(crate) fn connected(&mut self, now: Instant, endpoint: &str, greeting: Greeting) {
        self.endpoints.learn(&greeting);
        self.sessions += 1;
        self.session = Some(Session {
            number: self.sessions,
            endpoint: endpoint.to_owned(),
            greeting,
            in_flight: VecDeque::new(),
            again: Vec::new(),
            began_at: now,
            heard_at: now,
            refresh_at: now.after(REFRESH),
            served_at: Instant::ZERO,
            was_useful: false,
            leave_reason: None,
            is_out_of_step: false,
        });
    }

    /// The connection is closed. Its requests become pending again, for another node. Returns
    /// whether the node has ever replied with anything except an error.
    pub(crate) fn disconnected(&mut self) -> bool {
        let Some(session) = self.session.take() else { return false };
        self.out.clear();
        let mut again = VecDeque::new();
        let in_flight = session.in_flight.into_iter().map(|sent| sent.pending);
        for mut pending in session.again.into_iter().chain(in_flight) {
            pending.was_sent = true;
            match pending.request {
                NodeRequest::Acquire(id) if !self.acquires.unsend(id) => {}
                NodeRequest::Hello | NodeRequest::Ping | NodeRequest::Cancel(_) => {}
                _ => again.push_back(pending),
            }
        }
        let give_up_at = Instant::MAX;
        again.extend(
            self.acquires
                .unsend_queued()
                .map(|id| PendingRequest::new(NodeRequest::Acquire(id), give_up_at)),
        );
        again.append(&mut self.parked);
        again.append(&mut self.pending);
        self.pending = again;
        self.has_pass_begun &= !session.was_useful;
        session.was_useful
    }

    /// An endpoint failed, and others are still to be tried.
    pub(crate) const fn endpoint_failed(&mut self) {
        self.has_pass_begun = true;
    }

    /// No endpoint could be reached. Requests that were never sent fail at once, unless the dials
    /// were too hasty to tell, or some of them came before the request; others are retried while
    /// they have time. Guards retry as long as they hold. If the nodes do not trust the client, or
    /// the client does not trust them, only guards retry.
    pub(crate) fn unreachable(&mut self, now: Instant, error: &AskError, was_hasty: bool) {
        self.has_pass_begun = false;
        for mut pending in std::mem::take(&mut self.pending) {
            let is_late = std::mem::take(&mut pending.is_late);
            let may_retry = pending.was_sent || was_hasty || is_late;
            let keep = match &pending.request {
                NodeRequest::RenewGuard(id) => self.guards.get(*id).is_some(),
                _ if error.is_lack_of_trust() => false,
                NodeRequest::Acquire(id) => self.acquires.outlasts(*id, now, may_retry),
                _ => may_retry && now < pending.give_up_at,
            };
            if keep && self.stop_by.is_none() {
                if let NodeRequest::Acquire(id) = pending.request {
                    self.acquires.remember_unreachable(id, error);
                }
                self.pending.push_back(pending);
            } else {
                self.give_up(now, pending, error);
            }
        }
    }

    /// Handles received bytes, and returns how many it used.
    ///
    /// # Errors
    /// When the bytes are not valid RESP. The caller has to close the connection then.
    pub(crate) fn received(&mut self, now: Instant, bytes: &[u8]) -> Result<usize, RespError> {
        let mut used = 0;
        while let Some((value, len)) = Value::parse(&bytes[used..])? {
            used += len;
            let Some(session) = self.session.as_mut().filter(|session| !session.is_out_of_step)
            else {
                return Ok(bytes.len());
            };
            session.heard_at = now;
            session.was_useful |= !matches!(value, Value::Error(_));
            if let Value::Push(items) = value {
                if let Some(push) = Push::new(items) {
                    self.pushed(now, push);
                }
                continue;
            }
            match session.in_flight.pop_front() {
                Some(sent) => self.answered(now, sent, value),
                None => {
                    session.is_out_of_step = true;
                    self.leave_node("it sent a reply without a request");
                }
            }
        }
        Ok(used)
    }

    /// Does what is due, and writes as many requests as may be in flight.
    pub(crate) fn tick(&mut self, now: Instant) {
        self.check_guards(now);
        self.check_acquires(now);
        self.check_session(now);
        self.refresh(now);
        self.send_pending(now);
    }

    fn check_guards(&mut self, now: Instant) {
        while let Some((id, due)) = self.guards.due(now) {
            match due {
                // No deadline: the guard has its own.
                Due::Renew => {
                    self.pending
                        .push_back(PendingRequest::new(NodeRequest::RenewGuard(id), Instant::MAX));
                }
                Due::Late { sent_at: since } => {
                    let is_only = self.endpoints.len() == 1;
                    let is_late = |session: &Session| {
                        // The only endpoint may be slow, as long as it sends anything.
                        session.began_at <= since && (!is_only || session.heard_at < since)
                    };
                    if self.session.as_ref().is_some_and(is_late) {
                        self.leave_node("it does not answer renewals in time");
                    }
                }
                Due::Lose => self.lose(now, id),
            }
        }
    }

    /// A lease is over. Acceptors may have renewed it without the client's knowledge, so the client
    /// also releases it, for the clients that wait for it.
    fn lose(&mut self, now: Instant, id: GuardId) {
        let Some(guard) = self.guards.remove(id) else { return };
        guard.ticket.lose();
        self.release_guarded(now, guard);
    }

    fn check_session(&mut self, now: Instant) {
        let Some(session) = &mut self.session else { return };
        if let Some(sent) = session.in_flight.front() {
            if now >= session.stalls_at(sent, self.request_timeout) {
                self.leave_node("it does not answer in time");
            }
        } else if self.pending.is_empty()
            && (!self.guards.is_empty() || !self.acquires.is_empty())
            && now >= session.heard_at.after(SILENCE_MAX)
        {
            let request = self.liveness_probe();
            self.enqueue(now, request);
        }
    }

    /// Asks for the members again when it is time. This request belongs to its connection: if that
    /// ends, the next greeting answers it.
    fn refresh(&mut self, now: Instant) {
        let is_due =
            |session: &Session| now >= session.refresh_at && session.leave_reason.is_none();
        if !self.session.as_ref().is_some_and(is_due) {
            return;
        }
        let pending = PendingRequest::new(NodeRequest::Hello, now.after(self.request_timeout));
        self.put(now, &pending.request);
        let session = self.session.as_mut().expect("looked at above");
        session.refresh_at = now.after(REFRESH);
        session.in_flight.push_back(Sent { pending, sent_at: now });
    }

    /// The request to a silent node. A node with queued acquires may have lost its majority; then
    /// another node could grant them. So the probe needs a majority.
    fn liveness_probe(&self) -> NodeRequest {
        match self.acquires.queued_name() {
            Some(name) if self.endpoints.len() > 1 => {
                let (reply, _dropped) = oneshot::channel();
                NodeRequest::Query(Query::Get { name: name.into(), reply })
            }
            _ => NodeRequest::Ping,
        }
    }

    fn send_pending(&mut self, now: Instant) {
        loop {
            let Some(session) = &self.session else { return };
            if session.leave_reason.is_some() || session.in_flight.len() >= IN_FLIGHT_MAX {
                return;
            }
            let is_full = self.acquires.is_queue_full();
            let parked = if is_full { None } else { self.parked.pop_front() };
            let Some(pending) = parked.or_else(|| self.pending.pop_front()) else { return };
            if is_full
                && let NodeRequest::Acquire(id) = pending.request
                && self.acquires.waits(id, now)
            {
                // The acquire has its own deadline.
                self.parked.push_back(PendingRequest { give_up_at: Instant::MAX, ..pending });
            } else if now >= pending.give_up_at || self.has_refused(now, &pending) {
                self.give_up(now, pending, &self.unanswered());
            } else if self.put(now, &pending.request) {
                let session = self.session.as_mut().expect("looked at above");
                session.in_flight.push_back(Sent { pending, sent_at: now });
            }
        }
    }

    /// Whether this node has refused the request before. The client has tried all others since
    /// then. Guards and acquires that wait ask again nevertheless.
    fn has_refused(&self, now: Instant, pending: &PendingRequest) -> bool {
        let asks_again = match pending.request {
            NodeRequest::RenewGuard(_) => true,
            NodeRequest::Acquire(id) => self.acquires.waits(id, now),
            _ => false,
        };
        let endpoint = self.session.as_ref().map(|session| &session.endpoint);
        !asks_again && endpoint.is_some_and(|endpoint| pending.refused_by.contains(endpoint))
    }

    /// Makes the client try another node, because this one does not answer as it should.
    fn leave_node(&mut self, why: &str) {
        let (endpoints, problem) = (vec![self.endpoint()], why.to_owned());
        self.leave_because(AskError::Unreachable { endpoints, problem });
    }

    /// Makes the client try another node, for the first reason that comes.
    fn leave_because(&mut self, why: AskError) {
        if let Some(session) = &mut self.session {
            session.leave_reason.get_or_insert(why);
        }
    }

    /// How long a connection attempt may take while leases need renewals; `None` for the
    /// configured connect timeout.
    pub(crate) fn dial_timeout(&self) -> Option<Duration> {
        let ttl = self.guards.ttl_min().filter(|_| self.endpoints.len() > 1)?;
        Some(self.renewal_timeout.for_endpoints(self.endpoints.len())(ttl, 1))
    }

    /// Why the client should close this connection and try another node, if it should.
    pub(crate) fn leave_reason(&self) -> Option<&AskError> {
        self.session.as_ref()?.leave_reason.as_ref()
    }

    fn unanswered(&self) -> AskError {
        let problem = "no answer in time".to_owned();
        AskError::Unreachable { endpoints: self.endpoints.all(), problem }
    }

    /// The bytes to send. The caller drains what it has sent.
    pub(crate) const fn out(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    /// When the caller has to call [`Self::tick`], if nothing else happens.
    pub(crate) fn next_at(&self) -> Option<Instant> {
        let session_at = self.session.as_ref().map(|session| {
            let silent_at = session.heard_at.after(SILENCE_MAX);
            let idle = self.guards.is_empty() && self.acquires.is_empty();
            let checked_at = match session.in_flight.front() {
                Some(sent) => session.stalls_at(sent, self.request_timeout),
                None if idle => Instant::MAX,
                None => silent_at,
            };
            checked_at.min(session.refresh_at)
        });
        let times = [self.guards.next_at(), self.acquires.next_at(), session_at, self.stop_by];
        times.into_iter().flatten().min().filter(|at| *at < Instant::MAX)
    }
}

impl Session {
    /// When the client stops waiting for the reply to the oldest request: after half of the request
    /// timeout, so that the other half is left for another node.
    fn stalls_at(&self, sent: &Sent, request_timeout: Duration) -> Instant {
        let stalls_at = sent.sent_at.max(self.heard_at).after(request_timeout / 2);
        stalls_at.min(sent.pending.give_up_at)
    }
}
