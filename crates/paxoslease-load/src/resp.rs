//! RESP: the requests to a cell or a Redis server, and their replies.
//!
//! A connection's replies come in the order of its requests. The session decides when to send which
//! request.

use std::collections::VecDeque;
use std::time::Duration;

use paxoslease_wire::resp::{Value, put_array, put_bulk, put_bulk_integer, put_command};

use self::Word::{Number, Text};
use crate::plan::{Dialect, Plan, Secret, Workload};
use crate::protocol::{Connections, Failure, LeaseRequest, Names, Outcome, Outgoing, Protocol};

/// How long a waiting acquire waits at the server, in milliseconds.
const WAIT_MS: u64 = 5000;

/// Deletes a lock only if it still has the token.
const RELEASE_SCRIPT: &[u8] =
    b"if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) \
      else return 0 end";
const RENEW_SCRIPT: &[u8] =
    b"if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('pexpire',KEYS[1],ARGV[2]) \
      else return 0 end";

/// Errors that every retry would get: the load ends.
const LASTING: &[&[u8]] =
    &[b"ERR", b"NAME", b"NOAUTH", b"NOPERM", b"NOPROTO", b"NOSCRIPT", b"TTL", b"WRONGPASS"];

/// The commands for locks of a Redis server, as lock libraries use them.
#[derive(Debug)]
struct RedisLock {
    ttl_ms: u64,
    names: Names,
    /// The hashes of the scripts, once the server has them.
    release_script: Vec<u8>,
    renew_script: Vec<u8>,
}

impl RedisLock {
    /// The number of replies to [`RedisLock::greet`].
    const GREETINGS: u32 = 2;

    fn new(plan: &Plan) -> Self {
        let (ttl_ms, names) = (ttl_ms(plan), Names::new(&plan.names));
        Self { ttl_ms, names, release_script: Vec::new(), renew_script: Vec::new() }
    }

    /// Loads the scripts.
    fn greet(&self, out: &mut Vec<u8>) {
        put_command(out, &[b"SCRIPT", b"LOAD", RELEASE_SCRIPT]);
        put_command(out, &[b"SCRIPT", b"LOAD", RENEW_SCRIPT]);
    }

    /// Handles a reply to [`RedisLock::greet`], of which `left` are missing.
    fn greeted(&mut self, left: u32, value: Value<'_>) {
        let script = value.bytes().unwrap_or_default().to_vec();
        match left {
            1 => self.release_script = script,
            0 => self.renew_script = script,
            // The reply to AUTH.
            _ => {}
        }
    }

    /// Writes a request for the lock of this number.
    fn put(&mut self, out: &mut Vec<u8>, number: u32, request: LeaseRequest) {
        let name = self.names.get(number);
        match request {
            LeaseRequest::Acquire { token } => {
                let token = letters(token);
                let ttl = Number(self.ttl_ms);
                put(out, [Text(b"SET"), Text(name), Text(&token), Text(b"NX"), Text(b"PX"), ttl]);
            }
            LeaseRequest::Renew { fence } => {
                let (script, token) = (&self.renew_script, letters(fence));
                let script = [Text(b"EVALSHA"), Text(script), Text(b"1")];
                put(out, script.into_iter().chain([Text(name), Text(&token), Number(self.ttl_ms)]));
            }
            LeaseRequest::Release { fence } => {
                let (script, token) = (&self.release_script, letters(fence));
                put(out, [Text(b"EVALSHA"), Text(script), Text(b"1"), Text(name), Text(&token)]);
            }
        }
    }
}

/// The commands for leases of a cell.
#[derive(Debug)]
struct Cell {
    ttl_ms: u64,
    names: Names,
    waits: bool,
    /// Whether acquires use NOTIFY, because slots share connections.
    notifies: bool,
}

