//! The rules of the acceptor (protocol section 3), and what must be durable before the acceptor
//! keeps it (R1, R2).
//!
//! A node's own acceptor answers its proposer directly, so the trace does not contain those
//! requests. They are the requests that the node sent to other nodes, or a Release or Heal that the
//! rules allow at that moment. The acceptor's new entry must be the result of some of them, in
//! order, applied to its old entry.

use std::collections::BTreeSet;

use paxoslease_core::{Ballot, Message, Name, Register, Reply};

use super::{Round, Run, message_in, replies, requests};
use crate::input::{Input, Outputs};
use crate::model::{Answer, Ask, Entry, nanos};
use crate::report::Report;

/// A peer's request, and the answer if the node sent one.
#[derive(Clone, Copy)]
pub(super) struct Exchange {
    pub(super) ask: Ask,
    pub(super) answer: Option<Answer>,
}

impl Run {
    /// A0 to A7, R1, R2: the answers of the node's acceptor and its new entries.
    pub(super) fn acceptor(
        &mut self,
        input: &Input,
        outputs: &Outputs,
        issued: &[u64],
        report: &mut Report,
    ) {
        let Some(floor) = self.core.floor().map(Ballot::as_u64) else { return };
        if self.confirms_alone() {
            // The node asks no other node first, so the trace does not contain its requests.
            return;
        }
        let frame = input.frame();
        let asked = frame.as_ref().and_then(|(from, frame)| match message_in(frame)? {
            Message::Request(request) => Some((*from, request)),
            Message::Reply(_) | Message::Hint(_) | Message::Durable(_) => None,
        });
        let mut own: Vec<(String, Ask)> = Vec::new();
        if matches!(input, Input::Written { .. } | Input::DurableWritten { .. }) {
            own.extend(self.waiting.iter().cloned());
        }
        own.extend(
            requests(outputs).map(|request| (request.name().to_string(), Ask::of(&request))),
        );
        let mut names: BTreeSet<String> = self.entries.keys().cloned().collect();
        names.extend(own.iter().map(|(name, _)| name.clone()));
        names.extend(asked.iter().map(|(_, request)| request.name().to_string()));
        // The acceptor is healed for names that it lost, and gets unanswered requests again,
        // without a message to any other node.
        names.extend(self.recent().map(|(_, round)| round.name.clone()));
        names.extend(self.registers.touched().cloned());
        let replies: Vec<Reply<'_>> = replies(outputs).collect();
        let quarantined = self.now < self.quarantine_until;
        report.check(
            "A0 nothing is answered in quarantine",
            !quarantined || replies.is_empty(),
            || self.at(format!("{replies:?}, quarantined until {}", self.quarantine_until)),
        );
        self.answered(&replies, report);
        report.check("A7 the floor never falls", floor >= self.floor, || {
            self.at(format!("floor from {} to {floor}", self.floor))
        });
        if self.has_forgotten && !quarantined && floor > self.floor {
            // R5: the node learns its floor before it answers.
            (self.has_forgotten, self.floor) = (false, floor);
        }
        for name in names {
            let asked = asked.as_ref().filter(|(_, request)| request.name().as_str() == name);
            let exchange = asked.map(|(_, request)| Exchange {
                ask: Ask::of(request),
                answer: replies.first().map(Answer::of),
            });
            self.name(&name, exchange, &own, issued, floor, report);
        }
        self.floor = floor;
        let unanswered = asked.filter(|_| replies.is_empty());
        self.waiting.extend(unanswered.map(|(_, ask)| (ask.name().to_string(), Ask::of(&ask))));
        self.waiting.extend(requests(outputs).map(|ask| (ask.name().to_string(), Ask::of(&ask))));
    }

    /// Checks one name: `exchange` is with a peer, `own` from this node.
    pub(super) fn name(
        &mut self,
        name: &str,
        exchange: Option<Exchange>,
        own: &[(String, Ask)],
        issued: &[u64],
        floor: u64,
        report: &mut Report,
    ) {
        let known = self.entries.get(name).copied();
        let before = known.unwrap_or_default();
        let Some(after) = self.observed(name) else {
            if let Some(gone) = self.entries.remove(name) {
                let over = gone.live(self.now).is_none();
                report.check(
                    "A7 reclaiming folds into the floor",
                    over && floor >= gone.promised,
                    || self.at(format!("{name}: {gone:?} went with a floor of {floor}")),
                );
            }
            return;
        };
        let mut expected = BTreeSet::from([before]);
        if let Some(Exchange { ask, answer }) = exchange {
            let mut next = before;
            let mut right = next.asked(self.floor, self.now, &ask);
            if let Some(answer) = answer
                && before.may_turn_away(self.floor, self.now, &ask, answer)
            {
                (next, right) = (before, answer);
            }
            let allowed = ask.ttl().is_none_or(|ttl| ttl <= self.max_lease);
            report.check(
                "A1 no ttl above M",
                allowed || (answer.is_none() && after == before),
                || self.at(format!("{ask:?} was answered {answer:?}")),
            );
            match answer {
                Some(answer) if self.registers.concern(name) => {
                    let live = before.live(self.now);
                    self.answered_by_register(name, &ask, answer, live, report);
                }
                Some(answer) => {
                    report.check(ask.rule(), answer == right, || {
                        self.at(format!("{name}: {ask:?} of {before:?} was answered {answer:?}"))
                    });
                    expected = BTreeSet::from([next]);
                }
                None if matches!(ask, Ask::Heal { .. }) => {
                    expected.insert(next);
                }
                None => {}
            }
        }
        if !expected.contains(&after) {
            let taken_back = self.may_take_back(&before, issued);
            let own = own.iter().filter(|(of, _)| of == name).map(|(_, ask)| ask);
            let (repeated, heals) = (self.may_repeat(name), self.may_heal(name));
            let own = repeated.iter().chain(own);
            let asks = taken_back.iter().chain(own).chain(&taken_back).chain(&heals);
            for ask in asks.filter(|ask| self.answers(ask)) {
                let mut next: Vec<Entry> = expected.iter().copied().collect();
                next.iter_mut().for_each(|entry| {
                    entry.asked(self.floor, self.now, ask);
                });
                expected.extend(next);
            }
        }
        if self.registers.concern(name) || self.is_promised_again(name, before, after) {
            // A register decides about it, or a change that promises for it.
            expected.insert(after);
        }
        let ask = exchange.map(|exchange| exchange.ask);
        let rule = ask.map_or("A2-A6 the own acceptor", |ask| ask.rule());
        report.check(rule, expected.contains(&after), || {
            let own: Vec<&Ask> =
                own.iter().filter(|(of, _)| of == name).map(|(_, ask)| ask).collect();
            self.at(format!("{name}: {before:?} became {after:?} after {ask:?} and own {own:?}"))
        });
        if after != before || known.is_none() {
            self.changed(name, before, after, report);
        }
        self.dated(name, exchange, own, report);
        self.entries.insert(name.to_owned(), after);
    }

