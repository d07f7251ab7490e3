//! Deadlines of clients that use TLS: for the handshake, and for reading the last bytes.

use std::net::SocketAddr;
use std::time::Duration;

use paxoslease_core::Instant;

use super::{ConnKind, Conns};
use crate::driver::ConnId;

/// How long a client may take for its TLS handshake, and for reading its last bytes.
pub(super) const HANDSHAKE_MAX: Duration = Duration::from_secs(10);
/// The most clients that may read their last bytes at once. More are cut off.
pub(super) const LEAVING_MAX: usize = 64;

impl Conns {
    /// Sets the deadline of a client.
    pub(super) fn expect(&mut self, id: ConnId, serial: u64) {
        self.deadlines.push_back((self.now.after(HANDSHAKE_MAX), id, serial));
    }

    /// Lets a client that the front-end has closed read its last bytes. Returns `false` if too many
    /// clients do that already.
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

    /// The earliest deadline.
    pub(in super::super) fn next_at(&self) -> Instant {
        self.deadlines.front().map_or(Instant::MAX, |(at, ..)| *at)
    }

    pub(super) fn look_at_deadlines(&mut self) {
        while let Some((at, id, serial)) = self.deadlines.front().copied() {
            let conn = self.slab.get_mut(id.0).filter(|conn| conn.serial == serial);
            let stays = conn.filter(|conn| conn.kind == ConnKind::Leaving || conn.is_handshaking());
            // The deadline of a client that is gone, or through its handshake, has no effect.
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

    /// Forgets a client that was leaving.
    pub(super) fn left(&mut self, id: ConnId) {
        self.slab.remove(id.0);
        self.leaving -= 1;
    }

    /// Counts a client whose handshake failed, and logs some of them.
    pub(super) fn refuse(&mut self, from: Option<SocketAddr>, why: &str) {
        metrics::counter!("paxoslease_refused_total", "reason" => "tls").increment(1);
        if let Some(count) = self.refusals.again(self.now) {
            let from = from.map(|from| from.to_string());
            tracing::warn!(from, count, "clients were refused over TLS, the last because {why}");
        }
    }
}