impl Cell {
    fn put(&mut self, out: &mut Vec<u8>, slot: u32, number: u32, request: LeaseRequest) {
        let name = self.names.get(number);
        match request {
            LeaseRequest::Acquire { .. } => {
                let acquire = [Text(b"LEASE.ACQUIRE"), Text(name), Number(self.ttl_ms)];
                let wait = [Text(b"WAIT"), Number(WAIT_MS)];
                let notify = [Text(b"NOTIFY"), Number(u64::from(slot))];
                // NOTIFY is used only with WAIT.
                let len = 2 * (usize::from(self.waits) + usize::from(self.notifies));
                let options = [wait, notify].into_iter().flatten().take(len);
                put(out, acquire.into_iter().chain(options));
            }
            LeaseRequest::Renew { fence } => {
                let renew = [Text(b"LEASE.RENEW"), Text(name)];
                put(out, renew.into_iter().chain([Number(fence), Number(self.ttl_ms)]));
            }
            LeaseRequest::Release { fence } => {
                put(out, [Text(b"LEASE.RELEASE"), Text(name), Number(fence)]);
            }
        }
    }
}

/// A word of a command.
#[derive(Clone, Copy)]
enum Word<'a> {
    Text(&'a [u8]),
    Number(u64),
}

fn put<'a>(out: &mut Vec<u8>, words: impl IntoIterator<Item = Word<'a>, IntoIter: Clone>) {
    let words = words.into_iter();
    put_array(out, words.clone().count());
    words.for_each(|word| match word {
        Text(text) => put_bulk(out, text),
        Number(number) => put_bulk_integer(out, number),
    });
}

#[derive(Debug)]
enum Server {
    Cell(Cell),
    Redis(RedisLock),
}

#[derive(Debug)]
struct Link {
    /// Slots of unanswered requests, in the order of the answers.
    asked: VecDeque<u32>,
    /// Missing replies to the greeting, which come before all others.
    greetings: u32,
}

/// The protocol of a cell or a Redis server.
#[derive(Debug)]
pub struct Resp {
    server: Server,
    token: Option<Secret>,
    endpoints: usize,
    out: Outgoing,
    links: Vec<Link>,
    /// By slot: whether a push will answer its acquire.
    queued: Vec<bool>,
    outcomes: VecDeque<(u32, Outcome)>,
}

impl Resp {
    #[must_use]
    pub fn new(plan: &Plan) -> Self {
        let is_handover = plan.workload == Workload::Handover;
        let server = match plan.dialect {
            Dialect::Redis => Server::Redis(RedisLock::new(plan)),
            Dialect::Paxoslease => Server::Cell(Cell {
                ttl_ms: ttl_ms(plan),
                names: Names::new(&plan.names),
                waits: is_handover,
                notifies: is_handover && plan.connections < plan.in_flight,
            }),
        };
        let (links, slots) = (plan.connections as usize, plan.in_flight as usize);
        let per_link = slots.div_ceil(links);
        let link = |_| Link { asked: VecDeque::with_capacity(per_link), greetings: 0 };
        let mut resp = Self {
            server,
            token: plan.token.clone(),
            endpoints: plan.endpoints.len(),
            out: Outgoing::new(links),
            links: (0..links).map(link).collect(),
            queued: vec![false; slots],
            outcomes: VecDeque::with_capacity(slots),
        };
        (0..links).for_each(|link| resp.greet(link));
        resp
    }

    fn greet(&mut self, link: usize) {
        let out = self.out.to(link);
        let token = self.token.as_ref().map(|token| token.0.as_bytes());
        self.links[link].greetings = match (&self.server, token) {
            (Server::Cell(_), None) => {
                put_command(out, &[b"HELLO", b"3"]);
                1
            }
            (Server::Cell(_), Some(token)) => {
                put_command(out, &[b"HELLO", b"3", b"AUTH", b"default", token]);
                1
            }
            (Server::Redis(redis), token) => {
                if let Some(token) = token {
                    put_command(out, &[b"AUTH", token]);
                }
                redis.greet(out);
                RedisLock::GREETINGS + u32::from(token.is_some())
            }
        };
    }

