//! Every mistake has an answer that says what was expected, and only broken framing ends a
//! connection.

use std::io::Write as _;

use paxoslease_server::{Config, Server};

use crate::support::{Cell, Client, Reply};

/// One more than are looked at.
const TOO_MANY_NAMES: [&str; 17] = {
    let mut words = ["PING"; 17];
    (words[0], words[1]) = ("COMMAND", "INFO");
    words
};

#[test]
fn each_mistake_is_named_and_the_connection_goes_on() {
    let cell = Cell::start();
    let mut client = cell.client(0);
    let long = "n".repeat(513);
    let mistakes: &[(&[&str], &str)] = &[
        (&["FLUSHALL"], "ERR unknown command 'FLUSHALL', try LEASE.ACQUIRE name ttl_ms"),
        (
            &["lease.acquire"],
            "ERR wrong number of arguments for 'lease.acquire'; expected: LEASE.ACQUIRE name \
             ttl_ms [HOLDER holder] [WAIT wait_ms] [NOTIFY id]",
        ),
        (&["LEASE.ACQUIRE", "x", "49"], "TTL a ttl of 49ms is too short, at least 50ms expected"),
        (
            &["LEASE.ACQUIRE", "x", "60001"],
            "TTL a ttl of 60.001s is longer than this cell's max_lease of 60s",
        ),
        (&["LEASE.ACQUIRE", "x", "soon"], "TTL 'soon' is no ttl; expected milliseconds"),
        (&["LEASE.ACQUIRE", "x", "-5"], "TTL '-5' is no ttl"),
        (&["LEASE.RENEW", "x", "1025", "60001"], "TTL a ttl of 60.001s is longer"),
        (&["LEASE.ACQUIRE", "", "500"], "NAME bad name"),
        (&["LEASE.ACQUIRE", &long, "500"], "NAME bad name"),
        (&["LEASE.GET", ""], "NAME bad name"),
        (&["LEASE.ACQUIRE", "x", "500", "HOLDER", &long], "ERR bad holder"),
        (&["LEASE.ACQUIRE", "x", "500", "WAIT"], "ERR 'WAIT' does not belong there"),
        (&["LEASE.ACQUIRE", "x", "500", "WAIT", "a"], "ERR 'a' is no time to WAIT"),
        (&["LEASE.ACQUIRE", "x", "500", "NX", "1"], "ERR 'NX' does not belong there"),
        (
            &["LEASE.ACQUIRE", "x", "500", "WAIT", "1", "WAIT", "2"],
            "ERR 'WAIT' does not belong there",
        ),
        (&["LEASE.ACQUIRE", "x", "500", "WAIT", "1", "NOTIFY", "id"], "ERR NOTIFY needs RESP3"),
        (&["LEASE.RENEW", "x", "mine", "500"], "ERR 'mine' is no fence"),
        (&["LEASE.RELEASE", "x", "9223372036854775808"], "ERR '9223372036854775808' is no fence"),
        (&["LEASE.RENEW", "x", "7", "500"], "NOTHELD "),
        (&["LEASE.LIST", "one"], "ERR 'one' is no cursor; begin with 0"),
        (&["LEASE.LIST", "0", "COUNT", "0"], "ERR '0' is no count above 0"),
        (&["LEASE.LIST", "0", "MATCH", "a*b"], "ERR a pattern is a name, or a prefix"),
        (&["LEASE.LIST", "0", "MATCH", "a"], "ERR LEASE.LIST takes a prefix that ends in '*'"),
        (&["LEASE.LIST", "0", "TYPE", "a"], "ERR 'TYPE' does not belong there"),
        (&["LEASE.WATCH", "*a*"], "ERR a pattern is a name, or a prefix"),
        (&["CLIENT", "KILL"], "ERR 'KILL' does not belong there"),
        (&["CLIENT", "SETNAME", "a b"], "ERR a client's name"),
        (&["HELLO", "3", "AUTH", "a", "b"], "ERR this node asks for no token"),
        (&TOO_MANY_NAMES, "ERR wrong number of arguments for 'command'"),
        (&["COMMAND", "NONSENSE"], "ERR 'NONSENSE' does not belong there"),
    ];
    for (command, expected) in mistakes {
        let reply = client.ask(command);
        assert!(reply.error().starts_with(expected), "{command:?}: {reply:?}");
    }
    assert_eq!(client.ask(&["LEASE.GET", "x"]), Reply::Null, "nothing was changed");
}

#[test]
fn nothing_a_client_sends_can_pass_for_another_reply() {
    let cell = Cell::start();
    let mut client = cell.client(0);
    let reply = client.ask(&["x\r\n+OK\r\n:1"]);
    assert!(reply.error().starts_with("ERR unknown command 'x  +OK"), "{reply:?}");
    assert_eq!(client.ask(&["PING"]), Reply::Simple("PONG".to_owned()));
}

