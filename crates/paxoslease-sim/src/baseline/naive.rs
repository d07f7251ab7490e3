//! The naive majority vote (paper, section 1). It is correct but tends to block: a vote cannot be
//! withdrawn, so contenders that split the acceptors wait until their votes expire.
//!
//! It has no Prepare, no useful Reject, no renewal and no early release. The paper's introduction
//! says nothing about restarts, so a restarted node waits for `max_lease`, as in the paper's own
//! algorithm.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use paxoslease_core::{
    Ballot, Cell, Holder, Instant, Message, Name, NodeId, Reply, Request, Tenure, Token, Ttl,
};

use crate::algorithm::{Algorithm, Answer, Boot, Command, Output, Process, View};
use crate::checker::{Check, Checks};
use crate::packet::{Outbox, decoded, describe};
use crate::rng::Rng;

/// The naive majority vote.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Naive;

impl Algorithm for Naive {
    type Process = NaiveNode;

    fn start(&self, boot: Boot<'_>) -> NaiveNode {
        let silent =
            if boot.new_cell { Duration::ZERO } else { boot.cell.max_lease().as_duration() };
        NaiveNode {
            node: boot.node,
            cell: *boot.cell,
            // Only identifies requests; the wall clock distinguishes the runs of a node.
            counter: if boot.new_cell { 0 } else { boot.wall_millis },
            request_timeout: boot.tuning.request_timeout,
            votes: BTreeMap::new(),
            requests: BTreeMap::new(),
            silent_until: boot.now.after(silent),
            rng: Rng::new(boot.seed, 3),
            out: Outbox::new(boot.node),
        }
    }

    fn describe(&self, bytes: &[u8]) -> String {
        // A vote has no promise, although the message has a field for one.
        describe(bytes).split(", promised").next().unwrap_or_default().to_owned()
    }

    /// "Correct meaning that the lease is held by no more than one node at any time." It claims no
    /// fences, and the paper itself doubts its liveness.
    fn checks(&self) -> Checks {
        Checks::only(&[Check::OneHolder, Check::BeliefIsBacked])
    }
}

/// One node of the naive majority vote.
#[derive(Clone, Debug)]
pub struct NaiveNode {
    node: NodeId,
    cell: Cell,
    counter: u64,
    request_timeout: Duration,
    /// Acceptor: for each name the request with its vote, and the end of the vote's timer.
    votes: BTreeMap<String, (Ballot, Instant)>,
    requests: BTreeMap<Token, NaiveRequest>,
    silent_until: Instant,
    rng: Rng,
    out: Outbox,
}

/// Proposer: a client's request.
#[derive(Clone, Debug)]
struct NaiveRequest {
    name: String,
    ttl: Ttl,
    asked_at: Instant,
    deadline: Instant,
    ballot: Ballot,
    /// "Proposers start local timeouts for T seconds."
    started_at: Instant,
    accepted: BTreeSet<NodeId>,
    /// When to retry.
    again_at: Instant,
}

impl NaiveNode {
    fn is_silent(&self, now: Instant) -> bool {
        now < self.silent_until
    }

    /// Starts the local timeout and asks every acceptor.
    fn request(&mut self, now: Instant, token: Token) {
        self.counter += 1;
        let ballot = Ballot::new(self.counter, self.node);
        let Some(pending) = self.requests.get_mut(&token) else { return };
        // After the timeout every proposer retries; only a little jitter separates them.
        let jitter =
            Duration::from_nanos(self.rng.below(pending.ttl.as_duration().as_nanos() as u64 / 10));
        (pending.ballot, pending.started_at) = (ballot, now);
        pending.again_at = now.after(pending.ttl.as_duration()).after(jitter);
        pending.accepted.clear();
        let (name, ttl) = (pending.name.clone(), pending.ttl);
        let name = Name::new(&name).expect("it came from a Name");
        let request = Request::Propose { name, ballot, ttl, holder: Holder::NONE };
        for to in self.cell.members().to_vec() {
            if to == self.node {
                let reply = self.vote(now, request);
                self.count(now, self.node, reply);
            } else {
                self.out.send([to], 0, &Message::Request(request));
            }
        }
    }

