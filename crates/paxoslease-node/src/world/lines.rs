//! The connections of one simulated shard, as its driver sees them: what `event_loop/conns.rs` is
//! to real sockets.

use paxoslease_core::{Instant, NodeId};
use slab::Slab;

use super::At;
use super::agenda::Agenda;
use super::network::{EndId, Network};
use crate::driver::{ConnId, Driver, Sockets};

/// A connection this shard has, and what it read of it and did not consume.
struct Line {
    end: EndId,
    input: Vec<u8>,
}

/// All of one shard's.
#[derive(Default)]
pub(crate) struct Lines {
    slab: Slab<Line>,
    /// Just given to another shard.
    handed_over: Option<(EndId, usize)>,
}

/// A shard at the network, for one turn.
pub(crate) struct AtNetwork<'a> {
    pub(crate) lines: &'a mut Lines,
    pub(crate) network: &'a mut Network,
    pub(crate) agenda: &'a mut Agenda,
    pub(crate) now: At,
    /// Host and shard.
    pub(crate) own: (usize, usize),
}

impl AtNetwork<'_> {
    fn place_of(&self, end: EndId) -> Option<ConnId> {
        self.lines.slab.iter().find(|(_, line)| line.end == end).map(|(place, _)| ConnId(place))
    }

    /// Shows the driver what is new at an end. Says how many bytes that was.
    pub(crate) fn advance(&mut self, driver: &mut Driver, now: Instant, end: EndId) -> usize {
        let news = self.network.news(self.agenda, self.now, end, self.own.1);
        let Some(news) = news else { return 0 };
        let conn = self.place_of(end).unwrap_or_else(|| {
            let accepted = Line { end, input: Vec::new() };
            let conn = ConnId(self.lines.slab.insert(accepted));
            driver.accepted(self, now, conn);
            conn
        });
        if news.established {
            driver.connected(self, now, conn);
        }
        if news.writable {
            driver.writable(self, conn);
        }
        if !news.bytes.is_empty() {
            self.show(driver, now, conn, &news.bytes);
        }
        if let Some(why) = news.ended
            && self.place_of(end) == Some(conn)
        {
            self.close(conn);
            driver.closed(now, conn, why);
        }
        news.bytes.len()
    }

    fn show(&mut self, driver: &mut Driver, now: Instant, conn: ConnId, bytes: &[u8]) {
        let Some(line) = self.lines.slab.get_mut(conn.0) else { return };
        let end = line.end;
        let mut input = std::mem::take(&mut line.input);
        input.extend_from_slice(bytes);
        let consumed = driver.received(self, now, conn, &input);
        input.drain(..consumed);
        if let Some((end, shard)) = self.lines.handed_over.take() {
            self.network.hand_over(end, shard, &input);
        } else if let Some(line) = self.lines.slab.get_mut(conn.0).filter(|line| line.end == end) {
            line.input = input;
        }
    }

    /// Closes everything: the shard leaves.
    pub(crate) fn close_all(&mut self) {
        for line in self.lines.slab.drain() {
            self.network.close(self.agenda, self.now, line.end);
        }
    }
}

impl Sockets for AtNetwork<'_> {
    fn dial(&mut self, _peer: NodeId, address: &str) -> ConnId {
        let (host, shard) = self.own;
        let end = self.network.dial(self.agenda, self.now, host, shard, address);
        ConnId(self.lines.slab.insert(Line { end, input: Vec::new() }))
    }

    fn send(&mut self, conn: ConnId, bytes: &[u8]) -> usize {
        let Some(line) = self.lines.slab.get(conn.0) else { return 0 };
        self.network.send(self.agenda, self.now, line.end, bytes)
    }

    fn close(&mut self, conn: ConnId) {
        if let Some(line) = self.lines.slab.try_remove(conn.0) {
            self.network.close(self.agenda, self.now, line.end);
        }
    }

    fn is_node(&self, _conn: ConnId, _node: NodeId) -> bool {
        true
    }

    fn hand_over(&mut self, conn: ConnId, shard: u16) {
        if let Some(line) = self.lines.slab.try_remove(conn.0) {
            self.lines.handed_over = Some((line.end, usize::from(shard)));
        }
    }
}
