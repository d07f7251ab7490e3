//! The commands about keys, evaluated against a snapshot: the same for a client's command and for a
//! call in a script. Replies and error texts are those of Redis, because libraries look at them.

use std::time::Duration;

use paxoslease_node::front::Instant;

use super::keys::{DATABASES, Keys, State, Stop, millis_left, wrong_type};
use super::script::{Reply, Store};

/// The longest value, which is the holder of a lease.
const VALUE_LEN_MAX: usize = 256;

/// How the value of a key of another type begins, which only test suites can make.
const TYPE_MARK: &[u8] = b"\0type:";

/// The commands that make such keys, and their types.
const TYPED: [(&str, &str); 5] =
    [("sadd", "set"), ("hset", "hash"), ("zadd", "zset"), ("lpush", "list"), ("rpush", "list")];

/// Redis refuses expiries beyond this many milliseconds, and so do we.
const EXPIRE_MILLIS_MAX: i64 = i64::MAX / 2;

type Outcome = Result<Reply, Stop>;

impl Store for Keys {
    fn call(&mut self, command: &[&[u8]]) -> Reply {
        let reply = self.execute(command);
        reply.unwrap_or_else(|Stop(text)| Reply::Error(text.into_bytes()))
    }
}

fn error(text: &str) -> Stop {
    Stop(text.to_owned())
}

fn wrong_number(command: &str) -> Stop {
    Stop(format!("ERR wrong number of arguments for '{command}' command"))
}

fn invalid_expire(command: &str) -> Stop {
    Stop(format!("ERR invalid expire time in '{command}' command"))
}

/// A number as Redis reads it: no plus sign, no leading zero, no blanks.
pub(super) fn integer(bytes: &[u8]) -> Result<i64, Stop> {
    let text = std::str::from_utf8(bytes).ok();
    let number = text.and_then(|text| text.parse::<i64>().ok());
    let number = number.filter(|number| number.to_string().as_bytes() == bytes);
    number.ok_or_else(|| error("ERR value is not an integer or out of range"))
}

/// Milliseconds of an expiry in seconds or milliseconds.
fn millis(bytes: &[u8], unit: i64, command: &str) -> Result<i64, Stop> {
    let millis = integer(bytes)?.checked_mul(unit);
    let is_sane = |millis: &i64| (-EXPIRE_MILLIS_MAX..=EXPIRE_MILLIS_MAX).contains(millis);
    millis.filter(is_sane).ok_or_else(|| invalid_expire(command))
}

fn after_millis(now: Instant, millis: i64) -> Instant {
    now.after(Duration::from_millis(millis.unsigned_abs()))
}

/// What options of SET say.
#[derive(Default)]
struct SetOptions {
    is_new_only: bool,
    is_old_only: bool,
    keeps_end: bool,
    wants_old: bool,
    millis: Option<i64>,
}

impl SetOptions {
    fn parse(options: &[&[u8]]) -> Result<Self, Stop> {
        let syntax = || error("ERR syntax error");
        let mut set = Self::default();
        let mut options = options.iter();
        while let Some(option) = options.next() {
            match option.to_ascii_uppercase().as_slice() {
                b"NX" if !set.is_old_only => set.is_new_only = true,
                b"XX" if !set.is_new_only => set.is_old_only = true,
                b"GET" => set.wants_old = true,
                b"KEEPTTL" if set.millis.is_none() => set.keeps_end = true,
                unit @ (b"EX" | b"PX") if set.millis.is_none() && !set.keeps_end => {
                    let unit = if unit == b"EX" { 1000 } else { 1 };
                    let value = millis(options.next().ok_or_else(syntax)?, unit, "set")?;
                    if value <= 0 {
                        return Err(invalid_expire("set"));
                    }
                    set.millis = Some(value);
                }
                b"EXAT" | b"PXAT" => {
                    return Err(error(
                        "ERR EXAT and PXAT need a wall clock that all nodes share, and leases do \
                         not use one; use EX or PX",
                    ));
                }
                _ => return Err(syntax()),
            }
        }
        Ok(set)
    }
}

