//! Counts bits by a table. Every round counts its answers, and the x86-64 baseline has no
//! instruction for that.

use crate::cell::MEMBERS_MAX;

static COUNTS: [u8; 1 << MEMBERS_MAX] = {
    let mut counts = [0; 1 << MEMBERS_MAX];
    let mut bits = 1;
    while bits < counts.len() {
        counts[bits] = counts[bits / 2] + (bits % 2) as u8;
        bits += 1;
    }
    counts
};

/// How many of the lowest eighteen bits are set. Only in a joint epoch are there more than nine.
pub(crate) const fn count_ones(bits: u32) -> u32 {
    let low = COUNTS[bits as usize % COUNTS.len()] as u32;
    let high = bits as usize >> MEMBERS_MAX;
    if high == 0 { low } else { low + COUNTS[high % COUNTS.len()] as u32 }
}
