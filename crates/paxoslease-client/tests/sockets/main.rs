//! The client over real sockets, against nodes that are scripts: dead, late, lying, closing.

mod fake;
mod trust;

use std::time::Duration;

use fake::{Fake, Say};
use paxoslease_client::{
    AcquireError, AskError, Change, Client, Election, Leader, LeaseState, ReleaseError, StartError,
};

const TTL: Duration = Duration::from_secs(30);

/// Nobody listens there.
const DEAD: &str = "127.0.0.1:1";
const DEAD_TOO: &str = "127.0.0.2:1";

/// A client with patience, for a busy machine.
fn client(endpoints: &[&str]) -> Client {
    let patience = Duration::from_secs(10);
    let builder = Client::builder().endpoints(&endpoints.join(","));
    builder.connect_timeout(patience).start().expect("a client")
}

/// Grants, renews and releases whatever it is asked for.
fn willing(request: &[&str]) -> Say {
    match request[0] {
        "LEASE.ACQUIRE" => Say::line(&format!("*3\r\n:1025\r\n:{}\r\n:0\r\n", request[2])),
        "LEASE.RENEW" => Say::line(&format!(":{}\r\n", request[3])),
        "LEASE.RELEASE" => Say::line(":1\r\n"),
        "PING" => Say::line("+PONG\r\n"),
        _ => Say::line("_\r\n"),
    }
}

#[test]
fn a_dead_endpoint_costs_a_try_and_no_error() {
    let node = Fake::start("c", willing);
    let client = client(&[DEAD, DEAD_TOO, node.endpoint()]);
    let lease = client.try_acquire("x", TTL).holder("me").blocking().expect("granted");
    assert_eq!((lease.fence(), lease.state()), (1025, LeaseState::Held));
    assert_eq!(node.heard(), "LEASE.ACQUIRE x 30000 HOLDER me");
    lease.release_blocking().expect("confirmed");
    assert_eq!(node.heard(), "LEASE.RELEASE x 1025");
}

#[test]
fn an_endpoint_that_does_not_greet_costs_a_try_and_no_error() {
    let mute = Fake::mute();
    let node = Fake::start("c", willing);
    let endpoints = format!("{},{}", mute.endpoint(), node.endpoint());
    let patience = Duration::from_secs(1);
    let builder = Client::builder().endpoints(&endpoints).connect_timeout(patience);
    let client = builder.start().expect("a client");
    assert_eq!(client.get_blocking("x"), Ok(None));
}

#[test]
fn when_nobody_is_there_all_are_named() {
    let client = client(&[DEAD, DEAD_TOO]);
    let error = client.acquire("x", TTL).blocking().expect_err("nobody is there");
    let text = error.to_string();
    let AcquireError::Ask(AskError::Unreachable { endpoints, problem }) = error else {
        panic!("{error:?}")
    };
    assert_eq!(endpoints, [DEAD, DEAD_TOO]);
    assert!(problem.contains("refused"), "{problem}");
    assert!(text.contains(DEAD) && text.contains(DEAD_TOO), "{text}");
    let error = client.release_blocking("x", 1025).expect_err("nobody is there");
    assert!(matches!(error, ReleaseError::Unconfirmed(AskError::Unreachable { .. })), "{error}");
}

#[test]
fn a_node_that_is_there_without_a_majority_is_told_from_dead_ones() {
    let alone = Fake::start("c", |_| Say::line("-QUARANTINE silent\r\n"));
    let client = client(&[DEAD, alone.endpoint(), DEAD_TOO]);
    let expected = AskError::Quarantine("silent".into());
    assert_eq!(client.get_blocking("x"), Err(expected.clone()));
    let error = client.try_acquire("x", TTL).blocking().expect_err("no majority");
    assert_eq!(error, AcquireError::Ask(expected));
}

#[test]
fn a_server_of_another_kind_is_told_from_a_dead_one() {
    let http = Fake::raw("HTTP/1.1 400 Bad Request\r\n\r\n");
    let redis = Fake::raw("%1\r\n$6\r\nserver\r\n$5\r\nredis\r\n");
    for (node, expected) in [(&http, "unknown type 'H'"), (&redis, "\"redis\"")] {
        let error = client(&[node.endpoint()]).get_blocking("x").expect_err("no node");
        let text = error.to_string();
        assert!(matches!(error, AskError::Protocol(_)), "{error:?}");
        assert!(text.contains(expected) && text.contains(node.endpoint()), "{text}");
    }
}

#[test]
fn nodes_of_two_cells_are_not_mixed() {
    let (ours, theirs) = (Fake::start("ours", |_| Say::Close), Fake::start("theirs", willing));
    let client = client(&[ours.endpoint(), theirs.endpoint()]);
    let error = client.status_of_blocking(ours.endpoint()).expect_err("it closes");
    assert!(matches!(error, AskError::Unreachable { .. }), "{error:?}");
    let error = client.status_of_blocking(theirs.endpoint()).expect_err("another cell");
    assert!(error.to_string().contains("it is of the cell \"theirs\""), "{error}");
}

