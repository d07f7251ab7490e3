//! A world controlled by a script, for any algorithm.
//!
//! Clients without habits act only when the script says so. Filters hold, drop or repeat messages
//! by [`Pattern`], so a script names kinds of messages, never their contents.

use std::time::Duration;

use paxoslease_core::{Name, Tenure};

use super::{Delivery, World, WorldEvent};
use crate::algorithm::{Algorithm, Command, Process, View};
use crate::checker::Check;
use crate::client::{Pending, State};
use crate::network::{Action, FilterId, Link, Network, Pattern};
use crate::swarm::Report;
use crate::trace::{Entry, TraceEvent, TrueTime};
use crate::world::ClientId;

impl<A: Algorithm> World<A> {
    /// The current true time.
    #[must_use]
    pub const fn now(&self) -> TrueTime {
        self.now
    }

    /// Runs all events until then.
    pub fn run_until(&mut self, end: TrueTime) {
        while self.step(end) {}
    }

    /// Runs all events within this span of true time.
    pub fn run_for(&mut self, span: Duration) {
        self.run_until(TrueTime(self.now.0 + span.as_nanos() as u64));
    }

    /// Runs while `busy` returns true, at most this long. Returns whether `busy` ended.
    pub fn run_while(&mut self, max: Duration, mut busy: impl FnMut(&Self) -> bool) -> bool {
        let end = TrueTime(self.now.0 + max.as_nanos() as u64);
        while busy(self) {
            if !self.step(end) {
                return !busy(self);
            }
        }
        true
    }

    /// A client acquires its name through a node.
    pub fn acquire(&mut self, client: ClientId, node: u16, ttl: Duration, wait: Duration) {
        let state = &mut self.clients[client.0 as usize];
        state.state = State::Acquiring;
        state.ttl = ttl;
        self.ask(client.0, node, Command::Acquire { ttl, wait });
    }

    /// A client renews the last tenure that it was granted, held or not. Does nothing if there is
    /// none.
    pub fn renew(&mut self, client: ClientId, node: u16, ttl: Duration) {
        if let Some(tenure) = self.clients[client.0 as usize].tenure() {
            self.ask(client.0, node, Command::Renew { tenure, ttl });
        }
    }

    /// A client releases the last tenure that it was granted.
    pub fn release(&mut self, client: ClientId, node: u16) {
        self.release_held(client.0, node);
    }

    /// A client disconnects; its node notices at once (P8).
    pub fn vanish(&mut self, client: ClientId) {
        let state = &mut self.clients[client.0 as usize];
        state.belief = None;
        let name = state.name;
        let open = std::mem::take(&mut state.pending);
        self.checker.yields(name, client.0);
        for Pending { token, node, .. } in open.into_iter().filter(Pending::is_acquire) {
            let (client, command) = (client.0, Command::Abandon);
            self.schedule_in(0, node, WorldEvent::Requested { client, token, command });
        }
    }

    /// Whether a client believes that it holds its name now.
    #[must_use]
    pub fn believes(&self, client: ClientId) -> bool {
        let client = &self.clients[client.0 as usize];
        client.is_held(client.clock.read(self.now))
    }

    /// The last tenure granted to a client.
    #[must_use]
    pub fn tenure(&self, client: ClientId) -> Option<Tenure> {
        self.clients[client.0 as usize].tenure()
    }

    /// The number of acquires of a client that were granted.
    #[must_use]
    pub fn grants(&self, client: ClientId) -> u64 {
        self.clients[client.0 as usize].grants
    }

    /// Adds a filter for messages sent from now on. The oldest matching filter wins.
    pub fn filter(&mut self, pattern: Pattern, action: Action) -> FilterId {
        self.network.add_filter(pattern, action)
    }

    /// Removes a filter. The messages that it held arrive now, in the order in which they were
    /// sent.
    pub fn lift(&mut self, filter: FilterId) {
        self.network.remove_filter(filter);
        for delivery in self.held.remove(&filter).unwrap_or_default() {
            self.schedule_in(0, delivery.to, WorldEvent::Delivery(delivery));
        }
    }

    /// Delivers the matching messages that a filter holds now; the filter stays. Returns their
    /// number.
    pub fn deliver(&mut self, filter: FilterId, pattern: Pattern) -> usize {
        let held = self.held.remove(&filter).unwrap_or_default();
        let matches = |l: &Delivery| pattern.matches(l.from, l.to, l.kind);
        let (now, later): (Vec<_>, Vec<_>) = held.into_iter().partition(matches);
        self.held.insert(filter, later);
        let count = now.len();
        for delivery in now {
            self.schedule_in(0, delivery.to, WorldEvent::Delivery(delivery));
        }
        count
    }

    /// Delivers one of the messages that a filter holds, by its number modulo their count. With
    /// `again`, the filter still holds it, to be delivered once more.
    pub fn deliver_one(&mut self, filter: FilterId, number: usize, again: bool) {
        let held = self.held.entry(filter).or_default();
        let Some(place) = number.checked_rem(held.len()) else { return };
        let delivery = if again { held[place].clone() } else { held.remove(place) };
        self.schedule_in(0, delivery.to, WorldEvent::Delivery(delivery));
    }

    /// Loses one of the messages that a filter holds, by its number modulo their count.
    pub fn lose_one(&mut self, filter: FilterId, number: usize) {
        let held = self.held.entry(filter).or_default();
        let Some(place) = number.checked_rem(held.len()) else { return };
        let message = held.remove(place).number;
        self.tracer.record(self.now, || TraceEvent::Lost(message));
    }

    /// The messages that a filter holds: sender, receiver and kind, in the order in which they were
    /// sent.
    pub fn held(&self, filter: FilterId) -> impl Iterator<Item = (u16, u16, &'static str)> {
        let deliveries = self.held.get(&filter).into_iter().flatten();
        deliveries.map(|delivery| (delivery.from, delivery.to, delivery.kind))
    }

    /// The network, for partitions.
    pub const fn network(&mut self) -> &mut Network {
        &mut self.network
    }

    /// Changes the links between clients and nodes.
    pub const fn set_client_link(&mut self, link: Link) {
        self.setup.client_link = link;
    }

    /// Whether a node runs.
    #[must_use]
    pub fn is_running(&self, node: u16) -> bool {
        self.nodes[usize::from(node) - 1].process.is_some()
    }

    /// The process of a running node.
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

    /// Adds a note to a node's line in the diagram.
    pub fn note(&mut self, node: u16, text: &str) {
        self.tracer.record(self.now, || TraceEvent::Note { node, text: text.to_owned() });
    }

    /// The trace, at the end of a run.
    #[must_use]
    pub fn into_trace(self) -> Vec<Entry> {
        self.tracer.into_entries()
    }

    /// The report, at the end of a run.
    pub(crate) fn into_report(self) -> Report {
        Report {
            seed: self.setup.seed,
            nodes: self.setup.cell.members().len() as u16,
            proposers: self.setup.proposers,
            clients: self.clients.len() as u32,
            names: self.setup.names.len(),
            counts: self.counts,
            lasted: Duration::from_nanos(self.now.0),
            violations: self.violations().to_vec(),
            trace_hash: self.tracer.value(),
            trace: self.into_trace(),
        }
    }

    /// Reports a violation that the caller found.
    pub fn report(&mut self, check: Check, text: impl FnOnce() -> String) {
        self.checker.broken(self.now, check, text);
        self.trace_violations();
    }
}
