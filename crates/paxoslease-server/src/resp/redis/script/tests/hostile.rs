//! Scripts that try to take too much, or to break the evaluation.

use proptest::prelude::*;

use super::super::Script;
use super::{Memory, Reply, bulk, error, refusal, run, script};
use crate::resp::steps::STEPS_PER_TURN;

const TOO_MANY_STEPS: &str = "ERR the script takes too many steps";

fn limited(body: &str) {
    let text = format!("local held = redis.call('get', KEYS[1]) {body}");
    let reply = run(&text, &["lock"], &["mine"], &mut Memory::default());
    assert_eq!(reply, error(TOO_MANY_STEPS), "{body}");
}

#[test]
fn runs_are_bounded() {
    limited("for i = 1, 1e18 do end");
    limited("for i = 2, 1, 0 do end");
    limited("local s = 'x' for i = 1, 64 do s = s .. s end");
    limited("local s = 'xxxxxxxx' for i = 1, 900 do s = s .. 'xxxxxxxxxxxxxxxx' s = s .. s end");
    limited("local t = {} for i = 1, 1e9 do t[i] = i end");
    limited("local s = {'x'} for i = 1, 14 do s = {s, s} end return s");
    limited("for i = 1, 200 do for _, k in pairs(KEYS) do for j = 1, 200 do end end end");
}

/// Found by `bench hostile`, or by hand before there was a search: each step of these touches much.
#[test]
fn steps_count_what_a_value_touches() {
    limited(
        "local t = {} for i = 1, 900 do table.insert(t, i) end
         for i = 1, 90 do local a = unpack(t) end",
    );
    let long = "7".repeat(60_000);
    for body in [
        "for i = 1, 900 do tonumber(ARGV[1]) end",
        "for i = 1, 900 do local a = ARGV[1] + 1 end",
        "local t = {} for i = 1, 900 do t[ARGV[1]] = 1 end",
        "local other = ARGV[1] .. 'x' for i = 1, 900 do local a = other == ARGV[1] end",
        "for i = 1, 900 do redis.call('publish', KEYS[1], ARGV[1]) end",
        "for i = 1, 900 do local a = ARGV[1] .. 'x' end",
        "for i = 1, 900 do redis.status_reply(ARGV[1]) end",
        "local t = {ARGV[1], ARGV[1], ARGV[1], ARGV[1]} return t",
    ] {
        let text = format!("local held = redis.call('get', KEYS[1]) {body}");
        let run = script(&text).run(&[b"lock"], &[long.as_bytes()], &mut Memory::default());
        assert_eq!(run.reply, error(TOO_MANY_STEPS), "{body}");
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
    let text = format!("return {{{}1}}", "KEYS[1],".repeat(65));
    assert_eq!(refusal(&text), "line 1: an expression has over 64 operators");
    assert_eq!(refusal(&"local a ".repeat(63)), "line 1: there are more than 64 locals");
}

#[test]
fn tables_that_contain_themselves_are_not_replied() {
    for text in ["local t = {} t[1] = t return t", "local a, b = {}, {} a[1] = b b[1] = a return a"]
    {
        let reply = run(text, &[], &[], &mut Memory::default());
        assert_eq!(reply, error("ERR line 1: tables of the reply are nested too deep"));
    }
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
        format!("{} {}", "for i = 1, 2 do ".repeat(200), "end ".repeat(200)),
    ] {
        assert_eq!(refusal(&text), "line 1: blocks are nested deeper than 16");
    }
    assert_eq!(
        refusal(&" ".repeat(16 * 1024 + 1)),
        "line 1: the script is longer than 16384 bytes"
    );
}

#[test]
fn the_deepest_script_runs_on_a_small_stack() {
    for deep in [
        format!("{}1{}", "{".repeat(64), "}".repeat(64)),
        format!("{}1", "not ".repeat(64)),
        format!("{}1", "1 + ".repeat(64)),
        format!("{}'x'", "'x' .. ".repeat(64)),
        format!("{}1{}", "tonumber(".repeat(64), ")".repeat(64)),
    ] {
        let blocks = 15;
        let text = format!(
            "{} local a = {deep} {} return 'done'",
            "for i = 1, 1 do ".repeat(blocks),
            "end ".repeat(blocks)
        );
        let ran = std::thread::Builder::new()
            .stack_size(1 << 20)
            .spawn(move || run(&text, &["lock"], &[], &mut Memory::default()));
        let reply = ran.expect("a thread").join().expect("the stack is large enough");
        assert_eq!(reply, bulk("done"));
    }
}

#[test]
fn odd_keys_of_tables_do_not_break() {
    let text = "local t = {1, 2} t[3] = 3 t[2] = nil t[3] = nil t['x'] = 4 t.x = nil
        return {t[0] or 0, t[-1] or 0, t[1.5] or 0, t[1e300] or 0, t[0/0] or 0, t.x or 0, #t}";
    let reply = run(text, &[], &[], &mut Memory::default());
    assert_eq!(reply, Reply::Array([0, 0, 0, 0, 0, 0, 1].map(Reply::Integer).to_vec()));
    let refused =
        "ERR line 1: a key of a table is a string, or the next position of the list in it";
    for key in ["nil", "0/0", "0", "2", "-1", "1.5", "1e300", "true", "{}"] {
        let text = format!("local t = {{}} t[{key}] = 1");
        assert_eq!(run(&text, &[], &[], &mut Memory::default()), error(refused), "{key}");
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
    fn no_bytes_break_the_parser(text in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Script::parse(&text);
    }

    #[test]
    fn no_words_break_a_run(
        words in prop::collection::vec(prop::sample::select(&WORDS[..]), 0..30)
    ) {
        let words = words.join(" ");
        let text = format!("local a = redis.call('get', KEYS[1]) local b = {{}} {words}");
        if let Ok(script) = Script::parse(text.as_bytes()) {
            let _ = script.run(&[b"lock"], &[b"mine"], &mut Memory::default());
        }
    }
}
