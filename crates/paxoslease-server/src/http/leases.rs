//! Taking, keeping and giving back leases, for holders that keep their own time (T2); and looking
//! at who holds what, which is a hint.

use std::time::Duration;

use axum::extract::State;
use axum::{Extension, Json};
use paxoslease_node::front::{Answer, Cursor, Drift, Holder, Name, PageMax, Request, Sighting};
use serde::Serialize;
#[cfg(test)]
use utoipa::{IntoParams, ToSchema};

use super::App;
use super::connection::{Connection, limited};
#[cfg(test)]
use super::document::{NotAcquired, NotInspected, NotListed, NotReleased, NotRenewed};
use super::input::{Body, Fields, FromFields, LeaseName, Parameters, required};
use super::permit::Permit;
use super::refusal::{Changed, Refusal, millis_down};
use crate::limits::Limit;

/// Leases on a page, unless asked otherwise, and at most.
const LIMIT_DEFAULT: u32 = 100;
const LIMIT_MAX: u32 = 1000;
/// How often a shard is asked for one page. A page of rare names among many may so be short, and
/// costs no more than a full one of common names.
const ASKS_PER_PAGE: usize = 64;

/// What to take, and how.
#[cfg_attr(test, derive(ToSchema))]
#[cfg_attr(test, schema(example = json!({"ttl": "15s", "wait": "5s", "holder": "worker-7"})))]
pub(super) struct Acquire {
    /// How long others are excluded unless it is renewed, from the start of the winning round:
    /// 50 ms up to the cell's `max_lease_ms`. A number and its unit: `500ms`, `15s`, `1m30s`.
    #[cfg_attr(test, schema(value_type = String))]
    ttl: Duration,
    /// How long to wait while somebody else holds it; not at all if not said.
    #[cfg_attr(test, schema(value_type = Option<String>, nullable = false))]
    wait: Duration,
    /// Who you are, for people to read: up to 256 bytes, never compared for safety. Your address
    /// if not said.
    #[cfg_attr(test, schema(nullable = false))]
    holder: Option<String>,
}

impl FromFields for Acquire {
    fn from_fields(fields: &mut Fields) -> Result<Self, Refusal> {
        let (ttl, wait) = (fields.duration("ttl"), fields.duration("wait"));
        let holder = fields.text("holder");
        let ttl = required("ttl", ttl?, "\"15s\"")?;
        Ok(Self { ttl, wait: wait?.unwrap_or_default(), holder: holder? })
    }
}

/// A lease that is yours now.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema))]
#[cfg_attr(test, schema(example = json!({
    "name": "jobs/nightly", "fence": "1830093145834620929", "ttl_ms": 15000, "waited_ms": 0,
    "holder": "worker-7", "clock_drift_ppm": 1000, "clock_granularity_us": 1000,
})))]
pub(super) struct Grant {
    name: String,
    /// The fencing token: the same for this tenure, renewals included, and greater for every later
    /// one of this name.
    fence: String,
    /// How long others are excluded. Count it from before you sent the request, plus `waited_ms`,
    /// less the drift allowance: the rule is at the top of this document.
    ttl_ms: u64,
    /// How long you were kept waiting before the round that won; never more than it really was.
    waited_ms: u64,
    holder: String,
    /// How far the rate of any clock may be off, yours too: the `e` of the rule, in millionths.
    clock_drift_ppm: u32,
    /// How old a reading of any clock may be, yours too: the `g` of the rule.
    clock_granularity_us: u64,
}

