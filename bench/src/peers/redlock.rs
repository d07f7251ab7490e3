//! Redlock: as many Redis servers that know nothing of each other, and a lock is held by whoever
//! set its key at a majority of them, in time.
//!
//! Every operation goes to all servers at once and is decided by the first majority, which no
//! library does better. What a failed acquire has set is taken back everywhere. Its safety rests
//! on clocks and on no server ever forgetting, which is not what is measured here.

mod votes;

use std::collections::VecDeque;
use std::time::Duration;

use anyhow::Result;
use paxoslease_load::{
    LeaseRequest, Connections, Failure, Outcome, Outgoing, Plan, Protocol, RedisLock, Report, run_with,
};
use paxoslease_rig::{Folder, Process, free_ports};
use paxoslease_wire::resp::Value;

use self::votes::{Votes, validity};
use super::redis::{Persistence, RedisServer, version};
use super::{SILENCE_MAX, Service, Target, connected};

/// How long to wait for servers that are not needed, since one may be dead.
const OPENING_MAX: Duration = Duration::from_secs(1);
/// Between two tries to connect to a server that is dead.
const REDIAL_AFTER: Duration = Duration::from_millis(5);

/// Redlock over Redis servers without persistence.
#[derive(Debug)]
pub struct Redlock {
    servers: Vec<RedisServer>,
    processes: Vec<Process>,
    _folder: Folder,
}

impl Redlock {
    /// Starts so many servers and waits until each serves.
    pub fn start<const SERVERS: usize>() -> Result<Self> {
        let folder = Folder::new("redlock")?;
        let mut servers = Vec::new();
        let mut processes = Vec::new();
        for port in free_ports::<SERVERS>()? {
            let server = RedisServer::new(folder.path(), port, Persistence::Nothing)?;
            processes.push(server.spawn()?);
            servers.push(server);
        }
        for (server, process) in servers.iter().zip(&processes) {
            server.await_service(process)?;
        }
        Ok(Self { servers, processes, _folder: folder })
    }
}

impl Service for Redlock {
    fn name(&self) -> &'static str {
        "Redlock"
    }

    fn version(&self) -> Result<String> {
        version()
    }

    fn settings(&self) -> String {
        "no persistence; every operation to all at once, decided by the first majority".to_owned()
    }

    fn members(&self) -> &[Process] {
        &self.processes
    }

    fn run(&self, plan: &Plan, _: Target) -> Result<Report> {
        let endpoints = self.servers.iter().map(|server| server.endpoint.clone());
        let plan = connected(plan, endpoints.collect::<Vec<_>>());
        Ok(run_with(&plan, Client::new(&plan), &mut |_| {})?)
    }

    /// They are all alike.
    fn first_to_kill(&self) -> Result<Option<usize>> {
        Ok(Some(0))
    }

    fn restart(&mut self, member: usize) -> Result<()> {
        self.processes[member].kill()?;
        self.processes[member] = self.servers[member].spawn()?;
        self.servers[member].await_service(&self.processes[member])
    }
}

/// What a round of questions to all servers is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Aim {
    Acquire,
    Renew,
    Release,
    /// Takes back what an acquire without a majority has set.
    Undo,
}

/// The last round of a client.
#[derive(Clone, Copy, Debug)]
struct Round {
    /// Tells late answers to earlier rounds apart.
    turn: u32,
    aim: Aim,
    votes: Votes,
    number: u32,
    token: u64,
    asked_at: Duration,
}

/// The client's side, without sockets. The connections to a server lie next to each other.
#[derive(Debug)]
struct Client {
    servers: usize,
    connections: usize,
    ttl: Duration,
    redis: RedisLock,
    rounds: Vec<Round>,
    out: Outgoing,
    /// Per link, whose answers are to come; `None` while there is no connection.
    asked: Vec<Option<VecDeque<(u32, u32)>>>,
    /// Answers to the greeting that are to come before all others.
    greetings: Vec<u32>,
    outcomes: VecDeque<(u32, Outcome)>,
}

impl Client {
    fn new(plan: &Plan) -> Self {
        let (servers, connections) = (plan.endpoints.len(), plan.connections as usize);
        let links = servers * connections;
        let round = Round {
            turn: 0,
            aim: Aim::Acquire,
            votes: Votes::new(servers),
            number: 0,
            token: 0,
            asked_at: Duration::ZERO,
        };
        Self {
            servers,
            connections,
            ttl: plan.ttl,
            redis: RedisLock::new(plan),
            rounds: vec![round; plan.in_flight as usize],
            out: Outgoing::new(links),
            asked: vec![None; links],
            greetings: vec![0; links],
            outcomes: VecDeque::new(),
        }
    }

    fn is_up(&self, link: usize) -> bool {
        self.asked[link].is_some() && self.greetings[link] == 0
    }

    fn link(&self, server: usize, slot: u32) -> usize {
        server * self.connections + slot as usize % self.connections
    }

    /// A new round with the name and token of the one before.
    fn poll(&mut self, slot: u32, aim: Aim, now: Duration) {
        let round = &mut self.rounds[slot as usize];
        round.turn = round.turn.wrapping_add(1);
        (round.aim, round.votes, round.asked_at) = (aim, Votes::new(self.servers), now);
        let Round { turn, number, token, .. } = *round;
        let ask = match aim {
            Aim::Acquire => LeaseRequest::Acquire { token },
            Aim::Renew => LeaseRequest::Renew { fence: token },
            Aim::Release | Aim::Undo => LeaseRequest::Release { fence: token },
        };
        let mut absent = 0;
        for server in 0..self.servers {
            let link = self.link(server, slot);
            match &mut self.asked[link] {
                Some(asked) if self.greetings[link] == 0 => {
                    asked.push_back((slot, turn));
                    self.redis.put(self.out.to(link), number, ask);
                }
                _ => absent += 1,
            }
        }
        for _ in 0..absent {
            self.vote(slot, turn, false, now);
        }
    }

