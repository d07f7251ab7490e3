//! Tokens by HTTP.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};

use paxoslease_server::Server;

use crate::support::{Client, Wire, ask_http, daemon, entry, guarded, metric, three_tokens};

fn ask(server: &Server, what: &str, token: Option<&str>) -> (u16, String) {
    ask_http(Wire::plain(server.http().expect("listens")), what, token, None)
}

fn post(server: &Server, what: &str, token: Option<&str>, body: &str) -> (u16, String) {
    ask_http(Wire::plain(server.http().expect("listens")), what, token, Some(body))
}

const TTL: &str = r#"{"ttl":"15s"}"#;

#[test]
fn without_a_token_there_are_probes_and_the_document() {
    let server = guarded();
    for path in ["/healthz", "/readyz", "/openapi.json"] {
        assert_eq!(ask(&server, &format!("GET {path}"), None).0, 200, "{path}");
    }
    let leases = ["/", "/metrics", "/v1/cell", "/v1/leases", "/v1/leases/jobs%2Fa", "/v1/watch"];
    for path in leases {
        for token in [None, Some("wrong")] {
            let (status, reply) = ask(&server, &format!("GET {path}"), token);
            assert_eq!(status, 401, "{path}: {reply}");
            assert!(reply.contains("\"error\":\"unauthorized\""), "{reply}");
            assert!(reply.contains("www-authenticate: Bearer realm=\"paxoslease\""), "{reply}");
            assert!(reply.contains("www-authenticate: Basic realm=\"paxoslease\""), "{reply}");
        }
    }
    for action in ["acquire", "renew", "release"] {
        let what = format!("POST /v1/leases/jobs%2Fa/{action}");
        assert_eq!(post(&server, &what, None, "not even JSON").0, 401, "before anything is read");
    }
    let counted = |reason: &str| {
        metric(&server, Wire::plain, &format!("paxoslease_refused_total{{reason=\"{reason}\"}}"))
    };
    assert_eq!((counted("no_token"), counted("unknown_token")), (9.0, 6.0));
}

#[test]
fn a_token_does_what_it_says_with_the_names_it_says_and_no_more() {
    let server = guarded();
    let acquire = "POST /v1/leases/jobs/a/acquire";
    let (status, granted) = post(&server, acquire, Some("jobs"), TTL);
    assert_eq!(status, 200, "{granted}");
    assert_eq!(ask(&server, "GET /v1/leases/jobs/a", Some("reader")).0, 200);
    for (what, token) in [
        ("POST /v1/leases/deploy/acquire", "jobs"),
        ("POST /v1/leases/jobs/b/acquire", "reader"),
        ("POST /v1/leases/jobs/b/renew", "ops"),
        ("POST /v1/leases/jobs/b/release", "reader"),
        ("GET /v1/leases/deploy", "jobs"),
        ("GET /v1/leases?prefix=deploy", "jobs"),
        ("GET /v1/watch?prefix=deploy", "jobs"),
        ("GET /v1/cell", "jobs"),
        ("GET /metrics", "reader"),
        ("GET /", "reader"),
    ] {
        let (status, reply) = post(&server, what, Some(token), TTL);
        assert_eq!(status, 403, "{what}: {reply}");
        assert!(reply.contains("\"error\":\"forbidden\"") && reply.contains("[[access]]"));
    }
    for path in ["/", "/metrics", "/v1/cell", "/v1/leases"] {
        assert_eq!(ask(&server, &format!("GET {path}"), Some("ops")).0, 200, "{path}");
    }
}

#[test]
fn a_browser_may_send_the_token_as_a_password() {
    let server = guarded();
    let basic = |credentials: &str| {
        let mut wire = Wire::plain(server.http().expect("listens"));
        let head = format!("GET /v1/cell HTTP/1.0\r\nauthorization: Basic {credentials}\r\n\r\n");
        wire.write_all(head.as_bytes()).expect("sends");
        let mut line = String::new();
        BufReader::new(wire).read_line(&mut line).expect("answers");
        line
    };
    assert!(basic("YW55Ym9keTpvcHM=").contains(" 200 "), "anybody:ops");
    assert!(basic("b3BzOmFueWJvZHk=").contains(" 401 "), "ops:anybody");
}

