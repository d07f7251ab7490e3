//! The client's thread: brings the engine its commands, a connection and the time, and looks after
//! those who have connections of their own.
//!
//! One runtime on one thread, so nothing here is shared. There is no protocol state here beyond
//! which endpoint comes next.

use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use paxoslease_core::{Instant, Rng};
use tokio::runtime::Runtime;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::{LocalSet, spawn_local};

use crate::builder::Builder;
use crate::clock::Clock;
use crate::command::Command;
use crate::engine::Engine;
use crate::engine::speech::Greeting;
use crate::error::AskError;
use crate::link::{Dialler, Link, LinkError};
use crate::onlookers;

/// How many commands are taken at once.
const BATCH_LEN: usize = 4096;
/// How long to pause when no endpoint can be reached: the first time, and at most.
const PAUSE: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_millis(500);

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
        engine: Engine::new(clock.clone(), endpoints, config.request_timeout, !seed),
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
            self.line = Line::Dialling(Box::pin(async move { dialler.dial(&endpoint).await }));
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
            Event::Time => {}
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
            Event::Ready(ready) => {
                let Line::Up(link) = &mut self.line else { unreachable!("it was ready") };
                let engine = &mut self.engine;
                let taken = ready.and_then(|()| link.take_in(|bytes| engine.received(now, bytes)));
                if let Err(error) = taken {
                    self.broken(now, &error);
                }
            }
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
            self.route.advance();
        } else {
            self.failed(now, why);
        }
    }

    /// An endpoint is no good. Once that is so for all of them, everybody is told.
    fn failed(&mut self, now: Instant, error: AskError) {
        tracing::debug!(%error, "not connected");
        let worst = match (self.route.worst.take(), error) {
            // Where it can be told what to do about it, that is worth more than "not there".
            (Some(worst), AskError::Unreachable { .. }) => worst,
            (_, error) => error,
        };
        self.route.worst = Some(worst);
        self.route.advance_after_failure();
        if self.route.failures < self.dialler.config.endpoints.len() {
            return;
        }
        let worst = match self.route.pause(now) {
            Some(AskError::Unreachable { endpoints: which, problem }) => {
                let endpoints = self.dialler.config.endpoints.clone();
                let problem = match endpoints.len() {
                    1 => problem,
                    _ => format!("{}: {problem}", which.join(", ")),
                };
                AskError::Unreachable { endpoints, problem }
            }
            worst => worst.expect("an endpoint has just failed"),
        };
        self.engine.unreachable(now, &worst);
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
        Some(span) => tokio::time::sleep(span).await,
        None => std::future::pending().await,
    }
}

/// Which endpoint is next, and when.
struct Route {
    endpoints: usize,
    /// The one that is in use, or is tried next.
    next: usize,
    /// How many failed since one was good.
    failures: usize,
    worst: Option<AskError>,
    retry_at: Instant,
    pause: Duration,
    rng: Rng,
}

impl Route {
    const fn new(endpoints: usize, seed: u64) -> Self {
        let (rng, retry_at) = (Rng::seeded(seed), Instant::ZERO);
        Self { endpoints, next: 0, failures: 0, worst: None, retry_at, pause: PAUSE, rng }
    }

    /// What was good is so no more; the next may be.
    fn advance(&mut self) {
        self.next = (self.next + 1) % self.endpoints;
        self.failures = 0;
        self.worst = None;
        self.pause = PAUSE;
    }

    fn advance_after_failure(&mut self) {
        self.next = (self.next + 1) % self.endpoints;
        self.failures += 1;
    }

    /// All failed: says why, and makes the next round wait a little, longer each time.
    fn pause(&mut self, now: Instant) -> Option<AskError> {
        self.failures = 0;
        self.retry_at = now.after(self.pause / 2 + self.rng.below(self.pause));
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        self.worst.take()
    }
}
