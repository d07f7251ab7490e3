//! 16-byte names, made ahead of the measurement so that it does not pay for formatting.

use std::fmt::Write;

use paxoslease_core::Name;

const LEN: usize = 16;

pub(crate) const HOLDER: &str = "holder-of-leases";

/// Names in one buffer.
#[derive(Default)]
pub(crate) struct Names(String);

impl Names {
    pub(crate) fn of(numbers: impl IntoIterator<Item = u32>) -> Self {
        let mut names = Self::default();
        names.refill(numbers);
        names
    }

    /// New names in the same buffer.
    pub(crate) fn refill(&mut self, numbers: impl IntoIterator<Item = u32>) {
        self.0.clear();
        for number in numbers {
            write!(self.0, "lease/{number:010}").expect("a string takes everything");
        }
    }

    pub(crate) fn get(&self, at: usize) -> Name<'_> {
        Name::new(&self.0[at * LEN..(at + 1) * LEN]).expect("16 bytes are within bounds")
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len() / LEN
    }
}
