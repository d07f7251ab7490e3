//! Requests about the members of a cell, to a member. A node that is not one may know old members
//! only, or none.

use std::collections::VecDeque;

use paxoslease_holder::{AskError, MembersError, MembersPlan, MembersRequest, Membership};
use paxoslease_wire::resp::Value;
use serde::Deserialize as _;

use crate::builder;
use crate::engine::protocol::{self, Refusal, Word, put, unexpected};
use crate::follow::{ask, status_of};
use crate::link::Dialler;
use crate::status::NodeStatus;

/// How many nodes are asked at most in the search for a member.
const ASKED_MAX: usize = 64;

/// The status of the first member that answers: at the endpoints, in their order, and then at the
/// addresses of members that the nodes there know. Without one, the first status at all.
pub(crate) async fn status(dialler: &Dialler) -> Result<NodeStatus, AskError> {
    let mut known: VecDeque<String> = dialler.config.endpoints.iter().cloned().collect();
    let mut asked: Vec<String> = Vec::new();
    let mut other: Option<NodeStatus> = None;
    let mut problem = None;
    while let Some(endpoint) = known.pop_front() {
        if asked.len() == ASKED_MAX {
            break;
        }
        if asked.contains(&endpoint) {
            continue;
        }
        match status_of(dialler, &endpoint).await {
            Ok(status) if matches!(status.membership, Membership::Member | Membership::Fixed) => {
                return Ok(status);
            }
            Ok(status) => {
                let members = status.peers.iter().filter(|p| status.members.contains(&p.node));
                let addresses = members.filter_map(|peer| peer.clients.as_deref());
                known.extend(addresses.filter_map(|address| builder::endpoint(address).ok()));
                other.get_or_insert(status);
            }
            Err(error) => drop(problem.get_or_insert(error)),
        }
        asked.push(endpoint);
    }
    other.ok_or_else(|| match problem {
        Some(AskError::Unreachable { endpoints, problem }) if asked.len() > 1 => {
            let problem = format!("{}: {problem}", endpoints.join(", "));
            AskError::Unreachable { endpoints: asked, problem }
        }
        Some(error) => error,
        None => AskError::Stopped,
    })
}

/// Sends the request to a member, once.
pub(crate) async fn change(
    dialler: &Dialler,
    request: &MembersRequest,
) -> Result<MembersPlan, MembersError> {
    let endpoint = status(dialler).await?.endpoint;
    let (action, nodes) = request.change.words();
    let mut words = vec![Word::Text("CELL.MEMBERS"), Word::Text(action)];
    words.extend(nodes.iter().map(|node| Word::Text(node)));
    words.extend(request.dry_run.then_some(Word::Text("DRYRUN")));
    words.extend(request.yes.then_some(Word::Text("YES")));
    let mut out = Vec::new();
    put(&mut out, &words);
    ask(dialler, &endpoint, &out, |reply| match reply {
        Value::Error(text) => Err(refusal(text)),
        reply => MembersPlan::deserialize(&protocol::owned_value(reply))
            .map_err(|_| unexpected("CELL.MEMBERS").into()),
    })
    .await
}

fn refusal(text: &[u8]) -> MembersError {
    let words = String::from_utf8_lossy(text);
    match words.split_once(' ') {
        Some(("MEMBERS", problem)) => MembersError::Refused(problem.to_owned()),
        Some(("UNCONFIRMED", problem)) => MembersError::Unconfirmed(problem.to_owned()),
        Some(("NOQUORUM", problem)) => MembersError::NoQuorum(problem.to_owned()),
        _ => Refusal::new(text).into_ask_error().into(),
    }
}
