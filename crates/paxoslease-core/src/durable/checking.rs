//! Durable leases at the level of a shard: the commands of holders, the disk's answers, and what a
//! member does by itself for the registers that it stores.

use alloc::vec::Vec;
use core::time::Duration;

use crate::durable::message::{DurableBody, DurableMessage};
use crate::durable::value::DurableRegister;
use crate::outbox::{Body, Event, To, Token};
use crate::queueing::waiting::Freed;
use crate::refusal::Refusal;
use crate::shard::{Acquire, env};
use crate::{
    CommandError, Holder, Instant, Label, Lasts, MemberSet, Name, NodeId, Shard, Tenure, Ttl,
};

/// The longest ttl of the round with which a durable acquire begins (K9).
const ROUND_TTL_MAX: Ttl = match Ttl::from_millis(15_000) {
    Some(ttl) => ttl,
    None => unreachable!(),
};
/// The most checks that a node has in flight.
const CHECKS_MAX: usize = 256;
/// The pause before a check is begun that had no room.
const PAUSE: Duration = Duration::from_millis(10);

/// How many names are durable at a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DurableCounts {
    /// Registers, free ones included.
    pub registers: usize,
    /// Registers that this node does not know to be stored by every member.
    pub unsettled: usize,
    /// Registers of names that are free.
    pub free: usize,
}

impl Shard {
    /// K9: requests a durable lease, which lasts that long from its grant, or for ever. The ttl of
    /// the request is not used. The answer is like that of [`Shard::acquire`], or
    /// [`Event::NotKept`].
    ///
    /// # Errors
    /// When the shard is full; then nothing was changed.
    pub fn acquire_durable(
        &mut self,
        now: Instant,
        acquire: Acquire<'_>,
        lasts: Lasts,
    ) -> Result<(), CommandError> {
        let ttl = ROUND_TTL_MAX.min(self.config.cell.max_lease()).as_duration();
        self.acquire_for(now, Acquire { ttl, ..acquire }, Some(lasts))
    }

    /// K8: sets when a tenure that was granted to the client ends, through any node. A holder that
    /// sets an earlier end has dropped its belief beyond it already (K10). The answer is
    /// [`Event::Kept`], [`Event::NotHeld`], [`Event::NotKept`] or [`Event::NoQuorum`]; after the
    /// last two, either end may be in force.
    ///
    /// # Errors
    /// When the shard is full; then nothing was changed.
    pub fn keep(
        &mut self,
        now: Instant,
        token: Token,
        label: Label,
        tenure: Tenure,
        lasts: Lasts,
    ) -> Result<(), CommandError> {
        self.room_for_a_round()?;
        self.with_proposer(now, |proposer, env| {
            proposer.keep(env, now, token, label, (tenure, lasts, false));
        });
        Ok(())
    }

    /// K8: ends a tenure that was durable, or for which a durable end was ever asked. The holder
    /// has dropped its belief already. The answer is [`Event::Released`].
    ///
    /// # Errors
    /// When the shard is full; then nothing was changed.
    pub fn release_durable(
        &mut self,
        now: Instant,
        token: Token,
        name: Name<'_>,
        tenure: Tenure,
        patience: Duration,
    ) -> Result<(), CommandError> {
        self.room_for_a_round()?;
        let answer_by = now.after(patience);
        let label = Label::new(name, Holder::NONE);
        self.with_proposer(now, |proposer, env| {
            proposer.release_durable(env, now, alloc::vec![token], label, tenure, answer_by);
        });
        Ok(())
    }

    /// K12: takes back a register that the disk has. Called before any other input, and after the
    /// file time of this start is durable: an end that is not after `now` has passed.
    pub fn restore_durable(&mut self, now: Instant, register: DurableRegister) {
        if let Some(acceptor) = &mut self.acceptor {
            acceptor.restore_durable(now, register);
        }
    }

    /// K14: sets whether the disk has room for more held values. Free ones are always stored.
    pub fn set_durable_room(&mut self, has_room: bool) {
        if let Some(acceptor) = &mut self.acceptor {
            acceptor.registers.has_room = has_room;
        }
    }

