//! Who asks, and whether they may.
//!
//! Every request passes [`authorize`], which knows what each route takes; a route that nobody
//! thought of takes the most, and a path without a route takes a token. What depends on a name is
//! asked where the name is read, and what is listed or watched is asked name by name. Who can
//! connect may know that the node is alive and ready, and what it could be asked; everything else
//! takes a token once there are any.

use std::sync::Arc;

use axum::extract::{MatchedPath, Request, State};
use axum::http::{Extensions, HeaderMap, HeaderValue, header};
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

/// Routes that take nothing: for probes, and for whoever wants to know what to ask.
pub(super) const OPEN: [&str; 3] = ["/healthz", "/readyz", "/openapi.json"];

/// What a request must bring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Takes {
    Nothing,
    /// Any token.
    Token,
    /// One that allows this.
    Verb(Verb),
}

fn takes(route: Option<&str>) -> Takes {
    match route {
        Some(open) if OPEN.contains(&open) => Takes::Nothing,
        Some("/v1/leases/{name}" | "/v1/leases" | "/v1/watch") => Takes::Verb(Verb::Read),
        Some(lease) if lease.starts_with("/v1/leases/{name}/") => Takes::Verb(Verb::Acquire),
        Some(_) => Takes::Verb(Verb::Admin),
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
    let admitted = match takes {
        Takes::Nothing => {
            let is_stranger = is_stranger(&app, request.headers());
            let response = next.run(request).await;
            return match connection {
                Some(connection) if is_stranger => connection.answered_stranger(response),
                _ => response,
            };
        }
        Takes::Token => bearer(&app.gate.rules().borrow(), request.headers()).map(|_| None),
        Takes::Verb(verb) => admit(&app, verb, request.headers()).map(Some),
    };
    let response = match admitted {
        Ok(permit) => {
            if let Some(permit) = permit {
                request.extensions_mut().insert(permit);
            }
            next.run(request).await
        }
        Err(denied) => {
            let client = connection.as_ref().map(|connection| connection.address.to_string());
            if denied == Denied::UnknownToken
                && let Some(count) = app.notices.again()
            {
                tracing::warn!(
                    guest = client,
                    count,
                    "HTTP requests brought tokens that are not known"
                );
            }
            Refusal::Denied(denied).into_response()
        }
    };
    match connection {
        Some(connection) => connection.answered(response),
        None => response,
    }
}

/// Whether there are tokens, and none of them was shown.
fn is_stranger(app: &App, headers: &HeaderMap) -> bool {
    let rules = Arc::clone(&app.gate.rules().borrow());
    let is_known = |token: Vec<u8>| rules.recognise(&token).is_ok();
    !rules.is_open() && !token(headers).is_some_and(is_known)
}

fn admit(app: &App, verb: Verb, headers: &HeaderMap) -> Result<Permit, Denied> {
    let rules = app.gate.rules();
    let now = Arc::clone(&rules.borrow());
    let permit = Permit { bearer: bearer(&now, headers)?, rules, verb };
    // Which name will be asked later; whether it may be any is known.
    now.permits_within(permit.place(&now), verb, "")?;
    Ok(permit)
}

/// Who shows a token that is known; nobody where none is asked for.
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

/// What whoever asks may do, by the rules of the moment.
#[derive(Clone)]
pub(super) struct Permit {
    rules: watch::Receiver<Arc<Rules>>,
    bearer: Option<TokenHash>,
    /// What this request is about.
    verb: Verb,
}

impl Permit {
    /// That of a request. One that did not pass [`authorize`] has none, and is refused.
    pub(super) fn of(request: &Extensions) -> Result<&Self, Refusal> {
        request.get::<Self>().ok_or(Refusal::Denied(Denied::NoToken))
    }

    fn place(&self, rules: &Rules) -> Option<Place> {
        rules.place(self.bearer?)
    }

    /// Whether this request may be about that name.
    pub(super) fn check(&self, name: &str) -> Result<(), Refusal> {
        self.check_for(self.verb, name).map_err(Refusal::Denied)
    }

    fn check_for(&self, verb: Verb, name: &str) -> Result<(), Denied> {
        let rules = self.rules.borrow();
        rules.permits(self.place(&rules), verb, name)
    }

    /// What bounds the leases of the token, if anything does.
    pub(super) fn quota(&self) -> Option<Arc<Quota>> {
        let rules = self.rules.borrow();
        rules.quota(self.place(&rules)).map(Arc::clone)
    }

    /// Whether there can be anything to see under a prefix.
    pub(super) fn check_within(&self, prefix: &str) -> Result<(), Refusal> {
        let rules = self.rules.borrow();
        let place = self.place(&rules);
        rules.permits_within(place, Verb::Read, prefix).map_err(Refusal::Denied)
    }

    /// The names that may be shown, by the rules of the moment.
    pub(super) fn readable(&self) -> Filter {
        if self.rules.borrow().is_open() {
            return Filter::ALL;
        }
        let permit = self.clone();
        Filter::new(move |name| permit.shows(name))
    }

    /// Whether a name may be shown.
    pub(super) fn shows(&self, name: &str) -> bool {
        let rules = self.rules.borrow();
        rules.allows(self.place(&rules), Verb::Read, name)
    }

    /// Whether a name may be mentioned in what this request is about.
    pub(super) fn mentions(&self, name: &str) -> bool {
        self.check_for(self.verb, name).is_ok()
    }

    /// Comes to its end when that name is no longer allowed.
    pub(super) async fn withdrawn(&self, name: &str) -> Refusal {
        let check = |rules: &Rules, place| rules.permits(place, self.verb, name);
        Refusal::Denied(self.until_denied(check).await)
    }

    /// Comes to its end when nothing under that prefix may be seen any more.
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
                // Nobody is left who could change them.
                std::future::pending::<()>().await;
            }
        }
    }
}

