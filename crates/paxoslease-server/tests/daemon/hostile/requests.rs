//! Requests that are too large, cut off, or not requests at all.

use crate::harness::{Cell, Wire};

/// The first bytes show what is wrong: the daemon does not wait or make room for the rest.
const TOO_LARGE: [(&str, &str); 8] = [
    ("*1000000000\r\n", "more than 1024 arguments"),
    ("*1025\r\n", "more than 1024 arguments"),
    ("*9223372036854775807\r\n", "more than 1024 arguments"),
    ("*1\r\n$536870912\r\n", "more than 65536 bytes at once"),
    ("*1\r\n$9223372036854775807\r\n", "more than 65536 bytes at once"),
    ("*1\r\n$-2\r\n", "length"),
    ("*99999999999999999999\r\n", "number"),
    // Both strings together are too long, and only the first is sent.
    ("*2\r\n$40000\r\n{40000}\r\n$40000\r\n", "more than 65536 bytes at once"),
];

#[test]
fn gigantic_requests_are_refused_by_their_length_alone() {
    let cell = Cell::three();
    for (bytes, expected) in TOO_LARGE {
        let mut client = Wire::connect(cell[0].resp());
        client.send(bytes.replace("{40000}", &"x".repeat(40_000)).as_bytes());
        let told = client.read_to_close();
        assert!(told.starts_with("-ERR protocol error: "), "{bytes:?}: {told:?}");
        assert!(told.contains(expected), "{bytes:?}: {told:?}");
    }
    cell[0].wait_for_limit("framing", TOO_LARGE.len() as u32);
    cell.serves();
}

#[test]
fn a_request_that_is_cut_off_is_forgotten_with_its_connection() {
    let cell = Cell::three();
    let whole = b"*3\r\n$13\r\nLEASE.ACQUIRE\r\n$1\r\na\r\n$5\r\n60000\r\n";
    for cut in 0..whole.len() {
        let mut client = Wire::connect(cell[0].resp());
        client.send(&whole[..cut]);
        client.end();
        assert_eq!(client.read_to_close(), "", "cut off after {cut} bytes");
    }
    let lease = cell[1].node().try_acquire("a", std::time::Duration::from_secs(5));
    drop(lease.blocking().expect("it is free"));
}

#[test]
fn junk_is_answered_with_an_error_or_the_end_on_every_port() {
    let cell = Cell::three();
    // The same in every run, so that a failure can be repeated.
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
        for address in [cell[0].resp(), cell[0].http(), cell.peers(0)] {
            let mut client = Wire::connect(address);
            client.send(&bytes);
            client.end();
            client.read_to_close();
        }
    }
    cell.serves();
}

#[test]
fn names_and_holders_above_their_limits_are_refused() {
    let cell = Cell::three();
    let ask = |name: &[u8], holder: &[u8]| {
        let mut client = Wire::connect(cell[0].resp());
        let args: [&[u8]; 5] = [b"LEASE.ACQUIRE", name, b"50", b"HOLDER", holder];
        let mut command = Vec::new();
        paxoslease_wire::resp::put_command(&mut command, &args);
        // The daemon closes the connection after the reply.
        command.extend_from_slice(b"QUIT\r\n");
        client.send(&command);
        client.read_to_close()
    };
    let (name, holder) = ("n".repeat(512), "h".repeat(256));
    assert!(ask(name.as_bytes(), holder.as_bytes()).starts_with("*3\r\n"));
    assert!(ask(b"a", b"").starts_with("*3\r\n"), "an empty holder is valid");
    assert!(ask("\u{1F512}".repeat(128).as_bytes(), b"x").starts_with("*3\r\n"), "bytes count");
    for (name, holder, error) in [
        ("n".repeat(513).as_bytes(), &b"x"[..], "-NAME bad name: 513 bytes long"),
        (b"", b"x", "-NAME bad name: "),
        (b"\xff\xfe", b"x", "-NAME bad name: not valid UTF-8"),
        (b"n", "h".repeat(257).as_bytes(), "-ERR bad holder: 257 bytes long"),
        (b"n", b"\xff", "-ERR bad holder: not valid UTF-8"),
    ] {
        let told = ask(name, holder);
        assert!(told.starts_with(error), "{told:?}");
    }
    cell[0].wait_for_limit("name", 3);
    cell[0].wait_for_limit("holder", 2);
}