    /// The writes up to this one are on disk.
    pub fn durable_written(&mut self, now: Instant, sequence: u64) {
        let Some(acceptor) = &mut self.acceptor else { return };
        let written = acceptor.registers.written(&self.config, now, sequence);
        for (node, ballot) in written.answers {
            let body = DurableBody::Stored { ballot };
            if node != self.config.node {
                self.out.send(To::Node(node), body.into());
            } else if let Some(own) = self.own {
                self.note_told(now, own, &DurableMessage::Stored { ballot });
                let message = DurableMessage::Stored { ballot };
                self.with_proposer(now, |proposer, env| {
                    proposer.on_durable(env, now, own, &message);
                });
            }
        }
        for (slot, label, tenure) in written.ended {
            if let Some(acceptor) = &mut self.acceptor {
                acceptor.end_ordinary(&self.config, now, slot, tenure);
            }
            if self.watched {
                self.out.emit(Event::ExpiredHint { label: label.clone(), tenure });
            }
            self.durable_freed(now, &label);
        }
        self.answer_deferred(now);
    }

    /// A durable name is free here: requests that wait for it try again.
    fn durable_freed(&mut self, now: Instant, label: &Label) {
        if self.proposer.has_waiters(label.name()) {
            // Nodes try one after the other, in the order of the members.
            let members = self.config.cell.members().iter();
            let nodes_before = members.take_while(|it| **it < self.config.node).count();
            let freed = Freed { released_here: false, nodes_before, is_turn: false };
            self.with_proposer(now, |proposer, env| {
                proposer.on_freed(env, now, label.name(), freed);
            });
        }
    }

    /// What is stored here, and whether the last write of it is on disk. For checkers.
    #[must_use]
    pub fn durable_register(&self, name: Name<'_>) -> Option<(DurableRegister, bool)> {
        let acceptor = self.acceptor.as_ref()?;
        let entry = acceptor.registers.get(acceptor.table().find(name)?)?;
        Some((entry.register(), entry.is_durable()))
    }

    /// Whether the register of a name excludes other tenures here, and which. For checkers.
    #[must_use]
    pub fn durably_held(&self, now: Instant, name: Name<'_>) -> Option<(Tenure, Tenure)> {
        let acceptor = self.acceptor.as_ref()?;
        let entry = acceptor.registers.get(acceptor.table().find(name)?)?;
        let sent = entry.sent(self.config.rules, now);
        entry.is_held(self.config.rules, now).then(|| (sent.tenure(), sent.fence()))
    }

    /// How many names are durable here.
    #[must_use]
    pub fn durable_counts(&self) -> DurableCounts {
        let acceptor = self.acceptor.as_ref();
        let counts = acceptor.map_or((0, 0, 0), |acceptor| acceptor.registers.counts());
        let (registers, unsettled, free) = counts;
        DurableCounts { registers, unsettled, free }
    }

    /// C10, K13: how many registers this node has not seen on the disks of a majority of the new
    /// set.
    #[must_use]
    pub fn durable_left(&self) -> usize {
        let acceptor = self.acceptor.as_ref().filter(|_| self.config.cell.is_joint());
        let own = self.own.unwrap_or(MemberSet::EMPTY);
        acceptor.map_or(0, |acceptor| acceptor.registers.unmoved(&self.config, own))
    }

    /// A message about a register arrived from a peer.
    pub(crate) fn handle_durable(
        &mut self,
        now: Instant,
        from: NodeId,
        message: &DurableMessage<'_>,
    ) -> Result<(), Refusal> {
        if message.name().is_some() {
            if let Some(body) = self.ask_register(now, from, message)? {
                self.out.send(To::Node(from), body.into());
            }
            return Ok(());
        }
        let Some(member) = self.config.cell.member(from) else { return Err(Refusal::NotMember) };
        if message.highest().counter() > self.proposer.counter_refused_above() {
            return Err(Refusal::BallotExhausting);
        }
        self.note_told(now, member, message);
        self.with_proposer(now, |proposer, env| proposer.on_durable(env, now, member, message));
        Ok(())
    }

