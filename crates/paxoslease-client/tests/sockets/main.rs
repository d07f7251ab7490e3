//! The client over real sockets, against scripted nodes: dead, late, lying, closing.

mod fake_node;
mod trust;

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fake_node::{Action, FakeNode};
use futures_core::Stream;
use paxoslease_client::{
    AcquireError, AskError, Change, Client, Election, Leader, LeaderChange, LeaseState,
    ReleaseError, block_on,
};

const TTL: Duration = Duration::from_secs(30);

/// No process listens on port 1.
const DEAD: &str = "127.0.0.1:1";
const DEAD_TOO: &str = "127.0.0.2:1";

/// A client with a long connect timeout, for a busy machine.
fn client(endpoints: &[&str]) -> Client {
    let patience = Duration::from_secs(10);
    let builder = Client::builder().endpoints(&endpoints.join(","));
    builder.connect_timeout(patience).build().expect("a client")
}

/// The next item, as the combinators of any executor ask for it.
fn polled<S: Stream + Unpin>(stream: &mut S) -> Option<S::Item> {
    block_on(poll_fn(|context| Pin::new(&mut *stream).poll_next(context)))
}

/// Grants, renews and releases whatever it is asked for.
fn willing(request: &[&str]) -> Action {
    match request[0] {
        "LEASE.ACQUIRE" => Action::reply(&format!("*3\r\n:1025\r\n:{}\r\n:0\r\n", request[2])),
        "LEASE.RENEW" => Action::reply(&format!(":{}\r\n", request[3])),
        "LEASE.RELEASE" => Action::reply(":1\r\n"),
        "PING" => Action::reply("+PONG\r\n"),
        _ => Action::reply("_\r\n"),
    }
}

/// Like [`willing`], and has nothing to tell to watches.
fn watched(request: &[&str]) -> Action {
    match request[0] {
        "LEASE.WATCH" => Action::reply("+OK\r\n"),
        _ => willing(request),
    }
}

fn connected(node: &FakeNode) -> Change {
    Change::Connected { endpoint: node.endpoint().to_owned() }
}

#[test]
fn a_dead_endpoint_costs_a_try_and_no_error() {
    let node = FakeNode::start("c", willing);
    let client = client(&[DEAD, DEAD_TOO, node.endpoint()]);
    let lease = client.try_acquire("x", TTL).holder("me").blocking().expect("granted");
    assert_eq!((lease.fence(), lease.state()), (1025, LeaseState::Held));
    assert_eq!(node.received(), "LEASE.ACQUIRE x 30000 HOLDER me");
    lease.release_blocking().expect("confirmed");
    assert_eq!(node.received(), "LEASE.RELEASE x 1025");
}

#[test]
fn an_endpoint_without_a_greeting_costs_a_try_and_no_error() {
    let mute = FakeNode::mute();
    let node = FakeNode::start("c", willing);
    let endpoints = format!("{},{}", mute.endpoint(), node.endpoint());
    let patience = Duration::from_secs(1);
    let builder = Client::builder().endpoints(&endpoints).connect_timeout(patience);
    let client = builder.build().expect("a client");
    assert_eq!(client.get_blocking("x"), Ok(None));
}

#[test]
fn an_unreachable_error_names_all_endpoints() {
    let client = client(&[DEAD, DEAD_TOO]);
    let error = client.acquire("x", TTL).blocking().expect_err("no node is there");
    let text = error.to_string();
    let AcquireError::Ask(AskError::Unreachable { endpoints, problem }) = error else {
        panic!("{error:?}")
    };
    assert_eq!(endpoints, [DEAD, DEAD_TOO]);
    assert!(problem.contains("refused"), "{problem}");
    assert!(text.contains(DEAD) && text.contains(DEAD_TOO), "{text}");
    let error = client.release_blocking("x", 1025).expect_err("no node is there");
    assert!(matches!(error, ReleaseError::Unconfirmed(AskError::Unreachable { .. })), "{error}");
}

#[test]
fn a_server_of_another_kind_is_told_from_a_dead_one() {
    let http = FakeNode::raw("HTTP/1.1 400 Bad Request\r\n\r\n");
    let redis = FakeNode::raw("%1\r\n$6\r\nserver\r\n$5\r\nredis\r\n");
    for (node, expected) in [(&http, "unknown type 'H'"), (&redis, "\"redis\"")] {
        let error = client(&[node.endpoint()]).get_blocking("x").expect_err("no node");
        let text = error.to_string();
        assert!(matches!(error, AskError::Protocol(_)), "{error:?}");
        assert!(text.contains(expected) && text.contains(node.endpoint()), "{text}");
    }
}

