//! A client without its thread, for tests of the engine against any server. The test is the clock,
//! the executor and the server.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use paxoslease_clock::Clock;
use paxoslease_core::{Drift, Instant, Ttl};
use paxoslease_wire::resp::{RespError, Value};
use tokio::sync::mpsc::{self, UnboundedReceiver};

use crate::client::{Client, Shared};
use crate::command::Command;
use crate::endpoints::Endpoints;
use crate::engine::Engine;
use crate::engine::protocol::Greeting;

pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest lease of the cell.
pub(crate) const MAX_LEASE: Ttl = Ttl::from_millis(60_000).expect("in bounds");
/// The seed of all random delays.
const SEED: u64 = 7;

/// A client that a test drives. It refuses commands that need a connection of their own, such as
/// a watch.
pub struct ManualClient {
    nanos: Arc<AtomicU64>,
    pub(crate) engine: Engine,
    pub(crate) commands: UnboundedReceiver<Command>,
    pub(crate) client: Client,
    unread: Vec<u8>,
    endpoints: Vec<String>,
    /// How many connections there were.
    connections: usize,
}

impl ManualClient {
    /// A client with this many endpoints, not connected.
    #[must_use]
    pub fn new(endpoints: usize) -> Self {
        let nanos = Arc::new(AtomicU64::new(1_000_000_000));
        let clock = Clock::manual(Arc::clone(&nanos));
        let endpoints: Vec<String> = (1..=endpoints).map(|node| format!("n{node}:1")).collect();
        let (sender, commands) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared::new(clock.clone(), endpoints.clone(), sender));
        let list = Endpoints::new(endpoints.clone());
        let engine = Engine::new(clock.now(), list, REQUEST_TIMEOUT, SEED);
        let client = Client { shared };
        Self { nanos, engine, commands, client, unread: Vec::new(), endpoints, connections: 0 }
    }

    /// The handle of the client. A test has to poll its futures, not await them.
    #[must_use]
    pub const fn client(&self) -> &Client {
        &self.client
    }

    pub(crate) fn now(&self) -> Instant {
        Instant::from_nanos(self.nanos.load(Ordering::SeqCst))
    }

    /// Advances the clock.
    pub fn advance(&self, span: Duration) {
        self.nanos.fetch_add(span.as_nanos() as u64, Ordering::SeqCst);
    }

    /// Connects the next node, with this greeting.
    pub(crate) fn greeted(&mut self, greeting: Greeting) {
        self.unread.clear();
        let endpoint = &self.endpoints[self.connections % self.endpoints.len()];
        self.engine.connected(self.now(), endpoint, greeting);
        self.connections += 1;
    }

    /// Connects the next node, with this drift.
    pub fn connected_to(&mut self, drift: Drift) {
        self.greeted(Greeting { drift, ..greeting(0, &[]) });
    }

    /// Connects the next node if the bytes are a greeting. Returns whether they are.
    pub fn greet(&mut self, bytes: &[u8]) -> bool {
        let Ok(Some((value, _))) = Value::parse(bytes) else { return false };
        let greeting = Greeting::new(value);
        let is_valid = greeting.is_ok();
        greeting.into_iter().for_each(|greeting| self.greeted(greeting));
        is_valid
    }

    /// Breaks the connection.
    pub fn disconnect(&mut self) {
        self.unread.clear();
        self.engine.disconnected();
    }

    /// Lets the client handle its commands and timers.
    pub fn run(&mut self) {
        loop {
            let now = self.now();
            while let Ok(command) = self.commands.try_recv() {
                match command {
                    Command::StatusOf { .. } | Command::Watch(_) | Command::Observe { .. } => {}
                    command => self.engine.command(now, command),
                }
            }
            self.engine.tick(now);
            if self.commands.is_empty() {
                return;
            }
        }
    }

    /// The bytes that the client has sent since the last call.
    pub fn take_sent(&mut self) -> Vec<u8> {
        std::mem::take(self.engine.out())
    }

    /// Delivers bytes of the server to the client.
    ///
    /// # Errors
    /// When the bytes are not valid RESP. A client closes the connection then.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<(), RespError> {
        self.unread.extend_from_slice(bytes);
        let used = self.engine.received(self.now(), &self.unread)?;
        self.unread.drain(..used);
        self.run();
        Ok(())
    }
}

/// The greeting of a node that reports these members.
pub(crate) fn greeting(epoch: u32, members: &[&str]) -> Greeting {
    Greeting {
        cell: "c".into(),
        node: 1,
        drift: Drift::new(1000, Duration::from_millis(1)).expect("in bounds"),
        max_lease: MAX_LEASE,
        epoch,
        members: members.iter().map(|&address| address.to_owned()).collect(),
    }
}

impl fmt::Debug for ManualClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ManualClient").field("engine", &self.engine).finish_non_exhaustive()
    }
}
