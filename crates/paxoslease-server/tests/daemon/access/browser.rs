//! Browsers, pages of other sites that use them, and clients that guess tokens over HTTP.

use super::guarded;
use crate::harness::{Cell, Daemon, Raw, Reply, Wire};

/// Asks for the status with these header lines.
fn ask(daemon: &Daemon, headers: &str) -> Reply {
    let mut raw = Raw::connect(daemon.http());
    raw.send(&format!("GET /v1/cell HTTP/1.1\r\n{headers}connection: close\r\n\r\n"));
    raw.reply()
}

#[test]
fn a_browser_may_send_the_token_as_a_password() {
    let cell = guarded();
    let basic = |credentials: &str| {
        ask(&cell[0], &format!("host: x\r\nauthorization: Basic {credentials}\r\n")).status
    };
    assert_eq!(basic("dXNlcjpvcHM="), 200, "user:ops");
    assert_eq!(basic("b3BzOnVzZXI="), 401, "ops:user");
}

#[test]
fn a_page_of_another_site_is_refused_without_tokens() {
    let cell = Cell::one();
    let fetch = |site: &str, mode: &str, rest: &str| {
        let headers = format!(
            "host: localhost\r\nsec-fetch-site: {site}\r\nsec-fetch-mode: {mode}\r\n{rest}"
        );
        ask(&cell[0], &headers)
    };
    let refused = fetch("cross-site", "navigate", "sec-fetch-dest: object\r\n");
    assert_eq!(refused.status, 403, "{refused:?}");
    assert_eq!(refused.header("cross-origin-resource-policy"), "same-origin");
    let link = fetch("cross-site", "navigate", "sec-fetch-dest: document\r\n");
    assert_eq!(link.status, 200, "a link that a user follows");
    assert_eq!(fetch("same-origin", "cors", "").status, 200, "the page for people");
    assert_eq!(cell[0].metric("paxoslease_refused_total{reason=\"cross_site\"}"), 1.0);
}

#[test]
fn a_name_that_leads_to_a_node_without_tokens_is_refused() {
    let cell = Cell::one();
    for host in ["host: 127.0.0.1:7402\r\n", "host: [::1]\r\n", "host: localhost:7402\r\n", ""] {
        assert_eq!(ask(&cell[0], host).status, 200, "{host}");
    }
    let refused = ask(&cell[0], "host: rebound.example:7402\r\n");
    assert_eq!(refused.error(), (421, "host".to_owned()));
    assert!(refused.text.contains("rebound.example:7402") && refused.text.contains("[[access]]"));
    assert_eq!(cell[0].metric("paxoslease_refused_total{reason=\"host\"}"), 1.0);
}

#[test]
fn with_tokens_or_other_addresses_any_host_name_will_do() {
    let refused = ask(&guarded()[0], "host: node.example\r\n");
    assert_eq!(refused.status, 401, "only the token is missing: {refused:?}");
    let everywhere = Cell::one_with(|config| {
        config.listen.http = Some("0.0.0.0:0".to_owned());
        config.node.listen.allow_plaintext = true;
    });
    assert_eq!(ask(&everywhere[0], "host: node.example\r\n").status, 200);
}

/// Sends ten requests on one connection, and counts the responses with this status.
fn responses(daemon: &Daemon, path: &str, authorization: &str, status: u16) -> usize {
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n{authorization}\r\n");
    let last = request.replace("\r\n\r\n", "\r\nconnection: close\r\n\r\n");
    let mut wire = Wire::connect(daemon.http());
    assert!(wire.send(format!("{}{last}", request.repeat(9)).as_bytes()));
    wire.read_to_close().matches(&format!("HTTP/1.1 {status}")).count()
}

#[test]
fn a_client_without_a_valid_token_is_disconnected() {
    let cell = guarded();
    let guess = "authorization: Bearer guess\r\n";
    assert_eq!(responses(&cell[0], "/v1/cell", guess, 401), 4);
    // It keeps no connection by asking for probes, either.
    assert_eq!(responses(&cell[0], "/healthz", "", 200), 4);
    assert_eq!(responses(&cell[0], "/healthz", guess, 200), 4);
    assert_eq!(responses(&cell[0], "/healthz", "authorization: Bearer reader\r\n", 200), 10);
}
