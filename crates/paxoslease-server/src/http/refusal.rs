//! What HTTP says when it does not do as asked: always JSON with `error`, which programs act on,
//! and `message`, which tells people what was wrong, what to do, and whether anything changed.
//!
//! What is not HTTP at all is answered by the HTTP library, without a body.

use std::fmt;
use std::time::Duration;

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use paxoslease_node::{TextError, TtlError};
use serde::Serialize;
#[cfg(test)]
use utoipa::ToSchema;

use super::connection::limited;
use super::permit;
use crate::access::Denied;
use crate::limits::Limit;

/// Why something was not done.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum Refusal {
    #[error(
        "{name:?} is held{}, at most for another {} ms unless it is renewed; ask again then, or \
         send a \"wait\"; nothing was changed",
        .by.as_ref().map_or(String::new(), |(holder, _)| format!(" by {holder:?}")),
        millis_up(*.remaining)
    )]
    Held { name: String, by: Option<(String, u64)>, remaining: Duration },
    #[error("that tenure of {name:?} is over; acquire it again for a new one, with a higher fence")]
    NotHeld { name: String },
    #[error("nobody was seen to hold {name:?}")]
    NobodyHolds { name: String },
    #[error("there is nothing at {path:?}; GET /openapi.json says what there is")]
    NoSuchPath { path: String },
    #[error("{problem}{changed}")]
    Cell { problem: Problem, changed: Changed },
    #[error("{0}; nothing was changed")]
    Ttl(TtlError),
    #[error("bad name: {0}; nothing was changed")]
    Name(TextError),
    #[error("bad holder: {0}; nothing was changed")]
    Holder(TextError),
    #[error("{0}; nothing was changed")]
    BadRequest(String),
    #[error("the request did not come within {0:?}; nothing was changed")]
    Slow(Duration),
    #[error("{method} does not belong at {path:?}; the header \"allow\" says what does")]
    Method { method: String, path: String },
    #[error("the body is longer than {max} bytes; nothing was changed")]
    TooLarge { max: usize },
    #[error(
        "the body must be JSON and say so: content-type: application/json; nothing was changed"
    )]
    MediaType,
    #[error("{0}; try again later or raise the limit; nothing was changed that outlives the ttl")]
    Busy(String),
    #[error("{}{}; nothing was changed", .0, how_to_show(.0))]
    Denied(Denied),
    #[error(
        "{host:?} is neither an address nor localhost, and a node on loopback that asks for no \
         token answers to nothing else, so that no page of another site can speak to it through a \
         browser; ask http://127.0.0.1 and the port, or give the node an [[access]]; nothing was \
         changed"
    )]
    Host { host: String },
    #[error(
        "a page of another site asks, and a node on loopback that asks for no token answers to none; \
         open this address in a window of its own, or give the node an [[access]]; nothing was \
         changed"
    )]
    CrossSite,
    #[error("this port speaks HTTPS; ask again with https://; nothing was changed")]
    NotTls,
    #[error(
        "the acquire was taken back, for you closed your side of the connection before it was \
         granted; keep it open until the response; nothing was changed"
    )]
    Left,
    #[error(
        "the acquire was taken back, for too much was sent while it waited to notice if you left; \
         wait on a connection of its own; nothing was changed"
    )]
    OutOfSight,
    #[error(
        "this node answered something else than was asked, which is a bug in it; its log says what; \
         ask another node; nothing was changed that outlives the ttl"
    )]
    Internal,
    #[error("this node is stopping; ask another; nothing was changed that outlives the ttl")]
    Stopping,
}

/// Why a majority does not answer, as far as this node can tell.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Problem {
    /// It cannot be reached.
    OutOfReach { unreachable: Vec<u16> },
    /// It can, but too many keep silent for this long after their restart.
    Quarantine { remaining: Duration, unreachable: Vec<u16> },
    /// It can, and votes, but this node cannot issue ballots.
    NoBallots { why: String, unreachable: Vec<u16> },
    /// It can, and votes.
    Silent { unreachable: Vec<u16> },
}

impl Problem {
    fn unreachable(&self) -> &[u16] {
        match self {
            Self::OutOfReach { unreachable }
            | Self::Quarantine { unreachable, .. }
            | Self::NoBallots { unreachable, .. }
            | Self::Silent { unreachable } => unreachable,
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfReach { .. } => f.write_str("no majority of the cell can be reached")?,
            Self::Quarantine { remaining, .. } => {
                write!(
                    f,
                    "in quarantine after a restart for another {} ms",
                    millis_up(*remaining)
                )?;
            }
            Self::NoBallots { why, .. } => write!(f, "this node cannot begin rounds: {why}")?,
            Self::Silent { .. } => f.write_str(
                "no majority answered in time, though one is connected: contenders split the \
                 vote, or nodes are too slow; try again",
            )?,
        }
        if let [first, others @ ..] = self.unreachable() {
            write!(f, "; unreachable from here: node {first}")?;
            others.iter().try_for_each(|node| write!(f, ", {node}"))?;
        }
        Ok(())
    }
}

/// What may be left behind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Changed {
    /// It was only a question.
    Nothing,
    NothingLasting,
    Released,
}

impl fmt::Display for Changed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nothing => "",
            Self::NothingLasting => "; nothing was changed that outlives the ttl",
            Self::Released => {
                "; the release stands: never use this fence again; the name is free when the ttl is \
                 over, if not before"
            }
        })
    }
}