#[test]
fn lists_watches_and_the_page_show_what_may_be_read() {
    let server = daemon(|config| {
        config.access = three_tokens();
        config.access.push(entry("all", &["*"], &[paxoslease_server::Verb::Acquire]));
        config.access.push(entry("few", &["jobs/*"], &[paxoslease_server::Verb::Admin]));
    });
    let mut wire = Wire::plain(server.http().expect("listens"));
    let head = "GET /v1/watch HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer reader\r\n\r\n";
    wire.write_all(head.as_bytes()).expect("sends");
    let mut watched = BufReader::new(wire).lines();
    let mut until = |text: &str| loop {
        let line = watched.next().expect("it goes on").expect("text");
        assert!(!line.contains("deploy"), "not for its eyes: {line}");
        if line.contains(text) {
            break;
        }
    };
    until(": watching");
    let mut all = Client::with(&server, "all");
    all.acquire("deploy");
    all.acquire("jobs/a");
    until("jobs/a");
    let (_, few) = ask(&server, "GET /v1/leases", Some("reader"));
    assert!(few.contains("jobs/a") && !few.contains("deploy"), "{few}");
    let (_, many) = ask(&server, "GET /v1/leases", Some("ops"));
    assert!(many.contains("jobs/a") && many.contains("deploy"), "{many}");
    let (status, page) = ask(&server, "GET /", Some("few"));
    assert!(status == 200 && !page.contains("deploy") && !page.contains("jobs/a"), "no read");
}

#[test]
fn a_name_that_is_held_has_a_holder_only_for_a_token_that_may_read_it() {
    let server = daemon(|config| {
        config.access = three_tokens();
        config.access.push(entry("taker", &["*"], &[paxoslease_server::Verb::Acquire]));
    });
    let acquire = "POST /v1/leases/jobs/a/acquire";
    let body = r#"{"ttl": "15s", "holder": "somebody"}"#;
    assert_eq!(post(&server, acquire, Some("jobs"), body).0, 200);
    let (status, told) = post(&server, acquire, Some("jobs"), body);
    assert_eq!(status, 409, "{told}");
    assert!(told.contains("by \\\"somebody\\\"") && told.contains("\"fence\""), "{told}");
    let (status, told) = post(&server, acquire, Some("taker"), body);
    assert_eq!(status, 409, "{told}");
    assert!(!told.contains("somebody") && !told.contains("\"fence\""), "{told}");
    assert!(told.contains("retry_after_ms"), "{told}");
}

#[test]
fn a_path_that_does_not_exist_takes_a_token_too() {
    let server = guarded();
    assert_eq!(ask(&server, "GET /v1/nothing", None).0, 401);
    assert_eq!(ask(&server, "GET /v1/nothing", Some("reader")).0, 404);
    let open = daemon(|_| {});
    assert_eq!(ask(&open, "GET /v1/nothing", None).0, 404);
}

#[test]
fn a_page_of_another_site_gets_nothing_from_a_node_without_tokens() {
    let server = daemon(|_| {});
    let cross = |rest: &str| format!("host: localhost\r\nsec-fetch-site: cross-site\r\n{rest}");
    let refused =
        ask_host(&server, &cross("sec-fetch-mode: navigate\r\nsec-fetch-dest: object\r\n"));
    assert!(refused.starts_with("HTTP/1.1 403"), "{refused}");
    assert!(refused.contains("cross-origin-resource-policy: same-origin"), "{refused}");
    let link = cross("sec-fetch-mode: navigate\r\nsec-fetch-dest: document\r\n");
    assert!(ask_host(&server, &link).starts_with("HTTP/1.1 200"), "a link that somebody follows");
    let own = "host: localhost\r\nsec-fetch-site: same-origin\r\nsec-fetch-mode: cors\r\n";
    assert!(ask_host(&server, own).starts_with("HTTP/1.1 200"), "the page for people");
    let series = "paxoslease_refused_total{reason=\"cross_site\"}";
    assert_eq!(metric(&server, Wire::plain, series), 1.0);
}

