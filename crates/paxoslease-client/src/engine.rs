//! Everything a client knows, as a state machine: questions, wishes and guards on one side, one
//! connection after the other on the other side.
//!
//! Commands and bytes go in, bytes come out; `now` is always an argument, read *before* the bytes
//! that are made with it leave (T2). Whatever a server says, a lease lasts no longer than it was
//! asked for, counted so. There is no socket here and no timer; [`crate::driver`] has those.

mod answers;
mod ask;
mod pace;
pub(crate) mod speech;
#[cfg(test)]
mod tests;
mod wishes;

use std::collections::VecDeque;
use std::time::Duration;

use paxoslease_core::{Instant, Label, Tenure};
use paxoslease_holder::AskError;
use paxoslease_holder::transport::{
    AcquireRequest, Caller, Due, GuardId, Guards, ReleaseOutcome, Request,
};
use paxoslease_wire::resp::{RespError, Value};

use crate::command::{Command, Release, ReleaseReply, Renew};
use ask::{Ask, Question};
use pace::Pace;
use speech::{Greeting, Push};
use wishes::{Wish, Wishes};

/// How many questions are on their way at once; the rest waits here, not in a node's buffers.
const IN_FLIGHT_MAX: usize = 1024;

/// How long a connection that matters may be silent before it is asked for a sign of life.
const SILENCE_MAX: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(crate) struct Engine {
    endpoints: Vec<String>,
    request_timeout: Duration,
    pace: Pace,
    guards: Guards,
    wishes: Wishes,
    /// What is to be asked, in this order.
    pending: VecDeque<Ask>,
    /// Wishes that wait here because too many wait at the node.
    parked: VecDeque<Ask>,
    session: Option<Session>,
    /// How many sessions there were.
    sessions: u64,
    /// How many acquires there were.
    acquires: u64,
    /// What is to be sent.
    out: Vec<u8>,
    /// Until when releases may take, for a client that leaves.
    leave_by: Option<Instant>,
}

/// One connection, from the greeting to its end.
#[derive(Debug)]
struct Session {
    number: u64,
    endpoint: String,
    greeting: Greeting,
    /// Answered in this order.
    in_flight: VecDeque<Sent>,
    /// What this node cannot do, for another.
    again: Vec<Ask>,
    began_at: Instant,
    heard_at: Instant,
    /// When its node last showed that it reaches a majority.
    served_at: Instant,
    /// Whether it has answered anything but with an error.
    was_useful: bool,
    /// Why to go elsewhere.
    leave: Option<AskError>,
    /// Whether its replies are out of step.
    is_garbled: bool,
}

#[derive(Debug)]
struct Sent {
    ask: Ask,
    sent_at: Instant,
}

impl Engine {
    pub(crate) fn new(
        now: Instant,
        endpoints: Vec<String>,
        request_timeout: Duration,
        seed: u64,
    ) -> Self {
        Self {
            endpoints,
            request_timeout,
            pace: Pace::new(request_timeout),
            guards: Guards::new(seed, now),
            wishes: Wishes::default(),
            pending: VecDeque::new(),
            parked: VecDeque::new(),
            session: None,
            sessions: 0,
            acquires: 0,
            out: Vec::new(),
            leave_by: None,
        }
    }

    /// Somebody wants something. What concerns other connections is not for here.
    pub(crate) fn command(&mut self, now: Instant, command: Command) {
        if self.leave_by.is_some() {
            // The leases were released already, and callers hear it by what is dropped here.
            return drop(command);
        }
        let question = match command {
            Command::Request(request) => return self.request(now, request),
            Command::Get { name, reply } => Question::Get { name, reply },
            Command::List { from, prefix, count, reply } => {
                Question::List { from, prefix, count, reply }
            }
            Command::Status { reply } => Question::Status { reply },
            Command::Stop => return self.leave(now),
            Command::StatusOf { .. } | Command::Watch(_) | Command::Observe { .. } => {
                unreachable!("has a connection of its own")
            }
        };
        self.ask(now, question);
    }

