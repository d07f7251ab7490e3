//! Who is told of what happens to connections: the driver of peers, the front-end of clients.

use paxoslease_core::Instant;

use super::conn::Kind;
use super::{Clients, Conns};
use crate::driver::{ConnId, Driver};

pub(super) struct Crew<'a> {
    pub(super) driver: &'a mut Driver,
    pub(super) clients: &'a mut Clients,
}

impl Crew<'_> {
    pub(super) fn accepted(&mut self, conns: &mut Conns, now: Instant, kind: Kind, id: ConnId) {
        match kind {
            Kind::Peer => self.driver.accepted(conns, now, id),
            Kind::Client => self.clients.accepted(self.driver, conns, now, id),
            Kind::Leaving => {}
        }
    }

    pub(super) fn received(
        &mut self,
        conns: &mut Conns,
        now: Instant,
        kind: Kind,
        (id, bytes): (ConnId, &[u8]),
    ) -> usize {
        match kind {
            Kind::Peer => self.driver.received(conns, now, id, bytes),
            Kind::Client => self.clients.received(self.driver, conns, now, (id, bytes)),
            Kind::Leaving => bytes.len(),
        }
    }

    pub(super) fn writable(&mut self, conns: &mut Conns, now: Instant, kind: Kind, id: ConnId) {
        match kind {
            Kind::Peer => self.driver.writable(conns, id),
            Kind::Client => self.clients.writable(self.driver, conns, now, id),
            Kind::Leaving => {}
        }
    }

    pub(super) fn closed(
        &mut self,
        conns: &mut Conns,
        now: Instant,
        kind: Kind,
        id: ConnId,
        why: &str,
    ) {
        match kind {
            Kind::Peer => self.driver.closed(now, id, why),
            Kind::Client => self.clients.closed(self.driver, conns, now, id),
            Kind::Leaving => {}
        }
    }
}
