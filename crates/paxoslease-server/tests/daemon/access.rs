//! Which clients are served: TLS, tokens, quotas, and changes of them while a daemon runs.

mod reload;
mod tls;

use crate::harness::{Cell, play, tokens};
use crate::resp::pages;

#[test]
fn a_client_may_do_what_its_token_permits() {
    play("tokens.txt");
}

#[test]
fn the_audit_log_has_a_line_for_each_lease_and_refusal() {
    play("audit.txt");
}

#[test]
fn pages_of_other_sites_and_guesses_are_refused() {
    play("browsers.txt");
}

#[test]
fn tokens_and_quotas_change_at_run_time_and_no_lease_is_lost() {
    play("reload.txt");
}

#[test]
fn pages_of_a_list_tell_nothing_of_names_that_may_not_be_read() {
    let cell = Cell::one_with(|config| config.access = tokens());
    let (mut all, mut reader) = (cell[0].client_with("all"), cell[0].client_with("reader"));
    for number in 0..160 {
        let folder = if number % 50 == 0 { "jobs" } else { "secret" };
        all.acquire(&format!("{folder}/{number}"));
    }
    let pages = pages(&mut reader, " COUNT 1");
    let listed = pages.concat();
    assert!(!listed.contains("secret"), "{listed}");
    // A page ends with a lease that may be seen, or after 16 slots, or with the shard.
    assert_eq!(listed.matches("jobs/").count(), 4);
    assert!(pages.len() <= 4 + 160 / 16 + 2, "{} pages", pages.len());
}