#[test]
fn who_guesses_has_to_connect_again() {
    let server = guarded();
    let mut wire = Wire::plain(server.http().expect("listens"));
    let guess = "GET /v1/cell HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer guess\r\n\r\n";
    wire.write_all(guess.repeat(5).as_bytes()).expect("sends");
    let mut replies = Vec::new();
    // The fifth was sent in vain, and may cut the connection short.
    let _end = wire.read_to_end(&mut replies);
    let replies = String::from_utf8(replies).expect("text");
    let refused = replies.matches("HTTP/1.1 401").count();
    assert_eq!(refused, 4, "the fourth was the last");
}

#[test]
fn who_has_no_token_keeps_no_seat_by_asking_whether_the_node_lives() {
    let server = guarded();
    let answers = |authorization: &str| {
        let mut wire = Wire::plain(server.http().expect("listens"));
        let probe = format!("GET /healthz HTTP/1.1\r\nhost: localhost\r\n{authorization}\r\n");
        let last = probe.replace("\r\n\r\n", "\r\nconnection: close\r\n\r\n");
        wire.write_all(format!("{}{last}", probe.repeat(9)).as_bytes()).expect("sends");
        let mut replies = Vec::new();
        let _end = wire.read_to_end(&mut replies);
        String::from_utf8(replies).expect("text").matches("HTTP/1.1 200").count()
    };
    assert_eq!(answers(""), 4);
    assert_eq!(answers("authorization: Bearer guess\r\n"), 4);
    assert_eq!(answers("authorization: Bearer reader\r\n"), 10);
}

/// What is said to whoever asks for this host.
fn ask_host(server: &Server, host: &str) -> String {
    let mut wire = Wire::plain(server.http().expect("listens"));
    let head = format!("GET /v1/cell HTTP/1.1\r\n{host}connection: close\r\n\r\n");
    wire.write_all(head.as_bytes()).expect("sends");
    let mut reply = String::new();
    wire.read_to_string(&mut reply).expect("text");
    reply
}

#[test]
fn a_page_that_leads_its_own_name_to_a_node_without_tokens_is_refused() {
    let server = daemon(|_| {});
    for host in ["host: 127.0.0.1:7402\r\n", "host: [::1]\r\n", "host: localhost:7402\r\n", ""] {
        assert!(ask_host(&server, host).starts_with("HTTP/1.1 200"), "{host}");
    }
    let refused = ask_host(&server, "host: rebound.example:7402\r\n");
    assert!(refused.starts_with("HTTP/1.1 421"), "{refused}");
    assert!(refused.contains("\"error\":\"host\""), "{refused}");
    assert!(
        refused.contains("rebound.example:7402") && refused.contains("[[access]]"),
        "{refused}"
    );
    assert_eq!(metric(&server, Wire::plain, "paxoslease_refused_total{reason=\"host\"}"), 1.0);
}

#[test]
fn where_there_are_tokens_or_other_addresses_any_name_will_do() {
    let refused = ask_host(&guarded(), "host: node.example\r\n");
    assert!(refused.starts_with("HTTP/1.1 401"), "for want of a token alone: {refused}");
    let everywhere = daemon(|config| {
        config.listen.http = Some("0.0.0.0:0".to_owned());
        config.node.listen.allow_plaintext = true;
    });
    let told = ask_host(&everywhere, "host: node.example\r\n");
    assert!(told.starts_with("HTTP/1.1 200"), "{told}");
}
