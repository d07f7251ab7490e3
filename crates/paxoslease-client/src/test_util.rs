//! A client without its thread, for tests of what a server may do to one: the test is its clock,
//! its executor and its server.

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
use crate::engine::Engine;
use crate::engine::speech::Greeting;

pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest lease of the cell.
pub(crate) const MAX_LEASE: Ttl = Ttl::from_millis(60_000).expect("in bounds");
/// Whatever draws is seeded with this.
const SEED: u64 = 7;

/// A client driven by hand. What needs a connection of its own, such as a watch, is refused.
pub struct ByHand {
    nanos: Arc<AtomicU64>,
    pub(crate) engine: Engine,
    pub(crate) commands: UnboundedReceiver<Command>,
    pub(crate) client: Client,
    unread: Vec<u8>,
}

impl ByHand {
    /// A client with so many endpoints, connected to none.
    #[must_use]
    pub fn new(endpoints: usize) -> Self {
        let nanos = Arc::new(AtomicU64::new(1_000_000_000));
        let clock = Clock::manual(Arc::clone(&nanos));
        let endpoints: Vec<String> = (1..=endpoints).map(|node| format!("n{node}:1")).collect();
        let (sender, commands) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared::new(clock.clone(), endpoints.clone(), sender));
        let engine = Engine::new(clock.now(), endpoints, REQUEST_TIMEOUT, SEED);
        Self { nanos, engine, commands, client: Client { shared }, unread: Vec::new() }
    }

    /// The handle its users have. Futures of it are to be polled, not awaited.
    #[must_use]
    pub const fn client(&self) -> &Client {
        &self.client
    }

    /// What its clock shows.
    pub(crate) fn now(&self) -> Instant {
        Instant::from_nanos(self.nanos.load(Ordering::SeqCst))
    }

    /// Time passes.
    pub fn pass(&self, span: Duration) {
        self.nanos.fetch_add(span.as_nanos() as u64, Ordering::SeqCst);
    }

    /// The node that greets so is connected.
    pub(crate) fn greeted(&mut self, greeting: Greeting) {
        self.unread.clear();
        self.engine.connected(self.now(), "n1:1", greeting);
    }

    /// A node is connected; its clocks drift like this.
    pub fn connected_to(&mut self, drift: Drift) {
        self.greeted(Greeting { cell: "c".into(), node: 1, drift, max_lease: MAX_LEASE });
    }

    /// A node is connected if this is a greeting; says whether it is.
    pub fn greet(&mut self, bytes: &[u8]) -> bool {
        let Ok(Some((value, _))) = Value::parse(bytes) else { return false };
        let greeting = Greeting::new(value);
        let is_one = greeting.is_ok();
        greeting.into_iter().for_each(|greeting| self.greeted(greeting));
        is_one
    }

    /// The connection is over.
    pub fn disconnect(&mut self) {
        self.unread.clear();
        self.engine.disconnected();
    }

    /// Lets the client do its work.
    pub fn turn(&mut self) {
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

    /// What the client has said since this was asked last.
    pub fn take_said(&mut self) -> Vec<u8> {
        std::mem::take(self.engine.out())
    }

    /// The server says this, and the client acts on it.
    ///
    /// # Errors
    /// When it is no RESP: a client hangs up then.
    pub fn heard(&mut self, bytes: &[u8]) -> Result<(), RespError> {
        self.unread.extend_from_slice(bytes);
        let used = self.engine.received(self.now(), &self.unread)?;
        self.unread.drain(..used);
        self.turn();
        Ok(())
    }
}

impl fmt::Debug for ByHand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ByHand").field("engine", &self.engine).finish_non_exhaustive()
    }
}
