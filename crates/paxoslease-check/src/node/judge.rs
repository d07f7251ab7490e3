//! What must hold from one step of an acceptor to the next, whatever other nodes do.

use paxoslease_core::{Accepted, Ballot, Instant, Message, Request, Shard, Tenure};

use super::{Input, NAMES, NodeState, NodeStates, name};

/// The rule that a step of an acceptor broke, if any.
pub(super) fn judge(
    before: &Shard,
    after: &Shard,
    now: Instant,
    input: Input,
    nodes: &NodeStates,
) -> Option<String> {
    if after.floor() < before.floor() {
        return Some("the floor fell".into());
    }
    for number in 0..NAMES.len() as u8 {
        let name = name(number);
        let (Some(old), new) = (before.register(name), after.register(name)) else { continue };
        let bar = new.map_or(Ballot::ZERO, |new| new.promised).max(after.floor()?);
        if bar < old.promised {
            return Some(format!("promised fell from {:?} to {bar:?}", old.promised));
        }
        let (Some(old), new) = (old.live(now), new.and_then(|new| new.live(now))) else { continue };
        let released = |content| match nodes.content(content) {
            Message::Request(Request::Release { tenure, .. }) => Some(tenure),
            _ => None,
        };
        let own_release = match input {
            // E2: records from before the era end.
            Input::Adopt { .. } => true,
            // K2: a Store ends the lease of another tenure, also one that a node sends to itself.
            Input::Deliver { content, .. } => {
                released(content) == Some(old.tenure)
                    || matches!(nodes.content(content), Message::Durable(_))
            }
            Input::Release { tenure, .. } => tenure == old.tenure,
            // A node that also proposes may undo its own round in the same step.
            Input::Wake | Input::Abandon { .. } => true,
            _ => false,
        };
        match new {
            Some(_) if heals(Some(old), new, input, nodes) => {}
            Some(new) if new.tenure != old.tenure && !own_release => {
                return Some(format!("live lease {:?} replaced by {:?}", old.tenure, new.tenure));
            }
            None if !own_release && !undone(input, nodes) => {
                return Some(format!("live lease {:?} vanished", old.tenure));
            }
            Some(new) if new.tenure == old.tenure && new.expires_at < old.expires_at => {
                return Some(format!("live lease {:?} shortened", old.tenure));
            }
            _ => {}
        }
    }
    None
}

/// A8: the tenure that a Propose stored although this acceptor had answered its Release.
pub(super) fn returned(
    after: &NodeState,
    now: Instant,
    input: Input,
    nodes: &NodeStates,
) -> Option<Tenure> {
    let Input::Deliver { content, .. } = input else { return None };
    let Message::Request(Request::Propose { name, ballot, .. }) = nodes.content(content) else {
        return None;
    };
    let tenure = after.shard.register(name)?.live(now)?.tenure;
    let is_back = tenure.ballot() == ballot && after.released.contains(&tenure);
    is_back.then_some(tenure)
}

/// Whether a Heal replaced a live lease by one of a higher tenure (A5).
pub(super) fn heals(
    old: Option<Accepted>,
    new: Option<Accepted>,
    input: Input,
    nodes: &NodeStates,
) -> bool {
    let (Some(old), Some(new)) = (old, new) else { return false };
    let healed = match input {
        Input::Deliver { content, .. } => match nodes.content(content) {
            Message::Request(Request::Heal { tenure, .. }) => tenure == new.tenure,
            // A node that also proposes may heal its own acceptor.
            Message::Reply(_) => nodes.bounds.proposers == 0,
            Message::Request(_) | Message::Hint(_) | Message::Durable(_) => false,
        },
        Input::Wake => nodes.bounds.proposers == 0,
        // The Heal may have waited for the disk.
        Input::Written => true,
        _ => false,
    };
    healed && new.tenure > old.tenure
}

/// Whether a reply may have made a node undo its own losing round.
fn undone(input: Input, nodes: &NodeStates) -> bool {
    matches!(input, Input::Deliver { content, .. }
        if matches!(nodes.content(content), Message::Reply(_)))
}
