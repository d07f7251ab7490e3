//! Redlock: as many Redis servers that know nothing of each other, and a lock is held by whoever
//! set its key at a majority of them, in time.
//!
//! Every operation goes to all servers at once and is decided by the first majority, which no
//! library does better. What a failed acquire has set is taken back everywhere. Its safety rests
//! on clocks and on no server ever forgetting, which is not what is measured here.

mod votes;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use paxoslease_wire::resp::{Value, put_array, put_bulk, put_bulk_integer, put_command};

use self::votes::{Votes, validity};
use super::engine::{Ask, Engine, Links, Outcome, Protocol};
use super::names::Spelling;
use super::redis::{Persistence, RedisServer, version};
use super::wire::converse;
use super::{Load, Loaded, Service};
use paxoslease_rig::{Folder, Process, free_ports};

const RELEASE_SCRIPT: &[u8] =
    b"if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) \
      else return 0 end";
const RENEW_SCRIPT: &[u8] =
    b"if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('pexpire',KEYS[1],ARGV[2]) \
      else return 0 end";

/// Redlock over Redis servers without persistence.
#[derive(Debug)]
pub struct Redlock {
    servers: Vec<RedisServer>,
    processes: Vec<Process>,
    _folder: Folder,
}

impl Redlock {
    /// Starts so many servers and waits until each serves.
    ///
    /// # Errors
    /// When they are not installed or do not come up.
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

    fn run(&self, load: &Load) -> Result<Loaded> {
        let client = Client::new(load, self.servers.len());
        let mut addresses = Vec::new();
        for server in &self.servers {
            let address: SocketAddr = server.endpoint.parse()?;
            addresses.extend((0..client.connections).map(|_| vec![address]));
        }
        let mut engine = Engine::new(client, load);
        converse(addresses, &mut engine)?;
        Ok(engine.loaded())
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
    spelling: Spelling,
    rounds: Vec<Round>,
    links: Links,
    /// Per link, whose answers are to come; `None` while there is no connection.
    asked: Vec<Option<VecDeque<(u32, u32)>>>,
    /// Answers to the greeting that are to come before all others.
    greetings: Vec<u32>,
    /// What servers call the scripts.
    release_script: Vec<u8>,
    renew_script: Vec<u8>,
    outcomes: VecDeque<(u32, Outcome)>,
}

impl Client {
    fn new(load: &Load, servers: usize) -> Self {
        let connections = load.connections.min(load.in_flight) as usize;
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
            ttl: load.ttl,
            spelling: Spelling::new(&load.names),
            rounds: vec![round; load.in_flight as usize],
            links: Links::new(links),
            asked: vec![None; links],
            greetings: vec![0; links],
            release_script: Vec::new(),
            renew_script: Vec::new(),
            outcomes: VecDeque::new(),
        }
    }

    fn is_up(&self, link: usize) -> bool {
        self.asked[link].is_some() && self.greetings[link] == 0
    }

    fn link(&self, server: usize, client: u32) -> usize {
        server * self.connections + client as usize % self.connections
    }

    /// A new round with the name and token of the one before.
    fn poll(&mut self, client: u32, aim: Aim, now: Duration) {
        let round = &mut self.rounds[client as usize];
        round.turn = round.turn.wrapping_add(1);
        (round.aim, round.votes, round.asked_at) = (aim, Votes::new(self.servers), now);
        let Round { turn, number, token, .. } = *round;
        for server in 0..self.servers {
            let link = self.link(server, client);
            if !self.is_up(link) {
                continue;
            }
            if let Some(asked) = &mut self.asked[link] {
                asked.push_back((client, turn));
            }
            self.put(link, aim, number, token);
        }
        let absent = (0..self.servers).filter(|server| !self.is_up(self.link(*server, client)));
        for _ in 0..absent.count() {
            self.vote(client, turn, false, now);
        }
    }

    fn put(&mut self, link: usize, aim: Aim, number: u32, token: u64) {
        let name = self.spelling.of(number);
        let token = letters(token);
        let ttl_ms = self.ttl.as_millis() as u64;
        let out = self.links.say(link);
        match aim {
            Aim::Acquire => {
                put_array(out, 6);
                put_bulk(out, b"SET");
                put_bulk(out, name);
                put_bulk(out, &token);
                put_bulk(out, b"NX");
                put_bulk(out, b"PX");
                put_bulk_integer(out, ttl_ms);
            }
            Aim::Renew => {
                put_array(out, 6);
                put_bulk(out, b"EVALSHA");
                put_bulk(out, &self.renew_script);
                put_bulk(out, b"1");
                put_bulk(out, name);
                put_bulk(out, &token);
                put_bulk_integer(out, ttl_ms);
            }
            Aim::Release | Aim::Undo => {
                put_array(out, 5);
                put_bulk(out, b"EVALSHA");
                put_bulk(out, &self.release_script);
                put_bulk(out, b"1");
                put_bulk(out, name);
                put_bulk(out, &token);
            }
        }
    }

