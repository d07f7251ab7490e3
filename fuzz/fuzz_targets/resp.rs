//! RESP of arbitrary bytes, as a server and as a client read it: nothing panics, every value says
//! where it ends, bytes that are still to come change nothing about those that have, and a request
//! written anew is read as the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use paxoslease_wire::resp::{Request, Value, put_command};

fuzz_target!(|bytes: &[u8]| {
    let mut stream = bytes;
    while let Ok(Some((request, consumed))) = Request::parse(stream) {
        assert!(consumed > 0 && consumed <= stream.len());
        assert!(Request::parse(&stream[..consumed - 1]).is_ok_and(|before| before.is_none()));
        if request.len() == request.args().len() {
            again(&request);
        }
        stream = &stream[consumed..];
    }
    let mut stream = bytes;
    while let Ok(Some((value, consumed))) = Value::parse(stream) {
        assert!(consumed > 0 && consumed <= stream.len());
        assert!(Value::parse(&stream[..consumed - 1]).is_ok_and(|before| before.is_none()));
        walk(value);
        stream = &stream[consumed..];
    }
});

fn again(request: &Request<'_>) {
    let mut out = Vec::new();
    put_command(&mut out, request.args());
    // What came with short lengths may have longer ones now, but by no more than the bound allows.
    if let Ok(read) = Request::parse(&out) {
        let (second, consumed) = read.expect("written whole");
        assert_eq!((second.args(), consumed), (request.args(), out.len()));
    }
}

fn walk(value: Value<'_>) {
    if let Some(items) = value.items() {
        let expected = items.len();
        assert_eq!(items.map(walk).count(), expected);
    }
}
