//! What a member does for the standing leases that its acceptor stores: it ends them (S2) and
//! renews them (S5).

use core::time::Duration;

use crate::outbox::{Body, Event, To, Token};
use crate::protocol::proposer::{Kept, Proposer, Renewal};
use crate::queueing::waiting::Freed;
use crate::{CommandError, Holder, Instant, Label, Lasts, Name, Shard, Tenure, Ttl};

/// The longest ttl with which members renew a standing lease.
const BASE_MAX: Ttl = match Ttl::from_millis(15_000) {
    Some(ttl) => ttl,
    None => unreachable!(),
};
/// The most renewals of standing leases that a shard has in flight.
const RENEWALS_MAX: usize = 1024;
/// A lease that the new set may not store is renewed again after this time (C10).
const MOVE_AGAIN: Duration = Duration::from_secs(2);
/// The pause before a renewal is begun that had no room, or no ballot.
const PAUSE: Duration = Duration::from_millis(10);

impl Shard {
    /// S1: sets when a tenure that was granted to the client ends, through any node. A holder that
    /// sets an earlier end has dropped its belief beyond it already (S6). The answer is
    /// [`Event::Stood`], [`Event::NotHeld`] or [`Event::NoQuorum`]; after the last, the old or the
    /// new end may be in force.
    ///
    /// # Errors
    /// When the shard is full; then nothing was changed.
    pub fn stand(
        &mut self,
        now: Instant,
        token: Token,
        name: Name<'_>,
        tenure: Tenure,
        lasts: Lasts,
    ) -> Result<(), CommandError> {
        self.end_standing(now);
        self.room_for_a_round()?;
        let label = Label::new(name, Holder::NONE);
        self.with_proposer(now, |proposer, env| {
            proposer.stand(env, now, token, label, tenure, lasts);
        });
        Ok(())
    }

    /// The ttl of a standing lease's record: at most 15 s, and at most M.
    #[must_use]
    pub fn base_ttl(&self) -> Ttl {
        BASE_MAX.min(self.config.cell.max_lease())
    }

    /// S2: ends the leases whose end has come. Every input does this first.
    #[inline]
    pub(crate) fn end_standing(&mut self, now: Instant) {
        if self.acceptor.as_ref().is_some_and(|acceptor| acceptor.standing.has_ended(now)) {
            self.end_all(now);
        }
    }

    #[cold]
    fn end_all(&mut self, now: Instant) {
        while let Some(acceptor) = &mut self.acceptor {
            let Some((slot, entry)) = acceptor.standing.pop_ended(now) else { return };
            let Some((label, tenure)) = acceptor.end(&self.config, now, slot, entry.tenure) else {
                continue;
            };
            if self.watched {
                self.out.emit(Event::ExpiredHint { label: label.clone(), tenure });
            }
            if self.proposer.has_waiters(label.name()) {
                // Nodes try one after the other, in the order of the members.
                let nodes_before = self.place();
                let freed = Freed { released_here: false, nodes_before, is_turn: false };
                self.with_proposer(now, |proposer, env| {
                    proposer.on_freed(env, now, label.name(), freed);
                });
            }
        }
    }

    fn place(&self) -> usize {
        let members = self.config.cell.members().iter();
        members.take_while(|member| **member < self.config.node).count()
    }

    /// S5: renews the standing leases whose records no other member has renewed.
    pub(crate) fn renew_standing(&mut self, now: Instant) {
        loop {
            let Some(acceptor) = self.acceptor.as_mut().filter(|_| self.own.is_some()) else {
                return;
            };
            let Some((slot, entry)) = acceptor.standing.pop_renewal(now) else { return };
            let stored = acceptor.table().get(slot);
            let live = stored.and_then(|stored| stored.register.live(now));
            let is_live = live.is_some_and(|live| live.tenure == entry.tenure);
            let Some(label) = stored.filter(|_| is_live).map(|stored| &stored.label) else {
                acceptor.standing.remove(slot);
                continue;
            };
            let Some(left) = Lasts::until(entry.ends_at, now) else {
                acceptor.standing.remove(slot);
                continue;
            };
            let must_move = acceptor.standing.must_move(&entry);
            if !entry.is_due() && !must_move {
                acceptor.standing.arm(&self.config, now, slot, 2);
                continue;
            }
            let label = label.clone();
            if self.proposer.keeping() >= RENEWALS_MAX {
                acceptor.standing.arm_at(slot, now.after(PAUSE));
                continue;
            }
            let (tenure, ttl) = (entry.tenure, left.capped(self.base_ttl()));
            self.with_proposer(now, |proposer, env| {
                let deadline = proposer.deadline(env.config, now, Duration::ZERO, ttl);
                let renewal = Renewal { token: None, label, deadline, resend_at: now };
                proposer.renew(env, now, renewal, tenure, ttl);
            });
            // Its own acceptor has accepted, so the next look follows from the new expiry.
            if let Some(acceptor) = &mut self.acceptor
                && acceptor.standing.get(slot, tenure).is_some()
            {
                if must_move {
                    acceptor.standing.arm_at(slot, now.after(MOVE_AGAIN));
                } else {
                    acceptor.standing.arm(&self.config, now, slot, 2);
                }
            }
        }
    }

    /// Acts on the outcomes of the renewals of standing leases.
    #[cold]
    pub(crate) fn settle_kept(&mut self, now: Instant) {
        while let Some((label, tenure, kept)) = self.proposer.pop_kept() {
            match kept {
                Kept::Renewed => self.relay(now, label, tenure),
                Kept::Over => {
                    if let Some(acceptor) = &mut self.acceptor
                        && let Some(slot) = acceptor.table().find(label.name())
                        && acceptor.standing.get(slot, tenure).is_some()
                    {
                        // The tenure is over for good, so nothing of it has to be kept.
                        acceptor.standing.remove(slot);
                        acceptor.end(&self.config, now, slot, tenure);
                    }
                }
            }
        }
    }

    /// S5: tells the other members the end, so that those that were healed learn it. The clock was
    /// read up to a granule ago there, so the end gets a granule more.
    fn relay(&mut self, now: Instant, label: Label, tenure: Tenure) {
        let granule = self.config.cell.drift().granularity();
        let Some(acceptor) = &mut self.acceptor else { return };
        let Some(slot) = acceptor.table().find(label.name()) else { return };
        let Some(entry) = acceptor.standing.get(slot, tenure).copied() else { return };
        let others = self.config.cell.everyone();
        let others = self.own.map_or(others, |own| others.without(own));
        if let Some(lasts) = Lasts::until(entry.ends_at.after(granule), now) {
            let version = entry.version;
            if self.config.cell.is_joint() {
                acceptor.standing.relayed(slot, version);
                if let Some(own) = self.own {
                    acceptor.standing.moved(&self.config.cell, version, own);
                }
            }
            let body = Body::Stand { label, tenure, version, lasts, is_relayed: true };
            self.out.send(To::Members(others), body);
        }
    }
}

impl Proposer {
    /// How many renewals of standing leases are in flight.
    pub(crate) const fn keeping(&self) -> usize {
        self.keeping
    }

    pub(crate) fn has_kept(&self) -> bool {
        !self.kept.is_empty()
    }

    pub(crate) fn pop_kept(&mut self) -> Option<(Label, Tenure, Kept)> {
        self.kept.pop_front()
    }
}
