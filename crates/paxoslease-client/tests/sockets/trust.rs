//! TLS in both directions, tokens, and the errors when trust is lacking.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use paxoslease_client::{AcquireError, AskError, Builder, Change, Client, Election, Tls};
use paxoslease_tls::Authority;

use crate::fake_node::{Action, FakeNode};
use crate::{DEAD, TTL, polled, willing};

/// The settings of a client that trusts an authority.
fn trusted(ca: &Authority) -> Tls {
    Tls::from_ca_pem(ca.issuer.pem().as_bytes()).expect("a CA")
}

fn builder(endpoints: &[&str]) -> Builder {
    let patience = Duration::from_secs(10);
    Client::builder().endpoints(&endpoints.join(",")).connect_timeout(patience)
}

/// The error of a client with these settings.
fn refused(builder: Builder) -> AskError {
    let client = builder.build().expect("a client");
    client.get_blocking("x").expect_err("no trust")
}

#[track_caller]
fn assert_tls(error: &AskError, expected: &str) {
    let AskError::Tls { problem, .. } = error else { panic!("{error:?}") };
    assert!(problem.contains(expected), "{problem}");
}

#[test]
fn a_certificate_of_the_ca_is_trusted_by_address_and_by_name() {
    let ca = Authority::new();
    let node = FakeNode::with_tls(ca.server(&["127.0.0.1"], false), Some("hush"), willing);
    let client = builder(&[node.endpoint()]).tls(trusted(&ca)).token("hush");
    let client = client.build().expect("a client");
    let lease = client.acquire("x", TTL).blocking().expect("granted");
    lease.release_blocking().expect("confirmed");
    let tunnelled =
        FakeNode::with_tls(ca.server(&["node-1.test.paxoslease"], false), None, willing);
    let tls = trusted(&ca).with_server_name("node-1.test.paxoslease").expect("a name");
    let client = builder(&[tunnelled.endpoint()]).tls(tls).build().expect("a client");
    assert_eq!(client.get_blocking("x"), Ok(None));
}

#[test]
fn a_reported_member_needs_a_certificate_for_its_address() {
    let ca = Authority::new();
    let member = FakeNode::with_tls(ca.server(&["elsewhere"], false), None, willing);
    let tls = Some(ca.server(&["127.0.0.1"], false));
    let node = FakeNode::reporting(&[member.endpoint()], tls, willing);
    let client = builder(&[node.endpoint()]).tls(trusted(&ca)).build().expect("a client");
    assert_eq!(client.get_blocking("x"), Ok(None));
    node.stop();
    // The user did not choose this address, so it is only an endpoint that failed.
    let error = client.get_blocking("x").expect_err("no node is left");
    let AskError::Unreachable { endpoints, problem } = error else { panic!("{error:?}") };
    assert_eq!(endpoints, [member.endpoint(), node.endpoint()]);
    assert!(problem.contains("certificate is refused"), "{problem}");
}

#[test]
fn large_messages_pass_tls_in_both_directions() {
    let ca = Authority::new();
    let page = |count: usize| {
        let entry = "%4\r\n+name\r\n+x\r\n+holder\r\n+me\r\n+fence\r\n:1025\r\n+ttl_ms\r\n:900\r\n";
        format!("*2\r\n+0\r\n*{count}\r\n{}", entry.repeat(count))
    };
    let node = FakeNode::with_tls(ca.server(&["127.0.0.1"], false), None, move |request| {
        match request[0] {
            "LEASE.LIST" => Action::reply(&page(20_000)),
            _ => willing(request),
        }
    });
    let client = builder(&[node.endpoint()]).tls(trusted(&ca)).build().expect("a client");
    let mut list = client.list("");
    let mut count = 0;
    while let Some(lease) = polled(&mut list) {
        lease.expect("answered");
        count += 1;
    }
    assert_eq!(count, 20_000, "more than a megabyte in one answer");
    let holder = "h".repeat(256);
    std::thread::scope(|scope| {
        for number in 0..256 {
            let (client, holder) = (&client, &holder);
            scope.spawn(move || {
                let name = format!("{number:0>512}");
                let acquire = client.try_acquire(&name, TTL).holder(holder).detached();
                acquire.blocking().expect("granted");
            });
        }
    });
}

