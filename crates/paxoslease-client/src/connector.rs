//! Decides which endpoint the client dials, and when, and tells the engine what became of its
//! connection. There is no socket here: `driver` has those.

use std::fmt::Display;
use std::time::Duration;

use paxoslease_core::Instant;
use paxoslease_holder::AskError;

use crate::builder::Builder;
use crate::engine::Engine;
use crate::engine::protocol::Greeting;
use crate::route::Route;

#[derive(Debug)]
pub(crate) struct Connector {
    pub(crate) engine: Engine,
    route: Route,
    endpoints: Vec<String>,
    connect_timeout: Duration,
    line: LineState,
    /// Whether a dial of this pass over the endpoints had less time than configured, because leases
    /// need renewals.
    is_hasty: bool,
}

/// The connection for leases.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LineState {
    Down,
    Dialling,
    Up,
}

/// What the owner of the socket has to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// Connect, and report to [`Connector::dialled`] within this span.
    Dial { endpoint: String, within: Duration },
    /// Close the connection.
    Close,
    /// The client has stopped.
    Done,
    /// Send [`Engine::out`], then wait for an event.
    Wait,
}

impl Connector {
    pub(crate) fn new(now: Instant, config: &Builder, seed: u64) -> Self {
        let endpoints = config.endpoints.clone();
        Self {
            route: Route::new(endpoints.len(), seed),
            engine: Engine::new(now, endpoints.clone(), config.request_timeout, !seed),
            endpoints,
            connect_timeout: config.connect_timeout,
            line: LineState::Down,
            is_hasty: false,
        }
    }

    /// The index of the endpoint in use, or of the next one to try.
    pub(crate) const fn endpoint_index(&self) -> usize {
        self.route.next
    }

    /// The endpoint in use, or the next one to try.
    pub(crate) fn endpoint(&self) -> &str {
        &self.endpoints[self.route.next]
    }

    /// Does what is due. The owner of the socket calls this until it returns [`Step::Wait`].
    pub(crate) fn step(&mut self, now: Instant) -> Step {
        self.engine.tick(now);
        if let Some(why) = self.engine.leave_reason().cloned() {
            self.disconnect(now, why);
            return Step::Close;
        }
        if self.engine.is_done(now) {
            return Step::Done;
        }
        if self.is_idle() || now < self.route.retry_at {
            return Step::Wait;
        }
        let mut within = self.connect_timeout;
        if let Some(timeout) = self.engine.dial_timeout() {
            // With each failed pass over the endpoints it is more likely that the network is slow,
            // not a node. A dial takes two round trips, so a fixed timeout might never succeed.
            within = within.min(timeout.saturating_mul(1 << self.route.passes.min(8)));
        }
        self.is_hasty |= within < self.connect_timeout;
        self.line = LineState::Dialling;
        Step::Dial { endpoint: self.endpoint().to_owned(), within }
    }

    /// Whether no connection has to be made.
    fn is_idle(&self) -> bool {
        self.line != LineState::Down || !self.engine.wants_session()
    }

    /// When [`Self::step`] has something to do, if nothing else happens.
    pub(crate) fn next_at(&self) -> Option<Instant> {
        let retry_at = (!self.is_idle()).then_some(self.route.retry_at);
        [self.engine.next_at(), retry_at].into_iter().flatten().min()
    }

    /// A dial ended.
    pub(crate) fn dialled(&mut self, now: Instant, outcome: Result<Greeting, AskError>) {
        match outcome {
            Ok(greeting) => {
                let endpoint = &self.endpoints[self.route.next];
                tracing::debug!(endpoint, node = greeting.node, "connected");
                self.engine.connected(now, endpoint, greeting);
                (self.line, self.is_hasty) = (LineState::Up, false);
            }
            Err(error) => {
                self.line = LineState::Down;
                self.failed(now, error);
            }
        }
    }

    /// The connection failed.
    pub(crate) fn broken(&mut self, now: Instant, error: &impl Display) {
        let (endpoints, problem) = (vec![self.endpoint().to_owned()], error.to_string());
        self.disconnect(now, AskError::Unreachable { endpoints, problem });
    }

    fn disconnect(&mut self, now: Instant, why: AskError) {
        self.line = LineState::Down;
        tracing::debug!(%why, "disconnected");
        if self.engine.disconnected() {
            self.route.advance(now);
        } else {
            self.failed(now, why);
        }
    }

    /// An endpoint failed. Once all have failed, the engine tells its callers.
    fn failed(&mut self, now: Instant, error: AskError) {
        tracing::debug!(%error, "not connected");
        let most = self.engine.dial_timeout().unwrap_or(Duration::MAX);
        let why = match self.route.fail(now, error, most) {
            None => return,
            Some(AskError::Unreachable { endpoints: which, problem }) => {
                let problem = match self.endpoints.len() {
                    1 => problem,
                    _ => format!("{}: {problem}", which.join(", ")),
                };
                AskError::Unreachable { endpoints: self.endpoints.clone(), problem }
            }
            Some(why) => why,
        };
        let was_hasty = std::mem::take(&mut self.is_hasty);
        self.engine.unreachable(now, &why, was_hasty);
    }
}