    fn ask(&mut self, now: Instant, question: Question) {
        self.pending.push_back(Ask::new(question, now.after(self.request_timeout)));
    }

    fn request(&mut self, now: Instant, request: Request) {
        match request {
            Request::Acquire(acquire) => self.acquire(now, acquire),
            Request::Abandon(ticket) => self.abandon(now, &ticket),
            Request::Release(caller) => self.release(now, caller),
            Request::RenewTenure { label, tenure, ttl, reply } => {
                self.ask(now, Question::Renew(Renew { label, tenure, ttl, reply }));
            }
            Request::ReleaseTenure { label, tenure, reply } => {
                let reply = reply.map_or(ReleaseReply::Nobody, ReleaseReply::Caller);
                self.ask(now, Question::Release(Release { label, tenure, reply }));
            }
        }
    }

    fn acquire(&mut self, now: Instant, acquire: AcquireRequest) {
        let AcquireRequest { caller, label, ttl, wait, renewed } = acquire;
        self.acquires += 1;
        let id = self.acquires;
        caller.ticket().lock().slot = id;
        let wish = Wish { id, label, ttl, wait, caller: Some(caller), renewed };
        let id = self.wishes.add(now, self.request_timeout, wish);
        self.ask(now, Question::Acquire(id));
    }

    /// P6: the guard has dropped its belief. From now on the lease is not renewed.
    fn release(&mut self, now: Instant, caller: Caller) {
        let id = self.guards.of(caller.ticket());
        let Some(guard) = id.and_then(|id| self.guards.remove(id)) else {
            let waker = caller.released(ReleaseOutcome::NotHeld);
            return waker.into_iter().for_each(std::task::Waker::wake);
        };
        let (label, tenure, reply) = (guard.label, guard.tenure, ReleaseReply::Guard(caller));
        self.ask(now, Question::Release(Release { label, tenure, reply }));
    }

    /// Releases a lease without a caller that waits for the result.
    fn release_in_background(&mut self, now: Instant, label: Label, tenure: Tenure) {
        let reply = ReleaseReply::Nobody;
        self.ask(now, Question::Release(Release { label, tenure, reply }));
    }

    /// Ends every belief and gives the leases back; done once [`Self::is_done`].
    pub(crate) fn leave(&mut self, now: Instant) {
        if self.leave_by.is_some() {
            return;
        }
        self.leave_by = Some(now.after(self.request_timeout));
        self.wishes.turn_away(&AskError::Stopped);
        self.parked.clear();
        let is_release = |ask: &Ask| matches!(ask.question, Question::Release(_));
        for ask in std::mem::take(&mut self.pending) {
            if is_release(&ask) {
                self.pending.push_back(ask);
            } else {
                ask.question.fail(AskError::Stopped);
            }
        }
        for guard in self.guards.give_up() {
            self.release_in_background(now, guard.label, guard.tenure);
        }
    }

    /// Whether everything a client that leaves has to say is said and confirmed, or was given up.
    pub(crate) fn is_done(&self, now: Instant) -> bool {
        let Some(leave_by) = self.leave_by else { return false };
        let mut in_flight = self.session.iter().flat_map(|session| &session.in_flight);
        // What is granted still has to be given back too.
        let matters =
            |question: &Question| matches!(question, Question::Release(_) | Question::Acquire(_));
        let is_busy = !self.pending.is_empty() || in_flight.any(|sent| matters(&sent.ask.question));
        now >= leave_by || !is_busy
    }

    /// Whether there is anything to connect for.
    pub(crate) fn wants_session(&self) -> bool {
        !self.pending.is_empty() || !self.guards.is_empty()
    }

    /// A node was greeted.
    pub(crate) fn connected(&mut self, now: Instant, endpoint: &str, greeting: Greeting) {
        self.sessions += 1;
        self.session = Some(Session {
            number: self.sessions,
            endpoint: endpoint.to_owned(),
            greeting,
            in_flight: VecDeque::new(),
            again: Vec::new(),
            began_at: now,
            heard_at: now,
            served_at: Instant::ZERO,
            was_useful: false,
            leave: None,
            is_garbled: false,
        });
    }

