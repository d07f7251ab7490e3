//! 16-byte names, made ahead of the measurement so that it does not pay for formatting.

use std::fmt::Write;

use paxoslease_core::Name;

const LEN: usize = 16;

/// What every holder calls itself: as long as the figures are given for.
pub const HOLDER: &str = "holder-of-leases";

/// Some names in one buffer.
#[derive(Default, Debug)]
pub struct Names(String);

impl Names {
    /// A name for each number.
    pub fn of(numbers: impl IntoIterator<Item = u32>) -> Self {
        let mut names = Self::default();
        names.refill(numbers);
        names
    }

    /// Names anew, in the same memory.
    pub fn refill(&mut self, numbers: impl IntoIterator<Item = u32>) {
        self.0.clear();
        for number in numbers {
            write!(self.0, "lease/{number:010}").expect("a string takes everything");
        }
    }

    /// The name at a place, counted from zero.
    pub fn get(&self, at: usize) -> Name<'_> {
        Name::new(&self.0[at * LEN..(at + 1) * LEN]).expect("16 bytes are within bounds")
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len() / LEN
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
