//! Leases over HTTP, beyond what a transcript can show.

use std::thread;
use std::time::Duration;

use serde_json::json;

use crate::harness::{Cell, Raw};

/// T2: a holder that speaks nothing but HTTP has all it needs to count its time.
#[test]
fn a_holder_is_told_the_bounds_of_clock_errors() {
    let cell = Cell::one_with(|config| {
        config.node.clock_drift_ppm = 200;
        config.node.clock_granularity = Duration::from_nanos(2_000_001);
    });
    let granted = cell[0].post("/v1/leases/x/acquire", &json!({"ttl": "5s"}));
    let renew = json!({"fence": granted.field("fence"), "ttl": "5s"});
    for told in [granted, cell[0].post("/v1/leases/x/renew", &renew)] {
        assert_eq!(told.status, 200, "{told:?}");
        assert_eq!(told.json()["clock_drift_ppm"], 200, "{told:?}");
        assert_eq!(told.json()["clock_granularity_us"], 2001, "{told:?}");
    }
}

#[test]
fn a_waiter_is_granted_the_lease_when_it_is_released() {
    let cell = Cell::three();
    let fence = cell[0].take("x");
    let wish = json!({"ttl": "5s", "wait": "10m", "holder": "patient"});
    thread::scope(|scope| {
        let waiter = scope.spawn(|| cell[1].post("/v1/leases/x/acquire", &wish));
        cell[1].wait_for_waiters("x", 1);
        assert_eq!(cell[0].post("/v1/leases/x/release", &json!({ "fence": fence })).status, 200);
        let granted = waiter.join().expect("no panic");
        assert_eq!((granted.status, granted.field("holder")), (200, "patient".to_owned()));
    });
}

#[test]
fn the_path_may_contain_any_name() {
    let cell = Cell::one();
    for (path, name) in [
        ("plain", "plain"),
        ("a%2Fb", "a/b"),
        ("c/d/e", "c/d/e"),
        ("/f", "/f"),
        ("g/", "g/"),
        ("acquire", "acquire"),
        ("h/release", "h/release"),
        ("i%20%25%3F%22%C3%BC", "i %?\"ü"),
        ("..", ".."),
        ("%F0%9F%94%92", "🔒"),
    ] {
        let mut raw = Raw::connect(cell[0].http());
        raw.ask("POST", &format!("/v1/leases/{path}/acquire"), r#"{"ttl": "60s"}"#);
        let granted = raw.reply();
        assert_eq!((granted.status, granted.field("name").as_str()), (200, name), "{granted:?}");
    }
    for (path, name) in [
        ("c/d/e", "c/d/e"),
        ("c%2Fd/e", "c/d/e"),
        ("acquire", "acquire"),
        ("h%2Frelease", "h/release"),
    ] {
        assert_eq!(cell[0].get(&format!("/v1/leases/{path}")).field("name"), name);
    }
    // A last segment that names an action is not part of the name.
    let refused = cell[0].get("/v1/leases/h/release");
    assert_eq!(refused.error(), (405, "method_not_allowed".to_owned()));
}

#[test]
fn a_name_with_more_slashes_than_a_path_can_hold_is_refused() {
    let cell = Cell::one();
    let mut raw = Raw::connect(cell[0].http());
    // Each slash is three bytes as part of a name, and together they exceed the bound of a path.
    let path = format!("/v1/leases/{}", "/".repeat(22_000));
    for target in [path.clone(), format!("http://x{path}")] {
        raw.ask("GET", &target, "");
        let refused = raw.reply();
        assert_eq!(refused.error(), (400, "name".to_owned()), "{refused:?}");
        assert!(refused.field("message").contains("22000 bytes long, at most 512"), "{refused:?}");
        assert_eq!(refused.header("cache-control"), "no-store");
    }
    raw.ask("GET", "/healthz", "");
    assert_eq!(raw.reply().status, 200, "the connection stays open");
}

#[test]
fn a_body_without_the_content_type_of_json_is_refused() {
    let cell = Cell::one();
    for (content_type, status) in [
        ("text/plain", 415),
        ("application/x-www-form-urlencoded", 415),
        ("application/jsonp", 415),
        ("Application/JSON", 200),
        ("application/json; charset=utf-8", 200),
    ] {
        let path = format!("/v1/leases/{}/acquire", content_type.len());
        let reply = cell[0].ask("POST", &path, None, Some((content_type, r#"{"ttl": "5s"}"#)));
        assert_eq!(reply.status, status, "{content_type}");
        assert!(status == 200 || reply.field("error") == "media_type", "{reply:?}");
    }
}

#[test]
fn a_holder_without_a_name_is_called_by_its_address() {
    let cell = Cell::one();
    let mut raw = Raw::connect(cell[0].http());
    raw.ask("POST", "/v1/leases/x/acquire", r#"{"ttl": "5s", "wait": null, "holder": null}"#);
    let local = raw.0.get_ref().socket().local_addr().expect("connected").to_string();
    assert_eq!(raw.reply().field("holder"), local);
    raw.ask("POST", "/v1/leases/y/acquire", r#"{"ttl": "5s", "holder": ""}"#);
    assert_eq!(raw.reply().field("holder"), "");
}

#[test]
fn curl_can_acquire_and_release() {
    let cell = Cell::one();
    let url = format!("http://{}/v1/leases/jobs%2Fnightly", cell[0].http());
    let curl = |arguments: &[&str]| {
        let output = std::process::Command::new("curl").arg("-sS").args(arguments).output();
        match output {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            output => {
                let output = output.expect("runs");
                assert!(output.status.success(), "{output:?}");
                Some(serde_json::from_slice::<serde_json::Value>(&output.stdout).expect("JSON"))
            }
        }
    };
    // Machines without curl have nothing to show here.
    let json_type = "content-type: application/json";
    let wish = r#"{"ttl": "15s", "holder": "shell"}"#;
    let granted = curl(&["-H", json_type, "-d", wish, &format!("{url}/acquire")]);
    let Some(granted) = granted else { return };
    assert_eq!((&granted["holder"], &granted["ttl_ms"]), (&json!("shell"), &json!(15_000)));
    assert_eq!(curl(&[&url]).expect("curl")["fence"], granted["fence"]);
    let fence = json!({"fence": granted["fence"]}).to_string();
    let release = format!("{url}/release");
    let released = curl(&["-H", json_type, "-d", &fence, &release]).expect("curl");
    assert_eq!(released["fence"], granted["fence"]);
    assert_eq!(curl(&["-d", &fence, &release]).expect("curl")["error"], "media_type");
}
