//! Acquiring, renewing and releasing leases, for holders that count their own time (T2); and
//! inspecting and listing leases, which answers with hints.
//!
//! `docs/openapi.json` describes the bodies.

use std::time::Duration;

use axum::extract::State;
use axum::{Extension, Json};
use paxoslease_node::front::{
    Answer, Cursor, Holder, Label, Lasts, LiveLease, Name, PageMax, Request, Sighting,
};
use serde::Serialize;

use super::App;
use super::connection::{Connection, limited};
use super::input::{Body, LeaseName, Parameters};
use super::permit::Permit;
use super::refusal::{Changed, Refusal, millis_down};
use crate::audit::{Entry, Event};
use crate::config::Verb;
use crate::durable::{DurableRequest, lasting};
use crate::quota::Renewal;
use paxoslease_node::Limit;

const LIMIT_DEFAULT: u32 = 100;
const LIMIT_MAX: u32 = 1000;
/// How often a shard is asked for one page. So a page of rare names among many may be short, and
/// costs no more than a full page of common names.
const ASKS_PER_PAGE: usize = 64;

/// A lease that the client holds now, and what it needs to count its time.
#[derive(Serialize)]
pub(super) struct Grant {
    name: String,
    fence: String,
    /// -1 for ever.
    ttl_ms: i64,
    /// Only after an acquire, as the next one.
    #[serde(skip_serializing_if = "Option::is_none")]
    waited_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    holder: Option<String>,
    clock_drift_ppm: u32,
    clock_granularity_us: u64,
}

impl Grant {
    fn new(app: &App, name: Name<'_>, fence: u64, lasts: Lasts) -> Self {
        let drift = app.node.drift();
        // Rounded up: a holder that allows for a greater error believes for a shorter time.
        let granularity_us = drift.granularity().as_nanos().div_ceil(1000);
        Self {
            name: name.to_string(),
            fence: fence.to_string(),
            ttl_ms: lasts
                .as_millis()
                .map_or(-1, |millis| i64::try_from(millis).unwrap_or(i64::MAX)),
            waited_ms: None,
            holder: None,
            clock_drift_ppm: drift.ppm(),
            clock_granularity_us: u64::try_from(granularity_us).unwrap_or(u64::MAX),
        }
    }
}

pub(super) async fn acquire(
    State(app): State<App>,
    Extension(connection): Extension<Connection>,
    Extension(permit): Extension<Permit>,
    name: LeaseName,
    Body(fields): Body,
) -> Result<Json<Grant>, Refusal> {
    let fields = fields.only(&["ttl", "wait", "holder", "permits", "durable"])?;
    let (permits, lasts) = (fields.permits()?, fields.lasts()?);
    if permits.is_some() && lasts.is_some() {
        let problem = "a semaphore has no durable permits; leave out \"permits\" or \"durable\"";
        return Err(Refusal::BadRequest(problem.to_owned()));
    }
    if permits.is_some() {
        // The lease will be that of a permit.
        permit.check(Verb::Acquire, &format!("{}#1", name.name()))?;
    }
    let ttl = if lasts.is_some() { Duration::ZERO } else { fields.ttl()? };
    let wait = fields.duration("wait")?.unwrap_or_default();
    let holder = fields.text("holder")?.map(str::to_owned);
    let holder = holder.unwrap_or_else(|| connection.address.to_string());
    let asked = Holder::new(&holder).map_err(Refusal::Holder)?;
    connection.acquires(app.node.now())?;
    let claim =
        permit.quota().map(|quota| app.gate.quotas.claim(quota, app.node.now())).transpose();
    let mut claim = claim.map_err(|most| {
        limited(Limit::Quota.name());
        Refusal::Busy(format!("this token has {most} leases through this node, its quota"))
    })?;
    let (lease, is_retried) = ((name.name(), asked).into(), false);
    let asking = app.remote.ask(Request::Acquire { lease, ttl, wait, permits, is_retried, lasts });
    // P8: if this future ends without an answer, dropping `asking` withdraws the acquire.
    let answer = tokio::select! {
        biased;
        answer = app.unless_stopping(asking) => answer?,
        refusal = permit.withdrawn(name.name().as_str()) => return Err(refusal),
        refusal = connection.left() => return Err(refusal),
    };
    let granted = answer.granted_label(&Label::new(name.name(), Holder::NONE));
    match answer {
        Answer::Granted { tenure, ttl, waited, .. } => {
            let granted = granted.expect("a grant has a label");
            let (fence, lasts) = (tenure.fence(), lasts.unwrap_or(lasting(ttl.as_millis().into())));
            if let Some(claim) = &mut claim {
                claim.granted(granted.name(), fence, lasts.ends_at(app.node.now()));
            }
            let entry = Entry::of(Event::Granted, granted.name().as_str(), Some(fence));
            let entry = entry.by(connection.address, permit.token_name());
            app.gate.audit.put(Entry { holder: Some(holder.clone()), ..entry });
            let (waited_ms, holder) = (Some(millis_down(waited)), Some(holder));
            Ok(Json(Grant { waited_ms, holder, ..Grant::new(&app, granted.name(), fence, lasts) }))
        }
        Answer::Held(by) => Err(held(&permit, &by, !wait.is_zero())),
        answer => {
            let durable = lasts.map(DurableRequest::Acquire);
            let changed = durable.map_or(Changed::NothingLasting, Changed::Durable);
            Err(app.refuse(&name, answer, changed).await)
        }
    }
}

