//! The registers of durable names in one acceptor, beside its table: what they hold, which writes
//! are under way, and when this node looks at them next.
//!
//! Every register belongs to an entry of the table, which is not reclaimed meanwhile. So a name has
//! a register only while it is durable, and ordinary names cost nothing.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;

use crate::durable::message::SentValue;
use crate::durable::value::{DurableRegister, DurableValue, DurableWrite};
use crate::outbox::{Event, Outbox};
use crate::rules::{Rule, Rules};
use crate::storage::Slot;
use crate::{Ballot, Config, Durability, Instant, Label, Lasts, MemberSet, NodeId, Tenure};

/// How long after a write a member checks whether the others have it. By then the change that
/// stored it has told all members, if all of them have it.
const CHECK_AFTER_WRITE: Duration = Duration::from_secs(1);
/// How often it checks again.
const CHECK_AGAIN: Duration = Duration::from_secs(60);
/// How long a free register is kept after every member stores it: a release whose answer was lost
/// is tried again for no longer, and finds out which release ended the tenure.
const FREE_KEPT: Duration = Duration::from_secs(3);
/// Members check one after the other, so that they do not outbid each other.
const CHECK_STAGGER: Duration = Duration::from_millis(200);

/// The register of one name.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Entry {
    /// The name, and the holder of a held value.
    pub(crate) label: Label,
    pub(crate) ballot: Ballot,
    pub(crate) value: DurableValue,
    /// The last write of this register, while it is not on disk.
    writing: Option<u64>,
    /// K3: a durable file time says that the end has passed.
    is_over: bool,
    /// K5: every member stores this value, so there is nothing to repair.
    is_settled: bool,
    /// When this node checks it; [`Instant::MAX`] for never.
    check_at: Instant,
    /// C10: the members that told this node in this epoch that this value, or a later one, is on
    /// their disks.
    told: MemberSet,
}

/// A write under way, and who waits for it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Write {
    sequence: u64,
    /// The clock when it was handed over: the file time says at least that.
    at: Instant,
    slot: Option<Slot>,
    /// The proposer and its change, to be answered by Stored.
    answer: Option<(NodeId, Ballot)>,
}

/// What became durable.
#[derive(Debug, Default)]
pub(crate) struct Written {
    /// The proposers to answer, with their changes.
    pub(crate) answers: Vec<(NodeId, Ballot)>,
    /// The leases whose end has passed for good, with the tenures that were granted.
    pub(crate) ended: Vec<(Slot, Label, Tenure)>,
}

#[derive(Clone, Debug)]
pub(crate) struct Registers {
    rules: Rules,
    by_slot: BTreeMap<Slot, Entry>,
    /// Ends that have not been noticed yet.
    ends: BTreeSet<(Instant, Slot)>,
    /// Ends that have passed, until a write with a later file time is durable.
    ending: VecDeque<(u64, Slot)>,
    checks: BTreeSet<(Instant, Slot)>,
    writes: VecDeque<Write>,
    sequence: u64,
    /// Whether the disk has room for another held value.
    pub(crate) has_room: bool,
}

impl Registers {
    pub(crate) fn new(rules: Rules) -> Self {
        Self {
            rules,
            by_slot: BTreeMap::new(),
            ends: BTreeSet::new(),
            ending: VecDeque::new(),
            checks: BTreeSet::new(),
            writes: VecDeque::new(),
            sequence: 0,
            has_room: true,
        }
    }

    pub(crate) const fn rules(&self) -> Rules {
        self.rules
    }
}

impl Entry {
    /// K3: whether the value excludes other tenures.
    pub(crate) fn is_held(&self, rules: Rules, now: Instant) -> bool {
        match self.value {
            DurableValue::Free { .. } => false,
            DurableValue::Held { ends_at, .. } if !rules.on(Rule::EndIsDurable) => now < ends_at,
            DurableValue::Held { .. } => !self.is_over,
        }
    }

    /// The value with the time left. A lease whose end is not noticed yet has a little left.
    pub(crate) fn sent(&self, rules: Rules, now: Instant) -> SentValue {
        match self.value {
            DurableValue::Free { tenure, fence, by } => SentValue::Free { tenure, fence, by },
            DurableValue::Held { tenure, fence, .. } => {
                SentValue::Held { tenure, fence, lasts: self.left(rules, now) }
            }
        }
    }

