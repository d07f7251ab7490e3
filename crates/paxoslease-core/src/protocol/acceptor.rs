//! The acceptor of one shard: the registers of all its names, the node's floor, its quarantine
//! (protocol section 3, A0 to A7; paper, section 3 steps 2 and 4, and section 7).
//!
//! It only answers: it has no timers and sends no messages of its own. A name costs one table
//! entry, and a sweep reclaims idle entries a few at a time.

use crate::durable::registers::Registers;
use crate::ended::{Ended, EndedTenure};
use crate::first_release::FirstReleases;
use crate::outbox::{Body, LiveLease, Sighting};
use crate::protocol::record::Ceilings;
use crate::protocol::register::{Accepted, Answer, Register};
use crate::queueing::turns::Turns;
use crate::reclaiming::Reclaiming;
use crate::refusal::Refusal;
use crate::rules::{Rule, Rules};
use crate::storage::Slot;
use crate::storage::table::Table;
use crate::{
    Ballot, Config, Holder, Instant, Label, Name, NodeId, ReleaseId, Request, Tenure, Ttl,
};

/// A live lease in the snapshot that a clean stop leaves for the next start (R4).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SnapshotLease<'a> {
    /// The leased name.
    pub name: Name<'a>,
    /// The holder's text.
    pub holder: Holder<'a>,
    /// The tenure; its number is the fence.
    pub tenure: Tenure,
    /// The time left when the node stopped, rounded up. The time it was down is not deducted.
    pub remaining: Ttl,
    /// E1: whether the record was stored in the joint epoch that the node entered last.
    pub is_dated: bool,
}

/// A request that may store something under a name.
#[derive(Clone, Copy)]
struct RoundRequest<'a> {
    from: NodeId,
    name: Name<'a>,
    /// The text to store with an accepted lease; `None` in a Prepare.
    holder: Option<Holder<'a>>,
    ballot: Ballot,
    heals: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Acceptor {
    pub(crate) table: Table,
    floor: Ballot,
    quarantine_until: Instant,
    /// R5: there is no record of its promises, and its floor is not learnt yet.
    has_forgotten: bool,
    pub(crate) reclaiming: Reclaiming,
    /// Tenures that it must not store (A8).
    pub(crate) ended: Ended,
    /// Which Release of a tenure came first (A9).
    pub(crate) first_releases: FirstReleases,
    /// The registers of durable names (K1).
    pub(crate) registers: Registers,
    /// Nodes that were rejected because of a live lease.
    pub(crate) turns: Turns,
}

impl Acceptor {
    pub(crate) fn new(
        config: &Config,
        floor: Ballot,
        quarantine_until: Instant,
        has_forgotten: bool,
    ) -> Self {
        Self {
            table: Table::new(config.seed),
            floor,
            quarantine_until,
            has_forgotten,
            reclaiming: Reclaiming::default(),
            ended: Ended::default(),
            first_releases: FirstReleases::new(floor.counter().saturating_sub(1)),
            registers: Registers::new(config.rules),
            turns: Turns::default(),
        }
    }

    /// R4: stores a lease from the snapshot of a clean stop.
    pub(crate) fn restore(&mut self, config: &Config, now: Instant, lease: SnapshotLease<'_>) {
        let SnapshotLease { name, holder, tenure, remaining, is_dated } = lease;
        let mut register = Register::default();
        register.store(now, tenure, remaining);
        let slot = match self.table.find(name) {
            Some(slot) => {
                self.table.entry_mut(slot).register = register;
                slot
            }
            None => self.table.insert(Label::new(name, holder), register),
        };
        if is_dated && config.rules.on(Rule::SnapshotKeepsDates) {
            self.table.date(slot);
        }
    }

    pub(crate) fn is_quarantined(&self, now: Instant) -> bool {
        now < self.quarantine_until
    }

    pub(crate) const fn quarantine_until(&self) -> Instant {
        self.quarantine_until
    }

    pub(crate) const fn has_forgotten(&self) -> bool {
        self.has_forgotten
    }

    /// Whether the floor is to be learnt now: once, when the quarantine is over.
    pub(crate) fn take_forgotten(&mut self, now: Instant) -> bool {
        self.has_forgotten && !self.is_quarantined(now) && core::mem::take(&mut self.has_forgotten)
    }

    pub(crate) fn raise_floor(&mut self, floor: Ballot) {
        self.floor = self.floor.max(floor);
    }

    pub(crate) const fn floor(&self) -> Ballot {
        self.floor
    }

    pub(crate) fn table(&self) -> &Table {
        &self.table
    }