impl Keys {
    fn execute(&mut self, command: &[&[u8]]) -> Outcome {
        let [name, args @ ..] = command else { return Err(error("ERR empty command")) };
        let name = String::from_utf8_lossy(name).to_ascii_lowercase();
        match (name.as_str(), args) {
            ("get", [key]) => self.get(key),
            ("set", [key, value, options @ ..]) => {
                let options = SetOptions::parse(options)?;
                self.set(key, value, &options)
            }
            ("setnx", [key, value]) => {
                let options = SetOptions { is_new_only: true, ..SetOptions::default() };
                let reply = self.set(key, value, &options)?;
                Ok(Reply::Integer(i64::from(!matches!(reply, Reply::Nil))))
            }
            ("setex", [key, time, value]) => self.set_for(key, time, value, 1000, "setex"),
            ("psetex", [key, time, value]) => self.set_for(key, time, value, 1, "psetex"),
            ("getdel", [key]) => {
                let value = self.get(key)?;
                self.delete(key)?;
                Ok(value)
            }
            ("mget", [_, ..]) => {
                let value = |key: &&[u8]| match self.get(key) {
                    Err(Stop(_)) => Ok(Reply::Nil),
                    other => other,
                };
                Ok(Reply::Array(args.iter().map(value).collect::<Result<_, _>>()?))
            }
            ("exists", [_, ..]) => {
                let counts = args
                    .iter()
                    .map(|key| Ok::<_, Stop>(i64::from(!matches!(self.read(key)?, State::Absent))));
                Ok(Reply::Integer(counts.sum::<Result<_, _>>()?))
            }
            ("del" | "unlink", [_, ..]) => {
                let counts = args.iter().map(|key| self.delete(key).map(i64::from));
                Ok(Reply::Integer(counts.sum::<Result<_, _>>()?))
            }
            ("type", [key]) => {
                let name = match self.read(key)? {
                    State::Absent => "none",
                    State::Signal => "list",
                    State::Value { bytes, .. } => type_of(bytes),
                };
                Ok(Reply::Status(name.as_bytes().to_vec()))
            }
            ("ttl", [key]) => Ok(Reply::Integer(match self.left(key)? {
                left @ (-2 | -1) => left,
                left => left.saturating_add(500) / 1000,
            })),
            ("pttl", [key]) => Ok(Reply::Integer(self.left(key)?)),
            ("expire", [key, time, options @ ..]) => {
                self.expire(key, millis(time, 1000, "expire")?, options)
            }
            ("pexpire", [key, time, options @ ..]) => {
                self.expire(key, millis(time, 1, "pexpire")?, options)
            }
            ("persist", [key]) => match self.read_end(key)? {
                State::Value { ends_at, is_end_set, .. } if *ends_at != Instant::MAX => {
                    (*ends_at, *is_end_set) = (Instant::MAX, true);
                    Ok(Reply::Integer(1))
                }
                _ => Ok(Reply::Integer(0)),
            },
            ("select", [index]) if self.is_script => {
                let index = u8::try_from(integer(index)?).ok().filter(|index| *index < DATABASES);
                self.database = index.ok_or_else(|| error("ERR DB index is out of range"))?;
                Ok(Reply::Status(b"OK".to_vec()))
            }
            ("keys", [pattern]) => match &self.listed {
                Some((known, listed)) if known == pattern && self.is_own_database() => {
                    Ok(Reply::Array(listed.iter().cloned().map(Reply::Bulk).collect()))
                }
                _ => Err(error("ERR a script lists keys of its own database by a literal pattern")),
            },
            ("publish", [channel, message]) => {
                self.publish(channel, message)?;
                Ok(Reply::Integer(0))
            }
            (name, args) => self.execute_rarely(name, args),
        }
    }

    /// The commands of signal lists, and those for test suites.
    fn execute_rarely(&mut self, name: &str, args: &[&[u8]]) -> Outcome {
        match (name, args) {
            ("lpush" | "rpush", [key, _, ..]) if self.is_script => {
                self.signal(key)?;
                Ok(Reply::Integer(1))
            }
            ("ltrim", [key, _, _]) => {
                self.signal(key)?;
                Ok(Reply::Status(b"OK".to_vec()))
            }
            ("sadd" | "hset" | "zadd" | "lpush" | "rpush", [key, _, ..]) if self.is_testing => {
                let made = TYPED.iter().find(|(command, _)| *command == name);
                let kind = made.map_or("string", |(_, kind)| kind);
                match self.read(key)? {
                    state @ State::Absent => {
                        let bytes = [TYPE_MARK, kind.as_bytes()].concat();
                        *state = State::Value { bytes, ends_at: Instant::MAX, is_end_set: true };
                    }
                    State::Value { bytes, .. } if type_of(bytes) != kind => {
                        return Err(wrong_type());
                    }
                    _ => {}
                }
                Ok(Reply::Integer(args.len() as i64 - 1))
            }
            _ => Err(wrong_number(name)),
        }
    }

