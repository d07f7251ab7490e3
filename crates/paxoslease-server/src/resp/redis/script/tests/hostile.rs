//! Scripts that try to break the recogniser.

use proptest::prelude::*;

use super::super::{Script, fingerprint};
use super::{Fault, Memory, refusal, run, script};
use crate::resp::steps::STEPS_PER_TURN;

fn limited(body: &str) {
    let text = format!("local held = redis.call('get', KEYS[1]) {body}");
    let reply = run(&text, &["lock"], &["mine"], &mut Memory::default());
    assert_eq!(reply, Err(Fault::Limit), "{body}");
}

#[test]
fn runs_are_bounded() {
    limited("for i = 1, 1e18 do end");
    limited("for i = 2, 1, 0 do end");
    limited("local s = 'x' for i = 1, 64 do s = s .. s end");
    limited("local s = 'xxxxxxxx' for i = 1, 900 do s = s .. 'xxxxxxxxxxxxxxxx' s = s .. s end");
    limited("return redis.call('get', unpack(KEYS, 1, 1e15))");
    limited("return {unpack({}, -1e15, 1e15)}");
    limited("local t = {} for i = 1, 1e9 do t[i] = i end");
    limited("local s = {'x'} for i = 1, 20 do s = {s, s} end return s");
    limited("local t = {} t[1] = t return t");
    limited("local a, b = {}, {} a[1] = b b[1] = a return a");
    limited("for i = 1, 200 do for _, k in pairs(KEYS) do for j = 1, 200 do end end end");
}

/// Found by `bench hostile`, or by hand before there was a search: each step of these touches much.
#[test]
fn steps_count_what_a_value_touches() {
    limited(
        "local t = {} for i = 1, 900 do t[i] = i end
         for i = 1, 90 do for k in pairs(t) do break end end",
    );
    limited("local t = {} for i = 1, 1800 do table.insert(t, 1, i) end");
    let long = "7".repeat(60_000);
    for body in [
        "for i = 1, 900 do tonumber(ARGV[1]) end",
        "for i = 1, 900 do local a = ARGV[1] + 1 end",
        "for i = 1, 900 do math.max(1, ARGV[1]) end",
        "local t = {} for i = 1, 900 do t[ARGV[1]] = 1 end",
        "local other = string.sub(ARGV[1], 2) for i = 1, 900 do local a = other < ARGV[1] end",
        "for i = 1, 900 do redis.call('publish', KEYS[1], ARGV[1]) end",
        "for i = 1, 900 do string.lower(ARGV[1]) end",
    ] {
        let text = format!("local held = redis.call('get', KEYS[1]) {body}");
        let run = script(&text).run(&[b"lock"], &[long.as_bytes()], &mut Memory::default());
        assert_eq!(run.outcome, Err(Fault::Limit), "{body}");
        assert!(run.steps <= STEPS_PER_TURN + long.len(), "{body}: {} steps", run.steps);
    }
}

#[test]
fn the_tree_of_a_script_is_bounded() {
    let elements = "1,".repeat(1200);
    let calls = format!("{}{}", "c('lpush',a) ".repeat(480), "c('get',b) ".repeat(480));
    let text =
        format!("local c=redis.call local a={{{elements}1}} local b={{{elements}2}} {calls}");
    assert_eq!(refusal(&text), "line 1: the script has more than 2048 tokens");
    for (text, reason) in [
        ("c('get', KEYS[1]) ".repeat(65), "there are commands on more than 64 keys"),
        (
            (1..18).map(|key| format!("c('get', KEYS[{key}]) ")).collect(),
            "the script is about more than 16 keys by name",
        ),
        (
            format!("local a = {{{}}} c('get', a)", "1,".repeat(40)),
            "the expression of a key has more than 32 parts",
        ),
        ("local d = redis.call ".repeat(64), "there are more than 64 locals"),
    ] {
        let text = format!("local c = redis.call {text}");
        assert_eq!(refusal(&text), format!("line 1: {reason}"));
    }
}

#[test]
fn a_fingerprint_of_long_numbers_is_short() {
    let numbers = "1e300 ".repeat(2000);
    let tokens = super::super::token::tokens(numbers.as_bytes(), 2048).expect("numbers");
    assert_eq!(super::super::token::normal_form(&tokens).len(), numbers.len());
}

