//! The paper's algorithm, word for word. Its acceptor and proposer are in submodules; comments mark
//! each difference from our protocol with the rule that differs (docs/protocol.md).
//!
//! This module adds what surrounds them: ballot numbers with a restart counter, the wait of
//! `max_lease` after a restart, several resources, and clients at a node, which the paper does not
//! have. A proposer that "has the lease" has it for one client at a time. A client that comes while
//! it has the lease for no client is told so.

mod acceptor;
mod process;
mod proposer;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use paxoslease_core::{
    Ballot, Cell, Holder, Instant, Message, Name, NodeId, Reply, Request, Tenure, Token, Ttl,
};

use self::acceptor::Acceptor;
use self::proposer::Proposer;
use crate::algorithm::{Algorithm, Answer, Boot, Tuning};
use crate::checker::{Check, Checks};
use crate::packet::Outbox;
use crate::rng::Rng;

/// The paper's algorithm, taken literally.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Paper;

impl Algorithm for Paper {
    type Process = PaperNode;

    fn start(&self, boot: Boot<'_>) -> PaperNode {
        let restarts = match boot.disk {
            // "The restart counter is incremented each time the proposer starts up and is written
            // to stable storage."
            Some(disk) => {
                let last = disk.record.as_ref();
                let last = last.and_then(|bytes| <[u8; 8]>::try_from(&bytes[..]).ok());
                let restarts = last.map_or(0, |bytes| u64::from_le_bytes(bytes) + 1);
                disk.record = Some(restarts.to_le_bytes().to_vec());
                restarts
            }
            None if boot.new_cell => 0,
            None => boot.wall_millis,
        };
        // "Nodes wait M seconds before rejoining the network."
        let wait = if boot.new_cell { Duration::ZERO } else { boot.cell.max_lease().as_duration() };
        PaperNode {
            node: boot.node,
            cell: *boot.cell,
            tuning: *boot.tuning,
            // The part of the restart counter that exceeds its field goes above the run counter.
            run: restarts / RESTARTS_MAX % RUNS_MAX * RUNS_MAX,
            restarts: restarts % RESTARTS_MAX,
            rejoins_at: boot.now.after(wait),
            resources: BTreeMap::new(),
            own: VecDeque::new(),
            rng: Rng::new(boot.seed, 4),
            out: Outbox::new(boot.node),
        }
    }

    /// "At any given time, there is no more than one proposer which holds the lease", and ballot
    /// numbers are "monotonously increasing": a client that uses one as a fence expects the next
    /// owner's to be higher. The paper does not claim the rest of our invariants.
    fn checks(&self) -> Checks {
        Checks::only(&[Check::OneHolder, Check::FencesRise])
    }
}

/// One node of the paper's algorithm.
#[derive(Clone, Debug)]
pub struct PaperNode {
    node: NodeId,
    cell: Cell,
    tuning: Tuning,
    /// "A run counter field (at the most significant end) specific to this run."
    run: u64,
    restarts: u64,
    rejoins_at: Instant,
    /// "Independent instances of the algorithm for each resource" (section 8).
    resources: BTreeMap<String, Resource>,
    /// Responses of this node's own acceptor.
    own: VecDeque<Reply<'static>>,
    rng: Rng,
    out: Outbox,
}

#[derive(Clone, Debug, Default)]
struct Resource {
    acceptor: Acceptor,
    proposer: Proposer,
    /// The proposal with which the lease was acquired or extended.
    owned: Option<Ballot>,
    /// The client that has the lease, by the ballot with which it was acquired.
    client: Option<Tenure>,
    request: Option<PaperRequest>,
    waiting: VecDeque<PaperRequest>,
    /// When the round counts as failed, or when the next one begins.
    wake_at: Option<Instant>,
}

/// A client's request.
#[derive(Clone, Copy, Debug)]
struct PaperRequest {
    token: Token,
    ttl: Ttl,
    asked_at: Instant,
    deadline: Instant,
    /// Set for an extension.
    extends: Option<Tenure>,
    /// How many of its rounds failed.
    failures: u32,
    /// Between two rounds. The ballot number stays until step 1, so late responses still count.
    asleep: bool,
}

impl PaperRequest {
    /// A request that gives up after `patience`.
    fn new(token: Token, ttl: Ttl, asked_at: Instant, patience: Duration) -> Self {
        let deadline = asked_at.after(patience);
        Self { token, ttl, asked_at, deadline, extends: None, failures: 0, asleep: false }
    }
}