#[test]
fn notify_needs_a_wait_and_an_id() {
    let cell = Cell::start();
    let mut client = cell.client3(0);
    let reply = client.ask(&["LEASE.ACQUIRE", "x", "500", "NOTIFY", "id"]);
    assert!(reply.error().starts_with("ERR NOTIFY needs WAIT"));
    let reply = client.ask(&["LEASE.ACQUIRE", "x", "500", "WAIT", "1", "NOTIFY", ""]);
    assert!(reply.error().starts_with("ERR an id for NOTIFY has 1 to 64 bytes"));
}

#[test]
fn broken_framing_is_named_after_everything_before_it_was_answered() {
    let cell = Cell::start();
    let mut client = cell.client(0);
    client
        .send_bytes(b"*3\r\n$13\r\nLEASE.ACQUIRE\r\n$1\r\na\r\n$4\r\n5000\r\n*1\r\n:5\r\nPING\r\n");
    assert_eq!(client.expect().items().len(), 3);
    assert_eq!(client.expect().error(), "ERR protocol error: expected '$', found ':'");
    assert!(client.is_closed());
    let mut client = cell.client(0);
    client.send_bytes(b"*1\r\n$70000\r\n");
    assert_eq!(client.expect().error(), "ERR protocol error: more than 65536 bytes at once");
    assert!(client.is_closed());
}

#[test]
fn a_browser_is_sent_away() {
    let cell = Cell::start();
    let methods =
        ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "get"];
    let forged = methods.map(|method| format!("{method} /"));
    for line in forged.iter().map(String::as_str).chain(["x-a: b\r\nHost: localhost"]) {
        let mut client = cell.client(0);
        // As a path with line ends in it is sent by a server that does not look at it.
        client.send_bytes(format!("{line}\r\nLEASE.ACQUIRE a 5000\r\n").as_bytes());
        let first = client.expect();
        let last = if line.starts_with('x') { client.expect() } else { first };
        assert!(last.error().contains("not HTTP"), "{line}");
        assert!(client.is_closed(), "{line}");
        assert_eq!(cell.client(0).ask(&["LEASE.GET", "a"]), Reply::Null, "{line}");
    }
}

#[test]
fn a_request_that_comes_byte_by_byte_is_a_request() {
    let cell = Cell::start();
    let mut client = cell.client(0);
    for byte in b"*3\r\n$13\r\nLEASE.ACQUIRE\r\n$1\r\na\r\n$4\r\n5000\r\n" {
        client.send_bytes(&[*byte]);
    }
    assert_eq!(client.expect().items().len(), 3);
}

/// The first of three members, without the others.
fn lonely(with: impl FnOnce(paxoslease_node::Config) -> paxoslease_node::Config) -> Server {
    let socket = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = socket.local_addr().expect("bound").to_string();
    let node = paxoslease_node::Config::new("test", 1).peer(1, address);
    let mut node = with(node.peer(2, "127.0.0.1:1").peer(3, "127.0.0.2:1"));
    node.timing.request_timeout = std::time::Duration::from_millis(50);
    let config = Config::new(node).listen("127.0.0.1:0", "127.0.0.1:0");
    Server::start_on(config, Some(socket)).expect("starts")
}

#[test]
fn a_node_without_a_majority_says_so() {
    let server = lonely(paxoslease_node::Config::ephemeral);
    let mut client = Client::connect(server.clients().expect("listens"));
    for command in [
        &["LEASE.ACQUIRE", "a", "5000"][..],
        &["LEASE.RENEW", "a", "1025", "5000"],
        &["LEASE.GET", "a"],
    ] {
        let reply = client.ask(command);
        assert!(reply.error().starts_with("NOQUORUM no majority"), "{command:?}: {reply:?}");
    }
    let released = client.ask(&["LEASE.RELEASE", "a", "1025"]);
    assert!(released.error().starts_with("NOQUORUM no majority confirmed"), "{released:?}");
}

#[test]
fn a_node_in_quarantine_without_the_others_says_how_long_still() {
    let folder = std::env::temp_dir().join(format!("paxoslease-resp-{}", std::process::id()));
    let server = lonely(|config| config.data_dir(&folder));
    let mut client = Client::connect(server.clients().expect("listens"));
    let reply = client.ask(&["LEASE.ACQUIRE", "a", "5000"]);
    assert!(reply.error().starts_with("QUARANTINE this node was restarted"), "{reply:?}");
    server.shutdown();
    std::io::stderr().flush().expect("stderr");
    std::fs::remove_dir_all(folder).expect("ours");
}
