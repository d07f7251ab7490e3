//! Lists of leases, a page at a time: what one page costs a shard has a bound.

use std::collections::BTreeSet;

use crate::harness::{Cell, Client, fence};

const LEASES: usize = 100_000;
const COUNT: usize = 1000;
/// Slots a shard looks at for a page of [`COUNT`], whether their names match or not.
const LOOKED_AT: usize = 16 * COUNT;

/// The pages of a list, each as a text.
pub(crate) fn pages(client: &mut Client, options: &str) -> Vec<String> {
    let (mut cursor, mut pages) = ("0".to_owned(), Vec::new());
    loop {
        let page = client.ask(&format!("LEASE.LIST {cursor}{options}"));
        let found = page.strip_prefix('[').and_then(|page| page.split_once(' '));
        let (next, leases) = found.unwrap_or_else(|| panic!("{page} is not a page"));
        pages.push(leases.to_owned());
        if next == "0" {
            return pages;
        }
        next.clone_into(&mut cursor);
    }
}

#[test]
fn a_hundred_thousand_leases_are_listed_and_no_client_stalls() {
    let cell = Cell::three();
    let (mut client, mut other) = (cell[0].client(), cell[0].client());
    for start in (0..LEASES).step_by(1000) {
        let names = (start..start + 1000).map(|n| format!("LEASE.ACQUIRE many/{n} 60000\r\n"));
        client.send_bytes(names.collect::<String>().as_bytes());
        (0..1000).for_each(|_| assert!(fence(&client.next()) > 0));
    }
    let mut found = BTreeSet::new();
    for page in pages(&mut client, &format!(" MATCH many/* COUNT {COUNT}")) {
        let before = found.len();
        for name in page.split([' ', '[', ']', ':']).filter(|word| word.starts_with("many/")) {
            assert!(found.insert(name.to_owned()), "{name} is listed twice");
        }
        assert!(found.len() - before <= COUNT);
        assert_eq!(other.ask("PING"), "+PONG");
    }
    assert_eq!(found.len(), LEASES);
    // No name matches, so only the bound ends a page.
    let pages = pages(&mut client, &format!(" MATCH none/* COUNT {COUNT}"));
    assert!(pages.iter().all(|page| page == "[]]"));
    assert!(pages.len() >= LEASES / LOOKED_AT, "{} pages for {LEASES} leases", pages.len());
}
