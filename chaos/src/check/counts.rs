//! How much happened: what a verdict of "no violation" rests on.

use std::collections::BTreeMap;

use super::{Tenure, by_name};
use crate::log::{EndReason, Event, EventKind, Kind};

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    pub clients: u64,
    pub asked: u64,
    pub granted: u64,
    /// Refused because another client holds the lease.
    pub denied: u64,
    /// Requests of any kind with an unknown outcome.
    pub failed: u64,
    pub renewed: u64,
    pub released: u64,
    /// Beliefs that ended by an answer of the cell, or because a renewal was late.
    pub lost: u64,
    pub crashed: u64,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    pub by_kind: BTreeMap<Kind, Tally>,
    /// Tenures of names that more than one client held, and how many were released. Only these
    /// could overlap.
    pub contended: (u64, u64),
    /// The same, of names that one client held only.
    pub uncontended: (u64, u64),
    pub writes_taken: u64,
    pub writes_refused: u64,
    pub events: u64,
}

impl Counts {
    fn of(&mut self, kind: Kind) -> &mut Tally {
        self.by_kind.entry(kind).or_default()
    }
}

pub(super) fn count(events: &[Event], tenures: &[Tenure]) -> Counts {
    let mut counts = Counts { events: events.len() as u64, ..Counts::default() };
    for event in events {
        match &event.what {
            EventKind::Began { kind, .. } => counts.of(*kind).clients += 1,
            EventKind::Asked(ask) => counts.of(ask.kind).asked += 1,
            EventKind::Denied { ask, .. } => counts.of(ask.kind).denied += 1,
            EventKind::Failed { ask, .. } => counts.of(ask.kind).failed += 1,
            EventKind::Write { accepted: true, .. } => counts.writes_taken += 1,
            EventKind::Write { accepted: false, .. } => counts.writes_refused += 1,
            EventKind::Held(_)
            | EventKind::Ended { .. }
            | EventKind::Over { .. }
            | EventKind::ReleaseAcknowledged(_)
            | EventKind::Fault { .. }
            | EventKind::Stalled { .. }
            | EventKind::Closed
            | EventKind::Healed { .. }
            | EventKind::Node { .. } => {}
        }
    }
    for tenures in by_name(tenures).values() {
        let is_contended = tenures.iter().any(|tenure| tenure.client != tenures[0].client);
        let of = if is_contended { &mut counts.contended } else { &mut counts.uncontended };
        of.0 += tenures.len() as u64;
        of.1 += tenures.iter().filter(|tenure| tenure.released_at.is_some()).count() as u64;
    }
    for tenure in tenures {
        let tally = counts.of(tenure.kind);
        tally.granted += 1;
        tally.renewed += tenure.renewals;
        tally.released += u64::from(tenure.released_at.is_some());
        match tenure.end {
            Some(EndReason::Lost | EndReason::Expired) => tally.lost += 1,
            // A tenure without a logged end was killed with its process.
            Some(EndReason::Crashed) | None => tally.crashed += 1,
            Some(EndReason::Released) => {}
        }
    }
    counts
}
