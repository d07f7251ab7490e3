//! The client of Redlock, without sockets: a client holds a lock if it has set the key at a
//! majority of independent Redis servers in time.
//!
//! Every operation goes to all servers at once, and the first majority decides, which no library
//! does better. A failed acquire deletes its key everywhere. The safety of Redlock depends on
//! clocks and on servers that never forget; that is not measured here.

use std::collections::VecDeque;
use std::time::Duration;

use paxoslease_load::{
    Connections, Failure, LeaseRequest, Outcome, Outgoing, Plan, Protocol, RedisLock,
};
use paxoslease_wire::resp::Value;

use super::SILENCE_MAX;

/// How long the load waits for servers beyond a majority.
const OPENING_MAX: Duration = Duration::from_secs(1);
const REDIAL_AFTER: Duration = Duration::from_millis(5);

/// The purpose of a round of requests to all servers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Aim {
    Acquire,
    Renew,
    Release,
    /// Deletes the keys of an acquire without a majority.
    Undo,
}

#[derive(Clone, Copy, Debug)]
struct Round {
    /// The number of the round, to ignore late answers to earlier ones.
    turn: u32,
    aim: Aim,
    yes: usize,
    no: usize,
    number: u32,
    token: u64,
    asked_at: Duration,
}

/// The client's side, without sockets. The connections of a server have adjacent numbers.
#[derive(Debug)]
pub(super) struct Redlock {
    servers: usize,
    connections: usize,
    ttl: Duration,
    redis: RedisLock,
    rounds: Vec<Round>,
    out: Outgoing,
    /// Per connection, slot and round of each request; `None` while disconnected.
    asked: Vec<Option<VecDeque<(u32, u32)>>>,
    /// Per connection, how many replies to the greeting are missing.
    greetings: Vec<u32>,
    outcomes: VecDeque<(u32, Outcome)>,
}

impl Redlock {
    pub(super) fn new(plan: &Plan) -> Self {
        let (servers, connections) = (plan.endpoints.len(), plan.connections as usize);
        let links = servers * connections;
        let round = Round {
            turn: 0,
            aim: Aim::Acquire,
            yes: 0,
            no: 0,
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

    /// Starts a round with the name and token of the last one.
    fn poll(&mut self, slot: u32, aim: Aim, now: Duration) {
        let round = &mut self.rounds[slot as usize];
        round.turn = round.turn.wrapping_add(1);
        (round.aim, round.yes, round.no, round.asked_at) = (aim, 0, 0, now);
        let Round { turn, number, token, .. } = *round;
        let request = match aim {
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
                    self.redis.put(self.out.to(link), number, request);
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
        if is_yes {
            round.yes += 1;
        } else {
            round.no += 1;
        }
        // Exactly one vote completes a majority, or makes it impossible.
        let quorum = self.servers / 2 + 1;
        let decision = is_yes && round.yes == quorum;
        if !decision && (is_yes || round.no != self.servers - quorum + 1) {
            return;
        }
        // The clock drift that the algorithm allows is a hundredth and two milliseconds.
        let drift = self.ttl / 100 + Duration::from_millis(2);
        let is_in_time = now.saturating_sub(round.asked_at) + drift < self.ttl;
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
        // Any answer to an undo means that the key is gone.
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

impl Protocol for Redlock {
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

    fn request(&mut self, slot: u32, number: u32, request: LeaseRequest, now: Duration) {
        let (aim, token) = match request {
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

    /// Waits for all servers, not only for a majority.
    fn is_closed(&self) -> bool {
        self.asked.iter().flatten().all(VecDeque::is_empty)
    }
}

impl Connections for Redlock {
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
