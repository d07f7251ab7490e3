//! HTTP and JSON, a connection for every question.

use std::time::Duration;

use serde_json::{Value, json};
use ureq::Agent;

use super::Options;
use super::bare::{Answer, Failure, Nodes, Rule, Tenancy, Way};
use super::scene::Wish;
use crate::log::Belief;

pub(super) struct Http {
    nodes: Nodes,
    agent: Agent,
    rule: Rule,
}

impl Http {
    pub(super) fn new(options: &Options) -> Self {
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            .proxy(None)
            .max_idle_connections(0)
            .build()
            .into();
        Self { nodes: Nodes::of(options), agent, rule: Rule::of(options) }
    }

    /// The status and the body.
    fn ask(
        &mut self,
        name: &str,
        deed: &str,
        body: &Value,
        patience: Duration,
    ) -> Result<(u16, Value), Failure> {
        let url = format!("http://{}/v1/leases/{name}/{deed}", self.nodes.endpoint());
        let request =
            self.agent.post(url).config().timeout_global(Some(patience)).build().send_json(body);
        let answer = request.map_err(text).and_then(|mut response| {
            let body = response.body_mut().read_json().map_err(text)?;
            match response.status().as_u16() {
                status @ (200 | 409 | 410) => Ok((status, body)),
                status => Err(format!("{status}: {body}")),
            }
        });
        if answer.is_err() {
            self.nodes.leave();
        }
        answer
    }

    fn tenancy(
        &mut self,
        held: &Belief,
        deed: &str,
        body: &Value,
        patience: Duration,
    ) -> Result<Tenancy, Failure> {
        match self.ask(&held.name, deed, body, patience)? {
            (200, _) => Ok(Tenancy::Done),
            (410, _) => Ok(Tenancy::Over),
            (status, body) => Err(format!("{status}: {body}")),
        }
    }
}

fn acquire(wish: &Wish) -> Value {
    let (ttl, wait) = (format!("{}ms", wish.ask.ttl_ms), format!("{}ms", wish.ask.wait_ms));
    if wish.ask.wait_ms == 0 {
        return json!({ "ttl": ttl, "holder": wish.holder });
    }
    json!({ "ttl": ttl, "wait": wait, "holder": wish.holder })
}

/// Fences are texts: they exceed what JSON's numbers are good for.
fn fence(body: &Value) -> Option<u64> {
    body["fence"].as_str()?.parse().ok()
}

/// How far clocks may be off and how coarse they are, as the node says.
fn clock(body: &Value) -> Option<(u32, u32)> {
    let number = |key: &str| body[key].as_u64().and_then(|number| u32::try_from(number).ok());
    Some((number("clock_drift_ppm")?, number("clock_granularity_us")?))
}

impl Way for Http {
    fn acquire(&mut self, wish: &Wish, patience: Duration) -> Result<Answer, Failure> {
        let (status, body) = self.ask(&wish.ask.name, "acquire", &acquire(wish), patience)?;
        if status == 409 {
            return Ok(Answer::Denied { by: fence(&body) });
        }
        let waited = body["waited_ms"].as_u64();
        let (Some(fence), Some(waited)) = (fence(&body), waited) else {
            return Err(format!("no grant: {body}"));
        };
        // A node to upgrade from may not say: then it is as it was told at the start.
        if let Some((drift_ppm, granularity_us)) = clock(&body) {
            self.rule = Rule { drift_ppm, granularity_us };
        }
        Ok(Answer::Granted { fence, waited: Duration::from_millis(waited) })
    }

    fn renew(
        &mut self,
        held: &Belief,
        ttl_ms: u64,
        patience: Duration,
    ) -> Result<Tenancy, Failure> {
        let ttl = format!("{ttl_ms}ms");
        let body = json!({ "fence": held.fence.to_string(), "ttl": ttl });
        self.tenancy(held, "renew", &body, patience)
    }

    fn release(&mut self, held: &Belief, patience: Duration) -> Result<Tenancy, Failure> {
        self.tenancy(held, "release", &json!({ "fence": held.fence.to_string() }), patience)
    }

    fn abandon(&mut self, wish: &Wish, after: Duration) {
        // Whoever waits this long and no longer leaves in the middle.
        let patience = after.max(Duration::from_millis(1));
        let _whatever = self.ask(&wish.ask.name, "acquire", &acquire(wish), patience);
    }

    fn rule(&self) -> Rule {
        self.rule
    }
}

fn text(error: ureq::Error) -> Failure {
    error.to_string()
}
