//! How much happened: what a verdict of "no violation" rests on.

use std::collections::{BTreeMap, BTreeSet};

use super::Tenure;
use crate::log::{Deed, End, Event, Kind, What};

/// What clients of one kind did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// Processes.
    pub clients: u64,
    /// Requests for a lease.
    pub asked: u64,
    /// Tenures.
    pub granted: u64,
    /// Refused because somebody else holds it.
    pub denied: u64,
    /// Requests that nobody knows the outcome of, whatever for.
    pub failed: u64,
    /// Renewals that succeeded.
    pub renewed: u64,
    /// Releases that were confirmed.
    pub released: u64,
    /// Beliefs that ended because the client was told so, or did not renew in time.
    pub lost: u64,
    /// Beliefs that ended with their process.
    pub crashed: u64,
}

/// How much happened in a run.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// By kind of client.
    pub by_kind: BTreeMap<Kind, Tally>,
    /// Tenures of names that more than one client held, and how many of those were given back.
    /// Only these could ever have met.
    pub contended: (u64, u64),
    /// As `contended`, of names that one client had for itself.
    pub uncontended: (u64, u64),
    /// Writes that the store took.
    pub writes_taken: u64,
    /// Writes that the store refused, because they came late.
    pub writes_refused: u64,
    /// Everything that was logged.
    pub events: u64,
}

impl Counts {
    /// Of all clients.
    #[must_use]
    pub fn total(&self) -> Tally {
        self.by_kind.values().fold(Tally::default(), |sum, tally| Tally {
            clients: sum.clients + tally.clients,
            asked: sum.asked + tally.asked,
            granted: sum.granted + tally.granted,
            denied: sum.denied + tally.denied,
            failed: sum.failed + tally.failed,
            renewed: sum.renewed + tally.renewed,
            released: sum.released + tally.released,
            lost: sum.lost + tally.lost,
            crashed: sum.crashed + tally.crashed,
        })
    }
}

pub(super) fn count(events: &[Event], tenures: &[Tenure]) -> Counts {
    let mut counts = Counts { events: events.len() as u64, ..Counts::default() };
    let mut kinds: BTreeMap<&str, Kind> = BTreeMap::new();
    for event in events {
        match &event.what {
            What::Began { client, kind, .. } => {
                kinds.insert(client, *kind);
                counts.by_kind.entry(*kind).or_default().clients += 1;
            }
            What::Asked(ask) => counts.by_kind.entry(ask.kind).or_default().asked += 1,
            What::Denied { ask, .. } => counts.by_kind.entry(ask.kind).or_default().denied += 1,
            What::Failed { client, deed: Deed::Acquire | Deed::Renew | Deed::Release, .. } => {
                if let Some(kind) = kinds.get(client.as_str()) {
                    counts.by_kind.entry(*kind).or_default().failed += 1;
                }
            }
            What::Write { accepted: true, .. } => counts.writes_taken += 1,
            What::Write { accepted: false, .. } => counts.writes_refused += 1,
            What::Held(_)
            | What::Ended { .. }
            | What::Over { .. }
            | What::ReleaseAcknowledged { .. }
            | What::Fault { .. }
            | What::Stalled { .. }
            | What::Closed
            | What::Healed { .. }
            | What::Node { .. } => {}
        }
    }
    let contended = contended(tenures);
    for tenure in tenures {
        let is_contended = contended.contains(tenure.name.as_str());
        let of = if is_contended { &mut counts.contended } else { &mut counts.uncontended };
        of.0 += 1;
        of.1 += u64::from(tenure.released_at.is_some());
        let tally = counts.by_kind.entry(tenure.kind).or_default();
        tally.granted += 1;
        tally.renewed += tenure.renewals;
        tally.released += u64::from(tenure.released_at.is_some());
        match tenure.end {
            Some(End::Lost | End::Expired) => tally.lost += 1,
            // Whoever does not say why was killed.
            Some(End::Crashed) | None => tally.crashed += 1,
            Some(End::Released) => {}
        }
    }
    counts
}

/// Names that more than one client held: the others are nobody's business.
pub(crate) fn contended(tenures: &[Tenure]) -> BTreeSet<&str> {
    let mut holders: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for held in tenures {
        holders.entry(&held.name).or_default().insert(&held.client);
    }
    holders.into_iter().filter(|(_, clients)| clients.len() > 1).map(|(name, _)| name).collect()
}