#[test]
fn depth_is_bounded() {
    for text in [
        format!("return {}1{}", "(".repeat(600), ")".repeat(600)),
        format!("return {}1{}", "{".repeat(600), "}".repeat(600)),
        format!("return {}1", "- ".repeat(600)),
        format!("return {}1", "not ".repeat(600)),
        format!("return {}1", "1 + ".repeat(600)),
        format!("return {}1", "1 .. ".repeat(600)),
        format!("return KEYS{}", "[1]".repeat(600)),
        format!("return KEYS{}", ".a".repeat(600)),
        format!("return {}1{}", "tonumber(".repeat(400), ")".repeat(400)),
    ] {
        assert_eq!(refusal(&text), "line 1: an expression has over 64 operators");
    }
    for text in [
        format!("{} {}", "if true then ".repeat(300), "end ".repeat(300)),
        format!("{} {}", "do ".repeat(600), "end ".repeat(600)),
        format!("{} {}", "for i = 1, 2 do ".repeat(200), "end ".repeat(200)),
    ] {
        assert_eq!(refusal(&text), "line 1: blocks are nested deeper than 16");
    }
    assert_eq!(refusal(&"local a ".repeat(900)), "line 1: there are more than 64 locals");
    assert_eq!(
        refusal(&" ".repeat(16 * 1024 + 1)),
        "line 1: the script is longer than 16384 bytes"
    );
}

#[test]
fn the_deepest_script_runs_on_a_small_stack() {
    let deep = format!("{}1{}", "{".repeat(62), "}".repeat(62));
    let blocks = 15;
    let text = format!(
        "{} redis.call('get', KEYS[1]) local a = {deep} {}",
        "for i = 1, 1 do ".repeat(blocks),
        "end ".repeat(blocks)
    );
    let ran = std::thread::Builder::new().stack_size(1 << 20).spawn(move || {
        let recognised = script(&text);
        recognised.run(&[b"lock"], &[], &mut Memory::default()).outcome.expect("a reply")
    });
    ran.expect("a thread").join().expect("the stack is large enough");
}

#[test]
fn a_check_of_nested_loops_takes_no_time() {
    let text = format!(
        "{} redis.call('get', KEYS[1]) {}",
        "for i = 1, 2 do ".repeat(15),
        "end ".repeat(15)
    );
    script(&text);
}

#[test]
fn odd_keys_of_tables_do_not_break() {
    let text = "local t = {} local held = redis.call('get', KEYS[1])
        t[0] = 1 t[-1] = 2 t[1.5] = 3 t[1e300] = 4 t[true] = 5 t[-0] = 6 t[2] = 7 t[1] = 8
        t[1] = nil t[2] = nil
        return {t[0], t[-1], t[1.5], t[1e300], t[true], #t}";
    let reply = run(text, &["lock"], &[], &mut Memory::default()).expect("a reply");
    let expected = [6, 2, 3, 4, 5, 0].map(super::Reply::Integer).to_vec();
    assert_eq!(reply, super::Reply::Array(expected));
    for key in ["nil", "0/0"] {
        let text = format!("local held, t = redis.call('get', KEYS[1]), {{}} t[{key}] = 1");
        assert!(run(&text, &["lock"], &[], &mut Memory::default()).is_err());
    }
}

const WORDS: [&str; 48] = [
    "if",
    "then",
    "else",
    "elseif",
    "end",
    "for",
    "in",
    "do",
    "local",
    "return",
    "break",
    "and",
    "or",
    "not",
    "nil",
    "true",
    "a",
    "b",
    "KEYS[1]",
    "ARGV[1]",
    "KEYS",
    "redis.call('get',",
    "(",
    ")",
    "{",
    "}",
    "[",
    "]",
    ",",
    ";",
    "=",
    "==",
    "~=",
    "<",
    "+",
    "-",
    "..",
    "#",
    "%",
    "1",
    "0x1",
    "'s'",
    "ipairs(",
    "unpack(",
    "redis.pcall('set',",
    "'NX'",
    "tonumber(",
    "table.insert(",
];

proptest! {
    #[test]
    fn no_bytes_break_the_recogniser(text in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Script::recognise(&text);
        prop_assert_eq!(fingerprint(&text).len(), 40);
    }

    #[test]
    fn no_words_break_a_run(
        words in prop::collection::vec(prop::sample::select(&WORDS[..]), 0..30)
    ) {
        let words = words.join(" ");
        let text = format!("local a = redis.call('get', KEYS[1]) local b = {{}} {words}");
        if let Ok(script) = Script::recognise(text.as_bytes()) {
            let _ = script.run(&[b"lock"], &[b"mine"], &mut Memory::default());
        }
    }
}
