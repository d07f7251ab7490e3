//! The client of ZooKeeper, without sockets: sessions, ephemeral nodes, and the recipe for locks
//! with a queue.
//!
//! A connection is a session. Clients share sessions as the threads of a program do. Requests are
//! pipelined, and a session answers them in their order.

use std::collections::VecDeque;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use paxoslease_load::{
    Connections, Failure, LeaseRequest, Names, Outcome, Outgoing, Plan, Protocol, Workload,
};

use super::super::{SILENCE_MAX, Target};
use super::jute::{
    self, NO_NODE, NODE_EXISTS, Node, OK, PING_XID, Reader, Received, Request, Session, op,
    put_request,
};

/// The client number of requests of the greeting.
const NO_CLIENT: u32 = u32::MAX;
/// The pause between connection attempts, so that they do not disturb an election.
const REDIAL_AFTER: Duration = Duration::from_millis(5);
/// The digits at the end of the names of sequential nodes.
const SEQUENCE_LEN: usize = 10;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum State {
    #[default]
    Down,
    /// The session is not confirmed yet.
    Connecting,
    /// The parent nodes are being created.
    Greeting,
    Ready,
    Closing,
}

#[derive(Debug, Default)]
struct Link {
    state: State,
    session: Session,
    /// The client and the number of each request in flight.
    asked: VecDeque<(u32, i32)>,
    xid: i32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Step {
    #[default]
    Idle,
    Create,
    Delete,
    Ping,
    /// The creation of its node in the queue.
    Enqueue,
    /// The list of the queue.
    List,
    /// Whether the node before its own exists.
    Watch,
    /// The notification that the node before is deleted.
    Wait,
}

#[derive(Clone, Debug, Default)]
struct Waiter {
    step: Step,
    /// Its node in the queue.
    own: Vec<u8>,
    watched: Vec<u8>,
    /// Whether the notification came before the reply to the watch.
    is_gone: bool,
}

#[derive(Debug)]
pub(super) struct ZooKeeperClient {
    timeout_ms: i32,
    names: Names,
    /// The servers of each connection, the preferred one first.
    routes: Vec<Vec<usize>>,
    /// Parent nodes, which must exist first.
    parents: Vec<Vec<u8>>,
    /// The parent of the queue, in a hand-over.
    queue: Option<Vec<u8>>,
    out: Outgoing,
    connections: Vec<Link>,
    waiters: Vec<Waiter>,
    outcomes: VecDeque<(u32, Outcome)>,
    is_closing: bool,
}

impl ZooKeeperClient {
    pub(super) fn new(plan: &Plan, first: usize, target: Target) -> Self {
        let prefix = format!("/{}", plan.names);
        let slashes = prefix.match_indices('/').map(|(place, _)| place).skip(1);
        let mut parents: Vec<Vec<u8>> =
            slashes.map(|place| prefix.as_bytes()[..place].to_vec()).collect();
        let queue =
            (plan.workload == Workload::Handover).then(|| format!("{prefix}lock").into_bytes());
        parents.extend(queue.clone());
        let servers = plan.endpoints.len();
        let route = |link: usize| {
            let first = if target == Target::Spread { first + link } else { first };
            (first..first + servers).map(|server| server % servers).collect()
        };
        Self {
            timeout_ms: i32::try_from(plan.ttl.as_millis()).unwrap_or(i32::MAX),
            names: Names::new(&prefix),
            routes: (0..plan.connections as usize).map(route).collect(),
            parents,
            queue,
            out: Outgoing::new(plan.connections as usize),
            connections: (0..plan.connections).map(|_| Link::default()).collect(),
            waiters: vec![Waiter::default(); plan.in_flight as usize],
            outcomes: VecDeque::new(),
            is_closing: false,
        }
    }

    fn link(&self, slot: u32) -> usize {
        slot as usize % self.connections.len()
    }

    fn send(&mut self, link: usize, client: u32, request: &Request) {
        let Link { asked, xid, .. } = &mut self.connections[link];
        let number = if request.0 == op::PING {
            PING_XID
        } else {
            *xid = (*xid + 1) & i32::MAX;
            *xid
        };
        asked.push_back((client, number));
        put_request(self.out.to(link), number, request);
    }

