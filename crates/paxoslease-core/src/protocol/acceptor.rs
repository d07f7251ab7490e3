//! The acceptor of one shard: the registers of all its names, the node's floor, its quarantine
//! (protocol section 3, A0 to A7; paper, section 3 steps 2 and 4, and section 7).
//!
//! It answers and forgets: no timers, no messages of its own. Names cost one table entry each; a
//! sweep reclaims idle ones a little at a time.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use crate::outbox::{Body, Sighting};
use crate::protocol::record::Ceilings;
use crate::protocol::register::{Answer, Register};
use crate::rules::{Rule, Rules};
use crate::storage::Slot;
use crate::storage::table::{FORESEEN, Table};
use crate::{Ballot, Config, Holder, Instant, Label, Name, NodeId, Request, Tenure, Ttl};

/// Why a peer's message was dropped. Nothing was changed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Refusal {
    /// A0: this acceptor may have forgotten leases and stays silent.
    Quarantined,
    /// A1: a ttl above M.
    TtlTooLong,
    /// A1: a counter beyond [`crate::Shard::counter_bound`]. No honest peer sends one: disconnect
    /// the sender and tell the operator.
    BallotExhausting,
    /// A ballot that is not the sender's to use.
    BallotNotSenders,
    /// This node is no acceptor.
    NotAcceptor,
    /// A reply from a node that is no acceptor of this cell.
    NotMember,
    /// No room for another name.
    TableFull,
    /// It needs a higher ceiling in the stable record first, and too many such wait already.
    RecordBehind,
}

impl Refusal {
    /// Every reason, for counters by reason.
    pub const ALL: [Self; 8] = [
        Self::Quarantined,
        Self::TtlTooLong,
        Self::BallotExhausting,
        Self::BallotNotSenders,
        Self::NotAcceptor,
        Self::NotMember,
        Self::TableFull,
        Self::RecordBehind,
    ];
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Quarantined => "quarantined after a restart",
            Self::TtlTooLong => "ttl above max_lease",
            Self::BallotExhausting => "ballot that would use up the counter space",
            Self::BallotNotSenders => "ballot of another node",
            Self::NotAcceptor => "this node is no acceptor",
            Self::NotMember => "reply from a node that is no acceptor of this cell",
            Self::TableFull => "no room for another name",
            Self::RecordBehind => "waiting for the stable record",
        })
    }
}

impl core::error::Error for Refusal {}

/// A lease as a clean stop hands it to the next start (R4).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SnapshotLease<'a> {
    /// The resource.
    pub name: Name<'a>,
    /// Who holds it, for people to read.
    pub holder: Holder<'a>,
    /// Whose.
    pub tenure: Tenure,
    /// How long still, rounded up; time stopped is not credited.
    pub remaining: Ttl,
}

/// How many names can have nodes to tell when they are freed; more costs only time.
const WANTED_MAX: usize = 4096;

/// A name that was released is forgotten after this many round trips: by then whatever was
/// proposed in ignorance of the ballots it has seen has arrived.
const RECLAIM_ROUND_TRIPS: u32 = 4;
/// And not before this: a round trip may take longer than it did.
const RECLAIM_MIN: Duration = Duration::from_millis(5);

/// As many as that are forgotten soon; more are left to the sweep.
const FREED_MAX: usize = 1 << 18;

/// Slots to look at for every name that comes, so that those that expire leave as fast: a pass is
/// over before names are half as many again.
const SWEPT_PER_NAME: u32 = 4;

/// A name was released, and nothing was promised since if that is still what it promised.
#[derive(Clone, Copy, Debug)]
struct Freed {
    slot: Slot,
    promised: Ballot,
    at: Instant,
}

/// How long a freed name is kept for the nodes that waited, at most.
const TURNS_MAX: Duration = Duration::from_secs(3);

/// How often a node may leave its turn to others before it loses its place: it may be gone.
const TURNS_MISSED_MAX: u8 = 3;

/// The nodes that want a name.
#[derive(Clone, Default, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Wanted {
    /// Those that were turned away, in the order of their turns.
    queue: Vec<Place>,
    /// The name was freed: these nodes go first.
    first: Vec<NodeId>,
    /// Until then.
    first_until: Instant,
}

/// A node's place in the queue for a name. All acceptors see the same ballots, so that they agree
/// on the order even if they turned the nodes away in different orders.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Place {
    ballot: Ballot,
    node: NodeId,
    turns_missed: u8,
}