    /// What is left of a held lease; `None` once its end has passed for good, and of a free name.
    pub(crate) fn left(&self, rules: Rules, now: Instant) -> Option<Lasts> {
        let DurableValue::Held { ends_at, .. } = self.value else { return None };
        let least = Lasts::from_millis(1);
        self.is_held(rules, now).then(|| Lasts::until(ends_at, now).or(least)).flatten()
    }

    pub(crate) fn is_durable(&self) -> bool {
        self.writing.is_none()
    }

    pub(crate) fn register(&self) -> DurableRegister {
        let (label, ballot, value) = (self.label.clone(), self.ballot, self.value);
        DurableRegister { label, ballot, value }
    }
}

impl Registers {
    pub(crate) fn is_empty(&self) -> bool {
        self.by_slot.is_empty()
    }

    pub(crate) fn get(&self, slot: Slot) -> Option<&Entry> {
        self.by_slot.get(&slot)
    }

    /// K3: whether a value of this register, or that it is free, is not durable yet.
    pub(crate) fn is_writing(&self, config: &Config, slot: Slot) -> bool {
        self.get(slot).is_some_and(|entry| !entry.is_durable())
            && config.rules.on(Rule::FreeIsDurable)
    }

    /// Takes back what the disk has (K12). The file time is durable at a start, so an end that has
    /// passed by then has passed for good: this node may have said so before.
    pub(crate) fn restore(&mut self, now: Instant, slot: Slot, it: DurableRegister) {
        let DurableRegister { label, ballot, value } = it;
        let is_over = matches!(value, DurableValue::Held { ends_at, .. } if ends_at <= now);
        self.put(
            slot,
            Entry {
                label,
                ballot,
                value,
                writing: None,
                is_over,
                is_settled: false,
                check_at: Instant::MAX,
                told: MemberSet::EMPTY,
            },
        );
        self.check_at(slot, now.after(CHECK_AFTER_WRITE));
    }

    /// K2: replaces a register, and asks for the write.
    pub(crate) fn store(
        &mut self,
        config: &Config,
        now: Instant,
        out: &mut Outbox,
        slot: Slot,
        register: DurableRegister,
        answer: (NodeId, Ballot),
    ) {
        let DurableRegister { label, ballot, value } = register.clone();
        let sequence = self.write(config, now, out, Some(slot), DurableWrite::Register(register));
        if let Some(write) = self.writes.back_mut() {
            write.answer = Some(answer);
        }
        self.put(
            slot,
            Entry {
                label,
                ballot,
                value,
                writing: Some(sequence),
                is_over: false,
                is_settled: false,
                check_at: Instant::MAX,
                told: MemberSet::EMPTY,
            },
        );
        self.check_at(slot, now.after(CHECK_AFTER_WRITE).after(stagger(config)));
    }

    /// The same Store arrived again. It is answered now, or with the others that wait.
    pub(crate) fn store_again(&mut self, slot: Slot, answer: (NodeId, Ballot)) -> bool {
        let writing = self.get(slot).and_then(|entry| entry.writing);
        let write = self.writes.iter_mut().find(|write| Some(write.sequence) == writing);
        match write {
            Some(write) => {
                write.answer = Some(answer);
                false
            }
            None => true,
        }
    }

    fn put(&mut self, slot: Slot, entry: Entry) {
        self.remove(slot);
        if let DurableValue::Held { ends_at, .. } = entry.value
            && ends_at < Instant::MAX
            && !entry.is_over
        {
            self.ends.insert((ends_at, slot));
        }
        self.by_slot.insert(slot, entry);
    }

    pub(crate) fn remove(&mut self, slot: Slot) -> Option<Entry> {
        let entry = self.by_slot.remove(&slot)?;
        if let DurableValue::Held { ends_at, .. } = entry.value {
            self.ends.remove(&(ends_at, slot));
        }
        self.checks.remove(&(entry.check_at, slot));
        Some(entry)
    }

    /// K13: nothing that was stored counts for this member any more.
    pub(crate) fn clear(&mut self, config: &Config, now: Instant, out: &mut Outbox) {
        if self.is_empty() {
            return;
        }
        self.by_slot.clear();
        self.ends.clear();
        self.ending.clear();
        self.checks.clear();
        self.write(config, now, out, None, DurableWrite::Clear);
    }

