//! Tokens by RESP.

use paxoslease_server::Verb;

use crate::support::{Client, Wire, daemon, entry, guarded, three_tokens, wait_for_metric};

#[test]
fn without_a_token_there_is_nothing_but_a_greeting() {
    let server = guarded();
    let mut client = Client::of(&server);
    assert_eq!(client.ask("PING"), "PONG");
    assert!(client.ask("HELLO 3").contains("server:paxoslease"));
    for command in [
        "LEASE.ACQUIRE jobs/a 15000",
        "LEASE.RENEW jobs/a 1 15000",
        "LEASE.RELEASE jobs/a 1",
        "LEASE.CANCEL x",
        "LEASE.GET jobs/a",
        "LEASE.LIST 0",
        "LEASE.WATCH jobs/*",
        "LEASE.UNWATCH",
        "CELL.STATUS",
        "INFO",
        "ECHO x",
        "CLIENT SETNAME x",
        "COMMAND COUNT",
        "SELECT 0",
    ] {
        let refused = client.ask(command);
        assert!(refused.starts_with("NOAUTH this node asks for a token"), "{command}: {refused}");
    }
    assert_eq!(client.ask("QUIT"), "OK");
    wait_for_metric(&server, Wire::plain, "paxoslease_refused_total{reason=\"no_token\"}", 14.0);
}

#[test]
fn a_token_is_shown_by_auth_or_hello_with_any_username() {
    let server = guarded();
    for greeting in ["AUTH jobs", "AUTH anybody jobs"] {
        let mut client = Client::of(&server);
        assert_eq!(client.ask(greeting), "OK");
        client.acquire(&format!("jobs/{}", greeting.len()));
    }
    let mut client = Client::of(&server);
    let hello = client.ask("HELLO 3 AUTH default jobs SETNAME me");
    assert!(hello.contains("proto:3"), "{hello}");
    client.acquire("jobs/hello");
    let refused = Client::of(&server).ask("HELLO 3 AUTH default wrong SETNAME me");
    assert!(refused.starts_with("NOAUTH this node does not know that token"), "{refused}");
    assert_eq!(client.ask("RESET"), "RESET");
    assert!(client.ask("LEASE.GET jobs/hello").starts_with("NOAUTH"), "nobody any more");
}

#[test]
fn a_token_does_what_it_says_with_the_names_it_says_and_no_more() {
    let server = guarded();
    let mut jobs = Client::with(&server, "jobs");
    let fence = jobs.acquire("jobs/a");
    assert_eq!(jobs.ask(&format!("LEASE.RENEW jobs/a {fence} 15000")), "15000");
    let refused = jobs.ask("LEASE.ACQUIRE deploy 15000");
    assert_eq!(
        refused,
        "NOPERM the token of \"jobs's\" may not acquire \"deploy\"; that takes an entry of \
         [[access]] with \"acquire\" in may and a fitting pattern in names"
    );
    assert!(jobs.ask("LEASE.GET deploy").starts_with("NOPERM"));
    assert!(jobs.ask("CELL.STATUS").contains("may not admin"), "nor look after the cell");
    assert!(jobs.ask("INFO").starts_with("NOPERM"));
    assert_eq!(jobs.ask("ECHO hello"), "hello");
    let mut reader = Client::with(&server, "reader");
    assert!(reader.ask("LEASE.GET jobs/a").contains(&fence));
    for command in ["LEASE.ACQUIRE jobs/b 15000", &format!("LEASE.RELEASE jobs/a {fence}")] {
        assert!(reader.ask(command).starts_with("NOPERM"), "{command}");
    }
    let mut ops = Client::with(&server, "ops");
    assert!(ops.ask("CELL.STATUS").contains("ready 1"), "{}", ops.ask("CELL.STATUS"));
    assert!(ops.ask("LEASE.ACQUIRE jobs/b 15000").starts_with("NOPERM"));
    assert_eq!(jobs.ask(&format!("LEASE.RELEASE jobs/a {fence}")), "1");
    let series = "paxoslease_refused_total{reason=\"not_permitted\"}";
    wait_for_metric(&server, Wire::plain, series, 7.0);
}