#[test]
fn a_token_is_said_first_and_never_shown() {
    let node = Fake::with_token("c", "hush", willing);
    let builder = Client::builder().endpoints(node.endpoint());
    let allowed = builder.clone().token("hush").name("me").start().expect("a client");
    assert_eq!(allowed.get_blocking("x"), Ok(None));
    for denied in [builder.clone().token("guess"), builder] {
        let client = denied.start().expect("a client");
        let error = client.get_blocking("x").expect_err("denied");
        assert!(matches!(error, AskError::Unauthenticated(_)), "{error:?}");
        let shown = format!("{error} {error:?} {client:?}");
        assert!(!shown.contains("guess"), "{shown}");
    }
}

#[test]
fn what_was_under_way_when_a_connection_broke_is_asked_elsewhere() {
    let (closes, answers) = (Fake::start("c", |_| Say::Close), Fake::start("c", willing));
    let client = client(&[closes.endpoint(), answers.endpoint()]);
    client.release_blocking("x", 1025).expect("confirmed");
    assert_eq!(closes.heard(), "LEASE.RELEASE x 1025");
    assert_eq!(answers.heard(), "LEASE.RELEASE x 1025");
}

#[test]
fn a_lease_is_renewed_at_the_next_node_when_the_first_is_gone() {
    let first = Fake::start("c", willing);
    let second = Fake::start("c", willing);
    let client = client(&[first.endpoint(), second.endpoint()]);
    let lease = client.acquire("x", Duration::from_secs(6)).blocking().expect("granted");
    first.stop();
    assert_eq!(second.heard(), "LEASE.RENEW x 1025 6000");
    assert!(lease.is_held());
}

#[test]
fn a_lease_outlives_nodes_that_are_frozen() {
    let frozen = Fake::start("c", |request| match request[0] {
        "LEASE.ACQUIRE" => willing(request),
        _ => Say::Nothing,
    });
    let (mute, node) = (Fake::mute(), Fake::start("c", willing));
    let client = client(&[frozen.endpoint(), mute.endpoint(), node.endpoint()]);
    let lease = client.acquire("x", Duration::from_secs(6)).blocking().expect("granted");
    assert_eq!(node.heard(), "LEASE.RENEW x 1025 6000");
    assert!(lease.is_held());
}

#[test]
fn a_lease_nobody_renews_is_lost_in_time() {
    let node = Fake::start("c", |request| match request[0] {
        "LEASE.RENEW" => Say::Nothing,
        _ => willing(request),
    });
    let client = client(&[node.endpoint()]);
    let lease = client.acquire("x", Duration::from_millis(300)).blocking().expect("granted");
    lease.lost_blocking();
    assert!(!lease.is_held());
    assert_eq!(lease.state(), LeaseState::Lost);
}

#[test]
fn a_wait_is_granted_when_the_node_says_so() {
    let node = Fake::start("c", |request| match request[0] {
        "LEASE.ACQUIRE" => Say::line("+QUEUED\r\n"),
        "PING" => Say::line("+PONG\r\n"),
        _ => Say::Nothing,
    });
    let client = client(&[node.endpoint()]);
    let waiter = {
        let client = client.clone();
        std::thread::spawn(move || client.acquire("x", TTL).holder("me").blocking())
    };
    let heard = node.heard();
    let (question, id) = heard.rsplit_once(' ').expect("words");
    assert_eq!(question, "LEASE.ACQUIRE x 30000 HOLDER me WAIT 4294967295 NOTIFY");
    node.push(&format!(">5\r\n+lease.granted\r\n+{id}\r\n:1025\r\n:30000\r\n:0\r\n"));
    let lease = waiter.join().expect("no panic").expect("granted");
    assert!(lease.is_held());
}

#[test]
fn when_the_last_handle_is_gone_leases_are_given_back_and_the_connection_ends() {
    let node = Fake::start("c", willing);
    let client = client(&[node.endpoint()]);
    let leases = ["x", "y"].map(|name| client.acquire(name, TTL).blocking().expect("granted"));
    drop(client);
    drop(leases);
    let heard: Vec<String> = node.heard_until_closed();
    let given_back = heard.iter().filter(|heard| heard.starts_with("LEASE.RELEASE"));
    assert_eq!(given_back.count(), 2, "{heard:?}");
}