/// The size of the restart counter's field: a round number, so that ballots are readable.
const RESTARTS_MAX: u64 = 100;
/// The size of the run counter, where runs without a disk must be distinguished.
const RUNS_MAX: u64 = 1 << 22;
/// "A small but random time" between two attempts.
const PAUSE_MAX: Duration = Duration::from_millis(50);
/// The most clients that wait for one resource at one node.
const WAITING_MAX: usize = 1024;

impl PaperNode {
    fn majority(&self) -> usize {
        self.cell.members().len() / 2 + 1
    }

    fn resource(&mut self, name: &str) -> &mut Resource {
        self.resources.entry(name.to_owned()).or_default()
    }

    fn next_ballot(&mut self) -> Ballot {
        self.run += 1;
        Ballot::new(self.run * RESTARTS_MAX + self.restarts, self.node)
    }

    /// Sends to every acceptor. This node's own acceptor answers at once.
    fn broadcast(&mut self, now: Instant, request: Request<'_>) {
        for to in self.cell.members().to_vec() {
            if to == self.node {
                let response = self.ask(now, request);
                self.own.extend(response);
            } else {
                self.out.send([to], 0, &Message::Request(request));
            }
        }
    }

    /// Passes a request to this node's acceptor.
    fn ask(&mut self, now: Instant, request: Request<'_>) -> Option<Reply<'static>> {
        if now < self.rejoins_at {
            return None;
        }
        let acceptor = &mut self.resource(request.name().as_str()).acceptor;
        match request {
            Request::Prepare { ballot, .. } => Some(acceptor.on_prepare_request(now, ballot)),
            Request::Propose { ballot, ttl, .. } => {
                Some(acceptor.on_propose_request(now, ballot, ttl))
            }
            Request::Release { tenure, .. } => {
                acceptor.on_release(tenure.ballot());
                None
            }
            Request::Renew { .. } | Request::Heal { .. } | Request::Inspect { .. } => None,
        }
    }

    /// Step 1, for the current request.
    fn begin(&mut self, now: Instant, name: &str) {
        let ballot = self.next_ballot();
        let attempt_timeout = self.tuning.attempt_timeout;
        let resource = self.resource(name);
        let Some(pending) = &mut resource.request else { return };
        pending.asleep = false;
        resource.proposer.propose(ballot, pending.ttl);
        resource.wake_at = Some(now.after(attempt_timeout).min(pending.deadline));
        let name = Name::new(name).expect("it came from a Name");
        self.broadcast(now, Request::Prepare { name, ballot });
    }

    /// Steps 3 and 5. "Some other proposal" has no effect.
    fn on_response(&mut self, now: Instant, from: NodeId, response: Reply<'_>) {
        let (Reply::Promise { ballot, .. }
        | Reply::Accept { ballot }
        | Reply::Reject { ballot, .. }) = response
        else {
            return;
        };
        let (me, majority) = (self.node, self.majority());
        let mut resources = self.resources.iter_mut();
        let Some((name, resource)) = resources.find(|(_, r)| r.proposer.ballot == Some(ballot))
        else {
            return;
        };
        let name = name.clone();
        match response {
            Reply::Promise { accepted, .. } => {
                if resource.proposer.on_prepare_response(now, me, from, accepted, majority) {
                    let ttl = resource.proposer.timeout;
                    let name = Name::new(&name).expect("it came from a Name");
                    let holder = Holder::NONE;
                    return self.broadcast(now, Request::Propose { name, ballot, ttl, holder });
                }
            }
            Reply::Accept { .. } => {
                if resource.proposer.on_propose_response(majority) {
                    return self.own_lease(&name, ballot);
                }
            }
            Reply::Reject { promised, .. } => {
                resource.proposer.on_reject(from);
                self.run = self.run.max(promised.counter() / RESTARTS_MAX);
            }
            Reply::NotHeld { .. }
            | Reply::Healed { .. }
            | Reply::NotHealed { .. }
            | Reply::Released { .. }
            | Reply::Inspected { .. } => {}
        }
        let acceptors = self.cell.members().len();
        let proposer = &self.resources[&name].proposer;
        match (proposer.is_hopeless(majority, acceptors), proposer.lease_owner) {
            (true, true) => self.fail_extension(&name),
            (true, false) => self.sleep(now, &name),
            (false, _) => {}
        }
    }

    /// "I am the lease owner": tells the client that asked, if one still waits.
    fn own_lease(&mut self, name: &str, ballot: Ballot) {
        let Some(tenure) = Tenure::of(ballot) else { return };
        let resource = self.resource(name);
        resource.owned = Some(ballot);
        let Some(pending) = resource.request.take() else { return };
        resource.wake_at = None;
        let (ttl, since) = (resource.proposer.timeout, resource.proposer.timer_set_at);
        let answer = match pending.extends {
            Some(tenure) => Answer::Renewed { tenure, ttl, started_at: None },
            None => {
                resource.client = Some(tenure);
                Answer::Granted { tenure, ttl, waited: since.since(pending.asked_at) }
            }
        };
        self.out.answer(pending.token, answer);
    }

    /// "In this case the proposer may sleep for a while and then restart its algorithm at step 1",
    /// "waiting a small but random time".
    fn sleep(&mut self, now: Instant, name: &str) {
        let drawn = self.rng.below(self.tuning.attempt_timeout.min(PAUSE_MAX).as_nanos() as u64);
        let resource = self.resource(name);
        if let Some(pending) = &mut resource.request
            && !pending.asleep
        {
            // Longer each time, so that a long lease causes few requests.
            let pause = Duration::from_nanos(drawn << pending.failures.min(3));
            pending.failures += 1;
            pending.asleep = true;
            resource.wake_at = Some(now.after(pause).min(pending.deadline));
        }
    }

    /// The lease lasts until its timer; the client may ask again.
    fn fail_extension(&mut self, name: &str) {
        let resource = self.resource(name);
        if let Some(pending) = resource.request.take_if(|pending| pending.extends.is_some()) {
            resource.wake_at = None;
            self.out.answer(pending.token, Answer::NoQuorum);
        }
    }

    /// A round failed, or the pause after one is over.
    fn on_wake(&mut self, now: Instant, name: &str) {
        let resource = self.resource(name);
        resource.wake_at = None;
        let Some(pending) = resource.request else { return };
        if pending.extends.is_some() {
            self.fail_extension(name);
        } else if now >= pending.deadline {
            resource.request = None;
            resource.proposer.ballot = None;
            self.out.answer(pending.token, Answer::NoQuorum);
        } else if pending.asleep {
            self.begin(now, name);
        } else {
            self.sleep(now, name);
        }
    }

    /// The proposer's timer fired.
    fn on_timer(&mut self, now: Instant, name: &str) {
        let resource = self.resource(name);
        resource.proposer.on_timeout();
        resource.client = None;
        if resource.request.is_some_and(|pending| pending.extends.is_some()) {
            self.fail_extension(name);
        } else {
            self.sleep(now, name);
        }
    }

    /// Serves the next client, if the proposer is idle.
    fn serve(&mut self, now: Instant, name: &str) {
        loop {
            let resource = self.resource(name);
            if resource.request.is_some() || resource.client.is_some() {
                return;
            }
            let Some(pending) = resource.waiting.pop_front() else { return };
            if now >= pending.deadline {
                self.out.answer(pending.token, Answer::Denied);
                continue;
            }
            // "I have the lease": the state says so.
            let left = resource.proposer.timer.map_or(Duration::ZERO, |timer| timer.since(now));
            let left = u32::try_from(left.as_millis()).ok().and_then(Ttl::from_millis);
            let owned =
                resource.owned.and_then(Tenure::of).filter(|_| resource.proposer.lease_owner);
            if let (Some(tenure), Some(ttl)) = (owned, left) {
                resource.client = Some(tenure);
                let waited = now.since(pending.asked_at);
                self.out.answer(pending.token, Answer::Granted { tenure, ttl, waited });
                return;
            }
            resource.request = Some(pending);
            self.begin(now, name);
        }
    }

    /// Section 7: the state changes before the release is sent, and nothing else changes.
    fn release(&mut self, now: Instant, name: Name<'_>, tenure: Tenure) {
        let resource = self.resource(name.as_str());
        let mut ballot = tenure;
        if resource.client == Some(tenure) {
            resource.client = None;
            resource.proposer.lease_owner = false;
            ballot = resource.owned.and_then(Tenure::of).unwrap_or(tenure);
            resource.request = resource.request.filter(|pending| pending.extends.is_none());
        }
        self.broadcast(now, Request::Release { name, tenure: ballot });
    }

    /// Ends every call: handles the responses of this node's acceptor, then serves waiting clients.
    fn settle(&mut self, now: Instant, name: Option<&str>) {
        while let Some(response) = self.own.pop_front() {
            self.on_response(now, self.node, response);
        }
        if let Some(name) = name {
            self.serve(now, name);
            while let Some(response) = self.own.pop_front() {
                self.on_response(now, self.node, response);
            }
        }
    }
}