/// Takes a lease, at once or after waiting for whoever holds it.
///
/// Going away takes the wish back: whoever closes the connection while it waits leaves the queue,
/// and a lease granted at that very moment is given back.
#[cfg_attr(test, utoipa::path(
    post, path = "/v1/leases/{name}/acquire", operation_id = "acquire", tag = "leases",
    params(("name" = String, Path, description = "1 to 512 bytes of UTF-8, percent-encoded")),
    request_body = Acquire,
    responses((status = 200, description = "It is yours", body = Grant), NotAcquired),
))]
pub(super) async fn acquire(
    State(app): State<App>,
    Extension(connection): Extension<Connection>,
    Extension(permit): Extension<Permit>,
    name: LeaseName,
    Body(Acquire { ttl, wait, holder }): Body<Acquire>,
) -> Result<Json<Grant>, Refusal> {
    let holder = holder.unwrap_or_else(|| connection.address.to_string());
    let asked = Holder::new(&holder).map_err(Refusal::Holder)?;
    connection.acquires()?;
    let claim = permit.quota().map(|quota| quota.claim(app.node.now())).transpose();
    let mut claim = claim.map_err(|most| {
        limited(Limit::Quota.name());
        Refusal::Busy(format!("this token has {most} leases through this node, its quota"))
    })?;
    let lease = (name.name(), asked).into();
    let asking = app.remote.ask(Request::Acquire { lease, ttl, wait });
    // P8: whichever way this future ends without an answer, dropping `asking` takes it back.
    let answer = tokio::select! {
        biased;
        answer = app.unless_stopping(asking) => answer?,
        refusal = permit.withdrawn(name.name().as_str()) => return Err(refusal),
        refusal = connection.left() => return Err(refusal),
    };
    match answer {
        Answer::Granted { tenure, ttl, waited, .. } => {
            let (fence, ttl) = (tenure.fence(), ttl.as_duration());
            if let Some(claim) = &mut claim {
                claim.granted(name.name(), fence, app.node.now().after(ttl));
            }
            Ok(Json(Grant {
                name: name.to_string(),
                fence: fence.to_string(),
                ttl_ms: millis_down(ttl),
                waited_ms: millis_down(waited),
                holder,
                clock_drift_ppm: app.node.drift().ppm(),
                clock_granularity_us: granularity_us(app.node.drift()),
            }))
        }
        Answer::Held(by) => Err(held(&permit, &by)),
        answer => Err(app.refuse(&name, answer, Changed::NothingLasting).await),
    }
}

/// Rounded up: whoever allows for more believes in less.
fn granularity_us(drift: Drift) -> u64 {
    u64::try_from(drift.granularity().as_nanos().div_ceil(1000)).unwrap_or(u64::MAX)
}

/// What to keep.
#[cfg_attr(test, derive(ToSchema))]
#[cfg_attr(test, schema(example = json!({"fence": "1830093145834620929", "ttl": "15s"})))]
pub(super) struct Renew {
    /// That of your own tenure, as the acquire answered it. One read from a hint is not yours.
    #[cfg_attr(test, schema(value_type = String))]
    fence: u64,
    /// How long others are excluded from now on; never shortens what was granted before.
    #[cfg_attr(test, schema(value_type = String))]
    ttl: Duration,
}

impl FromFields for Renew {
    fn from_fields(fields: &mut Fields) -> Result<Self, Refusal> {
        let (fence, ttl) = (fields.fence("fence"), fields.duration("ttl"));
        Ok(Self { fence: fence?, ttl: required("ttl", ttl?, "\"15s\"")? })
    }
}

/// A lease that is yours for longer.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema))]
#[cfg_attr(test, schema(example = json!({
    "name": "jobs/nightly", "fence": "1830093145834620929", "ttl_ms": 15000,
    "clock_drift_ppm": 1000, "clock_granularity_us": 1000,
})))]
pub(super) struct Renewal {
    name: String,
    /// As before: a renewal does not begin a new tenure.
    fence: String,
    /// How long others are excluded. Count it from before you sent the request, less the drift
    /// allowance; if that ends before what you had, what you had still stands.
    ttl_ms: u64,
    /// How far the rate of any clock may be off, yours too: the `e` of the rule, in millionths.
    clock_drift_ppm: u32,
    /// How old a reading of any clock may be, yours too: the `g` of the rule.
    clock_granularity_us: u64,
}

/// Keeps a lease for longer. Any node can do that, not only the one that granted it.
#[cfg_attr(test, utoipa::path(
    post, path = "/v1/leases/{name}/renew", operation_id = "renew", tag = "leases",
    params(("name" = String, Path, description = "1 to 512 bytes of UTF-8, percent-encoded")),
    request_body = Renew,
    responses((status = 200, description = "It is yours for longer", body = Renewal), NotRenewed),
))]
pub(super) async fn renew(
    State(app): State<App>,
    Extension(permit): Extension<Permit>,
    name: LeaseName,
    Body(Renew { fence, ttl }): Body<Renew>,
) -> Result<Json<Renewal>, Refusal> {
    // Again: the token may have been taken out while the body was on its way.
    permit.check(name.name().as_str())?;
    if let Some(quota) = permit.quota() {
        quota.renews(name.name(), fence, app.node.now().after(ttl));
    }
    let lease = name.name().into();
    match app.remote.ask(Request::Renew { lease, fence, ttl }).await {
        Answer::Renewed { ttl, .. } => Ok(Json(Renewal {
            name: name.to_string(),
            fence: fence.to_string(),
            ttl_ms: millis_down(ttl.as_duration()),
            clock_drift_ppm: app.node.drift().ppm(),
            clock_granularity_us: granularity_us(app.node.drift()),
        })),
        answer => Err(app.refuse(&name, answer, Changed::NothingLasting).await),
    }
}

