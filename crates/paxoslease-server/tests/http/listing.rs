//! Listings go page by page, and miss nothing that stays.

use std::collections::BTreeSet;
use std::time::Duration;

use paxoslease_node::block_on;
use paxoslease_node::front::{Answer, Holder, Name, Request};

use crate::cell::{self, Member};

fn pages(member: &Member, query: &str) -> Vec<Vec<String>> {
    let mut pages = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = member.get(&format!("/v1/leases?{query}{cursor}"));
        assert_eq!(page.status, 200, "{page:?}");
        let page = page.json();
        let leases = page["leases"].as_array().expect("some leases");
        let name = |lease: &serde_json::Value| lease["name"].as_str().expect("a name").to_owned();
        pages.push(leases.iter().map(name).collect());
        match &page["cursor"] {
            serde_json::Value::Null => return pages,
            next => cursor = format!("&cursor={}", next.as_str().expect("a text")),
        }
    }
}

#[test]
fn pages_show_every_lease_once_and_keep_to_their_limit() {
    let cell = cell::one_with(|config| config, Default::default());
    let member = &cell.members[0];
    let names: BTreeSet<String> =
        (0..120).map(|number| format!("jobs/{number}")).chain(["other".to_owned()]).collect();
    names.iter().for_each(|name| drop(member.take(name)));

    let by_seven = pages(member, "limit=7");
    assert!(by_seven.iter().all(|page| page.len() <= 7));
    let listed: Vec<String> = by_seven.concat();
    assert_eq!(listed.len(), names.len());
    assert_eq!(listed.into_iter().collect::<BTreeSet<_>>(), names);

    let by_default = pages(member, "");
    assert!(by_default.iter().all(|page| page.len() <= 100) && by_default.len() >= 2);
    assert_eq!(pages(member, "prefix=jobs%2F1&limit=1000").concat().len(), 31);
    assert_eq!(pages(member, "prefix=other").concat(), ["other"]);
    assert_eq!(pages(member, "prefix=nobody").concat(), [""; 0]);
}

#[test]
fn a_page_is_bounded_by_bytes_and_nothing_is_left_out() {
    let cell = cell::one_with(|config| config, Default::default());
    let member = &cell.members[0];
    let remote = member.node.remote();
    // JSON makes six bytes of each.
    let holder = "\u{1}".repeat(Holder::LEN_MAX);
    let holder = Holder::new(&holder).expect("a holder");
    for number in 0..50 {
        let name = format!("{number:\u{1}<512}");
        let name = Name::new(&name).expect("a name");
        let (lease, ttl, wait) = ((name, holder).into(), Duration::from_secs(60), Duration::ZERO);
        let answer = block_on(remote.ask(Request::Acquire { lease, ttl, wait }));
        assert!(matches!(answer, Answer::Granted { .. }), "{answer:?}");
    }
    let (mut cursor, mut listed) = (String::new(), BTreeSet::new());
    loop {
        let page = member.get(&format!("/v1/leases?limit=1000{cursor}"));
        assert!(page.text.len() <= 64 * 1024, "{} bytes", page.text.len());
        let page = page.json();
        for lease in page["leases"].as_array().expect("some leases") {
            assert!(listed.insert(lease["name"].to_string()), "listed twice");
        }
        let Some(next) = page["cursor"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    assert_eq!(listed.len(), 50);
}

#[test]
fn a_listed_lease_says_who_holds_it_and_for_how_long() {
    let cell = cell::one_with(|config| config, Default::default());
    let fence = cell.members[0].take("x");
    let page = cell.members[0].get("/v1/leases").json();
    let lease = &page["leases"][0];
    assert_eq!((&lease["holder"], &lease["fence"]), (&"taker".into(), &fence.into()));
    assert!((1..=60_000).contains(&lease["ttl_ms"].as_u64().expect("a number")));
}

#[test]
fn parameters_that_make_no_sense_are_refused() {
    let cell = cell::one_with(|config| config, Default::default());
    for (query, expected) in [
        ("limit=0", "\"limit\" is 0; expected a number from 1 to 1000"),
        ("limit=1001", "\"limit\" is 1001; expected a number from 1 to 1000"),
        ("limit=many", "\"limit\" is \"many\"; expected a number from 1 to 1000"),
        ("cursor=x", "expected what the page before said under \"cursor\""),
        ("prefx=a", "unknown parameter \"prefx\"; the nearest known parameter is \"prefix\""),
    ] {
        let refused = cell.members[0].get(&format!("/v1/leases?{query}"));
        assert_eq!(refused.refusal(), (400, "bad_request".to_owned()), "{query}");
        assert!(refused.field("message").contains(expected), "{refused:?}");
    }
    // A cursor of a node with more shards leads nowhere.
    let far = cell.members[0].get("/v1/leases?cursor=42949672960").json();
    assert_eq!(far, serde_json::json!({"leases": [], "cursor": null}));
}
