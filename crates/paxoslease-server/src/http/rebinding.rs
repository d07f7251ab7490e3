//! Protects a node without tokens from pages of other sites in a browser on this machine.
//!
//! Once a browser has loaded a page, the page can make its own host name lead to this machine (DNS
//! rebinding). For the browser the node is then part of that site, and neither the lack of CORS
//! headers nor the content type of a body stops the page. But the browser still sends the host name
//! of the page. Other clients on loopback send an address or `localhost`, so requests for other
//! hosts are refused there. With tokens or TLS nothing is checked, since the page has no token and
//! no certificate. Nodes on other addresses may have any name.
//!
//! A page that asks by address cannot read the response, but can see whether an element loaded, and
//! so whether a name is held. Browsers say for each request whether it comes from another site.
//! Such requests are refused too, except when a user follows a link.

use std::net::{IpAddr, SocketAddr};

use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use metrics::counter;

use super::App;
use super::refusal::Refusal;

/// Whether pages can use this against a node that listens in clear on this address.
pub(super) fn is_possible(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

/// Lets requests through that no page of another site can have made.
pub(super) async fn refuse(State(app): State<App>, request: Request, next: Next) -> Response {
    if !app.may_be_rebound || !app.gate.is_open() {
        return next.run(request).await;
    }
    let (reason, refusal) = match foreign_host(request.uri(), request.headers()) {
        Some(host) => ("host", Refusal::Host { host }),
        None if is_of_another_site(request.headers()) => ("cross_site", Refusal::CrossSite),
        None => return next.run(request).await,
    };
    counter!("paxoslease_refused_total", "reason" => reason).increment(1);
    refusal.into_response()
}

/// Whether a browser asks for a page of another site. If a user follows a link, the response is
/// shown in a window of its own, and not to the page.
fn is_of_another_site(headers: &HeaderMap) -> bool {
    let says = |name: &str, value: &str| headers.get(name).is_some_and(|said| said == value);
    says("sec-fetch-site", "cross-site")
        && !(says("sec-fetch-mode", "navigate") && says("sec-fetch-dest", "document"))
}

/// The host of a request, if it is not this machine. Every browser sends a host.
fn foreign_host(uri: &Uri, headers: &HeaderMap) -> Option<String> {
    let target = uri.authority().map(|authority| authority.as_str().as_bytes());
    let hosts = headers.get_all(header::HOST).iter().map(AsRef::as_ref);
    let strange = target.into_iter().chain(hosts).find(|authority| !is_local(authority))?;
    Some(String::from_utf8_lossy(strange).into_owned())
}

fn is_local(authority: &[u8]) -> bool {
    let Ok(authority) = Authority::try_from(authority) else { return false };
    let host = authority.host().to_ascii_lowercase();
    let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(&host);
    address.parse::<IpAddr>().is_ok() || host == "localhost" || host.ends_with(".localhost")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_can_be_rebound() {
        for address in ["127.0.0.1:1", "127.8.9.10:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
            assert!(is_possible(address.parse().expect("an address")), "{address}");
        }
        for address in ["0.0.0.0:1", "10.0.0.1:1", "[::]:1"] {
            assert!(!is_possible(address.parse().expect("an address")), "{address}");
        }
    }
}