    /// The connection is over: what was under way is to be asked elsewhere. Says whether it was
    /// good for anything.
    pub(crate) fn disconnected(&mut self) -> bool {
        let Some(session) = self.session.take() else { return false };
        self.out.clear();
        let mut again = VecDeque::new();
        let in_flight = session.in_flight.into_iter().map(|sent| sent.ask);
        for mut ask in session.again.into_iter().chain(in_flight) {
            ask.was_sent = true;
            match ask.question {
                Question::Acquire(id) if !self.wishes.ask_again(id) => {}
                Question::Ping | Question::Cancel(_) => {}
                _ => again.push_back(ask),
            }
        }
        let give_up_at = Instant::MAX;
        again.extend(self.wishes.queued().map(|id| Ask::new(Question::Acquire(id), give_up_at)));
        again.append(&mut self.parked);
        again.append(&mut self.pending);
        self.pending = again;
        session.was_useful
    }

    /// No endpoint could be reached. What was never sent fails at once, what was may be tried
    /// again while it has time; guards go on trying as long as they hold. Who is not trusted will
    /// not be in a moment either, so then nobody but guards tries again.
    pub(crate) fn unreachable(&mut self, now: Instant, error: &AskError) {
        for ask in std::mem::take(&mut self.pending) {
            let keep = match &ask.question {
                Question::RenewGuard(id) => self.guards.get(*id).is_some(),
                _ if error.is_lack_of_trust() => false,
                Question::Acquire(id) => self.wishes.outlasts(*id, now, ask.was_sent),
                _ => ask.was_sent && now < ask.give_up_at,
            };
            if keep && self.leave_by.is_none() {
                self.pending.push_back(ask);
            } else {
                self.give_up(ask, error);
            }
        }
    }