    /// Handles a reply to the greeting, of which `left` are missing.
    fn greeted(&mut self, left: u32, value: Value<'_>) -> Result<(), Failure> {
        if let Value::Error(text) = value {
            return Err(Failure::Refused(text_of(text)));
        }
        match &mut self.server {
            Server::Redis(redis) => redis.greeted(left, value),
            Server::Cell(_) => {
                let server = value.field(b"server").and_then(Value::bytes).unwrap_or(b"unnamed");
                if server != b"paxoslease" {
                    return Err(Failure::Foreign(text_of(server)));
                }
            }
        }
        Ok(())
    }

    fn handle(&mut self, link: usize, value: Value<'_>) -> Result<(), Failure> {
        if matches!(value, Value::Push(_)) {
            let Some((slot, answer)) = Answer::of_push(value) else { return Ok(()) };
            return match self.queued.get_mut(slot as usize) {
                Some(is_queued @ true) => {
                    *is_queued = false;
                    self.answered(slot, answer)
                }
                _ => Err(Failure::Garbled(format!("no request waits as number {slot}"))),
            };
        }
        if self.links[link].greetings > 0 {
            self.links[link].greetings -= 1;
            return self.greeted(self.links[link].greetings, value);
        }
        let garbled = |text: &str| Failure::Garbled(text.to_owned());
        let asked = self.links[link].asked.pop_front();
        let slot = asked.ok_or_else(|| garbled("an answer to nothing"))?;
        let answer = Answer::of(value).ok_or_else(|| garbled("an answer of another kind"))?;
        self.answered(slot, answer)
    }

    fn answered(&mut self, slot: u32, answer: Answer<'_>) -> Result<(), Failure> {
        let outcome = match answer {
            Answer::Yes(fence) => Outcome::Yes(fence),
            Answer::No => Outcome::No,
            Answer::Queued if matches!(&self.server, Server::Cell(cell) if cell.notifies) => {
                self.queued[slot as usize] = true;
                return Ok(());
            }
            Answer::Queued => return Err(Failure::Garbled("QUEUED without NOTIFY".to_owned())),
            Answer::Error(text) if LASTING.contains(&first_word(text)) => {
                return Err(Failure::Refused(text_of(text)));
            }
            Answer::Error(text) => Outcome::Failed(text_of(text).into()),
        };
        self.outcomes.push_back((slot, outcome));
        Ok(())
    }
}

impl Protocol for Resp {
    fn queues(&self) -> bool {
        matches!(self.server, Server::Cell(_))
    }

    fn is_open(&self, _: Duration) -> bool {
        self.links.iter().all(|link| link.greetings == 0)
    }

    /// Requests wait in the buffer behind the greeting.
    fn request(&mut self, slot: u32, number: u32, request: LeaseRequest, _: Duration) {
        let link = slot as usize % self.links.len();
        self.links[link].asked.push_back(slot);
        let out = self.out.to(link);
        match &mut self.server {
            Server::Cell(cell) => cell.put(out, slot, number, request),
            Server::Redis(redis) => redis.put(out, number, request),
        }
    }

    fn next_outcome(&mut self) -> Option<(u32, Outcome)> {
        self.outcomes.pop_front()
    }
}

impl Connections for Resp {
    /// Each connection begins at another endpoint, and goes to the next one when it fails.
    fn routes(&self) -> Vec<Vec<usize>> {
        let route = |link| (0..self.endpoints).map(|next| (link + next) % self.endpoints).collect();
        (0..self.links.len()).map(route).collect()
    }

    fn is_greeted(&self, link: usize) -> bool {
        self.links[link].greetings == 0
    }

    fn lost(&mut self, link: usize, _: Duration) {
        self.out.clear(link);
        let links = self.links.len();
        let queued = (link..self.queued.len()).step_by(links);
        let queued = queued.filter(|slot| std::mem::take(&mut self.queued[*slot]));
        let failed = queued.map(|slot| slot as u32).chain(self.links[link].asked.drain(..));
        let failed = failed.map(|slot| (slot, Outcome::Failed("disconnected".into())));
        self.outcomes.extend(failed);
        self.greet(link);
    }