/// What a browser or a client library needs to ask again with a token.
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
    fn every_route_takes_what_it_is_about() {
        let document: serde_json::Value =
            serde_json::from_str(super::super::OPENAPI).expect("JSON");
        let routes = document["paths"].as_object().expect("paths").keys();
        let taken: Vec<(&str, Takes)> =
            routes.map(|route| (route.as_str(), takes(Some(route)))).collect();
        let expected = [
            ("/", Takes::Verb(Verb::Admin)),
            ("/healthz", Takes::Nothing),
            ("/metrics", Takes::Verb(Verb::Admin)),
            ("/openapi.json", Takes::Nothing),
            ("/readyz", Takes::Nothing),
            ("/v1/cell", Takes::Verb(Verb::Admin)),
            ("/v1/leases", Takes::Verb(Verb::Read)),
            ("/v1/leases/{name}", Takes::Verb(Verb::Read)),
            ("/v1/leases/{name}/acquire", Takes::Verb(Verb::Acquire)),
            ("/v1/leases/{name}/release", Takes::Verb(Verb::Acquire)),
            ("/v1/leases/{name}/renew", Takes::Verb(Verb::Acquire)),
            ("/v1/watch", Takes::Verb(Verb::Read)),
        ];
        let mut taken = taken;
        taken.sort_unstable_by_key(|(route, _)| *route);
        assert_eq!(taken, expected);
        assert_eq!(takes(Some("/v1/other")), Takes::Verb(Verb::Admin));
        assert_eq!(takes(None), Takes::Token);
    }

    #[test]
    fn a_request_that_nobody_authorized_has_no_permit() {
        let refused = Permit::of(&Extensions::new()).map(drop);
        assert_eq!(refused, Err(Refusal::Denied(Denied::NoToken)));
    }

    #[test]
    fn a_token_comes_as_bearer_or_as_a_password() {
        let token = |value: &'static str| {
            let value = HeaderValue::from_static(value);
            token(&HeaderMap::from_iter([(header::AUTHORIZATION, value)]))
        };
        assert_eq!(token("Bearer s3cret").as_deref(), Some(&b"s3cret"[..]));
        assert_eq!(token("bearer  s3cret").as_deref(), Some(&b"s3cret"[..]));
        assert_eq!(token("Basic bWU6czpjcmV0").as_deref(), Some(&b"s:cret"[..]), "me:s:cret");
        for other in ["s3cret", "Basic bWU=", "Basic !", "Digest s3cret", ""] {
            assert_eq!(token(other), None, "{other}");
        }
    }
}
