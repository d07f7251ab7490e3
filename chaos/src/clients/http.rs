//! HTTP and JSON, a connection for every question.

use std::time::Duration;

use serde_json::{Value, json};
use ureq::Agent;

use super::ClientOptions;
use super::bare::{AcquireReply, ClockRule, Endpoints, Failure, Protocol, TenureReply};
use super::worker::AcquirePlan;
use crate::log::Belief;

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

    fn ask(
        &mut self,
        name: &str,
        operation: &str,
        body: &Value,
        timeout: Duration,
    ) -> Result<(u16, Value), Failure> {
        let url = format!("http://{}/v1/leases/{name}/{operation}", self.endpoints.endpoint());
        let request =
            self.agent.post(url).config().timeout_global(Some(timeout)).build().send_json(body);
        let answer = request.map_err(text).and_then(|mut response| {
            let body = response.body_mut().read_json().map_err(text)?;
            match response.status().as_u16() {
                status @ (200 | 409 | 410) => Ok((status, body)),
                status => Err(format!("{status}: {body}")),
            }
        });
        if answer.is_err() {
            self.endpoints.leave();
        }
        answer
    }

    fn tenancy(
        &mut self,
        held: &Belief,
        operation: &str,
        body: &Value,
        timeout: Duration,
    ) -> Result<TenureReply, Failure> {
        match self.ask(&held.name, operation, body, timeout)? {
            (200, _) => Ok(TenureReply::Done),
            (410, _) => Ok(TenureReply::Over),
            (status, body) => Err(format!("{status}: {body}")),
        }
    }
}

fn acquire(plan: &AcquirePlan) -> Value {
    let (ttl, wait) = (format!("{}ms", plan.request.ttl_ms), format!("{}ms", plan.request.wait_ms));
    if plan.request.wait_ms == 0 {
        return json!({ "ttl": ttl, "holder": plan.holder });
    }
    json!({ "ttl": ttl, "wait": wait, "holder": plan.holder })
}

/// Fences are strings: JSON numbers are too small for them.
fn fence(body: &Value) -> Option<u64> {
    body["fence"].as_str()?.parse().ok()
}

/// Drift and granularity as the node reports them.
fn clock(body: &Value) -> Option<(u32, u32)> {
    let number = |key: &str| body[key].as_u64().and_then(|number| u32::try_from(number).ok());
    Some((number("clock_drift_ppm")?, number("clock_granularity_us")?))
}

impl Protocol for Http {
    fn acquire(&mut self, plan: &AcquirePlan, timeout: Duration) -> Result<AcquireReply, Failure> {
        let (status, body) = self.ask(&plan.request.name, "acquire", &acquire(plan), timeout)?;
        if status == 409 {
            return Ok(AcquireReply::Denied { by: fence(&body) });
        }
        let waited = body["waited_ms"].as_u64();
        let (Some(fence), Some(waited)) = (fence(&body), waited) else {
            return Err(format!("no grant: {body}"));
        };
        // An older node may not report these; the defaults apply then.
        if let Some((drift_ppm, granularity_us)) = clock(&body) {
            self.rule = ClockRule { drift_ppm, granularity_us };
        }
        Ok(AcquireReply::Granted { fence, waited: Duration::from_millis(waited) })
    }

    fn renew(
        &mut self,
        held: &Belief,
        ttl_ms: u64,
        timeout: Duration,
    ) -> Result<TenureReply, Failure> {
        let ttl = format!("{ttl_ms}ms");
        let body = json!({ "fence": held.fence.to_string(), "ttl": ttl });
        self.tenancy(held, "renew", &body, timeout)
    }

    fn release(&mut self, held: &Belief, timeout: Duration) -> Result<TenureReply, Failure> {
        self.tenancy(held, "release", &json!({ "fence": held.fence.to_string() }), timeout)
    }

    fn abandon(&mut self, plan: &AcquirePlan, after: Duration) {
        // The timeout ends the request early.
        let timeout = after.max(Duration::from_millis(1));
        let _whatever = self.ask(&plan.request.name, "acquire", &acquire(plan), timeout);
    }

    fn rule(&self) -> ClockRule {
        self.rule
    }
}

fn text(error: ureq::Error) -> Failure {
    error.to_string()
}