/// Codes that programs act on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[cfg_attr(test, derive(ToSchema))]
#[serde(rename_all = "snake_case")]
pub(super) enum Code {
    Held,
    NotHeld,
    NoQuorum,
    Quarantine,
    Ttl,
    Name,
    Holder,
    BadRequest,
    NotFound,
    Timeout,
    MethodNotAllowed,
    TooLarge,
    MediaType,
    Busy,
    Internal,
    Stopping,
    Unauthorized,
    Forbidden,
    Tls,
    Host,
}

/// What went wrong. `message` is for people and may change; `error` is for programs and will not.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema))]
#[cfg_attr(test, schema(as = Error))]
pub(super) struct ErrorBody {
    error: Code,
    message: String,
    /// With `held`: who holds it, in the holder's own words, if the token may `read` that. A hint.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schema(nullable = false))]
    holder: Option<String>,
    /// With `held`: that tenure's fence, if the token may `read` it. A hint, and not yours to use.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schema(nullable = false))]
    fence: Option<String>,
    /// With `held`: the lease lasts no longer than this, unless it is renewed. A hint.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schema(nullable = false))]
    retry_after_ms: Option<u64>,
    /// With `quarantine`: after this long enough nodes vote again. A hint.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schema(nullable = false))]
    remaining_ms: Option<u64>,
    /// With `no_quorum` and `quarantine`: members that this node cannot reach. A hint.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schema(nullable = false))]
    unreachable: Option<Vec<u16>>,
}

impl Refusal {
    pub(super) const fn code(&self) -> Code {
        match self {
            Self::Held { .. } => Code::Held,
            Self::NotHeld { .. } => Code::NotHeld,
            Self::NobodyHolds { .. } | Self::NoSuchPath { .. } => Code::NotFound,
            Self::Cell { problem, .. } => match problem {
                Problem::OutOfReach { .. } | Problem::NoBallots { .. } | Problem::Silent { .. } => {
                    Code::NoQuorum
                }
                Problem::Quarantine { .. } => Code::Quarantine,
            },
            Self::Ttl(_) => Code::Ttl,
            Self::Name(_) => Code::Name,
            Self::Holder(_) => Code::Holder,
            Self::BadRequest(_) | Self::Left => Code::BadRequest,
            Self::Denied(Denied::NotPermitted { .. }) | Self::CrossSite => Code::Forbidden,
            Self::Denied(Denied::NoToken | Denied::UnknownToken) => Code::Unauthorized,
            Self::Host { .. } => Code::Host,
            Self::NotTls => Code::Tls,
            Self::Slow(_) => Code::Timeout,
            Self::Method { .. } => Code::MethodNotAllowed,
            Self::TooLarge { .. } => Code::TooLarge,
            Self::MediaType => Code::MediaType,
            Self::Busy(_) | Self::OutOfSight => Code::Busy,
            Self::Internal => Code::Internal,
            Self::Stopping => Code::Stopping,
        }
    }

    pub(super) const fn status(&self) -> StatusCode {
        match self.code() {
            Code::Held => StatusCode::CONFLICT,
            Code::NotHeld => StatusCode::GONE,
            Code::NoQuorum | Code::Quarantine | Code::Stopping => StatusCode::SERVICE_UNAVAILABLE,
            Code::Ttl | Code::Name | Code::Holder | Code::BadRequest | Code::Tls => {
                StatusCode::BAD_REQUEST
            }
            Code::Unauthorized => StatusCode::UNAUTHORIZED,
            Code::Forbidden => StatusCode::FORBIDDEN,
            Code::NotFound => StatusCode::NOT_FOUND,
            Code::Host => StatusCode::MISDIRECTED_REQUEST,
            Code::Timeout => StatusCode::REQUEST_TIMEOUT,
            Code::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Code::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Code::MediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Code::Busy => StatusCode::TOO_MANY_REQUESTS,
            Code::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    pub(super) fn body(&self) -> ErrorBody {
        let mut body = ErrorBody {
            error: self.code(),
            message: self.to_string(),
            holder: None,
            fence: None,
            retry_after_ms: None,
            remaining_ms: None,
            unreachable: None,
        };
        match self {
            Self::Held { by, remaining, .. } => {
                if let Some((holder, fence)) = by {
                    body.holder = Some(holder.clone());
                    body.fence = Some(fence.to_string());
                }
                body.retry_after_ms = Some(millis_up(*remaining));
            }
            Self::Cell { problem, .. } => {
                if let Problem::Quarantine { remaining, .. } = problem {
                    body.remaining_ms = Some(millis_up(*remaining));
                }
                body.unreachable = Some(problem.unreachable().to_vec());
            }
            _ => {}
        }
        body
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut response = (self.status(), Json(self.body())).into_response();
        match self.code() {
            Code::Name => limited(Limit::Name.name()),
            Code::Holder => limited(Limit::Holder.name()),
            _ => {}
        }
        if let Self::Denied(denied) = &self {
            permit::count(denied);
            if self.code() == Code::Unauthorized {
                permit::challenge(response.headers_mut());
            }
        }
        response
    }
}

/// Who shows no good token is told how to.
const fn how_to_show(denied: &Denied) -> &'static str {
    match denied {
        Denied::NoToken | Denied::UnknownToken => "; send it as authorization: Bearer <token>",
        Denied::NotPermitted { .. } => "",
    }
}

/// Whole milliseconds, rounded up: whoever waits that long has waited enough.
fn millis_up(span: Duration) -> u64 {
    u64::try_from(span.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// Whole milliseconds, rounded down: whoever believes in that long believes in no more than there
/// is.
pub(super) fn millis_down(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
