//! What an acceptor answers about the registers of durable names (K1 to K5).

use crate::durable::message::{
    DurableBody, DurableMessage, OwnedRegister, SentValue, StoreRefusal,
};
use crate::durable::value::{DurableRegister, DurableValue};
use crate::outbox::{Body, LiveLease, Outbox, Sighting};
use crate::protocol::acceptor::Acceptor;
use crate::protocol::record::Ceilings;
use crate::protocol::register::Register;
use crate::refusal::Refusal;
use crate::rules::Rule;
use crate::storage::Slot;
use crate::{
    Ballot, Config, Durability, Holder, Instant, Label, Name, NodeId, Request, Tenure, Ttl,
};

impl Acceptor {
    /// A0, A1, R1, K3: whether a request about a register may be answered now.
    pub(crate) fn admit_durable(
        &self,
        config: &Config,
        ceilings: &mut Ceilings,
        counter_bound: u64,
        now: Instant,
        from: NodeId,
        request: &DurableMessage<'_>,
    ) -> Result<(), Refusal> {
        if self.is_quarantined(now) {
            return Err(Refusal::Quarantined);
        }
        let highest = request.highest();
        if highest.counter() > counter_bound {
            return Err(Refusal::BallotExhausting);
        }
        if let DurableMessage::All { .. } = request {
            return Ok(());
        }
        if request.ballot().node() != Some(from) {
            return Err(Refusal::BallotNotSenders);
        }
        // The end of a tenure promises a ballot above it.
        if !ceilings.admits_counter(highest.counter()) {
            return Err(Refusal::RecordBehind);
        }
        let is_prepare = matches!(request, DurableMessage::Prepare { .. });
        match request.name() {
            Some(name) if is_prepare && self.is_writing(config, name) => Err(Refusal::RecordBehind),
            _ => Ok(()),
        }
    }

    /// Answers a request about a register that was admitted. A Store is answered when it is
    /// durable.
    pub(crate) fn answer_durable(
        &mut self,
        config: &Config,
        out: &mut Outbox,
        now: Instant,
        from: NodeId,
        request: &DurableMessage<'_>,
    ) -> Result<Option<DurableBody>, Refusal> {
        match *request {
            DurableMessage::Prepare { name, ballot } => {
                self.prepare_durable(config, now, name, ballot).map(Some)
            }
            DurableMessage::Store { name, holder, ballot, value } => {
                self.store_durable(config, out, now, from, Label::new(name, holder), ballot, value)
            }
            DurableMessage::All { name, ballot } => {
                if let Some(slot) = self.table().find(name)
                    && let Some(entry) = self.registers.get(slot)
                    && entry.is_durable()
                    && (entry.ballot == ballot || !config.rules.on(Rule::ForgetsOneBallot))
                {
                    self.registers.settle(now, slot);
                }
                Ok(None)
            }
            // Answers are for the proposer.
            DurableMessage::Promise { .. }
            | DurableMessage::Stored { .. }
            | DurableMessage::Reject { .. }
            | DurableMessage::Refused { .. }
            | DurableMessage::Inspected { .. }
            | DurableMessage::IsDurable { .. } => Ok(None),
        }
    }

    /// K1.
    fn prepare_durable(
        &mut self,
        config: &Config,
        now: Instant,
        name: Name<'_>,
        ballot: Ballot,
    ) -> Result<DurableBody, Refusal> {
        let slot = self.table().find(name);
        let stored = slot.map(|slot| self.table().entry(slot).register).unwrap_or_default();
        if ballot < stored.bar(self.floor()) {
            return Ok(DurableBody::Reject { ballot, promised: stored.bar(self.floor()) });
        }
        if config.rules.on(Rule::ChangePrepareRaisesPromised) {
            let slot = self.entry_of(config, Label::new(name, Holder::NONE))?;
            self.table.unmark(slot).register.promised = ballot;
        }
        let register = slot.and_then(|slot| self.registers.get(slot)).map(|entry| OwnedRegister {
            ballot: entry.ballot,
            value: entry.sent(config.rules, now),
            label: entry.label.clone(),
        });
        let lease = stored.live(now).map(|live| live.tenure);
        Ok(DurableBody::Promise { ballot, lease, register })
    }