pub(super) async fn renew(
    State(app): State<App>,
    Extension(connection): Extension<Connection>,
    Extension(permit): Extension<Permit>,
    name: LeaseName,
    Body(fields): Body,
) -> Result<Json<Grant>, Refusal> {
    let fields = fields.only(&["fence", "ttl", "durable"])?;
    let (fence, lasts) = (fields.fence()?, fields.lasts()?);
    let ttl = if lasts.is_some() { Duration::ZERO } else { fields.ttl()? };
    // Again: the token may have been removed while the body was on its way.
    permit.check(Verb::Acquire, name.name().as_str())?;
    let renewal =
        permit.quota().map(|quota| Renewal::new(&app.gate.quotas, quota, name.name(), fence));
    let lease = name.name().into();
    let entry = Entry::of(Event::Lost, name.name().as_str(), Some(fence));
    let entry = entry.by(connection.address, permit.token_name());
    let answer = app.remote.ask(match lasts {
        Some(lasts) => Request::Keep { lease, fence, lasts },
        None => Request::Renew { lease, fence, ttl },
    });
    let answer = answer.await;
    app.gate.audit.answered(Box::new(entry), &answer);
    let (fence, lasts) = match answer {
        Answer::Renewed { ttl, .. } => (fence, lasting(ttl.as_millis().into())),
        Answer::Kept { fence, lasts, .. } => (fence.fence(), lasts),
        answer => {
            let keep = lasts.map(|_| Changed::Durable(DurableRequest::Keep));
            return Err(app.refuse(&name, answer, keep.unwrap_or(Changed::NothingLasting)).await);
        }
    };
    if let Some(renewal) = renewal {
        renewal.renewed(lasts.ends_at(app.node.now()));
    }
    Ok(Json(Grant::new(&app, name.name(), fence, lasts)))
}

#[derive(Serialize)]
pub(super) struct Released {
    name: String,
    fence: String,
}

pub(super) async fn release(
    State(app): State<App>,
    Extension(connection): Extension<Connection>,
    Extension(permit): Extension<Permit>,
    name: LeaseName,
    Body(fields): Body,
) -> Result<Json<Released>, Refusal> {
    let fields = fields.only(&["fence", "force", "durable"])?;
    let (fence, is_forced) = (fields.fence()?, fields.flag("force")?);
    let is_durable = fields.flag("durable")?;
    // Again: the token may have been removed while the body was on its way.
    let verb = if is_forced { Verb::Admin } else { Verb::Acquire };
    permit.check(verb, name.name().as_str())?;
    if is_forced && let Some(count) = app.notices.again(&app.node) {
        let (client, name) = (connection.address, name.name().as_str());
        tracing::warn!(%client, name, fence, count, "leases are released by force");
    }
    app.gate.quotas.ended(name.name(), fence);
    let lease = name.name().into();
    let event = if is_forced { Event::ForceReleased } else { Event::Released };
    let entry = Entry::of(event, name.name().as_str(), Some(fence));
    let entry = entry.by(connection.address, permit.token_name());
    let answer = app.remote.ask(Request::Release { lease, fence, is_durable }).await;
    app.gate.audit.answered(Box::new(entry), &answer);
    match answer {
        Answer::Released { held: Some(true), confirmed: true } => {
            Ok(Json(Released { name: name.name().to_string(), fence: fence.to_string() }))
        }
        Answer::Released { held: Some(false), confirmed: true } => {
            Err(Refusal::NotHeld { name: name.name().to_string() })
        }
        Answer::Released { held: None, confirmed: true } => {
            Err(Refusal::Unknown { name: name.name().to_string() })
        }
        Answer::Released { confirmed: false, .. } => {
            Err(app.refuse(&name, Answer::NoQuorum, Changed::Released).await)
        }
        answer => Err(app.refuse(&name, answer, Changed::Released).await),
    }
}

/// A lease as it was seen: a hint.
#[derive(Serialize)]
pub(super) struct Lease {
    pub(super) name: String,
    pub(super) holder: String,
    pub(super) fence: String,
    /// -1 for ever.
    pub(super) ttl_ms: i64,
}

impl From<paxoslease_node::LeaseInfo> for Lease {
    fn from(seen: paxoslease_node::LeaseInfo) -> Self {
        let paxoslease_node::LeaseInfo { name, holder, fence, remaining } = seen;
        let ttl_ms = i64::try_from(remaining.as_millis()).unwrap_or(-1);
        Self { name, holder, fence: fence.to_string(), ttl_ms }
    }
}

