//! The rules of durable leases (protocol section 10) that the trace of one node shows.
//!
//! Judged: what an acceptor promises and stores (K1, K2), what waits for its disk (K2, K3), what a
//! held register excludes (K4), that a majority stored in time what a holder is told (K7, K9), and
//! that the disk brings the registers back (K12). Not judged: which value a change computes (K6,
//! K8), when a free register is forgotten (K5), ends and beliefs (K10, K11) and changes of members
//! (K13). While a name has a register, the rules A2 to A6 are not applied to its entry.

use std::collections::{BTreeMap, BTreeSet};

use paxoslease_core::{
    Ballot, Durability, DurableMessage, DurableRegister, DurableWrite, Event, Instant, Lasts,
    Message, Name, NodeId, SentValue, Tenure, Ttl,
};

use super::{Completion, Run, message_in};
use crate::input::{Input, Outputs};
use crate::model::{Answer, Ask, Entry};
use crate::register::{State, StoredRegister};
use crate::report::Report;

/// What the trace shows of the registers at one node.
#[derive(Debug, Default)]
pub(crate) struct Registers {
    /// The register of each name, as it was last handed over to the disk or restored.
    stored: BTreeMap<String, StoredRegister>,
    /// Writes that are not durable, by their sequence.
    pub(crate) writing: BTreeMap<u64, Written>,
    /// The ballots of the registers on disk.
    pub(crate) on_disk: BTreeMap<String, u64>,
    /// The ballots of the registers that were restored.
    pub(crate) restored: BTreeMap<String, u64>,
    /// Whether anything happened after the registers were restored.
    pub(crate) is_restored: bool,
    /// All ballots whose value has been durable here.
    durable: BTreeSet<u64>,
    /// The changes of this node whose values it sent.
    changes: BTreeMap<u64, Change>,
    /// The tokens of durable acquires.
    acquires: BTreeSet<u64>,
    /// Names in requests about registers that wait for the disk.
    waiting: BTreeSet<String>,
    /// Names that this step is about.
    touched: BTreeSet<String>,
}

/// A write under way.
#[derive(Debug)]
pub(crate) enum Written {
    Register { name: String, ballot: u64 },
    Forget { name: String },
    Clear,
    Tick,
}

/// A value that this node sent to be stored.
#[derive(Debug)]
struct Change {
    value: SentValue,
    sent_at: u64,
    epoch: u32,
    stored: BTreeSet<u16>,
}

impl Written {
    /// Whether the write may have changed the register of this name.
    pub(crate) fn is_of(&self, of: &str) -> bool {
        match self {
            Self::Register { name, .. } | Self::Forget { name } => name == of,
            Self::Clear => true,
            Self::Tick => false,
        }
    }
}

impl Registers {
    /// Whether the entry of a name follows other rules than A2 to A6 in this step.
    pub(super) fn concern(&self, name: &str) -> bool {
        self.stored.contains_key(name) || self.touched.contains(name)
    }

    pub(super) fn touched(&self) -> impl Iterator<Item = &String> {
        self.touched.iter()
    }

    /// Nothing waits for the disk any more.
    pub(super) fn stop_waiting(&mut self) {
        self.waiting.clear();
    }

    /// K3: whether a write of this register is under way.
    fn is_writing(&self, name: &str) -> bool {
        let is_it = |it: &Written| matches!(it, Written::Register { name: of, .. } if of == name);
        self.writing.values().any(is_it)
    }

    fn is_held(&self, name: &str, now: u64) -> bool {
        self.stored.get(name).is_some_and(|register| match register.state {
            State::HeldUntil(ends_at) => now < ends_at,
            State::FreedBy(_) => false,
        })
    }

    /// The writes up to this one are durable.
    fn written(&mut self, sequence: u64) {
        let later = self.writing.split_off(&(sequence + 1));
        for write in std::mem::replace(&mut self.writing, later).into_values() {
            match write {
                Written::Register { name, ballot } => {
                    self.durable.insert(ballot);
                    self.on_disk.insert(name, ballot);
                }
                Written::Forget { name } => drop(self.on_disk.remove(&name)),
                Written::Clear => self.on_disk.clear(),
                Written::Tick => {}
            }
        }
    }

    fn handed_over(&mut self, sequence: u64, write: &DurableWrite) {
        let write = match write {
            DurableWrite::Register(register) => {
                let stored = StoredRegister::of(register);
                let (name, ballot) = (stored.name.clone(), stored.ballot);
                self.stored.insert(name.clone(), stored);
                Written::Register { name, ballot }
            }
            DurableWrite::Forget(label) => {
                let name = label.name().to_string();
                self.stored.remove(&name);
                Written::Forget { name }
            }
            DurableWrite::Clear => {
                self.stored.clear();
                Written::Clear
            }
            DurableWrite::Tick => Written::Tick,
        };
        self.writing.insert(sequence, write);
    }
}

