//! Values, operators and the library, as Lua 5.1 and Redis have them.

use super::{Memory, Reply, bulk, error, run};

/// The reply of an expression.
fn eval(expr: &str) -> Reply {
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
        ("{unpack({1, 2}), unpack({3, 4})}", Reply::Array([1, 3, 4].map(Reply::Integer).to_vec())),
        ("{(unpack({1, 2}))}", Reply::Array(vec![one()])),
        ("tostring", Reply::Nil),
    ] {
        assert_eq!(eval(expr), reply, "{expr}");
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
        ("tostring(1 < 2 and 3 > 2 and 2 >= 2 and 1 <= 1)", "true"),
        ("false or nil or 'x'", "x"),
        ("nil and 1 or 'y'", "y"),
        ("tostring(0 and '')", ""),
        ("tostring(ARGV[1] + 5)", "15"),
        ("tostring(ARGV[1] == 10)", "false"),
        ("tostring(#'abc' + #ARGV)", "5"),
        ("tostring(2 ~= 2)", "false"),
        ("tostring(ARGV[3])", "nil"),
    ] {
        assert_eq!(eval(expr), bulk(reply), "{expr}");
    }
}

#[test]
fn the_library_is_lua_s() {
    for (expr, reply) in [
        ("tostring(tonumber(' 0x10 '))", "16"),
        ("tostring(tonumber('-2.5e1'))", "-25"),
        ("tostring(tonumber('.5') * 2)", "1"),
        ("tostring(tonumber(nil))", "nil"),
        ("tostring(99999999999999)", "99999999999999"),
        ("string.sub('lock:name', 6)", "name"),
        ("string.sub('name', -2, -1) .. string.sub('name', 3, 99)", "meme"),
        ("string.sub('name', 3, 2) .. string.sub('', 1) .. string.sub('name', 9)", ""),
        ("string.sub('name', -9, 2)", "na"),
        ("type(held) .. type(1) .. type(nil) .. type({})", "stringnumberniltable"),
        ("type(true) .. type(type)", "booleanfunction"),
    ] {
        assert_eq!(eval(expr), bulk(reply), "{expr}");
    }
    for text in ["", " ", "1 2", "ten", "1x", "nan", "inf", "0x", "0x+1", "--1", "+1", ".", "1_0"] {
        assert_eq!(eval(&format!("tonumber('{text}') or 'none'")), bulk("none"), "{text}");
    }
}

#[test]
fn locals_tables_and_loops_work() {
    let text = "local a, b, c = unpack(ARGV)
        local list, n = {}, 0
        for i = 3, 1, -1 do
          local fresh
          if fresh then return 'a local of the last round is seen' end
          fresh = i
          if i == 2 then list[#list + 1] = 'two' else table.insert(list, fresh) end
        end
        for i = 1, 10 do if i > 4 then break end n = n + i end
        local named = {inner = 'x'}
        if true then local a = 'inner' named.inner = a end
        a, b = b, a
        list[#list + 1] = n
        for k, v in pairs(list) do n = n .. ',' .. k .. '=' .. v end
        for i in ipairs({true, nil, true}) do n = n .. i end
        table.insert(list, a .. b .. tostring(c) .. named.inner .. n)
        return list";
    let mut expected = vec![Reply::Integer(3), bulk("two"), Reply::Integer(1), Reply::Integer(10)];
    expected.push(bulk("yxnilinner10,1=3,2=two,3=1,4=101"));
    let reply = run(text, &["lock"], &["x", "y"], &mut Memory::default());
    assert_eq!(reply, Reply::Array(expected));
}

#[test]
fn operations_that_do_not_fit_are_errors_with_a_line() {
    let unwritten = "a number is written only if it is whole and has at most 14 digits";
    for (expr, reason) in [
        ("1 < '2'", "attempt to compare number with string"),
        ("'a' < 'b'", "attempt to compare string with string"),
        ("nil + 1", "attempt to perform arithmetic on a nil value"),
        ("'a' .. nil", "attempt to concatenate a nil value"),
        ("#nil", "attempt to index a nil value"),
        ("held.x.y", "attempt to index a string value"),
        ("held()", "attempt to call a string value"),
        ("string.sub('x', nil)", "attempt to perform arithmetic on a nil value"),
        ("unpack(nil)", "attempt to index a nil value"),
        ("unpack({1}, 1, 2)", "unpack takes one table"),
        ("tonumber('10', 16)", "tonumber takes one value"),
        ("table.insert({}, 1, 2)", "table.insert takes a table and a value"),
        ("tostring(2.5)", unwritten),
        ("tostring(1 / 0)", unwritten),
        ("1e14 .. ''", unwritten),
        ("redis.call('publish', 'c', ARGV[1] / 4)", unwritten),
        ("redis.call('get', nil)", "attempt to concatenate a nil value"),
    ] {
        assert_eq!(eval(expr), error(&format!("ERR line 1: {reason}")), "{expr}");
    }
}
