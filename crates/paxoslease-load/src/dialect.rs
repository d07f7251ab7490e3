//! Requests in words, and answers in a few: what a cell and what a Redis server understand.
//!
//! Requests are appended to a connection's buffer from pieces made once. Knows nothing of when
//! anything is asked or what for.

use paxoslease_wire::resp::{Value, put_array, put_bulk, put_bulk_integer, put_command};

use crate::plan::{Dialect, Plan, Secret, Workload};

/// How long a waiting acquire waits at the server, in milliseconds.
const WAIT_MS: u64 = 5000;
/// Digits that tell names apart.
const DIGITS: usize = 9;

/// The usual way to give a lock back: only if it is still one's own.
const RELEASE_SCRIPT: &[u8] =
    b"if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) \
      else return 0 end";
const RENEW_SCRIPT: &[u8] =
    b"if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('pexpire',KEYS[1],ARGV[2]) \
      else return 0 end";

/// Puts requests into words.
#[derive(Debug)]
pub(crate) struct Speaker {
    dialect: Dialect,
    token: Option<Secret>,
    ttl_ms: u64,
    waits: bool,
    /// The prefix of all names, then room for digits.
    name: Vec<u8>,
    /// What the server calls the scripts, once it has been given them.
    release_script: Vec<u8>,
    renew_script: Vec<u8>,
}

/// What an answer comes to, whatever was asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Answer<'a> {
    /// Done; of a cell's grant, with the fence.
    Yes(Option<u64>),
    /// Held by another, or no longer held.
    No,
    /// To be told later.
    Queued,
    /// An error, in the server's words.
    Error(&'a [u8]),
}

/// What a server says of itself that makes it useless here.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum BadGreeting {
    /// It refuses us, in its words.
    Refused(String),
    /// It is something else, which it names.
    Foreign(String),
}

impl Speaker {
    pub(crate) fn new(plan: &Plan) -> Self {
        let mut name = plan.names.clone().into_bytes();
        name.extend_from_slice(&[b'0'; DIGITS]);
        let waits = plan.workload == Workload::Handover && plan.dialect == Dialect::Paxoslease;
        Self {
            dialect: plan.dialect,
            token: plan.token.clone(),
            ttl_ms: u64::try_from(plan.ttl.as_millis()).unwrap_or(u64::MAX),
            waits,
            name,
            release_script: Vec::new(),
            renew_script: Vec::new(),
        }
    }

    /// What a connection begins with. Says how many answers there will be.
    pub(crate) fn greet(&self, out: &mut Vec<u8>) -> u32 {
        let token = self.token.as_ref().map(|token| token.0.as_bytes());
        match (self.dialect, token) {
            (Dialect::Paxoslease, None) => put_command(out, &[b"HELLO", b"3"]),
            (Dialect::Paxoslease, Some(token)) => {
                put_command(out, &[b"HELLO", b"3", b"AUTH", b"default", token]);
            }
            (Dialect::Redis, token) => {
                if let Some(token) = token {
                    put_command(out, &[b"AUTH", token]);
                }
                put_command(out, &[b"SCRIPT", b"LOAD", RELEASE_SCRIPT]);
                put_command(out, &[b"SCRIPT", b"LOAD", RENEW_SCRIPT]);
                return 2 + u32::from(token.is_some());
            }
        }
        1
    }

    /// An answer to the greeting, with so many still to come.
    pub(crate) fn greeted(&mut self, left: u32, value: Value<'_>) -> Result<(), BadGreeting> {
        if let Value::Error(text) = value {
            return Err(BadGreeting::Refused(text_of(text)));
        }
        match (self.dialect, left) {
            (Dialect::Paxoslease, _) => {
                let server = value.field(b"server").and_then(Value::bytes).unwrap_or(b"unnamed");
                if server != b"paxoslease" {
                    return Err(BadGreeting::Foreign(text_of(server)));
                }
            }
            (Dialect::Redis, 1) => self.release_script = value.bytes().unwrap_or_default().into(),
            (Dialect::Redis, 0) => self.renew_script = value.bytes().unwrap_or_default().into(),
            (Dialect::Redis, _) => {}
        }
        Ok(())
    }

