//! A world moved by hand: what scripted schedules call. Works for any algorithm.
//!
//! Clients made without habits do only what they are told. Messages are held, dropped, repeated
//! or delayed by [`Pattern`], so that a schedule names kinds of messages, never their contents.

use std::time::Duration;

use paxoslease_core::{Name, Tenure};

use super::{Happening, Letter, Wish, World};
use crate::algorithm::{Algorithm, Disk, Process, View};
use crate::checker::{Check, Checks};
use crate::client::{Asked, State};
use crate::network::{Action, FilterId, Link, Network, Pattern};
use crate::trace::{Entry, Tracer, TrueTime, What};
use crate::world::ClientId;

impl<A: Algorithm> World<A> {
    /// True time.
    #[must_use]
    pub const fn now(&self) -> TrueTime {
        self.now
    }

    /// Lets everything happen that happens until then.
    pub fn run_until(&mut self, end: TrueTime) {
        while self.step(end) {}
    }

    /// Lets everything happen that happens within this span of true time.
    pub fn run_for(&mut self, span: Duration) {
        self.run_until(TrueTime(self.now.0 + span.as_nanos() as u64));
    }

    /// Runs until `done` says so, at most this long; whether it did.
    pub fn run_while(&mut self, max: Duration, mut busy: impl FnMut(&Self) -> bool) -> bool {
        let end = TrueTime(self.now.0 + max.as_nanos() as u64);
        while busy(self) {
            if !self.step(end) {
                return !busy(self);
            }
        }
        true
    }

    /// A client asks a node for its name.
    pub fn acquire(&mut self, client: ClientId, node: u16, ttl: Duration, wait: Duration) {
        let state = &mut self.clients[client.0 as usize];
        state.state = State::Acquiring;
        state.ttl = ttl;
        self.ask(client.0, node, Wish::Acquire { ttl, wait });
    }

    /// A client asks a node to prolong what it was granted last, held or not. Nothing happens if
    /// it was granted nothing.
    pub fn renew(&mut self, client: ClientId, node: u16, ttl: Duration) {
        if let Some(tenure) = self.clients[client.0 as usize].tenure() {
            self.ask(client.0, node, Wish::Renew { tenure, ttl });
        }
    }

    /// A client gives up what it was granted last, and tells a node.
    pub fn release(&mut self, client: ClientId, node: u16) {
        self.release_held(client.0, node);
    }

    /// A client is gone; its node hears of it at once (P8).
    pub fn vanish(&mut self, client: ClientId) {
        let state = &mut self.clients[client.0 as usize];
        state.belief = None;
        let name = state.name;
        let open = std::mem::take(&mut state.pending);
        self.checker.yields(name, client.0);
        for pending in open.into_iter().filter(|pending| pending.asked == Asked::Acquire) {
            let (token, wish) = (pending.token, Wish::Gone);
            let gone = Happening::Wished { client: client.0, token, wish };
            self.schedule_in(0, pending.node, gone);
        }
    }

    /// Whether a client believes that it holds its name now.
    #[must_use]
    pub fn believes(&self, client: ClientId) -> bool {
        let client = &self.clients[client.0 as usize];
        client.is_held(client.clock.read(self.now))
    }

    /// What a client was granted last.
    #[must_use]
    pub fn tenure(&self, client: ClientId) -> Option<Tenure> {
        self.clients[client.0 as usize].tenure()
    }

    /// How many acquires of a client were granted.
    #[must_use]
    pub fn grants(&self, client: ClientId) -> u64 {
        self.clients[client.0 as usize].grants
    }

    /// Does something to the messages sent from now on that match. The oldest filter wins.
    pub fn filter(&mut self, pattern: Pattern, action: Action) -> FilterId {
        self.network.add_filter(pattern, action)
    }

    /// Ends a filter. What it held arrives now, in the order it was sent.
    pub fn lift(&mut self, filter: FilterId) {
        self.network.remove_filter(filter);
        for letter in self.held.remove(&filter).unwrap_or_default() {
            self.schedule_in(0, letter.to, Happening::Delivery(letter));
        }
    }

    /// Lets a filter's held messages that match arrive now; it goes on holding. How many.
    pub fn deliver(&mut self, filter: FilterId, pattern: Pattern) -> usize {
        let held = self.held.remove(&filter).unwrap_or_default();
        let matches = |l: &Letter| pattern.matches(l.from, l.to, l.kind);
        let (now, later): (Vec<_>, Vec<_>) = held.into_iter().partition(matches);
        self.held.insert(filter, later);
        let count = now.len();
        for letter in now {
            self.schedule_in(0, letter.to, Happening::Delivery(letter));
        }
        count
    }

    /// Loses what a filter holds; it goes on holding.
    pub fn discard(&mut self, filter: FilterId) {
        for letter in self.held.remove(&filter).unwrap_or_default() {
            self.tracer.record(self.now, || What::Lost { message: letter.number });
        }
    }

    /// What a filter holds: sender, addressee and kind, in the order it was sent.
    pub fn held(&self, filter: FilterId) -> impl Iterator<Item = (u16, u16, &'static str)> {
        let letters = self.held.get(&filter).into_iter().flatten();
        letters.map(|letter| (letter.from, letter.to, letter.kind))
    }

    /// The network, to cut and mend it.
    pub const fn network(&mut self) -> &mut Network {
        &mut self.network
    }

    /// Changes the links between clients and nodes.
    pub const fn set_client_link(&mut self, link: Link) {
        self.setup.client_link = link;
    }

    /// A node that does not run loses what is on its disk.
    pub fn lose_disk(&mut self, node: u16) {
        let state = &mut self.nodes[usize::from(node) - 1];
        if let (None, Some(disk)) = (&state.process, &mut state.disk) {
            *disk = Disk::default();
        }
    }

    /// A node's disk, if it has one.
    #[must_use]
    pub fn disk(&self, node: u16) -> Option<&Disk> {
        self.nodes[usize::from(node) - 1].disk.as_ref()
    }

    /// Whether a node runs.
    #[must_use]
    pub fn is_running(&self, node: u16) -> bool {
        self.nodes[usize::from(node) - 1].process.is_some()
    }

    /// A running node.
    #[must_use]
    pub fn process(&self, node: u16) -> Option<&A::Process> {
        self.nodes[usize::from(node) - 1].process.as_ref()
    }

    /// What a running acceptor stores for a name, on its own clock.
    #[must_use]
    pub fn view(&self, node: u16, name: usize) -> Option<View> {
        let text = Name::new(&self.setup.names[name]).expect("worlds have valid names");
        self.process(node)?.view(text)
    }

    /// Says something at a node's line of the diagram.
    pub fn note(&mut self, node: u16, text: &str) {
        self.tracer.record(self.now, || What::Note { node, text: text.to_owned() });
    }

    /// The trace so far.
    #[must_use]
    pub const fn tracer(&self) -> &Tracer {
        &self.tracer
    }

    /// The trace, at the end.
    #[must_use]
    pub fn into_trace(self) -> Vec<Entry> {
        self.tracer.into_entries()
    }

    /// Reports that something must be true and is not, for checks made from outside.
    pub fn report(&mut self, check: Check, text: impl FnOnce() -> String) {
        self.checker.broken(self.now, check, text);
        self.trace_violations();
    }

    /// What is checked in this world.
    #[must_use]
    pub fn checks(&self) -> Checks {
        self.algorithm.checks()
    }
}
