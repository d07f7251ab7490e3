//! Scripts in the ways that lock libraries write them, on a small store.

use std::collections::BTreeMap;

use super::{Reply, Script, Store, sha1_hex};

mod hostile;
mod values;

/// A store of keys with a value and milliseconds to live, -1 for no end.
#[derive(Debug, Default, Clone, PartialEq)]
struct Memory {
    keys: BTreeMap<Vec<u8>, (Vec<u8>, i64)>,
    signals: Vec<String>,
}

impl Memory {
    fn with(keys: &[(&str, &str, i64)]) -> Self {
        let held = |&(key, value, ttl): &(&str, &str, i64)| {
            (key.as_bytes().to_vec(), (value.as_bytes().to_vec(), ttl))
        };
        Self { keys: keys.iter().map(held).collect(), signals: Vec::new() }
    }

    fn holds(&self, key: &str) -> Option<(&str, i64)> {
        let (value, ttl) = self.keys.get(key.as_bytes())?;
        Some((std::str::from_utf8(value).expect("the tests set text"), *ttl))
    }

    fn set(&mut self, command: &[&[u8]]) -> Reply {
        let (mut ttl, mut only_absent) = (-1, false);
        let mut options = command[3..].iter();
        while let Some(option) = options.next() {
            match option.to_ascii_lowercase().as_slice() {
                b"nx" => only_absent = true,
                b"px" => ttl = integer(options.next().expect("a time")),
                _ => return error("ERR syntax error"),
            }
        }
        if only_absent && self.keys.contains_key(command[1]) {
            return Reply::Nil;
        }
        self.keys.insert(command[1].to_vec(), (command[2].to_vec(), ttl));
        Reply::Status(b"OK".to_vec())
    }
}

fn integer(text: &[u8]) -> i64 {
    std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).expect("an integer")
}

fn error(text: &str) -> Reply {
    Reply::Error(text.as_bytes().to_vec())
}

fn bulk(text: &str) -> Reply {
    Reply::Bulk(text.as_bytes().to_vec())
}

impl Store for Memory {
    fn call(&mut self, command: &[&[u8]]) -> Reply {
        let [name, key, ..] = command else { return error("ERR wrong number of arguments") };
        let get =
            |key: &[u8]| self.keys.get(key).map_or(Reply::Nil, |(v, _)| Reply::Bulk(v.clone()));
        match name.to_ascii_lowercase().as_slice() {
            b"get" if *key == b"broken" => error("WRONGTYPE this is broken"),
            b"get" => get(key),
            b"mget" => Reply::Array(command[1..].iter().map(|key| get(key)).collect()),
            b"exists" => Reply::Integer(self.keys.contains_key(*key).into()),
            b"pttl" => Reply::Integer(self.keys.get(*key).map_or(-2, |(_, ttl)| *ttl)),
            b"set" => self.set(command),
            b"setnx" => match self.set(&[b"set", key, command[2], b"nx"]) {
                Reply::Nil => Reply::Integer(0),
                _ => Reply::Integer(1),
            },
            b"del" | b"unlink" => {
                let removed = command[1..].iter().filter(|key| self.keys.remove(**key).is_some());
                Reply::Integer(i64::try_from(removed.count()).expect("few"))
            }
            b"pexpire" => match self.keys.get_mut(*key) {
                Some((_, ttl)) => {
                    *ttl = integer(command[2]);
                    Reply::Integer(1)
                }
                None => Reply::Integer(0),
            },
            _ => {
                self.signals.push(String::from_utf8_lossy(&command.join(&b' ')).into_owned());
                Reply::Integer(1)
            }
        }
    }
}

fn script(text: &str) -> Script {
    Script::parse(text.as_bytes()).unwrap_or_else(|reason| panic!("{reason}\n{text}"))
}

fn refusal(text: &str) -> String {
    Script::parse(text.as_bytes()).expect_err(text).to_string()
}

fn run(text: &str, keys: &[&str], args: &[&str], store: &mut Memory) -> Reply {
    let keys: Vec<&[u8]> = keys.iter().map(|key| key.as_bytes()).collect();
    let args: Vec<&[u8]> = args.iter().map(|arg| arg.as_bytes()).collect();
    script(text).run(&keys, &args, store).reply
}

/// What a script about the key `lock` replies to `mine` if the key is absent, mine or another's,
/// and what the key holds then.
fn outcomes(text: &str) -> [(Reply, Option<(String, i64)>); 3] {
    [&[][..], &[("lock", "mine", 100)], &[("lock", "other", 100)]].map(|keys| {
        let mut store = Memory::with(keys);
        let reply = run(text, &["lock"], &["mine", "500"], &mut store);
        (reply, store.holds("lock").map(|(value, ttl)| (value.to_owned(), ttl)))
    })
}

fn held(value: &str, ttl: i64) -> Option<(String, i64)> {
    Some((value.to_owned(), ttl))
}