    /// "If an acceptor receives a request but its state is not empty it [...] sends a reject."
    fn vote(&mut self, now: Instant, request: Request<'_>) -> Option<Reply<'static>> {
        let Request::Propose { name, ballot, ttl, .. } = request else { return None };
        if self.is_silent(now) {
            return None;
        }
        let taken = self.votes.get(name.as_str()).is_some_and(|(_, expires_at)| now < *expires_at);
        if taken {
            return Some(Reply::Reject { ballot, promised: Ballot::ZERO, accepted: None });
        }
        let vote = (ballot, now.after(ttl.as_duration()));
        self.votes.insert(name.as_str().to_owned(), vote);
        Some(Reply::Accept { ballot })
    }

    /// "The proposer must receive accept messages from a majority of acceptors; then it has the
    /// lease until its local timer expires."
    fn count(&mut self, now: Instant, from: NodeId, reply: Option<Reply<'_>>) {
        let Some(Reply::Accept { ballot }) = reply else { return };
        let majority = self.cell.members().len() / 2 + 1;
        let found = self.requests.iter_mut().find(|(_, pending)| pending.ballot == ballot);
        let Some((&token, pending)) = found else { return };
        pending.accepted.insert(from);
        let expired = now >= pending.started_at.after(pending.ttl.as_duration());
        if pending.accepted.len() < majority || expired {
            return;
        }
        let tenure = Tenure::of(ballot).expect("a node's ballot names a tenure");
        let (ttl, waited) = (pending.ttl, pending.started_at.since(pending.asked_at));
        self.requests.remove(&token);
        self.out.answer(token, Answer::Granted { tenure, ttl, waited });
    }
}

impl Process for NaiveNode {
    fn handle_message(&mut self, now: Instant, from: NodeId, bytes: &[u8]) {
        match decoded(bytes) {
            Message::Request(request) => {
                if let Some(reply) = self.vote(now, request) {
                    self.out.send([from], 0, &Message::Reply(reply));
                }
            }
            Message::Reply(reply) => self.count(now, from, Some(reply)),
            Message::Hint(_) | Message::Durable(_) => {}
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        let due: Vec<Token> = self
            .requests
            .iter()
            .filter(|(_, pending)| pending.again_at.min(pending.deadline) <= now)
            .map(|(token, _)| *token)
            .collect();
        for token in due {
            if self.requests[&token].deadline <= now {
                self.requests.remove(&token);
                self.out.answer(token, Answer::NoQuorum);
            } else {
                self.request(now, token);
            }
        }
    }

    fn handle_tick(&mut self, now: Instant) {
        self.votes.retain(|_, (_, expires_at)| now < *expires_at);
    }

    fn handle_command(&mut self, now: Instant, token: Token, name: Name<'_>, command: Command) {
        match command {
            Command::Acquire { ttl, wait } => {
                let Ok(ttl) = self.cell.ttl(ttl) else {
                    return self.out.answer(token, Answer::Refused);
                };
                if self.is_silent(now) {
                    return self.out.answer(token, Answer::Refused);
                }
                let trying = self.request_timeout.min(ttl.as_duration());
                let pending = NaiveRequest {
                    name: name.as_str().to_owned(),
                    ttl,
                    asked_at: now,
                    deadline: now.after(wait.max(trying)),
                    ballot: Ballot::ZERO,
                    started_at: now,
                    accepted: BTreeSet::new(),
                    again_at: now,
                };
                self.requests.insert(token, pending);
                self.request(now, token);
            }
            // "If its state is not empty": the holder's own vote prevents a second one.
            Command::Renew { .. }
            | Command::AcquireDurable { .. }
            | Command::Keep { .. }
            | Command::ReleaseDurable { .. } => {
                self.out.answer(token, Answer::NoQuorum);
            }
            // Only the holder forgets; the acceptors' timers continue.
            Command::Release { .. } => self.out.answer(token, Answer::Released),
            Command::Abandon => drop(self.requests.remove(&token)),
        }
    }

    fn poll_output(&mut self) -> Option<Output> {
        self.out.outputs.pop_front()
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.requests.values().map(|pending| pending.again_at.min(pending.deadline)).min()
    }

    fn view(&self, name: Name<'_>) -> Option<View> {
        self.cell.member(self.node)?;
        let vote = self.votes.get(name.as_str());
        let accepted = vote.and_then(|(ballot, at)| Some((Tenure::of(*ballot)?, *at)));
        Some(View { promised: Ballot::ZERO, accepted })
    }

    fn quarantine_until(&self, now: Instant) -> Option<Instant> {
        self.is_silent(now).then_some(self.silent_until)
    }

    fn in_flight(&self) -> usize {
        self.requests.len()
    }
}
