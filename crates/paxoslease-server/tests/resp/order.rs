//! Replies come in the order of their commands, while all of these are worked on at once.

use crate::support::{Cell, Reply};

#[test]
fn a_pipeline_is_answered_in_order() {
    let cell = Cell::start();
    let mut client = cell.client(0);
    let count = 2000;
    for n in 0..count {
        let (name, holder) = (format!("order/{n}"), format!("holder-{n}"));
        client.send(&["LEASE.ACQUIRE", &name, "60000", "HOLDER", &holder]);
        client.send(&["ECHO", &n.to_string()]);
        client.send(&["LEASE.GET", &format!("order/{}", n / 2)]);
    }
    for n in 0..count {
        assert!(client.expect().fence() > 0);
        assert_eq!(client.expect(), Reply::bulk(&n.to_string()));
        // One that overtook the acquire of its name sees nothing yet.
        let seen = client.expect();
        if seen != Reply::Null {
            assert_eq!(seen.field("holder"), &Reply::bulk(&format!("holder-{}", n / 2)));
        }
    }
}

#[test]
fn what_stands_behind_a_waiting_acquire_happens_but_is_told_later() {
    let cell = Cell::start();
    let (mut holder, mut client) = (cell.client(0), cell.client(1));
    let fence = holder.acquire("taken", 60_000).to_string();
    client.send(&["LEASE.ACQUIRE", "taken", "60000", "WAIT", "60000"]);
    client.send(&["LEASE.ACQUIRE", "behind", "60000", "HOLDER", "client"]);
    client.send(&["PING"]);
    cell.wait_for_waiters(1, "taken", 1);
    // Its effect is there while the waiter waits.
    while holder.ask(&["LEASE.GET", "behind"]) == Reply::Null {}
    assert_eq!(holder.ask(&["LEASE.RELEASE", "taken", &fence]), Reply::Integer(1));
    assert_eq!(client.expect().items().len(), 3);
    assert_eq!(client.expect().items().len(), 3);
    assert_eq!(client.expect(), Reply::Simple("PONG".to_owned()));
}

#[test]
fn many_pages_of_lists_in_a_pipeline_are_answered_one_by_one() {
    let cell = Cell::start();
    let mut client = cell.client(0);
    for n in 0..300 {
        client.send(&["LEASE.ACQUIRE", &format!("n/{n}"), "60000", "HOLDER", &"h".repeat(200)]);
    }
    for _ in 0..300 {
        client.expect();
    }
    // Unread, these would be many times what a client may leave unread.
    for _ in 0..100 {
        client.send(&["LEASE.LIST", "0", "COUNT", "1000"]);
    }
    client.send(&["PING"]);
    for _ in 0..100 {
        assert_eq!(client.expect().items().len(), 2);
    }
    assert_eq!(client.expect(), Reply::Simple("PONG".to_owned()));
}
