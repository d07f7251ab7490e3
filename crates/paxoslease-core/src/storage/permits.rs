//! Semaphores as leases: permit 2 of the semaphore `gpu` is the lease `gpu#2`.
//!
//! The protocol knows only leases. This module has the names, so that all crates agree on them.

use alloc::format;
use core::num::NonZeroU8;

use crate::{Label, Name, TextError};

/// How many holders a semaphore admits at a time: 1 to [`Permits::MAX`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Permits(NonZeroU8);

impl Permits {
    /// The most permits of a semaphore.
    pub const MAX: u8 = 64;

    /// `None` if the count is out of bounds.
    #[must_use]
    pub fn new(count: u64) -> Option<Self> {
        let count = u8::try_from(count).ok().filter(|count| *count <= Self::MAX)?;
        NonZeroU8::new(count).map(Self)
    }

    /// The number of permits, which is also the number of the last one.
    #[must_use]
    pub const fn count(self) -> NonZeroU8 {
        self.0
    }
}

impl Label {
    /// The label of a permit of this semaphore, for the same holder.
    ///
    /// # Errors
    /// When the name leaves no room for the number.
    pub fn permit(&self, number: NonZeroU8) -> Result<Self, TextError> {
        let name = format!("{}#{number}", self.name());
        Ok(Self::new(Name::new(&name)?, self.holder()))
    }
}

impl<'a> Name<'a> {
    /// The semaphore and the number, if this is the name of a permit.
    #[must_use]
    pub fn as_permit(self) -> Option<(Self, NonZeroU8)> {
        let bytes = self.as_bytes();
        let (semaphore, digits) = match bytes {
            [semaphore @ .., b'#', digit @ b'1'..=b'9'] => (semaphore, [b'0', *digit]),
            [semaphore @ .., b'#', ten @ b'1'..=b'9', one @ b'0'..=b'9'] => {
                (semaphore, [*ten, *one])
            }
            _ => return None,
        };
        let number = (digits[0] - b'0') * 10 + (digits[1] - b'0');
        let number = Permits::new(number.into())?.count();
        Self::from_bytes(semaphore).ok().map(|semaphore| (semaphore, number))
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;
    use crate::Holder;

    #[test]
    fn a_permit_is_named_after_its_semaphore() {
        let label = Label::new(Name::new("gpu#x").unwrap(), Holder::new("me").unwrap());
        for number in (1..=Permits::MAX).filter_map(NonZeroU8::new) {
            let permit = label.permit(number).unwrap();
            assert_eq!(permit.name().to_string(), format!("gpu#x#{number}"));
            assert_eq!(permit.name().as_permit(), Some((label.name(), number)));
            assert_eq!(permit.holder(), label.holder());
        }
        for other in ["gpu", "gpu#", "#1", "gpu#0", "gpu#01", "gpu#65", "gpu#100", "gpu#1 ", "1"] {
            assert_eq!(Name::new(other).unwrap().as_permit(), None, "{other}");
        }
        let longest = "x".repeat(Name::LEN_MAX - 1);
        let label = Label::new(Name::new(&longest).unwrap(), Holder::NONE);
        assert!(matches!(label.permit(NonZeroU8::MIN), Err(TextError::TooLong { .. })));
        assert_eq!([0, 65, 300].map(Permits::new), [None; 3]);
    }
}
