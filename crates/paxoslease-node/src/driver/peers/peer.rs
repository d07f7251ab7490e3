//! One peer: its connection's state and what is to be sent over it.

use std::time::Duration;

use paxoslease_core::{Birth, Instant, NodeId, Rng};
use paxoslease_wire::{Farewell, FrameWriter, Heartbeat, ListUse};

use super::super::sockets::{ConnId, Sockets};
use super::{PeerTimeouts, REDIAL_MAX, REDIAL_MIN};
use paxoslease_holder::PeerStatus;

/// Dialling: the connection is not established yet. Greeting: this node greeted, and waits for the
/// greeting of the peer. Up: both greeted each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Link {
    Down { redial_at: Instant },
    Dialling { conn: ConnId, since: Instant },
    Greeting { conn: ConnId, since: Instant },
    Up { conn: ConnId, heard_at: Instant, pinged_at: Instant, answered_at: Instant },
}

/// In heartbeats: how often a node that only answers pings measures the round trip itself.
const MEASURED_EVERY: u32 = 5;

/// How a node reaches a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reach {
    /// It is connected; with the recent round trip.
    Up(Duration),
    /// A member that is not connected.
    Down,
    /// Not a member, or not any more, and not connected.
    Gone,
}

/// What a peer told in a Ping.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told {
    pub(crate) counter: u64,
    pub(crate) epoch: u32,
    /// Whether the peer is not in quarantine, so it has forgotten nothing.
    pub(crate) remembers: bool,
    /// Whether the peer was in an earlier epoch and is in this node's epoch now. It dropped what
    /// this node has sent in between.
    pub(crate) has_caught_up: bool,
}

#[derive(Debug)]
pub(super) struct Peer {
    pub(super) node: NodeId,
    pub(super) address: Option<String>,
    /// Its address in the settings, which may be newer than the members that this node knows. Dials
    /// take turns between both.
    pub(super) contact: Option<String>,
    uses_contact: bool,
    pub(super) dials: bool,
    /// The same, or whether this node reaches no quorum and dials every node.
    pub(super) dials_now: bool,
    /// Whether it is a member of the cell.
    pub(super) is_listed: bool,
    pub(super) link: Link,
    pub(super) writer: FrameWriter,
    /// Whether it is in the list of peers with something to send.
    pub(super) dirty: bool,
    /// Whether messages wait for others, or did since the last flush.
    pub(super) holds_back: bool,
    /// The boot that connected last, and when its connection ended.
    pub(super) boot: Option<u64>,
    pub(super) birth: Birth,
    /// What its list of members means to it, as it greeted.
    pub(super) list: Option<ListUse>,
    /// Its epoch, as it said last.
    pub(super) epoch: u32,
    /// Where clients reach it; empty if that is not known.
    pub(super) clients: String,
    gone_at: Instant,
    redial_pause: Duration,
    /// Whether it sent a heartbeat on this connection. A peer may greet and then refuse this node.
    pub(super) is_settled: bool,
    pub(super) rtt: Option<Duration>,
    /// What the last Ping to it said: this node's counter, and whether it is in quarantine.
    pinged: Option<(u64, bool)>,
    /// Whether it is in quarantine, by its own word, and until when; a hint.
    quarantined: bool,
    quarantine_until: Instant,
    pub(super) problem: Option<String>,
    /// The problem that was logged last since it was up, and when the next may be logged.
    pub(super) told: Option<(String, Instant)>,
}

impl Peer {
    pub(super) fn new(
        own: NodeId,
        node: NodeId,
        address: Option<String>,
        dials: bool,
        now: Instant,
    ) -> Self {
        Self {
            node,
            address,
            contact: None,
            uses_contact: false,
            dials,
            dials_now: dials,
            is_listed: false,
            link: Link::Down { redial_at: now },
            writer: FrameWriter::new(own),
            dirty: false,
            holds_back: false,
            boot: None,
            birth: Birth::UNKNOWN,
            list: None,
            epoch: 0,
            clients: String::new(),
            gone_at: Instant::ZERO,
            redial_pause: REDIAL_MIN,
            is_settled: false,
            rtt: None,
            pinged: None,
            quarantined: false,
            quarantine_until: Instant::ZERO,
            problem: None,
            told: None,
        }
    }

    /// Where to dial it next.
    pub(super) fn dial_address(&self) -> Option<&str> {
        let contact = self.contact.as_deref().filter(|_| self.uses_contact);
        contact.or(self.address.as_deref())
    }

