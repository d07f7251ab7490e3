//! Errors over HTTP: JSON with `error`, a code for programs, and `message`, which says what was
//! wrong, what to do, and whether anything was changed.
//!
//! The HTTP library answers bytes that are not HTTP, without a body.

use std::fmt;
use std::time::Duration;

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use paxoslease_node::front::NotKept;
use paxoslease_node::{MembersError, TextError, TtlError};
use serde::Serialize;

use super::connection::limited;
use super::permit;
use crate::access::Denied;
use crate::durable::DurableRequest;
use paxoslease_node::Limit;

/// Why a request was refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum Refusal {
    #[error(
        "{name:?} is held{}, at most for another {} ms unless it is renewed; {}; nothing was changed",
        .by.as_ref().map_or(String::new(), |(holder, _)| format!(" by {holder:?}")),
        millis_up(*.remaining),
        if *.waited { "the wait is over: retry, or send a longer \"wait\"" }
        else { "retry then, or send \"wait\"" }
    )]
    Held { name: String, by: Option<(String, u64)>, remaining: Duration, waited: bool },
    #[error("this tenure of {name:?} is over; acquire the lease again to get a new fence")]
    NotHeld { name: String },
    #[error(
        "this tenure of {name:?} is over, but it is not known whether this request ended it or \
         another one did"
    )]
    Unknown { name: String },
    #[error("{why}{}", .request.refused())]
    NotDurable { why: NotKept, request: DurableRequest },
    #[error("no client holds {name:?}")]
    NotSeen { name: String },
    #[error("no such path: {path:?}; see GET /openapi.json")]
    NoSuchPath { path: String },
    #[error("{problem}{changed}")]
    Cell { problem: Problem, changed: Changed },
    #[error("{0}; nothing was changed")]
    Ttl(TtlError),
    #[error("bad name: {0}; nothing was changed")]
    Name(TextError),
    #[error("bad holder: {0}; nothing was changed")]
    Holder(TextError),
    #[error("{0}")]
    Members(MembersError),
    #[error("{0}; nothing was changed")]
    BadRequest(String),
    #[error("the request did not arrive within {0:?}; nothing was changed")]
    Slow(Duration),
    #[error("method {method} is not allowed for {path:?}; see the Allow header")]
    Method { method: String, path: String },
    #[error("the body is longer than {max} bytes; nothing was changed")]
    TooLarge { max: usize },
    #[error(
        "the body must be JSON, with the header content-type: application/json; nothing was changed"
    )]
    MediaType,
    #[error("{0}; try again later or raise the limit; nothing was changed that outlives the ttl")]
    Busy(String),
    #[error("{}{}; nothing was changed", .0, how_to_show(.0))]
    Denied(Denied),
    #[error(
        "{host:?} is not accepted: a node on loopback without tokens serves only localhost and IP \
         addresses, so that pages of other sites cannot reach it through a browser; use \
         http://127.0.0.1 and the port, or configure [[access]]; nothing was changed"
    )]
    Host { host: String },
    #[error(
        "a page of another site sent this request, and a node on loopback without tokens refuses \
         such requests; open this address in its own window, or configure [[access]]; nothing was \
         changed"
    )]
    CrossSite,
    #[error("this port requires HTTPS; use https://; nothing was changed")]
    NotTls,
    #[error(
        "the acquire was cancelled, because the client closed its side of the connection before \
         the grant; keep it open until the response; nothing was changed"
    )]
    Left,
    #[error(
        "the acquire was cancelled, because the client sent too much data behind it; \
         wait on a connection of its own; nothing was changed"
    )]
    OutOfSight,
    #[error(
        "internal error: the answer belongs to another request; please report it, the node's log has \
         details; ask another node; nothing was changed that outlives the ttl"
    )]
    Internal,
    #[error("this node is stopping; ask another node; nothing was changed that outlives the ttl")]
    Stopping,
}

/// Why no majority answers, as far as this node can tell.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Problem {
    pub(super) why: Why,
    /// Members that this node cannot reach.
    pub(super) unreachable: Vec<u16>,
    /// Whether this node found its stable record when it started.
    pub(super) has_record: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Why {
    OutOfReach,
    /// The node takes no part in a cell, for this reason.
    NoPart(&'static str),
    /// Too many members do not vote for this long after their start.
    Quarantine(Duration),
    /// A majority votes, but this node cannot issue ballots.
    NoBallots(String),
    /// A majority votes, but the disk of this node failed.
    Disk(String),
    /// A majority votes.
    Silent,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.why {
            Why::OutOfReach => f.write_str("no majority of the cell can be reached")?,
            Why::NoPart(problem) => f.write_str(problem)?,
            Why::Quarantine(remaining) => {
                let millis = millis_up(*remaining);
                write!(f, "in quarantine for another {millis} ms")?;
                if !self.has_record {
                    f.write_str(
                        ", because this node has no record; if this cell never ran before, start \
                         each node with --new-cell",
                    )?;
                }
            }
            Why::NoBallots(why) => write!(f, "this node cannot begin rounds: {why}")?,
            Why::Disk(why) => write!(
                f,
                "the disk of this node failed, so that it accepts no lease longer than those \
                 before: {why}; repair its data_dir, or ask for a shorter ttl"
            )?,
            Why::Silent => f.write_str(
                "no majority answered in time, though one is connected: contenders split the \
                 vote, or nodes are too slow; try again",
            )?,
        }
        if let [first, others @ ..] = &self.unreachable[..] {
            write!(f, "; unreachable from here: node {first}")?;
            others.iter().try_for_each(|node| write!(f, ", {node}"))?;
        }
        Ok(())
    }
}

