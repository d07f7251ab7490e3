//! Inputs: words of commands that are made by the names of arguments, and changed at random. Most
//! changes repeat a piece, because what is costly is mostly long.

use std::fmt::Write as _;

use super::node::Spec;

pub(super) type Words = Vec<Vec<u8>>;

/// The longest name.
pub(super) const NAME_LEN: usize = 512;
/// Somewhat less than the longest request.
const BYTES_MAX: usize = 60_000;
const WORDS_MAX: usize = 1020;
const LENGTHS: [usize; 9] = [1, 8, 60, 64, 250, 512, 1000, 4000, 60_000];
const NUMBERS: [&str; 14] = [
    "0",
    "1",
    "2",
    "3",
    "16",
    "64",
    "100",
    "256",
    "1000",
    "4096",
    "60000",
    "1e300",
    "0x7f",
    "9223372036854775807",
];
/// Arguments that may be repeated, by the end of their names.
const PLURALS: [&str; 9] =
    ["keys", "arguments", "patterns", "channels", "values", "members", "options", "names", "nodes"];

/// A generator of numbers with a fixed seed (SplitMix64).
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: &str) -> Self {
        Self(seed.bytes().fold(1, |seed, byte| seed.wrapping_mul(31).wrapping_add(byte.into())))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(super) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }
}

#[derive(Default)]
pub(super) struct Generator {
    /// The hash of a script that the node knows.
    pub(super) sha: Vec<u8>,
}

impl Generator {
    /// A new input of a command.
    pub(super) fn words(&self, random: &mut Random, spec: &Spec) -> Words {
        let mut words = vec![spec.name.clone().into_bytes()];
        words.extend(spec.subcommand.clone().map(String::into_bytes));
        for argument in &spec.arguments {
            if argument.is_optional && random.below(3) == 0 {
                continue;
            }
            let is_repeated = PLURALS.contains(&argument.name.as_str());
            let times = if is_repeated { random.one(&[1, 1, 1, 2, 16, 255, 1000]) } else { 1 };
            let value = self.value(random, &argument.name);
            for _ in 0..times {
                words.extend(argument.token.iter().map(|token| token.clone().into_bytes()));
                if argument.token.as_ref() != Some(&argument.name) {
                    let is_same = random.below(4) > 0;
                    let value =
                        if is_same { value.clone() } else { self.value(random, &argument.name) };
                    words.push(value);
                }
            }
        }
        bounded(words)
    }

    fn value(&self, random: &mut Random, name: &str) -> Vec<u8> {
        match name {
            "script" => script(random),
            "sha1" => self.sha.clone(),
            "numkeys" => random.one(&["0", "1", "2", "16", "64", "65", "256"]).into(),
            "action" => random.one(&["add", "abort", "x"]).into(),
            "condition" => random.one(&["NX", "XX", "GT", "LT"]).into(),
            "options" => random.one(&["NX", "XX", "PX", "GET", "1000", "KEEPTTL"]).into(),
            _ if name.contains("pattern") || name.contains('*') => pattern(random),
            "name" | "key" | "keys" | "channel" | "channels" => key(random),
            _ => match random.below(6) {
                0..2 => random.one(&NUMBERS).into(),
                2 => pattern(random),
                3..5 => script(random),
                _ => text(random),
            },
        }
    }

    /// An input of the same command that differs from another one.
    pub(super) fn changed(&self, random: &mut Random, spec: &Spec, words: &Words) -> Words {
        let mut words = words.clone();
        let fixed = 1 + usize::from(spec.subcommand.is_some());
        for _ in 0..=random.below(3) {
            let place = fixed + random.below(words.len() - fixed);
            if words.len() == fixed || random.below(8) == 0 {
                words.push(self.value(random, "any"));
                continue;
            }
            match random.below(8) {
                0 => words[place] = self.value(random, "any"),
                1 => drop(words.remove(place)),
                2 => {
                    let times = random.one(&[1, 16, 250, 1000]);
                    let word = words[place].clone();
                    words.splice(place..place, std::iter::repeat_n(word, times));
                }
                _ => words[place] = changed_word(random, &words[place]),
            }
        }
        bounded(words)
    }
}

fn bounded(mut words: Words) -> Words {
    words.truncate(WORDS_MAX);
    let mut left = BYTES_MAX;
    for word in &mut words {
        word.truncate(left.max(1));
        left = left.saturating_sub(word.len() + 8);
    }
    words
}