#[test]
fn nodes_of_two_cells_are_not_mixed() {
    let (ours, theirs) =
        (FakeNode::start("ours", |_| Action::Close), FakeNode::start("theirs", willing));
    let client = client(&[ours.endpoint(), theirs.endpoint()]);
    let error = client.status_of_blocking(ours.endpoint()).expect_err("it closes");
    assert!(matches!(error, AskError::Unreachable { .. }), "{error:?}");
    let error = client.status_of_blocking(theirs.endpoint()).expect_err("another cell");
    assert!(error.to_string().contains("it is of the cell \"theirs\""), "{error}");
}

#[test]
fn a_token_is_sent_first_and_never_shown() {
    let node = FakeNode::with_token("hush", &Arc::default(), willing);
    let builder = Client::builder().endpoints(node.endpoint());
    let allowed = builder.clone().token("hush").name("me").build().expect("a client");
    assert_eq!(allowed.get_blocking("x"), Ok(None));
    for denied in [builder.clone().token("guess"), builder] {
        let client = denied.build().expect("a client");
        let error = client.get_blocking("x").expect_err("denied");
        assert!(matches!(error, AskError::Unauthenticated(_)), "{error:?}");
        let shown = format!("{error} {error:?} {client:?}");
        assert!(!shown.contains("guess"), "{shown}");
    }
}

#[test]
fn a_lease_outlives_nodes_that_are_frozen() {
    let frozen = FakeNode::start("c", |request| match request[0] {
        "LEASE.ACQUIRE" => willing(request),
        _ => Action::Ignore,
    });
    let (mute, node) = (FakeNode::mute(), FakeNode::start("c", willing));
    let client = client(&[frozen.endpoint(), mute.endpoint(), node.endpoint()]);
    let lease = client.acquire("x", Duration::from_secs(6)).blocking().expect("granted");
    assert_eq!(node.received(), "LEASE.RENEW x 1025 6000");
    assert!(lease.is_held());
}

#[test]
fn dropping_the_last_handle_releases_leases_and_disconnects() {
    let node = FakeNode::start("c", willing);
    let client = client(&[node.endpoint()]);
    let leases = ["x", "y"].map(|name| client.acquire(name, TTL).blocking().expect("granted"));
    drop(client);
    drop(leases);
    let received: Vec<String> = node.received_until_closed();
    let given_back = received.iter().filter(|received| received.starts_with("LEASE.RELEASE"));
    assert_eq!(given_back.count(), 2, "{received:?}");
}

#[test]
fn a_shutdown_returns_after_the_releases() {
    let node = FakeNode::start("c", willing);
    let client = client(&[node.endpoint()]);
    let lease = client.acquire("x", TTL).holder("me").blocking().expect("granted");
    client.shutdown_blocking();
    assert!(!lease.is_held());
    assert_eq!(node.received(), "LEASE.ACQUIRE x 30000 HOLDER me WAIT 4294967295 NOTIFY 65537");
    assert_eq!(node.received(), "LEASE.RELEASE x 1025");
    assert_eq!(client.get_blocking("x"), Err(AskError::Stopped));
    let error = client.acquire("x", TTL).blocking().expect_err("stopped");
    assert_eq!(error, AcquireError::Ask(AskError::Stopped));
    client.shutdown_blocking();
}

#[test]
fn a_client_that_never_connected_stops_too() {
    client(&[DEAD]).shutdown_blocking();
}

#[test]
fn a_watch_continues_at_another_node_and_says_so() {
    let (first, second) = (FakeNode::start("c", watched), FakeNode::start("c", watched));
    let client = client(&[first.endpoint(), second.endpoint()]);
    let mut watch = client.watch("jobs/");
    assert_eq!(watch.next_blocking(), Some(connected(&first)));
    assert_eq!(first.received(), "LEASE.WATCH jobs/*");
    first.push(">5\r\n+lease.held\r\n+jobs/a\r\n+me\r\n:1025\r\n:900\r\n>1\r\n+unheard.of\r\n");
    let Some(Change::Held(seen)) = watch.next_blocking() else { panic!("held") };
    assert_eq!((seen.name.as_str(), seen.holder.as_str(), seen.fence), ("jobs/a", "me", 1025));
    first.stop();
    let changed = watch.next_blocking();
    assert!(matches!(changed, Some(Change::Disconnected { .. })), "{changed:?}");
    assert_eq!(polled(&mut watch), Some(connected(&second)));
    second.push(">2\r\n+lease.freed\r\n+jobs/a\r\n>3\r\n+lease.expired\r\n+jobs/b\r\n:1025\r\n");
    assert_eq!(watch.next_blocking(), Some(Change::Freed { name: "jobs/a".into() }));
    let expired = Change::Expired { name: "jobs/b".into(), fence: 1025 };
    assert_eq!(watch.next_blocking(), Some(expired));
    second.push(">2\r\n+lease.missed\r\n:7\r\n>2\r\n+lease.freed\r\n+jobs/c\r\n");
    let next = [watch.next_blocking(), watch.next_blocking()];
    assert!(next.contains(&Some(Change::Missed(7))), "{next:?}");
    client.shutdown_blocking();
    assert_eq!(polled(&mut watch), None);
}

