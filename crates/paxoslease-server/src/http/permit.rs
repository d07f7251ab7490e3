//! What the token of a request permits.
//!
//! Every request passes [`authorize`], which knows what each route requires. An unknown route
//! requires the most, and a path without a route any token. A name is checked where it is read, and
//! lists and watches check each name. Without a token, a client can only learn that the node is
//! alive and ready, and read the document.

use std::sync::Arc;

use axum::extract::{MatchedPath, Request, State};
use axum::http::{Extensions, HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use metrics::counter;
use paxoslease_node::front::Filter;
use tokio::sync::watch;

use super::App;
use super::connection::Connection;
use super::refusal::Refusal;
use crate::access::{Denied, Place, Rules};
use crate::config::{TokenHash, Verb};
use crate::quota::Quota;

/// Routes without a token: for probes, and the document.
pub(super) const OPEN: [&str; 3] = ["/healthz", "/readyz", "/openapi.json"];

/// What a request requires.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Takes {
    Nothing,
    /// Any token.
    Token,
    /// A token that permits this.
    Verb(Verb),
    /// A token that administrates the cell: `admin` for all names.
    Cell,
    /// A token that may see the cell: all of it, or a short form.
    Status,
    /// A token that permits to acquire; or to administrate, for a release by force.
    Release,
}

fn takes(route: Option<&str>) -> Takes {
    match route {
        Some(open) if OPEN.contains(&open) => Takes::Nothing,
        Some("/v1/cell") => Takes::Status,
        Some("/v1/leases/{name}" | "/v1/leases" | "/v1/watch") => Takes::Verb(Verb::Read),
        Some("/v1/leases/{name}/release") => Takes::Release,
        Some(lease) if lease.starts_with("/v1/leases/{name}/") => Takes::Verb(Verb::Acquire),
        Some(_) => Takes::Cell,
        None => Takes::Token,
    }
}

/// Lets requests through that may be answered, with a [`Permit`].
pub(super) async fn authorize(
    State(app): State<App>,
    mut request: Request,
    next: Next,
) -> Response {
    let takes = takes(request.extensions().get::<MatchedPath>().map(MatchedPath::as_str));
    let connection = request.extensions().get::<Connection>().cloned();
    let rules = app.gate.rules();
    let now = Arc::clone(&rules.borrow());
    let bearer = bearer(&now, request.headers());
    let has_no_token = bearer.is_err();
    let admitted = match takes {
        Takes::Nothing => Ok(()),
        Takes::Token => bearer.map(drop),
        Takes::Verb(_) | Takes::Cell | Takes::Status | Takes::Release => {
            bearer.and_then(|bearer| {
                let place = bearer.and_then(|bearer| now.place(bearer));
                // The name is checked later. Here, some name must be permitted.
                let permits = |verb| now.permits_within(place, verb, "").map(|()| verb);
                let (verb, or_admin) = match takes {
                    Takes::Verb(verb) => (permits(verb)?, false),
                    Takes::Cell => (now.permits_cell(place).map(|()| Verb::Admin)?, false),
                    Takes::Release => {
                        let is_admin = permits(Verb::Admin).is_ok();
                        let acquire = permits(Verb::Acquire);
                        acquire.or_else(
                            |denied| if is_admin { Ok(Verb::Acquire) } else { Err(denied) },
                        )?;
                        (Verb::Acquire, is_admin)
                    }
                    _ => (now.status_verb(place)?, false),
                };
                request.extensions_mut().insert(Permit { rules, bearer, verb, or_admin });
                Ok(())
            })
        }
    };
    let mut response = match admitted {
        Ok(()) => next.run(request).await,
        Err(denied) => {
            if denied == Denied::UnknownToken
                && let Some(count) = app.notices.again(&app.node)
            {
                let client = connection.as_ref().map(|connection| connection.address.to_string());
                tracing::warn!(client, count, "HTTP clients sent unknown tokens");
            }
            Refusal::Denied(denied).into_response()
        }
    };
    if let Some(denied) = response.extensions_mut().remove::<Denied>()
        && let Some(connection) = &connection
    {
        app.gate.audit.refused(&denied, connection.address, app.node.now());
    }
    match connection {
        // A token may have been removed since.
        Some(connection) if has_no_token || response.status() == StatusCode::UNAUTHORIZED => {
            connection.answered_without_token(response)
        }
        _ => response,
    }
}

/// The token of a request; `None` where no token is required.
fn bearer(rules: &Rules, headers: &HeaderMap) -> Result<Option<TokenHash>, Denied> {
    if rules.is_open() {
        return Ok(None);
    }
    rules.recognise(&token(headers).ok_or(Denied::NoToken)?).map(Some)
}

/// `Bearer` and the token; or, from browsers, `Basic` with the token as the password.
fn token(headers: &HeaderMap) -> Option<Vec<u8>> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, credentials) = value.split_once(' ')?;
    let credentials = credentials.trim();
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some(credentials.as_bytes().to_vec());
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let pair = BASE64_STANDARD.decode(credentials).ok()?;
    let colon = pair.iter().position(|byte| *byte == b':')?;
    Some(pair[colon + 1..].to_vec())
}

/// What a client may do, by the current rules.
#[derive(Clone)]
pub(super) struct Permit {
    rules: watch::Receiver<Arc<Rules>>,
    bearer: Option<TokenHash>,
    /// What this request does.
    pub(super) verb: Verb,
    /// Whether its body may ask for something that requires `admin` instead.
    or_admin: bool,
}

