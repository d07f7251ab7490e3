//! Leases acquired, renewed and released one command at a time.

use std::process::Stdio;

use serde_json::Value;

use crate::cell::Cell;

#[test]
fn a_lease_is_acquired_renewed_and_released_by_its_fence() {
    let cell = Cell::start();
    let fence = cell.say(&["acquire", "x"]);
    let fence = fence.trim();
    assert_eq!(cell.say(&["renew", "x", "--fence", fence, "--ttl", "1s"]), "");
    assert_eq!(cell.say(&["release", "x", "--fence", fence]), "");
    let next: u64 = cell.say(&["acquire", "x"]).trim().parse().expect("a number");
    assert!(next > fence.parse().expect("a number"), "{next} after {fence}");
}

#[test]
fn a_lease_whose_fence_cannot_be_printed_is_released() {
    let cell = Cell::start();
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("it exists");
    let mut acquire = cell.command(&["acquire", "x"]);
    let status = acquire.stdout(full).stderr(Stdio::null()).status().expect("runs");
    assert_eq!(status.code(), Some(1));
    assert_eq!(cell.run(&["get", "x"]).0, 1, "nobody holds it");
}

#[test]
fn programs_get_objects_with_fences_as_text() {
    let cell = Cell::start();
    let grant = cell.json(&["acquire", "x", "--json", "--holder", "me", "--ttl", "9s"]);
    let fence = grant["fence"].as_str().expect("text");
    assert_eq!(grant["name"], "x");
    assert_eq!((&grant["holder"], &grant["ttl_ms"]), (&"me".into(), &9000.into()));
    assert!(grant["waited_ms"].is_u64(), "{grant}");
    let renewed = cell.json(&["renew", "x", "--json", "--fence", fence, "--ttl", "2s"]);
    assert_eq!(renewed, serde_json::json!({"name": "x", "fence": fence, "ttl_ms": 2000}));
    let released = cell.json(&["release", "x", "--json", "--fence", fence]);
    assert_eq!(released, serde_json::json!({"name": "x", "fence": fence, "released": true}));
    let default: Value = cell.json(&["acquire", "x", "--json"]);
    assert!(default["holder"].as_str().is_some_and(|holder| holder.contains('@')), "{default}");
}

#[test]
fn an_ended_tenure_is_neither_renewed_nor_released() {
    let cell = Cell::start();
    let fence = cell.say(&["acquire", "x"]);
    let fence = fence.trim();
    cell.say(&["release", "x", "--fence", fence]);
    for command in ["renew", "release"] {
        for fence in [fence, "0", "1025", "18446744073709551615"] {
            let (code, stdout, stderr) = cell.run(&[command, "x", "--fence", fence]);
            assert_eq!((code, stdout.as_str()), (1, ""), "{command} {fence}: {stderr}");
            let begin = format!("error: \"x\" is not held with fence {fence}");
            assert!(stderr.starts_with(&begin), "{command} {fence}: {stderr}");
        }
    }
}

#[test]
fn the_error_for_a_held_name_shows_its_holder() {
    let cell = Cell::start();
    let fence = cell.say(&["acquire", "jobs/nightly", "--holder", "bob@web1:4242"]);
    let begin = format!(
        "error: \"jobs/nightly\" is held by \"bob@web1:4242\" (fence {}) for 1",
        fence.trim()
    );
    for (args, code, hint) in [
        (&["acquire", "jobs/nightly", "--no-wait"][..], 1, "; wait with --wait 30s"),
        (&["acquire", "-n", "-E", "9", "jobs/nightly"], 9, "; wait with --wait 30s"),
        (&["acquire", "-w", "1ms", "-E", "0", "jobs/nightly"], 0, "; wait longer with --wait"),
        (&["lock", "-n", "jobs/nightly", "--", "echo", "no"], 1, "; wait with --wait 30s"),
        (&["lock", "-n", "-E", "200", "jobs/nightly", "echo", "no"], 200, "; wait with --wait 30s"),
        (&["lock", "-w", "1ms", "jobs/nightly", "echo", "no"], 1, "; wait longer with --wait"),
    ] {
        let (actual, stdout, stderr) = cell.run(args);
        assert_eq!((actual, stdout.as_str()), (code, ""), "{args:?}: {stderr}");
        let last = stderr.lines().last().expect("a line");
        assert!(last.starts_with(&begin) && last.ends_with(hint), "{args:?}: {stderr}");
        assert!(last.contains("more unless renewed"), "{args:?}: {stderr}");
    }
}

#[test]
fn a_waiter_shows_the_holder_and_gets_the_released_lease() {
    let cell = Cell::start();
    let fence = cell.say(&["acquire", "x", "--holder", "bob"]);
    let waiter = cell.start_command(&["acquire", "x", "--json"]);
    let line = waiter.stderr.until(|line| line.starts_with("waiting: "));
    assert!(line.concat().contains("\"x\" is held by \"bob\""), "{line:?}");
    cell.say(&["release", "x", "--fence", fence.trim()]);
    let grant = waiter.stdout.until(|_| true).concat();
    let grant: Value = serde_json::from_str(&grant).expect("a line of JSON");
    assert!(grant["fence"].as_str().expect("text").parse::<u64>().is_ok(), "{grant}");
    assert_eq!(waiter.end(), Some(0));
}

#[test]
fn a_ttl_above_max_lease_is_refused_with_max_lease() {
    let cell = Cell::start();
    let fence = cell.say(&["acquire", "y"]);
    for args in [
        &["acquire", "x", "--ttl", "21s"][..],
        &["lock", "x", "--ttl", "21s", "--", "echo", "no"],
        &["elect", "x", "--ttl", "21s"],
        &["renew", "y", "--ttl", "21s", "--fence", fence.trim()],
    ] {
        let (code, stdout, stderr) = cell.run(args);
        assert_eq!((code, stdout.as_str()), (2, ""), "{args:?}: {stderr}");
        assert!(stderr.starts_with("error: --ttl: "), "{args:?}: {stderr}");
        assert!(stderr.contains("20s") || stderr.contains("20000"), "{args:?}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{args:?}: {stderr}");
    }
}