impl Run {
    /// Notes what an input says about registers.
    pub(super) fn note_durable(&mut self, input: &Input, outputs: &Outputs) {
        let registers = &mut self.registers;
        registers.touched.clear();
        registers.is_restored |= !matches!(input, Input::RestoreDurable(_));
        for message in outputs.transmits.iter().map(|transmit| transmit.message()) {
            if let Message::Durable(message) = &message {
                registers.touched.extend(message.name().map(|name| name.to_string()));
            }
        }
        match input {
            Input::AcquireDurable { token, name, .. } => {
                self.asked.insert(*token, name.clone());
                registers.acquires.insert(*token);
            }
            Input::DurableWritten { sequence } => registers.written(*sequence),
            Input::RestoreDurable(register) => {
                let (name, ballot) = (register.name.clone(), register.ballot);
                registers.durable.insert(ballot);
                registers.on_disk.insert(name.clone(), ballot);
                registers.restored.insert(name.clone(), ballot);
                registers.stored.insert(name.clone(), register.clone());
                self.entries.entry(name).or_default();
            }
            Input::Message { from, .. } => {
                let Some((_, frame)) = input.frame() else { return };
                let Some(Message::Durable(message)) = message_in(&frame) else { return };
                if let DurableMessage::Stored { ballot } = message
                    && let Some(change) = registers.changes.get_mut(&ballot.as_u64())
                    && change.epoch == self.epoch.number
                {
                    change.stored.insert(*from);
                }
                // It may wait for the disk, and be answered in a later step.
                let name = message.name().map(|name| name.to_string());
                registers.waiting.extend(name);
            }
            _ => {}
        }
        registers.touched.extend(registers.waiting.iter().cloned());
    }

    /// K1 to K3, R1: what this node answered and began about registers.
    pub(super) fn durable_messages(
        &mut self,
        input: &Input,
        outputs: &Outputs,
        issued_before: u64,
        report: &mut Report,
    ) {
        let writes = self.core.config().durability == Durability::Disk;
        for message in outputs.transmits.iter().map(|transmit| transmit.message()) {
            let Message::Durable(message) = message else { continue };
            match message {
                DurableMessage::Prepare { name, ballot } => {
                    self.change_begins(name, ballot, issued_before, report);
                }
                DurableMessage::Store { ballot, value, .. } => {
                    let (sent_at, epoch, stored) = (self.now, self.epoch.number, BTreeSet::new());
                    let change = Change { value, sent_at, epoch, stored };
                    self.registers.changes.entry(ballot.as_u64()).or_insert(change);
                }
                DurableMessage::Stored { ballot } => {
                    let is_durable = self.registers.durable.contains(&ballot.as_u64()) || !writes;
                    report.check("K2 Stored follows the disk", is_durable, || {
                        self.at(format!("{message:?}, durable: {:?}", self.registers.on_disk))
                    });
                }
                DurableMessage::Promise { ballot, .. } => {
                    self.change_promised(input, ballot, report);
                }
                DurableMessage::All { .. }
                | DurableMessage::Reject { .. }
                | DurableMessage::Refused { .. }
                | DurableMessage::Inspected { .. }
                | DurableMessage::IsDurable { .. } => {}
            }
            if message.name().is_none() {
                report.check(
                    "A0 nothing is answered in quarantine",
                    self.now >= self.quarantine_until,
                    || self.at(format!("{message:?}")),
                );
            }
        }
    }

    fn change_begins(
        &mut self,
        name: Name<'_>,
        ballot: Ballot,
        issued_before: u64,
        report: &mut Report,
    ) {
        let is_own = ballot.node().map(NodeId::get) == Some(self.header.node);
        let is_next = ballot.counter() > issued_before;
        let before = self.prepared.insert(ballot.as_u64(), name.to_string());
        let is_repeated = before.is_some_and(|before| before == name.as_str());
        report.check("R1 no ballot is issued twice", is_own && is_next || is_repeated, || {
            self.at(format!("a change with {ballot} after counter {issued_before}"))
        });
        self.issued_max = self.issued_max.max(ballot.counter());
    }

    /// K1: the acceptor promised what it was asked, if it was asked by a peer.
    fn change_promised(&self, input: &Input, ballot: Ballot, report: &mut Report) {
        let frame = input.frame();
        let asked = frame.as_ref().and_then(|(_, frame)| match message_in(frame)? {
            Message::Durable(DurableMessage::Prepare { name, ballot: of }) if of == ballot => {
                Some(name)
            }
            _ => None,
        });
        let Some(name) = asked else { return };
        let promised = self.observed(name.as_str()).map_or(0, |entry| entry.promised);
        report.check("K1 Prepare of a change", promised >= ballot.as_u64(), || {
            self.at(format!("{name}: {promised} is promised after {ballot}"))
        });
        report.check(
            "K3 nothing is answered during a write",
            !self.registers.is_writing(name.as_str()),
            || self.at(format!("{name}: {ballot} is promised")),
        );
    }

