//! Lists of many leases, a page at a time: what one page costs a shard has a bound.

use std::collections::BTreeSet;

use crate::support::{Cell, Client, Reply};

const LEASES: usize = 100_000;
const COUNT: usize = 1000;
/// Slots a shard looks at for a page of [`COUNT`], whether their names fit or not.
const LOOKED_AT: usize = 16 * COUNT;

/// Takes that many leases, a thousand at a time.
fn fill(client: &mut Client) {
    for start in (0..LEASES).step_by(1000) {
        let names = (start..start + 1000).map(|n| format!("LEASE.ACQUIRE many/{n} 60000\r\n"));
        client.send_bytes(names.collect::<String>().as_bytes());
        for _ in 0..1000 {
            client.expect().fence();
        }
    }
}

/// A page, and where the next one begins; `None` at the end.
fn page(client: &mut Client, cursor: &str, pattern: &str) -> (Vec<Reply>, Option<String>) {
    let count = COUNT.to_string();
    let reply = client.ask(&["LEASE.LIST", cursor, "MATCH", pattern, "COUNT", &count]);
    let [Reply::Bulk(next), Reply::Array(leases)] = reply.items() else { panic!("{reply:?}") };
    (leases.clone(), (next != "0").then(|| next.clone()))
}

#[test]
fn a_hundred_thousand_leases_are_listed_in_pages_that_stall_nobody() {
    let cell = Cell::start();
    let (mut client, mut other) = (cell.client(0), cell.client(0));
    fill(&mut client);
    let (mut names, mut cursor) = (BTreeSet::new(), Some("0".to_owned()));
    while let Some(at) = cursor {
        let (leases, next) = page(&mut client, &at, "many/*");
        assert!(leases.len() <= COUNT);
        for lease in leases {
            let Reply::Bulk(name) = &lease.items()[0] else { panic!("{lease:?}") };
            assert!(names.insert(name.clone()), "{name} is listed twice");
        }
        assert_eq!(other.ask(&["PING"]), Reply::Simple("PONG".to_owned()));
        cursor = next;
    }
    assert_eq!(names.len(), LEASES);
    // Nothing fits, so that only the bound ends a page.
    let (mut pages, mut cursor) = (0, Some("0".to_owned()));
    while let Some(at) = cursor {
        let (leases, next) = page(&mut client, &at, "none/*");
        assert_eq!(leases, []);
        (pages, cursor) = (pages + 1, next);
    }
    assert!(pages >= LEASES / LOOKED_AT, "{pages} pages for {LEASES} leases");
}
