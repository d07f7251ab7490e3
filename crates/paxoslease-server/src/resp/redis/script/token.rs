//! The tokens of Lua 5.1, and the normal form of a text for its fingerprint.
//!
//! The tokeniser knows all of Lua's tokens, also those that the parser refuses later. So two
//! texts that differ only in blanks, comments or quotes have one fingerprint even if the parser
//! does not understand them.

use super::Unrecognised;

/// Marks, longest first so that the first match is the right one.
const MARKS: [&str; 26] = [
    "...", "..", "==", "~=", "<=", ">=", "<", ">", "=", "+", "-", "*", "/", "%", "^", "#", "(",
    ")", "{", "}", "[", "]", ";", ":", ",", ".",
];

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Kind {
    /// A name or a keyword.
    Word(String),
    Number(f64),
    Text(Vec<u8>),
    Mark(&'static str),
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Token {
    pub(super) kind: Kind,
    /// Counted from 1.
    pub(super) line: u32,
}

/// The tokens of a text that has at most `max`.
pub(super) fn tokens(text: &[u8], max: usize) -> Result<Vec<Token>, Unrecognised> {
    let mut reader = Reader { text, at: 0, line: 1 };
    let mut found = Vec::new();
    while let Some(token) = reader.next()? {
        if found.len() == max {
            return Err(reader.error(format!("the script has more than {max} tokens")));
        }
        found.push(token);
    }
    Ok(found)
}

/// The text without what does not matter: comments, blanks, semicolons, the kind of quotes and the
/// case of command names.
pub(super) fn normal_form(tokens: &[Token]) -> Vec<u8> {
    let mut normal = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        match &token.kind {
            Kind::Mark(";") => continue,
            Kind::Mark(mark) => normal.extend_from_slice(mark.as_bytes()),
            Kind::Word(word) => normal.extend_from_slice(word.as_bytes()),
            // Without an exponent, a number may have 309 digits.
            Kind::Number(number) => normal.extend_from_slice(format!("{number:e}").as_bytes()),
            Kind::Text(text) if is_command(&tokens[..at]) => {
                put_quoted(&mut normal, &text.to_ascii_lowercase());
            }
            Kind::Text(text) => put_quoted(&mut normal, text),
        }
        normal.push(b' ');
    }
    normal
}

fn put_quoted(normal: &mut Vec<u8>, text: &[u8]) {
    normal.push(b'"');
    normal.extend_from_slice(text.escape_ascii().to_string().as_bytes());
    normal.push(b'"');
}

/// Whether a text behind these tokens is the name of a command.
fn is_command(before: &[Token]) -> bool {
    let before = match before {
        [rest @ .., Token { kind: Kind::Mark("("), .. }] => rest,
        rest => rest,
    };
    let [.., redis, dot, call] = before else { return false };
    let is_word =
        |token: &Token, wanted: &str| matches!(&token.kind, Kind::Word(word) if word == wanted);
    is_word(redis, "redis")
        && dot.kind == Kind::Mark(".")
        && (is_word(call, "call") || is_word(call, "pcall"))
}

struct Reader<'a> {
    text: &'a [u8],
    at: usize,
    line: u32,
}

