//! HTTP and JSON, a connection for every question.

use std::time::Duration;

use serde_json::{Value, json};
use ureq::Agent;

use super::Options;
use super::bare::{Answer, Failure, Rule, Tenancy, Way};
use super::scene::Wish;

pub(super) struct Http {
    endpoints: Vec<String>,
    /// How many nodes were tried; the next is the one to ask.
    tries: usize,
    agent: Agent,
    rule: Rule,
}

impl Http {
    pub(super) fn new(options: &Options) -> Self {
        let Options { drift_ppm, granularity_us, .. } = *options;
        let tries = options.seed as usize % options.endpoints.len();
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            .proxy(None)
            .max_idle_connections(0)
            .build()
            .into();
        let rule = Rule { drift_ppm, granularity_us };
        Self { endpoints: options.endpoints.clone(), tries, agent, rule }
    }

    /// The status and the body.
    fn ask(
        &mut self,
        name: &str,
        deed: &str,
        body: &Value,
        patience: Duration,
    ) -> Result<(u16, Value), Failure> {
        let endpoint = &self.endpoints[self.tries % self.endpoints.len()];
        let url = format!("http://{endpoint}/v1/leases/{name}/{deed}");
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
            self.tries += 1;
        }
        answer
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

/// How far clocks may be off, as the node says.
fn rule(body: &Value) -> Option<Rule> {
    let number = |key: &str| body[key].as_u64().and_then(|number| u32::try_from(number).ok());
    let drift_ppm = number("clock_drift_ppm")?;
    Some(Rule { drift_ppm, granularity_us: number("clock_granularity_us")? })
}

impl Way for Http {
    fn acquire(&mut self, wish: &Wish, patience: Duration) -> Result<Answer, Failure> {
        let (status, body) = self.ask(&wish.ask.name, "acquire", &acquire(wish), patience)?;
        if status == 409 {
            return Ok(Answer::Denied { by: fence(&body) });
        }
        let waited = body["waited_ms"].as_u64();
        let (Some(fence), Some(waited), Some(rule)) = (fence(&body), waited, rule(&body)) else {
            return Err(format!("no grant: {body}"));
        };
        self.rule = rule;
        Ok(Answer::Granted { fence, waited: Duration::from_millis(waited) })
    }

    fn renew(
        &mut self,
        name: &str,
        fence: u64,
        ttl_ms: u64,
        patience: Duration,
    ) -> Result<Tenancy, Failure> {
        let body = json!({ "fence": fence.to_string(), "ttl": format!("{ttl_ms}ms") });
        let (status, _) = self.ask(name, "renew", &body, patience)?;
        Ok(if status == 200 { Tenancy::Done } else { Tenancy::Over })
    }

    fn release(&mut self, name: &str, fence: u64, patience: Duration) -> Result<Tenancy, Failure> {
        let body = json!({ "fence": fence.to_string() });
        let (status, _) = self.ask(name, "release", &body, patience)?;
        Ok(if status == 200 { Tenancy::Done } else { Tenancy::Over })
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
