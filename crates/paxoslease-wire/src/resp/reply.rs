//! Reads the replies of a node. A value is checked as a whole before any of it is returned, then
//! walked without a copy. Nested aggregates are walked once per level, which [`DEPTH_MAX`] bounds.

use super::scan::{Scanner, Stop, whole};
use super::{DEPTH_MAX, REPLY_LEN_MAX, RespError};

/// One value of a reply, borrowed from the bytes received.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Value<'a> {
    /// A short text without line breaks.
    Simple(&'a [u8]),
    /// An error; its first word is the code.
    Error(&'a [u8]),
    /// An integer.
    Integer(i64),
    /// A string of any bytes.
    Bulk(&'a [u8]),
    /// Null, in any of its three spellings.
    Null,
    /// True or false.
    Boolean(bool),
    /// A floating-point number.
    Double(f64),
    /// Values in order.
    Array(Items<'a>),
    /// Keys and values, alternating.
    Map(Items<'a>),
    /// Values that answer no request.
    Push(Items<'a>),
}

impl<'a> Value<'a> {
    /// Reads the first value of a stream. Returns the value and its length in bytes, or `None`
    /// while the value is incomplete.
    ///
    /// # Errors
    /// When the bytes are not a valid value, or exceed a bound.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Option<(Self, usize)>, RespError> {
        let mut scan = Scanner::new(bytes, REPLY_LEN_MAX);
        whole(Self::scan(&mut scan, DEPTH_MAX).map(|value| (value, scan.at())))
    }

    /// The number, if the value is an integer.
    #[must_use]
    pub const fn integer(self) -> Option<i64> {
        if let Self::Integer(number) = self { Some(number) } else { None }
    }

    /// The number, if the value is an integer that is not negative, or a string of its digits.
    #[must_use]
    pub fn decimal(self) -> Option<u64> {
        match self {
            Self::Integer(number) => u64::try_from(number).ok(),
            value => core::str::from_utf8(value.bytes()?).ok()?.parse().ok(),
        }
    }

    /// The bytes, if the value is a string of any kind. An error is not a string.
    #[must_use]
    pub const fn bytes(self) -> Option<&'a [u8]> {
        match self {
            Self::Simple(bytes) | Self::Bulk(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// The values inside an aggregate; keys and values of a map alternate.
    #[must_use]
    pub const fn items(self) -> Option<Items<'a>> {
        match self {
            Self::Array(items) | Self::Map(items) | Self::Push(items) => Some(items),
            _ => None,
        }
    }

    /// The value of a key, in a map or in the array that RESP2 sends for a map.
    #[must_use]
    pub fn field(self, key: &[u8]) -> Option<Self> {
        self.items()?.pairs().find(|(found, _)| found.bytes() == Some(key)).map(|(_, value)| value)
    }

    fn scan(scan: &mut Scanner<'a>, depth: usize) -> Result<Self, Stop> {
        let aggregate: fn(Items<'a>) -> Self = match scan.byte()? {
            b'+' => return Ok(Self::Simple(scan.line()?)),
            b'-' => return Ok(Self::Error(scan.line()?)),
            b':' => return Ok(Self::Integer(scan.number()?)),
            b'_' => return scan.string(0).map(|_| Self::Null),
            b'#' => {
                return match scan.line()? {
                    b"t" => Ok(Self::Boolean(true)),
                    b"f" => Ok(Self::Boolean(false)),
                    _ => Err(RespError::Boolean.into()),
                };
            }
            b',' => return Ok(Self::Double(double(scan.line()?)?)),
            b'$' => return Ok(string(scan)?.map_or(Self::Null, Self::Bulk)),
            b'!' => return Ok(Self::Error(string(scan)?.ok_or(RespError::Length(-1))?)),
            b'*' => Self::Array,
            b'%' => Self::Map,
            b'>' => Self::Push,
            found => return Err(RespError::UnknownType(found).into()),
        };
        let Some(mut left) = scan.len()? else { return Ok(Self::Null) };
        if depth == 0 {
            return Err(RespError::TooDeep.into());
        }
        if matches!(aggregate(Items::NONE), Self::Map(_)) {
            left *= 2;
        }
        let start = scan.at();
        for _ in 0..left {
            Self::scan(scan, depth - 1)?;
        }
        Ok(aggregate(Items { bytes: scan.since(start), left }))
    }
}

fn string<'a>(scan: &mut Scanner<'a>) -> Result<Option<&'a [u8]>, Stop> {
    scan.len()?.map(|len| scan.string(len)).transpose()
}

fn double(line: &[u8]) -> Result<f64, RespError> {
    core::str::from_utf8(line).ok().and_then(|line| line.parse().ok()).ok_or(RespError::Number)
}

/// The values inside an aggregate, in order. They are valid: `Value::parse` has checked them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Items<'a> {
    bytes: &'a [u8],
    left: usize,
}

impl<'a> Items<'a> {
    const NONE: Self = Self { bytes: &[], left: 0 };

    /// The keys of a map, each with its value.
    pub fn pairs(mut self) -> impl Iterator<Item = (Value<'a>, Value<'a>)> {
        core::iter::from_fn(move || Some((self.next()?, self.next()?)))
    }
}

impl<'a> Iterator for Items<'a> {
    type Item = Value<'a>;

    fn next(&mut self) -> Option<Value<'a>> {
        if self.left == 0 {
            return None;
        }
        let mut scan = Scanner::new(self.bytes, REPLY_LEN_MAX);
        let value = Value::scan(&mut scan, DEPTH_MAX).expect("read whole before");
        self.bytes = &self.bytes[scan.at()..];
        self.left -= 1;
        Some(value)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Items<'_> {}
