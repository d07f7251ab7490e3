//! The `redis` crate: typed replies, pipelines, errors, and pushes of the second version.

use std::collections::BTreeMap;
use std::sync::mpsc;

use redis::{Client, Connection, PushInfo, Value, cmd, pipe};

use crate::harness::{Cell, until};

fn connect(cell: &Cell, node: usize, options: &str) -> Connection {
    let url = format!("redis://{}/{options}", cell[node].resp());
    Client::open(url).expect("a url").get_connection().expect("connects")
}

fn acquire(connection: &mut Connection, name: &str) -> Option<(i64, i64, i64)> {
    cmd("LEASE.ACQUIRE").arg(name).arg(60_000).query(connection).expect("answers")
}

#[test]
fn the_redis_crate_takes_leases() {
    let cell = Cell::three();
    for options in ["", "?protocol=resp3"] {
        let (mut first, mut second) = (connect(&cell, 0, options), connect(&cell, 1, options));
        let (fence, ttl_ms, _waited) = acquire(&mut first, "a").expect("free");
        assert_eq!(ttl_ms, 60_000);
        assert_eq!(acquire(&mut second, "a"), None);
        let seen: BTreeMap<String, Value> =
            cmd("LEASE.GET").arg("a").query(&mut second).expect("answers");
        assert_eq!(seen["fence"], Value::Int(fence));
        let renewed: i64 =
            cmd("LEASE.RENEW").arg("a").arg(fence).arg(45_000).query(&mut second).expect("held");
        assert_eq!(renewed, 45_000);
        let released: bool =
            cmd("LEASE.RELEASE").arg("a").arg(fence).query(&mut second).expect("answers");
        assert!(released);
        let over = cmd("LEASE.RENEW").arg("a").arg(fence).arg(45_000).query::<i64>(&mut first);
        assert_eq!(over.expect_err("over").code(), Some("NOTHELD"));
    }
}

#[test]
fn the_redis_crate_pipelines() {
    let cell = Cell::three();
    let mut connection = connect(&cell, 2, "");
    let mut pipeline = pipe();
    for n in 0..200 {
        pipeline.cmd("LEASE.ACQUIRE").arg(format!("n/{n}")).arg(60_000).ignore();
        pipeline.cmd("ECHO").arg(n);
    }
    let echoes: Vec<i64> = pipeline.query(&mut connection).expect("answers");
    assert_eq!(echoes, (0..200).collect::<Vec<_>>());
}

#[test]
fn the_redis_crate_hears_pushes() {
    let cell = Cell::three();
    let (mut holder, mut waiter) = (connect(&cell, 0, ""), connect(&cell, 1, "?protocol=resp3"));
    let (pushes, heard) = mpsc::channel::<PushInfo>();
    waiter.set_push_sender(pushes);
    let (fence, ..) = acquire(&mut holder, "a").expect("free");
    let queued: String = cmd("LEASE.ACQUIRE")
        .arg(&["a", "60000", "WAIT", "60000", "NOTIFY", "mine"])
        .query(&mut waiter)
        .expect("answers");
    assert_eq!(queued, "QUEUED");
    cell[1].wait_for_waiters("a", 1);
    let _released: i64 = cmd("LEASE.RELEASE").arg("a").arg(fence).query(&mut holder).expect("held");
    // This kind of connection reads when it is used.
    let mut push = None;
    until("the push is there", || {
        let _pong: String = cmd("PING").query(&mut waiter).expect("answers");
        push = heard.try_recv().ok();
        push.is_some()
    });
    let push = push.expect("it is there");
    assert_eq!(push.kind, redis::PushKind::Other("lease.granted".to_owned()));
    assert_eq!(push.data[0], Value::BulkString(b"mine".to_vec()));
    assert!(matches!(push.data[1], Value::Int(later) if later > fence));
}
