//! Each command does what it says, in both versions of the protocol.

use crate::support::{Cell, Client, PROTOCOLS, Reply};

#[test]
fn a_lease_is_acquired_renewed_read_and_released_through_any_node() {
    let cell = Cell::start();
    let (mut first, mut second) = (cell.client(0), cell.client(1));
    let granted = first.ask(&["lease.acquire", "jobs/nightly", "30000", "holder", "me"]);
    let fence = granted.fence();
    assert!(fence > 0);
    assert_eq!(granted.items()[1].integer(), 30_000);
    assert_eq!(granted.items().len(), 3);

    assert_eq!(second.ask(&["LEASE.ACQUIRE", "jobs/nightly", "30000"]), Reply::Null);
    let seen = second.ask(&["LEASE.GET", "jobs/nightly"]);
    assert_eq!(seen.field("holder"), &Reply::bulk("me"));
    assert_eq!(seen.field("fence").integer(), fence);
    assert!((1..=30_000).contains(&seen.field("ttl_ms").integer()));

    let fence = fence.to_string();
    let renewed = second.ask(&["LEASE.RENEW", "jobs/nightly", &fence, "45000"]);
    assert_eq!(renewed, Reply::Integer(45_000));
    assert_eq!(second.ask(&["LEASE.RELEASE", "jobs/nightly", &fence]), Reply::Integer(1));
    assert_eq!(second.ask(&["LEASE.RELEASE", "jobs/nightly", &fence]), Reply::Integer(0));
    assert_eq!(first.ask(&["LEASE.GET", "jobs/nightly"]), Reply::Null);
    let over = first.ask(&["LEASE.RENEW", "jobs/nightly", &fence, "45000"]);
    assert!(over.error().starts_with("NOTHELD "), "{over:?}");
    assert!(first.acquire("jobs/nightly", 30_000).to_string() > fence);
}

#[test]
fn who_says_nothing_else_holds_under_its_address_or_its_name() {
    let cell = Cell::start();
    let mut client = cell.client(0);
    client.acquire("a", 30_000);
    let seen = client.ask(&["LEASE.GET", "a"]);
    assert_eq!(seen.field("holder"), &Reply::bulk(&client.local_address()));
    assert_eq!(client.ask(&["CLIENT", "SETNAME", "worker-7"]), Reply::ok());
    client.acquire("b", 30_000);
    assert_eq!(client.ask(&["LEASE.GET", "b"]).field("holder"), &Reply::bulk("worker-7"));
    client.ask(&["LEASE.ACQUIRE", "c", "30000", "HOLDER", ""]);
    assert_eq!(client.ask(&["LEASE.GET", "c"]).field("holder"), &Reply::bulk(""));
}

#[test]
fn leases_are_listed_a_page_at_a_time() {
    let cell = Cell::start();
    for protocol in PROTOCOLS {
        let mut client = cell.client(2);
        client.ask(&["HELLO", &protocol.number().to_string()]);
        let prefix = format!("pages-{}/", protocol.number());
        let mut expected: Vec<String> = (0..25).map(|n| format!("{prefix}{n:02}")).collect();
        for name in &expected {
            client.ask(&["LEASE.ACQUIRE", name, "60000", "HOLDER", "me"]);
        }
        client.acquire("elsewhere", 60_000);
        let mut found = Vec::new();
        let mut cursor = "0".to_owned();
        loop {
            let pattern = format!("{prefix}*");
            let page = client.ask(&["LEASE.LIST", &cursor, "match", &pattern, "count", "10"]);
            let Reply::Bulk(next) = &page.items()[0] else { panic!("{page:?}") };
            let leases = page.items()[1].items();
            assert!(leases.len() <= 10);
            for lease in leases {
                let name = match lease {
                    Reply::Map(_) => {
                        assert_eq!(lease.field("holder"), &Reply::bulk("me"));
                        assert!(lease.field("ttl_ms").integer() > 0);
                        lease.field("name")
                    }
                    other => &other.items()[0],
                };
                let Reply::Bulk(name) = name else { panic!("{lease:?}") };
                found.push(name.clone());
            }
            cursor.clone_from(next);
            if cursor == "0" {
                break;
            }
        }
        found.sort();
        expected.sort();
        assert_eq!(found, expected);
        client.ask(&["RESET"]);
        let elsewhere = client.ask(&["LEASE.GET", "elsewhere"]);
        let fence = elsewhere.field("fence").integer().to_string();
        assert_eq!(client.ask(&["LEASE.RELEASE", "elsewhere", &fence]), Reply::Integer(1));
    }
}

#[test]
fn hello_tells_a_client_what_its_deadlines_need() {
    let cell = Cell::start();
    let mut client = cell.client(1);
    let two = client.ask(&["HELLO"]);
    assert_eq!(two.field("proto").integer(), 2);
    let three = client.ask(&["HELLO", "3", "SETNAME", "me"]);
    assert!(matches!(three, Reply::Map(_)));
    assert_eq!(three.field("proto").integer(), 3);
    assert_eq!(three.field("server"), &Reply::bulk("paxoslease"));
    assert_eq!(three.field("mode"), &Reply::bulk("cell"));
    assert_eq!(three.field("role"), &Reply::bulk("member"));
    assert_eq!(three.field("cell"), &Reply::bulk("test"));
    assert_eq!(three.field("node").integer(), 2);
    assert_eq!(three.field("max_lease_ms").integer(), 60_000);
    assert_eq!(three.field("clock_drift_ppm").integer(), 1000);
    assert_eq!(three.field("clock_granularity_us").integer(), 1000);
    assert_eq!(three.field("modules"), &Reply::Array(vec![]));
    assert_eq!(three.field("id"), &client.ask(&["CLIENT", "ID"]));
    assert_eq!(client.ask(&["CLIENT", "GETNAME"]), Reply::bulk("me"));
    assert!(client.ask(&["HELLO", "4"]).error().starts_with("NOPROTO "));
    assert_eq!(client.ask(&["RESET"]), Reply::Simple("RESET".to_owned()));
    assert_eq!(client.ask(&["CLIENT", "GETNAME"]), Reply::Null);
    assert!(matches!(client.ask(&["HELLO"]), Reply::Array(_)), "RESET goes back to RESP2");
}

