//! Clients beside the load: scrapes, lists and leases over HTTP, each request on a new connection,
//! and a watch on each node.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use paxoslease_rig::clock::{now, sleep};

const INTERVAL: Duration = Duration::from_secs(1);
const TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HttpCounts {
    /// Requests with the expected reply.
    pub(crate) answered: u64,
    /// Changes that the watches received.
    pub(crate) changes: u64,
}

/// Sends four requests to every node once a second.
pub(crate) fn run(endpoints: &[String], span: Duration) -> Result<HttpCounts> {
    let (began_at, mut counts) = (now(), HttpCounts::default());
    let watchers = endpoints.iter().map(|endpoint| Watcher::new(endpoint));
    let mut watchers = watchers.collect::<Result<Vec<_>>>()?;
    while began_at.elapsed() < span {
        for endpoint in endpoints {
            send(endpoint, "GET /metrics", "")?;
            send(endpoint, "GET /v1/leases?prefix=soak/visit", "")?;
            let granted = send(
                endpoint,
                "POST /v1/leases/soak/visit/acquire",
                r#"{"ttl":"10s","wait":"5s"}"#,
            )?;
            let fence =
                granted.split("\"fence\":\"").nth(1).and_then(|rest| rest.split('"').next());
            let fence = fence.with_context(|| format!("no fence in {granted}"))?;
            let body = format!(r#"{{"fence":"{fence}"}}"#);
            send(endpoint, "POST /v1/leases/soak/visit/release", &body)?;
            counts.answered += 4;
        }
        for watcher in &mut watchers {
            counts.changes += watcher.count_changes()?;
        }
        sleep(INTERVAL);
    }
    Ok(counts)
}

/// Sends a request on a new connection, and returns the whole reply.
fn send(endpoint: &str, what: &str, body: &str) -> Result<String> {
    let mut stream = TcpStream::connect(endpoint)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
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

struct Watcher {
    stream: TcpStream,
    /// The end of the received bytes, where an event may begin.
    rest: Vec<u8>,
}

impl Watcher {
    fn new(endpoint: &str) -> Result<Self> {
        let mut stream = TcpStream::connect(endpoint)?;
        stream.write_all(request(endpoint, "GET /v1/watch?prefix=soak/visit", "").as_bytes())?;
        stream.set_nonblocking(true)?;
        Ok(Self { stream, rest: Vec::new() })
    }

    /// How many changes have come since the last call.
    fn count_changes(&mut self) -> Result<u64> {
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
