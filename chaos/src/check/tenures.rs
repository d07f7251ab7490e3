//! What was held, by whom, from when to when: the log's many lines about one tenure, put together.

use std::collections::BTreeMap;

use crate::log::{Belief, End, Event, Kind, Nanos, What};

/// One holding of one name, as its holder believed it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tenure {
    /// What was held.
    pub name: String,
    /// By whom.
    pub client: String,
    /// How that client speaks to the cell.
    pub kind: Kind,
    /// The answer to which of its requests.
    pub attempt: u64,
    /// The tenure's number.
    pub fence: u64,
    /// When the holder learned of it.
    pub from: Nanos,
    /// When the holder's belief ended, this instant not included. Not after `from` when the grant
    /// came too late to be believed.
    pub to: Nanos,
    /// How often it was renewed.
    pub renewals: u64,
    /// Why it ended, if the holder lived to say so.
    pub end: Option<End>,
    /// When the cell confirmed its release.
    pub released_at: Option<Nanos>,
    /// Begin, last extension, end and confirmation, as they were logged.
    pub evidence: Vec<Event>,
}

impl Tenure {
    /// Whether it was believed for any time at all.
    #[must_use]
    pub const fn is_believed(&self) -> bool {
        self.from < self.to
    }

    fn new(belief: &Belief, event: &Event) -> Self {
        Self {
            name: belief.name.clone(),
            client: belief.client.clone(),
            kind: belief.kind,
            attempt: belief.attempt,
            fence: belief.fence,
            from: belief.from,
            to: belief.until,
            renewals: belief.renewals,
            end: None,
            released_at: None,
            evidence: vec![event.clone()],
        }
    }
}

/// A client's name is used by one process only, so this is one tenure.
type Key<'a> = (&'a str, &'a str, u64, u64);

const fn key<'a>(name: &'a str, client: &'a str, attempt: u64, fence: u64) -> Key<'a> {
    (name, client, attempt, fence)
}

/// All tenures, by the begin of their belief.
pub(super) fn collect(events: &[Event]) -> Vec<Tenure> {
    let mut tenures: BTreeMap<Key<'_>, Tenure> = BTreeMap::new();
    let mut ends: BTreeMap<Key<'_>, Nanos> = BTreeMap::new();
    for event in events {
        match &event.what {
            What::Held(belief) => {
                let key = key(&belief.name, &belief.client, belief.attempt, belief.fence);
                let tenure = tenures.entry(key).or_insert_with(|| Tenure::new(belief, event));
                if belief.until > tenure.to {
                    tenure.to = belief.until;
                    tenure.evidence.truncate(1);
                    tenure.evidence.push(event.clone());
                }
                tenure.from = tenure.from.min(belief.from);
                tenure.renewals = tenure.renewals.max(belief.renewals);
            }
            What::Ended { client, name, attempt, fence, why } => {
                let key = key(name, client, *attempt, *fence);
                if let Some(tenure) = tenures.get_mut(&key) {
                    tenure.end = Some(*why);
                    tenure.evidence.push(event.clone());
                    // Nobody gave back what a dead process held: it stays excluded for its time.
                    if *why != End::Crashed {
                        ends.entry(key).or_insert(event.at);
                    }
                }
            }
            What::ReleaseAcknowledged { client, name, attempt, fence } => {
                let key = key(name, client, *attempt, *fence);
                if let Some(tenure) = tenures.get_mut(&key) {
                    tenure.released_at.get_or_insert(event.at);
                    tenure.evidence.push(event.clone());
                }
            }
            _ => {}
        }
    }
    for (key, at) in ends {
        if let Some(tenure) = tenures.get_mut(&key) {
            tenure.to = tenure.to.min(at);
        }
    }
    let mut tenures: Vec<Tenure> = tenures.into_values().collect();
    tenures.sort_by_key(|tenure| (tenure.from, tenure.fence));
    tenures
}