    fn enter(&mut self, client: u32, step: Step) {
        let link = self.link(client);
        let queue = self.queue.as_deref().unwrap_or_default();
        let waiter = &mut self.waiters[client as usize];
        waiter.step = step;
        let request = match step {
            Step::Enqueue => jute::create(&[queue, b"/c-"].concat(), Node::Sequential),
            Step::Create => jute::create(&waiter.own, Node::Ephemeral),
            Step::List => jute::about(op::CHILDREN, queue),
            Step::Watch => {
                waiter.is_gone = false;
                jute::about(op::EXISTS, &waiter.watched)
            }
            Step::Delete => jute::about(op::DELETE, &waiter.own),
            Step::Ping => (op::PING, Vec::new()),
            Step::Idle | Step::Wait => return,
        };
        self.send(link, client, &request);
    }

    fn come_to(&mut self, client: u32, outcome: Outcome) {
        self.waiters[client as usize].step = Step::Idle;
        self.outcomes.push_back((client, outcome));
    }

    fn answered(&mut self, client: u32, error: i32, mut body: Reader<'_>) -> Result<()> {
        let step = self.waiters[client as usize].step;
        match (step, error) {
            (Step::Create | Step::Delete | Step::Ping, OK) => {
                self.come_to(client, Outcome::Yes(None));
            }
            (Step::Create, NODE_EXISTS) | (Step::Delete, NO_NODE) => {
                self.come_to(client, Outcome::No);
            }
            (Step::Enqueue, OK) => {
                self.waiters[client as usize].own = body.bytes()?.to_vec();
                self.enter(client, Step::List);
            }
            (Step::List, OK) => self.listed(client, body)?,
            (Step::Watch, OK) if !self.waiters[client as usize].is_gone => {
                self.enter(client, Step::Wait);
            }
            (Step::Watch, OK | NO_NODE) => self.enter(client, Step::List),
            (step, error) => bail!("ZooKeeper answers {step:?} with error {error}"),
        }
        Ok(())
    }

    /// The first in the queue has the lock. Each other client watches the node before its own.
    fn listed(&mut self, client: u32, mut body: Reader<'_>) -> Result<()> {
        let Waiter { own, watched, .. } = &mut self.waiters[client as usize];
        let own = sequence(own)?;
        let mut before: Option<&[u8]> = None;
        for _ in 0..body.int()? {
            let name = body.bytes()?;
            let number = sequence(name)?;
            if number < own && before.is_none_or(|last| sequence(last).is_ok_and(|l| l < number)) {
                before = Some(name);
            }
        }
        let Some(before) = before else {
            self.come_to(client, Outcome::Yes(None));
            return Ok(());
        };
        let queue = self.queue.as_deref().unwrap_or_default();
        *watched = [queue, b"/", before].concat();
        self.enter(client, Step::Watch);
        Ok(())
    }

    fn notified(&mut self, link: usize, path: &[u8]) {
        for client in (link..self.waiters.len()).step_by(self.connections.len()) {
            let waiter = &mut self.waiters[client];
            if waiter.watched != path {
                continue;
            }
            match waiter.step {
                Step::Wait => self.enter(client as u32, Step::List),
                Step::Watch => waiter.is_gone = true,
                _ => {}
            }
        }
    }

    fn greet(&mut self, link: usize, message: &[u8]) -> Result<()> {
        let session = jute::connected(message)?;
        if session.id == 0 {
            // The old session is over. The next connection begins a new one.
            self.connections[link].session = Session::default();
            self.connections[link].state = State::Down;
            return Ok(());
        }
        self.connections[link].session = session;
        self.connections[link].state = State::Greeting;
        for parent in self.parents.clone() {
            self.send(link, NO_CLIENT, &jute::create(&parent, Node::Persistent));
        }
        self.end_greeting(link);
        Ok(())
    }

    fn end_greeting(&mut self, link: usize) {
        let Link { state, asked, .. } = &mut self.connections[link];
        if *state == State::Greeting && asked.is_empty() {
            *state = State::Ready;
        }
    }

