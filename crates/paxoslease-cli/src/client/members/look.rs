//! `paxoslease members status`: who the members are, and how far a change is. Hints.

use std::fmt::Write as _;

use paxoslease_client::{Client, NodeStatus};
use serde_json::{Value, json};

use super::{advice_for, under_way};
use crate::client::failure::{Failure, UNAVAILABLE};
use crate::client::status::ask_all;
use crate::client::status::members::{Member, State, latest, members};
use crate::client::table::Table;
use crate::client::text::{plain, span};
use crate::{Verdict, output};

pub(super) fn run(client: &Client, is_json: bool) -> anyhow::Result<Verdict> {
    let known = client.member_status_blocking().map_err(Failure::from)?;
    let mut endpoints = client.endpoints().to_vec();
    for address in known.peers.iter().filter_map(|peer| peer.clients.clone()) {
        if !endpoints.contains(&address) {
            endpoints.push(address);
        }
    }
    let answers = ask_all(client, &endpoints);
    let statuses: Vec<&NodeStatus> =
        answers.iter().filter_map(|answer| answer.said.as_ref().ok()).collect();
    let gone = || Failure::new(UNAVAILABLE, "no node answers any more: try again");
    let latest = latest(statuses.iter().copied()).ok_or_else(gone)?;
    let nodes = members(&answers);
    let nodes: Vec<_> =
        nodes.iter().map(|member| (member, Addresses::of(member, &statuses))).collect();
    if is_json {
        let rows: Vec<Value> = nodes.iter().map(|(member, at)| object(member, at)).collect();
        let all = json!({
            "cell": latest.cell, "epoch": latest.epoch, "members": latest.members,
            "change": latest.change, "nodes": rows,
        });
        output::to_stdout(&format!("{all}\n"))?;
    } else {
        output::to_stdout(&text(latest, &nodes, &statuses))?;
    }
    Ok(Verdict::Well)
}

/// Where a node is reached.
struct Addresses<'a> {
    peers: Option<&'a str>,
    clients: Option<&'a str>,
}

impl<'a> Addresses<'a> {
    /// As the node itself says, or another one.
    fn of(member: &Member<'a>, statuses: &[&'a NodeStatus]) -> Self {
        let seen =
            || statuses.iter().flat_map(|status| &status.peers).filter(|p| p.node == member.id);
        let own = member.status.and_then(|status| status.clients.as_deref());
        Self {
            peers: seen().find_map(|peer| peer.address.as_deref()),
            clients: own.or_else(|| seen().find_map(|peer| peer.clients.as_deref())),
        }
    }
}

fn object(member: &Member<'_>, at: &Addresses<'_>) -> Value {
    json!({
        "node": member.id, "member": member.is_member, "peers": at.peers, "clients": at.clients,
        "state": member.state.to_string(),
    })
}

fn text(
    latest: &NodeStatus,
    nodes: &[(&Member<'_>, Addresses<'_>)],
    statuses: &[&NodeStatus],
) -> String {
    let (cell, epoch, max) = (plain(&latest.cell), latest.epoch, span(latest.max_lease));
    let count = latest.members.len();
    let members = if count == 1 { "member" } else { "members" };
    let mut text =
        format!("cell {cell}, epoch {epoch}: {count} {members}, leases of up to {max}\n");
    let mut table = Table::new(["NODE", "PEERS", "CLIENTS", "STATE"]);
    for (member, at) in nodes {
        let address = |address: Option<&str>| plain(address.unwrap_or("-")).into_owned();
        let state = match member.state {
            State::Down(_) => "down".to_owned(),
            state => state.to_string(),
        };
        table.push([member.id.to_string(), address(at.peers), address(at.clients), state]);
    }
    text += &table.take();
    for (member, _) in nodes {
        if let State::Down(problem) = member.state
            && !problem.is_empty()
        {
            let _ = writeln!(text, "node {} is {}", member.id, member.state);
        }
    }
    if let Some(change) = &latest.change {
        let _ = writeln!(text, "{}", under_way(latest, change));
    }
    for advice in advice_for(statuses, None) {
        let _ = writeln!(text, "{advice}");
    }
    text
}
