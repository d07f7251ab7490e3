//! Acquires and their answers.

use std::collections::BTreeMap;

use crate::log::{AcquireRequest, Event, EventKind, Nanos, Operation};

#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) ask: AcquireRequest,
    pub(super) asked_at: Nanos,
    pub(super) answer: Answer,
    /// The logged request and answer.
    pub(super) evidence: Vec<Event>,
    /// When its client logged its last event.
    pub(super) heard_at: Nanos,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Answer {
    None,
    Granted { at: Nanos },
    Denied { at: Nanos, by: Option<u64> },
    Failed { at: Nanos },
}

impl Request {
    pub(super) const fn answered_at(&self) -> Option<Nanos> {
        match self.answer {
            Answer::None => None,
            Answer::Granted { at } | Answer::Denied { at, .. } | Answer::Failed { at } => Some(at),
        }
    }
}

/// All requests, by their time.
pub(super) fn collect(events: &[Event]) -> Vec<Request> {
    let mut requests: BTreeMap<(&str, u64), Request> = BTreeMap::new();
    let mut heard: BTreeMap<&str, Nanos> = BTreeMap::new();
    for event in events {
        let Some(client) = event.what.client() else { continue };
        heard.insert(client, event.at);
        let (attempt, answer) = match &event.what {
            EventKind::Asked(ask) => {
                let request = Request {
                    ask: ask.clone(),
                    asked_at: event.at,
                    answer: Answer::None,
                    evidence: vec![event.clone()],
                    heard_at: event.at,
                };
                requests.entry((client, ask.attempt)).or_insert(request);
                continue;
            }
            EventKind::Denied { ask, asked_at: _, fence } => {
                (ask.attempt, Answer::Denied { at: event.at, by: *fence })
            }
            EventKind::Failed { ask, operation: Operation::Acquire, .. } => {
                (ask.attempt, Answer::Failed { at: event.at })
            }
            EventKind::Held(belief) => (belief.attempt, Answer::Granted { at: belief.from }),
            _ => continue,
        };
        let Some(request) = requests.get_mut(&(client, attempt)) else { continue };
        if request.answer == Answer::None {
            request.answer = answer;
            request.evidence.push(event.clone());
            // The client logs when it sent the request.
            if let EventKind::Denied { asked_at, .. } = &event.what {
                request.asked_at = *asked_at;
            }
        }
    }
    let mut requests: Vec<Request> = requests.into_values().collect();
    for request in &mut requests {
        request.heard_at = heard[request.ask.client.as_str()];
    }
    requests.sort_by_key(|request| request.asked_at);
    requests
}
