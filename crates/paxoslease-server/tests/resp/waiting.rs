//! Waiting for a lease: in order of the replies, or beside them by NOTIFY.

use crate::support::{Cell, Reply};

#[test]
fn a_waiter_gets_the_lease_when_it_is_released_and_hears_how_long_it_waited() {
    let cell = Cell::start();
    let (mut holder, mut waiter) = (cell.client(0), cell.client(2));
    let fence = holder.acquire("a", 60_000);
    waiter.send(&["LEASE.ACQUIRE", "a", "60000", "WAIT", "60000"]);
    cell.wait_for_waiters(2, "a", 1);
    holder.ask(&["LEASE.RELEASE", "a", &fence.to_string()]);
    let granted = waiter.expect();
    assert!(granted.fence() > fence);
    assert!(granted.items()[2].integer() >= 0);
}

#[test]
fn a_wait_that_ran_out_is_nil() {
    let cell = Cell::start();
    let (mut holder, mut waiter) = (cell.client(0), cell.client(1));
    holder.acquire("a", 60_000);
    assert_eq!(waiter.ask(&["LEASE.ACQUIRE", "a", "60000", "WAIT", "20"]), Reply::Null);
}

#[test]
fn one_connection_waits_for_many_names_by_notify() {
    let cell = Cell::start();
    let (mut holder, mut waiter) = (cell.client(0), cell.client3(1));
    let names = ["a", "b", "c"];
    let fences = names.map(|name| holder.acquire(name, 60_000).to_string());
    let granted = waiter.ask(&["LEASE.ACQUIRE", "free", "60000", "WAIT", "60000", "NOTIFY", "f"]);
    assert_eq!(granted.items().len(), 3, "who need not wait is answered at once");
    for name in names {
        let id = format!("id-{name}");
        let reply = waiter.ask(&["LEASE.ACQUIRE", name, "60000", "WAIT", "60000", "NOTIFY", &id]);
        assert_eq!(reply, Reply::Simple("QUEUED".to_owned()));
        cell.wait_for_waiters(1, name, 1);
    }
    assert_eq!(waiter.ask(&["PING"]), Reply::Simple("PONG".to_owned()), "nobody is held up");
    for (name, fence) in names.iter().zip(&fences).rev() {
        holder.ask(&["LEASE.RELEASE", name, fence]);
        let push = waiter.expect_push();
        assert_eq!(push[..2], [Reply::bulk("lease.granted"), Reply::bulk(&format!("id-{name}"))]);
        assert!(push[2].integer().to_string() > *fence);
        assert_eq!(push[3].integer(), 60_000);
        assert_eq!(push.len(), 5);
    }
}

#[test]
fn an_acquire_by_notify_is_counted_once() {
    let cell = Cell::start();
    let (mut holder, mut waiter) = (cell.client(0), cell.client3(1));
    let count =
        |result| cell.metric(1, &format!("paxoslease_acquires_total{{result=\"{result}\"}}"));
    let fence = holder.acquire("a", 60_000).to_string();
    waiter.ask(&["LEASE.ACQUIRE", "a", "60000", "WAIT", "20", "NOTIFY", "1"]);
    assert_eq!(waiter.expect_push()[0], Reply::bulk("lease.timeout"));
    waiter.ask(&["LEASE.ACQUIRE", "a", "60000", "WAIT", "60000", "NOTIFY", "2"]);
    cell.wait_for_waiters(1, "a", 1);
    holder.ask(&["LEASE.RELEASE", "a", &fence]);
    assert_eq!(waiter.expect_push()[0], Reply::bulk("lease.granted"));
    waiter.ask(&["LEASE.ACQUIRE", "a", "60000", "WAIT", "0", "NOTIFY", "3"]);
    // Counted in this order, so that the last tells that all are there.
    while count("held") < 2.0 {
        std::thread::yield_now();
    }
    assert_eq!(
        ["granted", "held", "no_quorum", "refused", "abandoned"].map(count),
        [1.0, 2.0, 0.0, 0.0, 0.0]
    );
}