    /// K2.
    #[expect(clippy::too_many_arguments, reason = "the request, and what it is answered with")]
    fn store_durable(
        &mut self,
        config: &Config,
        out: &mut Outbox,
        now: Instant,
        from: NodeId,
        label: Label,
        ballot: Ballot,
        sent: SentValue,
    ) -> Result<Option<DurableBody>, Refusal> {
        let slot = self.table().find(label.name());
        if let Some(slot) = slot
            && self.registers.get(slot).is_some_and(|entry| entry.ballot == ballot)
        {
            let is_stored = self.registers.store_again(slot, (from, ballot));
            return Ok(is_stored.then_some(DurableBody::Stored { ballot }));
        }
        let bar = slot.map(|slot| self.table().entry(slot).register).unwrap_or_default();
        let bar = bar.bar(self.floor());
        if ballot < bar && config.rules.on(Rule::StoreObeysPromise) {
            return Ok(Some(DurableBody::Reject { ballot, promised: bar }));
        }
        let value = match sent {
            SentValue::Free { tenure, fence, by } => DurableValue::Free { tenure, fence, by },
            SentValue::Held { lasts: None, .. } => return Err(Refusal::TtlTooLong),
            SentValue::Held { tenure, fence, lasts: Some(lasts) } => {
                if let Some(why) = self.store_problem(config, slot) {
                    return Ok(Some(DurableBody::Refused { ballot, why }));
                }
                DurableValue::Held { tenure, fence, ends_at: lasts.ends_at(now) }
            }
        };
        let slot = self.entry_of(config, label.clone())?;
        let register = &mut self.table.unmark(slot).register;
        if config.rules.on(Rule::StoreRaisesPromised) {
            register.promised = register.promised.max(ballot);
        }
        // The live lease that the value ends.
        let is_over = register.live(now).is_some_and(|live| match value {
            DurableValue::Held { tenure, .. } => live.tenure != tenure,
            DurableValue::Free { tenure, .. } => live.tenure <= tenure,
        });
        if is_over {
            register.accepted = None;
            self.note_released(now, slot);
        }
        let stored = DurableRegister { label, ballot, value };
        self.registers.store(config, now, out, slot, stored, (from, ballot));
        if config.rules.on(Rule::StoredAfterDisk) {
            return Ok(None);
        }
        Ok(Some(DurableBody::Stored { ballot }))
    }

    /// K3: the end of a durable lease ends its ordinary lease too, which may have been asked to
    /// last longer: its holder gave up that belief before it set the end (K10).
    pub(crate) fn end_ordinary(
        &mut self,
        config: &Config,
        now: Instant,
        slot: Slot,
        tenure: Tenure,
    ) {
        let register = &mut self.table.unmark(slot).register;
        if register.live(now).is_some_and(|live| live.tenure == tenure) {
            register.release(config.rules, now, tenure);
            self.note_released(now, slot);
        }
    }

    /// K14: why a held value cannot be stored.
    fn store_problem(&self, config: &Config, slot: Option<Slot>) -> Option<StoreRefusal> {
        if config.durability == Durability::Refused {
            return Some(StoreRefusal::NoDisk);
        }
        let is_new = slot.is_none_or(|slot| self.registers.get(slot).is_none());
        let is_full = is_new && self.registers.len() >= config.limits.registers_max;
        (is_full || !self.registers.has_room).then_some(StoreRefusal::NoRoom)
    }

    /// The slot of a name, with an idle entry if it is new.
    fn entry_of(&mut self, config: &Config, label: Label) -> Result<Slot, Refusal> {
        if let Some(slot) = self.table.find(label.name()) {
            return Ok(slot);
        }
        if self.is_full(config) {
            return Err(Refusal::TableFull);
        }
        let slot = self.table.insert(label, Register::default());
        self.note_added();
        Ok(slot)
    }

    /// K12: takes back a register from the disk.
    pub(crate) fn restore_durable(&mut self, now: Instant, it: DurableRegister) {
        let slot = match self.table.find(it.label.name()) {
            Some(slot) => slot,
            None => self.table.insert(it.label.clone(), Register::default()),
        };
        self.registers.restore(now, slot, it);
    }

    /// K3: whether the answer to a request has to wait for the disk.
    pub(crate) fn is_writing(&self, config: &Config, name: Name<'_>) -> bool {
        !self.registers.is_empty()
            && self.table().find(name).is_some_and(|slot| self.registers.is_writing(config, slot))
    }

