//! Requests that take more steps than a turn has go on in the next turns, and are answered in full.

use std::io::{BufRead as _, BufReader};

use super::super::steps::STEPS_PER_TURN;
use super::*;

/// A name as long as a name may be.
const LONG: usize = 512;
/// A turn stops after the piece of work that uses up its steps: a name, or one run of a script.
const TURN_STEPS_MAX: usize = 2 * STEPS_PER_TURN;

struct Lines(BufReader<TcpStream>);

impl Lines {
    fn of(node: &Impatient) -> Self {
        Self(BufReader::new(node.connect()))
    }

    fn send(&mut self, words: &[&str]) {
        let mut request = format!("*{}\r\n", words.len());
        for word in words {
            request.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        self.0.get_mut().write_all(request.as_bytes()).expect("sends");
    }

    /// The next lines of replies.
    fn take(&mut self, count: usize) -> Vec<String> {
        let line = |_| {
            let mut line = String::new();
            self.0.read_line(&mut line).expect("a line");
            line.trim_end().to_owned()
        };
        (0..count).map(line).collect()
    }

    fn ask(&mut self, words: &[&str]) -> String {
        self.send(words);
        self.take(1).remove(0)
    }

    /// Acquires names of the same letter as long as names may be.
    fn hold(&mut self, count: usize) {
        for number in 0..count {
            let name = format!("{}{number:04}", "a".repeat(LONG - 4));
            assert_eq!(self.ask(&["SET", &name, "v", "NX", "PX", "60000"]), "+OK");
        }
    }
}

/// Compares as many bytes as a pattern may, and matches no long name of the letter `a`.
fn costly(number: usize) -> String {
    format!("*{}b{number:03}", "a".repeat(60))
}

impl Impatient {
    /// No turn took more than [`TURN_STEPS_MAX`], not even the last one.
    fn check_turns(&self, client: &mut Lines) {
        for _ in 0..2 {
            assert_eq!(client.ask(&["PING"]), "+PONG");
        }
        let most = self.server.turn_steps_max.load(Ordering::Relaxed);
        assert!(most <= TURN_STEPS_MAX, "{most} steps in a turn");
        assert!(most > STEPS_PER_TURN / 4, "only {most} steps: this was no test");
    }
}

#[test]
fn a_costly_message_reaches_all_subscribers() {
    let node = Impatient::start(|_| {});
    let mut subscribers: Vec<Lines> = (0..4).map(|_| Lines::of(&node)).collect();
    for subscriber in &mut subscribers {
        let patterns: Vec<String> = (0..255).map(costly).chain(["a*".to_owned()]).collect();
        let mut words = vec!["PSUBSCRIBE"];
        words.extend(patterns.iter().map(String::as_str));
        subscriber.send(&words);
        let confirmed = subscriber.take(6 * 256);
        assert_eq!(confirmed.last().map(String::as_str), Some(":256"));
    }
    // The limit counts patterns, not connections.
    let mut another = Lines::of(&node);
    let refused = another.ask(&["SUBSCRIBE", "one"]);
    assert!(refused.starts_with("-BUSY watchers: clients subscribe to 1024 channels"), "{refused}");
    node.wait_for_limit("watchers", 1);
    let channel = "a".repeat(LONG);
    for message in ["first", "second"] {
        assert_eq!(another.ask(&["PUBLISH", &channel, message]), ":4");
    }
    for subscriber in &mut subscribers {
        for message in ["first", "second"] {
            let told = subscriber.take(9);
            assert_eq!(
                [&told[2], &told[4], &told[6], &told[8]],
                ["pmessage", "a*", &channel, message]
            );
        }
    }
    node.check_turns(&mut another);
    // Those that leave make room.
    drop(subscribers);
    node.wait_for_connections(1);
    assert_eq!(another.ask(&["SUBSCRIBE", "one"]), "*3");
}

#[test]
fn a_costly_pattern_of_keys_takes_many_turns() {
    let node = Impatient::start(|_| {});
    let mut client = Lines::of(&node);
    client.hold(100);
    assert_eq!(client.ask(&["KEYS", &costly(0)]), "*0");
    assert_eq!(client.ask(&["KEYS", "*aaa0099"]), "*1");
    client.take(2);
    assert_eq!(client.ask(&["SCAN", "0", "MATCH", &costly(0), "COUNT", "1000"]), "*2");
    client.take(3);
    node.check_turns(&mut client);
}

#[test]
fn keys_have_a_bound_in_bytes_and_counting_has_none() {
    let node = Impatient::start(|_| {});
    let mut client = Lines::of(&node);
    client.hold(124);
    assert_eq!(client.ask(&["KEYS", "*"]), "*124");
    client.take(2 * 124);
    let more = "b".repeat(LONG);
    assert_eq!(client.ask(&["SET", &more, "v", "NX", "PX", "60000"]), "+OK");
    let refused = client.ask(&["KEYS", "*"]);
    assert_eq!(refused, "-ERR the keys that match have more than 64 KiB; use SCAN");
    assert_eq!(client.ask(&["DBSIZE"]), ":125");
}

#[test]
fn scripts_of_one_turn_share_its_steps() {
    let node = Impatient::start(|_| {});
    let mut client = Lines::of(&node);
    let script = "local held = redis.call('get', KEYS[1])
        for i = 1, 3000 do local a = i end return held";
    let scripts = 40;
    (0..scripts).for_each(|_| client.send(&["EVAL", script, "1", "k"]));
    assert!(client.take(scripts).iter().all(|reply| reply == "$-1"));
    node.check_turns(&mut client);
}

#[test]
fn a_script_reads_as_many_keys_as_it_may_one_by_one() {
    let node = Impatient::start(|_| {});
    let mut client = Lines::of(&node);
    let script = "local n = 0 for i, k in ipairs(KEYS) do
        if redis.call('get', k) then n = n + 1 end end return n";
    let keys: Vec<String> = (0..65).map(|number| format!("k{number}")).collect();
    let evaluate = |count: usize| {
        let number = count.to_string();
        let mut words = vec!["EVAL".to_owned(), script.to_owned(), number];
        words.extend(keys[..count].iter().cloned());
        words
    };
    let words = evaluate(64);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    assert_eq!(client.ask(&words), ":0");
    let words = evaluate(65);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    assert_eq!(client.ask(&words), "-ERR a script has at most 64 keys, not 65");
    // Keys that are no arguments are counted as they are met.
    let made = "local n = 0 for i = 1, 65 do
        if redis.call('get', 'k' .. i) then n = n + 1 end end return n";
    assert_eq!(client.ask(&["EVAL", made, "0"]), "-ERR more than 64 keys in one command");
}
