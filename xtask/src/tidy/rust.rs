//! Rust source without comments and the contents of literals: a lexer for the checks.
//!
//! Every transformation keeps the number of characters and all line breaks, so that a place in
//! the result is the same place in the file.

/// Stands for a character inside a literal.
pub(super) const IN_LITERAL: char = '\0';

/// Blanks comments and replaces the inside of string and character literals by [`IN_LITERAL`].
pub(super) fn code(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while at < chars.len() {
        let (end, kind) = token(&chars, at);
        let hide = |place: usize| match kind {
            Kind::Code => None,
            Kind::Comment => Some(' '),
            Kind::Literal { open, close } => {
                (at + open..end - close).contains(&place).then_some(IN_LITERAL)
            }
        };
        out.extend((at..end).map(|place| match chars[place] {
            '\n' => '\n',
            c => hide(place).unwrap_or(c),
        }));
        at = end;
    }
    out
}

#[derive(Clone, Copy)]
enum Kind {
    Code,
    Comment,
    /// With the lengths of its marks at either end.
    Literal {
        open: usize,
        close: usize,
    },
}

/// The end and the kind of the token that starts at `at`.
fn token(chars: &[char], at: usize) -> (usize, Kind) {
    let next = |ahead: usize| chars.get(at + ahead).copied().unwrap_or('\n');
    match chars[at] {
        '/' if next(1) == '/' => (find(chars, at, '\n'), Kind::Comment),
        '/' if next(1) == '*' => (block_comment_end(chars, at), Kind::Comment),
        '"' => (quoted_end(chars, at + 1, '"'), Kind::Literal { open: 1, close: 1 }),
        '\'' if next(1) == '\\' || next(2) == '\'' => {
            (quoted_end(chars, at + 1, '\''), Kind::Literal { open: 1, close: 1 })
        }
        'r' if starts_literal(chars, at) => {
            let hashes = chars[at + 1..].iter().take_while(|&&c| c == '#').count();
            if next(1 + hashes) == '"' {
                let end = raw_end(chars, at + 2 + hashes, hashes);
                (end, Kind::Literal { open: 2 + hashes, close: 1 + hashes })
            } else {
                (at + 1, Kind::Code)
            }
        }
        _ => (at + 1, Kind::Code),
    }
}

/// Whether the `r` at `at` can begin a raw literal: it may follow `b` or `c`, but no word.
fn starts_literal(chars: &[char], at: usize) -> bool {
    let is_word = |place: Option<usize>| {
        place.is_some_and(|place| chars[place].is_alphanumeric() || chars[place] == '_')
    };
    let before = at.checked_sub(1);
    match before.map(|place| chars[place]) {
        Some('b' | 'c') => !is_word(at.checked_sub(2)),
        _ => !is_word(before),
    }
}

fn find(chars: &[char], from: usize, wanted: char) -> usize {
    (from..chars.len()).find(|&place| chars[place] == wanted).unwrap_or(chars.len())
}

fn quoted_end(chars: &[char], from: usize, quote: char) -> usize {
    let mut place = from;
    while place < chars.len() && chars[place] != quote {
        place += if chars[place] == '\\' { 2 } else { 1 };
    }
    (place + 1).min(chars.len())
}

fn raw_end(chars: &[char], from: usize, hashes: usize) -> usize {
    (from..chars.len())
        .find(|&place| {
            let tail = chars[place + 1..].iter().take(hashes);
            chars[place] == '"' && tail.filter(|&&c| c == '#').count() == hashes
        })
        .map_or(chars.len(), |quote| quote + 1 + hashes)
}

fn block_comment_end(chars: &[char], at: usize) -> usize {
    let mut depth = 0_usize;
    let mut place = at;
    while place + 1 < chars.len() {
        match (chars[place], chars[place + 1]) {
            ('/', '*') => depth += 1,
            ('*', '/') => depth -= 1,
            _ => {
                place += 1;
                continue;
            }
        }
        place += 2;
        if depth == 0 {
            return place;
        }
    }
    chars.len()
}

