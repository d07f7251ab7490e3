//! RESP by a client that was not written for us, over one connection at a time.

use std::collections::BTreeMap;
use std::time::Duration;

use paxoslease_rig::clock;
use redis::{Cmd, Connection, FromRedisValue, RedisError, Value, cmd};

use super::ClientOptions;
use super::bare::{AcquireReply, ClockRule, Endpoints, Failure, Protocol, TenureReply};
use super::worker::AcquirePlan;
use crate::log::Belief;

/// The timeout of HELLO.
const GREETING_MAX: Duration = Duration::from_millis(500);

pub(super) struct Resp {
    endpoints: Endpoints,
    connection: Option<Connection>,
    rule: ClockRule,
}

impl Resp {
    pub(super) fn new(options: &ClientOptions) -> Self {
        Self { endpoints: Endpoints::of(options), connection: None, rule: ClockRule::of(options) }
    }

    /// A connection after HELLO, which tells drift and granularity.
    fn connected(&mut self, timeout: Duration) -> Result<&mut Connection, RedisError> {
        if self.connection.is_none() {
            let client = redis::Client::open(format!("redis://{}/", self.endpoints.endpoint()))?;
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
            self.rule = ClockRule { drift_ppm, granularity_us };
            self.connection = Some(connection);
        }
        let connection = self.connection.as_mut().expect("it was just made");
        connection.set_read_timeout(Some(timeout))?;
        connection.set_write_timeout(Some(timeout))?;
        Ok(connection)
    }

    fn ask<T: FromRedisValue>(
        &mut self,
        question: &Cmd,
        timeout: Duration,
    ) -> Result<T, RedisError> {
        let answer = self.connected(timeout).and_then(|connection| question.query(connection));
        if answer.as_ref().is_err_and(|error: &RedisError| error.code() != Some("NOTHELD")) {
            self.leave();
        }
        answer
    }

    fn leave(&mut self) {
        self.connection = None;
        self.endpoints.leave();
    }
}

fn acquire(plan: &AcquirePlan) -> Cmd {
    let mut question = cmd("LEASE.ACQUIRE");
    question.arg(&plan.request.name).arg(plan.request.ttl_ms).arg("HOLDER").arg(&plan.holder);
    if plan.request.wait_ms > 0 {
        question.arg("WAIT").arg(plan.request.wait_ms);
    }
    question
}

impl Protocol for Resp {
    fn acquire(&mut self, plan: &AcquirePlan, timeout: Duration) -> Result<AcquireReply, Failure> {
        let answer: Option<(u64, u64, u64)> = self.ask(&acquire(plan), timeout).map_err(text)?;
        Ok(match answer {
            // A nil does not name the holder.
            None => AcquireReply::Denied { by: None },
            Some((fence, _, waited)) => {
                AcquireReply::Granted { fence, waited: Duration::from_millis(waited) }
            }
        })
    }

    fn renew(
        &mut self,
        held: &Belief,
        ttl_ms: u64,
        timeout: Duration,
    ) -> Result<TenureReply, Failure> {
        let mut question = cmd("LEASE.RENEW");
        question.arg(&held.name).arg(held.fence).arg(ttl_ms);
        match self.ask::<u64>(&question, timeout) {
            Ok(_) => Ok(TenureReply::Done),
            Err(error) if error.code() == Some("NOTHELD") => Ok(TenureReply::Over),
            Err(error) => Err(text(error)),
        }
    }

    fn release(&mut self, held: &Belief, timeout: Duration) -> Result<TenureReply, Failure> {
        let mut question = cmd("LEASE.RELEASE");
        question.arg(&held.name).arg(held.fence);
        match self.ask::<u64>(&question, timeout).map_err(text)? {
            1 => Ok(TenureReply::Done),
            _ => Ok(TenureReply::Over),
        }
    }

    fn abandon(&mut self, plan: &AcquirePlan, after: Duration) {
        if let Ok(connection) = self.connected(GREETING_MAX) {
            let _gone = connection.send_packed_command(&acquire(plan).get_packed_command());
            clock::sleep(after);
        }
        self.leave();
    }

    fn rule(&self) -> ClockRule {
        self.rule
    }
}

fn text(error: RedisError) -> Failure {
    error.to_string()
}