    /// J3: a write for a change of an earlier epoch is not answered.
    pub(crate) fn forget_answers(&mut self) {
        self.writes.iter_mut().for_each(|write| write.answer = None);
    }

    /// K5: every member stores this value. A free register is forgotten soon.
    pub(crate) fn settle(&mut self, now: Instant, slot: Slot) {
        let Some(entry) = self.by_slot.get_mut(&slot).filter(|entry| !entry.is_settled) else {
            return;
        };
        entry.is_settled = true;
        match entry.value {
            DurableValue::Held { .. } => self.check_at(slot, Instant::MAX),
            DurableValue::Free { .. } => self.check_at(slot, now.after(FREE_KEPT)),
        }
    }

    fn write(
        &mut self,
        config: &Config,
        now: Instant,
        out: &mut Outbox,
        slot: Option<Slot>,
        write: DurableWrite,
    ) -> u64 {
        self.sequence += 1;
        let sequence = self.sequence;
        self.writes.push_back(Write { sequence, at: now, slot, answer: None });
        if config.durability == Durability::Disk {
            out.emit(Event::Durable { sequence, write: Box::new(write) });
        }
        sequence
    }

    /// The writes up to `sequence` are on disk.
    pub(crate) fn written(&mut self, config: &Config, now: Instant, sequence: u64) -> Written {
        let mut written = Written::default();
        let mut file_time = Instant::ZERO;
        while let Some(write) = self.writes.pop_front_if(|write| write.sequence <= sequence) {
            file_time = file_time.max(write.at);
            written.answers.extend(write.answer);
            if let Some(entry) = write.slot.and_then(|slot| self.by_slot.get_mut(&slot))
                && entry.writing == Some(write.sequence)
            {
                entry.writing = None;
            }
        }
        while let Some((_, slot)) = self.ending.pop_front_if(|(last, _)| *last <= sequence) {
            let Some(entry) = self.by_slot.get_mut(&slot) else { continue };
            let DurableValue::Held { tenure, ends_at, .. } = entry.value else { continue };
            if ends_at <= file_time && !entry.is_over {
                entry.is_over = true;
                written.ended.push((slot, entry.label.clone(), tenure));
                self.check_at(slot, now.after(stagger(config)));
            }
        }
        written
    }

    /// Without a disk, what is stored is never written (K14).
    pub(crate) fn written_at_once(&self, config: &Config) -> Option<u64> {
        (config.durability != Durability::Disk && !self.writes.is_empty()).then_some(self.sequence)
    }

    /// K3: an end counts only once a durable file time says that it has passed. Asks for a write.
    pub(crate) fn notice_ends(&mut self, config: &Config, now: Instant, out: &mut Outbox) {
        let before = self.ending.len();
        while let Some((ends_at, slot)) = self.ends.first().copied()
            && ends_at <= now
        {
            self.ends.pop_first();
            self.ending.push_back((self.sequence + 1, slot));
        }
        if self.ending.len() > before {
            self.write(config, now, out, None, DurableWrite::Tick);
        }
    }

    /// When an end or a check is due; [`Instant::MAX`] for never.
    pub(crate) fn next_at(&self) -> Instant {
        let first = |set: &BTreeSet<(Instant, Slot)>| set.first().map_or(Instant::MAX, |it| it.0);
        first(&self.ends).min(first(&self.checks))
    }

    /// The next register that this node has to check. It is checked again after a minute. Free
    /// registers that every member stores are forgotten instead.
    pub(crate) fn pop_check(
        &mut self,
        config: &Config,
        now: Instant,
        out: &mut Outbox,
    ) -> Option<Label> {
        loop {
            let (due_at, slot) = self.checks.first().copied()?;
            if now < due_at {
                return None;
            }
            self.check_at(slot, now.after(CHECK_AGAIN));
            let Entry { label, value, is_settled, .. } = self.get(slot)?;
            if !*is_settled || matches!(value, DurableValue::Held { .. }) {
                return Some(label.clone());
            }
            let label = label.clone();
            self.remove(slot);
            self.write(config, now, out, Some(slot), DurableWrite::Forget(label));
        }
    }

