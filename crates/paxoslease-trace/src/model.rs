//! Sections 3 and 5 of docs/protocol.md, written from the page and not from the core.
//!
//! Ballots, tenures, instants and spans are plain numbers; spans are in nanoseconds.

use paxoslease_core::{Reply, Request, Ttl};

/// An acceptor's entry for one name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) struct Entry {
    pub(crate) promised: u64,
    /// Tenure and `expires_at`.
    pub(crate) accepted: Option<(u64, u64)>,
}

/// A request to an acceptor about one name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ask {
    Prepare { ballot: u64 },
    Propose { ballot: u64, ttl: u64 },
    Renew { tenure: u64, ballot: u64, ttl: u64 },
    Heal { tenure: u64, ballot: u64, ttl: u64 },
    Release { tenure: u64 },
    Inspect,
}

/// The acceptor's answer. A Heal has one only in a joint epoch: Healed is an Accept, and NotHealed
/// is a NotHeld.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    Promise { accepted: Option<u64> },
    Accept,
    Reject { promised: u64, accepted: Option<u64> },
    NotHeld { promised: u64 },
    Released { held: bool },
    Inspected { accepted: Option<u64> },
}

pub(crate) const fn nanos(ttl: Ttl) -> u64 {
    ttl.as_millis() as u64 * 1_000_000
}

impl Ask {
    pub(crate) fn of(request: &Request<'_>) -> Self {
        match *request {
            Request::Prepare { ballot, .. } => Self::Prepare { ballot: ballot.as_u64() },
            Request::Propose { ballot, ttl, .. } => {
                Self::Propose { ballot: ballot.as_u64(), ttl: nanos(ttl) }
            }
            Request::Renew { tenure, ballot, ttl, .. } => {
                let (tenure, ballot, ttl) = (tenure.fence(), ballot.as_u64(), nanos(ttl));
                Self::Renew { tenure, ballot, ttl }
            }
            Request::Heal { tenure, ballot, ttl, .. } => {
                let (tenure, ballot, ttl) = (tenure.fence(), ballot.as_u64(), nanos(ttl));
                Self::Heal { tenure, ballot, ttl }
            }
            Request::Release { tenure, .. } => Self::Release { tenure: tenure.fence() },
            Request::Inspect { .. } => Self::Inspect,
        }
    }

    pub(crate) const fn rule(&self) -> &'static str {
        match self {
            Self::Prepare { .. } => "A2 Prepare",
            Self::Propose { .. } => "A3 Propose",
            Self::Renew { .. } => "A4 Renew",
            Self::Heal { .. } => "A5 Heal",
            Self::Release { .. } => "A6 Release",
            Self::Inspect => "Inspect changes nothing",
        }
    }

    /// J1: whether only the old set is asked this in a joint epoch.
    pub(crate) const fn is_step_1(&self) -> bool {
        match self {
            Self::Prepare { .. } | Self::Propose { .. } | Self::Renew { .. } | Self::Inspect => {
                true
            }
            Self::Heal { .. } | Self::Release { .. } => false,
        }
    }

    pub(crate) const fn ttl(&self) -> Option<u64> {
        match *self {
            Self::Propose { ttl, .. } | Self::Renew { ttl, .. } | Self::Heal { ttl, .. } => {
                Some(ttl)
            }
            Self::Prepare { .. } | Self::Release { .. } | Self::Inspect => None,
        }
    }
}

impl Answer {
    pub(crate) fn of(reply: &Reply<'_>) -> Self {
        let tenure = |seen: &paxoslease_core::Seen<'_>| seen.tenure.fence();
        match reply {
            Reply::Promise { accepted, .. } => {
                Self::Promise { accepted: accepted.as_ref().map(tenure) }
            }
            Reply::Accept { .. } | Reply::Healed { .. } => Self::Accept,
            Reply::Reject { promised, accepted, .. } => Self::Reject {
                promised: promised.as_u64(),
                accepted: accepted.as_ref().map(tenure),
            },
            Reply::NotHeld { promised, .. } | Reply::NotHealed { promised, .. } => {
                Self::NotHeld { promised: promised.as_u64() }
            }
            Reply::Released { held, .. } => Self::Released { held: *held },
            Reply::Inspected { accepted, .. } => {
                Self::Inspected { accepted: accepted.as_ref().map(tenure) }
            }
        }
    }
}

