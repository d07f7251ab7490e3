//! Changes as they are seen, as server-sent events: hints.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::http::HeaderName;
use axum::response::IntoResponse;
use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::stream::{self, Stream, StreamExt as _};
use paxoslease_node::front::Name;
use paxoslease_node::{Change, TextError, Watch};
use serde::Serialize;
use tokio::sync::OwnedSemaphorePermit;
#[cfg(test)]
use utoipa::{IntoParams, ToSchema};

use super::App;
use super::connection::limited;
#[cfg(test)]
use super::document::NotWatched;
use super::input::{Fields, FromFields, Parameters};
use super::leases::Lease;
use super::permit::Permit;
use super::refusal::Refusal;

/// A comment this often tells both ends that the other is still there.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// What to look at.
#[cfg_attr(test, derive(IntoParams))]
#[cfg_attr(test, into_params(parameter_in = Query))]
pub(super) struct Look {
    /// Only names that begin with this.
    #[cfg_attr(test, param(required = false, example = "jobs/"))]
    pub(super) prefix: String,
}

impl FromFields for Look {
    fn from_fields(fields: &mut Fields) -> Result<Self, Refusal> {
        let prefix = fields.text("prefix")?.unwrap_or_default();
        let (len, max) = (prefix.len(), Name::LEN_MAX);
        if len > max {
            let error = TextError::TooLong { len, max };
            return Err(Refusal::BadRequest(format!("\"prefix\": {error}")));
        }
        Ok(Self { prefix })
    }
}

/// The data of an event `freed`: a lease was given back.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema))]
pub(super) struct Freed {
    name: String,
}

/// The data of an event `expired`: a lease ran out a moment ago, and nobody took it since.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema))]
pub(super) struct Expired {
    name: String,
    fence: String,
}

/// The data of an event `missed`: you were too slow, list again to know where you are.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema))]
pub(super) struct Missed {
    /// How many events were left out.
    count: u64,
}

/// The data of an event.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema))]
#[serde(untagged)]
pub(super) enum Seen {
    Held(Lease),
    Expired(Expired),
    Freed(Freed),
    Missed(Missed),
}

/// Server-sent events: `held`, `freed`, `expired` and `missed`, as this node sees them. Hints.
///
/// A comment opens the stream once the watch has begun, so whatever is listed after that comment
/// and changes later is told. Whoever does not keep up is told how much was `missed`. The stream
/// ends when the node stops.
#[cfg_attr(test, utoipa::path(
    get, path = "/v1/watch", operation_id = "watch", tag = "hints", params(Look),
    responses(
        (status = 200, description = "`event: held` with the data of a lease; `freed` with a \
            name; `expired` with a name and a fence; `missed` with a count",
            body = Seen, content_type = "text/event-stream"),
        NotWatched,
    ),
))]
pub(super) async fn watch(
    State(app): State<App>,
    Extension(permit): Extension<Permit>,
    Parameters(Look { prefix }): Parameters<Look>,
) -> Result<impl IntoResponse, Refusal> {
    permit.check_within(&prefix)?;
    let Ok(seat) = Arc::clone(&app.watchers).try_acquire_owned() else {
        limited("watchers");
        return Err(crowded());
    };
    let watch = app.node.watch_filtered(&prefix, permit.readable());
    // Answered by every shard after it began to watch, for questions are answered in order.
    app.status().await?;
    let events = events(app, permit, prefix, (watch, seat));
    let events = Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE));
    // Some proxies collect a response before they pass it on.
    Ok(([(HeaderName::from_static("x-accel-buffering"), "no")], events))
}

pub(super) fn crowded() -> Refusal {
    Refusal::Busy("as many watch at this node as it serves at a time".to_owned())
}

fn events(
    app: App,
    permit: Permit,
    prefix: String,
    looking: (Watch, OwnedSemaphorePermit),
) -> impl Stream<Item = Result<Event, Infallible>> {
    let begun = stream::iter([Ok(Event::default().comment("watching"))]);
    begun.chain(stream::unfold((app, looking), move |(app, (mut watch, seat))| {
        let (permit, prefix) = (permit.clone(), prefix.clone());
        async move {
            loop {
                let change = tokio::select! {
                    biased;
                    () = permit.blinded(&prefix) => return None,
                    change = app.unless_stopping(watch.next()) => change.ok()??,
                };
                let is_shown = name_of(&change).is_none_or(|name| permit.shows(name));
                if let Some(event) = is_shown.then(|| event(change)).flatten() {
                    return Some((Ok(event), (app, (watch, seat))));
                }
            }
        }
    }))
}

fn name_of(change: &Change) -> Option<&str> {
    match change {
        Change::Held(seen) => Some(&seen.name),
        Change::Freed { name } | Change::Expired { name, .. } => Some(name),
        _ => None,
    }
}

/// `None` for a kind of change that this interface does not tell of.
fn event(change: Change) -> Option<Event> {
    let (kind, data) = match change {
        Change::Held(seen) => ("held", Seen::Held(seen.into())),
        Change::Freed { name } => ("freed", Seen::Freed(Freed { name })),
        Change::Expired { name, fence } => {
            ("expired", Seen::Expired(Expired { name, fence: fence.to_string() }))
        }
        Change::Missed(count) => ("missed", Seen::Missed(Missed { count })),
        _ => return None,
    };
    Some(Event::default().event(kind).json_data(data).expect("plain data"))
}