    pub(super) fn changed(&mut self, name: &str, before: Entry, after: Entry, report: &mut Report) {
        let seen = |run: &Self| run.at(format!("{name}: {before:?} became {after:?}"));
        report.check("A0 nothing changes in quarantine", self.now >= self.quarantine_until, || {
            seen(self)
        });
        report.check("A7 promised never falls", after.promised >= before.promised, || seen(self));
        self.promised_max = self.promised_max.max(after.promised >> 10);
        if let Some((tenure, _)) = before.accepted
            && after.accepted.is_none()
            && self.is_open(tenure)
        {
            self.undone.insert(tenure);
        }
        let Some(durable) = self.durable else { return };
        report.check(
            "R1 ballots promised are below the durable ceiling",
            after.promised >> 10 <= durable.ballot_ceiling,
            || format!("{}, {durable:?}", seen(self)),
        );
        if let Some((_, expires_at)) = after.accepted
            && after.accepted != before.accepted
        {
            let lowest = self.writing.map_or(durable.lease_ceiling, |writing| {
                writing.lease_ceiling.min(durable.lease_ceiling)
            });
            let ceiling = lowest.map_or(0, nanos);
            report.check(
                "R2 a ttl accepted is below the durable ceiling",
                expires_at <= self.now + ceiling,
                || format!("{}, {durable:?}, {:?}", seen(self), self.writing),
            );
        }
    }

    /// Whether a fresh round of this node has not been granted: P4 and P8 allow to undo it.
    pub(super) fn is_open(&self, tenure: u64) -> bool {
        self.rounds.get(&tenure).is_some_and(|round| round.renews.is_none())
            && !self.granted.contains(&tenure)
    }

    /// Releases that this node's acceptor may get without any other acceptor.
    pub(super) fn may_take_back(&self, before: &Entry, issued: &[u64]) -> Vec<Ask> {
        let stored = before.accepted.map(|(tenure, _)| tenure);
        stored
            .into_iter()
            .chain(issued.iter().copied())
            .filter(|tenure| self.is_open(*tenure) || self.released.contains_key(tenure))
            .map(|tenure| Ask::Release { tenure })
            .collect()
    }

    /// Requests of undecided rounds, which this node's acceptor may get again without any other
    /// acceptor.
    pub(super) fn may_repeat(&self, name: &str) -> Vec<Ask> {
        let open = self.recent().filter(|(ballot, round)| {
            round.name == name
                && round.epoch == self.epoch.number
                && !self.undone.contains(ballot)
                && !self.granted.contains(ballot)
        });
        let asks = |(ballot, round): (&u64, &Round)| match (round.renews, round.ttl) {
            (Some(tenure), Some(ttl)) => vec![Ask::Renew { tenure, ballot: *ballot, ttl }],
            (_, ttl) => {
                // Its answer to the Prepare may be the one that let the Propose begin.
                let propose = ttl.map(|ttl| Ask::Propose { ballot: *ballot, ttl });
                [Ask::Prepare { ballot: *ballot }].into_iter().chain(propose).collect()
            }
        };
        open.flat_map(asks).collect()
    }

    /// Heals that this node's acceptor may get without any other acceptor.
    pub(super) fn may_heal(&self, name: &str) -> Vec<Ask> {
        self.recent()
            .filter(|(_, round)| round.name == name && self.is_confirmed(round))
            .filter_map(|(ballot, round)| {
                let tenure = self.healed_tenure(*ballot, round)?;
                Some(Ask::Heal { tenure, ballot: *ballot, ttl: round.ttl? })
            })
            .collect()
    }

    pub(super) fn observed(&self, name: &str) -> Option<Entry> {
        let Register { promised, accepted } = self.core.register(Name::new(name).ok()?)?;
        let accepted = accepted.map(|lease| (lease.tenure.fence(), lease.expires_at.as_nanos()));
        Some(Entry { promised: promised.as_u64(), accepted })
    }
}
