//! The handshake: both sides greet first, and check the greeting of the other before they read
//! anything else (invariants 2 and 5).

use paxoslease_core::{Instant, NodeId};
use paxoslease_holder::Role;
use paxoslease_wire::{Farewell, FrameKind, Hello, ListUse};

use super::peer::{Link, Peer};
use super::{COMPLAINT_PAUSE, Counters, DropReason, Peers, UNIDENTIFIED_MAX, Who, kind_of};
use crate::driver::sockets::{ConnId, Sockets};
use crate::tls::dns_name;

/// What the first frame of a connection led to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Greeted {
    /// The peer may send messages now.
    Up,
    /// It was for another shard, which has the connection now, with this frame.
    HandedOver,
    Closed,
}

impl Peers {
    /// A node connected to this one. Returns whether another connection was closed to make room.
    pub(crate) fn accepted(
        &mut self,
        sockets: &mut impl Sockets,
        now: Instant,
        conn: ConnId,
    ) -> bool {
        self.set_who(conn, Who::Unidentified);
        self.unidentified.push((conn, now));
        let are_too_many = self.unidentified.len() > UNIDENTIFIED_MAX;
        if are_too_many {
            // One at random, except the newest. If it were always the oldest, a flood faster than
            // a greeting would keep every peer out.
            let place = self.rng.bits() as usize % UNIDENTIFIED_MAX;
            let (unlucky, _) = self.unidentified[place];
            self.hang_up(sockets, now, unlucky, "too many connections wait for a greeting");
        }
        self.next_alarm_at = self.next_alarm_at.min(now.after(self.timeouts.peer_timeout));
        are_too_many
    }

    /// A connection that this node dialled is established.
    pub(crate) fn connected(&mut self, sockets: &mut impl Sockets, now: Instant, conn: ConnId) {
        let Who::Peer(place) = self.who(conn) else { return };
        self.list[place].link = Link::Greeting { conn, since: now };
        self.say_hello(sockets, conn);
    }

    fn say_hello(&self, sockets: &mut impl Sockets, conn: ConnId) {
        let mut hello = Vec::with_capacity(256);
        self.identity.hello().encode(&mut hello);
        // A fresh connection takes a few hundred bytes. If not, it times out.
        sockets.send(conn, &hello);
    }

    /// The first frame of a connection.
    pub(crate) fn greeted(
        &mut self,
        sockets: &mut impl Sockets,
        now: Instant,
        conn: ConnId,
        frame: &[u8],
        counters: &mut Counters,
    ) -> Greeted {
        let refused = match kind_of(frame) {
            Ok(FrameKind::Hello) => match Hello::decode(frame) {
                Ok(hello) => return self.hello(sockets, now, conn, &hello, counters),
                Err(error) => format!("its greeting is not valid: {error}"),
            },
            Ok(FrameKind::Farewell) => refusal_of(frame),
            Ok(kind) => format!("it sent {kind:?} before its greeting"),
            Err(error) => error,
        };
        counters.dropped(DropReason::Refused, 1);
        if let Who::Peer(place) = self.who(conn) {
            self.complain(now, place, &refused);
        }
        self.hang_up(sockets, now, conn, &refused);
        Greeted::Closed
    }

    fn hello(
        &mut self,
        sockets: &mut impl Sockets,
        now: Instant,
        conn: ConnId,
        hello: &Hello<'_>,
        counters: &mut Counters,
    ) -> Greeted {
        let is_unidentified = self.who(conn) == Who::Unidentified;
        let own = self.identity.shard;
        if is_unidentified
            && hello.shard.count() == own.count()
            && hello.shard.index() != own.index()
        {
            sockets.hand_over(conn, hello.shard.index());
            self.closed(now, conn, "handed over");
            return Greeted::HandedOver;
        }
        if is_unidentified {
            self.say_hello(sockets, conn);
        }
        // A connection without the certificate of that node says nothing about that node.
        let role = role_of(hello);
        let is_itself = sockets.is_node(conn, hello.node, role);
        let admitted = if is_itself {
            self.admit(now, conn, hello)
        } else {
            Err(format!(
                "its certificate is not for {}",
                dns_name(&self.identity.cell_name, hello.node, role)
            ))
        };
        let place = match admitted {
            Ok(place) => place,
            Err(why) => {
                counters.dropped(DropReason::Refused, 1);
                let mut farewell = Vec::new();
                Farewell::encode(&why, &mut farewell);
                sockets.send(conn, &farewell);
                let why = format!("refused: {why}");
                let place = match self.who(conn) {
                    Who::Peer(dialled) => Some(dialled),
                    Who::Unidentified | Who::Closed => {
                        self.place_of(hello.node).filter(|_| is_itself)
                    }
                };
                match place {
                    Some(place) => self.complain(now, place, &why),
                    None => self.complain_of_stranger(now, hello.node, &why),
                }
                self.hang_up(sockets, now, conn, &why);
                return Greeted::Closed;
            }
        };
        self.unidentified.retain(|(other, _)| *other != conn);
        // The newest connection counts; messages that an older one still carries are not read.
        if let Some(old) = self.list[place].conn().filter(|old| *old != conn) {
            self.hang_up(sockets, now, old, "it connected again");
        }
        self.set_who(conn, Who::Peer(place));
        let peer = &mut self.list[place];
        peer.up(now, conn, hello.boot);
        (peer.birth, peer.list) = (hello.birth, Some(hello.list));
        peer.epoch = hello.epoch;
        hello.clients.as_str().clone_into(&mut peer.clients);
        self.next_alarm_at = now;
        self.changed = true;
        Greeted::Up
    }