    /// Bytes came. Says how many were used. Once replies are out of step, none is looked at.
    ///
    /// # Errors
    /// When they are no replies: the connection is good for nothing then.
    pub(crate) fn received(&mut self, now: Instant, bytes: &[u8]) -> Result<usize, RespError> {
        let mut used = 0;
        while let Some((value, len)) = Value::parse(&bytes[used..])? {
            used += len;
            let Some(session) = self.session.as_mut().filter(|session| !session.is_garbled) else {
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
                    session.is_garbled = true;
                    self.go_elsewhere("it answers what nobody asked");
                }
            }
        }
        Ok(used)
    }

    /// Does what is due, and says as much as may be on its way at once.
    pub(crate) fn tick(&mut self, now: Instant) {
        self.tend_guards(now);
        self.tend_wishes(now);
        self.tend_session(now);
        self.send_pending(now);
    }

    fn tend_guards(&mut self, now: Instant) {
        while let Some((id, due)) = self.guards.due(now) {
            match due {
                // No time limit: the guard itself has one.
                Due::Renew => {
                    self.pending.push_back(Ask::new(Question::RenewGuard(id), Instant::MAX));
                }
                Due::Late { sent_at: since } => {
                    let is_only = self.endpoints.len() == 1;
                    let is_late = |session: &Session| {
                        // The only one there is may be slow, as long as it says anything at all.
                        session.began_at <= since && (!is_only || session.heard_at < since)
                    };
                    if self.session.as_ref().is_some_and(is_late) {
                        self.go_elsewhere("it does not answer renewals in time");
                    }
                }
                Due::Lose => self.lose(now, id),
            }
        }
    }

    /// A lease is over. Acceptors may have renewed it without our hearing of it, so it is given
    /// back too, for those who wait.
    fn lose(&mut self, now: Instant, id: GuardId) {
        let Some(guard) = self.guards.remove(id) else { return };
        guard.ticket.lose();
        self.release_in_background(now, guard.label, guard.tenure);
    }

    fn tend_session(&mut self, now: Instant) {
        let Some(session) = &mut self.session else { return };
        if let Some(sent) = session.in_flight.front() {
            if now >= session.stalls_at(sent, self.request_timeout) {
                self.go_elsewhere("it does not answer in time");
            }
        } else if self.pending.is_empty()
            && (!self.guards.is_empty() || !self.wishes.is_empty())
            && now >= session.heard_at.after(SILENCE_MAX)
        {
            let question = self.sign_of_life();
            self.ask(now, question);
        }
    }

    /// What to ask a silent node. One that waits for leases may have lost its majority, and would
    /// wait in vain while another need not.
    fn sign_of_life(&self) -> Question {
        match self.wishes.queued_name() {
            Some(name) if self.endpoints.len() > 1 => {
                let (reply, _nobody) = oneshot::channel();
                Question::Get { name: name.into(), reply }
            }
            _ => Question::Ping,
        }
    }

    fn send_pending(&mut self, now: Instant) {
        loop {
            let Some(session) = &self.session else { return };
            if session.leave.is_some() || session.in_flight.len() >= IN_FLIGHT_MAX {
                return;
            }
            let is_full = self.wishes.are_full();
            let parked = if is_full { None } else { self.parked.pop_front() };
            let Some(ask) = parked.or_else(|| self.pending.pop_front()) else { return };
            if is_full
                && let Question::Acquire(id) = ask.question
                && self.wishes.waits(id, now)
            {
                // The wish itself knows how long it waits.
                self.parked.push_back(Ask { give_up_at: Instant::MAX, ..ask });
            } else if now >= ask.give_up_at {
                self.give_up(ask, &self.unanswered());
            } else if self.put(now, &ask.question) {
                let session = self.session.as_mut().expect("looked at above");
                session.in_flight.push_back(Sent { ask, sent_at: now });
            }
        }
    }

    /// The node is not good enough; another may be.
    fn go_elsewhere(&mut self, why: &str) {
        let (endpoints, problem) = (vec![self.endpoint()], why.to_owned());
        self.leave_for(AskError::Unreachable { endpoints, problem });
    }

    /// The node said itself that it is not.
    fn leave_for(&mut self, why: AskError) {
        if let Some(session) = &mut self.session {
            session.leave.get_or_insert(why);
        }
    }

    /// How long a node may take to greet while leases are to be renewed; `None` for as long as
    /// usual.
    pub(crate) fn dial_patience(&self) -> Option<Duration> {
        let ttl = self.guards.ttl_min().filter(|_| self.endpoints.len() > 1)?;
        Some(self.pace.patience(self.endpoints.len())(ttl, 1))
    }

    /// Whether to leave this connection for another, and why.
    pub(crate) fn wants_elsewhere(&self) -> Option<&AskError> {
        self.session.as_ref()?.leave.as_ref()
    }

    fn unanswered(&self) -> AskError {
        let problem = "no answer in time".to_owned();
        AskError::Unreachable { endpoints: self.endpoints.clone(), problem }
    }

    /// What is to be sent; whatever was sent is to be drained.
    pub(crate) const fn out(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    /// When [`Self::tick`] has something to do, if nothing else happens.
    pub(crate) fn next_at(&self) -> Option<Instant> {
        let session_at = self.session.as_ref().map(|session| {
            let silent_at = session.heard_at.after(SILENCE_MAX);
            let idle = self.guards.is_empty() && self.wishes.is_empty();
            match session.in_flight.front() {
                Some(sent) => session.stalls_at(sent, self.request_timeout),
                None if idle => Instant::MAX,
                None => silent_at,
            }
        });
        let times = [self.guards.next_at(), self.wishes.next_at(), session_at, self.leave_by];
        times.into_iter().flatten().min().filter(|at| *at < Instant::MAX)
    }
}

impl Session {
    /// When to stop believing that the oldest question will be answered. Half of the time a
    /// question may take, so that the other half is left for another node.
    fn stalls_at(&self, sent: &Sent, request_timeout: Duration) -> Instant {
        let stalls_at = sent.sent_at.max(self.heard_at).after(request_timeout / 2);
        stalls_at.min(sent.ask.give_up_at)
    }
}