impl Entry {
    /// The tenure of the lease that has not expired (A1).
    pub(crate) fn live(&self, now: u64) -> Option<u64> {
        self.accepted.filter(|(_, expires_at)| now < *expires_at).map(|(tenure, _)| tenure)
    }

    /// A2 to A6: the answer to a request. Changes the entry accordingly.
    pub(crate) fn asked(&mut self, floor: u64, now: u64, ask: &Ask) -> Answer {
        let bar = self.promised.max(floor);
        let live = self.live(now);
        match *ask {
            Ask::Prepare { ballot } if ballot < bar => {
                Answer::Reject { promised: bar, accepted: live }
            }
            Ask::Prepare { ballot } => {
                self.promised = ballot;
                Answer::Promise { accepted: live }
            }
            Ask::Propose { ballot, .. } if live == Some(ballot) => Answer::Accept,
            Ask::Propose { ballot, .. } if ballot < bar || live.is_some() => {
                Answer::Reject { promised: bar, accepted: live }
            }
            Ask::Propose { ballot, ttl } => {
                *self = Self { promised: ballot, accepted: Some((ballot, now + ttl)) };
                Answer::Accept
            }
            Ask::Renew { tenure, ballot, ttl } => {
                if live != Some(tenure) {
                    return Answer::NotHeld { promised: bar };
                }
                self.prolong(now + ttl, ballot);
                Answer::Accept
            }
            Ask::Heal { tenure, ballot, ttl } => {
                match live {
                    Some(same) if same == tenure => self.prolong(now + ttl, ballot),
                    Some(higher) if higher > tenure => return Answer::NotHeld { promised: bar },
                    _ if ballot < bar => return Answer::NotHeld { promised: bar },
                    _ => *self = Self { promised: ballot, accepted: Some((tenure, now + ttl)) },
                }
                Answer::Accept
            }
            Ask::Release { tenure } => {
                if self.accepted.is_some_and(|(stored, _)| stored == tenure) {
                    self.accepted = None;
                    self.promised = self.promised.max(tenure + 1);
                }
                Answer::Released { held: live == Some(tenure) }
            }
            Ask::Inspect => Answer::Inspected { accepted: live },
        }
    }

    /// Section 7: the acceptor may keep a free name for nodes that waited for it, and refuse
    /// others. The entry does not change then.
    pub(crate) fn may_turn_away(&self, floor: u64, now: u64, ask: &Ask, answer: Answer) -> bool {
        let turned_away = Answer::Reject { promised: self.promised.max(floor), accepted: None };
        let is_round = matches!(ask, Ask::Prepare { .. } | Ask::Propose { .. });
        is_round && self.live(now).is_none() && answer == turned_away
    }

    fn prolong(&mut self, until: u64, ballot: u64) {
        self.accepted = self.accepted.map(|(tenure, before)| (tenure, before.max(until)));
        self.promised = self.promised.max(ballot);
    }
}

/// The times of section 5, for a cell with this drift.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClockModel {
    pub(crate) drift_ppm: u64,
    pub(crate) granularity: u64,
    /// How many parts per million the clock of this node runs too fast.
    pub(crate) clock_ppm: i64,
}

const MILLION: u64 = 1_000_000;

impl ClockModel {
    /// T1: `ttl / r - 2g`.
    pub(crate) fn belief(&self, ttl: u64) -> u64 {
        let (slow, fast) = (MILLION - self.drift_ppm, MILLION + self.drift_ppm);
        scaled(ttl, slow, fast, 0).saturating_sub(2 * self.granularity)
    }

    /// T3: the longest ttl times r.
    pub(crate) fn quarantine(&self, longest: u64) -> u64 {
        let (slow, fast) = (MILLION - self.drift_ppm, MILLION + self.drift_ppm);
        scaled(longest, fast, slow, slow - 1)
    }

    /// Converts an instant of this clock to the clock that all nodes of a test share.
    pub(crate) fn shared(&self, at: u64) -> u64 {
        scaled(at, MILLION, MILLION.saturating_add_signed(self.clock_ppm), 0)
    }
}

fn scaled(span: u64, numerator: u64, denominator: u64, round: u64) -> u64 {
    let product = u128::from(span) * u128::from(numerator) + u128::from(round);
    u64::try_from(product / u128::from(denominator)).unwrap_or(u64::MAX)
}
