//! What a client asks: an array of strings, or a line of words for those who type.

use super::scan::{Scan, Stop, whole};
use super::{ARGUMENTS_MAX, LINE_LEN_MAX, REQUEST_LEN_MAX, RespError};

const REACHABLE: usize = 16;

/// One request, borrowed from the bytes it came in: the command's name and its arguments.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    reachable: [&'a [u8]; REACHABLE],
    len: usize,
}

impl<'a> Request<'a> {
    /// How many arguments of a request can be looked at, the command's name included. No command
    /// has more; further ones are counted, so that a wrong number can be called wrong.
    pub const REACHABLE: usize = REACHABLE;

    /// One that asks nothing.
    pub const EMPTY: Self = Self { reachable: [&[]; REACHABLE], len: 0 };

    /// Reads the first request of a stream and says how many bytes it took; `None` when it is not
    /// whole yet. An empty one, which Redis clients may send, has no arguments and asks nothing.
    ///
    /// An inline command is words between spaces up to the end of the line. There is no quoting:
    /// who needs a space in a word sends an array.
    ///
    /// # Errors
    /// When the bytes are no request, or one above a bound.
    pub fn parse(bytes: &'a [u8]) -> Result<Option<(Self, usize)>, RespError> {
        let mut request = Self::EMPTY;
        let len = request.read(bytes)?;
        Ok(len.map(|len| (request, len)))
    }

    /// As [`Self::parse`], over whatever this was before: a request is large to move. What it is
    /// after `None` or an error says nothing.
    ///
    /// # Errors
    /// When the bytes are no request, or one above a bound.
    #[inline]
    pub fn read(&mut self, bytes: &'a [u8]) -> Result<Option<usize>, RespError> {
        self.len = 0;
        match bytes.first() {
            None => Ok(None),
            Some(b'*') => whole(self.array(bytes)),
            Some(_) => whole(self.inline(bytes)),
        }
    }

    /// How many arguments there are, the command's name included.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether it asks nothing.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// An argument, counted from the command's name at 0; `None` where there is none, or one out
    /// of reach.
    #[must_use]
    #[inline]
    pub fn arg(&self, index: usize) -> Option<&'a [u8]> {
        self.args().get(index).copied()
    }

    /// The arguments within reach, the command's name first.
    #[must_use]
    #[inline]
    pub fn args(&self) -> &[&'a [u8]] {
        &self.reachable[..self.len.min(REACHABLE)]
    }

    fn array(&mut self, bytes: &'a [u8]) -> Result<usize, Stop> {
        let mut scan = Scan::new(bytes, REQUEST_LEN_MAX);
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

    fn bulk(scan: &mut Scan<'a>) -> Result<usize, Stop> {
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
