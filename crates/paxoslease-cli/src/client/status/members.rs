//! The members of a cell, combined from the answers of several nodes.

use std::fmt;
use std::time::Duration;

use paxoslease_client::{Membership, NodeStatus, PeerStatus, Role};

use super::Answer;
use crate::client::text::{plain, span};

/// One node, as far as it is known.
#[derive(Default)]
pub(in crate::client) struct Member<'a> {
    pub(in crate::client) id: u16,
    /// The endpoint that was asked, or the node's address for peers.
    pub(in crate::client) place: &'a str,
    /// Whether it is a member now. While the members change, those before the change are.
    pub(in crate::client) is_member: bool,
    pub(in crate::client) state: State<'a>,
    /// The round trip from here, or from the node that reported it.
    pub(in crate::client) rtt: Option<Duration>,
    /// The node's own status, if it answered.
    pub(in crate::client) status: Option<&'a NodeStatus>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(in crate::client) enum State<'a> {
    Votes,
    Proposes,
    /// A change is under way that makes it a member.
    Joins,
    /// It has a data folder, and is not a member (any more).
    Outside,
    /// It waits until its cell is founded.
    Founds,
    /// It has never been a member of a cell.
    Blank,
    DiskLost,
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
            Self::Joins => f.write_str("joins"),
            Self::Outside => f.write_str("not a member"),
            Self::Founds => f.write_str("waits for the founding"),
            Self::Blank => f.write_str("not a member yet"),
            Self::DiskLost => f.write_str("not the member with its id"),
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

/// The status with the latest members.
pub(in crate::client) fn latest<'a>(
    statuses: impl IntoIterator<Item = &'a NodeStatus>,
) -> Option<&'a NodeStatus> {
    let is_known = |status: &NodeStatus| {
        matches!(status.membership, Membership::Fixed | Membership::Member | Membership::Outside)
    };
    // The first of equals.
    statuses.into_iter().reduce(|best, status| {
        let rank = |status| (is_known(status), status.epoch);
        if rank(status) > rank(best) { status } else { best }
    })
}

/// All nodes that are members, become members or answered, ordered by id.
pub(in crate::client) fn members(answers: &[Answer]) -> Vec<Member<'_>> {
    let said = || answers.iter().filter_map(|answer| Some((answer, answer.said.as_ref().ok()?)));
    let Some(latest) = latest(said().map(|(_, status)| status)) else { return Vec::new() };
    let joining: &[u16] = latest.change.as_ref().map_or(&[], |change| &change.to);
    let listed = latest.members.iter().chain(joining).copied();
    let mut ids: Vec<u16> = listed.chain(said().map(|(_, status)| status.node)).collect();
    ids.sort_unstable();
    ids.dedup();
    let member = |id| {
        let itself = said().find(|(_, status)| status.node == id);
        let itself = itself.map(|(answer, status)| {
            let seen = said().flat_map(|(_, status)| &status.peers).filter(|peer| peer.node == id);
            let mut problems = seen.filter(|peer| !peer.up).map(|peer| peer.problem.as_deref());
            let state = match (own_state(status), problems.next()) {
                (State::Votes, Some(problem)) if !status.ready => {
                    State::Refused(problem.unwrap_or_default())
                }
                (state, _) => state,
            };
            let (place, rtt) = (answer.endpoint.as_str(), Some(answer.took));
            Member { id, place, is_member: false, state, rtt, status: Some(status) }
        });
        let others = || of_others(id, said().map(|(_, status)| status));
        let found = itself.or_else(others).unwrap_or(Member { id, ..Member::default() });
        let is_member = latest.members.contains(&id);
        let state = match found.state {
            State::Votes if !is_member && joining.contains(&id) => State::Joins,
            State::Votes if latest.membership == Membership::Founding => State::Founds,
            State::Votes if latest.membership == Membership::Blank => State::Unknown,
            State::Outside if joining.contains(&id) => State::Joins,
            state => state,
        };
        Member { is_member, state, ..found }
    };
    ids.into_iter().map(member).collect()
}

fn own_state(status: &NodeStatus) -> State<'_> {
    match status.membership {
        _ if status.role == Role::Proposer => State::Proposes,
        Membership::Fixed | Membership::Member => voting(status.quarantine_remaining),
        Membership::Outside => State::Outside,
        Membership::Founding => State::Founds,
        Membership::Blank => State::Blank,
        Membership::DiskLost => State::DiskLost,
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
    Some(Member { id, place, is_member: false, state, rtt: *rtt, status: None })
}

fn voting<'a>(quarantine_remaining: Duration) -> State<'a> {
    if quarantine_remaining.is_zero() {
        State::Votes
    } else {
        State::Quarantined(quarantine_remaining)
    }
}
