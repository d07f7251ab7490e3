//! Changes of leases as this node sees them, as server-sent events: hints.

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

use super::App;
use super::connection::limited;
use super::input::{Fields, Parameters};
use super::leases::Lease;
use super::permit::Permit;
use super::refusal::Refusal;

/// A comment this often shows each end that the other is still connected.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// The only parameter of a watch and of the page.
pub(super) fn prefix(fields: Fields) -> Result<String, Refusal> {
    let fields = fields.only(&["prefix"])?;
    let prefix = fields.text("prefix")?.unwrap_or_default();
    let (len, max) = (prefix.len(), Name::LEN_MAX);
    if len > max {
        let error = TextError::TooLong { len, max };
        return Err(Refusal::BadRequest(format!("\"prefix\": {error}")));
    }
    Ok(prefix.to_owned())
}

/// The data of an event. A client that did not keep up missed some.
#[derive(Serialize)]
#[serde(untagged)]
enum Seen {
    Held(Lease),
    Freed { name: String },
    Expired { name: String, fence: String },
    Missed { count: u64 },
}

/// A comment opens the stream once the watch has begun. A client that lists leases after that
/// comment misses no later change of them.
pub(super) async fn watch(
    State(app): State<App>,
    Extension(permit): Extension<Permit>,
    Parameters(fields): Parameters,
) -> Result<impl IntoResponse, Refusal> {
    let prefix = prefix(fields)?;
    permit.check_within(&prefix)?;
    let Ok(seat) = Arc::clone(&app.watchers).try_acquire_owned() else {
        limited("watchers");
        let problem = "all watches of this node are in use".to_owned();
        return Err(Refusal::Busy(problem));
    };
    let watch = app.node.watch_filtered(&prefix, permit.readable());
    // Shards answer in order, so when the status is here, all of them watch.
    app.status().await?;
    let events = events(app, permit, prefix, (watch, seat));
    let events = Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE));
    // Some proxies collect a response before they pass it on.
    Ok(([(HeaderName::from_static("x-accel-buffering"), "no")], events))
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

/// `None` for a kind of change that has no event.
fn event(change: Change) -> Option<Event> {
    let (kind, data) = match change {
        Change::Held(seen) => ("held", Seen::Held(seen.into())),
        Change::Freed { name } => ("freed", Seen::Freed { name }),
        Change::Expired { name, fence } => {
            ("expired", Seen::Expired { name, fence: fence.to_string() })
        }
        Change::Missed(count) => ("missed", Seen::Missed { count }),
        _ => return None,
    };
    Some(Event::default().event(kind).json_data(data).expect("plain data"))
}