impl Reader<'_> {
    fn next(&mut self) -> Result<Option<Token>, Unrecognised> {
        self.skip_blanks()?;
        let line = self.line;
        let Some(first) = self.peek(0) else { return Ok(None) };
        let kind = match first {
            b'a'..=b'z' | b'A'..=b'Z' | b'_' => Kind::Word(self.word()),
            b'0'..=b'9' => Kind::Number(self.number()?),
            b'.' if self.peek(1).is_some_and(|byte| byte.is_ascii_digit()) => {
                Kind::Number(self.number()?)
            }
            b'\'' | b'"' => Kind::Text(self.quoted(first)?),
            b'[' if self.long_level().is_some() => Kind::Text(self.long_text()?),
            _ => Kind::Mark(self.mark()?),
        };
        Ok(Some(Token { kind, line }))
    }

    fn peek(&self, ahead: usize) -> Option<u8> {
        self.text.get(self.at + ahead).copied()
    }

    fn step(&mut self) {
        if self.peek(0) == Some(b'\n') {
            self.line += 1;
        }
        self.at += 1;
    }

    fn error(&self, reason: impl Into<String>) -> Unrecognised {
        Unrecognised::new(self.line, reason)
    }

    fn skip_blanks(&mut self) -> Result<(), Unrecognised> {
        loop {
            match self.peek(0) {
                Some(b' ' | b'\t' | b'\r' | b'\n' | 0x0b | 0x0c) => self.step(),
                Some(b'-') if self.peek(1) == Some(b'-') => {
                    self.at += 2;
                    if self.peek(0) == Some(b'[') && self.long_level().is_some() {
                        self.long_text()?;
                    } else {
                        while self.peek(0).is_some_and(|byte| byte != b'\n') {
                            self.at += 1;
                        }
                    }
                }
                _ => return Ok(()),
            }
        }
    }

    fn word(&mut self) -> String {
        let from = self.at;
        while self.peek(0).is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            self.at += 1;
        }
        String::from_utf8_lossy(&self.text[from..self.at]).into_owned()
    }

    fn number(&mut self) -> Result<f64, Unrecognised> {
        let from = self.at;
        while let Some(byte) = self.peek(0) {
            let is_sign_of_exponent = matches!(byte, b'+' | b'-')
                && matches!(self.text[self.at - 1], b'e' | b'E')
                && self.at > from
                && !self.text[from..].starts_with(b"0x");
            if !(byte.is_ascii_alphanumeric() || byte == b'.' || is_sign_of_exponent) {
                break;
            }
            self.at += 1;
        }
        super::number::parse(&self.text[from..self.at])
            .ok_or_else(|| self.error("this number is malformed"))
    }

    fn quoted(&mut self, quote: u8) -> Result<Vec<u8>, Unrecognised> {
        let mut text = Vec::new();
        self.at += 1;
        loop {
            match self.peek(0) {
                None | Some(b'\n') => return Err(self.error("this string has no end")),
                Some(byte) if byte == quote => {
                    self.at += 1;
                    return Ok(text);
                }
                Some(b'\\') => {
                    self.at += 1;
                    text.push(self.escape()?);
                }
                Some(byte) => {
                    self.at += 1;
                    text.push(byte);
                }
            }
        }
    }

    /// The byte that an escape stands for; the backslash is read already.
    fn escape(&mut self) -> Result<u8, Unrecognised> {
        let Some(byte) = self.peek(0) else { return Err(self.error("this string has no end")) };
        if byte.is_ascii_digit() {
            let mut code = 0_u32;
            for _ in 0..3 {
                let Some(digit) = self.peek(0).filter(u8::is_ascii_digit) else { break };
                code = code * 10 + u32::from(digit - b'0');
                self.at += 1;
            }
            return u8::try_from(code).map_err(|_| self.error("this escape is over 255"));
        }
        self.step();
        Ok(match byte {
            b'n' => b'\n',
            b't' => b'\t',
            b'r' => b'\r',
            b'a' => 0x07,
            b'b' => 0x08,
            b'f' => 0x0c,
            b'v' => 0x0b,
            other => other,
        })
    }

    /// The count of `=` in the bracket that opens a long text here, if one does.
    fn long_level(&self) -> Option<usize> {
        let level = self.text[self.at + 1..].iter().take_while(|byte| **byte == b'=').count();
        (self.peek(1 + level) == Some(b'[')).then_some(level)
    }

    fn long_text(&mut self) -> Result<Vec<u8>, Unrecognised> {
        let level = self.long_level().expect("a long text opens here");
        let mut end = vec![b']'];
        end.resize(level + 1, b'=');
        end.push(b']');
        self.at += level + 2;
        if self.peek(0) == Some(b'\r') {
            self.at += 1;
        }
        if self.peek(0) == Some(b'\n') {
            self.step();
        }
        let from = self.at;
        while !self.text[self.at..].starts_with(&end) {
            if self.at >= self.text.len() {
                return Err(self.error("this long string or comment has no end"));
            }
            self.step();
        }
        let text = self.text[from..self.at].to_vec();
        self.at += end.len();
        Ok(text)
    }

    fn mark(&mut self) -> Result<&'static str, Unrecognised> {
        let rest = &self.text[self.at..];
        let Some(mark) = MARKS.iter().find(|mark| rest.starts_with(mark.as_bytes())) else {
            let shown = rest[..1].escape_ascii();
            return Err(self.error(format!("the character `{shown}` is not understood")));
        };
        self.at += mark.len();
        Ok(mark)
    }
}
