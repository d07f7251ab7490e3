//! How many leases a token may have through a node.

use paxoslease_server::Verb;

use crate::support::{Client, Wire, ask_http, daemon, entry, wait_for_metric};

const TTL: &str = r#"{"ttl":"15s"}"#;

#[test]
fn a_token_gets_no_more_leases_than_its_quota_and_others_go_on() {
    let mut kept = None;
    let server = daemon(|config| {
        let mut few = entry("few", &["*"], &[Verb::Acquire]);
        few.leases = Some(2);
        let ops = entry("ops", &["*"], &[Verb::Acquire, Verb::Read, Verb::Admin]);
        config.access = vec![few, ops];
        kept = Some(config.clone());
    });
    let (mut few, mut ops) = (Client::with(&server, "few"), Client::with(&server, "ops"));
    let post = |what: &str| {
        let http = Wire::plain(server.http().expect("listens"));
        ask_http(http, &format!("POST /v1/leases/{what}/acquire"), Some("few"), Some(TTL))
    };
    let over = "BUSY this token has 2 leases through this node, its quota; release some, or raise \
                leases in its [[access]]";
    let fence = few.acquire("a");
    assert_eq!(post("b").0, 200, "by RESP or HTTP");
    assert_eq!(few.ask("LEASE.ACQUIRE c 15000"), over);
    let (status, refused) = post("c");
    assert_eq!(status, 429, "{refused}");
    assert!(refused.contains("this token has 2 leases through this node"), "{refused}");
    // What is held already is served, and others have quotas of their own.
    assert_eq!(few.ask(&format!("LEASE.RENEW a {fence} 15000")), "15000");
    ops.acquire("d");
    wait_for_metric(&server, Wire::plain, "paxoslease_limited_total{limit=\"quota\"}", 2.0);
    // An acquire that comes to nothing takes no room.
    assert_eq!(few.ask(&format!("LEASE.RELEASE a {fence}")), "1");
    assert_eq!(few.ask("LEASE.ACQUIRE d 15000"), "nil");
    few.acquire("c");
    assert_eq!(few.ask("LEASE.ACQUIRE e 15000"), over);
    // A reload changes the quota, and forgets nothing.
    let mut config = kept.expect("it was configured");
    config.access[0].leases = Some(3);
    server.reload(|| Ok(config)).expect("reloaded");
    few.acquire("e");
    assert!(few.ask("LEASE.ACQUIRE f 15000").starts_with("BUSY this token has 3 leases"));
}
