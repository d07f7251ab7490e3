//! HTTP and JSON, a connection for every question.

use std::time::Duration;

use serde_json::{Value, json};
use ureq::Agent;

use super::ClientOptions;
use super::bare::{ClockRule, Endpoints, Failure, Protocol, Question, Reply};
use super::worker::AcquirePlan;

pub(super) struct Http {
    endpoints: Endpoints,
    agent: Agent,
    rule: ClockRule,
}

impl Http {
    pub(super) fn new(options: &ClientOptions) -> Self {
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            .proxy(None)
            .max_idle_connections(0)
            .build()
            .into();
        Self { endpoints: Endpoints::of(options), agent, rule: ClockRule::of(options) }
    }

    /// Sends a request, and returns the status and the body of the response.
    fn post(&self, path: &str, body: &Value, timeout: Duration) -> Result<(u16, Value), Failure> {
        let url = format!("http://{}/v1/leases/{path}", self.endpoints.endpoint());
        let request = self.agent.post(url).config().timeout_global(Some(timeout)).build();
        let text = |error: ureq::Error| error.to_string();
        let mut response = request.send_json(body).map_err(text)?;
        let body = response.body_mut().read_json().map_err(text)?;
        match response.status().as_u16() {
            status @ (200 | 409 | 410) => Ok((status, body)),
            status => Err(format!("{status}: {body}")),
        }
    }

    fn granted(&mut self, body: &Value) -> Result<Reply, Failure> {
        let (Some(fence), Some(waited)) = (fence(body), body["waited_ms"].as_u64()) else {
            return Err(format!("no grant: {body}"));
        };
        let number = |key: &str| body[key].as_u64().and_then(|number| u32::try_from(number).ok());
        // An older node may not report these; the defaults apply then.
        if let (Some(drift_ppm), Some(granularity_us)) =
            (number("clock_drift_ppm"), number("clock_granularity_us"))
        {
            self.rule = ClockRule { drift_ppm, granularity_us };
        }
        Ok(Reply::Granted { fence, waited: Duration::from_millis(waited) })
    }
}

/// Fences are strings: JSON numbers are too small for them.
fn fence(body: &Value) -> Option<u64> {
    body["fence"].as_str()?.parse().ok()
}

impl Protocol for Http {
    fn ask(&mut self, question: Question<'_>, timeout: Duration) -> Result<Reply, Failure> {
        let (name, operation, body) = match question {
            Question::Acquire(AcquirePlan { request, holder, .. }) => {
                let mut body = json!({ "ttl": format!("{}ms", request.ttl_ms), "holder": holder });
                if request.wait_ms > 0 {
                    body["wait"] = format!("{}ms", request.wait_ms).into();
                }
                (&request.name, "acquire", body)
            }
            Question::Renew(held, ttl_ms) => {
                let (fence, ttl) = (held.fence.to_string(), format!("{ttl_ms}ms"));
                (&held.name, "renew", json!({ "fence": fence, "ttl": ttl }))
            }
            Question::Release(held) => {
                (&held.name, "release", json!({ "fence": held.fence.to_string() }))
            }
        };
        let answer = self.post(&format!("{name}/{operation}"), &body, timeout);
        let (status, body) = answer.inspect_err(|_| self.endpoints.leave())?;
        match (status, question) {
            (200, Question::Acquire(_)) => self.granted(&body),
            (409, Question::Acquire(_)) => Ok(Reply::Denied { by: fence(&body) }),
            (200, Question::Renew(..) | Question::Release(_)) => Ok(Reply::Done),
            (410, Question::Renew(..) | Question::Release(_)) => Ok(Reply::Over),
            (status, _) => Err(format!("{status}: {body}")),
        }
    }

    fn abandon(&mut self, plan: &AcquirePlan, after: Duration) {
        // The timeout ends the request early.
        let _whatever = self.ask(Question::Acquire(plan), after.max(Duration::from_millis(1)));
    }

    fn rule(&self) -> ClockRule {
        self.rule
    }
}