    /// A0, A1, R1, R2: whether a request may be answered now.
    pub(crate) fn admit(
        &self,
        config: &Config,
        ceilings: &mut Ceilings,
        counter_bound: u64,
        now: Instant,
        from: NodeId,
        request: &Request<'_>,
    ) -> Result<(), Refusal> {
        if self.is_quarantined(now) {
            return Err(Refusal::Quarantined);
        }
        let fresh = matches!(request, Request::Propose { .. });
        let (ballot, ttl) = match *request {
            Request::Prepare { ballot, .. } => (ballot, None),
            Request::Propose { ballot, ttl, .. }
            | Request::Renew { ballot, ttl, .. }
            | Request::Heal { ballot, ttl, .. } => (ballot, Some(ttl)),
            // A Release carries no counter: it changes nothing unless its tenure is stored here.
            Request::Release { .. } | Request::Inspect { .. } => return Ok(()),
        };
        let bounded = fresh || config.rules.on(Rule::RenewTtlIsBounded);
        if bounded && ttl.is_some_and(|ttl| ttl > config.cell.max_lease()) {
            return Err(Refusal::TtlTooLong);
        }
        let healed = match *request {
            Request::Heal { tenure, .. } => tenure.ballot(),
            _ => Ballot::ZERO,
        };
        if ballot.max(healed).counter() > counter_bound {
            return Err(Refusal::BallotExhausting);
        }
        if ballot.node() != Some(from) && config.rules.on(Rule::RenewalHasFreshBallot) {
            return Err(Refusal::BallotNotSenders);
        }
        let counted = fresh || config.rules.on(Rule::LeaseCeilingCountsRenewals);
        // The Release of a tenure promises a ballot above it, so a healed tenure counts as one.
        let counter_admitted = ceilings.admits_counter(ballot.max(healed).counter());
        // Only a ttl that would be stored may raise the ceiling. Otherwise a client could hold the
        // ceiling at M by renewing what it does not have.
        let ttl_admitted = match ttl {
            Some(ttl) if counted && !ceilings.covers_ttl(ttl) => {
                self.would_refuse(config.rules, now, request) || ceilings.admits_ttl(ttl)
            }
            _ => true,
        };
        if counter_admitted && ttl_admitted { Ok(()) } else { Err(Refusal::RecordBehind) }
    }

    /// Answers a request that was admitted.
    pub(crate) fn answer(
        &mut self,
        config: &Config,
        ceilings: &mut Ceilings,
        now: Instant,
        from: NodeId,
        request: &Request<'_>,
    ) -> Result<Option<Body>, Refusal> {
        if !self.registers.is_empty()
            && let Some(answer) = self.answer_by_register(config, now, request)
        {
            return answer;
        }
        match *request {
            Request::Prepare { name, ballot } => {
                let round = RoundRequest { from, name, holder: None, ballot, heals: false };
                if !self.turns.is_empty()
                    && let Some(reject) = self.reject_out_of_turn(now, round)
                {
                    return Ok(Some(reject));
                }
                self.apply(config, now, round, |register, floor| register.prepare(floor, ballot))
            }
            Request::Propose { name, ballot, ttl, holder } => {
                let Some(tenure) = Tenure::of(ballot) else {
                    return Err(Refusal::BallotNotSenders);
                };
                if self.has_ended(name, tenure) && config.rules.on(Rule::EndedTenureIsNotStored) {
                    return Ok(Some(self.reject(now, name, ballot)));
                }
                let round = RoundRequest { from, name, holder: Some(holder), ballot, heals: false };
                if !self.turns.is_empty()
                    && let Some(reject) = self.reject_out_of_turn(now, round)
                {
                    return Ok(Some(reject));
                }
                self.apply(config, now, round, |register, floor| {
                    let answer = register.propose(config.rules, now, floor, tenure, ttl);
                    if answer == Answer::Accept {
                        ceilings.accepted(ttl);
                    }
                    answer
                })
            }
            Request::Renew { name, tenure, ballot, ttl } => {
                let Some(slot) = self.table.find(name) else {
                    return Ok(Some(Body::NotHeld { ballot, promised: self.floor }));
                };
                let register = &mut self.table.unmark(slot).register;
                Ok(Some(match register.renew(config.rules, now, tenure, ballot, ttl) {
                    Answer::Accept => {
                        if config.rules.on(Rule::LeaseCeilingCountsRenewals) {
                            ceilings.accepted(ttl);
                        }
                        Body::Accept { ballot }
                    }
                    _ => Body::NotHeld { ballot, promised: register.bar(self.floor) },
                }))
            }
            Request::Heal { name, tenure, ballot, ttl, holder } => {
                let round = RoundRequest { from, name, holder: Some(holder), ballot, heals: true };
                let counted = config.rules.on(Rule::LeaseCeilingCountsRenewals);
                if self.has_ended(name, tenure) || self.has_released(tenure) {
                    return Ok(None);
                }
                let answer = self.apply(config, now, round, |register, floor| {
                    let answer = register.heal(config.rules, now, floor, tenure, ballot, ttl);
                    if counted && answer == Answer::Accept {
                        ceilings.accepted(ttl);
                    }
                    answer
                })?;
                Ok(answer.filter(|_| config.cell.is_joint()).map(|answer| match answer {
                    Body::Reject { ballot, promised, .. } => Body::NotHealed { ballot, promised },
                    _ => Body::Healed { ballot },
                }))
            }
            Request::Release { name, tenure, id } => {
                let held_in = self.table.find(name).filter(|slot| {
                    let register = &mut self.table.unmark(*slot).register;
                    register.release(config.rules, now, tenure)
                });
                let by = match held_in {
                    Some(slot) => {
                        self.note_released(now, slot);
                        self.first_releases.insert(tenure, id);
                        Some(id)
                    }
                    None => {
                        self.note_ended(config, now, name, tenure);
                        self.first_release(config, tenure)
                    }
                };
                Ok(Some(Body::Released { tenure, by }))
            }
            Request::Inspect { name, query } => Ok(Some(self.inspected(now, name, query))),
        }
    }