    /// The rest of its quarantine, by its own word.
    pub(super) fn quarantine_remaining(&self, now: Instant) -> Duration {
        self.quarantine_until.since(now)
    }

    pub(super) fn reach(&self) -> Reach {
        if self.is_up() {
            Reach::Up(self.rtt.unwrap_or_default())
        } else if self.is_listed {
            Reach::Down
        } else {
            Reach::Gone
        }
    }

    pub(super) const fn is_up(&self) -> bool {
        matches!(self.link, Link::Up { .. })
    }

    pub(super) const fn conn(&self) -> Option<ConnId> {
        match self.link {
            Link::Down { .. } => None,
            Link::Dialling { conn, .. } | Link::Greeting { conn, .. } | Link::Up { conn, .. } => {
                Some(conn)
            }
        }
    }

    pub(super) fn up(&mut self, now: Instant, conn: ConnId, boot: u64) {
        self.boot = Some(boot);
        let never = Instant::ZERO;
        self.link = Link::Up { conn, heard_at: now, pinged_at: never, answered_at: never };
        (self.pinged, self.problem, self.is_settled) = (None, None, false);
    }

    /// R5: whether a later boot of this node has connected. Boots grow, in whatever order greetings
    /// arrive. The later boot is forgotten after `memory` without a connection. So a node whose
    /// boots went back (it lost its record, and its wall clock is behind) is not locked out for
    /// good.
    pub(super) fn is_boot_over(&self, now: Instant, boot: u64, memory: Duration) -> bool {
        let is_remembered = self.is_up() || now < self.gone_at.after(memory);
        self.boot.is_some_and(|latest| boot < latest) && is_remembered
    }

    /// Forgets the connection and its queue. Returns the pause before the next dial, if this node
    /// dials.
    pub(super) fn down(&mut self, now: Instant, why: &str, rng: &mut Rng) -> Option<Duration> {
        if self.writer.is_open() {
            self.writer.finish(0);
        }
        self.writer.clear();
        let was_up = self.is_up();
        if was_up {
            self.gone_at = now;
        }
        self.problem = Some(why.to_owned());
        self.uses_contact = !was_up && !self.uses_contact;
        self.rtt = None;
        (self.quarantined, self.quarantine_until) = (false, Instant::ZERO);
        // Between half of the pause and all of it, so that nodes do not dial in step.
        let pause = self.redial_pause / 2 + rng.below(self.redial_pause / 2);
        self.redial_pause = (self.redial_pause * 2).min(REDIAL_MAX);
        self.link = Link::Down { redial_at: now.after(pause) };
        self.dials_now.then_some(pause)
    }

    pub(super) fn flush(&mut self, sockets: &mut impl Sockets, counter: u64) {
        (self.dirty, self.holds_back) = (false, false);
        let Link::Up { conn, .. } = self.link else { return };
        if self.writer.is_open() {
            self.writer.finish(counter);
        }
        let waiting = self.writer.finished();
        if !waiting.is_empty() {
            let sent = sockets.send(conn, waiting);
            self.writer.consume(sent);
        }
    }

    pub(super) fn say_farewell(&mut self, sockets: &mut impl Sockets, why: &str, counter: u64) {
        if self.is_up() {
            if self.writer.is_open() {
                self.writer.finish(counter);
            }
            self.writer.append(|out| Farewell::encode(&why, out));
            self.flush(sockets, counter);
        }
    }

    /// Sends a Ping if it is due. `quarantine` is the rest of this node's own quarantine.
    ///
    /// One side of a connection is enough to keep it alive: the node that dialled pings, and the
    /// other node answers. The other node sends a Ping of its own if it has news, or if it has
    /// answered none for longer than a heartbeat. A Ping that is almost due goes out with this
    /// turn, so that pings to several peers share a wake-up.
    pub(super) fn ping(
        &mut self,
        now: Instant,
        every: Duration,
        quarantine: Duration,
        (counter, epoch): (u64, u32),
    ) {
        let Link::Up { pinged_at, answered_at, .. } = self.link else { return };
        let is_answering = !self.dials && now < answered_at.after(patience(every));
        let is_due = if is_answering {
            let is_news = self.pinged != Some((counter, false)) || !quarantine.is_zero();
            is_news && now >= pinged_at.after(every / 2)
                || now >= pinged_at.after(every.saturating_mul(MEASURED_EVERY))
        } else {
            now >= pinged_at.after(every - every / 4)
        };
        if is_due {
            if let Link::Up { pinged_at, .. } = &mut self.link {
                *pinged_at = now;
            }
            // Rounded up: a quarantine of less than a millisecond is not over yet.
            let quarantine_ms = u32::try_from(quarantine.as_nanos().div_ceil(1_000_000));
            let quarantine_ms = quarantine_ms.unwrap_or(u32::MAX);
            let number = now.as_nanos();
            if self.beat(Heartbeat::Ping { number, quarantine_ms, counter, epoch }, counter) {
                self.pinged = Some((counter, quarantine_ms > 0));
            }
        }
    }

