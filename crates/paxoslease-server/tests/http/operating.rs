//! What probes, Prometheus and people who run a cell see.

use std::time::Duration;

use paxoslease_node::Config;
use serde_json::json;

use crate::cell::{self, until};

/// Gives up soon, so that tests do not wait for it.
fn impatient(mut config: Config) -> Config {
    config.timing.request_timeout = Duration::from_millis(50);
    config
}

#[test]
fn a_node_with_a_majority_is_ready() {
    let cell = cell::three();
    for member in &cell.members {
        assert_eq!(member.get("/healthz").json(), json!({"status": "ok"}));
        assert_eq!(member.get("/readyz").json(), json!({"status": "ok"}));
        let seen = member.get("/v1/cell").json();
        assert_eq!((&seen["cell"], &seen["ready"]), (&json!("test"), &json!(true)));
        assert_eq!((&seen["problem"], &seen["members"]), (&json!(null), &json!([1, 2, 3])));
    }
}

#[test]
fn a_node_without_a_majority_says_whom_it_cannot_reach() {
    let cell = cell::alone(impatient);
    let member = &cell.members[0];
    assert_eq!(member.get("/healthz").status, 200);
    for path in ["/readyz", "/v1/leases/x"] {
        let refused = member.get(path);
        assert_eq!(refused.refusal(), (503, "no_quorum".to_owned()), "{path}");
        assert_eq!(refused.json()["unreachable"], json!([2, 3]), "{path}");
        assert_eq!(refused.json().get("remaining_ms"), None);
        assert!(
            refused.field("message").contains("unreachable from here: node 2, 3"),
            "{refused:?}"
        );
    }
    for (action, body, changed) in [
        ("acquire", json!({"ttl": "5s"}), "nothing was changed that outlives the ttl"),
        (
            "renew",
            json!({"ttl": "5s", "fence": "1025"}),
            "nothing was changed that outlives the ttl",
        ),
        ("release", json!({"fence": "1025"}), "never use this fence again"),
    ] {
        let refused = member.post(&format!("/v1/leases/x/{action}"), &body);
        assert_eq!(refused.refusal(), (503, "no_quorum".to_owned()), "{action}");
        assert!(refused.field("message").contains(changed), "{refused:?}");
    }
    let seen = member.get("/v1/cell").json();
    assert_eq!((&seen["ready"], &seen["problem"]["error"]), (&json!(false), &json!("no_quorum")));
}

#[test]
fn a_node_in_quarantine_says_for_how_long() {
    let with = |mut config: Config| {
        config.ephemeral = false;
        impatient(config)
    };
    let cell = cell::one_with(with, Default::default());
    let member = &cell.members[0];
    assert_eq!(member.get("/healthz").status, 200);
    let wish = json!({"ttl": "5s"});
    for refused in [member.get("/readyz"), member.post("/v1/leases/x/acquire", &wish)] {
        assert_eq!(refused.refusal(), (503, "quarantine".to_owned()));
        let remaining_ms = refused.json()["remaining_ms"].as_u64().expect("a number");
        assert!((1..=61_000).contains(&remaining_ms), "{refused:?}");
        assert!(refused.field("message").contains("in quarantine after a restart for another"));
    }
    assert_eq!(member.get("/v1/cell").json()["problem"]["error"], "quarantine");
}

#[test]
fn each_node_has_its_own_numbers() {
    let cell = cell::three();
    let [one, two, _] = &cell.members[..] else { panic!("three members") };
    one.take("x");
    let requests =
        "paxoslease_http_requests_total{route=\"/v1/leases/{name}/acquire\",status=\"200\"} 1";
    let granted = "paxoslease_acquires_total{result=\"granted\"} 1";
    let metrics = one.get("/metrics");
    assert_eq!(metrics.header("content-type"), "text/plain; version=0.0.4; charset=utf-8");
    assert!(metrics.text.contains(requests), "{}", metrics.text);
    // Nodes publish a few times a second.
    until(|| one.get("/metrics").text.contains(granted));
    until(|| two.get("/metrics").text.contains("paxoslease_acquires_total{result=\"granted\"} 0"));
    assert!(!two.get("/metrics").text.contains("/acquire"));
    two.get("/nothing");
    let other = "paxoslease_http_requests_total{route=\"none\",status=\"404\"} 1";
    assert!(two.get("/metrics").text.contains(other));
}

#[test]
fn every_number_says_what_it_is() {
    let cell = cell::three();
    cell.members[0].take("x");
    until(|| cell.members[0].get("/metrics").text.contains("paxoslease_round_seconds_count"));
    let text = cell.members[0].get("/metrics").text;
    let of_kind = |kind: &str| -> Vec<String> {
        let lines = text.lines().filter_map(|line| line.strip_prefix(&format!("# {kind} ")));
        lines.map(|line| line.split(' ').next().expect("a name").to_owned()).collect()
    };
    let (described, typed) = (of_kind("HELP"), of_kind("TYPE"));
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let name = line.split(['{', ' ']).next().expect("a name");
        let name = typed.iter().find(|typed| {
            let suffix = name.strip_prefix(typed.as_str());
            matches!(suffix, Some("" | "_bucket" | "_sum" | "_count"))
        });
        let name = name.unwrap_or_else(|| panic!("no type for {line}"));
        assert!(described.contains(name), "{name} is not described");
    }
    assert!(text.contains("# TYPE paxoslease_round_seconds histogram"), "{text}");
    assert!(text.contains("paxoslease_round_seconds_bucket{le=\"0.00005\"}"), "{text}");
    // Those of the requests before are closed by and by.
    until(|| cell.members[0].get("/metrics").text.contains("paxoslease_http_connections 1\n"));
}
