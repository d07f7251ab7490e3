//! Whatever is wrong is said in JSON, with a code and what to do.

use serde_json::json;

use crate::asking::Raw;
use crate::cell;

const TWICE: &str = r#"{"ttl": "50s", "holder": "me", "ttl": "5s"}"#;

#[test]
fn what_is_wrong_with_a_request_is_said() {
    let cell = cell::one_with(|config| config, Default::default());
    let member = &cell.members[0];
    let long_name = format!("/v1/leases/{}/acquire", "n".repeat(513));
    let long_holder = json!({"ttl": "5s", "holder": "h".repeat(257)}).to_string();
    let large = json!({"ttl": "5s", "holder": "h".repeat(17_000)}).to_string();
    let acquire = "/v1/leases/x/acquire";
    let renew = "/v1/leases/x/renew";
    for (path, body, status, code, message) in [
        (acquire, "", 400, "bad_request", "the body is no JSON object: EOF"),
        (acquire, "{", 400, "bad_request", "the body is no JSON object: EOF"),
        (acquire, "[]", 400, "bad_request", "the body is no JSON object"),
        (acquire, "{}", 400, "bad_request", "\"ttl\" is missing; write {\"ttl\": \"15s\"}"),
        (acquire, r#"{"tll": "5s"}"#, 400, "bad_request", "the nearest known field is \"ttl\""),
        (acquire, TWICE, 400, "bad_request", "the field \"ttl\" is there twice"),
        (acquire, r#"{"ttl": 15}"#, 400, "bad_request", "\"15s\" or \"15ms\""),
        (acquire, r#"{"ttl": "15"}"#, 400, "bad_request", "15 has no unit; write 15s or 15ms"),
        (acquire, r#"{"ttl": "5s", "wait": true}"#, 400, "bad_request", "\"wait\" is true"),
        (acquire, r#"{"ttl": "5s", "holder": 7}"#, 400, "bad_request", "expected text in quotes"),
        (acquire, r#"{"ttl": "10ms"}"#, 400, "ttl", "at least 50ms expected"),
        (acquire, r#"{"ttl": "61s"}"#, 400, "ttl", "this cell's max_lease of 60s"),
        (acquire, &long_holder, 400, "holder", "257 bytes long, at most 256"),
        (acquire, &large, 413, "too_large", "longer than 16384 bytes"),
        (&long_name, r#"{"ttl": "5s"}"#, 400, "name", "513 bytes long, at most 512"),
        ("/v1/leases//acquire", r#"{"ttl": "5s"}"#, 400, "name", "at least one byte"),
        ("/v1/leases/%FF/acquire", r#"{"ttl": "5s"}"#, 400, "name", "not valid UTF-8"),
        (renew, r#"{"fence": "42"}"#, 400, "bad_request", "\"ttl\" is missing"),
        (renew, r#"{"fence": -1, "ttl": "5s"}"#, 400, "bad_request", "digits in quotes"),
        (renew, r#"{"fence": "42", "ttl": "61s"}"#, 400, "ttl", "max_lease"),
        (renew, r#"{"fence": "42", "ttl": "5s"}"#, 410, "not_held", "acquire it again"),
        (renew, r#"{"fence": 42, "ttl": "5s"}"#, 410, "not_held", "acquire it again"),
        (renew, r#"{"fence": "0", "ttl": "5s"}"#, 410, "not_held", "acquire it again"),
        ("/v1/leases/x/release", r#"{"fence": "42"}"#, 410, "not_held", "acquire it again"),
        ("/v1/leases/x/release", "{}", 400, "bad_request", "\"fence\" is missing"),
    ] {
        let refused = member.ask("POST", path, Some(("application/json", body)));
        assert_eq!(refused.refusal(), (status, code.to_owned()), "{path} {body}: {refused:?}");
        assert!(refused.field("message").contains(message), "{path} {body}: {refused:?}");
        assert_eq!(refused.header("content-type"), "application/json");
    }
    let metrics = member.get("/metrics").text;
    for (limit, count) in [("name", 3), ("holder", 1)] {
        let counted = format!("paxoslease_limited_total{{limit=\"{limit}\"}} {count}\n");
        assert!(metrics.contains(&counted), "{counted}{metrics}");
    }
}

#[test]
fn a_name_of_more_slashes_than_a_path_can_say_is_refused_in_every_form() {
    let cell = cell::one_with(|config| config, Default::default());
    let mut raw = Raw::connect(cell.members[0].address);
    // Each of them is three bytes as part of a name, and together more than a path may have.
    let path = format!("/v1/leases/{}", "/".repeat(22_000));
    for target in [path.clone(), format!("http://x{path}")] {
        raw.ask("GET", &target, "");
        let refused = raw.reply();
        assert_eq!(refused.refusal(), (400, "name".to_owned()), "{refused:?}");
        assert!(refused.field("message").contains("22000 bytes long, at most 512"), "{refused:?}");
        assert_eq!(refused.header("cache-control"), "no-store");
    }
    raw.ask("GET", "/healthz", "");
    assert_eq!(raw.reply().status, 200, "and the connection goes on");
}

#[test]
fn a_parameter_is_said_once() {
    let cell = cell::one_with(|config| config, Default::default());
    let refused = cell.members[0].get("/v1/leases?limit=1&prefix=a&limit=2");
    assert_eq!(refused.refusal(), (400, "bad_request".to_owned()));
    assert!(refused.field("message").contains("the parameter \"limit\" is there twice"));
}

#[test]
fn a_body_that_does_not_say_that_it_is_json_is_refused() {
    let cell = cell::one_with(|config| config, Default::default());
    let member = &cell.members[0];
    let wish = r#"{"ttl": "5s"}"#;
    for content_type in ["text/plain", "application/x-www-form-urlencoded", "application/jsonp"] {
        let refused = member.ask("POST", "/v1/leases/x/acquire", Some((content_type, wish)));
        assert_eq!(refused.refusal(), (415, "media_type".to_owned()), "{content_type}");
    }
    for (name, content_type) in
        [("x", "Application/JSON"), ("y", "application/json; charset=utf-8")]
    {
        let path = format!("/v1/leases/{name}/acquire");
        assert_eq!(member.ask("POST", &path, Some((content_type, wish))).status, 200);
    }
}

#[test]
fn paths_and_methods_that_are_none_are_told_what_there_is() {
    let cell = cell::one_with(|config| config, Default::default());
    let member = &cell.members[0];
    for path in ["/nothing", "/v1", "/v1/leases/", "/v2/leases/x"] {
        assert_eq!(member.get(path).refusal(), (404, "not_found".to_owned()), "{path}");
    }
    for (method, path, allowed) in [
        ("GET", "/v1/leases/x/acquire", "POST"),
        ("DELETE", "/v1/leases/x", "GET,HEAD"),
        ("POST", "/v1/leases/a/b", "GET,HEAD"),
        ("OPTIONS", "/v1/leases/x/acquire", "POST"),
        ("PUT", "/", "GET,HEAD"),
    ] {
        let refused = member.ask(method, path, None);
        assert_eq!(refused.refusal(), (405, "method_not_allowed".to_owned()), "{method} {path}");
        assert_eq!(refused.header("allow"), allowed, "{method} {path}");
        assert_eq!(refused.header("access-control-allow-origin"), "", "no CORS");
    }
}
