//! TLS with clients over RESP and HTTP: which clients get through, and what the others are told.

use std::io;
use std::sync::Arc;

use paxoslease_server::ClientTls;
use paxoslease_tls::{Authority, rcgen};
use rustls::ClientConfig;

use crate::harness::{Cell, Client, Daemon, Raw, Wire, tls_files};

const REFUSED: &str = "paxoslease_refused_total{reason=\"tls\"}";

fn secured(authority: &Authority, clients: ClientTls) -> Cell {
    Cell::one_with(|config| {
        (config.node.tls, config.client_tls) = (Some(tls_files(authority)), clients);
    })
}

impl Daemon {
    /// Asks over RESP. An error is how the connection ended.
    pub(super) fn ping(&self, config: &Arc<ClientConfig>) -> io::Result<String> {
        Client::over(Wire::tls(self.resp(), config)).try_ask("PING")
    }

    /// Asks over HTTP.
    pub(super) fn is_healthy(&self, config: &Arc<ClientConfig>) -> bool {
        let mut wire = Wire::tls(self.http(), config);
        let mut reply = String::new();
        wire.send(b"GET /healthz HTTP/1.0\r\n\r\n")
            && io::Read::read_to_string(&mut wire, &mut reply).is_ok()
            && reply.contains(" 200 ")
    }

    fn serves(&self, config: &Arc<ClientConfig>) -> [bool; 2] {
        [self.ping(config).is_ok_and(|reply| reply == "+PONG"), self.is_healthy(config)]
    }
}

#[test]
fn clients_that_trust_the_authority_are_served() {
    let authority = Authority::new();
    let cell = secured(&authority, ClientTls::Server);
    let trusting = authority.client(None);
    assert_eq!(cell[0].serves(&trusting), [true; 2]);
    let mut client = Client::over(Wire::tls(cell[0].resp(), &trusting));
    let fence = client.acquire("a");
    client.release("a", fence);
    assert_eq!(cell[0].serves(&Authority::new().client(None)), [false; 2]);
}

#[test]
fn many_bytes_pass_and_the_last_reply_arrives() {
    let authority = Authority::new();
    let cell = secured(&authority, ClientTls::Server);
    let mut client = Client::over(Wire::tls(cell[0].resp(), &authority.client(None)));
    let text = "x".repeat(10_000);
    for _ in 0..20 {
        client.send(&format!("ECHO {text}"));
    }
    client.send("QUIT");
    for _ in 0..20 {
        assert_eq!(client.next().len(), text.len());
    }
    assert_eq!(client.next(), "+OK");
    assert!(client.try_next().is_err(), "and then it is over");
}

#[test]
fn mutual_tls_needs_a_valid_certificate_of_the_authority() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let cell = secured(&authority, ClientTls::Mutual);
    let with = |signer: &Authority, last_year| {
        let end = rcgen::date_time_ymd(last_year, 1, 1);
        authority.client(Some(signer.sign(&["worker-7"], |params| params.not_after = end)))
    };
    for (what, config, is_served) in [
        ("a valid certificate", with(&authority, 4000), true),
        ("no certificate", authority.client(None), false),
        ("another authority's", with(&stranger, 4000), false),
        ("an expired one", with(&authority, 2020), false),
    ] {
        assert_eq!(cell[0].serves(&config), [is_served; 2], "{what}");
    }
    cell[0].wait_for_metric(REFUSED, 6.0);
}

#[test]
fn a_client_in_clear_is_told_that_the_port_speaks_tls() {
    let cell = secured(&Authority::new(), ClientTls::Server);
    let mut client = cell[0].client();
    let told = client.ask("PING");
    assert!(told.starts_with("-ERR this port requires TLS"), "{told}");
    assert!(client.try_next().is_err());
    let mut raw = Raw::connect(cell[0].http());
    raw.ask("GET", "/healthz", "");
    let refused = raw.reply();
    assert_eq!(refused.error(), (400, "tls".to_owned()));
    assert!(refused.field("message").contains("https://"), "{refused:?}");
    cell[0].wait_for_metric(REFUSED, 2.0);
}

#[test]
fn a_client_of_tls_is_told_that_the_port_speaks_in_clear() {
    let cell = Cell::one();
    assert_eq!(cell[0].serves(&Authority::new().client(None)), [false; 2]);
    cell[0].wait_for_limit("framing", 2);
    // The text is there, although clients of TLS cannot show it.
    let mut wire = Wire::connect(cell[0].resp());
    wire.send(&[&[0x16, 3, 1, 2, 0, 1][..], &[0; 40]].concat());
    let told = wire.read_to_close();
    assert!(told.starts_with("-ERR this port does not use TLS"), "{told}");
}

#[test]
fn clients_that_only_begin_like_tls_are_disconnected() {
    let authority = Authority::new();
    let cell = secured(&authority, ClientTls::Server);
    for junk in [&[0x16, 3, 1, 0xff, 0xff][..], &[0x16; 3000], b"\x16\x03\x01\x00\x05hello"] {
        for port in [cell[0].resp(), cell[0].http()] {
            let mut wire = Wire::connect(port);
            assert!(wire.send(junk));
            wire.end();
            // An alert may come before the end.
            wire.read_to_close();
        }
    }
    assert_eq!(cell[0].serves(&authority.client(None)), [true; 2]);
    assert!(cell[0].metric(REFUSED) >= 1.0);
}
