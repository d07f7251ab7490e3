//! The cell as this node sees it, for people, probes and Prometheus: hints.

use std::time::Duration;

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use metrics::gauge;
use paxoslease_node::front::{Answer, Request};
use paxoslease_node::{MembersChange, MembersPlan, MembersRequest, PeerStatus, Role, Status};
use serde::Serialize;
use serde_json::{Value, json};

use super::connection::Connection;
use super::input::{Body, missing};
use super::permit::Permit;
use super::refusal::{Changed, ErrorBody, Problem, Refusal, Why};
use super::{App, OPENAPI};
use crate::access::shorten_status;
use crate::audit::Entry;
use crate::config::Verb;

/// The cell as this node sees it.
#[derive(Serialize)]
pub(super) struct Cell {
    #[serde(flatten)]
    status: Status,
    /// Why an acquire here would fail now, or why this node does not vote.
    problem: Option<ErrorBody>,
}

pub(super) async fn cell(
    State(app): State<App>,
    Extension(permit): Extension<Permit>,
) -> Result<Response, Refusal> {
    let mut status = app.status().await?;
    status.waiting.retain(|wanted| permit.check(permit.verb, &wanted.name).is_ok());
    let problem = unready(&status).map(|refusal| refusal.body());
    let cell = Cell { status, problem };
    if permit.verb == Verb::Admin {
        return Ok(Json(cell).into_response());
    }
    let mut short = json!(cell);
    shorten_status(&mut short);
    Ok(Json(short).into_response())
}

/// Changes the members, or says what a change would lead to.
pub(super) async fn change_members(
    State(app): State<App>,
    Extension(connection): Extension<Connection>,
    Extension(permit): Extension<Permit>,
    Body(fields): Body,
) -> Result<Json<MembersPlan>, Refusal> {
    let fields = fields.only(&["action", "nodes", "dry_run", "yes"])?;
    let action = fields.text("action")?.ok_or_else(|| missing("action", "replace"))?;
    let change = MembersChange::parse(action, fields.texts("nodes")?);
    let change = change.map_err(|error| Refusal::BadRequest(error.to_string()))?;
    let (dry_run, yes) = (fields.flag("dry_run")?, fields.flag("yes")?);
    let request = MembersRequest { change, dry_run, yes };
    // Again: the token may have been removed while the body was on its way.
    permit.check_cell()?;
    let entry = Entry::of_members(&request);
    let answer = app.remote.ask(Request::Members(Box::new(request))).await;
    if let Some(entry) = entry {
        let entry = entry.by(connection.address, permit.token_name());
        app.gate.audit.answered(Box::new(entry), &answer);
    }
    match answer {
        Answer::Members(outcome) => outcome.map(Json).map_err(Refusal::Members),
        _ => Err(Refusal::Stopping),
    }
}

/// Whether this process serves.
pub(super) async fn healthz() -> Json<Value> {
    Json(json!({"status": "ok"}))
}

/// Whether this node votes, writes its record, and reaches a majority that votes: what a rolling
/// restart waits for.
///
/// As it was half a second ago at most. Every client may ask, so the answer must cost little.
pub(super) async fn readyz(State(app): State<App>) -> Result<Json<Value>, Refusal> {
    let status = app.node.status_shown().map_err(|_| Refusal::Stopping)?;
    unready(&status).map_or_else(|| Ok(Json(json!({"status": "ok"}))), Err)
}

pub(super) async fn metrics(State(app): State<App>) -> impl IntoResponse {
    if let Ok(status) = app.node.status_shown() {
        gauge!("paxoslease_ready").set(f64::from(status.ready));
        gauge!("paxoslease_disk_problem").set(f64::from(status.disk_problem.is_some()));
    }
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], app.metrics.render())
}

pub(super) async fn openapi() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], OPENAPI)
}

impl App {
    pub(super) async fn status(&self) -> Result<Status, Refusal> {
        self.node.status().await.map_err(|_| Refusal::Stopping)
    }

    /// Why no majority answered, as far as this node can tell.
    pub(super) async fn no_quorum(&self, changed: Changed) -> Refusal {
        match self.status().await {
            Ok(status) => Refusal::Cell { problem: Problem::of(&status), changed },
            Err(stopping) => stopping,
        }
    }
}

/// Why this node is not ready, if it is not: no majority, its own quarantine, or its disk.
pub(super) fn unready(status: &Status) -> Option<Refusal> {
    if status.ready {
        return None;
    }
    let own = status.quarantine_remaining;
    let Problem { why, unreachable, has_record } = Problem::of(status);
    let why = match why {
        Why::Silent if !own.is_zero() => Why::Quarantine(own),
        Why::Quarantine(remaining) => Why::Quarantine(remaining.max(own)),
        why => why,
    };
    let problem = Problem { why, unreachable, has_record };
    Some(Refusal::Cell { problem, changed: Changed::Nothing })
}

impl Problem {
    fn of(status: &Status) -> Self {
        let is_member = |peer: &&PeerStatus| status.members.contains(&peer.node);
        let (up, down): (Vec<&PeerStatus>, _) =
            status.peers.iter().filter(is_member).partition(|peer| peer.up);
        let unreachable = down.into_iter().map(|peer| peer.node).collect();
        // How long until each reachable member votes, the soonest first.
        let mut votes_after: Vec<Duration> =
            up.into_iter().map(|peer| peer.quarantine_remaining).collect();
        if status.role == Role::Member {
            votes_after.push(status.quarantine_remaining);
        }
        votes_after.sort_unstable();
        let others_of_majority = status.members.len() / 2;
        let why = match (status.membership.problem(), votes_after.get(others_of_majority).copied())
        {
            (Some(problem), _) => Why::NoPart(problem),
            (None, None) => Why::OutOfReach,
            (None, Some(Duration::ZERO)) => match (&status.ballot_problem, &status.disk_problem) {
                (_, Some(why)) => Why::Disk(why.clone()),
                (Some(why), None) => Why::NoBallots(why.clone()),
                (None, None) => Why::Silent,
            },
            (None, Some(remaining)) => Why::Quarantine(remaining),
        };
        Self { why, unreachable, has_record: status.has_record }
    }
}
