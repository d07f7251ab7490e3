//! Reads the requests of a client: an array of strings, or an inline command, a line of words that
//! a person types.

use alloc::vec::Vec;

use super::scan::{Scanner, Stop, whole};
use super::{ARGUMENTS_MAX, LINE_LEN_MAX, REQUEST_LEN_MAX, RespError};

const REACHABLE: usize = 16;

/// One request, borrowed from the bytes received: the command's name and its arguments.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    reachable: [&'a [u8]; REACHABLE],
    len: usize,
}

impl<'a> Request<'a> {
    /// The number of arguments that a request keeps, the command's name included. No command has
    /// more. Further arguments are counted only, so that a command can refuse a wrong number of
    /// them.
    pub const REACHABLE: usize = REACHABLE;

    /// A request without arguments.
    pub const EMPTY: Self = Self { reachable: [&[]; REACHABLE], len: 0 };

    /// Reads the first request of a stream. Returns the request and its length in bytes, or `None`
    /// while the request is incomplete. A request may be empty: Redis clients may send that.
    ///
    /// An inline command is words between spaces up to the end of the line. It has no quoting: a
    /// client that needs a space in a word sends an array.
    ///
    /// # Errors
    /// When the bytes are not a valid request, or exceed a bound.
    pub fn parse(bytes: &'a [u8]) -> Result<Option<(Self, usize)>, RespError> {
        let mut request = Self::EMPTY;
        let len = request.read(bytes)?;
        Ok(len.map(|len| (request, len)))
    }

    /// Like [`Self::parse`], but overwrites this request, because a request is large to move. After
    /// `None` or an error its content means nothing.
    ///
    /// # Errors
    /// When the bytes are not a valid request, or exceed a bound.
    #[inline]
    pub fn read(&mut self, bytes: &'a [u8]) -> Result<Option<usize>, RespError> {
        self.len = 0;
        match bytes.first() {
            None => Ok(None),
            Some(b'*') => whole(self.array(bytes)),
            Some(_) => whole(self.inline(bytes)),
        }
    }

    /// The number of arguments, the command's name included.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether the request has no arguments, not even a command's name.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// An argument; the command's name has index 0. `None` beyond the last argument and beyond
    /// [`Self::REACHABLE`].
    #[must_use]
    #[inline]
    pub fn arg(&self, index: usize) -> Option<&'a [u8]> {
        self.args().get(index).copied()
    }

    /// The arguments up to [`Self::REACHABLE`], the command's name first.
    #[must_use]
    #[inline]
    pub fn args(&self) -> &[&'a [u8]] {
        &self.reachable[..self.len.min(REACHABLE)]
    }

    /// All arguments of a request that [`Self::parse`] has read from these bytes, also beyond
    /// [`Self::REACHABLE`].
    #[must_use]
    pub fn all(bytes: &'a [u8]) -> Vec<&'a [u8]> {
        let mut all = Vec::new();
        if bytes.first() == Some(&b'*') {
            // These bytes were read before.
            let _read = Self::array_into(bytes, &mut all);
        } else {
            let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
            let words = line.split(u8::is_ascii_whitespace);
            all.extend(words.filter(|word| !word.is_empty()));
        }
        all
    }

    /// Like [`Self::array`]. It does not call [`Self::bulk`]: with a second caller, that is no
    /// longer inlined in the hot path.
    fn array_into(bytes: &'a [u8], all: &mut Vec<&'a [u8]>) -> Result<(), Stop> {
        let mut scan = Scanner::new(bytes, REQUEST_LEN_MAX);
        scan.byte()?;
        for _ in 0..scan.number()? {
            scan.byte()?;
            let len = scan.len()?.unwrap_or_default();
            all.push(scan.string(len)?);
        }
        Ok(())
    }

    fn array(&mut self, bytes: &'a [u8]) -> Result<usize, Stop> {
        let mut scan = Scanner::new(bytes, REQUEST_LEN_MAX);
        scan.byte()?;
        let count = scan.number()?;
        if count > ARGUMENTS_MAX as i64 {
            return Err(RespError::TooManyArguments.into());
        }
        for _ in 0..count {
            let len = match scan.short_bulk() {
                Some(len) => len,
                None => Self::bulk(&mut scan)?,
            };
            self.push(scan.string(len)?)?;
        }
        Ok(scan.at())
    }

    fn bulk(scan: &mut Scanner<'a>) -> Result<usize, Stop> {
        match scan.byte()? {
            b'$' => Ok(scan.len()?.ok_or(RespError::Length(-1))?),
            found => Err(RespError::UnexpectedType { expected: b'$', found }.into()),
        }
    }

    fn inline(&mut self, bytes: &'a [u8]) -> Result<usize, Stop> {
        let window = &bytes[..bytes.len().min(LINE_LEN_MAX)];
        let Some(len) = window.iter().position(|byte| *byte == b'\n') else {
            let is_too_long = window.len() == LINE_LEN_MAX;
            return Err(if is_too_long { RespError::LineTooLong.into() } else { Stop::More });
        };
        let words = window[..len].split(u8::is_ascii_whitespace);
        for word in words.filter(|word| !word.is_empty()) {
            self.push(word)?;
        }
        Ok(len + 1)
    }

    #[inline]
    fn push(&mut self, argument: &'a [u8]) -> Result<(), RespError> {
        if self.len == ARGUMENTS_MAX {
            return Err(RespError::TooManyArguments);
        }
        if let Some(place) = self.reachable.get_mut(self.len) {
            *place = argument;
        }
        self.len += 1;
        Ok(())
    }
}