#[test]
fn a_release_deletes_only_what_the_caller_holds() {
    for text in [
        "if redis.call('get', KEYS[1]) == ARGV[1] then
           return redis.call('del', KEYS[1]) end return 0",
        "if ARGV[1] ~= redis.call(\"GET\",KEYS[1]) then return 0 end
         return redis.call(\"UNLINK\",KEYS[1])",
        "local k, v = KEYS[1], ARGV[1]; local now = redis.call('get', k);
         if not now or now ~= v then return 0; else redis.call('del', k); return 1; end",
        "return redis.call('get', KEYS[1]) == ARGV[1] and redis.call('del', KEYS[1]) or 0",
        "--[[ a\nrelease ]] local call = redis.call -- short\nlocal done = 0
         if call([[get]], KEYS[1]) == ARGV[1] then done = call('del', KEYS[1]) end return done",
        "local held = redis.pcall('get', KEYS[1])
         if type(held) == 'string' and held == ARGV[1] then redis.call('del', KEYS[1]) return true
         elseif held then return 0 else return 0 end",
    ] {
        let expected = [
            (Reply::Integer(0), None),
            (Reply::Integer(1), None),
            (Reply::Integer(0), held("other", 100)),
        ];
        assert_eq!(outcomes(text), expected, "{text}");
    }
}

#[test]
fn a_release_may_tell_an_absent_key_from_anothers() {
    let text = "local v = redis.call('get', KEYS[1])
        if v == ARGV[1] then return redis.call('del', KEYS[1])
        elseif v == false then return -1 else return 0 end";
    let replies = outcomes(text).map(|(reply, _)| reply);
    assert_eq!(replies, [Reply::Integer(-1), Reply::Integer(1), Reply::Integer(0)]);
}

#[test]
fn an_extension_may_add_to_the_rest_of_the_time() {
    let text = "if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end
        local rest = redis.call('pttl', KEYS[1])
        if rest < 0 then return 0 end
        return redis.call('pexpire', KEYS[1], rest + ARGV[2])";
    let expected = [
        (Reply::Integer(0), None),
        (Reply::Integer(1), held("mine", 600)),
        (Reply::Integer(0), held("other", 100)),
    ];
    assert_eq!(outcomes(text), expected);
    let mut endless = Memory::with(&[("lock", "mine", -1)]);
    assert_eq!(run(text, &["lock"], &["mine", "500"], &mut endless), Reply::Integer(0));
    assert_eq!(endless.holds("lock"), Some(("mine", -1)));
}

#[test]
fn an_owner_that_sets_again_extends() {
    let text = "if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 else
        if redis.call('set', KEYS[1], ARGV[1], 'PX', tonumber(ARGV[2])) ~= nil then return 1 end
        end";
    assert_eq!(outcomes(text)[1], (Reply::Integer(1), held("mine", 500)));
}

#[test]
fn an_acquire_sets_an_absent_key() {
    let ok = || Reply::Status(b"OK".to_vec());
    for (text, absent, mine) in [
        ("return redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])", ok(), Reply::Nil),
        (
            "local set = redis.call('setnx', KEYS[1], ARGV[1])
             if set == 1 then redis.call('pexpire', KEYS[1], ARGV[2]) end return set",
            Reply::Integer(1),
            Reply::Integer(0),
        ),
        (
            "local v = redis.call('get', KEYS[1])
             if not v or v == ARGV[1] then
               return redis.call('set', KEYS[1], ARGV[1], 'px', ARGV[2])
             else return redis.error_reply('HELD by another') end",
            ok(),
            ok(),
        ),
        (
            "local words = {KEYS[1], ARGV[1], 'NX'}
             if tonumber(ARGV[2]) > 0 then
               table.insert(words, 'PX') table.insert(words, ARGV[2])
             end
             if redis.call('SET', unpack(words)) then return 1
             elseif redis.call('GET', KEYS[1]) == ARGV[1] then return 2 end return {err='HELD x'}",
            Reply::Integer(1),
            Reply::Integer(2),
        ),
    ] {
        let [when_absent, when_mine, when_other] = outcomes(text);
        assert_eq!(when_absent, (absent, held("mine", 500)), "{text}");
        assert_eq!(when_mine.0, mine, "{text}");
        assert_eq!(when_other.1, held("other", 100), "{text}");
    }
}

#[test]
fn several_keys_are_taken_and_released_at_once() {
    let take = "for i, key in ipairs(KEYS) do
          if redis.call('exists', key) == 1 then return {0, i, key} end
        end
        for i = 1, #KEYS do redis.call('set', KEYS[i], ARGV[1], 'PX', ARGV[#ARGV]) end
        return {1, #KEYS}";
    let give = "local count = 0
        for _, key in pairs(KEYS) do
          if redis.call('get', key) == ARGV[1] then count = count + redis.pcall('del', key) end
        end
        return count";
    let check = "local values = redis.call('mget', unpack(KEYS))
        for i, _ in ipairs(KEYS) do if values[i] ~= ARGV[1] then return false end end
        redis.call('del', unpack(KEYS)) return redis.status_reply('OK')";
    let mut store = Memory::default();
    let taken = Reply::Array(vec![Reply::Integer(1), Reply::Integer(2)]);
    assert_eq!(run(take, &["a", "b"], &["mine", "9"], &mut store), taken);
    assert_eq!((store.holds("a"), store.holds("b")), (Some(("mine", 9)), Some(("mine", 9))));
    let busy = Reply::Array(vec![Reply::Integer(0), Reply::Integer(2), bulk("b")]);
    assert_eq!(run(take, &["c", "b"], &["mine", "9"], &mut store), busy);
    assert_eq!(run(check, &["a", "b"], &["other"], &mut store), Reply::Nil);
    assert_eq!(run(give, &["a", "c"], &["mine"], &mut store), Reply::Integer(1));
    let ok = Reply::Status(b"OK".to_vec());
    assert_eq!(run(check, &["b"], &["mine"], &mut store), ok);
    assert_eq!(store, Memory::default());
}

#[test]
fn a_read_tells_the_rest_of_the_time() {
    let text = "local v = redis.call('get', KEYS[1]) if not v then return nil end
        return {v, redis.call('pttl', KEYS[1]), v == ARGV[1]}";
    let shown = |value, own| Reply::Array(vec![bulk(value), Reply::Integer(100), own]);
    let replies = outcomes(text).map(|(reply, _)| reply);
    let expected = [Reply::Nil, shown("mine", Reply::Integer(1)), shown("other", Reply::Nil)];
    assert_eq!(replies, expected);
}

#[test]
fn a_release_may_wake_waiters() {
    let text = "if redis.call('get', KEYS[1]) ~= ARGV[1] then return 1 end
        redis.call('del', KEYS[2])
        redis.call('lpush', KEYS[2], 1) redis.call('ltrim', KEYS[2], 0, 0)
        redis.call('pexpire', KEYS[2], 1000)
        redis.call('publish', 'gone:' .. KEYS[1], ARGV[1])
        redis.call('del', KEYS[1]) return 0";
    let mut store = Memory::with(&[("lock", "mine", 100)]);
    assert_eq!(run(text, &["lock", "wake"], &["mine"], &mut store), Reply::Integer(0));
    let signals = ["lpush wake 1", "ltrim wake 0 0", "publish gone:lock mine"];
    assert_eq!(store.signals, signals);
}

#[test]
fn what_is_not_understood_is_refused_with_a_reason() {
    for (text, reason) in [
        ("while true do end", "`while` is not understood here"),
        ("repeat until true", "`repeat` is not understood here"),
        ("local function f() end", "`function` is not understood here"),
        ("owner = 1", "`owner` is neither a local nor a known function"),
        ("local a = cjson.decode('1')", "`cjson.decode` is neither a local nor a known function"),
        ("local a = redis", "`redis` is neither a local nor a known function"),
        ("local a = ('x'):rep(9)", "the character `:` is not understood"),
        ("local a = 2 ^ 9", "the character `^` is not understood"),
        ("return 1, 2", "`,` is not understood here"),
        ("return 1 return 2", "`return` is not understood here"),
        ("1 = 2", "this number is not understood here"),
        ("tonumber = 2", "`=` is not understood here"),
        ("KEYS[1]", "the script ends too early"),
        ("if redis.call('get', KEYS[1])", "the script ends too early"),
        ("return 'x", "this string has no end"),
        ("return '\\065'", "this escape is not understood"),
        ("return [[x", "this long string or comment has no end"),
        ("return 1e", "this number is malformed"),
        ("for k in next, KEYS do end", "`for` runs only over `pairs(..)` and `ipairs(..)`"),
    ] {
        assert_eq!(refusal(text), format!("line 1: {reason}"), "{text}");
    }
    let text = [b"return '".as_slice(), b"\xff'"].concat();
    let refused = Script::parse(&text).expect_err("a byte alone");
    assert_eq!(refused.to_string(), "line 1: this is not UTF-8");
}

#[test]
fn an_unknown_command_ends_a_run() {
    let unknown = "ERR line 2: the command `incr` is not known in a script";
    for text in [
        "redis.call('set', KEYS[1], 1)\nreturn redis.call('incr', KEYS[1])",
        "redis.call('set', KEYS[1], 1)\nreturn redis.pcall(ARGV[1], KEYS[1])",
    ] {
        assert_eq!(run(text, &["lock"], &["incr"], &mut Memory::default()), error(unknown));
    }
}

#[test]
fn an_error_ends_a_call_and_is_the_value_of_a_protected_call() {
    let broken = error("WRONGTYPE this is broken");
    let mut store = Memory::default();
    let call = "redis.call('get', KEYS[1]) return 1";
    assert_eq!(run(call, &["broken"], &[], &mut store), broken.clone());
    let pcall = "local r = redis.pcall('get', KEYS[1]) if r.err then return {r.err} end";
    let value = Reply::Array(vec![bulk("WRONGTYPE this is broken")]);
    assert_eq!(run(pcall, &["broken"], &[], &mut store), value);
    let back = "return redis.pcall('get', KEYS[1])";
    assert_eq!(run(back, &["broken"], &[], &mut store), broken);
}

#[test]
fn a_script_goes_by_its_sha1() {
    assert_eq!(sha1_hex(b"return 1"), "e0e1f9fabfc9d4800c877a703b823ac0578ff8db");
}