    /// Of a grant the token is the proof where the server gives no fence. With `notify`, an answer
    /// that takes time comes as a push with this number.
    pub(crate) fn acquire(
        &mut self,
        out: &mut Vec<u8>,
        number: u32,
        token: u64,
        notify: Option<u32>,
    ) {
        match self.dialect {
            Dialect::Paxoslease => {
                let waits = if self.waits { 2 } else { 0 };
                let notifies = if notify.is_some() { 2 } else { 0 };
                put_array(out, 3 + waits + notifies);
                put_bulk(out, b"LEASE.ACQUIRE");
                put_bulk(out, self.name(number));
                put_bulk_integer(out, self.ttl_ms);
                if self.waits {
                    put_bulk(out, b"WAIT");
                    put_bulk_integer(out, WAIT_MS);
                }
                if let Some(id) = notify {
                    put_bulk(out, b"NOTIFY");
                    put_bulk_integer(out, u64::from(id));
                }
            }
            Dialect::Redis => {
                put_array(out, 6);
                put_bulk(out, b"SET");
                put_bulk(out, self.name(number));
                put_bulk(out, &letters(token));
                put_bulk(out, b"NX");
                put_bulk(out, b"PX");
                put_bulk_integer(out, self.ttl_ms);
            }
        }
    }

    pub(crate) fn renew(&mut self, out: &mut Vec<u8>, number: u32, fence: u64) {
        match self.dialect {
            Dialect::Paxoslease => {
                put_array(out, 4);
                put_bulk(out, b"LEASE.RENEW");
                put_bulk(out, self.name(number));
                put_bulk_integer(out, fence);
            }
            Dialect::Redis => {
                put_array(out, 6);
                put_bulk(out, b"EVALSHA");
                put_bulk(out, &self.renew_script);
                put_bulk(out, b"1");
                put_bulk(out, self.name(number));
                put_bulk(out, &letters(fence));
            }
        }
        put_bulk_integer(out, self.ttl_ms);
    }

    pub(crate) fn release(&mut self, out: &mut Vec<u8>, number: u32, fence: u64) {
        match self.dialect {
            Dialect::Paxoslease => {
                put_array(out, 3);
                put_bulk(out, b"LEASE.RELEASE");
                put_bulk(out, self.name(number));
                put_bulk_integer(out, fence);
            }
            Dialect::Redis => {
                put_array(out, 5);
                put_bulk(out, b"EVALSHA");
                put_bulk(out, &self.release_script);
                put_bulk(out, b"1");
                put_bulk(out, self.name(number));
                put_bulk(out, &letters(fence));
            }
        }
    }

    /// The name of this number, in place. All are of the same length.
    pub(crate) fn name(&mut self, number: u32) -> &[u8] {
        let digits = self.name.len() - DIGITS;
        let mut left = number;
        for digit in self.name[digits..].iter_mut().rev() {
            *digit = b'0' + (left % 10) as u8;
            left /= 10;
        }
        &self.name
    }
}

impl<'a> Answer<'a> {
    /// What a reply comes to; `None` if no request of ours is ever answered so.
    pub(crate) fn of(value: Value<'a>) -> Option<Self> {
        Some(match value {
            Value::Array(mut items) => Self::Yes(Some(fence(items.next()?)?)),
            Value::Simple(b"OK") => Self::Yes(None),
            Value::Simple(b"QUEUED") => Self::Queued,
            Value::Integer(0) | Value::Null => Self::No,
            Value::Integer(_) => Self::Yes(None),
            Value::Error(text) => Self::Error(text),
            _ => return None,
        })
    }

    /// What became of a waiting acquire, and its number; `None` for pushes of any other kind.
    pub(crate) fn of_push(value: Value<'a>) -> Option<(u32, Self)> {
        let mut items = value.items()?;
        let kind = items.next()?.bytes()?;
        let id = items.next()?;
        let id = match id.integer() {
            Some(number) => u32::try_from(number).ok()?,
            None => std::str::from_utf8(id.bytes()?).ok()?.parse().ok()?,
        };
        match kind {
            b"lease.granted" => Some((id, Self::Yes(Some(fence(items.next()?)?)))),
            b"lease.timeout" => Some((id, Self::No)),
            _ => None,
        }
    }
}

fn fence(value: Value<'_>) -> Option<u64> {
    u64::try_from(value.integer()?).ok()
}

/// As long as the tokens that lock libraries draw, and like them no number to Redis.
fn letters(token: u64) -> [u8; 16] {
    let mut text = [0; 16];
    for (place, digit) in text.iter_mut().rev().enumerate() {
        *digit = b"ghijklmnopqrstuv"[(token >> (4 * place)) as usize % 16];
    }
    text
}