impl Permit {
    /// A request that did not pass [`authorize`] has no permit, and is refused.
    pub(super) fn of(request: &Extensions) -> Result<&Self, Refusal> {
        request.get::<Self>().ok_or(Refusal::Denied(Denied::NoToken))
    }

    fn place(&self, rules: &Rules) -> Option<Place> {
        rules.place(self.bearer?)
    }

    /// Whether this request is permitted for a name, before its body is known.
    pub(super) fn check_path(&self, name: &str) -> Result<(), Refusal> {
        let is_admin = self.or_admin && self.check(Verb::Admin, name).is_ok();
        if is_admin { Ok(()) } else { self.check(self.verb, name) }
    }

    /// Whether something is permitted for a name.
    pub(super) fn check(&self, verb: Verb, name: &str) -> Result<(), Refusal> {
        let rules = self.rules.borrow();
        rules.permits(self.place(&rules), verb, name).map_err(Refusal::Denied)
    }

    /// The name of the token, if it has one.
    pub(super) fn token_name(&self) -> Option<String> {
        let rules = self.rules.borrow();
        rules.name(self.place(&rules))
    }

    pub(super) fn quota(&self) -> Option<Quota> {
        let rules = self.rules.borrow();
        rules.quota(self.place(&rules))
    }

    /// Whether the cell may be administrated.
    pub(super) fn check_cell(&self) -> Result<(), Refusal> {
        let rules = self.rules.borrow();
        rules.permits_cell(self.place(&rules)).map_err(Refusal::Denied)
    }

    /// Whether any name with this prefix may be read.
    pub(super) fn check_within(&self, prefix: &str) -> Result<(), Refusal> {
        let rules = self.rules.borrow();
        let place = self.place(&rules);
        rules.permits_within(place, Verb::Read, prefix).map_err(Refusal::Denied)
    }

    /// The names that may be read, by the rules at the time of the call.
    pub(super) fn readable(&self) -> Filter {
        if self.rules.borrow().is_open() {
            return Filter::ALL;
        }
        let permit = self.clone();
        Filter::new(move |name| permit.shows(name))
    }

    /// Whether a name may be read.
    pub(super) fn shows(&self, name: &str) -> bool {
        let rules = self.rules.borrow();
        rules.allows(self.place(&rules), Verb::Read, name)
    }

    /// Completes when this request is no longer permitted for a name.
    pub(super) async fn withdrawn(&self, name: &str) -> Refusal {
        let check = |rules: &Rules, place| rules.permits(place, self.verb, name);
        Refusal::Denied(self.until_denied(check).await)
    }

    /// Completes when no name with this prefix may be read any more.
    pub(super) async fn blinded(&self, prefix: &str) {
        let check = |rules: &Rules, place| rules.permits_within(place, Verb::Read, prefix);
        self.until_denied(check).await;
    }

    async fn until_denied(
        &self,
        check: impl Fn(&Rules, Option<Place>) -> Result<(), Denied>,
    ) -> Denied {
        let mut rules = self.rules.clone();
        loop {
            let now = Arc::clone(&rules.borrow_and_update());
            if let Err(denied) = check(&now, self.place(&now)) {
                return denied;
            }
            if rules.changed().await.is_err() {
                // The gate was dropped, so the rules stay as they are.
                std::future::pending::<()>().await;
            }
        }
    }
}

/// Headers by which a browser or a library asks again with a token.
pub(super) fn challenge(headers: &mut HeaderMap) {
    for scheme in ["Bearer realm=\"paxoslease\"", "Basic realm=\"paxoslease\""] {
        headers.append(header::WWW_AUTHENTICATE, HeaderValue::from_static(scheme));
    }
}

/// Counts a denial.
pub(super) fn count(denied: &Denied) {
    let reason = Denied::REASONS[denied.reason()];
    counter!("paxoslease_refused_total", "reason" => reason).increment(1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_route_requires_what_it_is_about() {
        let document: serde_json::Value =
            serde_json::from_str(super::super::OPENAPI).expect("JSON");
        let routes = document["paths"].as_object().expect("paths").keys();
        let taken: std::collections::BTreeMap<&str, Takes> =
            routes.map(|route| (route.as_str(), takes(Some(route)))).collect();
        let expected = [
            ("/", Takes::Cell),
            ("/healthz", Takes::Nothing),
            ("/metrics", Takes::Cell),
            ("/openapi.json", Takes::Nothing),
            ("/readyz", Takes::Nothing),
            ("/v1/cell", Takes::Status),
            ("/v1/cell/members", Takes::Cell),
            ("/v1/leases", Takes::Verb(Verb::Read)),
            ("/v1/leases/{name}", Takes::Verb(Verb::Read)),
            ("/v1/leases/{name}/acquire", Takes::Verb(Verb::Acquire)),
            ("/v1/leases/{name}/release", Takes::Release),
            ("/v1/leases/{name}/renew", Takes::Verb(Verb::Acquire)),
            ("/v1/watch", Takes::Verb(Verb::Read)),
        ];
        assert_eq!(taken, expected.into());
        assert_eq!(takes(Some("/v1/other")), Takes::Cell);
        assert_eq!(takes(None), Takes::Token);
    }

    #[test]
    fn a_request_that_was_not_authorized_has_no_permit() {
        let refused = Permit::of(&Extensions::new()).map(drop);
        assert_eq!(refused, Err(Refusal::Denied(Denied::NoToken)));
    }
}
