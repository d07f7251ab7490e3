//! HTTP: for people, curl, browsers, probes and Prometheus.
//!
//! [`Http`] is a thread of its own with a runtime on it, beside a node whose own threads never see
//! one. It keeps no state of leases: whatever is asked goes to the node, and a client that goes
//! away takes its question with it (P8). It speaks TLS if the node's configuration has clients do
//! so, and asks a [`Gate`] who may do what.

mod cell;
mod connection;
mod input;
mod leases;
mod page;
mod patient;
mod permit;
mod rebinding;
mod refusal;
mod router;
mod serve;
mod watch;

use std::fmt;
use std::future::Future;
use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use paxoslease_node::{Node, Remote};
use tokio::sync::{Semaphore, oneshot, watch as signal};

use crate::limits::WATCHERS_MAX;
use crate::metrics::Metrics;
use crate::{Gate, ServerLimits};
use connection::Notices;
use refusal::Refusal;

/// The OpenAPI document. Tests compare it with the routes, with the errors, and with what daemons
/// answer.
pub const OPENAPI: &str = include_str!("../../../docs/openapi.json");

/// The longest body of a request, in bytes.
const BODY_MAX: usize = 16 << 10;

/// Bounds on what clients may do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Bounds {
    /// Connections; who comes when there are as many is told so and sent away.
    pub connections: u32,
    /// Connections among them that watch at a time; who comes then is refused.
    pub watchers: u32,
    /// Acquires of one connection, on average; what is over is refused.
    pub acquires_per_second: Option<u32>,
    /// How long a connection may be idle, or take for its TLS handshake, or take to send the head
    /// of a request.
    pub head_timeout: Duration,
    /// How long it may take to send the body.
    pub body_timeout: Duration,
    /// How long it may take nothing of what it is sent.
    pub write_timeout: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self::from(&ServerLimits::default())
    }
}

impl From<&ServerLimits> for Bounds {
    fn from(limits: &ServerLimits) -> Self {
        Self {
            connections: limits.connections,
            watchers: WATCHERS_MAX,
            acquires_per_second: limits.acquires_per_second,
            head_timeout: Duration::from_secs(30),
            body_timeout: Duration::from_secs(10),
            write_timeout: Duration::from_secs(60),
        }
    }
}

/// A node that is served by HTTP.
#[must_use = "it stops when it is dropped"]
pub struct Http {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Http {
    /// Serves a node on a socket that listens already.
    ///
    /// # Errors
    /// When the system refuses a thread, an event queue or the socket. Then nothing runs.
    pub fn start(
        node: Node,
        listener: TcpListener,
        metrics: Metrics,
        gate: Gate,
        bounds: Bounds,
    ) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        listener.set_nonblocking(true)?;
        let listener = {
            let _entered = runtime.enter();
            tokio::net::TcpListener::from_std(listener)?
        };
        let (stop, stopped) = oneshot::channel();
        let serve = move || {
            let recorder = metrics.recorder();
            let shutdown = async { drop(stopped.await) };
            ::metrics::with_local_recorder(&*recorder, || {
                runtime.block_on(serve::run(listener, node, gate, metrics, bounds, shutdown));
                // Within the recorder: connections that are cut off count themselves out.
                drop(runtime);
            });
        };
        let thread = thread::Builder::new().name("paxoslease-http".to_owned()).spawn(serve)?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }

    /// Stops: no more connections, requests under way finish, those that wait for a lease are
    /// turned away, watches end. Returns when all of that is done, after a few seconds at most.
    /// Dropping does the same.
    pub fn shutdown(self) {
        drop(self);
    }
}

impl Drop for Http {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has said so, and there is nobody left to serve.
            let _panicked = thread.join();
        }
    }
}

impl fmt::Debug for Http {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Http")
    }
}

/// What handlers have in common.
#[derive(Clone)]
struct App {
    node: Node,
    remote: Remote,
    metrics: Metrics,
    gate: Gate,
    notices: Arc<Notices>,
    /// Whether it listens where pages of other sites could lead a browser.
    may_be_rebound: bool,
    body_timeout: Duration,
    watchers: Arc<Semaphore>,
    stopping: signal::Receiver<bool>,
}

impl App {
    /// What a future comes to, unless the server stops before.
    async fn unless_stopping<T>(&self, future: impl Future<Output = T>) -> Result<T, Refusal> {
        let mut stopping = self.stopping.clone();
        tokio::select! {
            biased;
            value = future => Ok(value),
            // A sender that is gone has stopped as well.
            _ = stopping.wait_for(|stopping| *stopping) => Err(Refusal::Stopping),
        }
    }
}
