//! Leases are taken, kept, given back and waited for, through any node.

use std::thread;
use std::time::Duration;

use serde_json::json;

use crate::asking::Raw;
use crate::cell::{self, until};

#[test]
fn a_lease_is_taken_kept_and_given_back_through_any_node() {
    let cell = cell::three();
    let [one, two, three] = &cell.members[..] else { panic!("three members") };
    let wish = json!({"ttl": "30s", "holder": "me"});
    let granted = one.post("/v1/leases/jobs%2Fnightly/acquire", &wish);
    assert_eq!(granted.status, 200, "{granted:?}");
    let fence = granted.field("fence");
    // A first round may go wrong on a busy machine, and then it did wait for another.
    let waited = granted.json()["waited_ms"].clone();
    let expected = json!({
        "name": "jobs/nightly", "fence": fence, "ttl_ms": 30_000, "waited_ms": waited, "holder": "me",
        "clock_drift_ppm": 1000, "clock_granularity_us": 1000,
    });
    assert!(granted.json() == expected && waited.is_u64(), "{granted:?}");

    let refused = two.post("/v1/leases/jobs%2Fnightly/acquire", &json!({"ttl": "5s"}));
    assert_eq!(refused.refusal(), (409, "held".to_owned()));
    assert_eq!((refused.field("holder"), refused.field("fence")), ("me".to_owned(), fence.clone()));
    let retry_after_ms = refused.json()["retry_after_ms"].as_u64().expect("a number");
    assert!((1..=30_000).contains(&retry_after_ms));

    let seen = three.get("/v1/leases/jobs%2Fnightly");
    assert_eq!(seen.status, 200, "{seen:?}");
    assert_eq!((seen.field("holder"), seen.field("fence")), ("me".to_owned(), fence.clone()));
    assert!(seen.json()["ttl_ms"].as_u64().expect("a number") <= 30_000);

    let renew = json!({"fence": fence, "ttl": "1m"});
    let renewed = two.post("/v1/leases/jobs%2Fnightly/renew", &renew);
    assert_eq!(renewed.status, 200, "{renewed:?}");
    let expected = json!({
        "name": "jobs/nightly", "fence": fence, "ttl_ms": 60_000,
        "clock_drift_ppm": 1000, "clock_granularity_us": 1000,
    });
    assert_eq!(renewed.json(), expected);

    let give_back = json!({"fence": fence});
    let released = three.post("/v1/leases/jobs%2Fnightly/release", &give_back);
    assert_eq!(released.status, 200, "{released:?}");
    assert_eq!(released.json(), json!({"name": "jobs/nightly", "fence": fence}));
    let again = three.post("/v1/leases/jobs%2Fnightly/release", &give_back);
    assert_eq!(again.refusal(), (410, "not_held".to_owned()));
    let late = one.post("/v1/leases/jobs%2Fnightly/renew", &renew);
    assert_eq!(late.refusal(), (410, "not_held".to_owned()));
    // A hint: it takes one member that has not heard of the release yet to see it held still.
    until(|| one.get("/v1/leases/jobs%2Fnightly").status == 404);
    let nobody = one.get("/v1/leases/jobs%2Fnightly");
    assert_eq!(nobody.refusal(), (404, "not_found".to_owned()));

    let next: u64 = two.take("jobs%2Fnightly").parse().expect("a number");
    assert!(next > fence.parse().expect("a number"));
}

/// T2: a holder that speaks nothing but HTTP has all it needs to count its time.
#[test]
fn a_holder_is_told_how_far_clocks_may_be_off() {
    let with = |mut config: paxoslease_node::Config| {
        config.clock_drift_ppm = 200;
        config.clock_granularity = Duration::from_nanos(2_000_001);
        config
    };
    let cell = cell::one_with(with, Default::default());
    let member = &cell.members[0];
    let granted = member.post("/v1/leases/x/acquire", &json!({"ttl": "5s"}));
    let renew = json!({"fence": granted.field("fence"), "ttl": "5s"});
    for told in [granted, member.post("/v1/leases/x/renew", &renew)] {
        assert_eq!(told.status, 200, "{told:?}");
        assert_eq!(told.json()["clock_drift_ppm"], 200, "{told:?}");
        assert_eq!(told.json()["clock_granularity_us"], 2001, "{told:?}");
    }
}

