//! Lists come page by page, and no lease that stays is left out.

use std::collections::BTreeSet;

use paxoslease_node::front::Holder;

use super::watching::Texts;
use crate::harness::{Cell, Daemon, Reply};

fn pages(daemon: &Daemon, query: &str) -> Vec<Reply> {
    let (mut pages, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = daemon.get(&format!("/v1/leases?{query}{cursor}"));
        assert_eq!(page.status, 200, "{page:?}");
        let next = page.json()["cursor"].as_str().map(|next| format!("&cursor={next}"));
        pages.push(page);
        match next {
            None => return pages,
            Some(next) => cursor = next,
        }
    }
}

fn names(page: &Reply) -> Vec<String> {
    let page = page.json();
    let leases = page["leases"].as_array().expect("leases").iter();
    leases.map(|lease| lease["name"].as_str().expect("a name").to_owned()).collect()
}

#[test]
fn pages_list_every_lease_once_and_keep_to_their_limit() {
    let cell = Cell::one();
    let expected: BTreeSet<String> =
        (0..120).map(|number| format!("jobs/{number}")).chain(["other".to_owned()]).collect();
    expected.iter().for_each(|name| drop(cell[0].take(name)));
    let listed =
        |query: &str| -> Vec<Vec<String>> { pages(&cell[0], query).iter().map(names).collect() };
    let by_seven = listed("limit=7");
    assert!(by_seven.iter().all(|page| page.len() <= 7));
    let found = by_seven.concat();
    assert_eq!(found.len(), expected.len());
    assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), expected);

    let by_default = listed("");
    assert!(by_default.iter().all(|page| page.len() <= 100) && by_default.len() >= 2);
    assert_eq!(listed("prefix=jobs%2F1&limit=1000").concat().len(), 31);
    assert_eq!(listed("prefix=other").concat(), ["other"]);
    assert_eq!(listed("prefix=unused").concat(), [""; 0]);
}

#[test]
fn a_page_is_bounded_by_bytes_and_nothing_is_left_out() {
    let cell = Cell::one();
    // JSON makes six bytes of each character.
    let holder = "\u{1}".repeat(Holder::LEN_MAX);
    for number in 0..50 {
        Texts { name: &format!("{number:\u{1}<512}"), holder: &holder }.acquire(&cell[0]);
    }
    let mut listed = BTreeSet::new();
    for page in pages(&cell[0], "limit=1000") {
        assert!(page.text.len() <= 64 * 1024, "{} bytes", page.text.len());
        for name in names(&page) {
            assert!(listed.insert(name), "listed twice");
        }
    }
    assert_eq!(listed.len(), 50);
}