    /// A9: whether a tenure that was stored here is known to be released.
    fn has_released(&self, tenure: Tenure) -> bool {
        self.first_releases.get(tenure).is_some_and(|by| by != ReleaseId::FORGOTTEN)
    }

    /// A9: the Release that ended a tenure here.
    fn first_release(&self, config: &Config, tenure: Tenure) -> Option<ReleaseId> {
        let is_kept = config.rules.on(Rule::FirstReleaseIsKept);
        self.first_releases.get(tenure).filter(|_| is_kept)
    }

    /// A8: whether this acceptor must not store a tenure.
    fn has_ended(&self, name: Name<'_>, tenure: Tenure) -> bool {
        !self.ended.is_empty() && self.ended.contains(self.ended_tenure(name, tenure))
    }

    /// A8: a tenure was released that was not stored here: a message that would store it may be on
    /// its way.
    #[cold]
    fn note_ended(&mut self, config: &Config, now: Instant, name: Name<'_>, tenure: Tenure) {
        let until = now.after(config.cell.max_lease().as_duration());
        self.ended.insert(now, until, self.ended_tenure(name, tenure));
    }

    fn ended_tenure(&self, name: Name<'_>, tenure: Tenure) -> EndedTenure {
        EndedTenure { tenure, name_hash: self.table.hash(name) }
    }

    /// Rejects a round, and changes nothing.
    #[cold]
    fn reject(&self, now: Instant, name: Name<'_>, ballot: Ballot) -> Body {
        let stored = self.table.find(name).map(|slot| self.table.entry(slot).register);
        let promised = stored.unwrap_or_default().bar(self.floor);
        Body::Reject { ballot, promised, accepted: self.sighting(now, name) }
    }

    /// Rejects a round on a free name that is reserved for other nodes (protocol section 7).
    /// Changes no promise.
    #[cold]
    fn reject_out_of_turn(&mut self, now: Instant, round: RoundRequest<'_>) -> Option<Body> {
        let RoundRequest { from, ballot, .. } = round;
        let slot = self.table.find(round.name)?;
        self.turns.reserved_until(now, slot, from)?;
        let register = self.table.entry(slot).register;
        if register.live(now).is_some() {
            return None;
        }
        let promised = register.bar(self.floor);
        self.turns.on_rejected(slot, from, ballot);
        Some(Body::Reject { ballot, promised, accepted: None })
    }

    /// Whether a request with a ttl would be refused because of what is stored here. Its ttl does
    /// not concern the stable record then.
    #[cold]
    fn would_refuse(&self, rules: Rules, now: Instant, request: &Request<'_>) -> bool {
        let stored = self.table.find(request.name()).map(|slot| self.table.entry(slot).register);
        let mut register = stored.unwrap_or_default();
        let answer = match *request {
            Request::Propose { ballot, ttl, .. } => match Tenure::of(ballot) {
                Some(tenure) => register.propose(rules, now, self.floor, tenure, ttl),
                None => Answer::Reject,
            },
            Request::Renew { tenure, ballot, ttl, .. } => {
                register.renew(rules, now, tenure, ballot, ttl)
            }
            Request::Heal { tenure, ballot, ttl, .. } => {
                register.heal(rules, now, self.floor, tenure, ballot, ttl)
            }
            Request::Prepare { .. } | Request::Release { .. } | Request::Inspect { .. } => {
                return false;
            }
        };
        answer != Answer::Accept
    }

