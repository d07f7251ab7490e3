//! The rules of the proposer (protocol section 4), and the ballots that it may issue (R1).

use std::collections::BTreeSet;

use paxoslease_core::{Event, Message, NodeId, Record, Request};

use super::{Completion, RECENT_MAX, Round, Run, digest, requests};
use crate::input::Outputs;
use crate::model::{Ask, nanos};
use crate::report::Report;

/// A round that the core reports as won.
pub(super) struct Completing {
    token: u64,
    tenure: u64,
    ballot: u64,
}

impl Run {
    /// The ballots of the rounds that this step began or continued.
    pub(super) fn rounds_begun(&mut self, outputs: &Outputs, report: &mut Report) -> Vec<u64> {
        let ceiling = self.durable.map_or(u64::MAX, |record| record.ballot_ceiling);
        let mut touched = Vec::new();
        for request in requests(outputs) {
            let (ballot, renews, ttl) = match request {
                Request::Prepare { ballot, .. } => (ballot, None, None),
                Request::Propose { ballot, ttl, .. } => (ballot, None, Some(nanos(ttl))),
                Request::Renew { tenure, ballot, ttl, .. } => {
                    (ballot, Some(tenure.fence()), Some(nanos(ttl)))
                }
                Request::Heal { .. } | Request::Release { .. } | Request::Inspect { .. } => {
                    continue;
                }
            };
            let (number, name) = (ballot.as_u64(), request.name().to_string());
            touched.push(number);
            if let Some(known) = self.rounds.get_mut(&number) {
                // A repeated request does not begin another round.
                let epoch = self.epoch.number;
                let same = renews == known.renews && known.name == name && known.epoch == epoch;
                known.ttl = known.ttl.or(ttl);
                report.check("P5 no ballot is used for two rounds", same, || {
                    self.at(format!("{request:?} uses a ballot again"))
                });
                continue;
            }
            let is_own = ballot.node().map(NodeId::get) == Some(self.header.node);
            let is_next = ballot.counter() > self.issued_max;
            report.check("R1 no ballot is issued twice", is_own && is_next, || {
                self.at(format!("{request:?} after counter {}", self.issued_max))
            });
            report.check(
                "R1 ballots issued are below the durable ceiling",
                ballot.counter() <= ceiling,
                || self.at(format!("{request:?} with a ceiling of {ceiling}")),
            );
            self.issued_max = self.issued_max.max(ballot.counter());
            let (began_at, epoch) = (self.now, self.epoch.number);
            let (accepts, healed) = (BTreeSet::new(), BTreeSet::new());
            let round = Round { name, renews, ttl, began_at, epoch, accepts, healed };
            self.rounds.insert(number, round);
        }
        touched
    }

    /// The node's own acceptor accepted if its entry contains the requested lease.
    pub(super) fn own_accepts(&mut self) {
        let is_own_vote = self.core.floor().is_some() && self.epoch.has_member(self.header.node);
        let (now, node) = (self.now, self.header.node);
        let recent: Vec<u64> = self.recent().map(|(ballot, _)| *ballot).collect();
        for ballot in recent.into_iter().filter(|_| is_own_vote) {
            let Some(round) = self.rounds.get_mut(&ballot) else { continue };
            if round.epoch != self.epoch.number {
                continue;
            }
            let Some(entry) = self.entries.get(&round.name) else { continue };
            let Some((tenure, expires_at)) = entry.accepted.filter(|(_, at)| now < *at) else {
                continue;
            };
            let has_it = match (round.renews, round.ttl) {
                (Some(renewed), Some(ttl)) => {
                    tenure == renewed && expires_at >= round.began_at + ttl
                }
                _ => tenure == ballot,
            };
            if has_it {
                round.accepts.insert(node);
                round.healed.extend(self.dated.contains(&round.name).then_some(node));
            }
        }
    }

    pub(super) fn transmits(&mut self, outputs: &Outputs, report: &mut Report) {
        let cell = self.core.config().cell;
        for transmit in &outputs.transmits {
            let (from, message) = (self.header.node, transmit.message());
            let epoch = self.epoch.number;
            let is_step_1 =
                matches!(message, Message::Request(request) if Ask::of(&request).is_step_1());
            for to in transmit.receivers(&cell).map(NodeId::get) {
                self.sent.insert(digest(epoch, from, to, &message));
                if self.epoch.is_joint() && is_step_1 {
                    report.check("J1 the old set confirms", self.epoch.old.contains(&to), || {
                        self.at(format!("{message:?} to node {to} in {:?}", self.epoch))
                    });
                }
            }
        }
        for request in requests(outputs) {
            match request {
                Request::Heal { tenure, ballot, ttl, .. } => {
                    let ballot_number = ballot.as_u64();
                    let round = self.rounds.get(&ballot_number);
                    let won = self.confirms_alone()
                        || round.is_some_and(|round| {
                            let healed = self.healed_tenure(ballot_number, round);
                            healed == Some(tenure.fence())
                                && round.ttl == Some(nanos(ttl))
                                && self.is_confirmed(round)
                        });
                    report.check("P5 a Heal follows a majority, with its ballot", won, || {
                        self.at(format!("{request:?} after {round:?}"))
                    });
                    self.not_released(tenure.fence(), ballot.as_u64(), report);
                }
                Request::Release { tenure, .. } => {
                    let tenure = tenure.fence();
                    let is_unseen =
                        tenure >> 10 <= self.unseen_max && !self.rounds.contains_key(&tenure);
                    let asked =
                        self.released.contains_key(&tenure) || self.confirms_alone() || is_unseen;
                    let passed_on = self.released_elsewhere.contains(&tenure);
                    report.check(
                        "P5, P8 only fresh rounds are undone",
                        asked || passed_on || self.is_open(tenure),
                        || self.at(format!("{request:?} without being asked")),
                    );
                    self.undone.extend((!asked && !passed_on).then_some(tenure));
                }
                _ => {}
            }
        }
    }

