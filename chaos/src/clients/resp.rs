//! RESP by a client that was not written for us, over one connection at a time.

use std::collections::BTreeMap;
use std::time::Duration;

use paxoslease_rig::clock;
use redis::{Cmd, Connection, FromRedisValue, RedisError, Value, cmd};

use super::Options;
use super::bare::{Answer, Failure, Nodes, Rule, Tenancy, Way};
use super::scene::Wish;
use crate::log::Belief;

/// How long a node may take to greet.
const GREETING_MAX: Duration = Duration::from_millis(500);

pub(super) struct Resp {
    nodes: Nodes,
    connection: Option<Connection>,
    rule: Rule,
}

impl Resp {
    pub(super) fn new(options: &Options) -> Self {
        Self { nodes: Nodes::of(options), connection: None, rule: Rule::of(options) }
    }

    /// A connection to a node that has greeted, and said how far clocks may be off.
    fn connected(&mut self, patience: Duration) -> Result<&mut Connection, RedisError> {
        if self.connection.is_none() {
            let client = redis::Client::open(format!("redis://{}/", self.nodes.endpoint()))?;
            let mut connection = client.get_connection_with_timeout(GREETING_MAX)?;
            connection.set_read_timeout(Some(GREETING_MAX))?;
            let greeting: BTreeMap<String, Value> = cmd("HELLO").arg(3).query(&mut connection)?;
            let number = |key: &str| match greeting.get(key) {
                Some(Value::Int(number)) => u32::try_from(*number).ok(),
                _ => None,
            };
            let told = (number("clock_drift_ppm"), number("clock_granularity_us"));
            let (Some(drift_ppm), Some(granularity_us)) = told else {
                return Err(RedisError::from((redis::ErrorKind::Client, "HELLO lacks the clock")));
            };
            self.rule = Rule { drift_ppm, granularity_us };
            self.connection = Some(connection);
        }
        let connection = self.connection.as_mut().expect("it was just made");
        connection.set_read_timeout(Some(patience))?;
        connection.set_write_timeout(Some(patience))?;
        Ok(connection)
    }

    fn ask<T: FromRedisValue>(
        &mut self,
        question: &Cmd,
        patience: Duration,
    ) -> Result<T, RedisError> {
        let answer = self.connected(patience).and_then(|connection| question.query(connection));
        if answer.as_ref().is_err_and(|error: &RedisError| error.code() != Some("NOTHELD")) {
            self.leave();
        }
        answer
    }

    fn leave(&mut self) {
        self.connection = None;
        self.nodes.leave();
    }
}

fn acquire(wish: &Wish) -> Cmd {
    let mut question = cmd("LEASE.ACQUIRE");
    question.arg(&wish.ask.name).arg(wish.ask.ttl_ms).arg("HOLDER").arg(&wish.holder);
    if wish.ask.wait_ms > 0 {
        question.arg("WAIT").arg(wish.ask.wait_ms);
    }
    question
}

impl Way for Resp {
    fn acquire(&mut self, wish: &Wish, patience: Duration) -> Result<Answer, Failure> {
        let answer: Option<(u64, u64, u64)> = self.ask(&acquire(wish), patience).map_err(text)?;
        Ok(match answer {
            // A nil names nobody.
            None => Answer::Denied { by: None },
            Some((fence, _, waited)) => {
                Answer::Granted { fence, waited: Duration::from_millis(waited) }
            }
        })
    }

    fn renew(
        &mut self,
        held: &Belief,
        ttl_ms: u64,
        patience: Duration,
    ) -> Result<Tenancy, Failure> {
        let mut question = cmd("LEASE.RENEW");
        question.arg(&held.name).arg(held.fence).arg(ttl_ms);
        match self.ask::<u64>(&question, patience) {
            Ok(_) => Ok(Tenancy::Done),
            Err(error) if error.code() == Some("NOTHELD") => Ok(Tenancy::Over),
            Err(error) => Err(text(error)),
        }
    }

    fn release(&mut self, held: &Belief, patience: Duration) -> Result<Tenancy, Failure> {
        let mut question = cmd("LEASE.RELEASE");
        question.arg(&held.name).arg(held.fence);
        match self.ask::<u64>(&question, patience).map_err(text)? {
            1 => Ok(Tenancy::Done),
            _ => Ok(Tenancy::Over),
        }
    }

    fn abandon(&mut self, wish: &Wish, after: Duration) {
        if let Ok(connection) = self.connected(GREETING_MAX) {
            let _gone = connection.send_packed_command(&acquire(wish).get_packed_command());
            clock::sleep(after);
        }
        self.leave();
    }

    fn rule(&self) -> Rule {
        self.rule
    }
}

fn text(error: RedisError) -> Failure {
    error.to_string()
}
