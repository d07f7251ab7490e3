//! The rules of a change of members (docs/membership.md) that concern one node.
//!
//! A member that is alone in the old set confirms its rounds without a message to any other node.
//! In such an epoch, and in a cell of one, the trace does not contain the requests to its acceptor:
//! neither the acceptor nor majorities are judged there. Exclusion and fences are.

use std::collections::BTreeSet;

use paxoslease_core::{Ballot, Instant, Name, Record, Reply};

use super::acceptor::Exchange;
use super::{Round, Run};
use crate::line::{Epoch, StartState};
use crate::model::{Answer, Ask};
use crate::report::Report;

impl Run {
    pub(super) fn confirms_alone(&self) -> bool {
        self.epoch.old == [self.header.node]
    }

    /// Before the core changes over: an acceptor that was not judged may be judged from now on.
    pub(super) fn before_adoption(&mut self) {
        if self.confirms_alone() {
            let now = Instant::from_nanos(self.now);
            let slots = 0..self.core.slot_count();
            let live = slots.filter_map(|slot| self.core.lease_in(now, slot, |_| true));
            let live: Vec<String> = live.map(|lease| lease.label.name().to_string()).collect();
            self.unseen_max = self.core.counter();
            let unjudged = std::mem::take(&mut self.unjudged).into_iter();
            for name in live.into_iter().chain(self.asked.values().cloned()).chain(unjudged) {
                if Name::new(&name).is_ok_and(|name| self.core.is_dated(name)) {
                    self.dated.insert(name.clone());
                }
                if let Some(entry) = self.observed(&name) {
                    self.entries.insert(name, entry);
                }
            }
        }
    }

    /// C2, E2, J3, W2: the core has changed over to another epoch.
    pub(super) fn adopted(&mut self, epoch: &Epoch, floor: u64, report: &mut Report) {
        let before = std::mem::replace(&mut self.epoch, epoch.clone());
        self.epochs.push((epoch.clone(), Some(floor)));
        report.check("C2 an epoch never falls", epoch.number > before.number, || {
            self.at(format!("{before:?} became {epoch:?}"))
        });
        self.end_records(&before);
        if epoch.is_joint() {
            self.dated.clear();
        }
        // What waited for the disk belongs to the epoch before.
        self.waiting.clear();
        let rounds = self.rounds.iter();
        let open = rounds
            .filter(|(ballot, round)| round.renews.is_none() && !self.granted.contains(*ballot));
        self.undone.extend(open.map(|(ballot, _)| *ballot).collect::<Vec<_>>());
        let above = Ballot::from_u64(floor).map_or(0, Record::above);
        self.ceiling_min = self.ceiling_min.max(above);
        self.issued_max = self.issued_max.max(floor >> 10);
        let recorded = self.core.record().ballot_ceiling;
        if let Some(durable) = &mut self.durable {
            durable.ballot_ceiling = durable.ballot_ceiling.max(above);
            report.check("W2 an adoption raises the ballot ceiling", recorded >= above, || {
                self.at(format!("a ceiling of {recorded} with a floor of {floor}"))
            });
        }
        if let Some(found) = self.core.floor().map(Ballot::as_u64) {
            let started = match self.header.start_state {
                StartState::Crash { ballot_ceiling, .. }
                | StartState::Snapshot { ballot_ceiling, .. } => ballot_ceiling << 10 | 0x3ff,
                StartState::NewCell { .. } | StartState::NoRecord { .. } => 0,
            };
            let least = floor.max(started).max(self.floor);
            report.check("C2 an adoption raises the floor", found >= least, || {
                self.at(format!("a floor of {found}, at least {least} expected"))
            });
            self.floor = least;
            let remaining = self.core.quarantine_as_member(Instant::from_nanos(self.now));
            let until = self.now + remaining.as_nanos() as u64;
            report.check(
                "C8 a new member keeps its quarantine",
                until >= self.quarantine_until,
                || self.at(format!("until {until}, not {}", self.quarantine_until)),
            );
        }
        if self.confirms_alone() {
            self.entries.clear();
        }
    }

    /// E2: some records end. The promises stay.
    fn end_records(&mut self, before: &Epoch) {
        let Epoch { era, old, .. } = &self.epoch;
        // A node that no set lists has no records either.
        let is_old = old.contains(&self.header.node);
        let all = !is_old || *era > before.number;
        let undated = *era == before.number && before.is_joint();
        for (name, entry) in &mut self.entries {
            if all || undated && !self.dated.contains(name) {
                entry.accepted = None;
            }
        }
    }

