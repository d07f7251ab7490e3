//! Names and holder texts: borrowed and checked at the public API, owned and compact inside.
//!
//! [`Label`] keeps a name and a holder text in 40 bytes, so that an acceptor entry is one cache
//! line; longer texts are on the heap. A name is bytes that were checked to be UTF-8. Making a
//! `str` of a part of a label would repeat the check, so that is done only for display. A holder
//! text is any bytes.

use alloc::borrow::Cow;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::num::NonZeroU8;

/// A text of `MIN` to `MAX` bytes of UTF-8.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Text<'a, const MIN: usize, const MAX: usize>(&'a [u8]);

/// The name of what is leased: 1 to 512 bytes of UTF-8.
pub type Name<'a> = Text<'a, 1, 512>;

/// A client's text about its lease: 0 to 256 bytes. Clients get it back byte for byte. People see
/// it as text, with a replacement character for what is not UTF-8. No rule of safety compares it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Holder<'a>(&'a [u8]);

/// Why a text is not a valid name or holder text. Nothing was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TextError {
    /// A name has at least one byte.
    Empty,
    /// Longer than allowed.
    TooLong {
        /// The length of the text in bytes.
        len: usize,
        /// The bound in bytes.
        max: usize,
    },
    /// Not UTF-8.
    NotUtf8,
}

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => write!(f, "a name has at least one byte"),
            Self::TooLong { len, max } => write!(f, "{len} bytes long, at most {max} allowed"),
            Self::NotUtf8 => write!(f, "not valid UTF-8"),
        }
    }
}

impl core::error::Error for TextError {}

impl<'a, const MIN: usize, const MAX: usize> Text<'a, MIN, MAX> {
    /// The longest text, in bytes.
    pub const LEN_MAX: usize = MAX;

    /// Checks the bounds.
    ///
    /// # Errors
    /// When the text is too short or too long.
    pub const fn new(text: &'a str) -> Result<Self, TextError> {
        Self::bounded(text.as_bytes())
    }

    /// Checks the bounds and the encoding.
    ///
    /// # Errors
    /// When the bytes are not UTF-8, too few, or too many.
    #[inline]
    pub fn from_bytes(bytes: &'a [u8]) -> Result<Self, TextError> {
        if is_utf8(bytes) { Self::bounded(bytes) } else { Err(TextError::NotUtf8) }
    }

    const fn bounded(bytes: &'a [u8]) -> Result<Self, TextError> {
        match bytes.len() {
            len if len < MIN => Err(TextError::Empty),
            len if len > MAX => Err(TextError::TooLong { len, max: MAX }),
            _ => Ok(Self(bytes)),
        }
    }

    /// The text for display. Checks the encoding again; [`Self::as_bytes`] costs nothing.
    #[must_use]
    pub const fn as_str(self) -> &'a str {
        utf8(self.0)
    }

    /// The text's bytes, for comparing, hashing and sending.
    #[must_use]
    pub const fn as_bytes(self) -> &'a [u8] {
        self.0
    }
}

impl<'a> Holder<'a> {
    /// The longest holder text, in bytes.
    pub const LEN_MAX: usize = 256;

    /// No text.
    pub const NONE: Self = Self(b"");

    /// Checks the bound.
    ///
    /// # Errors
    /// When the text is too long.
    pub const fn new(text: &'a str) -> Result<Self, TextError> {
        Self::from_bytes(text.as_bytes())
    }

    /// Checks the bound. The bytes need not be UTF-8.
    ///
    /// # Errors
    /// When there are too many bytes.
    #[inline]
    pub const fn from_bytes(bytes: &'a [u8]) -> Result<Self, TextError> {
        match bytes.len() {
            len if len > Self::LEN_MAX => Err(TextError::TooLong { len, max: Self::LEN_MAX }),
            _ => Ok(Self(bytes)),
        }
    }

    /// Checks the bound and the encoding, for interfaces that promise a text to their readers.
    ///
    /// # Errors
    /// When the bytes are not UTF-8, or too many.
    pub fn from_utf8(bytes: &'a [u8]) -> Result<Self, TextError> {
        if is_utf8(bytes) { Self::from_bytes(bytes) } else { Err(TextError::NotUtf8) }
    }

    /// The text, if it is UTF-8.
    #[must_use]
    pub fn as_str(self) -> Option<&'a str> {
        core::str::from_utf8(self.0).ok()
    }

    /// The text for display: what is not UTF-8 becomes U+FFFD.
    #[must_use]
    pub fn to_text(self) -> Cow<'a, str> {
        String::from_utf8_lossy(self.0)
    }

    /// The text's bytes, for comparing and sending.
    #[must_use]
    pub const fn as_bytes(self) -> &'a [u8] {
        self.0
    }
}

impl<const MIN: usize, const MAX: usize> fmt::Debug for Text<'_, MIN, MAX> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl<const MIN: usize, const MAX: usize> fmt::Display for Text<'_, MIN, MAX> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Holder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.to_text(), f)
    }
}

impl fmt::Display for Holder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_text())
    }
}

/// Bytes a [`Label`] keeps without touching the heap, name and holder together.
const INLINE_MAX: usize = 38;

/// A name and a holder text, owned.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Label(Repr);

/// The bytes are the name, then the holder text. Spilled ones are shared, because every step of a
/// request clones its label.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Repr {
    Inline { name_len: NonZeroU8, holder_len: u8, bytes: [u8; INLINE_MAX] },
    Spilled { name_len: u16, bytes: Arc<[u8]> },
}

