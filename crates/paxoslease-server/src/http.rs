//! HTTP: for people, curl, browsers, probes and Prometheus.
//!
//! [`Http`] is a thread with an async runtime. The threads of the node have none. It keeps no state
//! of leases: it passes every request to the node, and withdraws the request of a client that
//! leaves (P8). It uses TLS if the node's configuration says so for clients, and asks a [`Gate`]
//! what a client may do.

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
pub const OPENAPI: &str = include_str!("http/openapi.json");

/// The longest body of a request, in bytes.
const BODY_MAX: usize = 16 << 10;

/// Bounds on what clients may do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Bounds {
    /// Connections. A client over this gets an error and is disconnected.
    pub connections: u32,
    /// Watches at a time. A watch over this is refused.
    pub watchers: u32,
    /// Acquires of one connection, on average. An acquire over this is refused.
    pub acquires_per_second: Option<u32>,
    /// How long a connection may be idle, or take for its TLS handshake, or take to send the head
    /// of a request.
    pub head_timeout: Duration,
    /// How long it may take to send the body.
    pub body_timeout: Duration,
    /// How long it may read nothing of a response.
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

/// An HTTP server for a node.
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

    /// Stops: accepts no more connections, lets requests finish, refuses acquires that wait, and
    /// ends watches. Returns after a few seconds at most. Dropping does the same.
    pub fn shutdown(self) {
        drop(self);
    }
}

impl Drop for Http {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has logged that, and serves no client any more.
            let _panicked = thread.join();
        }
    }
}

impl fmt::Debug for Http {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Http")
    }
}

/// What the handlers share.
#[derive(Clone)]
struct App {
    node: Node,
    remote: Remote,
    metrics: Metrics,
    gate: Gate,
    notices: Arc<Notices>,
    /// Whether pages of other sites could make a browser connect here.
    may_be_rebound: bool,
    body_timeout: Duration,
    watchers: Arc<Semaphore>,
    stopping: signal::Receiver<bool>,
}

impl App {
    /// The output of a future, unless the server stops before.
    async fn unless_stopping<T>(&self, future: impl Future<Output = T>) -> Result<T, Refusal> {
        let mut stopping = self.stopping.clone();
        tokio::select! {
            biased;
            value = future => Ok(value),
            // A dropped sender has stopped as well.
            _ = stopping.wait_for(|stopping| *stopping) => Err(Refusal::Stopping),
        }
    }
}
