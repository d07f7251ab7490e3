//! RESP: requests and replies decode to what was written, from streams cut anywhere.

use paxoslease_wire::resp::{
    LINE_LEN_MAX, Protocol, Request, Value, put_bulk, put_bulk_integer, put_command, put_error,
    put_integer, put_simple,
};
use proptest::prelude::*;

fn request(bytes: &[u8]) -> (Vec<Vec<u8>>, usize) {
    let (request, consumed) = Request::parse(bytes).expect("sound").expect("whole");
    (request.args().iter().map(|arg| arg.to_vec()).collect(), consumed)
}

fn reply(bytes: &[u8]) -> Value<'_> {
    let (value, consumed) = Value::parse(bytes).expect("sound").expect("whole");
    assert_eq!(consumed, bytes.len());
    value
}

fn written(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    write(&mut out);
    out
}

#[test]
fn arguments_out_of_reach_are_counted() {
    let args: Vec<&[u8]> = vec![b"x"; 40];
    let bytes = written(|out| put_command(out, &args));
    let (request, consumed) = Request::parse(&bytes).expect("sound").expect("whole");
    assert_eq!((request.len(), consumed), (40, bytes.len()));
    assert_eq!(request.arg(9), Some(&b"x"[..]), "no command has more than nine");
    assert_eq!(request.arg(40), None);
    assert!(request.args().len() < 40);
}

#[test]
fn the_two_versions_differ_in_null_boolean_map_and_push() {
    let both = |write: fn(Protocol, &mut Vec<u8>)| {
        [Protocol::Resp2, Protocol::Resp3]
            .map(|protocol| String::from_utf8(written(|out| write(protocol, out))).expect("text"))
    };
    assert_eq!(both(Protocol::put_null), ["$-1\r\n", "_\r\n"]);
    assert_eq!(both(Protocol::put_null_array), ["*-1\r\n", "_\r\n"]);
    assert_eq!(both(|protocol, out| protocol.put_boolean(out, true)), [":1\r\n", "#t\r\n"]);
    assert_eq!(both(|protocol, out| protocol.put_boolean(out, false)), [":0\r\n", "#f\r\n"]);
    assert_eq!(both(|protocol, out| protocol.put_map(out, 3)), ["*6\r\n", "%3\r\n"]);
    assert_eq!(both(|protocol, out| protocol.put_push(out, 3)), ["*3\r\n", ">3\r\n"]);
}

#[test]
fn a_field_is_found_in_a_map_of_either_version() {
    for protocol in [Protocol::Resp2, Protocol::Resp3] {
        let bytes = written(|out| {
            protocol.put_map(out, 2);
            put_bulk(out, b"holder");
            put_bulk(out, b"fence");
            put_bulk(out, b"fence");
            put_integer(out, 42);
        });
        assert_eq!(reply(&bytes).field(b"fence"), Some(Value::Integer(42)));
        assert_eq!(reply(&bytes).field(b"ttl_ms"), None);
    }
}

#[test]
fn an_error_stays_on_one_line_and_within_the_bound() {
    let bytes = written(|out| put_error(out, &"ERR unknown command 'x\r\n+OK\r\n'"));
    assert_eq!(reply(&bytes), Value::Error(b"ERR unknown command 'x  +OK  '"));
    let bytes = written(|out| put_error(out, &"ö".repeat(5000)));
    let Value::Error(text) = reply(&bytes) else { panic!("not an error") };
    assert!(core::str::from_utf8(text).is_ok_and(|text| text.chars().all(|c| c == 'ö')));
    assert!(text.len() > LINE_LEN_MAX - 8);
}

/// Any value, encoded with our own functions where there is one.
fn value(depth: u32) -> BoxedStrategy<Vec<u8>> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..12);
    let plain = prop_oneof![
        "[^\r\n]{0,9}".prop_map(|text| written(|out| put_simple(out, &text))),
        "[A-Z]{1,5} \\PC{0,9}".prop_map(|text| written(|out| put_error(out, &text))),
        any::<i64>().prop_map(|number| written(|out| put_integer(out, number))),
        any::<u64>().prop_map(|number| written(|out| put_bulk_integer(out, number))),
        bytes().prop_map(|bytes| written(|out| put_bulk(out, &bytes))),
        any::<bool>().prop_map(|is_3| written(|out| {
            if is_3 { Protocol::Resp3 } else { Protocol::Resp2 }.put_null(out);
        })),
        any::<bool>().prop_map(|yes| if yes { b"#t\r\n" } else { b"#f\r\n" }.to_vec()),
        any::<f64>().prop_map(|number| format!(",{number}\r\n").into_bytes()),
    ];
    if depth == 0 {
        return plain.boxed();
    }
    let aggregate =
        (prop::sample::select(b"*>%".to_vec()), prop::collection::vec(value(depth - 1), 0..4))
            .prop_map(|(kind, mut items)| {
                let mut count = items.len();
                if kind == b'%' {
                    count /= 2;
                    items.truncate(count * 2);
                }
                let head = format!("{}{count}\r\n", char::from(kind));
                [head.as_bytes(), &items.concat()].concat()
            });
    prop_oneof![plain, aggregate].boxed()
}

/// Visits every nested value, and counts them.
fn walk(value: Value<'_>) -> usize {
    1 + value.items().into_iter().flatten().map(walk).sum::<usize>()
}

proptest! {
    #[test]
    fn a_command_is_read_as_it_was_written(
        args in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..12),
    ) {
        let borrowed: Vec<&[u8]> = args.iter().map(Vec::as_slice).collect();
        let bytes = written(|out| put_command(out, &borrowed));
        prop_assert_eq!(request(&bytes), (args.clone(), bytes.len()));
        for cut in 0..bytes.len() {
            prop_assert!(Request::parse(&bytes[..cut]).expect("so far").is_none());
        }
        let twice = [bytes.clone(), bytes.clone()].concat();
        prop_assert_eq!(request(&twice), (args, bytes.len()));
    }

    #[test]
    fn numbers_are_read_as_they_were_written(signed in any::<i64>(), unsigned in any::<u64>()) {
        let bytes = written(|out| put_integer(out, signed));
        prop_assert_eq!(reply(&bytes), Value::Integer(signed));
        let digits = unsigned.to_string();
        let bytes = written(|out| put_bulk_integer(out, unsigned));
        prop_assert_eq!(reply(&bytes).bytes(), Some(digits.as_bytes()));
    }

    #[test]
    fn a_value_is_incomplete_up_to_its_last_byte(
        values in prop::collection::vec(value(3), 1..4),
    ) {
        let mut stream = &values.concat()[..];
        for bytes in &values {
            let (value, consumed) = Value::parse(stream).expect("sound").expect("whole");
            prop_assert_eq!(consumed, bytes.len());
            prop_assert!(walk(value) >= 1);
            for cut in 0..consumed {
                prop_assert_eq!(Value::parse(&stream[..cut]).expect("so far"), None);
            }
            stream = &stream[consumed..];
        }
    }
}
