//! Tells the driver what happens on connections of peers, and the front-end what happens on those
//! of clients.

use std::net::SocketAddr;

use super::super::SocketPost;
use super::{Conn, ConnId, ConnKind, Conns, Input, InputEnd, Post, Stream, keep};
use crate::front::ClientSockets;
use crate::turn::{ShardSockets, Turn};

impl ShardSockets for Conns {
    type Post = SocketPost;

    /// Delivers new connections, bytes that were read, and the ends of connections.
    fn deliver(turn: &mut Turn<'_, Self>) {
        turn.sockets.now = turn.now;
        for id in std::mem::take(&mut turn.sockets.fresh) {
            let Some(conn) = turn.sockets.slab.get(id.0) else { continue };
            let (kind, serial) = (conn.kind, conn.serial);
            if kind == ConnKind::Client && conn.is_handshaking() {
                turn.sockets.expect(id, serial);
            }
            turn.accepted(kind, id);
        }
        turn.sockets.look_at_deadlines();
        let spare = std::mem::take(&mut turn.sockets.spare);
        let mut ready = std::mem::replace(&mut turn.sockets.ready, spare);
        for index in ready.drain(..) {
            let Some(conn) = turn.sockets.slab.get_mut(index) else { continue };
            conn.listed = false;
            turn.advance(ConnId(index));
            if turn.sockets.slab.get(index).is_some_and(Conn::may_read) {
                turn.sockets.list(index);
            }
        }
        turn.sockets.spare = ready;
    }

    fn take(turn: &mut Turn<'_, Self>, post: SocketPost) {
        match post {
            SocketPost::Client(stream) => turn.sockets.accepted_client(stream),
            SocketPost::Adopt { stream, unread } => turn.adopt(stream, unread),
            SocketPost::Resolved { lookup, outcome } => turn.sockets.looked_up(lookup, outcome),
        }
    }

    /// Tells which connections broke when something was sent. Returns whether there were any.
    fn reap_broken(turn: &mut Turn<'_, Self>) -> bool {
        let mut is_any = false;
        for (id, serial, why) in std::mem::take(&mut turn.sockets.broken) {
            let conn = turn.sockets.slab.get(id.0).filter(|conn| conn.serial == serial);
            let Some(kind) = conn.map(|conn| conn.kind) else { continue };
            if kind == ConnKind::Leaving {
                turn.sockets.left(id);
                continue;
            }
            turn.sockets.slab.remove(id.0);
            turn.closed(kind, id, &why);
            is_any = true;
        }
        is_any
    }
}

impl Turn<'_, Conns> {
    fn advance(&mut self, id: ConnId) {
        let conn = &mut self.sockets.slab[id.0];
        if conn.kind == ConnKind::Leaving {
            // It has all its bytes, or it is gone.
            if conn.flush().is_err() || !conn.stream.as_ref().is_some_and(Stream::wants_write) {
                self.sockets.left(id);
            }
            return;
        }
        if conn.pending {
            match conn.connect() {
                Ok(true) => {
                    conn.pending = false;
                    if conn.node.is_some() {
                        self.driver.connected(self.sockets, self.now, id);
                    }
                }
                Ok(false) if conn.closed.is_none() => return,
                Ok(false) => {}
                Err(error) => conn.closed = Some(error.to_string()),
            }
        }
        let Some(conn) = self.sockets.slab.get_mut(id.0) else { return };
        if let Err(error) = conn.flush() {
            conn.closed.get_or_insert_with(|| error.to_string());
        }
        let kind = conn.kind;
        if std::mem::take(&mut conn.writable) {
            self.writable(kind, id);
        }
        self.show(id);
        self.tell_end(id);
        if let Some(conn) = self.sockets.slab.get_mut(id.0)
            && let Some(why) = conn.closed.take()
        {
            let conn = self.sockets.slab.remove(id.0);
            if conn.refused && kind == ConnKind::Client {
                let from = conn.stream.and_then(|stream| stream.tcp().peer_addr().ok());
                self.sockets.refuse(from, &why);
            }
            self.closed(kind, id, &why);
        }
    }

    /// Tells the end of a client's bytes. If the client is held, it is told as soon as it is known.
    fn tell_end(&mut self, id: ConnId) {
        let Some(conn) = self.sockets.slab.get_mut(id.0) else { return };
        if !conn.held && conn.end == InputEnd::Read {
            conn.end = InputEnd::Told;
            self.front(|front, shard| front.ended(shard, id));
        } else if conn.held && conn.ending && !std::mem::replace(&mut conn.ending_told, true) {
            self.front(|front, shard| front.ending(shard, id));
        } else if conn.held && conn.is_full() && std::mem::take(&mut conn.read_ahead) {
            self.front(|front, shard| front.read_ahead_full(shard, id));
        }
    }

    /// Delivers the bytes that were read to the driver or to the front-end.
    fn show(&mut self, id: ConnId) {
        let Some(conn) = self.sockets.slab.get_mut(id.0) else { return };
        if conn.held || conn.input.unread().is_empty() {
            return;
        }
        let (serial, kind) = (conn.serial, conn.kind);
        let mut input = std::mem::take(&mut conn.input);
        let unread = input.unread();
        input.start += self.received(kind, id, unread);
        let conns = &mut *self.sockets;
        if let Some((stream, shard)) = conns.handed_over.take() {
            let adopt = SocketPost::Adopt { stream, unread: input.unread().to_vec() };
            // A shard that stopped needs no connections.
            let _left = conns.mailboxes[usize::from(shard)].post(Post::Sockets(adopt));
        } else if kind == ConnKind::Client && input.unread().is_empty() {
            keep(&mut conns.spare_inputs, input);
        } else if let Some(conn) = conns.slab.get_mut(id.0).filter(|conn| conn.serial == serial) {
            conn.input = input;
        }
    }

    /// Takes over a connection that another shard accepted.
    fn adopt(&mut self, stream: Stream, unread: Vec<u8>) {
        let id = self.sockets.insert(Some(stream), None, ConnKind::Peer);
        let conn = &mut self.sockets.slab[id.0];
        conn.pending = false;
        conn.input = Input { start: 0, end: unread.len(), bytes: unread };
        if let Err(error) = self.sockets.register(id) {
            tracing::debug!(%error, "a connection broke while it was handed over");
            self.sockets.slab.remove(id.0);
            return;
        }
        self.accepted(ConnKind::Peer, id);
        self.show(id);
    }
}

impl ClientSockets for Conns {
    fn hold(&mut self, conn: ConnId, read_ahead: bool) {
        if let Some(conn) = self.slab.get_mut(conn.0) {
            (conn.held, conn.read_ahead) = (true, read_ahead);
        }
    }

    fn resume(&mut self, id: ConnId) {
        if let Some(conn) = self.slab.get_mut(id.0)
            && std::mem::take(&mut conn.held)
        {
            conn.readable = true;
            self.list(id.0);
        }
    }

    fn address(&self, conn: ConnId) -> Option<SocketAddr> {
        self.slab.get(conn.0)?.stream.as_ref()?.tcp().peer_addr().ok()
    }
}
