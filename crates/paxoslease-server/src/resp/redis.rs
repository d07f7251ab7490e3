//! The Redis dialect: commands and scripts by which lock libraries for Redis use leases.
//!
//! A key is a name, its value is the holder of the lease, and its expiry is the ttl, or the end of
//! a durable lease. This module turns commands into the requests that every client can make; no
//! other module knows of it except where sessions hand over commands, answers and hints. There are
//! no other data types, no transactions, and no Lua beyond the scripts of locks.

mod channels;
mod commands;
mod facts;
mod glob;
mod keys;
mod lease_channels;
mod listing;
mod operation;
mod program;
mod script;
mod scripts;
mod waiting;

use std::time::Duration;

use super::Turn;
use super::command::Command;
use super::expected::State as Reserved;
use super::reply_error::ReplyError;
use super::session::Session;
use crate::config::Verb;
use commands::integer;
use keys::{DATABASES, Keys, SCRIPT_KEYS_MAX, Stop, lease_name};
use operation::put_reply;
use program::{First, Program};
use waiting::{Wait, lock_of};

pub(super) use channels::{Channel, NOTES_MAX, Note};
pub(super) use facts::put_info;
pub(super) use glob::GlobError;
pub(super) use lease_channels::{LeaseChannel, put_granted_message, put_timeout_message};
pub(super) use listing::{KeyList, KeyPage};
pub(super) use operation::{OperationId, Operations, abort};
pub(super) use scripts::Scripts;
pub(super) use waiting::{WAITS_MAX, Waits};

type Outcome<'a> = Result<(), ReplyError<'a>>;

/// Commands that the dialect lacks on purpose, and what to do instead.
const REFUSED: [(&[&str], &str); 5] = [
    (
        &["MULTI", "EXEC", "DISCARD", "WATCH", "UNWATCH"],
        "there are no transactions: every command is atomic by itself; send the commands without \
         MULTI and EXEC (redis-py: pipeline(transaction=False))",
    ),
    (
        &["CLUSTER", "READONLY", "READWRITE", "ASKING", "SENTINEL", "REPLICAOF", "WAIT"],
        "every node serves every key, so there are no slots, replicas and sentinels: use a client \
         for a single server, with any node as its address",
    ),
    (
        &["HSET", "HGET", "HDEL", "HEXISTS", "HINCRBY", "HGETALL", "HSETNX", "HMSET", "HLEN"],
        "there are no hashes, only keys that are leases: use a lock with one key and one value",
    ),
    (
        &["ZADD", "ZREM", "ZCARD", "ZRANGE", "ZSCORE", "ZRANK", "ZREMRANGEBYSCORE", "ZPOPMIN"],
        "there are no sorted sets, only keys that are leases: for a semaphore use LEASE.ACQUIRE \
         with PERMITS",
    ),
    (
        &[
            "SADD", "SREM", "SMEMBERS", "LPUSH", "RPUSH", "LPOP", "RPOP", "LRANGE", "LLEN", "INCR",
            "DECR", "INCRBY", "APPEND", "GETSET", "MSET", "RENAME", "FLUSHDB", "FLUSHALL",
        ],
        "this is a lease service, not a store of data; redis.testing permits some of these \
         commands for test suites",
    ),
];

/// Why the dialect lacks a command, if it does so on purpose.
pub(super) fn refusal(name: &[u8]) -> Option<&'static str> {
    let is_it = |known: &&'static str| known.as_bytes().eq_ignore_ascii_case(name);
    REFUSED.iter().find(|(names, _)| names.iter().any(is_it)).map(|(_, why)| *why)
}

impl From<Stop> for ReplyError<'_> {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Error(text) => Self::Redis(text),
            Stop::Fault(fault) => Self::Redis(format!("ERR {fault}")),
        }
    }
}

