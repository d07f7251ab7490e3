//! Decides which endpoint the client dials, and when, and tells the engine what became of its
//! connection. There is no socket here: `driver` has those.

use std::fmt::Display;
use std::time::Duration;

use paxoslease_core::Instant;
use paxoslease_holder::AskError;

use crate::builder::Builder;
use crate::endpoints::Endpoints;
use crate::engine::Engine;
use crate::engine::protocol::Greeting;
use crate::route::Route;

#[derive(Debug)]
pub(crate) struct Connector {
    pub(crate) engine: Engine,
    route: Route,
    endpoints: Endpoints,
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
        let endpoints = Endpoints::new(config.endpoints.clone());
        Self {
            route: Route::new(endpoints.clone(), seed),
            engine: Engine::new(now, endpoints.clone(), config.request_timeout, !seed),
            endpoints,
            connect_timeout: config.connect_timeout,
            line: LineState::Down,
            is_hasty: false,
        }
    }

    /// The endpoints, for tasks that have a connection of their own.
    pub(crate) const fn endpoints(&self) -> &Endpoints {
        &self.endpoints
    }

    /// The endpoint in use, or the next one to try.
    pub(crate) fn endpoint(&self) -> &str {
        &self.route.next
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
                let endpoint = &self.route.next;
                tracing::debug!(endpoint, node = greeting.node, "connected");
                self.engine.connected(now, endpoint, greeting);
                (self.line, self.is_hasty) = (LineState::Up, false);
            }
            Err(error) => {
                self.line = LineState::Down;
                self.failed(now, self.endpoints.judge(error));
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
            None => return self.engine.endpoint_failed(),
            Some(AskError::Unreachable { endpoints: which, problem }) => {
                let endpoints = self.endpoints.all();
                let problem = match endpoints.len() {
                    1 => problem,
                    _ => format!("{}: {problem}", which.join(", ")),
                };
                AskError::Unreachable { endpoints, problem }
            }
            Some(why) => why,
        };
        let was_hasty = std::mem::take(&mut self.is_hasty);
        self.engine.unreachable(now, &why, was_hasty);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Client;
    use crate::command::{Command, Query};
    use crate::test_util::greeting;

    struct Dialling {
        connector: Connector,
        now: Instant,
    }

    impl Dialling {
        fn new(endpoints: &str) -> Self {
            let now = Instant::ZERO.after(Duration::from_secs(1));
            let connector = Connector::new(now, &Client::builder().endpoints(endpoints), 7);
            Self { connector, now }
        }

        /// The endpoint that is dialled for a new request.
        fn dials(&mut self) -> String {
            let (reply, _answer) = oneshot::channel();
            let query = Query::Get { name: "x".into(), reply };
            self.connector.engine.command(self.now, Command::Query(query));
            match self.connector.step(self.now) {
                Step::Dial { endpoint, .. } => endpoint,
                other => panic!("{other:?}"),
            }
        }

        fn fails(&mut self) {
            let endpoints = vec![self.connector.endpoint().to_owned()];
            let error = AskError::Unreachable { endpoints, problem: "refused".into() };
            self.now = self.now.after(Duration::from_millis(1));
            self.connector.dialled(self.now, Err(error));
        }

        fn connects(&mut self, epoch: u32, members: &[&str]) {
            self.connector.dialled(self.now, Ok(greeting(epoch, members)));
            let used = self.connector.engine.received(self.now, b">1\r\n+useful\r\n");
            assert!(used.is_ok() && self.connector.step(self.now) == Step::Wait);
        }

        fn breaks(&mut self) {
            self.connector.broken(self.now, &"reset");
        }
    }

    #[test]
    fn configured_endpoints_are_tried_when_all_members_fail() {
        let mut dialling = Dialling::new("lb:1");
        assert_eq!(dialling.dials(), "lb:1");
        dialling.connects(1, &["a:1", "b:1"]);
        assert_eq!(dialling.connector.endpoint(), "lb:1", "the endpoint in use stays in use");
        dialling.breaks();
        let mut tried = Vec::new();
        for _ in 0..3 {
            tried.push(dialling.dials());
            dialling.fails();
        }
        assert_eq!(tried, ["a:1", "b:1", "lb:1"]);
    }

    #[test]
    fn members_are_preferred_to_other_endpoints() {
        let mut dialling = Dialling::new("old:1");
        dialling.dials();
        dialling.connects(1, &["a:1", "b:1", "c:1"]);
        dialling.breaks();
        for expected in ["a:1", "b:1", "c:1"] {
            assert_eq!(dialling.dials(), expected);
            dialling.connects(1, &["a:1", "b:1", "c:1"]);
            dialling.now = dialling.now.after(Duration::from_secs(60));
            dialling.breaks();
        }
        assert_eq!(dialling.dials(), "a:1", "the cell has left the node that was configured");
    }
}