#[test]
fn tls_and_plain_ports_are_told_apart_in_both_directions() {
    let ca = Authority::new();
    let plain = FakeNode::raw("-ERR no such command\r\n");
    let error = refused(builder(&[plain.endpoint()]).tls(trusted(&ca)));
    assert_tls(&error, "it does not use TLS on this port");
    for words in
        ["\u{15}\u{3}\u{3}\0\u{2}\u{2}\u{32}", "-ERR this port requires TLS; connect so\r\n"]
    {
        let secure = FakeNode::raw(words);
        for builder in [builder(&[secure.endpoint()]), builder(&[secure.endpoint()]).token("hush")]
        {
            let error = refused(builder);
            assert!(matches!(error, AskError::TlsRequired { .. }), "{error:?}");
        }
    }
    let closing = FakeNode::start("c", |_| Action::Close);
    closing.stop();
    let error = refused(builder(&[closing.endpoint()]).tls(trusted(&ca)));
    assert!(matches!(error, AskError::Unreachable { .. }), "a dead node is dead: {error:?}");
}

#[test]
fn a_key_of_another_certificate_is_refused_at_once() {
    let ca = Authority::new();
    let ((cert, _), (_, key)) = (ca.sign(&["a"], |_| {}), ca.sign(&["b"], |_| {}));
    let error = trusted(&ca).with_identity_pem(cert.as_bytes(), key.as_bytes());
    let text = error.expect_err("no pair").to_string();
    assert!(text.contains("use the pair made together"), "{text}");
    assert!(trusted(&ca).with_server_name("no name").is_err());
}

#[test]
fn after_revocation_waits_end_and_leases_last_their_time() {
    let is_revoked = Arc::new(AtomicBool::new(false));
    let revoked = Arc::clone(&is_revoked);
    let node = FakeNode::with_token("hush", &is_revoked, move |request| match request[0] {
        _ if revoked.load(Ordering::Relaxed) => Action::Close,
        "LEASE.ACQUIRE" if request[1] == "held" => Action::reply("+QUEUED\r\n"),
        _ => willing(request),
    });
    let client = builder(&[DEAD, node.endpoint()]).token("hush").build().expect("a client");
    let lease = client.acquire("ours", TTL).blocking().expect("granted");
    let waiter = {
        let client = client.clone();
        std::thread::spawn(move || client.acquire("held", TTL).blocking())
    };
    while !node.received().starts_with("LEASE.ACQUIRE held") {}
    is_revoked.store(true, Ordering::Relaxed);
    // The connection breaks, and the node refuses the token on a new one.
    assert!(client.get_blocking("x").is_err());
    let error = waiter.join().expect("no panic").expect_err("no trust");
    assert!(matches!(error, AcquireError::Ask(AskError::Unauthenticated(_))), "{error:?}");
    assert!(lease.is_held(), "no other client can have it yet");
}

#[test]
fn a_probe_tells_a_watch_that_its_token_was_revoked() {
    let is_revoked = Arc::new(AtomicBool::new(false));
    let revoked = Arc::clone(&is_revoked);
    let node = FakeNode::with_token("hush", &is_revoked, move |request| match request[0] {
        _ if revoked.load(Ordering::Relaxed) => Action::reply("-NOAUTH not any more\r\n"),
        _ => Action::reply("+OK\r\n"),
    });
    let client = builder(&[node.endpoint()]).token("hush").build().expect("a client");
    let mut watch = client.watch("");
    let connected = Change::Connected { endpoint: node.endpoint().to_owned() };
    assert_eq!(watch.next_blocking(), Some(connected));
    is_revoked.store(true, Ordering::Relaxed);
    let Some(Change::Disconnected { .. }) = watch.next_blocking() else { panic!("refused") };
    let last = std::iter::from_fn(|| watch.next_blocking()).last();
    assert!(matches!(last, None | Some(Change::Disconnected { .. })), "{last:?}");
}

#[test]
fn watches_and_observers_end_when_no_node_trusts_the_client() {
    let node = FakeNode::with_token("hush", &Arc::default(), willing);
    let client = builder(&[node.endpoint()]).token("guess").build().expect("a client");
    let mut watch = client.watch("");
    let Some(Change::Disconnected { problem }) = watch.next_blocking() else { panic!("refused") };
    assert!(problem.contains("no such token"), "{problem}");
    assert_eq!(watch.next_blocking(), None);
    assert_eq!(Election::new(&client, "boss").observe().next_blocking(), None);
}
