//! The client's thread: gives the engine its commands, a connection and the time, and spawns the
//! tasks that have a connection of their own.
//!
//! One runtime on one thread, so nothing here is shared. The only protocol state here is the
//! choice of the next endpoint.

use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use paxoslease_clock::{Clock, wait_for};
use paxoslease_core::Instant;
use tokio::runtime::Runtime;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::{LocalSet, spawn_local};

use crate::builder::Builder;
use crate::command::Command;
use crate::engine::Engine;
use crate::engine::protocol::Greeting;
use crate::follow;
use crate::link::{Dialler, Link, LinkError};
use crate::route::Route;
use paxoslease_holder::AskError;

/// How many commands the thread takes from its queue at once.
const BATCH_LEN: usize = 4096;

type Dialling = Pin<Box<dyn Future<Output = Result<(Link, Greeting), AskError>>>>;

/// Runs a client until its last handle is dropped, or it gets the command to stop.
pub(crate) fn run(
    runtime: Runtime,
    config: Builder,
    clock: Clock,
    commands: UnboundedReceiver<Command>,
    seed: u64,
) {
    let endpoints = config.endpoints.clone();
    let driver = Driver {
        route: Route::new(endpoints.len(), seed),
        engine: Engine::new(clock.now(), endpoints, config.request_timeout, !seed),
        dialler: Rc::new(Dialler::new(config)),
        clock,
        commands,
        batch: Vec::new(),
        is_unused: false,
        line: LineState::Down,
    };
    LocalSet::new().block_on(&runtime, driver.run());
    // Does not wait for a host name that is still being looked up.
    runtime.shutdown_background();
}

struct Driver {
    engine: Engine,
    dialler: Rc<Dialler>,
    route: Route,
    clock: Clock,
    commands: UnboundedReceiver<Command>,
    batch: Vec<Command>,
    /// Whether the last handle was dropped.
    is_unused: bool,
    line: LineState,
}

/// The connection for leases.
enum LineState {
    Down,
    Dialling(Dialling),
    Up(Link),
}

impl Driver {
    async fn run(mut self) {
        loop {
            let now = self.clock.now();
            self.engine.tick(now);
            if let Some(why) = self.engine.leave_reason().cloned() {
                self.disconnect(now, why);
                continue;
            }
            if self.engine.is_done(now) {
                return;
            }
            if let LineState::Up(link) = &mut self.line
                && let Err(error) = link.flush(self.engine.out())
            {
                self.broken(now, &error);
                continue;
            }
            self.dial(now);
            self.wait(now).await;
        }
    }

    /// Begins to connect if the engine needs a connection, and the pause of the route is over.
    fn dial(&mut self, now: Instant) {
        let is_down = matches!(self.line, LineState::Down);
        if is_down && self.engine.wants_session() && now >= self.route.retry_at {
            let dialler = Rc::clone(&self.dialler);
            let endpoint = dialler.config.endpoints[self.route.next].clone();
            let mut within = dialler.config.connect_timeout;
            if let Some(timeout) = self.engine.dial_timeout() {
                // With each failed pass over the endpoints it is less likely that one node is slow.
                within = within.min(timeout.max(self.route.pause));
            }
            self.line = LineState::Dialling(Box::pin(async move {
                dialler.dial_within(&endpoint, within).await
            }));
        }
    }

    /// Waits for the next event and handles it.
    async fn wait(&mut self, now: Instant) {
        let Self { engine, commands, batch, is_unused, line, route, .. } = self;
        let to_send = !engine.out().is_empty();
        let is_down = matches!(line, LineState::Down) && engine.wants_session();
        let retry_at = is_down.then_some(route.retry_at);
        let next_at = [engine.next_at(), retry_at].into_iter().flatten().min();
        let span = next_at.map(|at| at.since(now));
        let event = tokio::select! {
            count = commands.recv_many(batch, BATCH_LEN), if !*is_unused => Event::Commands(count),
            event = line.event(to_send) => event,
            () = sleep(span) => Event::Time,
        };
        // The clock is read after the event.
        let now = self.clock.now();
        match event {
            // If this thread was late, the replies may have come in time.
            Event::Time => self.read_ready(now),
            Event::Commands(0) => {
                self.is_unused = true;
                self.engine.stop(now);
            }
            Event::Commands(_) => {
                for command in std::mem::take(&mut self.batch) {
                    self.command(now, command);
                }
            }
            Event::Dialled(Ok((link, greeting))) => {
                let endpoint = &self.dialler.config.endpoints[self.route.next];
                tracing::debug!(endpoint, node = greeting.node, "connected");
                self.engine.connected(now, endpoint, greeting);
                self.line = LineState::Up(link);
            }
            Event::Dialled(Err(error)) => {
                self.line = LineState::Down;
                self.failed(now, error);
            }
            Event::Ready(Ok(())) => self.read_ready(now),
            Event::Ready(Err(error)) => self.broken(now, &error),
        }
    }

    /// Gives received bytes to the engine, if there is a connection.
    fn read_ready(&mut self, now: Instant) {
        let Self { line: LineState::Up(link), engine, .. } = self else { return };
        if let Err(error) = link.read_ready(|bytes| engine.received(now, bytes)) {
            self.broken(now, &error);
        }
    }

    fn command(&mut self, now: Instant, command: Command) {
        let dialler = Rc::clone(&self.dialler);
        match command {
            Command::Watch(subscription) => {
                spawn_local(follow::watch(dialler, self.route.next, subscription));
            }
            Command::Observe { name, leader } => {
                spawn_local(follow::observe(dialler, self.route.next, name, leader));
            }
            Command::StatusOf { endpoint, reply } => {
                spawn_local(async move {
                    let _left = reply.send(follow::status_of(&dialler, &endpoint).await);
                });
            }
            command => self.engine.command(now, command),
        }
    }

    /// The connection failed.
    fn broken(&mut self, now: Instant, error: &LinkError) {
        let endpoint = self.dialler.config.endpoints[self.route.next].clone();
        let (endpoints, problem) = (vec![endpoint], error.to_string());
        self.disconnect(now, AskError::Unreachable { endpoints, problem });
    }

    /// Closes the connection.
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
                let endpoints = self.dialler.config.endpoints.clone();
                let problem = match endpoints.len() {
                    1 => problem,
                    _ => format!("{}: {problem}", which.join(", ")),
                };
                AskError::Unreachable { endpoints, problem }
            }
            Some(why) => why,
        };
        self.engine.unreachable(now, &why);
    }
}

enum Event {
    Time,
    /// How many; 0 after the last handle was dropped.
    Commands(usize),
    Dialled(Result<(Link, Greeting), AskError>),
    Ready(Result<(), LinkError>),
}

impl LineState {
    async fn event(&mut self, to_send: bool) -> Event {
        match self {
            Self::Down => std::future::pending().await,
            Self::Dialling(dialling) => Event::Dialled(dialling.await),
            Self::Up(link) => Event::Ready(link.ready(to_send).await),
        }
    }
}

async fn sleep(span: Option<Duration>) {
    match span {
        Some(span) => tokio::time::sleep(wait_for(span)).await,
        None => std::future::pending().await,
    }
}