fn lease(seen: LiveLease) -> Lease {
    paxoslease_node::LeaseInfo::from(seen).into()
}

/// A client that may acquire a name is told that it is held. A client that may read the name is
/// also told by which holder.
fn held(permit: &Permit, by: &Sighting, waited: bool) -> Refusal {
    let name = by.label.name();
    let tenure = || (by.label.holder().to_string(), by.tenure.fence());
    Refusal::Held {
        name: name.to_string(),
        by: permit.shows(name.as_str()).then(tenure),
        remaining: by.remaining.as_duration(),
        waited,
    }
}

pub(super) async fn inspect(
    State(app): State<App>,
    name: LeaseName,
) -> Result<Json<Lease>, Refusal> {
    match app.remote.ask(Request::Inspect { lease: name.name().into() }).await {
        Answer::Inspected(Some(seen)) => Ok(Json(lease(*seen))),
        Answer::Inspected(None) => Err(Refusal::NotSeen { name: name.name().to_string() }),
        answer => Err(app.refuse(&name, answer, Changed::Nothing).await),
    }
}

#[derive(Serialize)]
pub(super) struct Page {
    /// Fewer than asked for, maybe none, although there is a cursor.
    leases: Vec<Lease>,
    /// `None` at the end.
    cursor: Option<String>,
}

pub(super) async fn list(
    State(app): State<App>,
    Extension(permit): Extension<Permit>,
    Parameters(fields): Parameters,
) -> Result<Json<Page>, Refusal> {
    let fields = fields.only(&["prefix", "limit", "cursor"])?;
    let limit = fields.parse("limit", "a number from 1 to 1000")?.unwrap_or(LIMIT_DEFAULT);
    if !(1..=LIMIT_MAX).contains(&limit) {
        let problem = format!("\"limit\" is {limit}; expected a number from 1 to {LIMIT_MAX}");
        return Err(Refusal::BadRequest(problem));
    }
    let cursor = fields.parse("cursor", "the \"cursor\" of the page before")?;
    let prefix = fields.text("prefix")?.unwrap_or_default();
    permit.check_within(prefix)?;
    let (leases, cursor) =
        app.page(&permit, prefix, limit, cursor.unwrap_or(Cursor::START)).await?;
    Ok(Json(Page { leases, cursor: cursor.map(|cursor| cursor.to_string()) }))
}

impl App {
    /// Leases from `cursor` on that may be shown, and the cursor of the next page.
    pub(super) async fn page(
        &self,
        permit: &Permit,
        prefix: &str,
        limit: u32,
        mut cursor: Cursor,
    ) -> Result<(Vec<Lease>, Option<Cursor>), Refusal> {
        let (mut page, mut left) = (Vec::new(), PageMax::leases(limit));
        for _ in 0..ASKS_PER_PAGE {
            if left.leases == 0 || left.bytes == 0 {
                break;
            }
            let (prefix, filter, max) = (prefix.into(), permit.readable(), left);
            match self.remote.ask(Request::List { cursor, prefix, filter, max }).await {
                Answer::Listed { leases, next } => {
                    for seen in leases {
                        left.leases -= 1;
                        left.bytes = left.bytes.saturating_sub(PageMax::lease_bytes(&seen.label));
                        page.push(lease(seen));
                    }
                    let Some(next) = next else { return Ok((page, None)) };
                    cursor = next;
                }
                Answer::TooManyLists(most) => {
                    limited(Limit::Lists.name());
                    return Err(Refusal::Busy(format!("{most} lists wait in this shard already")));
                }
                _ => return Err(Refusal::Stopping),
            }
        }
        Ok((page, Some(cursor)))
    }

    /// The error for an answer other than success.
    async fn refuse(&self, name: &LeaseName, answer: Answer, changed: Changed) -> Refusal {
        if let Some(limit) = answer.limit() {
            limited(limit.name());
        }
        match answer {
            Answer::NoQuorum => self.no_quorum(changed).await,
            Answer::NotKept(why) if let Changed::Durable(request) = changed => {
                Refusal::NotDurable { why, request }
            }
            answer => refused(name.name(), answer),
        }
    }
}

fn refused(name: Name<'_>, answer: Answer) -> Refusal {
    match answer {
        Answer::NotHeld => Refusal::NotHeld { name: name.to_string() },
        Answer::Ttl(error) => Refusal::Ttl(error),
        Answer::Name(error) => Refusal::BadRequest(format!("the name of a permit: {error}")),
        Answer::Full => Refusal::Busy("this node keeps as many names as it may".to_owned()),
        Answer::Busy(error) => Refusal::Busy(error.to_string()),
        Answer::Stopping => Refusal::Stopping,
        answer => {
            tracing::error!(?answer, "an answer to another request: please report it");
            Refusal::Internal
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_to_another_request_is_an_error_and_no_panic() {
        let name = Name::new("a").expect("a name");
        assert_eq!(refused(name, Answer::Abandoned), Refusal::Internal);
        assert_eq!(refused(name, Answer::Stopping), Refusal::Stopping);
    }
}
