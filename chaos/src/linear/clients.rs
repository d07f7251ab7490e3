//! The clients of a run: threads with a connection each, by a library that was not written for us.
//! They draw commands on the shared keys from the seed, and record what became of each.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use paxoslease_rig::clock;
use paxoslease_sim::Rng;
use redis::Connection;

use super::commands::{outcome, packed};
use super::history::{Command, Condition, Doubt, Millis, Operation, Outcome, Value, When};
use super::keys::{Dialect, Key, Keys, Life, Seen};
use crate::log::{Nanos, now};

/// Longer than a node takes to answer NOQUORUM.
const REPLY_MAX: Duration = Duration::from_millis(2500);
const CONNECT_MAX: Duration = Duration::from_millis(500);
/// The rest after a connection failed, and while all keys rest.
const PAUSE: Duration = Duration::from_millis(1);

/// What all clients share.
pub(super) struct Clients<'a> {
    pub(super) keys: &'a Keys,
    pub(super) endpoints: &'a [String],
    /// The longest lease that is not standing.
    pub(super) max_lease: Duration,
    /// Whether SET may replace any value.
    pub(super) overwrites: bool,
    pub(super) seed: u64,
    pub(super) ends_at: Nanos,
    /// How many operations are left.
    pub(super) left: AtomicU64,
    pub(super) values: AtomicU64,
}

struct Client<'a> {
    shared: &'a Clients<'a>,
    id: u16,
    rng: Rng,
    /// The place of the node that it uses.
    endpoint: usize,
    connection: Option<Connection>,
    /// The last tenure of its own: its key, value and fence.
    own: Option<(String, Seen)>,
    errors: Vec<String>,
}

impl Clients<'_> {
    /// Runs one client to the end of the run, and returns the errors that it saw.
    pub(super) fn run(&self, id: u16) -> Vec<String> {
        let mut client = Client {
            shared: self,
            id,
            rng: Rng::new(self.seed, 0xc11e_0000 + u64::from(id)),
            endpoint: usize::from(id) % self.endpoints.len(),
            connection: None,
            own: None,
            errors: Vec::new(),
        };
        while now() < self.ends_at && self.is_left() {
            client.step();
        }
        client.errors
    }

    fn is_left(&self) -> bool {
        let take = |left: u64| left.checked_sub(1);
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }
}

impl Client<'_> {
    fn step(&mut self) {
        if self.connection.is_none() && !self.connect() {
            self.endpoint += 1;
            clock::sleep(PAUSE);
            return;
        }
        let first = self.rng.below(1 << 16) as usize;
        let Some(key) = self.shared.keys.take(first) else {
            clock::sleep(PAUSE);
            return;
        };
        let command = self.draw(&key);
        let Some(connection) = &mut self.connection else {
            self.shared.keys.put_back(&key);
            return;
        };
        let request = packed(&command, &key.name);
        let called_at = now();
        let answer = request.query(connection);
        let returned_at = now();
        let (outcome, error) = outcome(&command, answer);
        let node = (self.endpoint % self.shared.endpoints.len()) as u16 + 1;
        let client = self.id;
        let operation = Operation { client, node, command, called_at, outcome, returned_at };
        self.remember(&key, &operation);
        self.shared.keys.note(&key, operation);
        self.errors.extend(error);
        if outcome == Outcome::Unknown(Doubt::Gone) {
            self.connection = None;
            self.endpoint += 1;
        }
    }

    fn connect(&mut self) -> bool {
        let endpoint = &self.shared.endpoints[self.endpoint % self.shared.endpoints.len()];
        let connected = || -> redis::RedisResult<Connection> {
            let client = redis::Client::open(format!("redis://{endpoint}/"))?;
            let connection = client.get_connection_with_timeout(CONNECT_MAX)?;
            connection.set_read_timeout(Some(REPLY_MAX))?;
            connection.set_write_timeout(Some(REPLY_MAX))?;
            Ok(connection)
        };
        self.connection = connected().ok();
        self.connection.is_some()
    }

    fn remember(&mut self, key: &Arc<Key>, operation: &Operation) {
        if let (Some(value), true) = (operation.command.sets(), operation.is_granted()) {
            let fence = match operation.outcome {
                Outcome::Reply(super::history::Reply::Granted { fence }) => Some(fence),
                _ => None,
            };
            self.own = Some((key.name.clone(), Seen { value: Some(value), fence }));
        }
    }

    fn draw(&mut self, key: &Key) -> Command {
        let is_native = match key.dialect {
            Dialect::Redis => false,
            Dialect::Native => true,
            Dialect::Both => self.rng.chance(350),
        };
        let own = self.own.as_ref().filter(|(name, _)| *name == key.name).map(|(_, own)| *own);
        // Half of the time what this client holds, otherwise what any client saw last.
        let tenure = own.filter(|_| self.rng.chance(500)).unwrap_or(key.seen());
        let ttl = self.ttl(key.life);
        if is_native {
            self.draw_native(tenure, ttl)
        } else {
            self.draw_redis(key.life, tenure, ttl)
        }
    }

    fn draw_native(&mut self, tenure: Seen, ttl: Millis) -> Command {
        match (self.rng.below(100), tenure.fence) {
            (0..35, _) => Command::LeaseAcquire(self.new_value(), ttl),
            (35..60, _) | (_, None) => Command::LeaseGet,
            (60..75, Some(fence)) => Command::LeaseRenew { fence, ttl },
            (_, Some(fence)) => Command::LeaseRelease { fence },
        }
    }

    fn draw_redis(&mut self, life: Life, tenure: Seen, ttl: Millis) -> Command {
        let is_endless = life == Life::Beyond && self.rng.chance(300);
        let set = |value: Value, when: When, get: bool| {
            let ttl = (!is_endless).then_some(ttl);
            Command::Set { value, ttl, when, get }
        };
        match (self.rng.below(100), tenure.value) {
            (0..28, _) | (80.., None) => set(self.new_value(), When::IsFree, false),
            (28..31, _) => set(self.new_value(), When::IsFree, true),
            (31..46, _) => Command::Get,
            (46..50, _) => Command::Exists,
            (50..57, _) => Command::Pttl,
            (57..67, _) => Command::Del,
            (67..70, _) => Command::GetDel,
            (70..77, _) => Command::Pexpire { ttl, condition: self.condition() },
            (77..80, held) => {
                let value = held.filter(|_| !self.shared.overwrites || self.rng.chance(500));
                let value = value.unwrap_or_else(|| self.new_value());
                set(value, When::IsHeld, self.rng.chance(300))
            }
            (80..93, Some(value)) => Command::Release(value),
            (_, Some(value)) => Command::Extend(value, ttl),
        }
    }

    fn condition(&mut self) -> Option<Condition> {
        let some = [Condition::Nx, Condition::Xx, Condition::Gt, Condition::Lt].map(Some);
        if self.rng.chance(500) { None } else { self.rng.pick(&some) }
    }

    fn new_value(&self) -> Value {
        self.shared.values.fetch_add(1, Ordering::Relaxed)
    }

    fn ttl(&mut self, life: Life) -> Millis {
        let longest = self.shared.max_lease.as_millis() as u64;
        match life {
            Life::Short => self.rng.between(60, 300),
            Life::Long => self.rng.between(longest * 3 / 10, longest * 9 / 10),
            Life::Beyond => longest + self.rng.between(10_000, 30_000),
        }
    }
}
