//! Values, operators and the library, as Lua 5.1 and Redis have them.

use super::{Fault, Memory, Reply, bulk, error, run};

/// The reply of an expression. The script reads a key so that it is about a lock.
fn eval(expr: &str) -> Result<Reply, Fault> {
    let text = format!("local held = redis.call('get', KEYS[1]) return {expr}");
    run(&text, &["lock"], &["10", "b"], &mut Memory::with(&[("lock", "mine", 100)]))
}

#[test]
fn values_become_replies_as_in_redis() {
    let one = || Reply::Integer(1);
    for (expr, reply) in [
        ("nil", Reply::Nil),
        ("false", Reply::Nil),
        ("true", one()),
        ("3.99", Reply::Integer(3)),
        ("-3.99", Reply::Integer(-3)),
        ("1e300", Reply::Integer(i64::MAX)),
        ("'text'", bulk("text")),
        ("{}", Reply::Array(vec![])),
        ("{1, 'a', nil, 3}", Reply::Array(vec![one(), bulk("a")])),
        (
            "{1, false, {2}}",
            Reply::Array(vec![one(), Reply::Nil, Reply::Array(vec![Reply::Integer(2)])]),
        ),
        ("{ok = 'FINE'}", Reply::Status(b"FINE".to_vec())),
        ("{err = 'My error'}", error("My error")),
        ("redis.status_reply('FINE')", Reply::Status(b"FINE".to_vec())),
        ("redis.error_reply('HELD by another')", error("HELD by another")),
        ("redis.error_reply('held')", error("ERR held")),
        ("{name = 1}", Reply::Array(vec![])),
        ("redis.call('get', 'absent')", Reply::Nil),
        ("redis.call('get', 'absent') == false", one()),
        ("redis.call('get', 'absent') == nil", Reply::Nil),
        ("redis.call('set', KEYS[1], 'v', 'nx') == false", one()),
        ("redis.call('set', 'new', 'v', 'nx').ok", bulk("OK")),
        ("type(redis.call('set', 'new', 'v', 'nx'))", bulk("table")),
        ("redis.replicate_commands()", one()),
        ("redis.call('get', nil)", error("ERR Command arguments must be strings or integers")),
        ("redis.call('get', {})", error("ERR Command arguments must be strings or integers")),
        ("type(redis.pcall('get', ARGV[9]))", bulk("table")),
    ] {
        assert_eq!(eval(expr), Ok(reply), "{expr}");
    }
}

#[test]
fn operators_bind_as_in_lua() {
    for (expr, reply) in [
        ("tostring(1 + 2 * 3 - 4 / 2)", "5"),
        ("tostring(-2 * -3)", "6"),
        ("tostring(7 % 3) .. tostring(-7 % 3)", "12"),
        ("tostring(10 - 2 - 3)", "5"),
        ("1 .. 2 .. 'x'", "12x"),
        ("'a' .. 1 + 1", "a2"),
        ("tostring(not nil == true)", "true"),
        ("tostring(1 < 2 and 'b' > 'a' and 2 >= 2 and 1 <= 1)", "true"),
        ("false or nil or 'x'", "x"),
        ("nil and 1 or 'y'", "y"),
        ("tostring(0 and '')", ""),
        ("tostring(ARGV[1] + 5)", "15"),
        ("tostring(ARGV[1] == 10)", "false"),
        ("tostring(#'abc' + #ARGV)", "5"),
        ("tostring(1 / 0)", "inf"),
        ("tostring(2 ~= 2)", "false"),
        ("tostring(ARGV[3])", "nil"),
    ] {
        assert_eq!(eval(expr), Ok(bulk(reply)), "{expr}");
    }
}

#[test]
fn the_library_is_lua_s() {
    for (expr, reply) in [
        ("tostring(tonumber(' 0x10 '))", "16"),
        ("tostring(tonumber('ten'))", "nil"),
        ("tostring(tonumber(nil))", "nil"),
        ("tostring(math.floor(-1.5) + math.ceil(1.2))", "0"),
        ("tostring(math.min(3, 1, 2) + math.max(3, 1) + math.abs(-1))", "5"),
        ("string.sub('lock:name', 6)", "name"),
        ("string.sub('name', -2, -1) .. string.sub('name', 3, 99)", "meme"),
        ("string.sub('name', 3, 2)", ""),
        ("string.upper('a') .. string.lower('B') .. string.len('abc')", "Ab3"),
        ("string.format('%s-%d-%%', 'a', 2.9)", "a-2-%"),
        ("table.concat({1, 'b', 3}, ',')", "1,b,3"),
        (
            "type(held) .. type(1) .. type(nil) .. type({}) .. type(true)",
            "stringnumberniltableboolean",
        ),
        ("(unpack({'x', 'y'}))", "x"),
    ] {
        assert_eq!(eval(expr), Ok(bulk(reply)), "{expr}");
    }
}

#[test]
fn locals_tables_and_loops_work() {
    let text = "local held = redis.call('get', KEYS[1])
        local a, b, c = unpack(ARGV)
        local list, n = {}, 0
        for i = 3, 1, -1 do
          local fresh
          if fresh then return 'a local of the last round is seen' end
          fresh = i
          if i == 2 then list[#list + 1] = 'two' else table.insert(list, 1, fresh) end
        end
        for i = 1, 10 do if i > 4 then break end n = n + i end
        do local a = 'inner' list.inner = a end
        a, b = b, a
        list[#list + 1] = n; list[10] = 'behind a gap'
        table.insert(list, a .. b .. tostring(c) .. list.inner)
        return list";
    let mut store = Memory::default();
    let expected = [Reply::Integer(1), Reply::Integer(3), bulk("two"), Reply::Integer(10)];
    let mut expected = expected.to_vec();
    expected.push(bulk("yxnilinner"));
    assert_eq!(run(text, &["lock"], &["x", "y"], &mut store), Ok(Reply::Array(expected)));
}

#[test]
fn operations_that_do_not_fit_are_faults_with_a_line() {
    for (expr, reason) in [
        ("1 < '2'", "attempt to compare number with string"),
        ("nil + 1", "attempt to perform arithmetic on a nil value"),
        ("'a' .. nil", "attempt to concatenate a nil value"),
        ("#nil", "attempt to get length of a nil value"),
        ("held.x.y", "a table is needed, not a string value"),
        ("string.len({})", "attempt to get length of a table value"),
        ("string.sub('x', nil)", "attempt to use as an index a nil value"),
        ("math.max()", "attempt to compare a nil value"),
        ("string.format('%q', 1)", "string.format knows only %s and %d"),
        ("unpack(nil)", "a table is needed, not a nil value"),
        ("tonumber('10', 16)", "tonumber knows only the base 10"),
    ] {
        assert_eq!(eval(expr), Err(Fault::Type(format!("line 1: {reason}"))), "{expr}");
    }
}

#[test]
fn numbers_reach_a_command_with_all_digits() {
    let text = "redis.call('get', KEYS[1])
        redis.call('publish', 'c', 1763359200123456) redis.call('publish', 'c', ARGV[1] / 4)";
    let mut store = Memory::default();
    run(text, &["lock"], &["10"], &mut store).expect("a reply");
    assert_eq!(store.signals, ["publish c 1763359200123456", "publish c 2.5"]);
}
