//! `paxoslease members`: shows the members of a cell, or changes them and follows the change.
//!
//! The cell does the work: a change goes on without this command. What it shows are hints.

mod look;
mod report;

use std::io::{self, IsTerminal as _};
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use paxoslease_client::{
    AskError, ChangeStatus, Client, MembersChange, MembersError, MembersPlan, MembersRequest,
    Membership, NodeStatus, PeerStatus,
};
use signal_hook::consts::{SIGINT, SIGTERM};

use self::report::Report;
use super::alarm::since_boot;
use super::connect;
use super::failure::{Failure, UNAVAILABLE};
use super::text::{plain, span};
use crate::args::{AskArgs, MembersAction, MembersArgs};
use crate::{Verdict, output, signals};

/// The pause between two looks at a change.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);
/// How long no member may answer before the command ends.
const SILENCE_MAX: Duration = Duration::from_secs(15);

pub(crate) fn run(args: MembersArgs) -> anyhow::Result<Verdict> {
    let MembersArgs { action, nodes, dry_run, yes, detach, ask: AskArgs { cell, json } } = args;
    let action = match action {
        MembersAction::Status if nodes.is_empty() => return look::run(&connect(&cell)?, json),
        MembersAction::Status => return Err(Failure::usage("status needs no nodes").into()),
        MembersAction::Add => "add",
        MembersAction::Remove => "remove",
        MembersAction::Replace => "replace",
        MembersAction::Set => "set",
        MembersAction::Abort => "abort",
        MembersAction::Address => "address",
    };
    let change = MembersChange::parse(action, nodes.iter().map(String::as_str));
    let change = change.map_err(|error| Failure::usage(error.to_string()))?;
    let client = connect(&cell)?;
    let mut report = Report::new(json);
    let request = MembersRequest { change, dry_run: true, yes };
    let plan = client.members_blocking(request.clone()).map_err(Failure::from)?;
    let begins = plan.from != plan.to;
    if begins || dry_run {
        report.plan(&plan)?;
    }
    if !plan.problems.is_empty() {
        return Err(Failure::new(1, plan.problems.join("; ")).into());
    }
    if dry_run {
        report.doubts(&plan)?;
        return Ok(Verdict::Well);
    }
    confirm(&plan, yes)?;
    let request = MembersRequest { dry_run: false, yes: true, ..request };
    let decided = client.members_blocking(request).map_err(not_begun)?;
    let epoch = decided.decided.unwrap_or(decided.epoch);
    if !begins {
        report.end(epoch, &decided.to, action)?;
        return Ok(Verdict::Well);
    }
    report.begun(epoch, detach)?;
    if detach { Ok(Verdict::Well) } else { follow(&client, &mut report, epoch, &plan) }
}

/// Asks the user, if the change has a price.
fn confirm(plan: &MembersPlan, is_agreed: bool) -> Result<(), Failure> {
    if is_agreed || plan.doubts.is_empty() {
        return Ok(());
    }
    let doubts = plan.doubts.join("; ");
    if !io::stdin().is_terminal() {
        return Err(Failure::new(1, format!("{doubts}: confirm this with --yes")));
    }
    output::to_stderr(&format!("{doubts}.\nGo on? [y/N] "));
    let mut answer = String::new();
    match io::stdin().read_line(&mut answer) {
        Ok(_) if matches!(answer.trim(), "y" | "Y" | "yes") => Ok(()),
        _ => Err(Failure::new(1, "nothing was changed")),
    }
}

/// The request was sent, so a missing answer does not mean that nothing happened.
fn not_begun(error: MembersError) -> Failure {
    match error {
        MembersError::Ask(AskError::Unreachable { endpoints, problem }) => Failure::new(
            UNAVAILABLE,
            format!(
                "{} did not answer: {problem}. The change may have begun: see `paxoslease members \
                 status`",
                endpoints.join(", ")
            ),
        ),
        error => error.into(),
    }
}

impl From<MembersError> for Failure {
    fn from(error: MembersError) -> Self {
        match error {
            MembersError::Ask(error) => error.into(),
            MembersError::NoQuorum(problem) => Self::new(UNAVAILABLE, problem),
            error => Self::new(1, error.to_string()),
        }
    }
}