/// Repeats, removes or replaces pieces. Those of a script are statements, or words of them.
fn changed_word(random: &mut Random, word: &[u8]) -> Vec<u8> {
    let is_script = word.contains(&b' ');
    let blank = if word.contains(&b'\n') && random.below(2) == 0 { b'\n' } else { b' ' };
    let mut pieces: Vec<&[u8]> = if is_script {
        word.split(|byte| *byte == blank).collect()
    } else {
        word.chunks(1).collect()
    };
    let from = random.below(pieces.len());
    let len_max = random.one(&[2, 8, 40, 4000]).min(pieces.len() - from);
    let to = (from + 1 + random.below(len_max)).min(pieces.len());
    let slice = pieces[from..to].to_vec();
    let fresh = if is_script { script(random) } else { pattern(random) };
    match random.below(6) {
        0 => drop(pieces.drain(from..to)),
        1 => {
            let at = random.below(pieces.len());
            pieces.splice(at..at, slice);
        }
        2 if is_script => drop(pieces.splice(from..from, fresh.split(|byte| *byte == blank))),
        2 => drop(pieces.splice(from..from, fresh.chunks(1))),
        _ => {
            // As often as there is room: a script that is cut off is not a script.
            let len: usize = slice.iter().map(|piece| piece.len() + 1).sum();
            let room = len_max_of(is_script).saturating_sub(word.len()) / len.max(1);
            let times = random.one(&[1, 2, 8, 60, 500]).min(room);
            pieces.splice(from..from, slice.repeat(times));
        }
    }
    let mut bytes = if is_script { pieces.join(&blank) } else { pieces.concat() };
    bytes.truncate(len_max_of(is_script));
    bytes
}

const fn len_max_of(is_script: bool) -> usize {
    if is_script { 16 * 1024 } else { BYTES_MAX }
}

fn text(random: &mut Random) -> Vec<u8> {
    let len = random.one(&LENGTHS);
    vec![random.one(b"aaa7b"); len]
}

/// A name that is held, or might be.
fn key(random: &mut Random) -> Vec<u8> {
    match random.below(4) {
        0 => text(random),
        1 => format!("a{:04}", 2000 + random.below(200)).into_bytes(),
        _ => format!("{}{:04}", "a".repeat(NAME_LEN - 4), random.below(2000)).into_bytes(),
    }
}

fn pattern(random: &mut Random) -> Vec<u8> {
    let mut pattern = Vec::new();
    for _ in 0..=random.below(4) {
        let piece = random.one(&["*", "a", "?", "b", "[a-z]", "[^b]", "[aaaaaaaaaaaab]", "\\a"]);
        let times = random.one(&[1, 1, 2, 20, 60, 500]);
        pattern.extend_from_slice(piece.repeat(times).as_bytes());
    }
    pattern
}

/// A script that is about the key of a lock, and otherwise does anything.
fn script(random: &mut Random) -> Vec<u8> {
    let mut text = "local c = redis.call\nlocal a = c ( 'get' , KEYS [ 1 ] )\n\
                    local b = ARGV [ 1 ]\nlocal t = { }\nlocal s = 'x'\nlocal i = 1\n"
        .to_owned();
    for _ in 0..=random.below(6) {
        statement(random, 3, &mut text);
        text.push('\n');
    }
    text.push_str("return a");
    text.into_bytes()
}

fn statement(random: &mut Random, depth: usize, text: &mut String) {
    let block = |random: &mut Random, text: &mut String| {
        for _ in 0..=random.below(3) {
            if depth > 0 {
                statement(random, depth - 1, text);
            }
        }
        text.push_str("end ");
    };
    match random.below(10) {
        0 | 1 => {
            let times = random.one(&[2, 60, 900, 9000, 1_000_000_000]);
            // Writing to a string cannot fail.
            let _written = write!(text, "for i = 1 , {times} do ");
            block(random, text);
        }
        2 => {
            text.push_str("for k , v in pairs ( ");
            expression(random, 1, text);
            text.push_str(") do ");
            block(random, text);
        }
        3 => {
            text.push_str("if ");
            expression(random, 2, text);
            text.push_str("then ");
            block(random, text);
        }
        4 => {
            text.push_str("table.insert ( t , ");
            expression(random, 1, text);
            text.push_str(") ");
        }
        5 => {
            text.push_str(random.one(&["t [ # t + 1 ] = ", "t [ b ] = ", "t [ s ] = "]));
            expression(random, 1, text);
        }
        6 | 7 => {
            let command = random.one(&["get", "exists", "del", "pttl", "publish", "lpush", "mget"]);
            let _written = write!(text, "c ( '{command}' , ");
            expression(random, 1, text);
            text.push_str(", ");
            expression(random, 1, text);
            text.push_str(") ");
        }
        8 => {
            text.push_str("s = ");
            expression(random, 2, text);
        }
        _ => {
            text.push_str("local d = ");
            expression(random, 2, text);
        }
    }
}