    /// A register that could not be checked now, or that the node has a reason to check.
    pub(crate) fn check_at(&mut self, slot: Slot, at: Instant) {
        let Some(entry) = self.by_slot.get_mut(&slot) else { return };
        self.checks.remove(&(entry.check_at, slot));
        entry.check_at = at;
        if at < Instant::MAX {
            self.checks.insert((at, slot));
        }
    }

    /// A contender was refused, so another client wants the name: it is worth a look whether it is
    /// held.
    pub(crate) fn check_soon(&mut self, config: &Config, now: Instant, slot: Slot) {
        let at = now.after(CHECK_AFTER_WRITE).after(stagger(config));
        if self.get(slot).is_some_and(|entry| !entry.is_settled && entry.check_at > at) {
            self.check_at(slot, at);
        }
    }

    /// A peer is connected again: it may have missed what is not settled. In a new epoch everything
    /// is checked, because other members have to store it (C10).
    pub(crate) fn check_all(&mut self, config: &Config, now: Instant, in_new_epoch: bool) {
        let is_due = |entry: &Entry| in_new_epoch || !entry.is_settled;
        let slots = self.by_slot.iter().filter(|(_, entry)| is_due(entry));
        let slots: Vec<Slot> = slots.map(|(slot, _)| *slot).collect();
        for slot in slots {
            if in_new_epoch && let Some(entry) = self.by_slot.get_mut(&slot) {
                (entry.is_settled, entry.told) = (false, MemberSet::EMPTY);
            }
            self.check_at(slot, now.after(stagger(config)));
        }
    }

    /// C10: a member has the value of this ballot on its disk. Returns whether that is new.
    pub(crate) fn told(&mut self, slot: Slot, ballot: Ballot, member: MemberSet) {
        if let Some(entry) = self.by_slot.get_mut(&slot)
            && entry.ballot <= ballot
        {
            entry.told = entry.told.with(member);
        }
    }

    /// C10: how many registers this node has not seen on the disks of a majority of the new set.
    pub(crate) fn unmoved(&self, config: &Config, own: MemberSet) -> usize {
        let cell = &config.cell;
        let is_unmoved = |entry: &&Entry| {
            let own = if entry.is_durable() { own } else { MemberSet::EMPTY };
            let is_counted = matches!(entry.value, DurableValue::Held { .. })
                || config.rules.on(Rule::FreeRegistersMove);
            is_counted && !cell.is_stored_by(entry.told.with(own))
        };
        self.by_slot.values().filter(is_unmoved).count()
    }

    /// Registers in all, those that are not settled, and the free ones among them.
    pub(crate) fn counts(&self) -> (usize, usize, usize) {
        let unsettled = self.by_slot.values().filter(|entry| !entry.is_settled).count();
        let is_free = |entry: &&Entry| matches!(entry.value, DurableValue::Free { .. });
        (self.by_slot.len(), unsettled, self.by_slot.values().filter(is_free).count())
    }

    pub(crate) fn len(&self) -> usize {
        self.by_slot.len()
    }

    /// Hashes what decides the behaviour from now on. A node that never proposes never checks.
    #[cfg(feature = "digest")]
    pub(crate) fn digest(
        &self,
        place: impl Fn(MemberSet) -> MemberSet,
        checks: bool,
        hasher: &mut impl core::hash::Hasher,
    ) {
        use core::hash::Hash;
        // Sequences count what was written before, which changes nothing.
        let relative = |sequence: u64| self.sequence - sequence;
        for (slot, entry) in &self.by_slot {
            (slot, &entry.label, entry.ballot, entry.value).hash(hasher);
            (entry.writing.map(relative), entry.is_over, entry.is_settled).hash(hasher);
            (checks.then_some(entry.check_at), place(entry.told)).hash(hasher);
        }
        for Write { sequence, at, slot, answer } in &self.writes {
            (relative(*sequence), at, slot, answer).hash(hasher);
        }
        for (sequence, slot) in &self.ending {
            (self.sequence + 1 - *sequence.min(&(self.sequence + 1)), slot).hash(hasher);
        }
        self.has_room.hash(hasher);
    }
}

/// Members check one after the other, in the order of their ids.
fn stagger(config: &Config) -> Duration {
    let members = config.cell.members().iter();
    let before = members.take_while(|member| **member < config.node).count() as u32;
    CHECK_STAGGER * before
}
