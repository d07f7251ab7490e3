//! RESP by a client that was not written for us, over one connection at a time.

use std::collections::BTreeMap;
use std::time::Duration;

use paxoslease_rig::clock;
use redis::{Cmd, Connection, RedisError, Value, cmd, from_redis_value};

use super::ClientOptions;
use super::bare::{ClockRule, Endpoints, Failure, Protocol, Question, Reply};
use super::worker::AcquirePlan;

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

    fn leave(&mut self) {
        self.connection = None;
        self.endpoints.leave();
    }
}

fn command(question: Question<'_>) -> Cmd {
    match question {
        Question::Acquire(AcquirePlan { request, holder, .. }) => {
            let mut command = cmd("LEASE.ACQUIRE");
            command.arg(&request.name).arg(request.ttl_ms).arg("HOLDER").arg(holder);
            if request.wait_ms > 0 {
                command.arg("WAIT").arg(request.wait_ms);
            }
            command
        }
        Question::Renew(held, ttl_ms) => {
            cmd("LEASE.RENEW").arg(&held.name).arg(held.fence).arg(ttl_ms).take()
        }
        Question::Release(held) => cmd("LEASE.RELEASE").arg(&held.name).arg(held.fence).take(),
    }
}

fn reply(question: Question<'_>, value: Value) -> Result<Reply, RedisError> {
    Ok(match question {
        // A nil does not name the holder.
        Question::Acquire(_) => match from_redis_value::<Option<(u64, u64, u64)>>(value)? {
            None => Reply::Denied { by: None },
            Some((fence, _, waited)) => {
                Reply::Granted { fence, waited: Duration::from_millis(waited) }
            }
        },
        Question::Renew(..) => from_redis_value::<u64>(value).map(|_| Reply::Done)?,
        Question::Release(_) if from_redis_value::<u64>(value)? == 1 => Reply::Done,
        Question::Release(_) => Reply::Over,
    })
}

impl Protocol for Resp {
    fn ask(&mut self, question: Question<'_>, timeout: Duration) -> Result<Reply, Failure> {
        let command = command(question);
        let answer = self.connected(timeout).and_then(|connection| command.query(connection));
        match answer.and_then(|value| reply(question, value)) {
            Ok(reply) => Ok(reply),
            Err(error) if error.code() == Some("NOTHELD") => Ok(Reply::Over),
            Err(error) => {
                self.leave();
                Err(error.to_string())
            }
        }
    }

    fn abandon(&mut self, plan: &AcquirePlan, after: Duration) {
        if let Ok(connection) = self.connected(GREETING_MAX) {
            let acquire = command(Question::Acquire(plan)).get_packed_command();
            let _gone = connection.send_packed_command(&acquire);
            clock::sleep(after);
        }
        self.leave();
    }

    fn rule(&self) -> ClockRule {
        self.rule
    }
}