#[test]
fn a_version_chosen_in_a_pipeline_holds_from_that_command_on() {
    let cell = Cell::start();
    let mut client = cell.client(0);
    client.acquire("a", 30_000);
    for command in [&["LEASE.GET", "a"][..], &["HELLO", "3"], &["LEASE.GET", "a"]] {
        client.send(command);
    }
    assert!(matches!(client.expect(), Reply::Array(_)));
    assert!(matches!(client.expect(), Reply::Map(_)));
    assert!(matches!(client.expect(), Reply::Map(_)));
}

#[test]
fn the_status_says_what_the_node_says() {
    let cell = Cell::start();
    let mut client = cell.client3(0);
    let status = client.ask(&["CELL.STATUS"]);
    assert_eq!(status.field("cell"), &Reply::bulk("test"));
    assert_eq!(status.field("node").integer(), 1);
    assert_eq!(status.field("ready"), &Reply::Boolean(true));
    assert_eq!(status.field("members").items().len(), 3);
    assert_eq!(status.field("connections").integer(), 1);
    assert_eq!(status.field("disk_problem"), &Reply::Null);
    let peers = status.field("peers").items();
    assert_eq!(peers.len(), 2);
    assert!(matches!(peers[0].field("up"), Reply::Boolean(_)));
}

#[test]
fn what_libraries_ask_of_a_server_is_answered() {
    let cell = Cell::start();
    let mut client = cell.client(0);
    assert_eq!(client.ask(&["ping"]), Reply::Simple("PONG".to_owned()));
    assert_eq!(client.ask(&["PING", "hello"]), Reply::bulk("hello"));
    assert_eq!(client.ask(&["ECHO", "a\r\nb"]), Reply::bulk("a\r\nb"));
    assert_eq!(client.ask(&["SELECT", "0"]), Reply::ok());
    assert!(client.ask(&["SELECT", "1"]).error().starts_with("ERR DB index is out of range"));
    assert_eq!(client.ask(&["CLIENT", "SETINFO", "LIB-NAME", "x"]), Reply::ok());
    let count = client.ask(&["COMMAND", "COUNT"]).integer() as usize;
    assert_eq!(client.ask(&["COMMAND"]).items().len(), count);
    assert_eq!(client.ask(&["COMMAND", "LIST"]).items().len(), count);
    assert_eq!(client.ask(&["COMMAND", "DOCS"]).items().len(), count * 2);
    let docs = client.ask(&["COMMAND", "DOCS", "lease.renew", "nothing"]);
    assert_eq!(docs.field("lease.renew").field("arguments").items().len(), 3);
    assert_eq!(docs.items().len(), 2);
    let info = client.ask(&["COMMAND", "INFO", "LEASE.GET", "nothing"]);
    assert_eq!(info.items()[0].items()[1], Reply::Integer(2));
    assert_eq!(info.items()[1], Reply::Null);
    let Reply::Bulk(info) = client.ask(&["INFO"]) else { panic!("no text") };
    assert!(info.contains("\r\nnode:1\r\n") && info.contains("\r\nconnected_clients:1\r\n"));
    assert!(client.ask(&["AUTH", "secret"]).error().contains("no token"));
    client.send(&["QUIT"]);
    client.send(&["PING"]);
    assert_eq!(client.expect(), Reply::ok());
    assert!(client.is_closed());
}

/// What INFO says of how long the node has run.
fn uptime(client: &mut Client) -> u64 {
    let Reply::Bulk(info) = client.ask(&["INFO"]) else { panic!("no text") };
    let line = info.lines().find_map(|line| line.strip_prefix("uptime_in_seconds:"));
    line.expect("a line").parse().expect("a number")
}

#[test]
fn a_node_runs_from_its_start_on_and_not_from_the_first_client_of_a_thread() {
    let cell = Cell::start();
    let mut first = cell.client(0);
    while uptime(&mut first) == 0 {}
    // The other thread gets every other client, and had none so far.
    let mut others = [cell.client(0), cell.client(0)];
    assert!(others.iter_mut().all(|client| uptime(client) > 0));
}

#[test]
fn people_may_type() {
    let cell = Cell::start();
    let mut client = cell.client(0);
    client.send_bytes(b"\r\nping\n  lease.acquire  typed 5000\r\n");
    assert_eq!(client.expect(), Reply::Simple("PONG".to_owned()));
    assert_eq!(client.expect().items().len(), 3);
}

#[test]
fn commands_are_counted() {
    let cell = Cell::start();
    let mut client = cell.client(0);
    for _ in 0..3 {
        client.ask(&["PING"]);
    }
    client.ask(&["NOTHING"]);
    let series = "paxoslease_commands_total{command=\"ping\"}";
    cell.wait_for_metric(0, series, 3.0);
    cell.wait_for_metric(0, "paxoslease_commands_total{command=\"unknown\"}", 1.0);
    cell.wait_for_metric(0, "paxoslease_connections", 1.0);
}
