//! The members of a cell, combined from the answers of several nodes.

use std::fmt;
use std::time::Duration;

use paxoslease_client::{NodeStatus, PeerStatus};

use super::Answer;
use crate::client::text::{plain, span};

/// One node, as far as it is known.
#[derive(Default)]
pub(super) struct Member<'a> {
    pub(super) id: u16,
    /// The endpoint that was asked, or the node's address for peers.
    pub(super) place: &'a str,
    pub(super) state: State<'a>,
    /// The round trip from here, or from the node that reported it.
    pub(super) rtt: Option<Duration>,
    /// The node's own status, if it answered.
    pub(super) status: Option<&'a NodeStatus>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum State<'a> {
    Votes,
    Proposes,
    /// The node is in quarantine for this time.
    Quarantined(Duration),
    Down(&'a str),
    /// It answers, but reaches no majority, and other nodes say why they do not reach it.
    Refused(&'a str),
    /// No other node reports it.
    #[default]
    Unknown,
}

impl fmt::Display for State<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Votes => f.write_str("votes"),
            Self::Proposes => f.write_str("proposes only"),
            Self::Quarantined(left) => write!(f, "quarantined for {} more", span(*left)),
            Self::Down("") => f.write_str("down"),
            Self::Down(problem) => write!(f, "down: {}", plain(problem)),
            Self::Refused(problem) => {
                write!(f, "not connected to the other nodes: {}", plain(problem))
            }
            Self::Unknown => f.write_str("unknown"),
        }
    }
}

/// All nodes that are members or answered, ordered by id.
pub(super) fn members(answers: &[Answer]) -> Vec<Member<'_>> {
    let said = || answers.iter().filter_map(|answer| Some((answer, answer.said.as_ref().ok()?)));
    let mut ids: Vec<u16> = said()
        .flat_map(|(_, status)| status.members.iter().copied().chain([status.node]))
        .collect();
    ids.sort_unstable();
    ids.dedup();
    let member = |id| {
        let itself = said().find(|(_, status)| status.node == id);
        let itself = itself.map(|(answer, status)| {
            let seen = said().flat_map(|(_, status)| &status.peers).filter(|peer| peer.node == id);
            let mut problems = seen.filter(|peer| !peer.up).map(|peer| peer.problem.as_deref());
            Member {
                state: match problems.next() {
                    Some(problem) if !status.ready => State::Refused(problem.unwrap_or_default()),
                    _ => own_state(status),
                },
                ..of_itself(answer, status)
            }
        });
        let others = || of_others(id, said().map(|(_, status)| status));
        itself.or_else(others).unwrap_or(Member { id, ..Member::default() })
    };
    ids.into_iter().map(member).collect()
}

fn own_state(status: &NodeStatus) -> State<'_> {
    let is_member = status.members.contains(&status.node);
    if is_member { voting(status.quarantine_remaining) } else { State::Proposes }
}

fn of_itself<'a>(answer: &'a Answer, status: &'a NodeStatus) -> Member<'a> {
    Member {
        id: status.node,
        place: &answer.endpoint,
        state: own_state(status),
        rtt: Some(answer.took),
        status: Some(status),
    }
}

/// What other nodes say about it; a node that is connected to it knows best.
fn of_others<'a>(id: u16, said: impl Iterator<Item = &'a NodeStatus>) -> Option<Member<'a>> {
    let seen = said.flat_map(|status| &status.peers).filter(|peer| peer.node == id);
    let PeerStatus { address, up, rtt, quarantine_remaining, problem, .. } =
        seen.max_by_key(|peer| peer.up)?;
    let state = if *up {
        voting(*quarantine_remaining)
    } else {
        State::Down(problem.as_deref().unwrap_or_default())
    };
    let place = address.as_deref().unwrap_or_default();
    Some(Member { id, place, state, rtt: *rtt, status: None })
}

fn voting<'a>(quarantine_remaining: Duration) -> State<'a> {
    if quarantine_remaining.is_zero() {
        State::Votes
    } else {
        State::Quarantined(quarantine_remaining)
    }
}