/// Blanks every item under a `#[cfg(..test..)]`. Takes the result of [`code`].
pub(super) fn without_tests(code: &str) -> String {
    let mut out = String::with_capacity(code.len());
    let mut rest = code;
    while let Some(start) = rest.find("#[cfg(") {
        let (before, item) = rest.split_at(start);
        out.push_str(before);
        let attribute = &item[..item.find(']').map_or(item.len(), |end| end + 1)];
        let is_test = attribute.contains("test") && !attribute.contains("not(test");
        let end = if is_test { item_end(item) } else { attribute.len() };
        if is_test {
            out.extend(item[..end].chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
        } else {
            out.push_str(attribute);
        }
        rest = &item[end..];
    }
    out.push_str(rest);
    out
}

/// The end of an item: its `;`, or the brace that closes its first one.
fn item_end(item: &str) -> usize {
    let mut depth = 0_usize;
    for (place, c) in item.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth <= 1 => return place + 1,
            '}' => depth -= 1,
            ';' if depth == 0 => return place + 1,
            _ => {}
        }
    }
    item.len()
}

/// Whether `word` stands in `line` as a word of its own, not as a part of a longer one.
pub(super) fn has_word(line: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(start, _)| {
        let (before, after) = (&line[..start], &line[start + word.len()..]);
        let joins_before = word.starts_with(is_part) && before.ends_with(is_part);
        let joins_after = word.ends_with(is_part) && after.starts_with(is_part);
        !joins_before && !joins_after
    })
}

/// The variants of `enum name`, with the lines they stand on. Takes the result of [`code`].
pub(super) fn variants(code: &str, name: &str) -> Vec<(usize, String)> {
    let Some(start) = code.find(&format!("enum {name} {{")) else { return Vec::new() };
    let item = &code[start..start + item_end(&code[start..])];
    let line_before = code[..start].matches('\n').count();
    let mut depth = 0_i32;
    let mut found = Vec::new();
    for (index, line) in item.lines().enumerate() {
        let word: String = line.trim().chars().take_while(|c| c.is_alphanumeric()).collect();
        if depth == 1 && word.starts_with(char::is_uppercase) {
            found.push((line_before + index + 1, word));
        }
        depth += line.matches(['{', '(', '[']).count() as i32;
        depth -= line.matches(['}', ')', ']']).count() as i32;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        code(text).replace(IN_LITERAL, "·")
    }

    #[test]
    fn comments_and_literals_are_hidden_and_the_rest_is_not() {
        assert_eq!(shown("a(); // dbg!()\nb()"), "a();          \nb()");
        assert_eq!(shown("a /* x /* y */ z */ b"), "a                   b");
        assert_eq!(shown(r#"f("a\"b") + c"#), r#"f("····") + c"#);
        assert_eq!(shown(r##"f(r#"a"b"#, br"c") + d"##), r##"f(r#"···"#, br"·") + d"##);
        assert_eq!(shown("f('\"', '\\'', 'x') + g"), "f('·', '··', '·') + g");
        assert_eq!(shown("fn f<'a>(a: &'a str) {}"), "fn f<'a>(a: &'a str) {}");
    }

    #[test]
    fn lines_stay_where_they_are() {
        let text = "/* a\nb */ c \"d\ne\" f";
        assert_eq!(shown(text), "    \n     c \"·\n·\" f");
    }

    #[test]
    fn only_test_items_are_blanked() {
        let text = "a;\n#[cfg(test)]\nextern crate std;\nb;\n\
                    #[cfg(all(test, unix))] mod tests { fn f() { c } }\nd\n\
                    #[cfg(not(test))]\ne";
        let words = without_tests(text);
        assert_eq!(
            words.split_whitespace().collect::<Vec<_>>(),
            ["a;", "b;", "d", "#[cfg(not(test))]", "e"]
        );
        assert_eq!(words.lines().count(), text.lines().count());
    }

    #[test]
    fn a_word_is_not_found_inside_another() {
        assert!(has_word("use rand::Rng", "rand::"));
        assert!(!has_word("use strand::Rng", "rand::"));
        assert!(has_word("dbg!(x)", "dbg!"));
        assert!(!has_word("SystemTimer", "SystemTime"));
    }

    #[test]
    fn variants_are_found_whatever_they_carry() {
        let text = "\nenum Command {\n    /// Doc.\n    Sim(SimArgs),\n    #[command(name = \"x\")]\n    \
                    Dev {\n        Nodes: u8,\n    },\n    Man,\n}\nenum Other { A }";
        let found = variants(&code(text), "Command");
        assert_eq!(found, [(4, "Sim".into()), (6, "Dev".into()), (9, "Man".into())]);
    }
}
