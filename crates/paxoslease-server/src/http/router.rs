//! The routes, and the layers that every request passes.
//!
//! A test compares the routes with the OpenAPI document. There are no CORS headers, so browsers
//! keep pages of other origins from reading responses.

use axum::extract::{DefaultBodyLimit, MatchedPath, Request};
use axum::http::{HeaderName, HeaderValue, Method, Uri, header, uri};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{MethodRouter, get, post};
use axum::{Router, http};
use metrics::counter;
use paxoslease_node::TextError;
use paxoslease_node::front::Name;

use super::permit::authorize;
use super::refusal::Refusal;
use super::{App, BODY_MAX, cell, leases, page, rebinding, watch};

fn routes() -> [(&'static str, MethodRouter<App>); 13] {
    [
        ("/v1/leases/{name}/acquire", post(leases::acquire)),
        ("/v1/leases/{name}/renew", post(leases::renew)),
        ("/v1/leases/{name}/release", post(leases::release)),
        ("/v1/leases/{name}", get(leases::inspect)),
        ("/v1/leases", get(leases::list)),
        ("/v1/watch", get(watch::watch)),
        ("/v1/cell", get(cell::cell)),
        ("/v1/cell/members", post(cell::change_members)),
        ("/healthz", get(cell::healthz)),
        ("/readyz", get(cell::readyz)),
        ("/metrics", get(cell::metrics)),
        ("/openapi.json", get(cell::openapi)),
        ("/", get(page::page)),
    ]
}

pub(super) fn router(app: App) -> Router {
    routes()
        .into_iter()
        .fold(Router::new(), |router, (path, handler)| router.route(path, handler))
        .method_not_allowed_fallback(async |method: Method, uri: Uri| Refusal::Method {
            method: method.to_string(),
            path: uri.path().to_owned(),
        })
        .fallback(async |uri: Uri| Refusal::NoSuchPath { path: uri.path().to_owned() })
        .layer(DefaultBodyLimit::max(BODY_MAX))
        .layer(from_fn_with_state(app.clone(), authorize))
        .layer(from_fn_with_state(app.clone(), rebinding::refuse))
        .layer(from_fn(every_request))
        .with_state(app)
}

/// Counts responses, and sets the headers of all of them. Hints must not be cached.
async fn every_request(mut request: Request, next: Next) -> Response {
    const NO_SNIFFING: HeaderName = HeaderName::from_static("x-content-type-options");
    const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");
    let route = request.extensions().get::<MatchedPath>().cloned();
    let mut response = match request.extensions_mut().remove::<Refusal>() {
        Some(refusal) => refusal.into_response(),
        None => next.run(request).await,
    };
    count(route.as_ref().map_or("none", MatchedPath::as_str), response.status());
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(NO_SNIFFING, HeaderValue::from_static("nosniff"));
    // Otherwise a page of another origin could learn from what loads which names are held.
    headers.insert(RESOURCE_POLICY, HeaderValue::from_static("same-origin"));
    response
}

pub(super) fn count(route: &str, status: http::StatusCode) {
    let labels = [("route", route.to_owned()), ("status", status.as_str().to_owned())];
    counter!("paxoslease_http_requests_total", &labels).increment(1);
}

/// Makes slashes part of the name: `/v1/leases/a/b/renew` is for the lease `a/b`. A last segment
/// that names an action is not part of the name, unless it is the only segment. If the path becomes
/// longer than any path may be, the request carries a [`Refusal`].
pub(super) fn join_name<B>(mut request: http::Request<B>) -> http::Request<B> {
    const LEASES: &str = "/v1/leases/";
    let Some(rest) = request.uri().path().strip_prefix(LEASES) else { return request };
    let (name, action) = match rest.rfind('/') {
        Some(at) if matches!(&rest[at..], "/acquire" | "/renew" | "/release") => rest.split_at(at),
        _ => (rest, ""),
    };
    if !name.contains('/') {
        return request;
    }
    let mut path = format!("{LEASES}{}{action}", name.replace('/', "%2F"));
    if let Some(query) = request.uri().query() {
        path.extend(["?", query]);
    }
    let len = name.len();
    let rewritten = uri::PathAndQuery::from_maybe_shared(path).ok().and_then(|path| {
        let mut parts = request.uri().clone().into_parts();
        parts.path_and_query = Some(path);
        Uri::from_parts(parts).ok()
    });
    if let Some(uri) = rewritten {
        *request.uri_mut() = uri;
    } else {
        let refusal = Refusal::Name(TextError::TooLong { len, max: Name::LEN_MAX });
        request.extensions_mut().insert(refusal);
    }
    request
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_routes_are_the_paths_of_the_document() {
        let document: serde_json::Value =
            serde_json::from_str(super::super::OPENAPI).expect("JSON");
        let mut documented: Vec<&str> =
            document["paths"].as_object().expect("paths").keys().map(String::as_str).collect();
        let mut routed = routes().map(|(path, _)| path);
        documented.sort_unstable();
        routed.sort_unstable();
        assert_eq!(documented, routed);
    }

    #[test]
    fn slashes_of_a_name_belong_to_the_name() {
        for (asked, routed) in [
            ("/v1/leases", "/v1/leases"),
            ("/v1/leases/a", "/v1/leases/a"),
            ("/v1/leases/a%2Fb/renew", "/v1/leases/a%2Fb/renew"),
            ("/v1/leases/a/b/renew", "/v1/leases/a%2Fb/renew"),
            ("/v1/leases/a/b/c?x=/", "/v1/leases/a%2Fb%2Fc?x=/"),
            ("/v1/leases/a/renew/renew", "/v1/leases/a%2Frenew/renew"),
            ("/v1/leases/renew", "/v1/leases/renew"),
            ("/v1/leases//a/release", "/v1/leases/%2Fa/release"),
            ("/v1/leases/a/", "/v1/leases/a%2F"),
            ("http://host:7402/v1/leases/a/b", "http://host:7402/v1/leases/a%2Fb"),
            ("/v1/watch?prefix=a/b", "/v1/watch?prefix=a/b"),
            ("*", "*"),
        ] {
            let request = http::Request::builder().uri(asked).body(()).expect("a request");
            assert_eq!(join_name(request).uri().to_string(), routed, "{asked}");
        }
    }
}