#[test]
fn a_notify_that_ran_out_says_so() {
    let cell = Cell::start();
    let (mut holder, mut waiter) = (cell.client(0), cell.client3(1));
    holder.acquire("a", 60_000);
    let queued = waiter.ask(&["LEASE.ACQUIRE", "a", "60000", "WAIT", "50", "NOTIFY", "7"]);
    assert_eq!(queued, Reply::Simple("QUEUED".to_owned()));
    assert_eq!(waiter.expect_push(), [Reply::bulk("lease.timeout"), Reply::bulk("7")]);
}

#[test]
fn reset_gives_up_what_waits_for_a_push() {
    let cell = Cell::start();
    let (mut holder, mut waiter) = (cell.client(0), cell.client3(1));
    let fence = holder.acquire("a", 60_000).to_string();
    waiter.ask(&["LEASE.ACQUIRE", "a", "60000", "WAIT", "60000", "NOTIFY", "1"]);
    assert!(waiter.ask(&["HELLO", "2"]).error().starts_with("ERR acquires with NOTIFY wait"));
    assert_eq!(waiter.ask(&["RESET"]), Reply::Simple("RESET".to_owned()));
    holder.ask(&["LEASE.RELEASE", "a", &fence]);
    holder.acquire("a", 60_000);
    assert_eq!(waiter.ask(&["PING"]), Reply::Simple("PONG".to_owned()), "and hears nothing of it");
}

#[test]
fn nothing_follows_the_last_reply() {
    let cell = Cell::start();
    let (mut holder, mut other) = (cell.client(0), cell.client3(1));
    other.ask(&["LEASE.WATCH", "c*"]);
    for (round, last) in ["QUIT\r\n", "*x\r\n", "POST /\r\n"].into_iter().enumerate() {
        let fence = holder.acquire("a", 60_000).to_string();
        let blocks = holder.acquire("b", 60_000).to_string();
        let mut waiter = cell.client3(1);
        waiter.ask(&["LEASE.WATCH", "c*"]);
        waiter.ask(&["LEASE.ACQUIRE", "a", "60000", "WAIT", "60000", "NOTIFY", "1"]);
        cell.wait_for_waiters(1, "a", 1);
        // Its last reply is kept behind one that waits.
        waiter.send_bytes(format!("LEASE.ACQUIRE b 60000 WAIT 60000\r\n{last}").as_bytes());
        cell.wait_for_waiters(1, "b", 1);
        let abandoned = "paxoslease_acquires_total{result=\"abandoned\"}";
        cell.wait_for_metric(1, abandoned, (round + 1) as f64);
        holder.ask(&["LEASE.RELEASE", "a", &fence]);
        let again = holder.acquire("a", 60_000).to_string();
        holder.acquire(&format!("c/{round}"), 60_000);
        assert_eq!(other.expect_push()[0], Reply::bulk("lease.held"));
        holder.ask(&["LEASE.RELEASE", "b", &blocks]);
        let granted = waiter.expect().fence().to_string();
        match waiter.expect() {
            Reply::Simple(text) => assert_eq!(text, "OK"),
            reply => assert!(reply.error().starts_with("ERR "), "{reply:?}"),
        }
        assert!(waiter.is_closed());
        holder.ask(&["LEASE.RELEASE", "a", &again]);
        holder.ask(&["LEASE.RELEASE", "b", &granted]);
    }
}

#[test]
fn cancel_takes_back_what_waits_for_a_push() {
    let cell = Cell::start();
    let (mut holder, mut waiter) = (cell.client(0), cell.client3(1));
    let fence = holder.acquire("a", 60_000).to_string();
    waiter.ask(&["LEASE.ACQUIRE", "a", "60000", "WAIT", "60000", "NOTIFY", "7"]);
    let in_use = waiter.ask(&["LEASE.ACQUIRE", "b", "60000", "WAIT", "60000", "NOTIFY", "7"]);
    assert!(in_use.error().starts_with("ERR an acquire with that id"), "{in_use:?}");
    assert_eq!(waiter.ask(&["LEASE.CANCEL", "8"]), Reply::Integer(0), "no such id");
    let mut other = cell.client3(1);
    assert_eq!(other.ask(&["LEASE.CANCEL", "7"]), Reply::Integer(0), "another connection's");
    assert_eq!(waiter.ask(&["LEASE.CANCEL", "7"]), Reply::Integer(1));
    assert_eq!(waiter.ask(&["LEASE.CANCEL", "7"]), Reply::Integer(0), "not any more");
    holder.ask(&["LEASE.RELEASE", "a", &fence]);
    holder.acquire("a", 60_000);
    assert_eq!(waiter.ask(&["PING"]), Reply::Simple("PONG".to_owned()), "and hears nothing of it");
    let again = waiter.ask(&["LEASE.ACQUIRE", "a", "60000", "WAIT", "60000", "NOTIFY", "7"]);
    assert_eq!(again, Reply::Simple("QUEUED".to_owned()), "the id is free again");
    assert_eq!(waiter.ask(&["LEASE.CANCEL", "7"]), Reply::Integer(1));
}