impl Session {
    /// Carries out a command of the dialect. `args` has no command.
    pub(super) fn redis<'a>(
        &mut self,
        turn: &mut Turn<'_, '_>,
        command: Command,
        args: &[&'a [u8]],
    ) -> Outcome<'a> {
        let name = command.name();
        let tells_value = match command {
            Command::RedisGetDel => true,
            Command::RedisSet => args[2..].iter().any(|arg| arg.eq_ignore_ascii_case(b"GET")),
            _ => false,
        };
        if tells_value {
            let lease = lease_name(self.database, args[0]).map_err(ReplyError::Name)?;
            self.admit_key(turn, Verb::Read, &lease)?;
        }
        match command {
            Command::RedisSet => {
                let has =
                    |option: &[u8]| args[2..].iter().any(|arg| arg.eq_ignore_ascii_case(option));
                let first = match (has(b"NX"), has(b"XX"), has(b"GET")) {
                    (true, _, false) => First::AcquireOrNil,
                    (_, true, _) => First::LookHere,
                    _ => First::AssumeFree,
                };
                self.operate_on(turn, name, args, 1, first)
            }
            Command::RedisSetNx => self.operate_on(turn, name, args, 1, First::AcquireOrNil),
            Command::RedisSetEx | Command::RedisPSetEx => {
                self.operate_on(turn, name, args, 1, First::AssumeFree)
            }
            Command::RedisGet | Command::RedisTtl | Command::RedisPTtl | Command::RedisType => {
                self.operate_on(turn, name, args, 1, First::AskQuorum)
            }
            Command::RedisMGet | Command::RedisExists => {
                self.operate_on(turn, name, args, args.len(), First::AskQuorum)
            }
            Command::RedisDel | Command::RedisUnlink => {
                self.operate_on(turn, name, args, args.len(), First::LookHere)
            }
            Command::RedisGetDel
            | Command::RedisExpire
            | Command::RedisPExpire
            | Command::RedisPersist => self.operate_on(turn, name, args, 1, First::LookHere),
            Command::RedisSAdd
            | Command::RedisHSet
            | Command::RedisZAdd
            | Command::RedisLPush
            | Command::RedisRPush => {
                self.admit_testing(turn, name)?;
                self.operate_on(turn, name, args, 1, First::LookHere)
            }
            Command::RedisEval | Command::RedisEvalSha => self.evaluate(turn, command, args),
            Command::RedisScript => self.script(turn, args),
            Command::RedisBlPop | Command::RedisBrPop => self.wait_for_signal(turn, args),
            Command::RedisSubscribe => self.subscribe(turn, args, false),
            Command::RedisPSubscribe => self.subscribe(turn, args, true),
            Command::RedisUnsubscribe => {
                self.unsubscribe(turn, args, false);
                Ok(())
            }
            Command::RedisPUnsubscribe => {
                self.unsubscribe(turn, args, true);
                Ok(())
            }
            Command::RedisPublish => self.publish(turn, args[0], args[1]),
            Command::RedisKeys => self.list_keys(turn, args[0]),
            Command::RedisScan => self.scan(turn, args),
            Command::RedisDbSize => self.count_keys(turn),
            Command::RedisFlushDb | Command::RedisFlushAll => {
                self.admit_testing(turn, name)?;
                self.flush_keys(turn, command == Command::RedisFlushAll)
            }
            Command::RedisConfig => self.config(turn.common, args),
            _ => Err(ReplyError::UnknownCommand(name.as_bytes())),
        }
    }

    /// Begins the operation of a command whose first `keys` arguments are keys.
    fn operate_on<'a>(
        &mut self,
        turn: &mut Turn<'_, '_>,
        name: &str,
        args: &[&'a [u8]],
        keys: usize,
        first: First,
    ) -> Outcome<'a> {
        let mut command = vec![name.as_bytes().to_vec()];
        command.extend(args.iter().map(|arg| arg.to_vec()));
        let keys = self.keys(turn, &args[..keys])?;
        self.operate(turn, Program::Command(command), keys, first)?;
        Ok(())
    }

    /// The keys of an operation.
    fn keys(&self, turn: &Turn<'_, '_>, named: &[&[u8]]) -> Result<Keys, Stop> {
        let mut keys = Keys::new(self.database, turn.common.server.config.redis.testing);
        named.iter().try_for_each(|key| keys.want(key))?;
        Ok(keys)
    }

    fn admit_testing(
        &self,
        turn: &Turn<'_, '_>,
        name: &'static str,
    ) -> Result<(), ReplyError<'static>> {
        if turn.common.server.config.redis.testing {
            return Ok(());
        }
        Err(ReplyError::Refused(name.as_bytes(), refusal(name.as_bytes()).unwrap_or_default()))
    }

    /// EVAL and EVALSHA.
    fn evaluate<'a>(
        &mut self,
        turn: &mut Turn<'_, '_>,
        command: Command,
        args: &[&'a [u8]],
    ) -> Outcome<'a> {
        let count = integer(args[1])?;
        let count = usize::try_from(count)
            .map_err(|_| ReplyError::Redis("ERR Number of keys can't be negative".to_owned()))?;
        if count > args.len() - 2 {
            let text = "ERR Number of keys can't be greater than number of args";
            return Err(ReplyError::Redis(text.to_owned()));
        }
        if count > SCRIPT_KEYS_MAX {
            let text = format!("ERR a script has at most {SCRIPT_KEYS_MAX} keys, not {count}");
            return Err(ReplyError::Redis(text));
        }
        turn.common.steps.spend(script::TEXT_STEPS * args[0].len());
        let scripts = &turn.common.server.scripts;
        let script = match command {
            Command::RedisEval => scripts.evaluated(args[0])?,
            _ => scripts.named(args[0])?,
        };
        let (named, rest) = args[2..].split_at(count);
        // Some libraries pass other things than keys. Which they are shows when the script is run.
        let mut keys = self.keys(turn, &[])?;
        keys.is_script = true;
        keys.max = SCRIPT_KEYS_MAX;
        for key in named {
            let is_key = keys.place(key).is_ok();
            if is_key && script.class() == script::Class::Several {
                keys.want(key)?;
            }
        }
        let owned = |args: &[&[u8]]| args.iter().map(|arg| arg.to_vec()).collect();
        let first =
            if script.class() == script::Class::Read { First::AskQuorum } else { First::LookHere };
        let program = Program::Script { script, keys: owned(named), args: owned(rest) };
        self.operate(turn, program, keys, first)?;
        Ok(())
    }

    fn script<'a>(&mut self, turn: &mut Turn<'_, '_>, args: &[&'a [u8]]) -> Outcome<'a> {
        let is = |name: &str| args[0].eq_ignore_ascii_case(name.as_bytes());
        if is("LOAD") && args.len() == 2 {
            self.admit_some(turn, &[Verb::Acquire, Verb::Read])?;
            turn.common.steps.spend(script::TEXT_STEPS * args[1].len());
            let sha = turn.common.server.scripts.load(args[1]);
            let reply = script::Reply::Bulk(sha.into_bytes());
            self.reply(turn.common, |protocol, out| put_reply(&reply, protocol, out));
        } else if is("EXISTS") && args.len() > 1 {
            let scripts = &turn.common.server.scripts;
            let known = args[1..].iter().map(|sha| i64::from(scripts.knows(sha)));
            let reply = script::Reply::Array(known.map(script::Reply::Integer).collect());
            self.reply(turn.common, |protocol, out| put_reply(&reply, protocol, out));
        } else if is("FLUSH") && args.len() <= 2 {
            // It concerns all clients of this node.
            self.admit_cell(turn)?;
            turn.common.server.scripts.flush();
            self.reply_ok(turn.common);
        } else {
            return Err(ReplyError::Unexpected(args[0], Command::RedisScript.usage()));
        }
        Ok(())
    }

    /// BLPOP and BRPOP: waits until the name is free whose lock a signal list belongs to.
    fn wait_for_signal<'a>(&mut self, turn: &mut Turn<'_, '_>, args: &[&'a [u8]]) -> Outcome<'a> {
        let (lists, timeout) = (&args[..args.len() - 1], args[args.len() - 1]);
        let seconds = std::str::from_utf8(timeout).ok().and_then(|text| text.parse::<f64>().ok());
        let seconds = seconds.filter(|seconds| seconds.is_finite()).ok_or_else(|| {
            ReplyError::Redis("ERR timeout is not a float or out of range".to_owned())
        })?;
        if seconds < 0.0 {
            return Err(ReplyError::Redis("ERR timeout is negative".to_owned()));
        }
        let by_convention = lists.iter().find_map(|list| Some((*list, lock_of(list)?)));
        let denied = || Some((lists[0], self.denied.clone()?));
        let (list, lock) = by_convention.or_else(denied).ok_or(ReplyError::NoSignal)?;
        let name = lease_name(self.database, &lock).map_err(ReplyError::Name)?;
        let most = turn.common.server.waits_max;
        if turn.common.waits.of(self.conn.index()) >= most {
            return Err(ReplyError::TooManyWaits(most));
        }
        let span = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
        let began_at = turn.shard.now();
        let ends_at = (seconds > 0.0).then(|| began_at.after(span));
        let keys = self.keys(turn, &[&lock])?;
        let wait = Wait { list: list.to_vec(), lock, name, began_at, ends_at };
        // Before it begins, because it may end at once.
        let command = self.reserve(turn)?;
        turn.common.waits.count(self.conn.index());
        self.expect(Reserved::Bytes(Box::default()));
        self.operate_for(turn, command, Program::Wait(wait), keys, First::AskQuorum);
        Ok(())
    }

    /// Chooses a database, which is a name space.
    pub(super) fn select<'a>(&mut self, turn: &mut Turn<'_, '_>, index: &'a [u8]) -> Outcome<'a> {
        let count = if turn.common.server.config.redis.enabled { DATABASES } else { 1 };
        let number = integer(index)?;
        let number = u8::try_from(number).ok().filter(|number| *number < count);
        self.database = number.ok_or(ReplyError::NoDatabase(count - 1))?;
        self.reply_ok(turn.common);
        Ok(())
    }
}