    /// E3: whether this node's acceptor may answer a request.
    pub(super) fn answers(&self, ask: &Ask) -> bool {
        self.may_answer(ask.is_step_1())
    }

    fn may_answer(&self, is_step_1: bool) -> bool {
        let node = self.header.node;
        if is_step_1 { self.epoch.old.contains(&node) } else { self.epoch.has_member(node) }
    }

    /// E3, and section 2: Heal has answers in a joint epoch only.
    pub(super) fn answered(&self, replies: &[Reply<'_>], report: &mut Report) {
        for reply in replies.iter().filter(|_| self.epoch.number > 0) {
            let may = match reply {
                Reply::Healed { .. } | Reply::NotHealed { .. } => {
                    self.may_answer(false) && self.epoch.is_joint()
                }
                Reply::Released { .. } => self.may_answer(false),
                Reply::Promise { .. }
                | Reply::Accept { .. }
                | Reply::Reject { .. }
                | Reply::NotHeld { .. }
                | Reply::Inspected { .. } => self.may_answer(true),
            };
            report.check("E3 only members answer", may, || {
                self.at(format!("{reply:?} in {:?}", self.epoch))
            });
        }
    }

    /// E1: which records are dated.
    pub(super) fn dated(
        &mut self,
        name: &str,
        exchange: Option<Exchange>,
        own: &[(String, Ask)],
        report: &mut Report,
    ) {
        let was_dated = self.dated.contains(name);
        let is_dated = Name::new(name).is_ok_and(|name| self.core.is_dated(name));
        if is_dated {
            self.dated.insert(name.to_owned());
        } else {
            self.dated.remove(name);
        }
        if !self.epoch.is_joint() {
            return;
        }
        let dates = |ask: &Ask| matches!(ask, Ask::Propose { .. } | Ask::Heal { .. });
        if let Some(Exchange { ask, answer: Some(Answer::Accept) }) = exchange
            && matches!(ask, Ask::Propose { .. } | Ask::Heal { .. })
        {
            report.check("E1 Propose and Heal date a record", is_dated, || {
                self.at(format!("{name} after {ask:?}"))
            });
        }
        if is_dated && !was_dated {
            let own = own.iter().filter(|(of, _)| of == name).any(|(_, ask)| dates(ask));
            let caused = own
                || exchange.is_some_and(|exchange| dates(&exchange.ask))
                || self.may_repeat(name).iter().chain(&self.may_heal(name)).any(dates);
            report.check("E1 nothing else dates a record", caused, || {
                self.at(format!("{name} in {:?}", self.epoch))
            });
        }
    }

    /// J3: a round counts answers of its own epoch only.
    pub(super) fn open_round(&mut self, ballot: u64) -> Option<&mut Round> {
        let epoch = self.epoch.number;
        self.rounds.get_mut(&ballot).filter(|round| round.epoch == epoch)
    }

    /// J1, step 1: a majority of the old set accepted, in this epoch.
    pub(super) fn is_confirmed(&self, round: &Round) -> bool {
        round.epoch == self.epoch.number && is_majority(&self.epoch.old, &round.accepts)
    }

    /// P3, J1: both majorities in a joint epoch.
    pub(super) fn has_won(&self, round: &Round) -> bool {
        let is_stored = || is_majority(&self.epoch.new, &round.healed);
        self.is_confirmed(round) && (!self.epoch.is_joint() || is_stored())
    }

    /// K7, K13: majorities of both sets.
    pub(super) fn is_stored_by(&self, nodes: &BTreeSet<u16>) -> bool {
        let Epoch { old, new, .. } = &self.epoch;
        is_majority(old, nodes) && (new.is_empty() || is_majority(new, nodes))
    }

    /// The tenure of a Heal that follows this round. In a stable epoch only renewals heal (P5).
    pub(super) fn healed_tenure(&self, ballot: u64, round: &Round) -> Option<u64> {
        round.renews.or_else(|| self.epoch.is_joint().then_some(ballot))
    }
}

fn is_majority(set: &[u16], nodes: &BTreeSet<u16>) -> bool {
    2 * set.iter().filter(|node| nodes.contains(node)).count() > set.len()
}