    /// P6: a round that began before a release has no effect after it.
    pub(super) fn not_released(&self, tenure: u64, ballot: u64, report: &mut Report) {
        let began_at = self.rounds.get(&ballot).map_or(0, |round| round.began_at);
        let released_at = self.released.get(&tenure);
        report.check(
            "P6 a released tenure is over",
            released_at.is_none_or(|at| *at < began_at),
            || self.at(format!("tenure {tenure} goes on, released at {released_at:?}")),
        );
    }

    pub(super) fn events(&mut self, outputs: &Outputs, report: &mut Report) {
        for event in &outputs.events {
            if self.durable_event(event, report) {
                continue;
            }
            match *event {
                Event::Granted { token, tenure, ttl, started_at, .. } => {
                    let ballot = tenure.fence();
                    report.check(
                        "P4 a void round is never granted",
                        !self.undone.contains(&ballot),
                        || self.at(format!("{event:?} after its undoing")),
                    );
                    let round = Completing { token: token.0, tenure: ballot, ballot };
                    self.completed(round, nanos(ttl), started_at.as_nanos(), report);
                    self.granted.insert(ballot);
                }
                Event::Renewed { token, tenure, ttl, started_at, .. } => {
                    let (tenure, started_at) = (tenure.fence(), started_at.as_nanos());
                    let mut rounds = self.rounds.iter().rev().filter(|(_, round)| {
                        (round.renews, round.ttl) == (Some(tenure), Some(nanos(ttl)))
                            && round.began_at == started_at
                    });
                    let won = rounds.clone().find(|(_, round)| self.has_won(round));
                    let ballot = won.or_else(|| rounds.next()).map_or(0, |(ballot, _)| *ballot);
                    let round = Completing { token: token.0, tenure, ballot };
                    self.completed(round, nanos(ttl), started_at, report);
                }
                Event::Persist(record) => self.persisting(record, report),
                _ => {}
            }
        }
    }

    /// P1, P2, P3, P5: a majority accepted in time.
    pub(super) fn completed(
        &mut self,
        Completing { token, tenure, ballot }: Completing,
        ttl: u64,
        started_at: u64,
        report: &mut Report,
    ) {
        let ends_at = started_at + self.time.belief(ttl);
        report.check("P1 a late majority counts for nothing", self.now < ends_at, || {
            self.at(format!("tenure {tenure} completes, believable until {ends_at}"))
        });
        let (at, shared_end) = (self.time.shared(self.now), self.time.shared(ends_at));
        let is_fresh = tenure == ballot;
        if self.confirms_alone() {
            // No request of this round was sent, except to the new members of a joint epoch.
            let name = self.asked.get(&token).cloned().unwrap_or_default();
            let is_fresh = is_fresh && self.granted.insert(tenure);
            self.completions.push(Completion { name, tenure, is_fresh, at, ends_at: shared_end });
            return;
        }
        let Some(round) = self.rounds.get(&ballot) else {
            report.check("P3 a majority of distinct acceptors", false, || {
                self.at(format!("tenure {tenure} completes without a round"))
            });
            return;
        };
        report.check("P3 a majority of distinct acceptors", self.has_won(round), || {
            self.at(format!("{round:?} completes in {:?}", self.epoch))
        });
        let same = round.began_at == started_at && round.ttl == Some(ttl);
        report.check("P3 the timer is set once", same, || {
            self.at(format!("{round:?} counts from {started_at} with a ttl of {ttl}"))
        });
        let name = round.name.clone();
        self.not_released(tenure, ballot, report);
        self.completions.push(Completion { name, tenure, is_fresh, at, ends_at: shared_end });
    }

    pub(super) fn persisting(&mut self, record: Record, report: &mut Report) {
        self.writing = Some(record);
        let ceiling = record.lease_ceiling.map_or(0, nanos);
        let quarantined = self.now < self.quarantine_until;
        let inherited = self.header.start_state.longest_lost().as_nanos() as u64;
        report.check(
            "R2 the lease ceiling is kept in quarantine",
            !quarantined || ceiling >= inherited,
            || self.at(format!("{record:?} after {inherited} ns")),
        );
        let longest = self.entries.values().filter_map(|entry| entry.accepted);
        let longest = longest.map(|(_, at)| at.saturating_sub(self.now)).max().unwrap_or(0);
        report.check("R2 the lease ceiling covers what is out", ceiling >= longest, || {
            self.at(format!("{record:?} with {longest} ns left of a lease"))
        });
    }

    /// The rounds that may still be under way, newest first.
    pub(super) fn recent(&self) -> impl Iterator<Item = (&u64, &Round)> {
        self.rounds.iter().rev().take(RECENT_MAX)
    }
}
