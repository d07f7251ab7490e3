//! The cell as this node sees it, for people, probes and Prometheus: hints, all of it.

use std::time::Duration;

use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use axum::{Extension, Json};
use paxoslease_node::{PeerStatus, Role, Status};
use serde::Serialize;
#[cfg(test)]
use utoipa::ToSchema;

#[cfg(test)]
use super::document::{CellStatus, NotReady, NotTold};
use super::permit::Permit;
use super::refusal::{Changed, ErrorBody, Problem, Refusal};
use super::{App, OPENAPI};

/// The cell as this node sees it.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema))]
pub(super) struct Cell {
    #[serde(flatten)]
    #[cfg_attr(test, schema(value_type = CellStatus))]
    status: Status,
    /// Why an acquire here would fail now, or this node does not vote; `null` if all is well.
    problem: Option<ErrorBody>,
}

/// Who is in the cell, who can be reached, who is quarantined, and what that means for an acquire.
#[cfg_attr(test, utoipa::path(
    get, path = "/v1/cell", operation_id = "cell", tag = "hints",
    responses((status = 200, description = "The cell, as this node sees it", body = Cell), NotTold),
))]
pub(super) async fn cell(
    State(app): State<App>,
    Extension(permit): Extension<Permit>,
) -> Result<Json<Cell>, Refusal> {
    let mut status = app.status().await?;
    status.waiting.retain(|wanted| permit.mentions(&wanted.name));
    let problem = unready(&status).map(|refusal| refusal.body());
    Ok(Json(Cell { status, problem }))
}

/// All is well.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema))]
pub(super) struct Well {
    /// `ok`.
    #[cfg_attr(test, schema(value_type = String, example = "ok"))]
    status: &'static str,
}

/// Whether this process serves.
#[cfg_attr(test, utoipa::path(
    get, path = "/healthz", operation_id = "health", tag = "operation",
    responses((status = 200, description = "It does", body = Well)),
))]
pub(super) async fn healthz() -> Json<Well> {
    Json(Well { status: "ok" })
}

/// Whether this node votes, and reaches a majority that does: what a rolling restart waits for.
///
/// As it was half a second ago at most: anybody may ask, so the answer costs the node little.
#[cfg_attr(test, utoipa::path(
    get, path = "/readyz", operation_id = "ready", tag = "operation",
    responses((status = 200, description = "It does", body = Well), NotReady),
))]
pub(super) async fn readyz(State(app): State<App>) -> Result<Json<Well>, Refusal> {
    let status = app.node.status_shown().map_err(|_| Refusal::Stopping)?;
    match unready(&status) {
        Some(refusal) => Err(refusal),
        None => Ok(Json(Well { status: "ok" })),
    }
}

/// Numbers of this node, for Prometheus.
#[cfg_attr(test, utoipa::path(
    get, path = "/metrics", operation_id = "metrics", tag = "operation",
    responses((status = 200, description = "Prometheus' text format", body = String, content_type = "text/plain")),
))]
pub(super) async fn metrics(State(app): State<App>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], app.metrics.render())
}

/// This document.
#[cfg_attr(test, utoipa::path(
    get, path = "/openapi.json", operation_id = "openapi", tag = "operation",
    responses((status = 200, description = "OpenAPI 3.1", body = Object)),
))]
pub(super) async fn openapi() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], OPENAPI)
}

impl App {
    pub(super) async fn status(&self) -> Result<Status, Refusal> {
        self.node.status().await.map_err(|_| Refusal::Stopping)
    }

    /// No majority answered; this is why, as far as this node can tell.
    pub(super) async fn no_quorum(&self, changed: Changed) -> Refusal {
        match self.status().await {
            Ok(status) => Refusal::Cell { problem: Problem::of(&status), changed },
            Err(stopping) => stopping,
        }
    }
}

/// Why this node is not ready, if it is not: no majority, or its own quarantine.
pub(super) fn unready(status: &Status) -> Option<Refusal> {
    let own = status.quarantine_remaining;
    if status.ready && own.is_zero() {
        return None;
    }
    let problem = match Problem::of(status) {
        Problem::Silent { unreachable } if !own.is_zero() => {
            Problem::Quarantine { remaining: own, unreachable }
        }
        Problem::Quarantine { remaining, unreachable } => {
            Problem::Quarantine { remaining: remaining.max(own), unreachable }
        }
        problem => problem,
    };
    Some(Refusal::Cell { problem, changed: Changed::Nothing })
}

impl Problem {
    fn of(status: &Status) -> Self {
        let is_member = |peer: &&PeerStatus| status.members.contains(&peer.node);
        let (up, down): (Vec<&PeerStatus>, _) =
            status.peers.iter().filter(is_member).partition(|peer| peer.up);
        let unreachable = down.into_iter().map(|peer| peer.node).collect();
        // How long until each member that can be reached votes, the soonest first.
        let mut votes_after: Vec<Duration> =
            up.into_iter().map(|peer| peer.quarantine_remaining).collect();
        if status.role == Role::Member {
            votes_after.push(status.quarantine_remaining);
        }
        votes_after.sort_unstable();
        let others_of_majority = status.members.len() / 2;
        match votes_after.get(others_of_majority).copied() {
            None => Self::OutOfReach { unreachable },
            Some(Duration::ZERO) => match &status.ballot_problem {
                Some(why) => Self::NoBallots { why: why.clone(), unreachable },
                None => Self::Silent { unreachable },
            },
            Some(remaining) => Self::Quarantine { remaining, unreachable },
        }
    }
}
