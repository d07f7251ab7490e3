//! The tokens of a script.

use super::NotUnderstood;
use super::value::parse_number;

/// Bytes of a text.
const TEXT_BYTES_MAX: usize = 16 * 1024;
/// Tokens of a text, and so the nodes of its tree.
const TOKENS_MAX: usize = 2048;

/// Marks. The first one that fits is the right one.
const MARKS: [&str; 23] = [
    "==", "~=", "<=", ">=", "..", "<", ">", "=", "+", "-", "*", "/", "%", "#", "(", ")", "{", "}",
    "[", "]", ";", ",", ".",
];

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Token<'a> {
    /// A name, a keyword or a mark.
    Word(&'a str),
    Number(f64),
    Text(String),
}

/// The tokens of a text with their lines, which count from 1.
pub(super) fn tokens(text: &[u8]) -> Result<Vec<(u32, Token<'_>)>, NotUnderstood> {
    let mut reader = Reader { rest: "", line: 1 };
    if text.len() > TEXT_BYTES_MAX {
        return Err(reader.error(format!("the script is longer than {TEXT_BYTES_MAX} bytes")));
    }
    reader.rest = std::str::from_utf8(text).map_err(|_| reader.error("this is not UTF-8"))?;
    let mut found = Vec::new();
    while let Some(token) = reader.next()? {
        if found.len() == TOKENS_MAX {
            return Err(reader.error(format!("the script has more than {TOKENS_MAX} tokens")));
        }
        found.push(token);
    }
    Ok(found)
}

struct Reader<'a> {
    rest: &'a str,
    line: u32,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Result<Option<(u32, Token<'a>)>, NotUnderstood> {
        self.skip_blanks()?;
        let line = self.line;
        let Some(first) = self.rest.chars().next() else { return Ok(None) };
        let is_of_name = |next: char| next.is_ascii_alphanumeric() || next == '_';
        let token = match first {
            '0'..='9' => {
                let digits = self.take_while(|next| is_of_name(next) || next == '.');
                let number = parse_number(digits);
                Token::Number(number.ok_or_else(|| self.error("this number is malformed"))?)
            }
            '\'' | '"' => Token::Text(self.quoted(first)?),
            _ if is_of_name(first) => Token::Word(self.take_while(is_of_name)),
            _ => match self.long_text()? {
                Some(text) => Token::Text(text.to_owned()),
                None => Token::Word(self.mark(first)?),
            },
        };
        Ok(Some((line, token)))
    }

    fn error(&self, reason: impl Into<String>) -> NotUnderstood {
        NotUnderstood { line: self.line, reason: reason.into() }
    }

    fn take(&mut self, len: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(len);
        self.line += taken.matches('\n').count() as u32;
        self.rest = rest;
        taken
    }

    fn take_while(&mut self, is_wanted: impl Fn(char) -> bool) -> &'a str {
        self.take(self.rest.find(|next| !is_wanted(next)).unwrap_or(self.rest.len()))
    }

    fn skip_blanks(&mut self) -> Result<(), NotUnderstood> {
        loop {
            self.take_while(|next| next.is_ascii_whitespace() || next == '\x0b');
            if !self.rest.starts_with("--") {
                return Ok(());
            }
            self.take(2);
            if self.long_text()?.is_none() {
                self.take_while(|next| next != '\n');
            }
        }
    }

    fn quoted(&mut self, quote: char) -> Result<String, NotUnderstood> {
        self.take(1);
        let mut text = String::new();
        loop {
            text += self.take_while(|next| next != quote && next != '\\' && next != '\n');
            let mut next = self.rest.chars();
            let escaped = match (next.next(), next.next()) {
                (Some(end), _) if end == quote => {
                    self.take(1);
                    return Ok(text);
                }
                (Some('\\'), Some('n')) => '\n',
                (Some('\\'), Some('r')) => '\r',
                (Some('\\'), Some('t')) => '\t',
                (Some('\\'), Some(itself @ ('\\' | '\'' | '"'))) => itself,
                (Some('\\'), Some(_)) => return Err(self.error("this escape is not understood")),
                _ => return Err(self.error("this string has no end")),
            };
            text.push(escaped);
            self.take(2);
        }
    }

    /// What stands between `[[` and `]]`, or between `[=[` and `]=]`, if that begins here.
    fn long_text(&mut self) -> Result<Option<&'a str>, NotUnderstood> {
        let Some(inner) = self.rest.strip_prefix('[') else { return Ok(None) };
        let level = inner.len() - inner.trim_start_matches('=').len();
        if !inner[level..].starts_with('[') {
            return Ok(None);
        }
        let end = format!("]{}]", "=".repeat(level));
        self.take(end.len());
        let Some(len) = self.rest.find(&end) else {
            return Err(self.error("this long string or comment has no end"));
        };
        let text = self.take(len);
        self.take(end.len());
        Ok(Some(text.strip_prefix('\n').unwrap_or(text)))
    }

    fn mark(&mut self, first: char) -> Result<&'a str, NotUnderstood> {
        let Some(mark) = MARKS.iter().find(|mark| self.rest.starts_with(**mark)) else {
            let shown = first.escape_default();
            return Err(self.error(format!("the character `{shown}` is not understood")));
        };
        Ok(self.take(mark.len()))
    }
}
