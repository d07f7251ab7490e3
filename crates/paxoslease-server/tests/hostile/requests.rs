//! Requests that are too large, cut off, or none at all.

use crate::support::{Cell, Raw};

/// What is wrong is known from the first bytes: nobody waits for the rest, or makes room for it.
const TOO_LARGE: [(&str, &str); 7] = [
    ("*1000000000\r\n", "more than 1024 arguments"),
    ("*1025\r\n", "more than 1024 arguments"),
    ("*9223372036854775807\r\n", "more than 1024 arguments"),
    ("*1\r\n$536870912\r\n", "more than 65536 bytes at once"),
    ("*1\r\n$9223372036854775807\r\n", "more than 65536 bytes at once"),
    ("*1\r\n$-2\r\n", "length"),
    ("*99999999999999999999\r\n", "number"),
];

#[test]
fn gigantic_requests_are_refused_by_their_length_alone() {
    let cell = Cell::start();
    for (bytes, expected) in TOO_LARGE {
        let mut client = Raw::connect(cell.address(0));
        client.say(bytes.as_bytes());
        let heard = client.hear_out();
        assert!(heard.starts_with("-ERR protocol error: "), "{bytes:?}: {heard:?}");
        assert!(heard.contains(expected), "{bytes:?}: {heard:?}");
    }
    cell.wait_for_limit(0, "framing", TOO_LARGE.len() as u32);
    cell.serves();
}

#[test]
fn two_strings_that_are_too_long_together_are_refused_before_the_second_comes() {
    let cell = Cell::start();
    let mut client = Raw::connect(cell.address(0));
    let first = "x".repeat(40_000);
    client.say(format!("*2\r\n$40000\r\n{first}\r\n$40000\r\n").as_bytes());
    assert!(client.hear_out().contains("more than 65536 bytes at once"));
    cell.wait_for_limit(0, "framing", 1);
    cell.serves();
}

#[test]
fn a_request_that_is_cut_off_is_forgotten_with_its_connection() {
    let cell = Cell::start();
    let whole = b"*3\r\n$13\r\nLEASE.ACQUIRE\r\n$1\r\na\r\n$5\r\n60000\r\n";
    for cut in 0..whole.len() {
        let mut client = Raw::connect(cell.address(0));
        client.say(&whole[..cut]);
        client.end();
        assert_eq!(client.hear_out(), "", "cut off after {cut} bytes");
    }
    let lease = cell.servers[1].node().try_acquire("a", std::time::Duration::from_secs(5));
    drop(lease.blocking().expect("nobody has it"));
}

#[test]
fn junk_is_answered_with_an_error_or_the_end_on_every_port() {
    let cell = Cell::start();
    // Drawn once and for all, so that a failure can be repeated.
    let mut state = 7_u64;
    let mut junk = |len: usize| -> Vec<u8> {
        let mut byte = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as u8
        };
        (0..len).map(|_| byte()).collect()
    };
    for round in 0..64 {
        let bytes = junk(1 + round * 97);
        for address in [cell.address(0), cell.http(0), cell.peers(0)] {
            let mut client = Raw::connect(address);
            client.say(&bytes);
            client.end();
            client.hear_out();
        }
    }
    cell.serves();
}

#[test]
fn names_and_holders_at_their_limits_are_taken_and_above_them_refused() {
    let cell = Cell::start();
    let ask = |name: &[u8], holder: &[u8]| {
        let mut client = Raw::connect(cell.address(0));
        let args: [&[u8]; 5] = [b"LEASE.ACQUIRE", name, b"50", b"HOLDER", holder];
        let mut command = Vec::new();
        paxoslease_wire::resp::put_command(&mut command, &args);
        // It hangs up after the answer.
        command.extend_from_slice(b"QUIT\r\n");
        client.say(&command);
        client.hear_out()
    };
    let (name, holder) = ("n".repeat(512), "h".repeat(256));
    assert!(ask(name.as_bytes(), holder.as_bytes()).starts_with("*3\r\n"));
    assert!(ask(b"a", b"").starts_with("*3\r\n"), "an empty holder is one");
    assert!(ask("\u{1F512}".repeat(128).as_bytes(), b"x").starts_with("*3\r\n"), "bytes count");
    for (name, holder, error) in [
        ("n".repeat(513).as_bytes(), &b"x"[..], "-NAME bad name: 513 bytes long"),
        (b"", b"x", "-NAME bad name: "),
        (b"\xff\xfe", b"x", "-NAME bad name: not valid UTF-8"),
        (b"n", "h".repeat(257).as_bytes(), "-ERR bad holder: 257 bytes long"),
        (b"n", b"\xff", "-ERR bad holder: not valid UTF-8"),
    ] {
        let heard = ask(name, holder);
        assert!(heard.starts_with(error), "{heard:?}");
    }
    cell.wait_for_limit(0, "name", 3);
    cell.wait_for_limit(0, "holder", 2);
}