#[test]
fn a_grant_that_crosses_its_cancel_is_told_before_or_never() {
    let cell = Cell::start();
    let (mut holder, mut waiter, mut other) = (cell.client(0), cell.client3(1), cell.client(1));
    for round in 0..100 {
        let id = round.to_string();
        // Waits in vain, for longer than this test, if the last round left the lease behind.
        let mine = holder.ask(&["LEASE.ACQUIRE", "a", "60000", "WAIT", "60000"]).fence();
        waiter.ask(&["LEASE.ACQUIRE", "a", "60000", "WAIT", "60000", "NOTIFY", &id]);
        cell.wait_for_waiters(1, "a", 1);
        holder.send(&["LEASE.RELEASE", "a", &mine.to_string()]);
        // Sooner and later, so that both may win.
        (0..round % 8).for_each(|_| drop(other.ask(&["PING"])));
        waiter.send(&["LEASE.CANCEL", &id]);
        match waiter.expect() {
            Reply::Push(push) => {
                assert_eq!(push[..2], [Reply::bulk("lease.granted"), Reply::bulk(&id)]);
                assert_eq!(waiter.expect(), Reply::Integer(0));
                let theirs = push[2].integer().to_string();
                assert_eq!(waiter.ask(&["LEASE.RELEASE", "a", &theirs]), Reply::Integer(1));
            }
            reply => assert_eq!(reply, Reply::Integer(1)),
        }
        assert_eq!(holder.expect(), Reply::Integer(1));
    }
}

#[test]
fn what_is_cancelled_or_reset_while_it_is_tried_does_not_begin_to_wait() {
    let cell = Cell::start();
    let (mut holder, mut waiter) = (cell.client(0), cell.client3(1));
    holder.acquire("a", 60_000);
    let acquire = "LEASE.ACQUIRE a 60000 WAIT 60000 NOTIFY 7\r\n";
    waiter.send_bytes(format!("{acquire}LEASE.CANCEL 7\r\n").as_bytes());
    assert_eq!(waiter.expect(), Reply::Null);
    assert_eq!(waiter.expect(), Reply::Integer(0), "the reply before says it all");
    waiter.send_bytes(format!("{acquire}RESET\r\nHELLO 3\r\n").as_bytes());
    assert_eq!(waiter.expect(), Reply::Null);
    assert_eq!(waiter.expect(), Reply::Simple("RESET".to_owned()));
    assert!(matches!(waiter.expect(), Reply::Map(_)));
    assert_eq!(waiter.ask(&["LEASE.CANCEL", "7"]), Reply::Integer(0));
}

#[test]
fn waiters_of_one_node_are_served_in_order() {
    let cell = Cell::start();
    let mut holder = cell.client(0);
    let mut fence = holder.acquire("a", 60_000).to_string();
    let mut waiters: Vec<_> = (0..10).map(|_| cell.client(0)).collect();
    for (waiter, n) in waiters.iter_mut().zip(1..) {
        waiter.send(&["LEASE.ACQUIRE", "a", "60000", "WAIT", "60000"]);
        cell.wait_for_waiters(0, "a", n);
    }
    for waiter in &mut waiters {
        holder.ask(&["LEASE.RELEASE", "a", &fence]);
        fence = waiter.expect().fence().to_string();
    }
}