    fn vote(&mut self, slot: u32, turn: u32, is_yes: bool, now: Duration) {
        let round = &mut self.rounds[slot as usize];
        if round.turn != turn {
            return;
        }
        let Some(decision) = round.votes.hear(is_yes) else { return };
        let is_in_time = validity(self.ttl, now.saturating_sub(round.asked_at)).is_some();
        let outcome = match (round.aim, decision) {
            (Aim::Acquire, true) if is_in_time => Outcome::Yes(None),
            (Aim::Acquire, _) => return self.poll(slot, Aim::Undo, now),
            (Aim::Renew, true) if is_in_time => Outcome::Yes(None),
            (Aim::Renew, _) => Outcome::No,
            (Aim::Release, true) => Outcome::Yes(None),
            (Aim::Release, false) => Outcome::No,
            (Aim::Undo, true) => Outcome::No,
            (Aim::Undo, false) => Outcome::Failed("no majority of the servers answers".into()),
        };
        self.outcomes.push_back((slot, outcome));
    }

    fn hear(&mut self, link: usize, value: Value<'_>, now: Duration) -> Result<(), Failure> {
        if let Value::Error(text) = value {
            return Err(Failure::Refused(String::from_utf8_lossy(text).into_owned()));
        }
        if self.greetings[link] > 0 {
            self.greetings[link] -= 1;
            self.redis.greeted(self.greetings[link], value);
            return Ok(());
        }
        let garbled = |text: &str| Failure::Garbled(text.to_owned());
        let asked = self.asked[link].as_mut().and_then(VecDeque::pop_front);
        let (slot, turn) = asked.ok_or_else(|| garbled("an answer to nothing"))?;
        // Whatever a server says to an undo, it has undone it.
        let is_undo = self.rounds[slot as usize].aim == Aim::Undo;
        let is_yes = match value {
            Value::Simple(b"OK") => true,
            Value::Integer(number) => number > 0 || is_undo,
            Value::Null => false,
            _ => return Err(garbled("an answer of another kind")),
        };
        self.vote(slot, turn, is_yes, now);
        Ok(())
    }
}

impl Protocol for Client {
    fn queues(&self) -> bool {
        false
    }

    fn silence_max(&self) -> Duration {
        SILENCE_MAX
    }

    fn is_open(&self, now: Duration) -> bool {
        let mut slots = 0..self.rounds.len() as u32;
        (0..self.asked.len()).all(|link| self.is_up(link))
            || (now >= OPENING_MAX && slots.all(|slot| self.is_ready(slot)))
    }

    fn is_ready(&self, slot: u32) -> bool {
        let is_up = |server: &usize| self.is_up(self.link(*server, slot));
        2 * (0..self.servers).filter(is_up).count() > self.servers
    }

    fn request(&mut self, slot: u32, number: u32, ask: LeaseRequest, now: Duration) {
        let (aim, token) = match ask {
            LeaseRequest::Acquire { token } => (Aim::Acquire, token),
            LeaseRequest::Renew { fence } => (Aim::Renew, fence),
            LeaseRequest::Release { fence } => (Aim::Release, fence),
        };
        let round = &mut self.rounds[slot as usize];
        (round.number, round.token) = (number, token);
        self.poll(slot, aim, now);
    }

    fn next_outcome(&mut self) -> Option<(u32, Outcome)> {
        self.outcomes.pop_front()
    }

    /// A majority has decided everything, but the others are to hear of it too.
    fn is_closed(&self) -> bool {
        self.asked.iter().flatten().all(VecDeque::is_empty)
    }
}

impl Connections for Client {
    fn routes(&self) -> Vec<Vec<usize>> {
        (0..self.asked.len()).map(|link| vec![link / self.connections]).collect()
    }

    fn redials_after(&self) -> Option<Duration> {
        Some(REDIAL_AFTER)
    }

    fn connected(&mut self, link: usize) {
        self.out.clear(link);
        self.asked[link] = Some(VecDeque::new());
        self.greetings[link] = RedisLock::GREETINGS;
        self.redis.greet(self.out.to(link));
    }

    fn is_greeted(&self, link: usize) -> bool {
        self.is_up(link)
    }

    fn lost(&mut self, link: usize, now: Duration) {
        self.out.clear(link);
        for (slot, turn) in self.asked[link].take().into_iter().flatten() {
            self.vote(slot, turn, false, now);
        }
    }

    fn received(&mut self, link: usize, bytes: &[u8], now: Duration) -> Result<usize, Failure> {
        let garbled = |error: paxoslease_wire::resp::RespError| Failure::Garbled(error.to_string());
        let mut read = 0;
        while let Some((value, len)) = Value::parse(&bytes[read..]).map_err(garbled)? {
            self.hear(link, value, now)?;
            read += len;
        }
        Ok(read)
    }

    fn outgoing(&mut self) -> &mut Outgoing {
        &mut self.out
    }

    fn waiting(&self) -> Option<usize> {
        self.asked.iter().position(|asked| asked.as_ref().is_some_and(|asked| !asked.is_empty()))
    }
}

#[cfg(test)]
mod tests;
