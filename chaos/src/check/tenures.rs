//! What was held, by whom, from when to when: the log's many lines about one tenure, put together.

use std::collections::BTreeMap;

use crate::log::{Belief, Deed, End, Event, Kind, Nanos, What};

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
    /// Until when the holder would have believed if it had not ended the belief itself.
    pub until: Nanos,
    /// When the holder's belief ended, this instant not included. Not after `from` when the grant
    /// came too late to be believed.
    pub to: Nanos,
    /// How often it was renewed.
    pub renewals: u64,
    /// Why it ended, if the holder lived to say so.
    pub end: Option<End>,
    /// When the cell confirmed its release.
    pub released_at: Option<Nanos>,
    /// That the cell said it was over, in the first answer that did.
    pub over: Option<Over>,
    /// Begin, last extension, end and answer, as they were logged.
    pub evidence: Vec<Event>,
}

/// The answer that a tenure was over already.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Over {
    /// What was tried.
    pub deed: Deed,
    /// When that left.
    pub asked_at: Nanos,
    /// When the answer came.
    pub at: Nanos,
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
            until: belief.until,
            to: belief.until,
            renewals: belief.renewals,
            end: None,
            released_at: None,
            over: None,
            evidence: vec![event.clone()],
        }
    }
}

/// A client's name is used by one process only, so this is one tenure.
type Key<'a> = (&'a str, &'a str, u64, u64);

/// All tenures, by the begin of their belief.
pub(super) fn collect(events: &[Event]) -> Vec<Tenure> {
    let mut tenures: BTreeMap<Key<'_>, Tenure> = BTreeMap::new();
    for event in events {
        if let What::Held(belief) = &event.what {
            let key = (&*belief.name, &*belief.client, belief.attempt, belief.fence);
            let tenure = tenures.entry(key).or_insert_with(|| Tenure::new(belief, event));
            if belief.until > tenure.until {
                (tenure.until, tenure.to) = (belief.until, belief.until);
                tenure.evidence.truncate(1);
                tenure.evidence.push(event.clone());
            }
            tenure.from = tenure.from.min(belief.from);
            tenure.renewals = tenure.renewals.max(belief.renewals);
        }
    }
    // A grant that came too late was over before it was written down: ends come second.
    for event in events {
        let (What::Ended { client, name, attempt, fence, .. }
        | What::Over { client, name, attempt, fence, .. }
        | What::ReleaseAcknowledged { client, name, attempt, fence }) = &event.what
        else {
            continue;
        };
        let Some(tenure) = tenures.get_mut(&(&**name, &**client, *attempt, *fence)) else {
            continue;
        };
        tenure.evidence.push(event.clone());
        match &event.what {
            What::Ended { why, .. } => {
                tenure.end = Some(*why);
                // Nobody gave back what a dead process held: it stays excluded for its time.
                if *why != End::Crashed {
                    tenure.to = tenure.to.min(event.at);
                }
            }
            What::Over { deed, asked_at, .. } => {
                let over = Over { deed: *deed, asked_at: *asked_at, at: event.at };
                tenure.over.get_or_insert(over);
            }
            _ => {
                tenure.released_at.get_or_insert(event.at);
            }
        }
    }
    let mut tenures: Vec<Tenure> = tenures.into_values().collect();
    tenures.sort_by_key(|tenure| (tenure.from, tenure.fence));
    tenures
}