/// What a server said, for people.
pub(crate) fn text_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn speaker(dialect: Dialect, workload: Workload) -> Speaker {
        let plan = Plan { dialect, ..Plan::new(["127.0.0.1:1"], workload) };
        Speaker::new(&plan)
    }

    /// What a server would make of it.
    fn said(say: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        say(&mut out);
        let (value, len) = Value::parse(&out).expect("well formed").expect("whole");
        assert_eq!(len, out.len(), "one request, and nothing behind it");
        let words = value.items().expect("an array").map(|word| text_of(word.bytes().expect("")));
        words.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_cell_is_asked_in_its_own_words() {
        let mut pairs = speaker(Dialect::Paxoslease, Workload::Pairs);
        assert_eq!(
            said(|out| pairs.acquire(out, 7, 1, None)),
            "LEASE.ACQUIRE load/000000007 15000"
        );
        assert_eq!(
            said(|out| pairs.renew(out, 123_456_789, 42)),
            "LEASE.RENEW load/123456789 42 15000"
        );
        assert_eq!(said(|out| pairs.release(out, 0, 42)), "LEASE.RELEASE load/000000000 42");
        let mut handover = speaker(Dialect::Paxoslease, Workload::Handover);
        assert_eq!(
            said(|out| handover.acquire(out, 0, 1, Some(3))),
            "LEASE.ACQUIRE load/000000000 15000 WAIT 5000 NOTIFY 3"
        );
    }

    #[test]
    fn redis_is_asked_as_lock_libraries_do() {
        let mut redis = speaker(Dialect::Redis, Workload::Pairs);
        let mut greeting = Vec::new();
        assert_eq!(redis.greet(&mut greeting), 2);
        assert_eq!(redis.greeted(1, Value::Bulk(b"abc")), Ok(()));
        assert_eq!(redis.greeted(0, Value::Bulk(b"def")), Ok(()));
        assert_eq!(
            said(|out| redis.acquire(out, 7, 0x12, None)),
            "SET load/000000007 gggggggggggggghi NX PX 15000"
        );
        assert_eq!(
            said(|out| redis.release(out, 7, 0x12)),
            "EVALSHA abc 1 load/000000007 gggggggggggggghi"
        );
        assert_eq!(
            said(|out| redis.renew(out, 7, 0x12)),
            "EVALSHA def 1 load/000000007 gggggggggggggghi 15000"
        );
    }

    #[test]
    fn a_server_that_refuses_or_is_another_is_noticed_at_the_greeting() {
        let mut cell = speaker(Dialect::Paxoslease, Workload::Pairs);
        let greeted = |cell: &mut Speaker, bytes: &[u8]| {
            let (value, _) = Value::parse(bytes).expect("well formed").expect("whole");
            cell.greeted(0, value)
        };
        let ours = b"%1\r\n$6\r\nserver\r\n$10\r\npaxoslease\r\n";
        assert_eq!(greeted(&mut cell, ours), Ok(()));
        let redis = b"*2\r\n$6\r\nserver\r\n$5\r\nredis\r\n";
        assert_eq!(greeted(&mut cell, redis), Err(BadGreeting::Foreign("redis".to_owned())));
        let refused = Err(BadGreeting::Refused("NOAUTH who are you".to_owned()));
        assert_eq!(greeted(&mut cell, b"-NOAUTH who are you\r\n"), refused);
    }

    #[test]
    fn answers_of_both_come_to_the_same_few() {
        let answer = |bytes: &'static [u8]| {
            Answer::of(Value::parse(bytes).expect("well formed").expect("whole").0)
        };
        assert_eq!(answer(b"*3\r\n:42\r\n:15000\r\n:0\r\n"), Some(Answer::Yes(Some(42))));
        assert_eq!(answer(b"+OK\r\n"), Some(Answer::Yes(None)));
        assert_eq!(answer(b":1\r\n"), Some(Answer::Yes(None)));
        assert_eq!(answer(b":0\r\n"), Some(Answer::No));
        for nil in [b"$-1\r\n".as_slice(), b"*-1\r\n", b"_\r\n"] {
            assert_eq!(answer(nil), Some(Answer::No));
        }
        assert_eq!(answer(b"+QUEUED\r\n"), Some(Answer::Queued));
        assert_eq!(answer(b"-NOQUORUM x\r\n"), Some(Answer::Error(b"NOQUORUM x")));
        assert_eq!(answer(b"+PONG\r\n"), None);
        assert_eq!(answer(b"*1\r\n$1\r\nx\r\n"), None);
    }

    #[test]
    fn a_push_tells_whose_wait_is_over() {
        let push = |bytes: &'static [u8]| {
            Answer::of_push(Value::parse(bytes).expect("well formed").expect("whole").0)
        };
        let granted = b">5\r\n$13\r\nlease.granted\r\n$2\r\n17\r\n:42\r\n:15000\r\n:3\r\n";
        assert_eq!(push(granted), Some((17, Answer::Yes(Some(42)))));
        assert_eq!(push(b">2\r\n$13\r\nlease.timeout\r\n:17\r\n"), Some((17, Answer::No)));
        assert_eq!(push(b">2\r\n$11\r\nlease.freed\r\n$1\r\nx\r\n"), None);
    }
}