/// What the request may have changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Changed {
    /// The request only asked.
    Nothing,
    NothingLasting,
    Released,
    Durable(DurableRequest),
}

impl fmt::Display for Changed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nothing => "",
            Self::NothingLasting => "; nothing was changed that outlives the ttl",
            Self::Released => {
                "; do not use this fence again, except to release a durable lease: any other lease \
                 ends when its ttl is over, or earlier"
            }
            Self::Durable(request) => request.left_behind(),
        })
    }
}

/// `message` is for people and may change; `error` is for programs and will not. The other fields
/// come with some errors only, as `docs/openapi.json` says.
#[derive(Serialize, Default)]
pub(super) struct ErrorBody {
    error: &'static str,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    holder: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fence: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    remaining_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unreachable: Option<Vec<u16>>,
}

impl Refusal {
    /// The status, and the code that programs act on.
    const fn kind(&self) -> (StatusCode, &'static str) {
        match self {
            Self::Held { .. } => (StatusCode::CONFLICT, "held"),
            Self::NotHeld { .. } => (StatusCode::GONE, "not_held"),
            Self::Unknown { .. } => (StatusCode::GONE, "unknown"),
            Self::NotDurable { .. } => (StatusCode::INSUFFICIENT_STORAGE, "not_durable"),
            Self::NotSeen { .. } | Self::NoSuchPath { .. } => (StatusCode::NOT_FOUND, "not_found"),
            Self::Cell { problem: Problem { why: Why::Quarantine(_), .. }, .. } => {
                (StatusCode::SERVICE_UNAVAILABLE, "quarantine")
            }
            Self::Cell { .. } => (StatusCode::SERVICE_UNAVAILABLE, "no_quorum"),
            Self::Members(MembersError::Unconfirmed(_)) => (StatusCode::CONFLICT, "unconfirmed"),
            Self::Members(MembersError::NoQuorum(_)) => {
                (StatusCode::SERVICE_UNAVAILABLE, "no_quorum")
            }
            Self::Members(_) => (StatusCode::CONFLICT, "members"),
            Self::Ttl(_) => (StatusCode::BAD_REQUEST, "ttl"),
            Self::Name(_) => (StatusCode::BAD_REQUEST, "name"),
            Self::Holder(_) => (StatusCode::BAD_REQUEST, "holder"),
            Self::BadRequest(_) | Self::Left => (StatusCode::BAD_REQUEST, "bad_request"),
            Self::NotTls => (StatusCode::BAD_REQUEST, "tls"),
            Self::Denied(Denied::NoToken | Denied::UnknownToken) => {
                (StatusCode::UNAUTHORIZED, "unauthorized")
            }
            Self::Denied(Denied::NotPermitted { .. }) | Self::CrossSite => {
                (StatusCode::FORBIDDEN, "forbidden")
            }
            Self::Host { .. } => (StatusCode::MISDIRECTED_REQUEST, "host"),
            Self::Slow(_) => (StatusCode::REQUEST_TIMEOUT, "timeout"),
            Self::Method { .. } => (StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed"),
            Self::TooLarge { .. } => (StatusCode::PAYLOAD_TOO_LARGE, "too_large"),
            Self::MediaType => (StatusCode::UNSUPPORTED_MEDIA_TYPE, "media_type"),
            Self::Busy(_) | Self::OutOfSight => (StatusCode::TOO_MANY_REQUESTS, "busy"),
            Self::Internal => (StatusCode::INTERNAL_SERVER_ERROR, "internal"),
            Self::Stopping => (StatusCode::SERVICE_UNAVAILABLE, "stopping"),
        }
    }

    pub(super) fn body(&self) -> ErrorBody {
        let (error, message) = (self.kind().1, self.to_string());
        let mut body = ErrorBody { error, message, ..ErrorBody::default() };
        match self {
            Self::Held { by, remaining, .. } => {
                if let Some((holder, fence)) = by {
                    body.holder = Some(holder.clone());
                    body.fence = Some(fence.to_string());
                }
                body.retry_after_ms = Some(millis_up(*remaining));
            }
            Self::Cell { problem, .. } => {
                if let Why::Quarantine(remaining) = problem.why {
                    body.remaining_ms = Some(millis_up(remaining));
                }
                body.unreachable = Some(problem.unreachable.clone());
            }
            _ => {}
        }
        body
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let (status, _) = self.kind();
        let mut response = (status, Json(self.body())).into_response();
        match &self {
            Self::Name(_) => limited(Limit::Name.name()),
            Self::Holder(_) => limited(Limit::Holder.name()),
            Self::Denied(denied) => {
                permit::count(denied);
                // For the audit log, which needs the client.
                response.extensions_mut().insert(denied.clone());
            }
            _ => {}
        }
        if status == StatusCode::UNAUTHORIZED {
            permit::challenge(response.headers_mut());
        }
        response
    }
}

/// How to send a token, for a client that sent no valid one.
const fn how_to_show(denied: &Denied) -> &'static str {
    match denied {
        Denied::NoToken | Denied::UnknownToken => "; send it as authorization: Bearer <token>",
        Denied::NotPermitted { .. } => "",
    }
}

