//! `paxoslease status`: the cell as its nodes see it, and why a lease cannot be acquired. Hints.
//!
//! Asks every endpoint at once, and then the members that these name. What a node says about itself
//! overrides what other nodes say.

pub(super) mod members;

use std::fmt::Write as _;
use std::io::{IsTerminal as _, stdout};
use std::thread;
use std::time::Duration;

use paxoslease_client::{AskError, Client, LeaseInfo, Membership, NodeStatus};
use serde_json::{Value, json};

use self::members::{Member, State, latest, members};
use super::alarm::since_boot;
use super::connect;
use super::failure::{Failure, UNAVAILABLE, concise, held};
use super::look::object;
use super::members::{advice, advice_for, under_way};
use super::table::Table;
use super::text::{plain, quoted, short, span};
use crate::args::StatusArgs;
use crate::{Verdict, output};

pub(super) struct Answer {
    pub(super) endpoint: String,
    pub(super) said: Result<NodeStatus, AskError>,
    /// The time until the answer, including the connection.
    took: Duration,
}

pub(crate) fn run(args: StatusArgs) -> anyhow::Result<Verdict> {
    let client = connect(&args.ask.cell)?;
    let mut answers = ask_all(&client, client.endpoints());
    let others = ask_all(&client, &other_members(&answers));
    // An address of a member may be reachable for other clients only. Its peers answer for it then.
    answers.extend(others.into_iter().filter(|other| other.said.is_ok()));
    let statuses: Vec<&NodeStatus> =
        answers.iter().filter_map(|answer| answer.said.as_ref().ok()).collect();
    let is_ready = statuses.iter().any(|status| status.ready);
    // Without a majority there is no answer to `get`, and waiting for it would only take time.
    let lease = args.name.as_ref().filter(|_| is_ready).map(|name| client.get_blocking(name));
    let (lease, problem) = match lease.transpose() {
        Ok(lease) => (lease.flatten(), None),
        Err(problem) => (None, Some(problem)),
    };
    if args.ask.json {
        let all = json(&answers, is_ready, args.name.as_deref(), lease.as_ref());
        output::to_stdout(&format!("{all}\n"))?;
    } else {
        let is_terminal = stdout().is_terminal();
        explained(is_terminal, &heading(&statuses))?;
        output::to_stdout(&table(&answers))?;
        explained(is_terminal, &reasons(&answers, &statuses, is_ready))?;
    }
    let Some(latest) = latest(statuses.iter().copied()) else {
        let error = answers.into_iter().find_map(|answer| answer.said.err());
        return Err(Failure::from(error.expect("there is an endpoint")).into());
    };
    let members = members(&answers);
    if !is_ready {
        return Err(Failure::new(UNAVAILABLE, unready(&members, latest)).into());
    }
    if let Some(problem) = problem {
        return Err(Failure::from(problem).into());
    }
    if !args.ask.json {
        let mut text = format!("ready: {}\n", votes(&members));
        if let Some(name) = &args.name {
            text += &explain(name, lease.as_ref(), &statuses);
        }
        explained(stdout().is_terminal(), &text)?;
    }
    Ok(Verdict::Well)
}

/// Writes sentences around the table. A program that reads stdout gets the table alone.
fn explained(is_terminal: bool, text: &str) -> anyhow::Result<()> {
    if is_terminal {
        return output::to_stdout(text);
    }
    output::to_stderr(text);
    Ok(())
}

/// Where clients reach members that have not answered themselves, although another node is
/// connected to them.
fn other_members(answers: &[Answer]) -> Vec<String> {
    let said = || answers.iter().filter_map(|answer| answer.said.as_ref().ok());
    let is_known = |id: u16| said().any(|status| status.node == id);
    let peers = said().flat_map(|status| &status.peers);
    let others = peers.filter(|peer| peer.up && !is_known(peer.node));
    let mut addresses: Vec<String> = others.filter_map(|peer| peer.clients.clone()).collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}

