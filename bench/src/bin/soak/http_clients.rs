//! Clients beside the load: scrapes, lists and leases over HTTP, each request on a new connection,
//! and a watch on each node.

use std::io::{BufRead as _, BufReader};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use paxoslease_bench::http;
use paxoslease_rig::clock::{now, sleep};
use serde_json::{Value, json};
use ureq::Agent;

const INTERVAL: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HttpCounts {
    /// Requests with the expected reply.
    pub(crate) answered: u64,
    /// Changes that the watches received.
    pub(crate) changes: u64,
}

/// Sends four requests to every node once a second.
pub(crate) fn run(endpoints: &[String], span: Duration) -> Result<HttpCounts> {
    let (agent, began_at) = (http::agent(), now());
    thread::scope(|scope| {
        let watches = endpoints.iter().map(|endpoint| scope.spawn(|| watch(endpoint, span)));
        let watches: Vec<_> = watches.collect();
        let mut answered = 0;
        while began_at.elapsed() < span {
            for endpoint in endpoints {
                visit(&agent, endpoint).with_context(|| endpoint.clone())?;
                answered += 4;
            }
            sleep(INTERVAL);
        }
        let changes = watches.into_iter().map(|watch| watch.join().expect("no watch panics"));
        Ok(HttpCounts { answered, changes: changes.sum::<Result<u64>>()? })
    })
}

fn visit(agent: &Agent, endpoint: &str) -> Result<()> {
    agent.get(format!("http://{endpoint}/metrics")).call()?.body_mut().read_to_string()?;
    let leases = format!("http://{endpoint}/v1/leases");
    agent.get(format!("{leases}?prefix=soak/visit")).call()?.body_mut().read_to_string()?;
    let acquire = agent.post(format!("{leases}/soak/visit/acquire"));
    let mut granted = acquire.send_json(json!({ "ttl": "10s", "wait": "5s" }))?;
    let granted: Value = granted.body_mut().read_json()?;
    let release = agent.post(format!("{leases}/soak/visit/release"));
    release.send_json(json!({ "fence": granted["fence"] }))?.body_mut().read_to_string()?;
    Ok(())
}

/// How many changes a watch receives in this time.
fn watch(endpoint: &str, span: Duration) -> Result<u64> {
    let began_at = now();
    let watch = http::agent().get(format!("http://{endpoint}/v1/watch?prefix=soak/visit"));
    let watch = watch.config().timeout_global(Some(span)).build().call()?;
    let lines = BufReader::new(watch.into_body().into_reader()).lines().map_while(Result::ok);
    let changes = lines.filter(|line| line.starts_with("event:")).count();
    ensure!(began_at.elapsed() >= span, "the watch at {endpoint} ended");
    Ok(changes as u64)
}
