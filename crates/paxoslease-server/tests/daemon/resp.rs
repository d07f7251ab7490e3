//! What clients of RESP are promised.

mod clients;
mod hand_over;
mod leaving;
mod listing;
mod pipelines;
mod watching;

use std::time::Duration;

use crate::harness::{Cell, new_path, play, until};
pub(crate) use listing::pages;

#[test]
fn commands_do_what_they_say() {
    play("commands.txt");
}

#[test]
fn mistakes_are_named_and_keep_the_connection_open() {
    play("errors.txt");
}

#[test]
fn acquires_wait_by_reply_or_push_and_end_with_their_client() {
    play("waiting.txt");
}

#[test]
fn keys_of_redis_are_leases() {
    play("redis.txt");
}

#[test]
fn scripts_of_locks_go_by_tenure() {
    play("redis_scripts.txt");
}

#[test]
fn limits_have_errors_and_metrics() {
    play("limits.txt");
}

#[test]
fn a_failed_disk_is_named_and_the_node_is_not_ready() {
    let folder = new_path("data");
    let cell = Cell::one_with(|config| {
        config.node = config.node.clone().data_dir(&folder).new_cell(true);
        config.node.ephemeral = false;
        config.node.timing.request_timeout = Duration::from_millis(50);
    });
    let mut client = cell[0].client();
    until("the cell is founded", || cell[0].status().ready);
    assert_eq!(cell[0].ask("GET", "/readyz", None, None).status, 200);
    std::fs::remove_dir_all(&folder).expect("removed");
    // The first lease is longer than any before, so it waits for the disk (R2).
    let said = client.ask("LEASE.ACQUIRE x 50000");
    let why =
        "the disk of this node failed, so that it accepts no lease longer than those before: ";
    assert!(said.starts_with("-NOQUORUM ") && said.contains(why), "{said}");
    assert!(!cell[0].status().ready);
    until("the probe is up to date", || {
        let ready = cell[0].ask("GET", "/readyz", None, None);
        ready.status == 503 && ready.text.contains(why)
    });
    let body = Some(("application/json", "{\"ttl\": \"50s\"}"));
    let refused = cell[0].ask("POST", "/v1/leases/x/acquire", None, body);
    assert!(refused.status == 503 && refused.text.contains(why), "{}", refused.text);
}

#[test]
fn the_uptime_counts_from_the_start_of_the_node() {
    let cell = Cell::one();
    let is_over_a_second = |info: String| !info.contains("uptime_in_seconds:0\r\n");
    let mut first = cell[0].client();
    until("the node has run for a second", || is_over_a_second(first.ask("INFO")));
    // Each shard's thread gets every other client, and one of them had none so far.
    for mut other in [cell[0].client(), cell[0].client()] {
        assert!(is_over_a_second(other.ask("INFO")));
    }
}