    fn get(&mut self, key: &[u8]) -> Outcome {
        match self.read(key)? {
            State::Absent => Ok(Reply::Nil),
            State::Value { bytes, .. } if type_of(bytes) == "string" => {
                Ok(Reply::Bulk(bytes.clone()))
            }
            State::Value { .. } | State::Signal => Err(wrong_type()),
        }
    }

    fn set(&mut self, key: &[u8], value: &[u8], options: &SetOptions) -> Outcome {
        if value.len() > VALUE_LEN_MAX {
            return Err(Stop(format!(
                "ERR a value has at most {VALUE_LEN_MAX} bytes here, and this one has {}; it \
                 should tell the holders of a lock apart, and data should be elsewhere",
                value.len()
            )));
        }
        let old = if options.wants_old { Some(self.get(key)?) } else { None };
        let now = self.now;
        let state = self.read(key)?;
        let is_there = !matches!(state, State::Absent);
        if options.is_new_only && is_there {
            self.denied = Some(key.to_vec());
            return Ok(old.unwrap_or(Reply::Nil));
        }
        if options.is_old_only && !is_there {
            return Ok(old.unwrap_or(Reply::Nil));
        }
        let set_at = options.millis.map_or(Instant::MAX, |millis| after_millis(now, millis));
        let (ends_at, is_end_set) = match (options.keeps_end, &*state) {
            (true, State::Value { ends_at, .. }) => (*ends_at, false),
            _ => (set_at, true),
        };
        *state = State::Value { bytes: value.to_vec(), ends_at, is_end_set };
        Ok(old.unwrap_or_else(|| Reply::Status(b"OK".to_vec())))
    }

    fn set_for(&mut self, key: &[u8], time: &[u8], value: &[u8], unit: i64, name: &str) -> Outcome {
        let millis = millis(time, unit, name)?;
        if millis <= 0 {
            return Err(invalid_expire(name));
        }
        self.set(key, value, &SetOptions { millis: Some(millis), ..SetOptions::default() })
    }

    /// Whether there was such a key.
    fn delete(&mut self, key: &[u8]) -> Result<bool, Stop> {
        // A signal list may be deleted before it is filled, and need not be known for that.
        let state = self.read(key)?;
        let was_there = matches!(state, State::Value { .. });
        *state = State::Absent;
        Ok(was_there)
    }

    /// As PTTL replies.
    fn left(&mut self, key: &[u8]) -> Result<i64, Stop> {
        let now = self.now;
        Ok(match self.read_end(key)? {
            State::Absent => -2,
            State::Signal => -1,
            State::Value { ends_at, .. } => millis_left(*ends_at, now)
                .map_or(-1, |millis| i64::try_from(millis).unwrap_or(i64::MAX)),
        })
    }

    fn expire(&mut self, key: &[u8], millis: i64, options: &[&[u8]]) -> Outcome {
        let now = self.now;
        let left = match self.left(key)? {
            -2 => return Ok(Reply::Integer(0)),
            -1 => None,
            left => Some(left),
        };
        for option in options {
            let is_met = match option.to_ascii_uppercase().as_slice() {
                b"NX" => left.is_none(),
                b"XX" => left.is_some(),
                b"GT" => left.is_some_and(|left| millis > left),
                b"LT" => left.is_none_or(|left| millis < left),
                _ => {
                    let option = String::from_utf8_lossy(option);
                    return Err(Stop(format!("ERR Unsupported option {option}")));
                }
            };
            if !is_met {
                return Ok(Reply::Integer(0));
            }
        }
        let state = self.read(key)?;
        match state {
            State::Value { ends_at, is_end_set, .. } if millis > 0 => {
                (*ends_at, *is_end_set) = (after_millis(now, millis), true);
            }
            State::Value { .. } => *state = State::Absent,
            State::Absent | State::Signal => {}
        }
        Ok(Reply::Integer(1))
    }
}

/// The type of a value. Other types than strings exist in test suites only.
fn type_of(value: &[u8]) -> &str {
    let kind = value.strip_prefix(TYPE_MARK).and_then(|kind| std::str::from_utf8(kind).ok());
    let known = TYPED.iter().map(|(_, kind)| *kind);
    kind.filter(|kind| known.clone().any(|known| known == *kind)).unwrap_or("string")
}