/// Whole milliseconds, rounded up: a client that waits that long has waited long enough.
fn millis_up(span: Duration) -> u64 {
    u64::try_from(span.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// Whole milliseconds, rounded down: a holder that counts on that long counts on no more than it
/// has.
pub(super) fn millis_down(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use paxoslease_node::front::Lasts;
    use serde_json::Value;

    use super::*;
    use crate::config::{TokenHash, Verb};
    use crate::http::{BODY_MAX, Bounds, OPENAPI};

    /// The refusals that are examples in the document.
    fn examples() -> Vec<Refusal> {
        let name = || "jobs/nightly".to_owned();
        let field = "unknown field \"tll\"; the nearest known field is \"ttl\"";
        let parameter = "unknown parameter \"prefx\"; the nearest known parameter is \"prefix\"";
        let no_disk = |request| {
            let why = NotKept::NoDisk { max_lease: Duration::from_secs(60) };
            Refusal::NotDurable { why, request }
        };
        let by = Some(("worker-7".to_owned(), 1_830_093_145_834_620_929));
        let mut examples = vec![
            Refusal::BadRequest(field.to_owned()),
            Refusal::BadRequest(parameter.to_owned()),
            Refusal::Slow(Bounds::default().body_timeout),
            Refusal::TooLarge { max: BODY_MAX },
            Refusal::MediaType,
            Refusal::Name(TextError::TooLong { len: 600, max: 512 }),
            Refusal::Ttl(TtlError::TooShort(Duration::from_millis(10))),
            Refusal::Holder(TextError::TooLong { len: 300, max: 256 }),
            Refusal::Held {
                name: name(),
                by,
                remaining: Duration::from_millis(8_210),
                waited: false,
            },
            Refusal::NotHeld { name: name() },
            Refusal::Unknown { name: name() },
            no_disk(DurableRequest::Acquire(Lasts::FOREVER)),
            no_disk(DurableRequest::Keep),
            Refusal::NotSeen { name: name() },
            Refusal::Busy("1000000 requests wait already".to_owned()),
            Refusal::Busy("all watches of this node are in use".to_owned()),
            Refusal::Stopping,
            Refusal::Denied(Denied::NoToken),
            Refusal::Denied(Denied::NotPermitted {
                token: TokenHash::new([0; 32]),
                bearer: Some("deploy".to_owned()),
                verb: Verb::Admin,
                name: Some("*".to_owned()),
            }),
            Refusal::Host { host: "node.example".to_owned() },
            Refusal::Members(MembersError::Refused(
                "node 7 is not a member: look at the members".to_owned(),
            )),
            Refusal::Members(MembersError::Unconfirmed(
                "2 members survive no more losses than 1: confirm this by `yes`".to_owned(),
            )),
            Refusal::Members(MembersError::NoQuorum(
                "no majority of the members answered in time. The change may still begin: look at \
                 the members before you try again"
                    .to_owned(),
            )),
        ];
        for changed in [Changed::Nothing, Changed::NothingLasting, Changed::Released] {
            let quarantine = Why::Quarantine(Duration::from_millis(41_250));
            for (why, unreachable) in [(Why::OutOfReach, vec![2, 3]), (quarantine, vec![])] {
                let problem = Problem { why, unreachable, has_record: true };
                examples.push(Refusal::Cell { problem, changed });
            }
        }
        examples
    }

    #[test]
    fn the_errors_in_the_document_are_those_of_the_daemon() {
        let examples: Vec<(String, Value)> = examples()
            .iter()
            .map(|refusal| {
                let body = serde_json::to_value(refusal.body()).expect("plain data");
                (refusal.kind().0.as_str().to_owned(), body)
            })
            .collect();
        let document: Value = serde_json::from_str(OPENAPI).expect("JSON");
        let all = |value: &Value| value.as_object().cloned().unwrap_or_default();
        let operations = all(&document["paths"]).into_iter().flat_map(|(_, path)| all(&path));
        let mut count = 0;
        for (status, response) in operations.flat_map(|(_, one)| all(&one["responses"])) {
            let shared = response["$ref"].as_str().and_then(|place| document.pointer(&place[1..]));
            let response = shared.unwrap_or(&response);
            for (code, example) in all(&response["content"]["application/json"]["examples"]) {
                assert_eq!(example["value"]["error"], code);
                let example = (status.clone(), example["value"].clone());
                assert!(examples.contains(&example), "no refusal is {example:?}");
                count += 1;
            }
        }
        assert!(count > 30, "{count} examples were compared");
    }
}