    /// Returns what the peer told, if it did, and whether its quarantine began or ended.
    pub(super) fn heartbeat(
        &mut self,
        now: Instant,
        frame: &[u8],
        (own_counter, own_epoch): (u64, u32),
        peer_timeout: Duration,
    ) -> (Option<Told>, bool) {
        if !std::mem::replace(&mut self.is_settled, true) {
            (self.redial_pause, self.told) = (REDIAL_MIN, None);
            tracing::info!(peer = %self.node, "peer connected");
        }
        match Heartbeat::decode(frame) {
            Ok(Heartbeat::Ping { number, quarantine_ms, counter, epoch }) => {
                if self.beat(Heartbeat::Pong(number), own_counter)
                    && let Link::Up { answered_at, .. } = &mut self.link
                {
                    *answered_at = now;
                }
                self.quarantine_until = now.after(Duration::from_millis(quarantine_ms.into()));
                let quarantined = quarantine_ms > 0;
                let before = std::mem::replace(&mut self.quarantined, quarantined);
                let epoch_before = std::mem::replace(&mut self.epoch, epoch);
                let has_caught_up = epoch_before < epoch && epoch == own_epoch;
                let told = Told { counter, epoch, remembers: !quarantined, has_caught_up };
                return (Some(told), before != quarantined);
            }
            // A peer may send any number. A connection that is silent for longer than the timeout
            // is closed, so no true answer takes longer.
            Ok(Heartbeat::Pong(number))
                if now.since(Instant::from_nanos(number)) <= peer_timeout =>
            {
                let took = now.since(Instant::from_nanos(number));
                let last = self.rtt.unwrap_or(took);
                self.rtt = Some((last * 3 + took) / 4);
            }
            Ok(Heartbeat::Pong(_)) => {}
            Err(error) => tracing::debug!(peer = %self.node, %error, "bad heartbeat"),
        }
        (None, false)
    }

    /// A peer that sends without reading gets no more heartbeats than fit. Returns whether this one
    /// did.
    fn beat(&mut self, beat: Heartbeat, counter: u64) -> bool {
        if self.writer.finished().len() > BEATS_BYTES_MAX {
            return false;
        }
        if self.writer.is_open() {
            self.writer.finish(counter);
        }
        self.writer.append(|out| beat.encode(out));
        true
    }

    /// When [`super::Peers::tick`] has something to do for this peer.
    pub(super) fn alarm_at(&self, timeouts: PeerTimeouts) -> Instant {
        match self.link {
            Link::Down { redial_at } if self.dials_now && self.address.is_some() => redial_at,
            Link::Down { .. } => Instant::MAX,
            Link::Dialling { since, .. } | Link::Greeting { since, .. } => {
                since.after(timeouts.peer_timeout)
            }
            Link::Up { heard_at, pinged_at, answered_at, .. } => {
                let ping_at = pinged_at.after(timeouts.heartbeat);
                let silent_at = answered_at.after(patience(timeouts.heartbeat));
                let ping_at = if self.dials { ping_at } else { ping_at.max(silent_at) };
                heard_at.after(timeouts.peer_timeout).min(ping_at)
            }
        }
    }

    pub(super) fn status(&self, now: Instant) -> PeerStatus {
        PeerStatus {
            node: self.node.get(),
            address: self.address.clone(),
            up: self.is_up(),
            rtt: self.rtt,
            quarantine_remaining: self.quarantine_remaining(now),
            problem: self.problem.clone(),
            clients: Some(self.clients.clone()).filter(|address| !address.is_empty()),
        }
    }
}

/// How long a node that answers pings waits for the next one before it pings itself. The other
/// node may be late by half a heartbeat.
fn patience(heartbeat: Duration) -> Duration {
    heartbeat.saturating_add(heartbeat / 2)
}

/// No heartbeat is queued behind more bytes than this.
pub(super) const BEATS_BYTES_MAX: usize = 64 * 1024;