/// Asks the nodes at all these endpoints at once.
pub(super) fn ask_all(client: &Client, endpoints: &[String]) -> Vec<Answer> {
    thread::scope(|scope| {
        let ask = |endpoint: &String| {
            let endpoint = endpoint.clone();
            scope.spawn(move || {
                let asked_at = since_boot();
                let said = client.status_of_blocking(&endpoint);
                Answer { endpoint, said, took: since_boot().saturating_sub(asked_at) }
            })
        };
        let asked: Vec<_> = endpoints.iter().map(ask).collect();
        asked.into_iter().map(|answer| answer.join().expect("the thread does not panic")).collect()
    })
}

fn json(
    answers: &[Answer],
    is_ready: bool,
    name: Option<&str>,
    lease: Option<&LeaseInfo>,
) -> Value {
    let node = |answer: &Answer| {
        let endpoint = &answer.endpoint;
        match &answer.said {
            Ok(status) => {
                let mut node = json!(status);
                node["endpoint"] = endpoint.as_str().into();
                node
            }
            Err(error) => json!({"endpoint": endpoint, "error": error.to_string()}),
        }
    };
    let nodes: Vec<Value> = answers.iter().map(node).collect();
    let mut all = json!({"ready": is_ready, "nodes": nodes});
    if let Some(name) = name {
        all["name"] = name.into();
        all["lease"] = lease.map(object).into();
    }
    all
}

/// The cell, its members, and a change of them.
fn heading(statuses: &[&NodeStatus]) -> String {
    let mut text = String::new();
    let mut cells: Vec<&str> = statuses.iter().map(|status| status.cell.as_str()).collect();
    cells.sort_unstable();
    cells.dedup();
    if let ([cell], Some(status)) = (cells.as_slice(), latest(statuses.iter().copied())) {
        let (cell, count, max) = (plain(cell), status.members.len(), span(status.max_lease));
        let nodes = |one| format!("{count} {one}{}", if count == 1 { "" } else { "s" });
        let members = match status.membership {
            Membership::Founding => format!("not founded yet, {} in its list", nodes("node")),
            Membership::Blank => format!("members not known yet, {} in its list", nodes("node")),
            Membership::Fixed | Membership::Member | Membership::Outside | Membership::DiskLost => {
                nodes("member")
            }
        };
        let _ = writeln!(text, "cell {cell}: {members}, leases of up to {max}");
        if let Some(change) = &status.change {
            let _ = writeln!(text, "{}", under_way(status, change));
        }
    } else if !cells.is_empty() {
        let cells = cells.iter().map(|cell| quoted(cell)).collect::<Vec<_>>().join(", ");
        let _ = writeln!(text, "the endpoints belong to different cells: {cells}");
    }
    text
}

/// The nodes.
fn table(answers: &[Answer]) -> String {
    let mut table = Table::titled([
        "NODE",
        "WHERE",
        "STATE",
        "RTT",
        "LEASES",
        "WAITERS",
        "ACQUIRED/S",
        "RENEWED/S",
        "RELEASED/S",
    ]);
    for member in members(answers) {
        table.push(row(&member));
    }
    table.take()
}

/// Why nodes do not take part, below the table, so that the table fits a terminal; and the leases
/// that clients wait for.
fn reasons(answers: &[Answer], statuses: &[&NodeStatus], is_ready: bool) -> String {
    let mut text = String::new();
    let mut down = 0;
    for Member { id, state, .. } in members(answers) {
        down += usize::from(matches!(state, State::Down(_)));
        if let State::Down(problem) | State::Refused(problem) = state
            && !problem.is_empty()
        {
            let _ = writeln!(text, "node {id} is {state}");
        }
    }
    let is_silent = |answer: &&Answer| matches!(answer.said, Err(AskError::Unreachable { .. }));
    // Endpoints that do not answer are those of the nodes that are down.
    let is_explained = answers.iter().filter(is_silent).count() <= down;
    for answer in answers {
        if let Err(error) = &answer.said
            && !(is_explained && is_silent(&answer))
        {
            let (what, problem) = match error {
                AskError::Unreachable { problem, .. } => ("no answer: ", problem),
                AskError::Protocol(problem) => ("", problem),
                error => ("", &error.to_string()),
            };
            let problem = concise(std::slice::from_ref(&answer.endpoint), problem);
            let _ = writeln!(text, "{}: {what}{problem}", answer.endpoint);
        }
    }
    // The error of a cell that is not ready gives the advice for the latest node.
    let told = latest(statuses.iter().copied()).filter(|_| !is_ready);
    for advice in advice_for(statuses, told) {
        let _ = writeln!(text, "{advice}");
    }
    for status in statuses {
        let (node, durable, free) = (status.node, status.durable, status.durable_free);
        if durable + free > 0 {
            let _ = writeln!(
                text,
                "node {node} has {durable} durable leases, {} names of them that some member may \
                 lack, and {free} names that are free and not forgotten yet",
                status.durable_unsettled
            );
        }
        for wanted in &status.waiting {
            let (node, name) = (status.node, quoted(&wanted.name));
            let by = match (&wanted.holder, wanted.fence) {
                (Some(holder), Some(fence)) => {
                    format!("held by {} (fence {fence})", quoted(holder))
                }
                _ => "the holder is not known there".to_owned(),
            };
            let _ = writeln!(text, "{} at node {node} for {name}: {by}", waiting(wanted.waiters));
        }
    }
    text
}