#[test]
fn lists_and_watches_show_what_may_be_read() {
    let server = daemon(|config| {
        config.access = three_tokens();
        let all = crate::support::entry("all", &["*"], &[paxoslease_server::Verb::Acquire]);
        config.access.push(all);
    });
    let mut all = Client::with(&server, "all");
    let (mut reader, mut ops) = (Client::with(&server, "reader"), Client::with(&server, "ops"));
    for watcher in [&mut reader, &mut ops] {
        assert_eq!(watcher.ask("LEASE.WATCH *"), "OK");
    }
    assert!(reader.ask("LEASE.WATCH deploy").starts_with("NOPERM"));
    assert!(reader.ask("LEASE.WATCH other/*").starts_with("NOPERM"));
    assert!(reader.ask("LEASE.LIST 0 MATCH other/*").starts_with("NOPERM"));
    assert!(all.ask("LEASE.LIST 0").starts_with("NOPERM"), "acquire is not read");
    all.acquire("deploy");
    all.acquire("jobs/a");
    let seen = reader.next().expect("a message");
    assert!(seen.starts_with("[lease.held jobs/a "), "the first is not for its eyes: {seen}");
    let both = [ops.next().expect("a message"), ops.next().expect("a message")].join(" ");
    assert!(both.contains("lease.held deploy") && both.contains("lease.held jobs/a"), "{both}");
    let listed = |client: &mut Client| {
        let (mut cursor, mut found) = ("0".to_owned(), String::new());
        loop {
            let page = client.ask(&format!("LEASE.LIST {cursor}"));
            let (next, leases) = page[1..].split_once(' ').expect("a cursor");
            found.push_str(leases);
            if next == "0" {
                return found;
            }
            cursor = next.to_owned();
        }
    };
    for client in [&mut reader, &mut ops] {
        assert_eq!(client.ask("LEASE.UNWATCH"), "OK");
    }
    let (few, many) = (listed(&mut reader), listed(&mut ops));
    assert!(few.contains("jobs/a") && !few.contains("deploy"), "{few}");
    assert!(many.contains("jobs/a") && many.contains("deploy"), "{many}");
}

#[test]
fn pages_of_a_list_tell_nothing_of_names_that_may_not_be_read() {
    let server = daemon(|config| {
        config.access = three_tokens();
        config.access.push(entry("all", &["*"], &[Verb::Acquire]));
    });
    let (mut all, mut reader) = (Client::with(&server, "all"), Client::with(&server, "reader"));
    for number in 0..160 {
        let folder = if number % 50 == 0 { "jobs" } else { "secret" };
        all.acquire(&format!("{folder}/{number}"));
    }
    let (mut cursor, mut pages, mut found) = ("0".to_owned(), 0, 0);
    loop {
        let page = reader.ask(&format!("LEASE.LIST {cursor} COUNT 1"));
        pages += 1;
        found += page.matches("jobs/").count();
        assert!(!page.contains("secret"), "{page}");
        cursor = page[1..].split(' ').next().expect("a cursor").to_owned();
        if cursor == "0" {
            break;
        }
    }
    // A page ends with a lease that may be seen, or after 16 slots, or with the shard.
    assert_eq!(found, 4);
    assert!(pages <= 4 + 160 / 16 + 2, "{pages} pages");
}

#[test]
fn who_guesses_is_counted_and_sent_away() {
    let server = guarded();
    let mut client = Client::of(&server);
    for guess in ["AUTH a", "AUTH b", "HELLO 3 AUTH x c", "AUTH d"] {
        assert!(client.ask(guess).starts_with("NOAUTH this node does not know"), "{guess}");
    }
    client.is_hung_up_on();
    let series = "paxoslease_refused_total{reason=\"unknown_token\"}";
    wait_for_metric(&server, Wire::plain, series, 4.0);
    // A guess does not end what was proven before, and a good token does not forgive guesses.
    let mut client = Client::with(&server, "jobs");
    for guess in 1..=3 {
        assert!(client.ask("AUTH wrong").starts_with("NOAUTH"));
        client.acquire(&format!("jobs/{guess}"));
        assert_eq!(client.ask("AUTH jobs"), "OK");
    }
    assert!(client.ask("AUTH wrong").starts_with("NOAUTH"));
    client.is_hung_up_on();
}

#[test]
fn a_node_without_tokens_takes_none() {
    let server = daemon(|_| {});
    let mut client = Client::of(&server);
    assert!(client.ask("AUTH x").starts_with("ERR this node asks for no token"));
    client.acquire("anything");
}
