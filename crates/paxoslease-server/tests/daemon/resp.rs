//! What clients of RESP are promised.

mod clients;
mod hand_over;
mod leaving;
mod listing;
mod pipelines;
mod watching;

use crate::harness::{Cell, play, until};
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
fn scripts_of_locks_are_recognised_and_go_by_tenure() {
    play("redis_scripts.txt");
}

#[test]
fn limits_have_errors_and_metrics() {
    play("limits.txt");
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
