//! A position in a stream that may end anywhere: lines, numbers and strings of a given length.
//! Knows the framing that requests and replies share, and nothing else about them.

use super::{LINE_LEN_MAX, RespError};

/// Why reading stopped.
#[derive(Debug)]
pub(super) enum Stop {
    /// The value is incomplete.
    More,
    /// The value is malformed: further bytes cannot help.
    Broken(RespError),
}

impl From<RespError> for Stop {
    fn from(error: RespError) -> Self {
        Self::Broken(error)
    }
}

/// Turns an incomplete value into `None`: to callers outside that is not an error.
pub(super) fn whole<T>(read: Result<T, Stop>) -> Result<Option<T>, RespError> {
    match read {
        Ok(value) => Ok(Some(value)),
        Err(Stop::More) => Ok(None),
        Err(Stop::Broken(error)) => Err(error),
    }
}

/// The bytes, and the position up to which they have been read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
    /// No value may end beyond this position.
    len_max: usize,
}

impl<'a> Scanner<'a> {
    pub(super) fn new(bytes: &'a [u8], len_max: usize) -> Self {
        Self { bytes, at: 0, len_max }
    }

    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// The bytes read since the position was `start`.
    pub(super) fn since(&self, start: usize) -> &'a [u8] {
        &self.bytes[start..self.at]
    }

    #[inline]
    pub(super) fn byte(&mut self) -> Result<u8, Stop> {
        if self.at >= self.len_max {
            return Err(self.too_long());
        }
        let byte = *self.bytes.get(self.at).ok_or(Stop::More)?;
        self.at += 1;
        Ok(byte)
    }

    fn expect(&mut self, expected: u8) -> Result<(), Stop> {
        if self.byte()? == expected { Ok(()) } else { Err(RespError::Unterminated.into()) }
    }

    /// A line that holds one number.
    #[inline]
    pub(super) fn number(&mut self) -> Result<i64, Stop> {
        let mut byte = self.byte()?;
        let is_negative = byte == b'-';
        if is_negative || byte == b'+' {
            byte = self.byte()?;
        }
        // Counts down, because the least number has no positive counterpart.
        let mut number: i64 = 0;
        let mut digits = 0;
        while byte.is_ascii_digit() && digits < 20 {
            let digit = i64::from(byte - b'0');
            number = number
                .checked_mul(10)
                .and_then(|number| number.checked_sub(digit))
                .ok_or(RespError::Number)?;
            digits += 1;
            byte = self.byte()?;
        }
        if digits == 0 || byte != b'\r' {
            return Err(RespError::Number.into());
        }
        self.expect(b'\n')?;
        if is_negative { Ok(number) } else { number.checked_neg().ok_or(RespError::Number.into()) }
    }

    /// A line that holds a length or a count; `None` is the -1 that stands for null.
    #[inline]
    pub(super) fn len(&mut self) -> Result<Option<usize>, Stop> {
        match self.number()? {
            -1 => Ok(None),
            len => match usize::try_from(len) {
                Ok(len) if len <= self.len_max => Ok(Some(len)),
                Ok(_) => Err(self.too_long()),
                Err(_) => Err(RespError::Length(len).into()),
            },
        }
    }

    /// The length of a string of less than a hundred bytes, the common case, read in one step.
    /// Returns `None`, and reads nothing, in all other cases.
    #[inline]
    pub(super) fn short_bulk(&mut self) -> Option<usize> {
        let digit = |byte: u8| byte.is_ascii_digit().then(|| usize::from(byte - b'0'));
        let (len, header_len) = match *self.bytes.get(self.at..)? {
            [b'$', ones, b'\r', b'\n', ..] => (digit(ones)?, 4),
            [b'$', tens, ones, b'\r', b'\n', ..] => (10 * digit(tens)? + digit(ones)?, 5),
            _ => return None,
        };
        if self.at + header_len > self.len_max {
            return None;
        }
        self.at += header_len;
        Some(len)
    }

    /// `len` bytes and the end of their line.
    #[inline]
    pub(super) fn string(&mut self, len: usize) -> Result<&'a [u8], Stop> {
        let start = self.at;
        let end = start + len;
        if end + 2 > self.len_max {
            return Err(self.too_long());
        }
        self.at = end;
        self.expect(b'\r')?;
        self.expect(b'\n')?;
        Ok(&self.bytes[start..end])
    }

    /// The rest of a line, whatever it holds.
    pub(super) fn line(&mut self) -> Result<&'a [u8], Stop> {
        let start = self.at;
        let rest = &self.bytes[start..];
        let window = &rest[..rest.len().min(LINE_LEN_MAX)];
        let Some(len) = window.iter().position(|byte| matches!(byte, b'\r' | b'\n')) else {
            let is_too_long = window.len() == LINE_LEN_MAX;
            return Err(if is_too_long { RespError::LineTooLong.into() } else { Stop::More });
        };
        self.string(len)
    }

    pub(super) fn too_long(&self) -> Stop {
        RespError::TooLong(self.len_max).into()
    }
}