fn expression(random: &mut Random, depth: usize, text: &mut String) {
    let leaf = random.one(&[
        "a ",
        "b ",
        "t ",
        "s ",
        "i ",
        "1 ",
        "1e300 ",
        "'x' ",
        "KEYS [ 1 ] ",
        "KEYS [ i ] ",
        "ARGV ",
        "KEYS ",
        "ARGV [ 1 ] ",
        "# t ",
    ]);
    if depth == 0 || random.below(3) == 0 {
        return text.push_str(leaf);
    }
    match random.below(6) {
        0 => {
            expression(random, depth - 1, text);
            let operator = random.one(&["..", "==", "~=", "<", "and", "or", "+", "-"]);
            let _written = write!(text, "{operator} ");
            expression(random, depth - 1, text);
        }
        1 => {
            let mut element = String::new();
            expression(random, depth - 1, &mut element);
            element.push_str(", ");
            let times = random.one(&[1, 2, 40, 600]).min(4000 / element.len());
            let _written = write!(text, "{{ {}{leaf}}} ", element.repeat(times));
        }
        2 => {
            text.push_str("c ( 'get' , ");
            expression(random, depth - 1, text);
            text.push_str(") ");
        }
        3 => text.push_str("c ( 'keys' , 'a210*' ) "),
        _ => {
            let function = random.one(&[
                "tonumber",
                "tostring",
                "string.sub",
                "redis.error_reply",
                "unpack",
                "type",
            ]);
            let _written = write!(text, "{function} ( ");
            expression(random, depth - 1, text);
            text.push_str(") ");
        }
    }
}

/// Inputs that were costly once. A search begins with them.
pub(super) fn known(spec: &Spec) -> Vec<Words> {
    let elements = "1,".repeat(1100);
    let calls = format!("{}{}", "c('lpush',a) ".repeat(460), "c('get',b) ".repeat(460));
    let keys =
        format!("local c=redis.call local a={{{elements}1}} local b={{{elements}2}} {calls}");
    let number =
        "local c=redis.call local a=c('get',KEYS[1]) for i=1,9999 do tonumber(ARGV[1]) end";
    let argument = "7".repeat(BYTES_MAX - 200);
    let pattern = format!("*{}b", "a".repeat(60));
    let inputs: &[&[&str]] = match (spec.name.as_str(), spec.subcommand.as_deref()) {
        ("eval", _) => &[
            &["EVAL", &keys, "0"],
            &["EVAL", number, "1", "k", &argument],
            &["EVAL", "return #redis.call('keys','*b')", "0"],
        ],
        ("script", Some("LOAD")) => &[&["SCRIPT", "LOAD", &keys]],
        ("keys", _) => &[&["KEYS", &pattern]],
        ("scan", _) => &[&["SCAN", "0", "MATCH", &pattern, "COUNT", "1000"]],
        ("psubscribe", _) => {
            return vec![subscriptions(pattern.as_bytes())];
        }
        _ => &[],
    };
    let owned = |words: &&[&str]| words.iter().map(|word| word.as_bytes().to_vec()).collect();
    inputs.iter().map(owned).collect()
}

/// Subscribes to many patterns like that of a list of keys: only their ends differ.
pub(super) fn subscriptions(pattern: &[u8]) -> Words {
    let stem = &pattern[..pattern.len().saturating_sub(3)];
    let numbered = (0..256).map(|number| [stem, format!("{number:03}").as_bytes()].concat());
    [b"PSUBSCRIBE".to_vec()].into_iter().chain(numbered).collect()
}

/// An input in short: a letter that is repeated is counted.
pub(super) fn shown(words: &Words) -> String {
    let mut text = String::new();
    for word in words.iter().take(8) {
        let mut rest = word.as_slice();
        while let [first, ..] = rest
            && text.len() < 160
        {
            let run = rest.iter().take_while(|byte| *byte == first).count();
            let letter = first.escape_ascii();
            let _written =
                if run > 4 { write!(text, "{{{letter}*{run}}}") } else { write!(text, "{letter}") };
            rest = if run > 4 { &rest[run..] } else { &rest[1..] };
        }
        text.push(' ');
    }
    let more = words.len().saturating_sub(8);
    let shown = text.trim_end().replace('|', "\\|").replace('`', "'");
    if more > 0 { format!("{shown} .. {more} more words") } else { shown }
}