/// The two counts that an [`Arc`] keeps beside the bytes.
const SHARED_BYTES: usize = 2 * size_of::<usize>();

impl Label {
    /// Copies both texts.
    #[must_use]
    pub fn new(name: Name<'_>, holder: Holder<'_>) -> Self {
        let (name, holder) = (name.as_bytes(), holder.as_bytes());
        let inline_len = name.len() + holder.len();
        match u8::try_from(name.len()).ok().and_then(NonZeroU8::new) {
            Some(name_len) if inline_len <= INLINE_MAX => {
                let mut bytes = [0; INLINE_MAX];
                bytes[..name.len()].copy_from_slice(name);
                bytes[name.len()..inline_len].copy_from_slice(holder);
                Self(Repr::Inline { name_len, holder_len: holder.len() as u8, bytes })
            }
            _ => {
                let mut bytes = Vec::with_capacity(inline_len);
                bytes.extend_from_slice(name);
                bytes.extend_from_slice(holder);
                let name_len = u16::try_from(name.len()).expect("a name has at most 512 bytes");
                Self(Repr::Spilled { name_len, bytes: bytes.into() })
            }
        }
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> Name<'_> {
        match &self.0 {
            Repr::Inline { name_len, bytes, .. } => Text(&bytes[..usize::from(name_len.get())]),
            Repr::Spilled { name_len, bytes } => Text(&bytes[..usize::from(*name_len)]),
        }
    }

    /// The holder text.
    #[must_use]
    pub fn holder(&self) -> Holder<'_> {
        match &self.0 {
            Repr::Inline { name_len, holder_len, bytes } => {
                let start = usize::from(name_len.get());
                Holder(&bytes[start..start + usize::from(*holder_len)])
            }
            Repr::Spilled { name_len, bytes } => Holder(&bytes[usize::from(*name_len)..]),
        }
    }

    /// The same name with another holder text.
    #[must_use]
    pub(crate) fn with_holder(&self, holder: Holder<'_>) -> Self {
        Self::new(self.name(), holder)
    }

    /// Bytes of this label on the heap.
    #[must_use]
    pub(crate) fn heap_bytes(&self) -> usize {
        match &self.0 {
            Repr::Inline { .. } => 0,
            Repr::Spilled { bytes, .. } => SHARED_BYTES + bytes.len(),
        }
    }
}

/// Almost every text is ASCII, and the check for that is much faster.
#[inline]
fn is_utf8(bytes: &[u8]) -> bool {
    bytes.is_ascii() || core::str::from_utf8(bytes).is_ok()
}

const fn utf8(bytes: &[u8]) -> &str {
    match core::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(_) => panic!("a text is checked when it is made"),
    }
}

impl fmt::Debug for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} of {:?}", self.name(), self.holder())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_label_is_forty_bytes() {
        assert_eq!(size_of::<Label>(), 40);
    }

    #[test]
    fn a_holder_text_is_any_bytes_and_is_shown_as_text() {
        let holder = Holder::from_bytes(b"caf\xe9").unwrap();
        assert_eq!((holder.as_bytes(), &*holder.to_text()), (&b"caf\xe9"[..], "caf\u{fffd}"));
        assert_eq!(Holder::from_utf8(b"caf\xe9"), Err(TextError::NotUtf8));
        assert_eq!(Name::from_bytes(b"caf\xe9"), Err(TextError::NotUtf8));
        let too_long = TextError::TooLong { len: 257, max: 256 };
        assert_eq!(Holder::from_bytes(&[0xff; 257]), Err(too_long));
    }

    fn label(name: &str, holder: &str) -> Label {
        Label::new(Name::new(name).unwrap(), Holder::new(holder).unwrap())
    }

    #[test]
    fn heap_bytes_include_the_counts_of_the_shared_texts() {
        let (name, holder) = ("n".repeat(512), "h".repeat(256));
        let label = label(&name, &holder);
        assert_eq!((label.name().as_str(), label.holder().as_bytes()), (&*name, holder.as_bytes()));
        assert_eq!(label.heap_bytes(), 512 + 256 + 2 * size_of::<usize>());
    }

    #[test]
    fn long_labels_are_equal_only_if_both_texts_are() {
        let name = "x".repeat(100);
        assert_eq!(label(&name, "y"), label(&name, "y"));
        assert_ne!(label(&name, "y"), label(&name, "z"));
        assert_ne!(label(&name, "x"), label(&name[..99], "xx"), "the same bytes, split elsewhere");
    }

    #[test]
    fn clones_of_a_long_label_share_its_texts() {
        let (label, name) = (label(&"x".repeat(100), "y"), Label::name);
        assert_eq!(name(&label).as_bytes().as_ptr(), name(&label.clone()).as_bytes().as_ptr());
    }

    proptest! {
        #[test]
        fn a_label_returns_the_texts_it_was_made_of(
            name in ".{1,120}",
            holder in proptest::collection::vec(any::<u8>(), 0..60),
        ) {
            let (n, h) = (Name::new(&name), Holder::from_bytes(&holder));
            let (Ok(n), Ok(h)) = (n, h) else { return Ok(()) };
            let label = Label::new(n, h);
            prop_assert_eq!(label.name(), n);
            prop_assert_eq!(label.holder(), h);
            let other = String::from("someone else entirely, far away");
            let relabeled = label.with_holder(Holder::new(&other).unwrap());
            prop_assert_eq!(relabeled.name(), n);
            prop_assert_eq!(relabeled.holder().as_bytes(), other.as_bytes());
        }
    }
}