#[test]
fn a_waiter_is_granted_when_the_lease_is_given_back() {
    let cell = cell::three();
    let [one, two, _] = &cell.members[..] else { panic!("three members") };
    let fence = one.take("x");
    thread::scope(|scope| {
        let wish = json!({"ttl": "5s", "wait": "10m", "holder": "patient"});
        let waiter = scope.spawn(move || two.post("/v1/leases/x/acquire", &wish));
        // Not merely asked: its first round is over, and it waits.
        until(|| two.status().waiting.iter().any(|wanted| wanted.name == "x"));
        assert_eq!(one.post("/v1/leases/x/release", &json!({ "fence": fence })).status, 200);
        let granted = waiter.join().expect("no panic");
        assert_eq!((granted.status, granted.field("holder")), (200, "patient".to_owned()));
    });
}

#[test]
fn a_wait_that_was_in_vain_says_who_holds_it() {
    let cell = cell::three();
    cell.members[0].take("x");
    let wish = json!({"ttl": "5s", "wait": "20ms"});
    let refused = cell.members[1].post("/v1/leases/x/acquire", &wish);
    assert_eq!(refused.refusal(), (409, "held".to_owned()));
    assert_eq!(refused.field("holder"), "taker");
}

/// P8.
#[test]
fn a_waiter_that_goes_away_leaves_the_queue() {
    let cell = cell::three();
    let [one, two, _] = &cell.members[..] else { panic!("three members") };
    let fence = one.take("x");
    let mut waiter = Raw::connect(two.address);
    waiter.ask("POST", "/v1/leases/x/acquire", r#"{"ttl": "60s", "wait": "10m"}"#);
    until(|| two.status().waiters == 1);
    drop(waiter);
    until(|| two.status().waiters == 0);
    assert_eq!(one.post("/v1/leases/x/release", &json!({ "fence": fence })).status, 200);
    two.take("x");
}

#[test]
fn a_name_is_whatever_the_path_says_it_is() {
    let cell = cell::one_with(|config| config, Default::default());
    let member = &cell.members[0];
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
        let mut raw = Raw::connect(member.address);
        raw.ask("POST", &format!("/v1/leases/{path}/acquire"), r#"{"ttl": "60s"}"#);
        let granted = raw.reply();
        assert_eq!((granted.status, granted.field("name").as_str()), (200, name), "{granted:?}");
    }
    assert_eq!(member.get("/v1/leases/c/d/e").field("name"), "c/d/e");
    assert_eq!(member.get("/v1/leases/c%2Fd/e").field("name"), "c/d/e");
    assert_eq!(member.get("/v1/leases/acquire").field("name"), "acquire");
    assert_eq!(member.get("/v1/leases/h%2Frelease").field("name"), "h/release");
    // What to do is not what to look at.
    let refused = member.get("/v1/leases/h/release");
    assert_eq!(refused.refusal(), (405, "method_not_allowed".to_owned()));
}

#[test]
fn a_holder_that_does_not_say_who_it_is_is_its_address() {
    let cell = cell::one_with(|config| config, Default::default());
    let mut raw = Raw::connect(cell.members[0].address);
    raw.ask("POST", "/v1/leases/x/acquire", r#"{"ttl": "5s", "wait": null, "holder": null}"#);
    let local = raw.0.get_ref().local_addr().expect("connected").to_string();
    assert_eq!(raw.reply().field("holder"), local);
    raw.ask("POST", "/v1/leases/y/acquire", r#"{"ttl": "5s", "holder": ""}"#);
    assert_eq!(raw.reply().field("holder"), "");
}

#[test]
fn curl_can_do_all_that() {
    let cell = cell::one_with(|config| config, Default::default());
    let url = format!("http://{}/v1/leases/jobs%2Fnightly", cell.members[0].address);
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
    let give_back = json!({"fence": granted["fence"]}).to_string();
    let release = format!("{url}/release");
    let released = curl(&["-H", json_type, "-d", &give_back, &release]).expect("curl");
    assert_eq!(released["fence"], granted["fence"]);
    let refused = curl(&["-d", &give_back, &release]).expect("curl");
    assert_eq!(refused["error"], "media_type");
}