    fn vote(&mut self, client: u32, turn: u32, is_yes: bool, now: Duration) {
        let round = &mut self.rounds[client as usize];
        if round.turn != turn {
            return;
        }
        let Some(decision) = round.votes.hear(is_yes) else { return };
        let is_in_time = validity(self.ttl, now.saturating_sub(round.asked_at)).is_some();
        let outcome = match (round.aim, decision) {
            (Aim::Acquire, true) if is_in_time => Outcome::Yes,
            (Aim::Acquire, _) => return self.poll(client, Aim::Undo, now),
            (Aim::Renew, true) if is_in_time => Outcome::Yes,
            (Aim::Renew, _) => Outcome::No,
            (Aim::Release, true) => Outcome::Yes,
            (Aim::Release, false) => Outcome::No,
            (Aim::Undo, true) => Outcome::No,
            (Aim::Undo, false) => Outcome::Failed("no majority of the servers answers"),
        };
        self.outcomes.push_back((client, outcome));
    }

    fn hear(&mut self, link: usize, value: Value<'_>, now: Duration) -> Result<()> {
        if let Value::Error(text) = value {
            bail!("a Redis server refuses: {}", String::from_utf8_lossy(text));
        }
        if self.greetings[link] > 0 {
            self.greetings[link] -= 1;
            let script = value.bytes().context("no name of a script")?.to_vec();
            if self.greetings[link] == 1 {
                self.release_script = script;
            } else {
                self.renew_script = script;
            }
            return Ok(());
        }
        let asked = self.asked[link].as_mut().and_then(VecDeque::pop_front);
        let (client, turn) = asked.context("an answer to nothing")?;
        // Whatever a server says to an undo, it has undone it.
        let is_undo = self.rounds[client as usize].aim == Aim::Undo;
        let is_yes = match value {
            Value::Simple(b"OK") => true,
            Value::Integer(number) => number > 0 || is_undo,
            Value::Null => false,
            _ => bail!("a Redis server answers something else"),
        };
        self.vote(client, turn, is_yes, now);
        Ok(())
    }
}

impl Protocol for Client {
    const CLOSE_RELEASES: bool = false;

    fn links(&mut self) -> &mut Links {
        &mut self.links
    }

    fn connected(&mut self, link: usize) {
        self.links.clear(link);
        self.asked[link] = Some(VecDeque::new());
        self.greetings[link] = 2;
        let out = self.links.say(link);
        put_command(out, &[b"SCRIPT", b"LOAD", RELEASE_SCRIPT]);
        put_command(out, &[b"SCRIPT", b"LOAD", RENEW_SCRIPT]);
    }

    fn lost(&mut self, link: usize, now: Duration) {
        self.links.clear(link);
        for (client, turn) in self.asked[link].take().into_iter().flatten() {
            self.vote(client, turn, false, now);
        }
    }

    fn received(&mut self, link: usize, bytes: &[u8], now: Duration) -> Result<usize> {
        let mut read = 0;
        while let Some((value, len)) = Value::parse(&bytes[read..])? {
            self.hear(link, value, now)?;
            read += len;
        }
        Ok(read)
    }

    fn is_ready(&self, client: u32) -> bool {
        let is_up = |server: &usize| self.is_up(self.link(*server, client));
        2 * (0..self.servers).filter(is_up).count() > self.servers
    }

    fn is_whole(&self) -> bool {
        (0..self.asked.len()).all(|link| self.is_up(link))
    }

    fn ask(&mut self, client: u32, ask: Ask, number: u32, token: u64, now: Duration) {
        let aim = match ask {
            Ask::Acquire => Aim::Acquire,
            Ask::Renew => Aim::Renew,
            Ask::Release => Aim::Release,
        };
        let round = &mut self.rounds[client as usize];
        (round.number, round.token) = (number, token);
        self.poll(client, aim, now);
    }

    fn next_outcome(&mut self) -> Option<(u32, Outcome)> {
        self.outcomes.pop_front()
    }

    fn close(&mut self) {}

    /// A majority has decided everything, but the others are to hear of it too.
    fn is_closed(&self) -> bool {
        self.asked.iter().flatten().all(VecDeque::is_empty)
    }
}

/// As long as the tokens that lock libraries draw, and like them no number to Redis.
fn letters(token: u64) -> [u8; 16] {
    let mut text = [0; 16];
    for (place, digit) in text.iter_mut().rev().enumerate() {
        *digit = b"ghijklmnopqrstuv"[(token >> (4 * place)) as usize % 16];
    }
    text
}

#[cfg(test)]
mod tests;