/// What to give back.
#[cfg_attr(test, derive(ToSchema))]
#[cfg_attr(test, schema(example = json!({"fence": "1830093145834620929"})))]
pub(super) struct Release {
    /// That of your own tenure. Stop relying on the lease before you send this, and never use the
    /// fence again, whatever the answer is.
    #[cfg_attr(test, schema(value_type = String))]
    fence: u64,
}

impl FromFields for Release {
    fn from_fields(fields: &mut Fields) -> Result<Self, Refusal> {
        Ok(Self { fence: fields.fence("fence")? })
    }
}

/// A lease that is over.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema))]
#[cfg_attr(test, schema(example = json!({"name": "jobs/nightly", "fence": "1830093145834620929"})))]
pub(super) struct Released {
    name: String,
    fence: String,
}

/// Gives a lease back, so that others need not wait for its end. Any node can do that.
#[cfg_attr(test, utoipa::path(
    post, path = "/v1/leases/{name}/release", operation_id = "release", tag = "leases",
    params(("name" = String, Path, description = "1 to 512 bytes of UTF-8, percent-encoded")),
    request_body = Release,
    responses((status = 200, description = "It is free", body = Released), NotReleased),
))]
pub(super) async fn release(
    State(app): State<App>,
    Extension(permit): Extension<Permit>,
    name: LeaseName,
    Body(Release { fence }): Body<Release>,
) -> Result<Json<Released>, Refusal> {
    // Again: the token may have been taken out while the body was on its way.
    permit.check(name.name().as_str())?;
    if let Some(quota) = permit.quota() {
        quota.releases(name.name(), fence);
    }
    let lease = name.name().into();
    match app.remote.ask(Request::Release { lease, fence }).await {
        Answer::Released { held: true, confirmed: true } => {
            Ok(Json(Released { name: name.to_string(), fence: fence.to_string() }))
        }
        Answer::Released { held: false, confirmed: true } => {
            Err(Refusal::NotHeld { name: name.to_string() })
        }
        Answer::Released { confirmed: false, .. } => {
            Err(app.refuse(&name, Answer::NoQuorum, Changed::Released).await)
        }
        answer => Err(app.refuse(&name, answer, Changed::Released).await),
    }
}

/// A lease that somebody was seen to hold: a hint.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema))]
#[cfg_attr(test, schema(example = json!({
    "name": "jobs/nightly", "holder": "worker-7", "fence": "1830093145834620929", "ttl_ms": 8210,
})))]
pub(super) struct Lease {
    pub(super) name: String,
    /// In the holder's own words.
    pub(super) holder: String,
    /// For looking. Only the holder may renew or release with it.
    pub(super) fence: String,
    /// How long still unless it is renewed, when it was seen.
    pub(super) ttl_ms: u64,
}

impl From<paxoslease_node::LeaseInfo> for Lease {
    fn from(seen: paxoslease_node::LeaseInfo) -> Self {
        let paxoslease_node::LeaseInfo { name, holder, fence, remaining } = seen;
        Self { name, holder, fence: fence.to_string(), ttl_ms: millis_down(remaining) }
    }
}

fn lease(seen: Sighting) -> Lease {
    paxoslease_node::LeaseInfo::from(seen).into()
}

/// That it is held must be told to a client that may acquire it; by whom, if it may read that.
fn held(permit: &Permit, by: &Sighting) -> Refusal {
    let name = by.label.name();
    let tenure = || (by.label.holder().to_string(), by.tenure.fence());
    Refusal::Held {
        name: name.to_string(),
        by: permit.shows(name.as_str()).then(tenure),
        remaining: by.remaining.as_duration(),
    }
}