    /// K1, K3, K4: what a register makes of a request about an ordinary lease. `None` if the
    /// request is answered as if there were no register.
    #[cold]
    pub(crate) fn answer_by_register(
        &mut self,
        config: &Config,
        now: Instant,
        request: &Request<'_>,
    ) -> Option<Result<Option<Body>, Refusal>> {
        let slot = self.table().find(request.name())?;
        let entry = self.registers.get(slot)?;
        let waits = matches!(
            request,
            Request::Prepare { .. } | Request::Propose { .. } | Request::Inspect { .. }
        );
        if waits && self.registers.is_writing(config, slot) {
            return Some(Err(Refusal::RecordBehind));
        }
        if !entry.is_held(config.rules, now) {
            return None;
        }
        let sent = entry.sent(config.rules, now);
        let live = self.table().entry(slot).register.live(now).map(|live| live.tenure);
        match *request {
            // K4. A duplicate of the Propose that began the live tenure is accepted again.
            Request::Propose { ballot, .. }
                if live.is_none_or(|live| live.ballot() != ballot)
                    && config.rules.on(Rule::HeldRefusesPropose) =>
            {
                self.registers.check_soon(config, now, slot);
                Some(Ok(Some(self.reject_held(now, request.name(), ballot))))
            }
            Request::Prepare { ballot, .. } => {
                self.registers.check_soon(config, now, slot);
                Some(Ok(Some(self.reject_held(now, request.name(), ballot))))
            }
            Request::Heal { tenure, ballot, .. } if sent.fence() > tenure && !sent.is(tenure) => {
                let is_joint = config.cell.is_joint();
                let promised = self.table().entry(slot).register.bar(self.floor());
                Some(Ok(is_joint.then_some(Body::NotHealed { ballot, promised })))
            }
            Request::Renew { tenure, ballot, .. } if sent.is(tenure) => {
                Some(Ok(Some(DurableBody::IsDurable { ballot }.into())))
            }
            Request::Release { tenure, .. } if sent.is(tenure) => {
                Some(Ok(Some(DurableBody::IsDurable { ballot: tenure.ballot() }.into())))
            }
            Request::Propose { .. }
            | Request::Heal { .. }
            | Request::Renew { .. }
            | Request::Release { .. }
            | Request::Inspect { .. } => None,
        }
    }

    fn reject_held(&self, now: Instant, name: Name<'_>, ballot: Ballot) -> Body {
        let stored = self.table().find(name).map(|slot| self.table().entry(slot).register);
        let promised = stored.unwrap_or_default().bar(self.floor());
        Body::Reject { ballot, promised, accepted: self.sighting(now, name) }
    }

    /// P10: the answer to an Inspect.
    pub(crate) fn inspected(&self, now: Instant, name: Name<'_>, query: u64) -> Body {
        let slot = self.table().find(name);
        let entry = slot.and_then(|slot| self.registers.get(slot));
        let Some(LiveLease { seen, durable }) = slot.and_then(|slot| self.lease_at(now, slot))
        else {
            return Body::Inspected { query, accepted: None };
        };
        match entry.zip(durable) {
            Some((entry, lasts)) => {
                let (ballot, fence, label) = (entry.ballot, seen.tenure, seen.label);
                DurableBody::Inspected { query, ballot, fence, lasts, label }.into()
            }
            None => Body::Inspected { query, accepted: Some(seen) },
        }
    }

    /// The lease that a register holds, as readers see it.
    #[cold]
    pub(crate) fn registered(&self, now: Instant, slot: Slot) -> Option<LiveLease> {
        let entry = self.registers.get(slot)?;
        let rules = self.registers.rules();
        let lasts = entry.left(rules, now)?;
        let fence = entry.sent(rules, now).fence();
        let live = self.table().get(slot).and_then(|stored| stored.register.live(now));
        if live.is_some_and(|live| live.tenure > fence) {
            // A later tenure was healed here; the register is that of a minority.
            return None;
        }
        let remaining = lasts.capped(Ttl::MAX);
        let seen = Sighting { tenure: fence, remaining, label: entry.label.clone() };
        Some(LiveLease { seen, durable: Some(lasts) })
    }
}