impl Wanted {
    /// Whether other nodes have their turn before this one.
    fn comes_later(&self, now: Instant, node: NodeId) -> bool {
        now < self.first_until && !self.first.contains(&node)
    }

    fn enqueue(&mut self, node: NodeId, ballot: Ballot) {
        if self.queue.len() < WANTED_MAX && !self.queue.iter().any(|place| place.node == node) {
            let at = self.queue.partition_point(|place| place.ballot <= ballot);
            self.queue.insert(at, Place { ballot, node, turns_missed: 0 });
        }
    }

    fn enqueue_last(&mut self, node: NodeId) {
        self.enqueue(node, self.queue.last().map_or(Ballot::ZERO, |last| last.ballot));
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Acceptor {
    table: Table,
    floor: Ballot,
    quarantine_until: Instant,
    /// Names to forget soon, in order of time: those that come and go are few at a time, however
    /// many stay, and few enough to be near.
    freed: VecDeque<Freed>,
    /// How soon; `None` as long as round trips are not known.
    reclaim_soon: Option<Duration>,
    /// Other nodes that were turned away from a name because of its lease.
    wanted: BTreeMap<Slot, Wanted>,
    sweep_next: u32,
    /// Slots to look at because of names that came and were not released: they expire some time.
    owed: u32,
    /// When a slot was last looked at.
    swept_at: Instant,
}

impl Acceptor {
    pub(crate) fn new(seed: u64, floor: Ballot, quarantine_until: Instant) -> Self {
        Self {
            table: Table::new(seed),
            floor,
            quarantine_until,
            freed: VecDeque::new(),
            reclaim_soon: None,
            wanted: BTreeMap::new(),
            sweep_next: 0,
            owed: 0,
            swept_at: Instant::ZERO,
        }
    }

    /// R4: takes over a lease from the snapshot of a clean stop.
    pub(crate) fn restore(&mut self, now: Instant, lease: SnapshotLease<'_>) {
        let mut register = Register::default();
        register.restore(now, lease.tenure, lease.remaining);
        match self.table.find(lease.name) {
            Some(slot) => self.table.entry_mut(slot).register = register,
            None => {
                self.table.insert(Label::new(lease.name, lease.holder), register);
            }
        }
    }

    pub(crate) fn is_quarantined(&self, now: Instant) -> bool {
        now < self.quarantine_until
    }

    pub(crate) const fn quarantine_until(&self) -> Instant {
        self.quarantine_until
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
        (ceilings, counter_bound): (&mut Ceilings, u64),
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
            // A Release teaches no counter: it changes nothing unless its tenure is stored here.
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
        // The Release of a tenure promises above it, so a healed tenure counts like a ballot.
        let counter_admitted = ceilings.admits_counter(ballot.max(healed).counter());
        // Only a ttl that would be stored may raise the ceiling, or a stranger's renewals could
        // hold it at M.
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
        request: Request<'_>,
    ) -> Result<Option<Body>, Refusal> {
        match request {
            Request::Prepare { name, ballot } => {
                if self.turned_away()
                    && let Some(reject) = self.comes_later(now, from, name, ballot)
                {
                    return Ok(Some(reject));
                }
                self.round(config, now, from, (name, None), ballot, |register, floor| {
                    register.prepare(floor, ballot)
                })
            }
            Request::Propose { name, ballot, ttl, holder } => {
                let Some(tenure) = Tenure::of(ballot) else {
                    return Err(Refusal::BallotNotSenders);
                };
                if self.turned_away()
                    && let Some(reject) = self.comes_later(now, from, name, ballot)
                {
                    return Ok(Some(reject));
                }
                let texts = (name, Some(holder));
                self.round(config, now, from, texts, ballot, |register, floor| {
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
                self.table.unmark(slot);
                let register = &mut self.table.entry_mut(slot).register;
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
                let texts = (name, Some(holder));
                let counted = config.rules.on(Rule::LeaseCeilingCountsRenewals);
                self.round(config, now, from, texts, ballot, |register, floor| {
                    let answer = register.heal(config.rules, now, floor, tenure, ballot, ttl);
                    if counted && answer == Answer::Accept {
                        ceilings.accepted(ttl);
                    }
                    answer
                })?;
                Ok(None)
            }
            Request::Release { name, tenure } => {
                let held = self.table.find(name).is_some_and(|slot| {
                    self.table.unmark(slot);
                    let register = &mut self.table.entry_mut(slot).register;
                    let held = register.release(config.rules, now, tenure);
                    if held && self.freed.len() < FREED_MAX {
                        self.freed.push_back(Freed { slot, promised: register.promised, at: now });
                    }
                    held
                });
                Ok(Some(Body::Released { tenure, held }))
            }
            Request::Inspect { name, query } => {
                Ok(Some(Body::Inspected { query, accepted: self.sighting(now, name) }))
            }
        }
    }

    /// The refusal of a round on a free name while nodes that were turned away from it have their
    /// turn (protocol section 7). Changes no promise.
    fn comes_later(
        &mut self,
        now: Instant,
        from: NodeId,
        name: Name<'_>,
        ballot: Ballot,
    ) -> Option<Body> {
        self.others_until(now, name, from)?;
        let slot = self.table.find(name)?;
        let register = self.table.entry(slot).register;
        if register.live(now).is_some() {
            return None;
        }
        self.turn_away(slot, from, ballot);
        Some(Body::Reject { ballot, promised: register.bar(self.floor), accepted: None })
    }

    /// Whether a request with a ttl would be refused for what is stored here, so that its ttl does
    /// not matter to the stable record.
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

    /// Whether there is no room for another name.
    pub(crate) fn is_full(&self, config: &Config) -> bool {
        self.table.len() >= config.limits.entries_max
            || self.table.spilled_bytes() >= config.limits.text_bytes_max
    }

    /// Applies a rule that may store something, and makes the entry for it if it does.
    fn round(
        &mut self,
        config: &Config,
        now: Instant,
        from: NodeId,
        (name, holder): (Name<'_>, Option<Holder<'_>>),
        ballot: Ballot,
        rule: impl FnOnce(&mut Register, Ballot) -> Answer,
    ) -> Result<Option<Body>, Refusal> {
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
            self.table.insert(Label::new(name, holder.unwrap_or_default()), register);
            self.owed = self.owed.saturating_add(SWEPT_PER_NAME);
            return Ok(Some(match answer {
                Answer::Promise => Body::Promise { ballot, accepted: None },
                _ => Body::Accept { ballot },
            }));
        };
        self.table.unmark(slot);
        let floor = self.floor;
        let entry = self.table.entry_mut(slot);
        let before = entry.register.live(now).map(|live| live.tenure);
        let answer = rule(&mut entry.register, floor);
        let live = entry.register.live(now).map(|live| live.tenure);
        if let Some(holder) = holder
            && answer == Answer::Accept
            && live != before
        {
            // Holders are for people to read: where there is no room for more text, there is none.
            let spilled = self.table.spilled_bytes();
            let entry = self.table.entry(slot);
            let mut label = entry.label.with_holder(holder);
            let spills = spilled - entry.label.heap_bytes() + label.heap_bytes();
            if label.heap_bytes() > 0 && spills > config.limits.text_bytes_max {
                label = entry.label.with_holder(Holder::NONE);
            }
            self.table.relabel(slot, label);
        }
        if answer == Answer::Accept {
            self.has_had_its_turn(slot, from);
            return Ok(Some(Body::Accept { ballot }));
        }
        if live.is_some() {
            self.turn_away(slot, from, ballot);
        }
        let accepted = self.sighting_at(now, slot);
        Ok(Some(if answer == Answer::Promise {
            Body::Promise { ballot, accepted }
        } else {
            let promised = self.table.entry(slot).register.bar(floor);
            Body::Reject { ballot, promised, accepted }
        }))
    }

    fn turn_away(&mut self, slot: Slot, node: NodeId, ballot: Ballot) {
        if self.wanted.len() < WANTED_MAX || self.wanted.contains_key(&slot) {
            self.wanted.entry(slot).or_default().enqueue(node, ballot);
        }
    }

    /// Whether any node was turned away from any name.
    pub(crate) fn turned_away(&self) -> bool {
        !self.wanted.is_empty()
    }

    /// A node freed a name: the nodes that were turned away from it, in the order of their turns.
    /// A node keeps its place until it takes its turn or missed several. The node that freed the
    /// name may want it again, and is the last; where no other node waits, nothing is kept. A node
    /// that waits itself is among them next time, even if it was turned away by others only. For
    /// `turn_span` each, twice over, nodes that did not wait come behind them.
    pub(crate) fn turns(
        &mut self,
        now: Instant,
        name: Name<'_>,
        from: NodeId,
        waits_here: Option<NodeId>,
        turn_span: Duration,
    ) -> Vec<NodeId> {
        if self.wanted.is_empty() {
            return Vec::new();
        }
        let Some(slot) = self.table.find(name) else { return Vec::new() };
        let Some(wanted) = self.wanted.get_mut(&slot) else { return Vec::new() };
        if wanted.queue.iter().all(|place| place.node == from) {
            self.wanted.remove(&slot);
            return Vec::new();
        }
        let turns: Vec<NodeId> = wanted.queue.iter().map(|place| place.node).collect();
        // A round that was undone, or a Release that was repeated, ends nobody's turn.
        if now >= wanted.first_until
            && let Some(first) = wanted.queue.first_mut()
        {
            first.turns_missed += 1;
            if first.turns_missed >= TURNS_MISSED_MAX {
                wanted.queue.remove(0);
            }
        }
        let count = u32::try_from(turns.len()).unwrap_or(u32::MAX);
        let span = turn_span.saturating_mul(2).saturating_mul(count).min(TURNS_MAX);
        wanted.first_until = now.after(span);
        wanted.first.clone_from(&turns);
        for node in waits_here.into_iter().chain([from]) {
            wanted.enqueue_last(node);
        }
        turns
    }

    /// Until when other nodes have their turn before this one.
    pub(crate) fn others_until(
        &self,
        now: Instant,
        name: Name<'_>,
        node: NodeId,
    ) -> Option<Instant> {
        let wanted = self.wanted.get(&self.table.find(name)?)?;
        wanted.comes_later(now, node).then_some(wanted.first_until)
    }

    fn has_had_its_turn(&mut self, slot: Slot, node: NodeId) {
        if let Some(wanted) = self.wanted.get_mut(&slot) {
            wanted.queue.retain(|place| place.node != node);
            wanted.first_until = Instant::ZERO;
            if wanted.queue.is_empty() {
                self.wanted.remove(&slot);
            }
        }
    }

    #[cfg(feature = "digest")]
    pub(crate) const fn wanted(&self) -> &BTreeMap<Slot, Wanted> {
        &self.wanted
    }

    #[cfg(feature = "digest")]
    pub(crate) const fn sweep_state(&self) -> (u32, Instant) {
        (self.sweep_next, self.swept_at)
    }

    /// The live lease of a name, as this acceptor alone sees it.
    pub(crate) fn sighting(&self, now: Instant, name: Name<'_>) -> Option<Sighting> {
        self.table.find(name).and_then(|slot| self.sighting_at(now, slot))
    }

    /// The live lease in a slot; `None` too when the slot is vacant.
    pub(crate) fn sighting_at(&self, now: Instant, slot: Slot) -> Option<Sighting> {
        let entry = self.table.get(slot)?;
        let live = entry.register.live(now)?;
        // Rounded up: a lease is never over earlier than it says.
        let remaining = Ttl::from_duration(live.expires_at.since(now)).unwrap_or(Ttl::MAX);
        Some(Sighting { tenure: live.tenure, remaining, label: entry.label.clone() })
    }

    /// The longest round trip to any peer.
    pub(crate) fn set_round_trip(&mut self, round_trip: Duration) {
        self.reclaim_soon = Some(round_trip.saturating_mul(RECLAIM_ROUND_TRIPS).max(RECLAIM_MIN));
    }

    /// A7: forgets what was released a few round trips ago, and looks at some slots for others to
    /// forget.
    pub(crate) fn sweep(
        &mut self,
        config: &Config,
        now: Instant,
        slots_max: u32,
        expired: impl FnMut(&Label, Tenure),
    ) {
        self.sweep_freed(config, now, slots_max);
        let looked_at = self.sweep_slots(config, now, slots_max, expired);
        self.owed = self.owed.saturating_sub(looked_at);
    }

    /// As [`Self::sweep`], but looks only at as many slots as there is reason to.
    pub(crate) fn sweep_owed(
        &mut self,
        config: &Config,
        now: Instant,
        slots_max: u32,
        expired: impl FnMut(&Label, Tenure),
    ) {
        self.sweep_freed(config, now, slots_max);
        let slots = self.owed.min(slots_max);
        self.owed -= self.sweep_slots(config, now, slots, expired);
    }

    fn sweep_freed(&mut self, config: &Config, now: Instant, names_max: u32) {
        let after = config.reclaim_after.min(self.reclaim_soon.unwrap_or(Duration::MAX));
        let is_over = |freed: &Freed| now >= freed.at.after(after);
        for place in 0..names_max as usize {
            if place.is_multiple_of(FORESEEN) && self.table.is_large() {
                let over = self.freed.iter().take(FORESEEN).take_while(|freed| is_over(freed));
                let entries = over.filter_map(|freed| self.table.get(freed.slot));
                self.table.foresee(entries.map(|entry| entry.label.name().as_bytes()));
            }
            let Some(Freed { slot, promised, .. }) =
                self.freed.pop_front_if(|freed| is_over(freed))
            else {
                return;
            };
            let entry = self.table.get(slot).filter(|entry| entry.register.promised == promised);
            if entry.is_some_and(|entry| entry.register.live(now).is_none()) {
                self.reclaim(config, slot);
                self.owed = self.owed.saturating_sub(SWEPT_PER_NAME);
            }
        }
    }

    /// Reclaims entries that stayed idle for a whole pass. The next pass begins `reclaim_after`
    /// after the last one ended. Says how many slots it looked at.
    fn sweep_slots(
        &mut self,
        config: &Config,
        now: Instant,
        slots_max: u32,
        mut expired: impl FnMut(&Label, Tenure),
    ) -> u32 {
        for looked_at in 0..slots_max {
            if self.sweep_next >= self.table.slot_count() {
                if now < self.swept_at.after(config.reclaim_after) {
                    return looked_at;
                }
                self.sweep_next = 0;
                if self.table.is_empty() {
                    return looked_at;
                }
            }
            self.swept_at = now;
            let slot = Slot::new(self.sweep_next);
            self.sweep_next += 1;
            let Some(entry) = self.table.get(slot) else { continue };
            if entry.register.live(now).is_some() {
                continue;
            }
            if !self.table.is_marked(slot) {
                if let Some(over) = entry.register.accepted {
                    expired(&entry.label, over.tenure);
                }
                self.table.mark(slot);
                continue;
            }
            self.reclaim(config, slot);
        }
        slots_max
    }

    /// A7: what it promised is folded into the floor.
    fn reclaim(&mut self, config: &Config, slot: Slot) {
        let entry = self.table.remove(slot);
        self.wanted.remove(&slot);
        if config.rules.on(Rule::ReclaimFoldsIntoFloor) {
            self.floor = self.floor.max(entry.register.promised);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cell, Drift};

    #[test]
    fn names_released_beyond_the_bound_are_left_to_the_sweep() {
        let node = NodeId::new(1).unwrap();
        let ttl = Ttl::from_millis(10_000).unwrap();
        let cell = Cell::new(&[node], ttl, Drift::NONE).unwrap();
        let config = Config::new(node, cell, 1);
        let mut ceilings = Ceilings::none(Instant::ZERO);
        let mut acceptor = Acceptor::new(1, Ballot::ZERO, Instant::ZERO);
        acceptor.set_round_trip(Duration::ZERO);
        let gone = Freed { slot: Slot::new(u32::MAX), promised: Ballot::ZERO, at: Instant::ZERO };
        acceptor.freed.extend(core::iter::repeat_n(gone, FREED_MAX - 1));
        for (counter, text) in [(1, "remembered"), (2, "left")] {
            let (name, ballot) = (Name::new(text).unwrap(), Ballot::new(counter, node));
            let tenure = Tenure::of(ballot).unwrap();
            let propose = Request::Propose { name, ballot, ttl, holder: Holder::NONE };
            for request in [propose, Request::Release { name, tenure }] {
                let now = Instant::ZERO;
                acceptor.answer(&config, &mut ceilings, now, node, request).expect("room");
            }
        }
        assert_eq!((acceptor.freed.len(), acceptor.table.len()), (FREED_MAX, 2));
        let mut now = Instant::ZERO.after(RECLAIM_MIN);
        acceptor.sweep_freed(&config, now, u32::MAX);
        assert_eq!((acceptor.freed.len(), acceptor.table.len()), (0, 1));
        assert!(acceptor.table.find(Name::new("left").unwrap()).is_some());
        for _ in 0..2 {
            acceptor.sweep(&config, now, 100, |_, _| panic!("it was released"));
            now = now.after(config.reclaim_after);
        }
        assert_eq!(acceptor.table.len(), 0);
    }
}
