//! The handshake: both sides greet first, and check what they hear before anything counts
//! (invariants 2 and 5).

use paxoslease_core::{Instant, NodeId};
use paxoslease_wire::{Farewell, FrameKind, Hello};

use super::peer::{Link, Peer};
use super::{COMPLAINT_PAUSE, Counters, Drop, GUESTS_MAX, Peers, Who, kind_of};
use crate::driver::sockets::{ConnId, Sockets};

/// What became of a frame from somebody not greeted yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Greeted {
    /// It may speak now.
    Up,
    /// It was for another shard, which has the connection now, with this frame.
    HandedOver,
    /// The connection is closed.
    Closed,
}

impl Peers {
    /// Somebody connected to us. Says whether another guest had to go for that.
    pub(crate) fn accepted(
        &mut self,
        sockets: &mut impl Sockets,
        now: Instant,
        conn: ConnId,
    ) -> bool {
        self.set_who(conn, Who::Guest);
        self.guests.push((conn, now));
        let are_too_many = self.guests.len() > GUESTS_MAX;
        if are_too_many {
            let (eldest, _) = self.guests[0];
            self.hang_up(sockets, now, eldest, "too many at the door");
        }
        self.next_alarm_at = self.next_alarm_at.min(now.after(self.manners.peer_timeout));
        are_too_many
    }

    /// A connection we dialled stands: we greet.
    pub(crate) fn connected(&mut self, sockets: &mut impl Sockets, now: Instant, conn: ConnId) {
        let Who::Peer(place) = self.who(conn) else { return };
        self.list[place].link = Link::Greeting { conn, since: now };
        self.say_hello(sockets, conn);
    }

    fn say_hello(&self, sockets: &mut impl Sockets, conn: ConnId) {
        let mut hello = Vec::with_capacity(256);
        self.identity.hello().encode(&mut hello);
        // A fresh connection takes a few hundred bytes; one that does not will be given up.
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
                Err(error) => format!("its greeting makes no sense: {error}"),
            },
            Ok(FrameKind::Farewell) => refusal_of(frame),
            Ok(kind) => format!("it sent {kind:?} before it said who it is"),
            Err(error) => error,
        };
        counters.dropped(Drop::Refused, 1);
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
        let guest = self.who(conn) == Who::Guest;
        let own = self.identity.shard;
        if guest && hello.shard.count() == own.count() && hello.shard.index() != own.index() {
            sockets.hand_over(conn, hello.shard.index());
            self.closed(now, conn, "handed over");
            return Greeted::HandedOver;
        }
        if guest {
            self.say_hello(sockets, conn);
        }
        let place = match self.admit(sockets, conn, hello) {
            Ok(place) => place,
            Err(why) => {
                counters.dropped(Drop::Refused, 1);
                let mut farewell = Vec::new();
                Farewell::encode(&why, &mut farewell);
                sockets.send(conn, &farewell);
                if let Some(place) = self.place_of(hello.node) {
                    self.complain(now, place, &format!("refused: {why}"));
                } else if self.may_complain(now) {
                    tracing::warn!(peer = %hello.node, %why, "peer refused");
                }
                self.hang_up(sockets, now, conn, &format!("refused: {why}"));
                return Greeted::Closed;
            }
        };
        self.guests.retain(|(guest, _)| *guest != conn);
        // The newest connection counts; what an older one still carries is not listened to.
        if let Some(old) = self.list[place].conn().filter(|old| *old != conn) {
            self.hang_up(sockets, now, old, "it connected anew");
        }
        self.set_who(conn, Who::Peer(place));
        self.list[place].up(now, conn, hello.boot);
        self.next_alarm_at = now;
        self.changed = true;
        tracing::info!(peer = %hello.node, "peer connected");
        Greeted::Up
    }

    /// Whether a greeting will do; the peer's place.
    fn admit(
        &mut self,
        sockets: &impl Sockets,
        conn: ConnId,
        hello: &Hello<'_>,
    ) -> Result<usize, String> {
        hello.check(&self.identity.hello()).map_err(|refused| refused.to_string())?;
        if let Who::Peer(place) = self.who(conn)
            && self.list[place].node != hello.node
        {
            let expected = self.list[place].node;
            return Err(format!("node {expected} was dialled and node {} answered", hello.node));
        }
        if !sockets.is_node(conn, hello.node) {
            return Err(format!("its certificate is not for {}", certificate_name(hello.node)));
        }
        let place = match self.place_of(hello.node) {
            Some(place) => place,
            None => self.welcome_proposer(hello.node)?,
        };
        if self.list[place].is_boot_over(hello.boot) {
            return Err(format!(
                "node {} has been started anew since; if it was not, two processes use its id",
                hello.node
            ));
        }
        Ok(place)
    }

    /// A node that only proposes is known once it comes.
    fn welcome_proposer(&mut self, node: NodeId) -> Result<usize, String> {
        let own = self.identity.node;
        if self.identity.cell.member(own).is_none() {
            return Err("neither is a member of the cell".to_owned());
        }
        Ok(self.add(Peer::new(own, node, None, false, Instant::ZERO)))
    }

    /// Whether a stranger is worth a line: one that comes again and again must not fill the log.
    fn may_complain(&mut self, now: Instant) -> bool {
        let may = now >= self.complain_at;
        if may {
            self.complain_at = now.after(COMPLAINT_PAUSE);
        }
        may
    }

    /// Tells people once what is wrong with a peer, and again when it changes.
    fn complain(&mut self, now: Instant, place: usize, why: &str) {
        if self.list[place].is_up() {
            if self.may_complain(now) {
                let peer = self.list[place].node;
                tracing::warn!(%peer, why, "somebody else who claims to be this peer refused");
            }
            return;
        }
        let peer = &mut self.list[place];
        if peer.problem.as_deref() != Some(why) {
            tracing::warn!(peer = %peer.node, why, "peer refused");
            peer.problem = Some(why.to_owned());
        }
    }
}

/// What a farewell says, for people.
pub(crate) fn refusal_of(frame: &[u8]) -> String {
    match Farewell::decode(frame) {
        Ok(farewell) => format!("it refused us: {farewell}"),
        Err(error) => format!("it refused us, for no clear reason: {error}"),
    }
}

/// What a node's certificate must be valid for.
fn certificate_name(node: NodeId) -> String {
    format!("node-{node}.paxoslease")
}