    /// Whether only a promise for a change of this node is new. Its own acceptor may be asked again
    /// without a message to any other node.
    pub(super) fn is_promised_again(&self, name: &str, before: Entry, after: Entry) -> bool {
        let is_it = self.prepared.get(&after.promised).is_some_and(|of| of == name);
        is_it && after.promised > before.promised && after.accepted == before.accepted
    }

    /// K3, K4: an ordinary request of a peer about a name with a register.
    pub(super) fn answered_by_register(
        &self,
        name: &str,
        ask: &Ask,
        answer: Answer,
        live: Option<u64>,
        report: &mut Report,
    ) {
        if matches!(ask, Ask::Prepare { .. } | Ask::Propose { .. }) {
            report.check(
                "K3 nothing is answered during a write",
                !self.registers.is_writing(name),
                || self.at(format!("{name}: {ask:?} was answered {answer:?}")),
            );
        }
        if let Ask::Propose { ballot, .. } = *ask
            && live != Some(ballot)
        {
            let is_held = self.registers.is_held(name, self.now);
            report.check(
                "K4 a held register refuses Propose",
                !is_held || answer != Answer::Accept,
                || self.at(format!("{name}: {ask:?} was answered {answer:?}")),
            );
        }
    }

    /// K2: the values that the acceptor hands over to the disk.
    pub(super) fn durable_writes(&mut self, outputs: &Outputs, report: &mut Report) {
        for event in &outputs.events {
            if let Event::Durable { sequence, write } = event {
                self.writing(*sequence, write, report);
            }
        }
    }

    fn writing(&mut self, sequence: u64, write: &DurableWrite, report: &mut Report) {
        if let DurableWrite::Register(DurableRegister { label, ballot, .. }) = write {
            let ballot = ballot.as_u64();
            let before = self.entries.get(label.name().as_str()).map_or(0, |entry| entry.promised);
            let bar = before.max(self.floor);
            report.check("K2 Store obeys the promise", ballot >= bar, || {
                self.at(format!("{write:?} below {bar}"))
            });
            let promised = self.observed(label.name().as_str()).map_or(0, |entry| entry.promised);
            report.check("K2 Store raises the promise", promised >= ballot, || {
                self.at(format!("{write:?} with a promise of {promised}"))
            });
        }
        self.registers.handed_over(sequence, write);
    }

    /// K7, K9: a majority stored the value in time that a holder is told of. Returns whether the
    /// event is about a durable lease.
    pub(super) fn durable_event(&mut self, event: &Event, report: &mut Report) -> bool {
        let (fence, started_at, lasts, token) = match *event {
            Event::Granted { token, tenure, started_at, .. }
                if self.registers.acquires.contains(&token.0) =>
            {
                (tenure, started_at, None, Some(token))
            }
            Event::Kept { fence, lasts, started_at, .. } => (fence, started_at, Some(lasts), None),
            _ => return false,
        };
        self.stored_in_time(event, fence, started_at, lasts, report);
        if let Some(token) = token {
            let name = self.asked.get(&token.0).cloned().unwrap_or_default();
            let (at, tenure) = (self.time.shared(self.now), fence.fence());
            self.granted.insert(tenure);
            // It claims no time: an earlier end may follow (K10).
            let completion = Completion { name, tenure, is_fresh: true, at, ends_at: at };
            self.completions.push(completion);
        }
        true
    }

    fn stored_in_time(
        &self,
        event: &Event,
        fence: Tenure,
        started_at: Instant,
        lasts: Option<Lasts>,
        report: &mut Report,
    ) {
        if self.confirms_alone() {
            return;
        }
        let sent = self.registers.changes.iter().filter_map(|(ballot, change)| {
            let SentValue::Held { fence: it, lasts: Some(sent), .. } = change.value else {
                return None;
            };
            let is_it = it == fence && lasts.is_none_or(|lasts| lasts == sent);
            is_it.then_some((ballot, change, sent))
        });
        let stored = sent.filter(|(ballot, change, _)| {
            let own = self.registers.durable.contains(ballot).then_some(self.header.node);
            let stored: BTreeSet<u16> = change.stored.iter().copied().chain(own).collect();
            change.epoch == self.epoch.number && self.is_stored_by(&stored)
        });
        let found = stored.max_by_key(|(ballot, ..)| **ballot);
        report.check("K7 a majority stores a value", found.is_some(), || {
            self.at(format!("{event:?} of {:?}", self.registers.changes))
        });
        let Some((_, change, lasts)) = found else { return };
        let is_since = started_at.as_nanos() == change.sent_at;
        let ttl = u64::from(lasts.capped(Ttl::MAX).as_millis()) * 1_000_000;
        let ends_at = change.sent_at + self.time.belief(ttl);
        report.check("K9 a late majority is worth nothing", is_since && self.now < ends_at, || {
            self.at(format!("{event:?} counts from {}, until {ends_at}", change.sent_at))
        });
    }
}
