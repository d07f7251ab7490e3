//! The client of Redlock, without sockets: a client holds a lock if it has set the key at a
//! majority of independent Redis servers in time.
//!
//! Every operation goes to all servers at once, and the first majority decides, which no library
//! does better. A failed acquire deletes its key everywhere. The safety of Redlock depends on
//! clocks and on servers that never forget; that is not measured here.

use std::collections::VecDeque;
use std::time::Duration;

use paxoslease_load::{
    Connections, Failure, LeaseRequest, Outcome, Outgoing, Plan, Protocol, Resp,
};

use super::SILENCE_MAX;

/// How long the load waits for servers beyond a majority.
const OPENING_MAX: Duration = Duration::from_secs(1);
const REDIAL_AFTER: Duration = Duration::from_millis(5);

/// The purpose of a round of requests to all servers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Aim {
    #[default]
    Acquire,
    Renew,
    Release,
    /// Deletes the keys of an acquire without a majority.
    Undo,
}

#[derive(Clone, Copy, Debug, Default)]
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

/// The client's side, without sockets. Every server has its own connections, which have adjacent
/// numbers, and its own slots of `redis`.
#[derive(Debug)]
pub(super) struct Redlock {
    servers: usize,
    /// Per server.
    connections: usize,
    ttl: Duration,
    redis: Resp,
    rounds: Vec<Round>,
    /// By slot of `redis`, the rounds of its requests in flight.
    asked: Vec<VecDeque<u32>>,
    outcomes: VecDeque<(u32, Outcome)>,
}

impl Redlock {
    pub(super) fn new(plan: &Plan) -> Self {
        let (servers, connections) = (plan.endpoints.len(), plan.connections as usize);
        let links = servers * connections;
        let slots = links * (plan.in_flight as usize).div_ceil(connections);
        let (connections_of_all, in_flight) = (links as u32, slots as u32);
        let of_all = Plan { connections: connections_of_all, in_flight, ..plan.clone() };
        Self {
            servers,
            connections,
            ttl: plan.ttl,
            redis: Resp::new(&of_all),
            rounds: vec![Round::default(); plan.in_flight as usize],
            asked: vec![VecDeque::new(); slots],
            outcomes: VecDeque::new(),
        }
    }

    fn links(&self) -> usize {
        self.servers * self.connections
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
            if self.redis.is_greeted(link) {
                // The remainder by the number of links is the link, as `redis` expects it.
                let asked = slot as usize / self.connections * self.links() + link;
                self.asked[asked].push_back(turn);
                self.redis.request(asked as u32, number, request, now);
            } else {
                absent += 1;
            }
        }
        for _ in 0..absent {
            self.vote(slot, turn, false, now);
        }
    }

    /// Counts the answers as votes.
    fn count(&mut self, now: Duration) {
        while let Some((asked, outcome)) = self.redis.next_outcome() {
            let asked = asked as usize;
            let turn = self.asked[asked].pop_front().expect("it was asked");
            let slot = asked / self.links() * self.connections + asked % self.connections;
            let is_yes = match outcome {
                Outcome::Yes(_) => true,
                // Any answer to an undo means that the key is gone.
                Outcome::No => self.rounds[slot].aim == Aim::Undo,
                Outcome::Failed(_) => false,
            };
            self.vote(slot as u32, turn, is_yes, now);
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
        self.redis.is_open(now) || (now >= OPENING_MAX && slots.all(|slot| self.is_ready(slot)))
    }

    fn is_ready(&self, slot: u32) -> bool {
        let is_up = |server: &usize| self.redis.is_greeted(self.link(*server, slot));
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
        self.asked.iter().all(VecDeque::is_empty)
    }
}

impl Connections for Redlock {
    fn routes(&self) -> Vec<Vec<usize>> {
        (0..self.links()).map(|link| vec![link / self.connections]).collect()
    }

    fn redials_after(&self) -> Option<Duration> {
        Some(REDIAL_AFTER)
    }

    fn is_greeted(&self, link: usize) -> bool {
        self.redis.is_greeted(link)
    }

    fn lost(&mut self, link: usize, now: Duration) {
        self.redis.lost(link, now);
        self.count(now);
    }

    fn received(&mut self, link: usize, bytes: &[u8], now: Duration) -> Result<usize, Failure> {
        let read = self.redis.received(link, bytes, now)?;
        self.count(now);
        Ok(read)
    }

    fn outgoing(&mut self) -> &mut Outgoing {
        self.redis.outgoing()
    }

    fn waiting(&self) -> Option<usize> {
        self.redis.waiting()
    }
}
