//! The rules of the proposer (protocol section 4), and the ballots that it may issue (R1).

use std::collections::BTreeSet;

use paxoslease_core::{Event, NodeId, Record, Request};

use super::{Completion, RECENT_MAX, Round, Run, digest, requests};
use crate::input::Outputs;
use crate::model::nanos;
use crate::report::Report;

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
                Request::Heal { .. }
                | Request::Release { .. }
                | Request::Inspect { .. }
                | Request::Stand { .. } => continue,
            };
            let (number, name) = (ballot.as_u64(), request.name().to_string());
            touched.push(number);
            if let Some(known) = self.rounds.get_mut(&number) {
                // A repeated request does not begin another round.
                let same = renews == known.renews && known.name == name;
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
            let (began_at, accepts) = (self.now, BTreeSet::new());
            self.rounds.insert(number, Round { name, renews, ttl, began_at, accepts });
        }
        touched
    }

    /// The node's own acceptor accepted if its entry contains the requested lease.
    pub(super) fn own_accepts(&mut self) {
        let is_own_vote = self.core.floor().is_some();
        let (now, node) = (self.now, self.header.node);
        let recent: Vec<u64> = self.recent().map(|(ballot, _)| *ballot).collect();
        for ballot in recent.into_iter().filter(|_| is_own_vote) {
            let Some(round) = self.rounds.get_mut(&ballot) else { continue };
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
            }
        }
    }

    pub(super) fn transmits(&mut self, outputs: &Outputs, report: &mut Report) {
        let cell = self.core.config().cell;
        for transmit in &outputs.transmits {
            let (from, message) = (self.header.node, transmit.message());
            let to = transmit.receivers(&cell);
            self.sent.extend(to.map(|to| digest(from, to.get(), &message)));
        }
        for request in requests(outputs) {
            match request {
                Request::Heal { tenure, ballot, ttl, .. } => {
                    let round = self.rounds.get(&ballot.as_u64());
                    let won = round.is_some_and(|round| {
                        let same = round.renews == Some(tenure.fence());
                        same && round.ttl == Some(nanos(ttl)) && self.is_majority(round)
                    });
                    report.check("P5 a Heal follows a majority, with its ballot", won, || {
                        self.at(format!("{request:?} after {round:?}"))
                    });
                    self.not_released(tenure.fence(), ballot.as_u64(), report);
                }
                Request::Release { tenure, .. } => {
                    let tenure = tenure.fence();
                    let asked = self.released.contains_key(&tenure);
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
            match *event {
                Event::Granted { tenure, ttl, started_at, .. } => {
                    let ballot = tenure.fence();
                    report.check(
                        "P4 a void round is never granted",
                        !self.undone.contains(&ballot),
                        || self.at(format!("{event:?} after its undoing")),
                    );
                    self.completed(ballot, ballot, nanos(ttl), started_at.as_nanos(), report);
                    self.granted.insert(ballot);
                }
                Event::Renewed { tenure, ttl, started_at, .. } => {
                    let (tenure, started_at) = (tenure.fence(), started_at.as_nanos());
                    let mut rounds = self.rounds.iter().rev().filter(|(_, round)| {
                        (round.renews, round.ttl) == (Some(tenure), Some(nanos(ttl)))
                            && round.began_at == started_at
                    });
                    let won = rounds.clone().find(|(_, round)| self.is_majority(round));
                    let ballot = won.or_else(|| rounds.next()).map_or(0, |(ballot, _)| *ballot);
                    self.completed(tenure, ballot, nanos(ttl), started_at, report);
                }
                Event::Persist(record) => self.persisting(record, report),
                _ => {}
            }
        }
    }

    /// P1, P2, P3, P5: a majority accepted in time.
    pub(super) fn completed(
        &mut self,
        tenure: u64,
        ballot: u64,
        ttl: u64,
        started_at: u64,
        report: &mut Report,
    ) {
        let ends_at = started_at + self.time.belief(ttl);
        report.check("P1 a late majority counts for nothing", self.now < ends_at, || {
            self.at(format!("tenure {tenure} completes, believable until {ends_at}"))
        });
        if self.members == 1 {
            return;
        }
        let Some(round) = self.rounds.get(&ballot) else {
            report.check("P3 a majority of distinct acceptors", false, || {
                self.at(format!("tenure {tenure} completes without a round"))
            });
            return;
        };
        report.check("P3 a majority of distinct acceptors", self.is_majority(round), || {
            self.at(format!("{round:?} completes in a cell of {}", self.members))
        });
        let same = round.began_at == started_at && round.ttl == Some(ttl);
        report.check("P3 the timer is set once", same, || {
            self.at(format!("{round:?} counts from {started_at} with a ttl of {ttl}"))
        });
        let name = round.name.clone();
        self.not_released(tenure, ballot, report);
        let (at, ends_at) = (self.time.shared(self.now), self.time.shared(ends_at));
        let is_fresh = tenure == ballot;
        self.completions.push(Completion { name, tenure, is_fresh, at, ends_at });
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

    pub(super) fn is_majority(&self, round: &Round) -> bool {
        2 * round.accepts.len() > self.members
    }
}