    fn received(&mut self, link: usize, bytes: &[u8], _: Duration) -> Result<usize, Failure> {
        let mut read = 0;
        loop {
            match Value::parse(&bytes[read..]) {
                Ok(Some((value, len))) => {
                    self.handle(link, value)?;
                    read += len;
                }
                Ok(None) => return Ok(read),
                Err(error) => return Err(Failure::Garbled(error.to_string())),
            }
        }
    }

    fn outgoing(&mut self) -> &mut Outgoing {
        &mut self.out
    }

    fn waiting(&self) -> Option<usize> {
        self.links.iter().position(|link| link.greetings > 0 || !link.asked.is_empty())
    }
}

/// The meaning of a reply to any request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Answer<'a> {
    /// Done, with the fence if it is a grant of a cell.
    Yes(Option<u64>),
    /// Held by another client, or no longer held.
    No,
    /// A push will follow.
    Queued,
    /// The error text of the server.
    Error(&'a [u8]),
}

impl<'a> Answer<'a> {
    /// `None` for a reply that no request here gets.
    fn of(value: Value<'a>) -> Option<Self> {
        Some(match value {
            Value::Array(mut items) => Self::Yes(Some(items.next()?.decimal()?)),
            Value::Simple(b"OK") => Self::Yes(None),
            Value::Simple(b"QUEUED") => Self::Queued,
            Value::Integer(0) | Value::Null => Self::No,
            Value::Integer(_) => Self::Yes(None),
            Value::Error(text) => Self::Error(text),
            _ => return None,
        })
    }

    /// The result of a waiting acquire, and its number; `None` for other pushes.
    fn of_push(value: Value<'a>) -> Option<(u32, Self)> {
        let mut items = value.items()?;
        let kind = items.next()?.bytes()?;
        let id = items.next()?;
        let id = match id.integer() {
            Some(number) => u32::try_from(number).ok()?,
            None => std::str::from_utf8(id.bytes()?).ok()?.parse().ok()?,
        };
        match kind {
            b"lease.granted" => Some((id, Self::Yes(Some(items.next()?.decimal()?)))),
            b"lease.timeout" => Some((id, Self::No)),
            _ => None,
        }
    }
}

/// A text as long as the tokens of lock libraries, which Redis does not store as a number.
fn letters(token: u64) -> [u8; 16] {
    let mut text = [0; 16];
    for (place, digit) in text.iter_mut().rev().enumerate() {
        *digit = b"ghijklmnopqrstuv"[(token >> (4 * place)) as usize % 16];
    }
    text
}

pub(crate) fn text_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The first word of an error, which is its kind.
pub(crate) fn first_word(text: &[u8]) -> &[u8] {
    text.split(|byte| *byte == b' ').next().unwrap_or_default()
}

fn ttl_ms(plan: &Plan) -> u64 {
    u64::try_from(plan.ttl.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The meaning of a reply, a push or a greeting, in which `|` ends a line.
    fn played(command: &str) -> String {
        let (kind, reply) = command.split_once(' ').expect("a kind and a reply");
        let bytes = reply.replace('|', "\r\n").into_bytes();
        let (value, len) = Value::parse(&bytes).expect("well formed").expect("whole");
        assert_eq!(len, bytes.len(), "one reply");
        match kind {
            "reply" => format!("{:?}", Answer::of(value)),
            "push" => format!("{:?}", Answer::of_push(value)),
            "greeting" => {
                let mut cell = Resp::new(&Plan::new(["127.0.0.1:1"], Workload::Pairs));
                format!("{:?}", cell.greeted(0, value))
            }
            _ => panic!("not a kind: {kind}"),
        }
    }

    #[test]
    fn replies_mean_what_the_transcript_says() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/resp.txt");
        paxoslease_rig::check_transcript(path.as_ref(), played);
    }
}
