//! What comes by beside the load: scrapes, lists and leases over HTTP, each on a connection of its
//! own, and somebody on each node who watches.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use paxoslease_rig::clock::{now, sleep};

const PACE: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(5);

/// What visitors of a minute saw.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Visits {
    /// Requests that were answered as they should be.
    pub(crate) answered: u64,
    /// Changes that were told to those who watch.
    pub(crate) told: u64,
}

/// Visits every node once a second.
pub(crate) fn call(endpoints: &[String], span: Duration) -> Result<Visits> {
    let (began_at, mut visits) = (now(), Visits::default());
    let watchers = endpoints.iter().map(|endpoint| Watcher::new(endpoint));
    let mut watchers = watchers.collect::<Result<Vec<_>>>()?;
    while began_at.elapsed() < span {
        for endpoint in endpoints {
            visit(endpoint, "GET /metrics", "")?;
            visit(endpoint, "GET /v1/leases?prefix=soak/visit", "")?;
            let granted = visit(
                endpoint,
                "POST /v1/leases/soak/visit/acquire",
                r#"{"ttl":"10s","wait":"5s"}"#,
            )?;
            let fence =
                granted.split("\"fence\":\"").nth(1).and_then(|rest| rest.split('"').next());
            let fence = fence.with_context(|| format!("no fence in {granted}"))?;
            let body = format!(r#"{{"fence":"{fence}"}}"#);
            visit(endpoint, "POST /v1/leases/soak/visit/release", &body)?;
            visits.answered += 4;
        }
        for watcher in &mut watchers {
            visits.told += watcher.hear()?;
        }
        sleep(PACE);
    }
    Ok(visits)
}

/// A request on a connection of its own, and the whole answer.
fn visit(endpoint: &str, what: &str, body: &str) -> Result<String> {
    let mut stream = TcpStream::connect(endpoint)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(request(endpoint, what, body).as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).with_context(|| format!("{what} at {endpoint}"))?;
    ensure!(answer.starts_with("HTTP/1.1 200"), "{what} at {endpoint}: {answer}");
    Ok(answer)
}

fn request(endpoint: &str, what: &str, body: &str) -> String {
    format!(
        "{what} HTTP/1.1\r\nhost: {endpoint}\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Somebody who is told of the names that are taken and freed all the time.
struct Watcher {
    stream: TcpStream,
    /// The end of what was heard, in which the beginning of an event may stand.
    rest: Vec<u8>,
}

impl Watcher {
    fn new(endpoint: &str) -> Result<Self> {
        let mut stream = TcpStream::connect(endpoint)?;
        stream.write_all(request(endpoint, "GET /v1/watch?prefix=soak/visit", "").as_bytes())?;
        stream.set_nonblocking(true)?;
        Ok(Self { stream, rest: Vec::new() })
    }

    /// How many changes it was told of since it was asked last.
    fn hear(&mut self) -> Result<u64> {
        const EVENT: &[u8] = b"event:";
        let mut bytes = [0; 16 * 1024];
        loop {
            match self.stream.read(&mut bytes) {
                Ok(0) => anyhow::bail!("a watch ended"),
                Ok(len) => self.rest.extend_from_slice(&bytes[..len]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error.into()),
            }
        }
        let told = self.rest.windows(EVENT.len()).filter(|window| *window == EVENT).count();
        self.rest.drain(..self.rest.len().saturating_sub(EVENT.len() - 1));
        Ok(told as u64)
    }
}
