//! Keeps pages of other sites out of a node that asks for no token.
//!
//! A page can have its own name lead to this machine once a browser has loaded it (DNS rebinding).
//! For the browser the node is then part of that site, and neither the lack of CORS headers nor the
//! type of a body holds it off. What a page cannot change is the name that the browser says it
//! asks. On loopback, others say an address or `localhost`, so nothing else is answered there while
//! whoever connects may do everything. Nothing is asked where there are tokens or TLS, for which
//! such a page lacks a token or a certificate, nor on other addresses, which have names of their
//! own.
//!
//! A page that asks by address cannot read the answer, but can see whether one of its elements
//! loaded, and so whether a name is held. Browsers say of each request which site it comes from, so
//! those of another site are refused too, except for a link that somebody follows.

use std::net::{IpAddr, SocketAddr};

use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use metrics::counter;

use super::App;
use super::refusal::Refusal;

/// Whether a page could come to a node this way that speaks in clear there.
pub(super) fn is_possible(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

/// Lets requests through that no page of another site can have made.
pub(super) async fn refuse(State(app): State<App>, request: Request, next: Next) -> Response {
    if app.may_be_rebound
        && app.gate.is_open()
        && let Some(host) = stranger(request.uri(), request.headers())
    {
        counter!("paxoslease_refused_total", "reason" => "host").increment(1);
        return Refusal::Host { host }.into_response();
    }
    if app.may_be_rebound && app.gate.is_open() && is_of_another_site(request.headers()) {
        counter!("paxoslease_refused_total", "reason" => "cross_site").increment(1);
        return Refusal::CrossSite.into_response();
    }
    next.run(request).await
}

/// Whether a browser asks for a page of another site, and not because somebody followed a link.
/// A link shows the answer in a window of its own, and not to the page.
fn is_of_another_site(headers: &HeaderMap) -> bool {
    let says = |name: &str, value: &str| headers.get(name).is_some_and(|said| said == value);
    says("sec-fetch-site", "cross-site")
        && !(says("sec-fetch-mode", "navigate") && says("sec-fetch-dest", "document"))
}

/// The name that is asked, if it is none of this machine. Every browser says one; what does not is
/// no browser.
fn stranger(uri: &Uri, headers: &HeaderMap) -> Option<String> {
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
    use axum::http::{HeaderName, HeaderValue};

    use super::*;

    #[test]
    fn addresses_and_localhost_are_of_this_machine_and_nothing_else_is() {
        for local in [
            "127.0.0.1",
            "127.0.0.1:7402",
            "10.0.0.1:80",
            "[::1]:7402",
            "[::1]",
            "localhost",
            "LocalHost:7402",
            "node-1.localhost:7402",
        ] {
            assert!(is_local(local.as_bytes()), "{local}");
        }
        for other in [
            "rebound.example",
            "rebound.example:7402",
            "localhost.rebound.example",
            "notlocalhost",
            "127.0.0.1.rebound.example",
            "127.0.0.1@rebound.example",
            "x:y@rebound.example:7402",
            "::1",
            "",
            "\u{e9}",
        ] {
            assert!(!is_local(other.as_bytes()), "{other}");
        }
    }

    #[test]
    fn whatever_names_the_host_is_looked_at() {
        let seen = |uri: &'static str, hosts: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for host in hosts {
                headers.append(header::HOST, host.parse().expect("a value"));
            }
            stranger(&Uri::from_static(uri), &headers)
        };
        assert_eq!(seen("/", &[]), None, "no browser");
        assert_eq!(seen("/", &["localhost"]), None);
        assert_eq!(seen("http://127.0.0.1/", &["localhost"]), None);
        for (uri, hosts) in [
            ("/", &["evil.example"][..]),
            ("/", &["localhost", "evil.example"]),
            ("http://evil.example/", &["localhost"]),
            ("http://localhost/", &["evil.example"]),
        ] {
            assert_eq!(seen(uri, hosts).as_deref(), Some("evil.example"), "{uri} {hosts:?}");
        }
    }

    #[test]
    fn a_browser_that_asks_for_another_site_is_known_by_what_it_says() {
        let asks = |site: &'static str, mode: &'static str, dest: &'static str| {
            let said =
                [("sec-fetch-site", site), ("sec-fetch-mode", mode), ("sec-fetch-dest", dest)];
            let said = said.map(|(name, value)| {
                (HeaderName::from_static(name), HeaderValue::from_static(value))
            });
            is_of_another_site(&HeaderMap::from_iter(said))
        };
        assert!(asks("cross-site", "no-cors", "image"));
        assert!(asks("cross-site", "navigate", "object"));
        assert!(asks("cross-site", "navigate", "iframe"));
        assert!(asks("cross-site", "cors", "empty"));
        assert!(!asks("cross-site", "navigate", "document"), "a link");
        for site in ["same-origin", "same-site", "none"] {
            assert!(!asks(site, "no-cors", "empty"), "{site}");
        }
        assert!(!is_of_another_site(&HeaderMap::new()), "no browser");
    }

    #[test]
    fn only_loopback_can_be_meant_by_a_name_of_somebody_else() {
        for address in ["127.0.0.1:1", "127.8.9.10:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
            assert!(is_possible(address.parse().expect("an address")), "{address}");
        }
        for address in ["0.0.0.0:1", "10.0.0.1:1", "[::]:1"] {
            assert!(!is_possible(address.parse().expect("an address")), "{address}");
        }
    }
}