/// Follows a change to its end. `epoch` is its joint epoch.
fn follow(
    client: &Client,
    report: &mut Report,
    epoch: u32,
    plan: &MembersPlan,
) -> anyhow::Result<Verdict> {
    let stop = signals::stop()?;
    let mut heard_at = since_boot();
    let mut endpoint: Option<String> = None;
    loop {
        // The node that coordinates the change knows most about it.
        let asked = match &endpoint {
            Some(endpoint) => client.status_of_blocking(endpoint),
            None => client.member_status_blocking(),
        };
        match asked {
            Ok(status) if status.epoch > epoch => return ended(report, &status, plan),
            Ok(status) => {
                heard_at = since_boot();
                if let Some(change) = &status.change {
                    report.draining(&status, change)?;
                }
                endpoint = (status.membership == Membership::Member).then_some(status.endpoint);
            }
            Err(error) if endpoint.is_none() && since_boot() > heard_at + SILENCE_MAX => {
                report.pause()?;
                let failure = Failure::from(error);
                let problem = format!("{failure}. The change goes on when the members are back");
                return Err(Failure::new(failure.code, problem).into());
            }
            Err(_) => endpoint = None,
        }
        match stop.recv_timeout(LOOK_INTERVAL) {
            Ok(signal) => {
                report.pause()?;
                output::to_stderr(
                    "the change goes on: see `paxoslease members status`, or abort it with \
                     `paxoslease members abort`\n",
                );
                let signal = if signal == "SIGINT" { SIGINT } else { SIGTERM };
                return Err(Failure::by_signal(signal).into());
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
        }
    }
}

/// The change is over, one way or the other.
fn ended(report: &mut Report, status: &NodeStatus, plan: &MembersPlan) -> anyhow::Result<Verdict> {
    let NodeStatus { status, .. } = status;
    if status.members == plan.to {
        report.done(status.epoch, plan)?;
        return Ok(Verdict::Well);
    }
    report.aborted(status.epoch, &status.members)?;
    let members = ids(&status.members);
    let problem = if status.members == plan.from {
        format!(
            "the change was aborted, and the members are {members} as before: too few of the new \
             members answered, or an administrator aborted it"
        )
    } else {
        format!("other changes followed, and the members are {members} now")
    };
    Err(Failure::new(1, problem).into())
}

/// Ids for a sentence, such as `1 2 4`.
fn ids(nodes: &[u16]) -> String {
    nodes.iter().map(u16::to_string).collect::<Vec<_>>().join(" ")
}

/// A change that is under way, and what is left of it.
pub(super) fn under_way(status: &NodeStatus, change: &ChangeStatus) -> String {
    let (from, to) = (ids(&status.members), ids(&change.to));
    format!("the members change from {from} to {to}: {}", left(change))
}

/// What a change waits for.
fn left(change: &ChangeStatus) -> String {
    let ChangeStatus { wait_remaining, registers, .. } = *change;
    if !wait_remaining.is_zero() {
        format!(
            "{} left",
            span(Duration::from_secs(wait_remaining.as_millis().div_ceil(1000) as u64))
        )
    } else if registers > 0 {
        format!("{} registers of durable leases have not moved yet", output::grouped(registers))
    } else {
        "about to end".to_owned()
    }
}

/// Why nodes that answer take no part in a cell, and what to do: one line for all nodes with the
/// same reason. `told` has the node whose reason the user gets anyway.
pub(super) fn advice_for(statuses: &[&NodeStatus], told: Option<&NodeStatus>) -> Vec<String> {
    let reason = |status: &NodeStatus| advice_as(status, 0);
    let mut reasons: Vec<_> = told.into_iter().filter_map(reason).collect();
    let mut lines = Vec::new();
    for status in statuses {
        if let Some(reason) = reason(status).filter(|reason| !reasons.contains(reason)) {
            reasons.push(reason);
            lines.extend(advice(status));
        }
    }
    lines
}

/// Why a node that answers takes no part in a cell, and what to do.
pub(super) fn advice(status: &NodeStatus) -> Option<String> {
    advice_as(status, status.node)
}

/// The advice as if the node had this id.
fn advice_as(status: &NodeStatus, node: u16) -> Option<String> {
    let refusal = status.peers.iter().find_map(|peer| {
        let problem = peer.problem.as_deref().filter(|_| !peer.up)?;
        Some((peer.node, problem.strip_prefix("it refused us: ")?))
    });
    if let (Membership::Blank | Membership::Founding, Some((peer, problem))) =
        (status.membership, refusal)
    {
        let problem = plain(problem);
        return Some(format!(
            "node {node} takes no part in the cell, because node {peer} refuses it: {problem}"
        ));
    }
    Some(match status.membership {
        Membership::Founding => {
            let founds = |peer: &PeerStatus| peer.up && peer.problem.is_none();
            let is_missing = |id: &&u16| {
                **id != status.node
                    && !status.peers.iter().any(|peer| peer.node == **id && founds(peer))
            };
            let missing: Vec<u16> = status.members.iter().filter(is_missing).copied().collect();
            let then = if missing.is_empty() {
                "the nodes are about to found it".to_owned()
            } else {
                format!("start {} with --new-cell, too", these(&missing))
            };
            format!("node {node} waits until all nodes of its list can found the cell: {then}")
        }
        Membership::Blank => format!(
            "node {node} is not a member of a cell yet: add it with `paxoslease members add \
             {node}=HOST:PORT` at a member. Only if no node of this cell ever ran, start all nodes \
             with --new-cell"
        ),
        Membership::DiskLost => format!(
            "node {node} has another data folder than the member with its id: give it an id that \
             was never used and an empty data_dir, and make it a member with `paxoslease members \
             replace {node} ID=HOST:PORT`"
        ),
        Membership::Fixed | Membership::Member | Membership::Outside => return None,
    })
}

/// `node 3`, or `nodes 2 3`.
fn these(nodes: &[u16]) -> String {
    format!("node{} {}", if nodes.len() == 1 { "" } else { "s" }, ids(nodes))
}
