//! TLS with clients, by RESP and by HTTP: who gets through, and what the others are told.

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::sync::Arc;

use paxoslease_server::{ClientTls, Server};
use paxoslease_tls::{Authority, rcgen};
use rustls::ClientConfig;

use crate::support::{Client, Wire, ask_http, connect, daemon, files, metric, wait_for_metric};

fn secured(authority: &Authority, clients: ClientTls) -> Server {
    daemon(|config| {
        (config.node.tls, config.client_tls) = (Some(files(authority)), clients);
    })
}

/// Asks by RESP; an error is how the connection ended.
fn ping(server: &Server, config: &Arc<ClientConfig>) -> std::io::Result<String> {
    Client::over(Wire::tls(server.clients().expect("listens"), config)).try_ask("PING")
}

/// Asks by HTTP.
fn is_healthy(server: &Server, config: &Arc<ClientConfig>) -> bool {
    let mut wire = Wire::tls(server.http().expect("listens"), config);
    let mut reply = String::new();
    wire.write_all(b"GET /healthz HTTP/1.0\r\n\r\n").is_ok()
        && wire.read_to_string(&mut reply).is_ok()
        && reply.contains(" 200 ")
}

#[test]
fn clients_that_trust_the_authority_are_served() {
    let authority = Authority::new();
    let server = secured(&authority, ClientTls::Server);
    let trusting = authority.client(None);
    assert_eq!(ping(&server, &trusting).expect("answers"), "PONG");
    assert!(is_healthy(&server, &trusting));
    let mut client = Client::over(Wire::tls(server.clients().expect("listens"), &trusting));
    let fence = client.acquire("a");
    assert_eq!(client.ask(&format!("LEASE.RELEASE a {fence}")), "1");
    let stranger = Authority::new().client(None);
    assert!(ping(&server, &stranger).is_err() && !is_healthy(&server, &stranger));
}

#[test]
fn much_passes_in_both_directions_and_the_last_word_is_heard() {
    let authority = Authority::new();
    let server = secured(&authority, ClientTls::Server);
    let address = server.clients().expect("listens");
    let mut client = Client::over(Wire::tls(address, &authority.client(None)));
    let text = "x".repeat(10_000);
    for _ in 0..20 {
        client.send(&format!("ECHO {text}")).expect("sends");
    }
    client.send("QUIT").expect("sends");
    for _ in 0..20 {
        assert_eq!(client.next().expect("answers").len(), text.len());
    }
    assert_eq!(client.next().expect("answers"), "OK");
    assert!(client.next().is_err(), "and then it is over");
}

#[test]
fn in_mutual_tls_clients_need_a_certificate_of_the_authority_that_has_not_expired() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let server = secured(&authority, ClientTls::Mutual);
    let with = |signer: &Authority, last_year| {
        let end = rcgen::date_time_ymd(last_year, 1, 1);
        authority.client(Some(signer.sign(&["worker-7"], |params| params.not_after = end)))
    };
    let good = with(&authority, 4000);
    assert_eq!(ping(&server, &good).expect("answers"), "PONG");
    assert!(is_healthy(&server, &good));
    let others = [
        ("no certificate", authority.client(None)),
        ("another authority's", with(&stranger, 4000)),
        ("an expired one", with(&authority, 2020)),
    ];
    for (what, config) in others {
        assert!(ping(&server, &config).is_err(), "{what}");
        assert!(!is_healthy(&server, &config), "{what}");
    }
    let connect = |address: SocketAddr| Wire::tls(address, &good);
    wait_for_metric(&server, connect, "paxoslease_refused_total{reason=\"tls\"}", 6.0);
}

#[test]
fn in_clear_to_a_port_of_tls_is_told_and_counted() {
    let authority = Authority::new();
    let server = secured(&authority, ClientTls::Server);
    let mut client = Client::of(&server);
    let told = client.ask("PING");
    assert!(told.starts_with("ERR this port speaks TLS"), "{told}");
    assert!(client.next().is_err());
    let wire = Wire::plain(server.http().expect("listens"));
    let (status, told) = ask_http(wire, "GET /healthz", None, None);
    assert_eq!(status, 400);
    assert!(told.contains("\"error\":\"tls\"") && told.contains("https://"), "{told}");
    let trusting = authority.client(None);
    let connect = |address: SocketAddr| Wire::tls(address, &trusting);
    wait_for_metric(&server, connect, "paxoslease_refused_total{reason=\"tls\"}", 2.0);
}

#[test]
fn tls_to_a_port_in_clear_is_told_and_counted() {
    let server = daemon(|_| {});
    let trusting = Authority::new().client(None);
    assert!(ping(&server, &trusting).is_err() && !is_healthy(&server, &trusting));
    wait_for_metric(&server, Wire::plain, "paxoslease_limited_total{limit=\"framing\"}", 2.0);
    // What a client of TLS cannot show is there all the same.
    let hello = [&[0x16, 3, 1, 2, 0, 1][..], &[0; 40]].concat();
    let mut wire = Wire::plain(server.clients().expect("listens"));
    wire.write_all(&hello).expect("sends");
    let mut told = String::new();
    wire.read_to_string(&mut told).expect("text");
    assert!(told.starts_with("-ERR this port does not speak TLS"), "{told}");
}

#[test]
fn what_only_looks_like_tls_is_sent_away_and_others_are_served() {
    let authority = Authority::new();
    let server = secured(&authority, ClientTls::Server);
    let trusting = authority.client(None);
    let ports = [server.clients().expect("listens"), server.http().expect("listens")];
    for junk in [&[0x16, 3, 1, 0xff, 0xff][..], &[0x16; 3000], b"\x16\x03\x01\x00\x05hello"] {
        for port in ports {
            let mut socket = connect(port);
            socket.write_all(junk).expect("sends");
            socket.shutdown(std::net::Shutdown::Write).expect("connected");
            // An alert, if anything; reset or closed, it is over.
            let _end = socket.read_to_end(&mut Vec::new());
        }
    }
    assert_eq!(ping(&server, &trusting).expect("answers"), "PONG");
    assert!(is_healthy(&server, &trusting));
    let connect = |address: SocketAddr| Wire::tls(address, &trusting);
    assert!(metric(&server, connect, "paxoslease_refused_total{reason=\"tls\"}") >= 1.0);
}
