//! A client whose clock, server and executor are this file.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use paxoslease_core::{Drift, Instant};
use paxoslease_wire::resp::{Request, RespError};
use tokio::sync::mpsc::{self, UnboundedReceiver};

use crate::client::{Client, Shared};
use crate::clock::Clock;
use crate::command::Command;
use crate::engine::Engine;
use crate::engine::speech::Greeting;

pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// A fence that some node could have issued.
pub(super) const FENCE: u64 = 7 << 10 | 1;

pub(super) fn drift() -> Drift {
    Drift::new(1000, Duration::from_millis(1)).expect("in bounds")
}

pub(super) struct Scene {
    nanos: Arc<AtomicU64>,
    pub(super) engine: Engine,
    commands: UnboundedReceiver<Command>,
    pub(super) client: Client,
}

impl Scene {
    /// A client with so many endpoints, connected to none.
    pub(super) fn new(endpoints: usize) -> Self {
        let nanos = Arc::new(AtomicU64::new(1_000_000_000));
        let clock = Clock::by_hand(Arc::clone(&nanos));
        let endpoints: Vec<String> = (1..=endpoints).map(|node| format!("n{node}:1")).collect();
        let (sender, commands) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared::new(clock.clone(), endpoints.clone(), sender));
        let engine = Engine::new(clock, endpoints, REQUEST_TIMEOUT, 7);
        Self { nanos, engine, commands, client: Client { shared } }
    }

    pub(super) fn connected(endpoints: usize) -> Self {
        let mut scene = Self::new(endpoints);
        scene.connect();
        scene
    }

    pub(super) fn connect(&mut self) {
        let greeting = Greeting { cell: "c".into(), node: 1, drift: drift() };
        self.engine.connected(self.now(), "n1:1", greeting);
    }

    pub(super) fn now(&self) -> Instant {
        Instant::from_nanos(self.nanos.load(Ordering::SeqCst))
    }

    pub(super) fn pass(&self, span: Duration) {
        self.nanos.fetch_add(span.as_nanos() as u64, Ordering::SeqCst);
    }

    pub(super) fn pass_ms(&self, millis: u64) {
        self.pass(Duration::from_millis(millis));
    }

    /// Lets the thread of the client do its work, and leave what it wants to leave.
    pub(super) fn turn(&mut self) {
        loop {
            let now = self.now();
            while let Ok(command) = self.commands.try_recv() {
                self.engine.command(now, command);
            }
            self.engine.tick(now);
            if self.commands.is_empty() {
                return;
            }
        }
    }

    /// What the client says now.
    pub(super) fn said(&mut self) -> Vec<String> {
        self.turn();
        let out = std::mem::take(self.engine.out());
        let (mut rest, mut said) = (&out[..], Vec::new());
        while let Some((request, len)) = Request::parse(rest).expect("well formed") {
            let words: Vec<_> = request
                .args()
                .iter()
                .map(|arg| String::from_utf8_lossy(arg).into_owned())
                .collect();
            said.push(words.join(" "));
            rest = &rest[len..];
        }
        assert!(rest.is_empty(), "only whole requests are said");
        said
    }

    /// The one thing the client says now.
    #[track_caller]
    pub(super) fn said_one(&mut self) -> String {
        let mut said = self.said();
        assert_eq!(said.len(), 1, "{said:?}");
        said.remove(0)
    }

    /// What the server says.
    pub(super) fn hear(&mut self, bytes: &str) {
        self.try_hear(bytes).expect("well formed");
        self.turn();
    }

    pub(super) fn try_hear(&mut self, bytes: &str) -> Result<(), RespError> {
        let now = self.now();
        self.engine.received(now, bytes.as_bytes()).map(|used| assert_eq!(used, bytes.len()))
    }
}

/// A future that is polled when the script says so.
pub(super) struct Asked<T>(Pin<Box<dyn Future<Output = T>>>);

impl<T> Asked<T> {
    pub(super) fn new(future: impl Future<Output = T> + 'static) -> Self {
        Self(Box::pin(future))
    }

    /// The answer, if there is one.
    pub(super) fn poll(&mut self) -> Option<T> {
        match self.0.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(answer) => Some(answer),
            Poll::Pending => None,
        }
    }

    /// Begins to ask.
    #[track_caller]
    pub(super) fn begun(mut self) -> Self {
        assert!(self.poll().is_none(), "nobody can have answered yet");
        self
    }
}
