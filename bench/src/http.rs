//! A plain HTTP client, without proxies and with a connection for every request.

use std::time::Duration;

use ureq::Agent;

const TIMEOUT: Duration = Duration::from_secs(10);

pub fn agent() -> Agent {
    let config = Agent::config_builder().proxy(None).max_idle_connections(0);
    config.timeout_global(Some(TIMEOUT)).build().into()
}