    /// The answer of the acceptor here; `None` too while the request waits for the disk.
    fn ask_register(
        &mut self,
        now: Instant,
        from: NodeId,
        message: &DurableMessage<'_>,
    ) -> Result<Option<DurableBody>, Refusal> {
        // C9: a non-member answers nothing.
        let Some(acceptor) = self.acceptor.as_mut().filter(|_| self.own.is_some()) else {
            return Err(Refusal::NotAcceptor);
        };
        let bound = self.proposer.counter_refused_above();
        let ceilings = &mut self.ceilings;
        match acceptor.admit_durable(&self.config, ceilings, bound, now, from, message) {
            Ok(()) => {}
            Err(Refusal::RecordBehind) if self.deferred.len() < self.config.limits.deferred_max => {
                let copied = DurableBody::copied(message).map(|body| (from, body.into()));
                self.deferred.extend(copied);
                self.request_write();
                return Ok(None);
            }
            Err(refusal) => return Err(refusal),
        }
        let before = message.name().and_then(|name| acceptor.lease(now, name));
        let answer = acceptor.answer_durable(&self.config, &mut self.out, now, from, message)?;
        self.proposer.observe(message.highest().counter());
        if let Some(name) = message.name()
            && let Some(before) = before
        {
            self.note_ended_by_store(now, name, before.seen.tenure);
        }
        self.written_at_once(now);
        Ok(answer)
    }

    /// A Store may have ended the lease that clients and other requests here know of.
    fn note_ended_by_store(&mut self, now: Instant, name: Name<'_>, before: Tenure) {
        let after = self.acceptor.as_ref().and_then(|acceptor| acceptor.sighting(now, name));
        if after.is_some() {
            return;
        }
        let label = Label::new(name, Holder::NONE);
        if self.watched {
            self.out.emit(Event::FreedHint { label: label.clone(), tenure: Some(before) });
        }
        for learner in &self.learners {
            let nodes_before = self.config.cell.members().len() as u8;
            let body = Body::Freed { label: label.clone(), nodes_before };
            self.out.send(To::Node(*learner), body);
        }
        self.durable_freed(now, &label);
    }

    /// Without a disk, a write is over as it begins.
    fn written_at_once(&mut self, now: Instant) {
        let acceptor = self.acceptor.as_ref();
        if let Some(sequence) = acceptor.and_then(|it| it.registers.written_at_once(&self.config)) {
            self.durable_written(now, sequence);
        }
    }

    pub(crate) fn ask_own_register(
        &mut self,
        now: Instant,
        own: MemberSet,
        message: &DurableMessage<'_>,
    ) -> bool {
        match self.ask_register(now, self.config.node, message) {
            Ok(Some(answer)) => {
                let body = Body::from(answer);
                if let crate::Message::Durable(answer) = body.message() {
                    self.note_told(now, own, &answer);
                    self.proposer.on_durable(&mut env!(self), now, own, &answer);
                }
            }
            Ok(None) => {}
            Err(refusal) => self.drops[refusal as usize] += 1,
        }
        false
    }

    /// C10: notes which members have which values on their disks.
    fn note_told(&mut self, _now: Instant, member: MemberSet, message: &DurableMessage<'_>) {
        if !self.config.cell.is_joint() {
            return;
        }
        let told = match message {
            DurableMessage::Stored { ballot } => Some(*ballot),
            DurableMessage::Promise { register: Some(register), .. } => Some(register.ballot),
            _ => None,
        };
        let label = self.proposer.changes.label_of(message.ballot());
        if let Some((told, label)) = told.zip(label)
            && let Some(acceptor) = &mut self.acceptor
            && let Some(slot) = acceptor.table().find(label.name())
        {
            acceptor.registers.told(slot, told, member);
        }
    }

    /// K3, K5: notices ends, and checks what other members may have missed.
    pub(crate) fn look_after_registers(&mut self, now: Instant) {
        let Some(acceptor) = self.acceptor.as_mut().filter(|_| self.own.is_some()) else { return };
        if now < acceptor.registers.next_at() {
            return;
        }
        acceptor.registers.notice_ends(&self.config, now, &mut self.out);
        let labels = self.due_checks(now);
        for label in labels {
            self.with_proposer(now, |proposer, env| proposer.check(env, now, label));
        }
        self.written_at_once(now);
    }

    fn due_checks(&mut self, now: Instant) -> Vec<Label> {
        let mut labels = Vec::new();
        let Some(acceptor) = &mut self.acceptor else { return labels };
        while let Some(label) = acceptor.registers.pop_check(&self.config, now, &mut self.out) {
            let has_room = self.proposer.changes.len() + labels.len() < CHECKS_MAX;
            if has_room && !self.proposer.changes.is_changing(&label) {
                labels.push(label.with_holder(Holder::NONE));
            } else if let Some(slot) = acceptor.table().find(label.name()) {
                acceptor.registers.check_at(slot, now.after(PAUSE));
                if !has_room {
                    break;
                }
            }
        }
        labels
    }
}
