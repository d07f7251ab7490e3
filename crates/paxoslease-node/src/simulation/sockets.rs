//! The connections of one simulated shard: what `event_loop/conns.rs` is to real sockets.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};

use paxoslease_core::NodeId;
use paxoslease_holder::Role;
use paxoslease_wire::resp::REQUEST_LEN_MAX;
use slab::Slab;

use super::{EndId, Ended, News, Port, Wire};
use crate::driver::{ConnId, Connections, Sockets};
use crate::front::ClientSockets;
use crate::turn::{ConnKind, ShardSockets, Turn};

/// How much is kept of what a client has sent and a session has not consumed.
const CLIENT_INPUT_MAX: usize = 2 * REQUEST_LEN_MAX;

/// A connection of this shard.
#[derive(Default)]
struct Line {
    end: EndId,
    kind: ConnKind,
    /// What was received and not consumed.
    input: Vec<u8>,
    /// Nothing is shown for now.
    held: bool,
    /// Bytes are still received while it is held, so that its end is noticed.
    read_ahead: bool,
    ended: Option<Ended>,
    /// The session knows that the client will send nothing more.
    ending_told: bool,
    /// The session was told of the end, and closes the connection when it has sent the rest.
    end_told: bool,
}

impl Line {
    fn new(end: EndId, kind: ConnKind) -> Self {
        Self { end, kind, ..Self::default() }
    }

    const fn is_full(&self) -> bool {
        self.input.len() >= CLIENT_INPUT_MAX
    }
}

/// The connections of one shard.
#[derive(Default)]
pub(super) struct Lines {
    slab: Slab<Line>,
    /// The connection that was just given to another shard.
    handed_over: Option<(EndId, u16)>,
}

impl Lines {
    fn find(&self, end: EndId) -> Option<ConnId> {
        self.slab.iter().find(|(_, line)| line.end == end).map(|(place, _)| ConnId(place))
    }

    pub(super) fn reads(&self, end: EndId) -> bool {
        let line = self.slab.iter().map(|(_, line)| line).find(|line| line.end == end);
        line.is_none_or(|line| !line.held || line.read_ahead && !line.is_full())
    }
}

/// The connections of one shard during a turn.
pub(super) struct SimulatedSockets<'a> {
    pub(super) lines: &'a mut Lines,
    pub(super) wire: &'a mut dyn Wire,
    pub(super) news: Vec<News>,
}

impl SimulatedSockets<'_> {
    /// Closes everything: the shard leaves.
    pub(super) fn close_all(&mut self) {
        for line in self.lines.slab.drain() {
            self.wire.close(line.end);
        }
    }
}

impl ShardSockets for SimulatedSockets<'_> {
    type Post = Infallible;

    fn deliver(turn: &mut Turn<'_, Self>) {
        for news in std::mem::take(&mut turn.sockets.news) {
            turn.advance(news);
        }
    }

    fn take(_turn: &mut Turn<'_, Self>, post: Infallible) {
        match post {}
    }

    fn reap_broken(_turn: &mut Turn<'_, Self>) -> bool {
        false
    }
}

impl Turn<'_, SimulatedSockets<'_>> {
    fn advance(&mut self, news: News) {
        let kind = if news.port == Port::Clients { ConnKind::Client } else { ConnKind::Peer };
        let id = self.sockets.lines.find(news.end).unwrap_or_else(|| {
            let id = ConnId(self.sockets.lines.slab.insert(Line::new(news.end, kind)));
            self.accepted(kind, id);
            id
        });
        if news.established {
            self.driver.connected(self.sockets, self.now, id);
        }
        if news.writable {
            self.writable(kind, id);
        }
        let Some(line) = self.line(id, news.end) else { return };
        line.input.extend(news.bytes);
        line.ended = line.ended.or(news.ended);
        self.show(id, news.end);
        self.tell_end(id, news.end);
    }

    fn line(&mut self, id: ConnId, end: EndId) -> Option<&mut Line> {
        self.sockets.lines.slab.get_mut(id.0).filter(|line| line.end == end)
    }

    /// Shows what was received to the driver or to the front-end.
    fn show(&mut self, id: ConnId, end: EndId) {
        let Some(line) = self.line(id, end).filter(|line| !line.held) else { return };
        let kind = line.kind;
        let mut input = std::mem::take(&mut line.input);
        if input.is_empty() {
            return;
        }
        let consumed = self.received(kind, id, &input);
        input.drain(..consumed);
        if let Some((end, shard)) = self.sockets.lines.handed_over.take() {
            self.sockets.wire.hand_over(end, shard, &input);
        } else if let Some(line) = self.line(id, end) {
            line.input = input;
        }
    }

    /// Tells of the end of a connection: to a session that holds it at once, whatever is unread.
    fn tell_end(&mut self, id: ConnId, end: EndId) {
        let Some(line) = self.line(id, end) else { return };
        let kind = line.kind;
        match line.ended {
            None => {
                if line.held && line.is_full() && std::mem::take(&mut line.read_ahead) {
                    self.front(|front, shard| front.read_ahead_full(shard, id));
                }
            }
            Some(Ended::Closed) if kind == ConnKind::Client => {
                if !line.held {
                    if !std::mem::replace(&mut line.end_told, true) {
                        self.front(|front, shard| front.ended(shard, id));
                    }
                } else if !std::mem::replace(&mut line.ending_told, true) {
                    self.front(|front, shard| front.ending(shard, id));
                }
            }
            Some(ended) => {
                self.sockets.close(id);
                let why = match ended {
                    Ended::Closed => "it closed the connection",
                    Ended::Reset => "connection refused or reset",
                };
                self.closed(kind, id, why);
            }
        }
    }
}

impl Connections for SimulatedSockets<'_> {
    fn send(&mut self, conn: ConnId, bytes: &[u8]) -> usize {
        let Some(line) = self.lines.slab.get(conn.0) else { return 0 };
        self.wire.send(line.end, bytes)
    }

    fn close(&mut self, conn: ConnId) {
        if let Some(line) = self.lines.slab.try_remove(conn.0) {
            self.wire.close(line.end);
        }
    }
}

impl Sockets for SimulatedSockets<'_> {
    fn dial(&mut self, _peer: NodeId, address: &str) -> ConnId {
        let end = self.wire.dial(address);
        ConnId(self.lines.slab.insert(Line::new(end, ConnKind::Peer)))
    }

    fn is_node(&self, _conn: ConnId, _node: NodeId, _role: Role) -> bool {
        true
    }

    fn hand_over(&mut self, conn: ConnId, shard: u16) {
        if let Some(line) = self.lines.slab.try_remove(conn.0) {
            self.lines.handed_over = Some((line.end, shard));
        }
    }
}

impl ClientSockets for SimulatedSockets<'_> {
    fn hold(&mut self, conn: ConnId, read_ahead: bool) {
        if let Some(line) = self.lines.slab.get_mut(conn.0) {
            (line.held, line.read_ahead) = (true, read_ahead);
        }
    }

    fn resume(&mut self, conn: ConnId) {
        if let Some(line) = self.lines.slab.get_mut(conn.0)
            && std::mem::take(&mut line.held)
        {
            self.wire.resume(line.end);
        }
    }

    fn address(&self, conn: ConnId) -> Option<SocketAddr> {
        let line = self.lines.slab.get(conn.0)?;
        Some((Ipv4Addr::LOCALHOST, line.end.pipe as u16).into())
    }
}