#[test]
fn a_watch_continues_at_a_member_that_its_node_reported() {
    let second = FakeNode::start("c", watched);
    let first = FakeNode::reporting(&[DEAD, second.endpoint()], None, watched);
    let client = client(&[first.endpoint()]);
    let mut watch = client.watch("jobs/");
    assert_eq!(watch.next_blocking(), Some(connected(&first)));
    first.stop();
    let changed = watch.next_blocking();
    assert!(matches!(changed, Some(Change::Disconnected { .. })), "{changed:?}");
    assert_eq!(watch.next_blocking(), Some(connected(&second)));
}

#[test]
fn an_observer_reports_the_current_leader() {
    let holder = |name: &str, fence: u64| {
        let len = name.len();
        format!("%3\r\n+holder\r\n${len}\r\n{name}\r\n+fence\r\n:{fence}\r\n+ttl_ms\r\n:60000\r\n")
    };
    let seen = Arc::new(Mutex::new("_\r\n".to_owned()));
    let says = Arc::clone(&seen);
    let node = FakeNode::start("c", move |request| match request[0] {
        "LEASE.GET" => Action::reply(&says.lock().expect("no panic")),
        _ => Action::reply("+OK\r\n"),
    });
    let client = client(&[node.endpoint()]);
    let election = Election::new(&client, "boss");
    let mut observer = election.observe();
    assert_eq!(observer.next_blocking(), Some(LeaderChange::Vacant));
    assert_eq!([node.received(), node.received()], ["LEASE.WATCH boss*", "LEASE.GET boss"]);
    *seen.lock().expect("no panic") = holder("a:1", 1025);
    node.push(">2\r\n+lease.freed\r\n+bossy\r\n>2\r\n+lease.freed\r\n+boss\r\n");
    let leader = Leader { holder: "a:1".into(), fence: 1025 };
    assert_eq!(observer.next_blocking(), Some(LeaderChange::Elected(leader.clone())));
    assert_eq!(election.leader_blocking(), Ok(Some(leader)));
    *seen.lock().expect("no panic") = holder("b:1", 2049);
    node.push(">2\r\n+lease.missed\r\n:1\r\n");
    let leader = Leader { holder: "b:1".into(), fence: 2049 };
    assert_eq!(polled(&mut observer), Some(LeaderChange::Elected(leader)));
    client.shutdown_blocking();
    assert_eq!(polled(&mut observer), None);
}

#[test]
fn a_status_keeps_fields_that_the_client_does_not_know() {
    let node = FakeNode::start("c", |_| {
        let peers = "*1\r\n%5\r\n+node\r\n:2\r\n+address\r\n+b:7401\r\n+up\r\n#f\r\n+rtt_us\r\n_\r\n\
                     +problem\r\n+refused\r\n";
        Action::reply(&format!(
            "%8\r\n+cell\r\n+prod\r\n+node\r\n:1\r\n+role\r\n+member\r\n+members\r\n*2\r\n:1\r\n:2\r\n\
             +max_lease_ms\r\n:60000\r\n+ready\r\n#t\r\n+peers\r\n{peers}+novel\r\n,0.5\r\n"
        ))
    });
    let client = client(&[node.endpoint()]);
    let status = client.status_blocking().expect("answered");
    assert_eq!((status.cell.as_str(), status.node, status.ready), ("prod", 1, true));
    assert_eq!((status.members.as_slice(), status.max_lease.as_secs()), (&[1, 2][..], 60));
    let [peer] = status.peers.as_slice() else { panic!("one peer") };
    assert_eq!((peer.node, peer.up, peer.rtt), (2, false, None));
    assert_eq!(peer.problem.as_deref(), Some("refused"));
    let json = serde_json::to_value(&status).expect("a value");
    assert_eq!((&json["novel"], &json["peers"][0]["up"]), (&0.5.into(), &false.into()));
    let of_one = client.status_of_blocking(node.endpoint()).expect("answered");
    assert_eq!(of_one, status);
    let error = client.status_of_blocking(DEAD).expect_err("no node is there");
    assert!(matches!(error, AskError::Unreachable { .. }), "{error:?}");
}
