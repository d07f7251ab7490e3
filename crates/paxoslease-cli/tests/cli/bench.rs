//! `bench` with the real binary: exit codes, stdout and stderr.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread;

use serde_json::Value;

use crate::support::{outcome, paxoslease};

/// Exit code, stdout, stderr.
fn bench(args: &[&str]) -> (i32, String, String) {
    outcome(paxoslease(&[&["bench"], args].concat()))
}

const GREETING: &str = "%1\r\n$6\r\nserver\r\n$10\r\npaxoslease\r\n";

/// A server that greets like a node and answers further requests with these, in turn.
fn node(answers: &'static [&'static str]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound").to_string();
    thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            thread::spawn(move || serve(stream, answers));
        }
    });
    address
}

fn serve(mut stream: TcpStream, answers: &[&str]) {
    let mut answers = std::iter::once(GREETING).chain(answers.iter().copied().cycle());
    let mut input = [0; 4096];
    while let Ok(len @ 1..) = stream.read(&mut input) {
        // Every request begins with its only star.
        let requests = input[..len].iter().filter(|byte| **byte == b'*').count();
        let said: String = answers.by_ref().take(requests).collect();
        if stream.write_all(said.as_bytes()).is_err() {
            return;
        }
    }
}

const GRANTED: &str = "*3\r\n:42\r\n:15000\r\n:0\r\n";
const RELEASED: &str = ":1\r\n";

#[test]
fn a_load_prints_a_table_or_a_line_of_json() {
    let node = node(&[GRANTED, RELEASED]);
    let few = ["--endpoint", &node, "--count", "100", "--inflight", "1"];
    let (code, stdout, stderr) = bench(&few);
    assert_eq!((code, stderr.as_str()), (0, ""));
    assert!(stdout.starts_with("pairs: 1 in flight over 1 connection to "), "{stdout}");
    assert!(stdout.contains(" pairs/s, 100 in all\n"), "{stdout}");
    for word in ["p50", "p90", "p99", "p99.9", "max", "acquire", "release"] {
        assert!(stdout.contains(word), "no {word} in {stdout}");
    }
    let (code, stdout, stderr) = bench(&[few.as_slice(), &["--json"]].concat());
    assert_eq!((code, stderr.as_str()), (0, ""));
    let report: Value = serde_json::from_str(&stdout).expect("one line of JSON");
    assert_eq!(report["operations"], 100);
    assert_eq!(report["latency"]["acquire"]["count"], 100);
}

#[test]
fn a_load_without_any_success_fails_with_its_last_error() {
    let sometimes = node(&[GRANTED, RELEASED, "-BUSY too many\r\n"]);
    let few = ["--count", "90", "--inflight", "1", "--json", "--endpoint"];
    let (code, stdout, _) = bench(&[few.as_slice(), &[&sometimes]].concat());
    let report: Value = serde_json::from_str(&stdout).expect("one line of JSON");
    assert_eq!(
        (code, &report["operations"], &report["errors"]["BUSY"]),
        (0, &45.into(), &45.into())
    );
    let never = node(&["-NOQUORUM one of three answers\r\n"]);
    let (code, _, stderr) = bench(&["--count", "90", "--endpoint", &never]);
    assert_eq!(code, 69);
    assert_eq!(stderr, "error: no operation succeeded: NOQUORUM one of three answers\n");
}

#[test]
fn a_wrong_port_is_unavailable() {
    let node = node(&["+PONG\r\n"]);
    let (code, _, stderr) = bench(&["--endpoint", &node]);
    assert_eq!(code, 69, "{stderr}");
    assert!(stderr.contains("does not speak as expected"), "{stderr}");
    let (code, _, stderr) = bench(&["--endpoint", &node, "--dialect", "redis"]);
    assert_eq!(code, 69, "{stderr}");
}

#[test]
fn a_refusal_of_the_cell_ends_the_load_at_once() {
    let refusing = |answer| bench(&["--endpoint", &node(answer)]);
    let (code, _, stderr) = refusing(&["-TTL at most 10s\r\n"]);
    assert_eq!(code, 2);
    assert!(stderr.ends_with("refuses: TTL at most 10s\n"), "{stderr}");
    let (code, _, stderr) = refusing(&["-NOAUTH who are you\r\n"]);
    assert_eq!(code, 77, "{stderr}");
}
