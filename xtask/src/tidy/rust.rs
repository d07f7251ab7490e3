//! Rust source without comments and the contents of literals, for the checks.
//!
//! Every transformation keeps the number of characters and all line breaks, so that a place in
//! the result is the same place in the file.

use std::ops::Range;

use proc_macro2::{TokenStream, TokenTree};

/// Stands for a character inside a literal.
pub(super) const IN_LITERAL: char = '\0';

/// Blanks comments and replaces the inside of string and character literals by [`IN_LITERAL`].
/// Leaves a text that is not Rust as it is: the compiler complains about it.
pub(super) fn code(text: &str) -> String {
    let Ok(tokens) = text.parse::<TokenStream>() else { return text.to_owned() };
    let mut shown = vec![Some(' '); text.len()];
    show(text, tokens, &mut shown);
    let chars = text.char_indices();
    chars.map(|(at, c)| if c == '\n' { c } else { shown[at].unwrap_or(c) }).collect()
}

/// Marks the bytes of tokens: `None` shows the character itself.
fn show(text: &str, tokens: TokenStream, shown: &mut [Option<char>]) {
    for token in tokens {
        let place = token.span().byte_range();
        // A doc comment is an attribute, whose tokens have the place of the comment.
        if ["//", "/*"].iter().any(|comment| text[place.clone()].starts_with(comment)) {
            continue;
        }
        match token {
            TokenTree::Group(group) => {
                for end in [group.span_open(), group.span_close()] {
                    shown[end.byte_range()].fill(None);
                }
                show(text, group.stream(), shown);
            }
            TokenTree::Literal(_) => {
                shown[place.clone()].fill(None);
                shown[within_quotes(text, place)].fill(Some(IN_LITERAL));
            }
            TokenTree::Ident(_) | TokenTree::Punct(_) => shown[place].fill(None),
        }
    }
}

/// The place between the quotes of a literal; empty for a number.
fn within_quotes(text: &str, place: Range<usize>) -> Range<usize> {
    let literal = &text[place.clone()];
    match (literal.find(['"', '\'']), literal.rfind(['"', '\''])) {
        (Some(first), Some(last)) => place.start + first + 1..place.start + last,
        _ => place.start..place.start,
    }
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
