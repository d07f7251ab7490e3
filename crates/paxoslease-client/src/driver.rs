//! The client's thread: gives the connector its commands, a connection and the time, and spawns the
//! tasks that have a connection of their own.
//!
//! One runtime on one thread, so nothing here is shared. There is no protocol state here.

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
use crate::connector::{Connector, Step};
use crate::engine::protocol::Greeting;
use crate::follow;
use crate::link::{Dialler, Link, LinkError};
use crate::members;
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
    let driver = Driver {
        connector: Connector::new(clock.now(), &config, seed),
        dialler: Rc::new(Dialler::new(config)),
        clock,
        commands,
        batch: Vec::new(),
        is_unused: false,
        line: Line::Down,
    };
    LocalSet::new().block_on(&runtime, driver.run());
    // Does not wait for a host name that is still being looked up.
    runtime.shutdown_background();
}

struct Driver {
    connector: Connector,
    dialler: Rc<Dialler>,
    clock: Clock,
    commands: UnboundedReceiver<Command>,
    batch: Vec<Command>,
    /// Whether the last handle was dropped.
    is_unused: bool,
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
            match self.connector.step(now) {
                Step::Close => {
                    self.line = Line::Down;
                    continue;
                }
                Step::Done => return,
                Step::Dial { endpoint, within } => {
                    let dialler = Rc::clone(&self.dialler);
                    self.line = Line::Dialling(Box::pin(async move {
                        dialler.dial_within(&endpoint, within).await
                    }));
                }
                Step::Wait => {}
            }
            if let Line::Up(link) = &mut self.line
                && let Err(error) = link.flush(self.connector.engine.out())
            {
                self.broken(now, &error);
                continue;
            }
            self.wait(now).await;
        }
    }

    /// Waits for the next event and handles it.
    async fn wait(&mut self, now: Instant) {
        let Self { connector, commands, batch, is_unused, line, .. } = self;
        let to_send = !connector.engine.out().is_empty();
        let span = connector.next_at().map(|at| at.since(now));
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
                self.connector.engine.stop(now);
            }
            Event::Commands(_) => {
                for command in std::mem::take(&mut self.batch) {
                    self.command(now, command);
                }
            }
            Event::Dialled(outcome) => {
                let (line, outcome) = match outcome {
                    Ok((link, greeting)) => (Line::Up(link), Ok(greeting)),
                    Err(error) => (Line::Down, Err(error)),
                };
                self.line = line;
                self.connector.dialled(now, outcome);
            }
            Event::Ready(Ok(())) => self.read_ready(now),
            Event::Ready(Err(error)) => self.broken(now, &error),
        }
    }

    /// Gives received bytes to the engine, if there is a connection.
    fn read_ready(&mut self, now: Instant) {
        let Self { line: Line::Up(link), connector, .. } = self else { return };
        if let Err(error) = link.read_ready(|bytes| connector.engine.received(now, bytes)) {
            self.broken(now, &error);
        }
    }

    fn command(&mut self, now: Instant, command: Command) {
        let (dialler, endpoints) = (Rc::clone(&self.dialler), self.connector.endpoints().clone());
        let first = self.connector.endpoint().to_owned();
        match command {
            Command::Watch(subscription) => {
                spawn_local(follow::watch(dialler, endpoints, first, subscription));
            }
            Command::Observe { name, changes } => {
                spawn_local(follow::observe(dialler, endpoints, first, name, changes));
            }
            Command::StatusOf { endpoint, reply } => {
                spawn_local(async move {
                    let _left = reply.send(follow::status_of(&dialler, &endpoint).await);
                });
            }
            Command::MemberStatus { reply } => {
                spawn_local(async move {
                    let _left = reply.send(members::status(&dialler).await);
                });
            }
            Command::Members { request, reply } => {
                spawn_local(async move {
                    let _left = reply.send(members::change(&dialler, &request).await);
                });
            }
            command => self.connector.engine.command(now, command),
        }
    }

    fn broken(&mut self, now: Instant, error: &LinkError) {
        self.line = Line::Down;
        self.connector.broken(now, error);
    }
}

enum Event {
    Time,
    /// How many; 0 after the last handle was dropped.
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
