//! Commands as the client library sends them, and replies as it gives them.

use std::collections::BTreeMap;

use redis::{Cmd, RedisResult, Value as Raw, cmd, from_redis_value};

use super::history::{Command, Doubt, Outcome, Reply, UNSET, Value, When};

const RELEASE: &str = "if redis.call('get', KEYS[1]) == ARGV[1] then \
                       return redis.call('del', KEYS[1]) else return 0 end";
const EXTEND: &str = "if redis.call('get', KEYS[1]) == ARGV[1] then \
                      return redis.call('pexpire', KEYS[1], ARGV[2]) else return 0 end";

fn text(value: Value) -> String {
    format!("v{value}")
}

fn value(text: &str) -> Option<Value> {
    text.strip_prefix('v')?.parse().ok()
}

/// The command on a key.
pub(super) fn packed(command: &Command, key: &str) -> Cmd {
    let on = |name: &str| cmd(name).arg(key).take();
    let script = |script: &str| cmd("EVAL").arg(script).arg(1).arg(key).take();
    match *command {
        Command::Set { value, ttl, when, get } => {
            let mut set = on("SET").arg(text(value)).take();
            set.arg(if when == When::IsFree { "NX" } else { "XX" });
            if let Some(ttl) = ttl {
                set.arg("PX").arg(ttl);
            }
            if get {
                set.arg("GET");
            }
            set
        }
        Command::Get => on("GET"),
        Command::Exists => on("EXISTS"),
        Command::Pttl => on("PTTL"),
        Command::Del => on("DEL"),
        Command::GetDel => on("GETDEL"),
        Command::Pexpire { ttl, condition } => {
            let mut expire = on("PEXPIRE").arg(ttl).take();
            if let Some(condition) = condition {
                expire.arg(condition.to_string());
            }
            expire
        }
        Command::Release(value) => script(RELEASE).arg(text(value)).take(),
        Command::Extend(value, ttl) => script(EXTEND).arg(text(value)).arg(ttl).take(),
        Command::LeaseAcquire(value, ttl) => {
            on("LEASE.ACQUIRE").arg(ttl).arg("HOLDER").arg(text(value)).take()
        }
        Command::LeaseRenew { fence, ttl } => on("LEASE.RENEW").arg(fence).arg(ttl).take(),
        Command::LeaseRelease { fence } => on("LEASE.RELEASE").arg(fence).take(),
        Command::LeaseGet => on("LEASE.GET"),
    }
}

/// What an answer says, and the code of an error.
pub(super) fn outcome(command: &Command, answer: RedisResult<Raw>) -> (Outcome, Option<String>) {
    let read = match answer {
        Ok(raw) => reply(command, raw),
        Err(error) => Err(error),
    };
    let error = match read {
        Ok(Reply::Value(UNSET)) => {
            return (Outcome::Reply(Reply::Value(UNSET)), Some(format!("{command} -> no value")));
        }
        Ok(reply) => return (Outcome::Reply(reply), None),
        Err(error) => error,
    };
    let Some(code) = error.code() else {
        return (Outcome::Unknown(Doubt::Gone), Some(format!("{:?}", error.kind())));
    };
    let is_replacement = matches!(command, Command::Set { when: When::IsHeld, .. });
    let outcome = match code {
        "NOTHELD" => Outcome::Reply(Reply::NotHeld),
        // The other errors with this word would be bugs of this program.
        "ERR" if is_replacement => Outcome::Reply(Reply::Conflict),
        _ => Outcome::Unknown(Doubt::Error),
    };
    let is_known = matches!(outcome, Outcome::Reply(_));
    (outcome, (!is_known).then(|| code.to_owned()))
}

fn reply(command: &Command, raw: Raw) -> RedisResult<Reply> {
    match (command, raw) {
        (_, Raw::Nil) => Ok(Reply::Nil),
        (_, Raw::Okay) => Ok(Reply::Ok),
        (_, Raw::Int(number)) => Ok(Reply::Number(number)),
        (Command::LeaseAcquire(..), raw) => {
            let (fence, _, _) = from_redis_value::<(u64, u64, u64)>(raw)?;
            Ok(Reply::Granted { fence })
        }
        (Command::LeaseGet, raw) => {
            let mut fields = from_redis_value::<BTreeMap<String, Raw>>(raw)?;
            let mut field = |name: &str| fields.remove(name).unwrap_or_default();
            let value = from_value(field("holder"))?;
            let fence = from_redis_value(field("fence"))?;
            let ttl = from_redis_value(field("ttl_ms"))?;
            Ok(Reply::Held { value, fence, ttl })
        }
        (_, raw) => Ok(Reply::Value(from_value(raw)?)),
    }
}

fn from_value(raw: Raw) -> RedisResult<Value> {
    let text = from_redis_value::<String>(raw)?;
    Ok(value(&text).unwrap_or(UNSET))
}