fn row(member: &Member<'_>) -> [String; 9] {
    let Member { id, place, state, rtt, status, .. } = member;
    let state = match (state, status) {
        (State::Votes, Some(status)) => match &status.disk_problem {
            Some(problem) => format!("votes, but its disk failed: {}", plain(problem)),
            None if !status.ready => "votes, but reaches no majority".to_owned(),
            None => "votes".to_owned(),
        },
        (State::Down(_), _) => "down".to_owned(),
        (State::Refused(_), _) => "not connected".to_owned(),
        (state, _) => state.to_string(),
    };
    let number =
        |value: fn(&NodeStatus) -> u64| status.map_or(String::new(), |s| value(s).to_string());
    [
        id.to_string(),
        plain(place).into(),
        state,
        rtt.map_or(String::new(), short),
        number(|status| status.leases),
        number(|status| status.waiters),
        number(|status| status.rates.acquires),
        number(|status| status.rates.renewals),
        number(|status| status.rates.releases),
    ]
}

fn waiting(count: u64) -> String {
    if count == 1 { "1 waits".to_owned() } else { format!("{count} wait") }
}

/// How many members vote, and how many must.
fn votes(members: &[Member<'_>]) -> String {
    let all = members.iter().filter(|member| member.is_member);
    let (all, voting) = (all.clone().count(), all.filter(|one| one.state == State::Votes).count());
    format!("{voting} of {all} members vote, {} needed", all / 2 + 1)
}

/// Why nothing can be acquired, as far as the nodes know.
fn unready(members: &[Member<'_>], status: &NodeStatus) -> String {
    let mut text = format!("nothing can be acquired now: {}", votes(members));
    if let Some(advice) = advice(status) {
        return format!("nothing can be acquired now: {advice}");
    }
    for Member { id, state, .. } in members.iter().filter(|member| member.is_member) {
        if *state != State::Votes {
            let _ = write!(text, "; node {id}: {state}");
        }
    }
    if let Some(problem) = &status.disk_problem {
        let _ = write!(
            text,
            "; the disk of node {} failed, so that it accepts no lease longer than those before: \
             {}; repair its data_dir",
            status.node,
            plain(problem)
        );
    } else if members.iter().all(|one| !one.is_member || one.state == State::Votes) {
        // All members are up, but the node that was asked does not reach them.
        let _ = write!(text, "; node {} reaches too few of them", status.node);
    }
    text
}

/// Why a name can or cannot be acquired.
fn explain(name: &str, lease: Option<&LeaseInfo>, statuses: &[&NodeStatus]) -> String {
    let wanted = statuses.iter().flat_map(|status| &status.waiting);
    let waiters = wanted.filter(|wanted| wanted.name == name).map(|wanted| wanted.waiters).sum();
    let mut text = match lease {
        Some(_) => held(name, lease),
        None => format!("no client holds {}: it can be acquired", quoted(name)),
    };
    if waiters > 0 {
        let _ = write!(text, "; {} for it", waiting(waiters));
    }
    text + "\n"
}
