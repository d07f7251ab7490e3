//! Which clients are served: TLS, tokens, quotas, and changes of them while a daemon runs.

mod browser;
mod reload;
mod tls;

use crate::harness::{Cell, entry, play, tokens};
use crate::resp::pages;
use paxoslease_server::Verb;

#[test]
fn a_client_may_do_what_its_token_permits() {
    play("tokens.txt");
}

fn guarded() -> Cell {
    Cell::one_with(|config| config.access = tokens())
}

#[test]
fn lists_watches_and_the_page_show_only_names_that_may_be_read() {
    let cell = Cell::one_with(|config| {
        config.access = tokens();
        config.access.push(entry("few", &["jobs/*"], &[Verb::Admin]));
    });
    let mut watched = crate::harness::Raw::connect(cell[0].http());
    watched.watch("", "authorization: Bearer reader\r\n");
    let mut all = cell[0].client_with("all");
    all.acquire("deploy");
    all.acquire("jobs/a");
    let (_, first) = watched.event().expect("the watch goes on");
    assert_eq!(first["name"], "jobs/a");
    for (token, shown) in [("reader", false), ("ops", true)] {
        let listed = pages(&mut cell[0].client_with(token), "").concat();
        assert!(listed.contains("jobs/a") && listed.contains("deploy") == shown, "{listed}");
        let listed = cell[0].ask("GET", "/v1/leases", Some(token), None).text;
        assert!(listed.contains("jobs/a") && listed.contains("deploy") == shown, "{listed}");
    }
    let page = cell[0].ask("GET", "/", Some("few"), None);
    assert!(page.status == 200 && !page.text.contains("deploy") && !page.text.contains("jobs/a"));
}

#[test]
fn pages_of_a_list_tell_nothing_of_names_that_may_not_be_read() {
    let cell = guarded();
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

#[test]
fn a_token_gets_no_more_leases_than_its_quota_and_others_go_on() {
    let mut cell = Cell::one_with(|config| {
        let mut few = entry("few", &["*"], &[Verb::Acquire]);
        few.leases = Some(2);
        config.access = vec![few, entry("ops", &["*"], &[Verb::Acquire])];
    });
    let (mut few, mut ops) = (cell[0].client_with("few"), cell[0].client_with("ops"));
    let post = |cell: &Cell, name: &str| {
        let body = Some(("application/json", r#"{"ttl":"15s"}"#));
        cell[0].ask("POST", &format!("/v1/leases/{name}/acquire"), Some("few"), body)
    };
    let over = "-BUSY this token has 2 leases through this node, its quota; release some, or raise \
                leases in its [[access]]";
    let fence = few.acquire("a");
    assert_eq!(post(&cell, "b").status, 200, "over RESP or HTTP");
    assert_eq!(few.ask("LEASE.ACQUIRE c 15000"), over);
    let refused = post(&cell, "c");
    assert_eq!(refused.error(), (429, "busy".to_owned()));
    assert!(refused.text.contains("this token has 2 leases through this node"), "{refused:?}");
    // Leases that are held are still served, and other tokens have quotas of their own.
    assert_eq!(few.ask(&format!("LEASE.RENEW a {fence} 15000")), ":15000");
    ops.acquire("d");
    cell[0].wait_for_limit("quota", 2);
    // An acquire that is not granted takes no room.
    few.release("a", fence);
    assert_eq!(few.ask("LEASE.ACQUIRE d 15000"), "nil");
    few.acquire("c");
    assert_eq!(few.ask("LEASE.ACQUIRE e 15000"), over);
    // A reload changes the quota, and keeps what was counted.
    cell[0].reload(|config| config.access[0].leases = Some(3));
    few.acquire("e");
    assert!(few.ask("LEASE.ACQUIRE f 15000").starts_with("-BUSY this token has 3 leases"));
}
