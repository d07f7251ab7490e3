//! RESP: requests and replies decode to what was written, from streams cut anywhere; malformed
//! input is refused.

use paxoslease_wire::resp::{
    ARGUMENTS_MAX, DEPTH_MAX, LINE_LEN_MAX, Protocol, REPLY_LEN_MAX, REQUEST_LEN_MAX, Request,
    RespError as E, Value, put_bulk, put_bulk_integer, put_command, put_error, put_integer,
    put_simple,
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
fn an_array_of_strings_is_a_request() {
    let bytes = b"*3\r\n$13\r\nLEASE.RELEASE\r\n$4\r\na\r\nb\r\n$0\r\n\r\n*1\r\n";
    let args = [b"LEASE.RELEASE".to_vec(), b"a\r\nb".to_vec(), b"".to_vec()];
    assert_eq!(request(bytes), (args.to_vec(), bytes.len() - 4));
}

#[test]
fn a_line_of_words_is_a_request() {
    let args = [b"lease.get".to_vec(), b"a/b".to_vec()];
    assert_eq!(request(b"  lease.get \t a/b \r\nPING"), (args.to_vec(), 20));
    assert_eq!(request(b"lease.get a/b\nPING\n"), (args.to_vec(), 14));
}

#[test]
fn an_empty_request_asks_nothing() {
    for bytes in [&b"*0\r\n"[..], b"*-1\r\n", b"\r\n", b"\n", b"  \r\n"] {
        assert_eq!(request(bytes), (vec![], bytes.len()), "{bytes:?}");
    }
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
fn the_error_says_what_is_wrong_with_a_request() {
    let error = |bytes: &[u8]| Request::parse(bytes).expect_err("broken");
    assert_eq!(error(b"*1\r\n:1\r\n"), E::UnexpectedType { expected: b'$', found: b':' });
    assert_eq!(error(b"*x"), E::Number);
    assert_eq!(error(b"*\r\n"), E::Number);
    assert_eq!(error(b"*1\r$"), E::Unterminated);
    assert_eq!(error(b"*1\r\n$-1\r\n"), E::Length(-1));
    assert_eq!(error(b"*1\r\n$-7\r\n"), E::Length(-7));
    assert_eq!(error(b"*1\r\n$1\r\nab"), E::Unterminated);
    assert_eq!(error(b"*99999999999999999999\r\n"), E::Number);
    assert_eq!(error(b"*0000000000000000000000000"), E::Number);
}

#[test]
fn a_value_over_a_bound_is_refused_before_it_is_buffered() {
    let error = |bytes: &[u8]| Request::parse(bytes).expect_err("over a bound");
    let max = REQUEST_LEN_MAX;
    assert_eq!(error(b"*1\r\n$65536\r\n"), E::TooLong(max));
    assert_eq!(error(b"*1\r\n$9223372036854775807\r\n"), E::TooLong(max));
    assert_eq!(error(b"*1025\r\n"), E::TooManyArguments);
    let two = [b"*2\r\n$60000\r\n".to_vec(), vec![b'x'; 60_000], b"\r\n$6000\r\n".to_vec()];
    assert_eq!(error(&two.concat()), E::TooLong(max));
    assert_eq!(error(&[b'x'; LINE_LEN_MAX]), E::LineTooLong);
    let words = [b"x ".repeat(ARGUMENTS_MAX + 1), b"\n".to_vec()].concat();
    assert_eq!(error(&words), E::TooManyArguments);
    let value = |bytes: &[u8]| Value::parse(bytes).expect_err("over a bound");
    let max = REPLY_LEN_MAX;
    assert_eq!(value(b"$4194304\r\n"), E::TooLong(max));
    assert_eq!(value(b"*9223372036854775807\r\n"), E::TooLong(max));
    assert_eq!(value(&[b'+'; LINE_LEN_MAX + 1]), E::LineTooLong);
}

#[test]
fn the_largest_requests_fit() {
    let head = b"*1\r\n$65522\r\n".to_vec();
    let whole = [head, vec![b'x'; 65_522], b"\r\n".to_vec()].concat();
    assert_eq!(request(&whole).1, whole.len());
    assert_eq!(whole.len(), REQUEST_LEN_MAX);
    let many = written(|out| put_command(out, &vec![&b""[..]; ARGUMENTS_MAX]));
    assert_eq!(request(&many).1, many.len());
}

#[test]
fn every_kind_of_value_is_read() {
    assert_eq!(reply(b"+OK\r\n"), Value::Simple(b"OK"));
    assert_eq!(reply(b"-ERR no\r\n"), Value::Error(b"ERR no"));
    assert_eq!(reply(b"!6\r\nERR\r\n!\r\n"), Value::Error(b"ERR\r\n!"));
    assert_eq!(reply(b":-9223372036854775808\r\n"), Value::Integer(i64::MIN));
    assert_eq!(reply(b":+7\r\n"), Value::Integer(7));
    assert_eq!(reply(b"$2\r\n\r\n\r\n"), Value::Bulk(b"\r\n"));
    for null in [&b"$-1\r\n"[..], b"*-1\r\n", b"_\r\n"] {
        assert_eq!(reply(null), Value::Null);
    }
    assert_eq!(reply(b"#t\r\n"), Value::Boolean(true));
    assert_eq!(reply(b"#f\r\n"), Value::Boolean(false));
    assert_eq!(reply(b",-1.5e3\r\n"), Value::Double(-1500.0));
    assert_eq!(reply(b",inf\r\n"), Value::Double(f64::INFINITY));
    assert!(matches!(reply(b">0\r\n"), Value::Push(items) if items.len() == 0));
}

#[test]
fn aggregates_nest_and_the_next_value_is_found() {
    let value = reply(b"*3\r\n*2\r\n:1\r\n%1\r\n+k\r\n*0\r\n:2\r\n$1\r\nx\r\n");
    let items: Vec<Value<'_>> = value.items().expect("an array").collect();
    assert_eq!(items[1..], [Value::Integer(2), Value::Bulk(b"x")]);
    let inner: Vec<Value<'_>> = items[0].items().expect("an array").collect();
    assert_eq!(inner[0].integer(), Some(1));
    assert_eq!(inner[1].field(b"k").and_then(Value::items).map(|items| items.len()), Some(0));
    let at_the_bound = [b"*1\r\n".repeat(DEPTH_MAX), b":1\r\n".to_vec()].concat();
    assert!(matches!(reply(&at_the_bound), Value::Array(_)));
    let beyond = [b"*1\r\n".repeat(DEPTH_MAX + 1), b":1\r\n".to_vec()].concat();
    assert_eq!(Value::parse(&beyond), Err(E::TooDeep));
}

#[test]
fn the_error_says_what_is_wrong_with_a_value() {
    let error = |bytes: &[u8]| Value::parse(bytes).expect_err("broken");
    assert_eq!(error(b"?"), E::UnknownType(b'?'));
    assert_eq!(error(b"+a\nb\r\n"), E::Unterminated);
    assert_eq!(error(b"#yes\r\n"), E::Boolean);
    assert_eq!(error(b",1.5x\r\n"), E::Number);
    for kind in b"(=~" {
        assert_eq!(error(&[*kind]), E::UnknownType(*kind), "no node sends it");
    }
    assert_eq!(error(b"*-2\r\n"), E::Length(-2));
    assert_eq!(error(b"_x"), E::Unterminated);
    assert_eq!(error(b":9223372036854775808\r\n"), E::Number);
    assert_eq!(E::UnknownType(0).to_string(), "unknown type '\\x00'");
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