#[test]
fn a_shutdown_returns_when_leases_are_given_back() {
    let node = Fake::start("c", willing);
    let client = client(&[node.endpoint()]);
    let lease = client.acquire("x", TTL).holder("me").blocking().expect("granted");
    client.shutdown_blocking();
    assert!(!lease.is_held());
    assert_eq!(node.heard(), "LEASE.ACQUIRE x 30000 HOLDER me WAIT 4294967295 NOTIFY 65537");
    assert_eq!(node.heard(), "LEASE.RELEASE x 1025");
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
fn a_watch_goes_on_at_another_node_and_says_so() {
    let watched = |request: &[&str]| match request[0] {
        "LEASE.WATCH" => Say::line("+OK\r\n"),
        _ => willing(request),
    };
    let (first, second) = (Fake::start("c", watched), Fake::start("c", watched));
    let client = client(&[first.endpoint(), second.endpoint()]);
    let mut watch = client.watch("jobs/");
    let connected = |node: &Fake| Change::Connected { endpoint: node.endpoint().to_owned() };
    assert_eq!(watch.next_blocking(), Some(connected(&first)));
    assert_eq!(first.heard(), "LEASE.WATCH jobs/*");
    first.push(">5\r\n+lease.held\r\n+jobs/a\r\n+me\r\n:1025\r\n:900\r\n>1\r\n+unheard.of\r\n");
    let Some(Change::Held(seen)) = watch.next_blocking() else { panic!("held") };
    assert_eq!((seen.name.as_str(), seen.holder.as_str(), seen.fence), ("jobs/a", "me", 1025));
    first.stop();
    let changed = watch.next_blocking();
    assert!(matches!(changed, Some(Change::Disconnected { .. })), "{changed:?}");
    assert_eq!(watch.next_blocking(), Some(connected(&second)));
    second.push(">2\r\n+lease.freed\r\n+jobs/a\r\n>3\r\n+lease.expired\r\n+jobs/b\r\n:1025\r\n");
    assert_eq!(watch.next_blocking(), Some(Change::Freed { name: "jobs/a".into() }));
    let expired = Change::Expired { name: "jobs/b".into(), fence: 1025 };
    assert_eq!(watch.next_blocking(), Some(expired));
    second.push(">2\r\n+lease.missed\r\n:7\r\n>2\r\n+lease.freed\r\n+jobs/c\r\n");
    let next = [watch.next_blocking(), watch.next_blocking()];
    assert!(next.contains(&Some(Change::Missed(7))), "{next:?}");
    client.shutdown_blocking();
    assert_eq!(watch.next_blocking(), None);
}

#[test]
fn an_observer_hears_who_leads_now() {
    let holder = |name: &str, fence: u64| {
        let len = name.len();
        format!("%3\r\n+holder\r\n${len}\r\n{name}\r\n+fence\r\n:{fence}\r\n+ttl_ms\r\n:60000\r\n")
    };
    let seen = std::sync::Arc::new(std::sync::Mutex::new("_\r\n".to_owned()));
    let says = std::sync::Arc::clone(&seen);
    let node = Fake::start("c", move |request| match request[0] {
        "LEASE.GET" => Say::line(&says.lock().expect("no panic")),
        _ => Say::line("+OK\r\n"),
    });
    let client = client(&[node.endpoint()]);
    let election = Election::new(&client, "boss");
    let mut observer = election.observe();
    assert_eq!(observer.next_blocking(), Some(None), "nobody leads");
    assert_eq!([node.heard(), node.heard()], ["LEASE.WATCH boss*", "LEASE.GET boss"]);
    *seen.lock().expect("no panic") = holder("a:1", 1025);
    node.push(">2\r\n+lease.freed\r\n+bossy\r\n>2\r\n+lease.freed\r\n+boss\r\n");
    let leader = Leader { holder: "a:1".into(), fence: 1025 };
    assert_eq!(observer.next_blocking(), Some(Some(leader.clone())));
    assert_eq!(election.leader_blocking(), Ok(Some(leader)));
    *seen.lock().expect("no panic") = holder("b:1", 2049);
    node.push(">2\r\n+lease.missed\r\n:1\r\n");
    let leader = Leader { holder: "b:1".into(), fence: 2049 };
    assert_eq!(observer.next_blocking(), Some(Some(leader)));
    client.shutdown_blocking();
    assert_eq!(observer.next_blocking(), None);
}

#[test]
fn a_leader_resigns_and_the_next_one_leads() {
    let node = Fake::start("c", willing);
    let client = client(&[node.endpoint()]);
    let election = Election::new(&client, "boss").holder("a:1").ttl(TTL);
    let leadership = election.campaign_blocking().expect("elected");
    assert_eq!((leadership.guard().holder(), leadership.guard().ttl()), ("a:1", TTL));
    leadership.resign_blocking().expect("confirmed");
    node.heard();
    assert_eq!(node.heard(), "LEASE.RELEASE boss 1025");
}

#[test]
fn a_status_keeps_what_this_client_has_no_type_for() {
    let node = Fake::start("c", |_| {
        let peers = "*1\r\n%5\r\n+node\r\n:2\r\n+address\r\n+b:7401\r\n+up\r\n#f\r\n+rtt_us\r\n_\r\n\
                     +problem\r\n+refused\r\n";
        Say::line(&format!(
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
    let error = client.status_of_blocking(DEAD).expect_err("nobody is there");
    assert!(matches!(error, AskError::Unreachable { .. }), "{error:?}");
}

#[test]
fn endpoints_are_checked_before_anything_runs() {
    assert_eq!(Client::connect(" , ").expect_err("none"), StartError::NoEndpoint);
    let error = Client::connect("a:7400,b:x").expect_err("bad");
    assert!(error.to_string().contains("\"b:x\""), "{error}");
    let client = Client::connect("a, b:1").expect("a client");
    assert_eq!(client.endpoints(), ["a:7400", "b:1"]);
}
