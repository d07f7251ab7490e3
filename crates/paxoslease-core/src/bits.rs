//! Counts bits by a table. Every round counts its answers, and the x86-64 baseline has no
//! instruction for that.

/// A cell has at most nine acceptors, so a set of them has at most nine bits.
const BITS_MAX: usize = crate::protocol::cell::MEMBERS_MAX;

static COUNTS: [u8; 1 << BITS_MAX] = {
    let mut counts = [0; 1 << BITS_MAX];
    let mut bits = 1;
    while bits < counts.len() {
        counts[bits] = counts[bits / 2] + (bits % 2) as u8;
        bits += 1;
    }
    counts
};

/// How many of the lowest nine bits are set.
pub(crate) const fn count_ones(bits: u16) -> u32 {
    COUNTS[bits as usize % COUNTS.len()] as u32
}