    fn handle(&mut self, link: usize, message: &[u8]) -> Result<()> {
        if self.connections[link].state == State::Connecting {
            return self.greet(link, message);
        }
        let (xid, error, body) = match jute::parse(message)? {
            Received::Notification { path } => {
                self.notified(link, path);
                return Ok(());
            }
            Received::Answer { xid, error, body } => (xid, error, body),
        };
        let asked = self.connections[link].asked.pop_front();
        let (client, expected) = asked.context("an answer to nothing")?;
        ensure!(xid == expected, "answer {xid} where {expected} was to come");
        if client != NO_CLIENT {
            return self.answered(client, error, body);
        }
        let is_known = self.is_closing || matches!(error, OK | NODE_EXISTS);
        ensure!(is_known, "ZooKeeper answers the greeting with error {error}");
        if self.is_closing {
            self.connections[link].state = State::Down;
        }
        self.end_greeting(link);
        Ok(())
    }
}

impl Protocol for ZooKeeperClient {
    fn queues(&self) -> bool {
        true
    }

    fn close_releases(&self) -> bool {
        true
    }

    fn silence_max(&self) -> Duration {
        SILENCE_MAX
    }

    fn is_open(&self, _: Duration) -> bool {
        self.connections.iter().all(|link| link.state == State::Ready)
    }

    fn is_ready(&self, slot: u32) -> bool {
        self.connections[self.link(slot)].state == State::Ready
    }

    fn request(&mut self, slot: u32, number: u32, request: LeaseRequest, _: Duration) {
        let step = match (request, &self.queue) {
            (LeaseRequest::Acquire { .. }, Some(_)) => Step::Enqueue,
            (LeaseRequest::Release { .. }, Some(_)) => Step::Delete,
            // Renews all nodes of the session.
            (LeaseRequest::Renew { .. }, _) => Step::Ping,
            (LeaseRequest::Acquire { .. } | LeaseRequest::Release { .. }, None) => {
                let own = &mut self.waiters[slot as usize].own;
                own.clear();
                own.extend_from_slice(self.names.get(number));
                if matches!(request, LeaseRequest::Acquire { .. }) {
                    Step::Create
                } else {
                    Step::Delete
                }
            }
        };
        self.enter(slot, step);
    }

    fn next_outcome(&mut self) -> Option<(u32, Outcome)> {
        self.outcomes.pop_front()
    }

    fn close(&mut self) {
        self.is_closing = true;
        for link in 0..self.connections.len() {
            if self.connections[link].state == State::Ready {
                self.connections[link].state = State::Closing;
                self.send(link, NO_CLIENT, &(op::CLOSE, Vec::new()));
            }
        }
    }

    fn is_closed(&self) -> bool {
        self.connections.iter().all(|link| link.state != State::Closing)
    }
}

impl Connections for ZooKeeperClient {
    fn routes(&self) -> Vec<Vec<usize>> {
        self.routes.clone()
    }

    fn redials_after(&self) -> Option<Duration> {
        Some(REDIAL_AFTER)
    }

    fn connected(&mut self, link: usize) {
        if self.is_closing {
            return;
        }
        self.out.clear(link);
        self.connections[link].state = State::Connecting;
        let out = self.out.to(link);
        jute::put_connect(out, &self.connections[link].session, self.timeout_ms);
    }

    fn is_greeted(&self, link: usize) -> bool {
        self.connections[link].state == State::Ready
    }

    fn lost(&mut self, link: usize, _: Duration) {
        self.out.clear(link);
        let connection = &mut self.connections[link];
        connection.state = State::Down;
        connection.asked.clear();
        if self.queue.is_some() {
            // The client does not know which of its nodes exist, so it ends the session.
            connection.session = Session::default();
        }
        for slot in (link..self.waiters.len()).step_by(self.connections.len()) {
            if self.waiters[slot].step != Step::Idle {
                self.come_to(slot as u32, Outcome::Failed("disconnected".into()));
            }
        }
    }

    fn received(&mut self, link: usize, bytes: &[u8], _: Duration) -> Result<usize, Failure> {
        let garbled = |error: anyhow::Error| Failure::Garbled(format!("{error:#}"));
        let mut read = 0;
        while let Some(message) = jute::whole(&bytes[read..]).map_err(garbled)? {
            self.handle(link, message).map_err(garbled)?;
            read += 4 + message.len();
        }
        Ok(read)
    }

    fn outgoing(&mut self) -> &mut Outgoing {
        &mut self.out
    }

    fn waiting(&self) -> Option<usize> {
        self.connections.iter().position(|link| !link.asked.is_empty())
    }
}

/// The number at the end of the name of a sequential node.
fn sequence(name: &[u8]) -> Result<u64> {
    let digits = name.len().checked_sub(SEQUENCE_LEN).context("a name without a number")?;
    Ok(std::str::from_utf8(&name[digits..])?.parse()?)
}
