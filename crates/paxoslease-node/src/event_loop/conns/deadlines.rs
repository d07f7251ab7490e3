//! Clients at the beginning and at the end of a connection in TLS, who have so long for either.

use std::net::SocketAddr;
use std::time::Duration;

use paxoslease_core::Instant;

use super::{ConnKind, Conns};
use crate::driver::ConnId;

/// How long a client may take for its TLS handshake, and for reading the last that it is sent.
pub(super) const HANDSHAKE_MAX: Duration = Duration::from_secs(10);
/// Clients that are told the rest at their leisure; more of them are cut off.
pub(super) const LEAVING_MAX: usize = 64;

impl Conns {
    /// A client is to get over its handshake in time.
    pub(super) fn expect(&mut self, id: ConnId, serial: u64) {
        self.deadlines.push_back((self.now.after(HANDSHAKE_MAX), id, serial));
    }

    /// A client whom nobody speaks to any more is told the rest, if there are not too many such.
    pub(super) fn leaves(&mut self, id: ConnId) -> bool {
        let Some(conn) = self.slab.get_mut(id.0).filter(|_| self.leaving < LEAVING_MAX) else {
            return false;
        };
        (conn.kind, conn.held) = (ConnKind::Leaving, false);
        let serial = conn.serial;
        self.leaving += 1;
        self.expect(id, serial);
        true
    }

    /// When a client has taken too long over its beginning or its end.
    pub(in super::super) fn next_at(&self) -> Instant {
        self.deadlines.front().map_or(Instant::MAX, |(at, ..)| *at)
    }

    pub(super) fn look_at_deadlines(&mut self) {
        while let Some((at, id, serial)) = self.deadlines.front().copied() {
            let conn = self.slab.get_mut(id.0).filter(|conn| conn.serial == serial);
            let stays = conn.filter(|conn| conn.kind == ConnKind::Leaving || conn.is_handshaking());
            // Whoever is gone or got over it is waited for no longer.
            if let Some(conn) = stays {
                if self.now < at {
                    return;
                }
                if conn.kind == ConnKind::Leaving {
                    self.left(id);
                } else {
                    let problem = format!("its TLS handshake took more than {HANDSHAKE_MAX:?}");
                    (conn.closed, conn.refused) = (Some(problem), true);
                    self.list(id.0);
                }
            }
            self.deadlines.pop_front();
        }
    }

    /// A client that was leaving is gone.
    pub(super) fn left(&mut self, id: ConnId) {
        self.slab.remove(id.0);
        self.leaving -= 1;
    }

    /// Counts a client that did not get through its handshake, and tells of it now and then.
    pub(super) fn refuse(&mut self, from: Option<SocketAddr>, why: &str) {
        metrics::counter!("paxoslease_refused_total", "reason" => "tls").increment(1);
        if let Some(count) = self.refusals.again(self.now) {
            let from = from.map(|from| from.to_string());
            tracing::warn!(from, count, "clients were refused over TLS, the last because {why}");
        }
    }
}