    /// Checks the greeting of a node that has proven its id. Returns the peer's place.
    fn admit(&mut self, now: Instant, conn: ConnId, hello: &Hello<'_>) -> Result<usize, String> {
        hello.check(&self.identity.hello()).map_err(|refused| refused.to_string())?;
        if let Who::Peer(place) = self.who(conn)
            && self.list[place].node != hello.node
        {
            let expected = self.list[place].node;
            return Err(format!("node {expected} was dialled, but node {} answered", hello.node));
        }
        if role_of(hello) == Role::Proposer && self.is_member(hello.node) {
            return Err(format!(
                "node {} is a member, and this node only proposes: give it another id",
                hello.node
            ));
        }
        if self.is_impostor(hello.node, hello.birth) {
            return Err(OTHER_FOLDER.to_owned());
        }
        let place = match self.place_of(hello.node) {
            Some(place) => place,
            None => self.welcome(hello.node)?,
        };
        // As long as the quarantine of a node without a record.
        let memory = self.identity.cell.max_lease().as_duration();
        if self.list[place].is_boot_over(now, hello.boot, memory) {
            return Err(format!(
                "node {} was started again since then; if it was not, two processes use its id",
                hello.node
            ));
        }
        Ok(place)
    }

    fn is_member(&self, node: NodeId) -> bool {
        self.place_of(node).is_some_and(|place| self.list[place].is_listed)
    }

    /// Whether a peer refused this node because a member has its id.
    pub(crate) fn are_we_an_impostor(&self) -> bool {
        let mut problems = self.list.iter().filter_map(|peer| peer.problem.as_deref());
        problems.any(|problem| problem.strip_prefix(REFUSED_US) == Some(OTHER_FOLDER))
    }

    /// Adds a node that is no member: nobody knows it before it connects.
    fn welcome(&mut self, node: NodeId) -> Result<usize, String> {
        if self.identity.list == ListUse::Follows {
            return Err("neither is a member of the cell".to_owned());
        }
        Ok(self.add(Peer::new(self.identity.node, node, None, false, Instant::ZERO)))
    }

    /// Logs that a node which claims this id was refused. One that connects again and again must
    /// not fill the log.
    fn complain_of_stranger(&mut self, now: Instant, claimed: NodeId, why: &str) {
        if now >= self.complain_at {
            self.complain_at = now.after(COMPLAINT_PAUSE);
            tracing::warn!(peer = %claimed, why, "a node that claims to be this peer was refused");
        }
    }

    /// Logs the problem of a peer once, and again when it changes.
    pub(super) fn complain(&mut self, now: Instant, place: usize, why: &str) {
        let peer = &mut self.list[place];
        if peer.is_up() {
            let node = peer.node;
            return self.complain_of_stranger(now, node, why);
        }
        peer.problem = Some(why.to_owned());
        let is_news = |(told, again_at): &(String, Instant)| told != why && now >= *again_at;
        if peer.told.as_ref().is_none_or(is_news) {
            tracing::warn!(peer = %peer.node, why, "peer refused");
            peer.told = Some((why.to_owned(), now.after(COMPLAINT_PAUSE)));
        }
    }
}

/// The role in which a node greets. Its certificate must be for that role.
const fn role_of(hello: &Hello<'_>) -> Role {
    match hello.list {
        ListUse::Follows => Role::Proposer,
        ListUse::Fixed | ListUse::Founding | ListUse::Contact => Role::Member,
    }
}

/// The reason why a connection to a peer that stops ends.
pub(crate) const IS_STOPPING: &str = "it is stopping";

/// Why a node is refused that has the id of a member and another birth.
const OTHER_FOLDER: &str = "a member has this id with another data folder: this node lost its disk, \
     or the id was used before; give this node an id that was never used, and add it with \
     `paxoslease members`";

const REFUSED_US: &str = "it refused us: ";

/// Why the peer closes the connection, from its farewell.
pub(crate) fn refusal_of(frame: &[u8]) -> String {
    match Farewell::decode(frame) {
        Ok(farewell) if farewell.as_str() == Farewell::STOPPING => IS_STOPPING.to_owned(),
        Ok(farewell) => format!("{REFUSED_US}{farewell}"),
        Err(error) => format!("it refused us, for an unreadable reason: {error}"),
    }
}
