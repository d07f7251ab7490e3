//! The client's thread: brings the engine its commands, a connection and the time, and looks after
//! those who have connections of their own.
//!
//! One runtime on one thread, so nothing here is shared. There is no protocol state here beyond
//! which endpoint comes next.

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
use crate::engine::speech::Greeting;
use crate::link::{Dialler, Link, LinkError};
use crate::onlookers;
use crate::route::Route;
use paxoslease_holder::AskError;

/// How many commands are taken at once.
const BATCH_LEN: usize = 4096;

type Dialling = Pin<Box<dyn Future<Output = Result<(Link, Greeting), AskError>>>>;

/// Runs a client until its last handle is gone, or it is told to stop.
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
        is_orphan: false,
        line: Line::Down,
    };
    LocalSet::new().block_on(&runtime, driver.run());
    // A host's name that is still being looked up keeps nobody waiting.
    runtime.shutdown_background();
}

struct Driver {
    engine: Engine,
    dialler: Rc<Dialler>,
    route: Route,
    clock: Clock,
    commands: UnboundedReceiver<Command>,
    batch: Vec<Command>,
    /// Whether the last handle is gone.
    is_orphan: bool,
    line: Line,
}

/// The connection for leases.
enum Line {
    Down,
    Dialling(Dialling),
    Up(Link),
}

impl Driver {
    async fn run(mut self) {
        loop {
            let now = self.clock.now();
            self.engine.tick(now);
            if let Some(why) = self.engine.wants_elsewhere().cloned() {
                self.hang_up(now, why);
                continue;
            }
            if self.engine.is_done(now) {
                return;
            }
            if let Line::Up(link) = &mut self.line
                && let Err(error) = link.flush(self.engine.out())
            {
                self.broken(now, &error);
                continue;
            }
            self.dial(now);
            self.wait(now).await;
        }
    }

    /// Begins to connect if there is anything to connect for, and not too soon.
    fn dial(&mut self, now: Instant) {
        let is_down = matches!(self.line, Line::Down);
        if is_down && self.engine.wants_session() && now >= self.route.retry_at {
            let dialler = Rc::clone(&self.dialler);
            let endpoint = dialler.config.endpoints[self.route.next].clone();
            let mut within = dialler.config.connect_timeout;
            if let Some(patience) = self.engine.dial_patience() {
                // With each round in vain it is less likely that it is a node that is slow.
                within = within.min(patience.max(self.route.pause));
            }
            self.line =
                Line::Dialling(Box::pin(
                    async move { dialler.dial_within(&endpoint, within).await },
                ));
        }
    }

    /// Waits for whatever comes first, and takes it in.
    async fn wait(&mut self, now: Instant) {
        let Self { engine, commands, batch, is_orphan, line, route, .. } = self;
        let to_send = !engine.out().is_empty();
        let is_down = matches!(line, Line::Down) && engine.wants_session();
        let retry_at = is_down.then_some(route.retry_at);
        let next_at = [engine.next_at(), retry_at].into_iter().flatten().min();
        let span = next_at.map(|at| at.since(now));
        let event = tokio::select! {
            count = commands.recv_many(batch, BATCH_LEN), if !*is_orphan => Event::Commands(count),
            event = line.event(to_send) => event,
            () = sleep(span) => Event::Time,
        };
        // Read after the input was received.
        let now = self.clock.now();
        match event {
            // If this thread was late, perhaps the answers are not.
            Event::Time => self.take_in(now),
            Event::Commands(0) => {
                self.is_orphan = true;
                self.engine.leave(now);
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
                self.line = Line::Up(link);
            }
            Event::Dialled(Err(error)) => {
                self.line = Line::Down;
                self.failed(now, error);
            }
            Event::Ready(Ok(())) => self.take_in(now),
            Event::Ready(Err(error)) => self.broken(now, &error),
        }
    }

    /// Takes in what was received, if there is a connection.
    fn take_in(&mut self, now: Instant) {
        let Self { line: Line::Up(link), engine, .. } = self else { return };
        if let Err(error) = link.take_in(|bytes| engine.received(now, bytes)) {
            self.broken(now, &error);
        }
    }

    fn command(&mut self, now: Instant, command: Command) {
        let dialler = Rc::clone(&self.dialler);
        match command {
            Command::Watch(subscription) => {
                spawn_local(onlookers::watch(dialler, self.route.next, subscription));
            }
            Command::Observe { name, leader } => {
                spawn_local(onlookers::observe(dialler, self.route.next, name, leader));
            }
            Command::StatusOf { endpoint, reply } => {
                spawn_local(async move {
                    let _left = reply.send(onlookers::status_of(&dialler, &endpoint).await);
                });
            }
            command => self.engine.command(now, command),
        }
    }

    /// The connection broke.
    fn broken(&mut self, now: Instant, error: &LinkError) {
        let endpoint = self.dialler.config.endpoints[self.route.next].clone();
        let (endpoints, problem) = (vec![endpoint], error.to_string());
        self.hang_up(now, AskError::Unreachable { endpoints, problem });
    }

    /// The connection is over.
    fn hang_up(&mut self, now: Instant, why: AskError) {
        self.line = Line::Down;
        tracing::debug!(%why, "disconnected");
        if self.engine.disconnected() {
            self.route.advance(now);
        } else {
            self.failed(now, why);
        }
    }

    /// An endpoint is no good. Once that is so for all of them, everybody is told.
    fn failed(&mut self, now: Instant, error: AskError) {
        tracing::debug!(%error, "not connected");
        let most = self.engine.dial_patience().unwrap_or(Duration::MAX);
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
    /// None when nobody can give any more.
    Commands(usize),
    Dialled(Result<(Link, Greeting), AskError>),
    Ready(Result<(), LinkError>),
}

impl Line {
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