    /// Whether the limits leave no room for another name.
    pub(crate) fn is_full(&self, config: &Config) -> bool {
        self.table.len() >= config.limits.entries_max
            || self.table.spilled_bytes() >= config.limits.text_bytes_max
    }

    /// Applies a rule that may store something. A name gets its entry only if the rule did.
    fn apply(
        &mut self,
        config: &Config,
        now: Instant,
        round: RoundRequest<'_>,
        rule: impl FnOnce(&mut Register, Ballot) -> Answer,
    ) -> Result<Option<Body>, Refusal> {
        let RoundRequest { from, name, holder, ballot, .. } = round;
        let Some(slot) = self.table.find(name) else {
            let mut register = Register::default();
            let answer = rule(&mut register, self.floor);
            if answer == Answer::Reject {
                let promised = self.floor;
                return Ok(Some(Body::Reject { ballot, promised, accepted: None }));
            }
            if self.is_full(config) {
                return Err(Refusal::TableFull);
            }
            let slot = self.table.insert(Label::new(name, holder.unwrap_or_default()), register);
            self.date(config, slot, round.heals, answer);
            self.note_added();
            return Ok(Some(match answer {
                Answer::Promise => Body::Promise { ballot, accepted: None },
                _ => Body::Accept { ballot },
            }));
        };
        let floor = self.floor;
        let entry = self.table.unmark(slot);
        let register_before = entry.register;
        let before = register_before.live(now).map(|live| live.tenure);
        let answer = rule(&mut entry.register, floor);
        let live = entry.register.live(now).map(|live| live.tenure);
        // A tenure brings its text along. A Heal without the text erases none, and a Heal with the
        // text adds it where the tenure is stored without. Most holders of a name use the same text
        // each time, and comparing it takes less time than storing it again.
        if let Some(holder) = holder
            && answer == Answer::Accept
            && (live != before || entry.label.holder() == Holder::NONE)
            && entry.label.holder() != holder
        {
            let entry = self.table.entry(slot);
            let label = entry.label.with_holder(holder);
            let spills = self.table.spilled_bytes() - entry.label.heap_bytes() + label.heap_bytes();
            if label.heap_bytes() > 0 && spills > config.limits.text_bytes_max {
                // The text is a client's value, so a tenure is not stored without it.
                self.table.entry_mut(slot).register = register_before;
                return Err(Refusal::TableFull);
            }
            self.table.relabel(slot, label);
        }
        if answer == Answer::Accept {
            self.date(config, slot, round.heals, answer);
            if live.is_some_and(|tenure| tenure.ballot() == ballot) {
                self.turns.on_accepted(slot, from);
            }
            return Ok(Some(Body::Accept { ballot }));
        }
        if live.is_some() {
            self.turns.on_rejected(slot, from, ballot);
        }
        let accepted = self.sighting_at(now, slot);
        Ok(Some(if answer == Answer::Promise {
            Body::Promise { ballot, accepted }
        } else {
            let promised = self.table.entry(slot).register.bar(floor);
            Body::Reject { ballot, promised, accepted }
        }))
    }

    /// The live lease of a name in this acceptor; others may differ.
    pub(crate) fn lease(&self, now: Instant, name: Name<'_>) -> Option<LiveLease> {
        self.table.find(name).and_then(|slot| self.lease_at(now, slot))
    }

    /// The live lease in a slot; `None` too when the slot is vacant.
    pub(crate) fn lease_at(&self, now: Instant, slot: Slot) -> Option<LiveLease> {
        if !self.registers.is_empty()
            && let Some(lease) = self.registered(now, slot)
        {
            return Some(lease);
        }
        self.sighting_at(now, slot).map(|seen| LiveLease { seen, durable: None })
    }

    /// The same as [`Self::lease`], without the end of a durable lease.
    pub(crate) fn sighting(&self, now: Instant, name: Name<'_>) -> Option<Sighting> {
        self.table.find(name).and_then(|slot| self.sighting_at(now, slot))
    }

    fn sighting_at(&self, now: Instant, slot: Slot) -> Option<Sighting> {
        if !self.registers.is_empty()
            && let Some(lease) = self.registered(now, slot)
        {
            return Some(lease.seen);
        }
        let entry = self.table.get(slot)?;
        let live = entry.register.live(now)?;
        let remaining = remaining(now, live);
        Some(Sighting { tenure: live.tenure, remaining, label: entry.label.clone() })
    }
}

/// What is left of a live lease's record, rounded up: a lease never ends earlier than reported.
pub(crate) fn remaining(now: Instant, live: Accepted) -> Ttl {
    Ttl::from_duration(live.expires_at.since(now)).unwrap_or(Ttl::MAX)
}
