//! A client without a thread, a socket or a clock of its own: what a simulated world runs.
//!
//! The engine, the connector and the handles are those of a real client. A world carries the bytes
//! and decides when the client has a turn. Hidden: this interface follows the world's needs,
//! without notice. It serves no command that needs a connection of its own, such as a watch.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use paxoslease_clock::Clock;
use paxoslease_core::{Instant, Rules};
use paxoslease_holder::AskError;
use paxoslease_wire::resp::Value;
use tokio::sync::mpsc::{self, UnboundedReceiver};

use crate::builder::Builder;
use crate::client::{Client, Shared};
use crate::command::Command;
use crate::connector::{Connector, Step};
use crate::link::Handshake;

/// A client that a world drives.
#[derive(Debug)]
pub struct SimulatedClient {
    client: Client,
    commands: UnboundedReceiver<Command>,
    /// Woken when a command is posted.
    waker: Waker,
    connector: Connector,
    /// The rules of the protocol that its beliefs follow.
    rules: Rules,
    /// The connection that is being made: its handshake and its deadline.
    dialling: Option<(Handshake, Instant)>,
    /// What was received and not used.
    unread: Vec<u8>,
    /// What the handshake sends.
    hello: Vec<u8>,
}

/// What a world has to do for a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Order {
    /// Connect it to this endpoint.
    Dial(String),
    /// Close its connection.
    Close,
    /// Send its bytes, and give it a turn at its next event.
    Wait,
}

impl SimulatedClient {
    /// A client with these endpoints, whose beliefs follow these rules.
    #[must_use]
    pub fn new(config: &Builder, clock: Clock, rules: Rules, seed: u64, waker: Waker) -> Self {
        let (sender, commands) = mpsc::unbounded_channel();
        let connector = Connector::new(clock.now(), config, seed);
        let mut shared = Shared::new(clock, config.endpoints.clone(), sender);
        shared.default_holder = "client".to_owned();
        Self {
            client: Client { shared: Arc::new(shared) },
            commands,
            waker,
            connector,
            rules,
            dialling: None,
            unread: Vec::new(),
            hello: Vec::new(),
        }
    }

    /// The handle of the client.
    #[must_use]
    pub const fn client(&self) -> &Client {
        &self.client
    }

    /// Handles commands and what is due. The world calls this until it returns [`Order::Wait`].
    pub fn step(&mut self, now: Instant) -> Order {
        let mut context = Context::from_waker(&self.waker);
        while let Poll::Ready(Some(command)) = self.commands.poll_recv(&mut context) {
            match command {
                Command::StatusOf { .. } | Command::Watch(_) | Command::Observe { .. } => {}
                command => self.connector.engine.command(now, command),
            }
        }
        if self.dialling.as_ref().is_some_and(|(_, by)| now >= *by) {
            self.ended(now, "no answer in time");
            return Order::Close;
        }
        match self.connector.step(now) {
            Step::Dial { endpoint, within } => {
                self.unread.clear();
                self.hello.clear();
                let handshake = Handshake::begin(&mut self.hello, None, None);
                self.dialling = Some((handshake, now.after(within.max(Duration::from_millis(1)))));
                Order::Dial(endpoint)
            }
            Step::Close => Order::Close,
            Step::Done | Step::Wait => Order::Wait,
        }
    }

    /// Handles bytes of the node.
    pub fn received(&mut self, now: Instant, bytes: &[u8]) -> Result<(), String> {
        self.unread.extend_from_slice(bytes);
        while let Some((handshake, _)) = &mut self.dialling {
            let Some((value, len)) =
                Value::parse(&self.unread).map_err(|error| error.to_string())?
            else {
                return Ok(());
            };
            let greeting = handshake.reply(value).map_err(|error| error.to_string())?;
            self.unread.drain(..len);
            if let Some(mut greeting) = greeting {
                greeting.drift = greeting.drift.with_rules(self.rules);
                self.dialling = None;
                self.connector.dialled(now, Ok(greeting));
            }
        }
        let used = self.connector.engine.received(now, &self.unread);
        self.unread.drain(..used.map_err(|error| error.to_string())?);
        Ok(())
    }

    /// The connection ended, or could not be made.
    pub fn ended(&mut self, now: Instant, why: &str) {
        if self.dialling.take().is_some() {
            let endpoints = vec![self.connector.endpoint().to_owned()];
            let problem = why.to_owned();
            self.connector.dialled(now, Err(AskError::Unreachable { endpoints, problem }));
        } else {
            self.connector.broken(now, &why);
        }
    }

    /// The bytes to send. The world removes what it has sent.
    pub const fn out(&mut self) -> &mut Vec<u8> {
        if self.dialling.is_some() { &mut self.hello } else { self.connector.engine.out() }
    }

    /// When the client needs its next turn, if nothing else happens.
    #[must_use]
    pub fn next_at(&self) -> Option<Instant> {
        let dial_by = self.dialling.as_ref().map(|(_, by)| *by);
        self.connector.next_at().into_iter().chain(dial_by).min()
    }
}