/// Who holds a name, as a quorum of acceptors said a moment ago: a hint.
#[cfg_attr(test, utoipa::path(
    get, path = "/v1/leases/{name}", operation_id = "inspect", tag = "hints",
    params(("name" = String, Path, description = "1 to 512 bytes of UTF-8, percent-encoded")),
    responses((status = 200, description = "It was held", body = Lease), NotInspected),
))]
pub(super) async fn inspect(
    State(app): State<App>,
    name: LeaseName,
) -> Result<Json<Lease>, Refusal> {
    match app.remote.ask(Request::Inspect { lease: name.name().into() }).await {
        Answer::Inspected(Some(seen)) => Ok(Json(lease(seen))),
        Answer::Inspected(None) => Err(Refusal::NobodyHolds { name: name.to_string() }),
        answer => Err(app.refuse(&name, answer, Changed::Nothing).await),
    }
}

/// Which leases to list.
#[cfg_attr(test, derive(IntoParams))]
#[cfg_attr(test, into_params(parameter_in = Query))]
pub(super) struct List {
    /// Only names that begin with this.
    #[cfg_attr(test, param(required = false, example = "jobs/"))]
    prefix: String,
    /// How many at most. A page also ends after 64 KiB, however many leases that are.
    #[cfg_attr(test, param(required = false, minimum = 1, maximum = 1000, example = 100))]
    limit: u32,
    /// Where the page before ended; not said for the first.
    #[cfg_attr(test, param(required = false, value_type = String))]
    cursor: Cursor,
}

impl FromFields for List {
    fn from_fields(fields: &mut Fields) -> Result<Self, Refusal> {
        let prefix = fields.text("prefix");
        let limit = fields.parse("limit", "a number from 1 to 1000");
        let cursor = fields.parse("cursor", "what the page before said under \"cursor\"");
        let limit = limit?.unwrap_or(LIMIT_DEFAULT);
        if !(1..=LIMIT_MAX).contains(&limit) {
            let problem = format!("\"limit\" is {limit}; expected a number from 1 to {LIMIT_MAX}");
            return Err(Refusal::BadRequest(problem));
        }
        Ok(Self {
            prefix: prefix?.unwrap_or_default(),
            limit,
            cursor: cursor?.unwrap_or(Cursor::START),
        })
    }
}

/// Some leases: hints, in no order.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema))]
pub(super) struct Page {
    /// There may be fewer than asked for, even none, although there is a cursor.
    leases: Vec<Lease>,
    /// Where to go on; `null` at the end.
    cursor: Option<String>,
}

/// Leases that this node votes on: hints.
///
/// Leases that come and go while one pages may be missed; those that stay are listed once. A node
/// that only proposes votes on none.
#[cfg_attr(test, utoipa::path(
    get, path = "/v1/leases", operation_id = "list", tag = "hints", params(List),
    responses((status = 200, description = "Some of them", body = Page), NotListed),
))]
pub(super) async fn list(
    State(app): State<App>,
    Extension(permit): Extension<Permit>,
    Parameters(List { prefix, limit, cursor }): Parameters<List>,
) -> Result<Json<Page>, Refusal> {
    permit.check_within(&prefix)?;
    let (leases, cursor) = app.page(&permit, &prefix, limit, cursor).await?;
    Ok(Json(Page { leases, cursor: cursor.map(|cursor| cursor.to_string()) }))
}

impl App {
    /// Leases from `cursor` on that may be shown, and where to go on.
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

    /// What to say when an answer is not the one hoped for.
    async fn refuse(&self, name: &LeaseName, answer: Answer, changed: Changed) -> Refusal {
        if let Some(limit) = Limit::of(&answer) {
            limited(limit.name());
        }
        match answer {
            Answer::NoQuorum => self.no_quorum(changed).await,
            answer => refused(name.name(), answer),
        }
    }
}

fn refused(name: Name<'_>, answer: Answer) -> Refusal {
    match answer {
        Answer::NotHeld => Refusal::NotHeld { name: name.to_string() },
        Answer::Ttl(error) => Refusal::Ttl(error),
        Answer::Full => Refusal::Busy("this node keeps as many names as it may".to_owned()),
        Answer::Busy(error) => Refusal::Busy(error.to_string()),
        Answer::Stopping => Refusal::Stopping,
        answer => {
            tracing::error!(
                ?answer,
                "an answer to something else than was asked: please report it"
            );
            Refusal::Internal
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_to_something_else_is_an_error_and_no_panic() {
        let name = Name::new("a").expect("a name");
        assert_eq!(refused(name, Answer::Abandoned), Refusal::Internal);
        assert_eq!(refused(name, Answer::Stopping), Refusal::Stopping);
    }
}
