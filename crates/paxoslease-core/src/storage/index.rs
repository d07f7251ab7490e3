//! The index from hash to slot, by extendible hashing.
//!
//! The top bits of a hash choose one of many small segments through a directory. The low bits
//! choose the cache line in the segment where linear probing starts; nearly every search ends in
//! that line. A full segment is split alone, so growing moves at most one segment, and sometimes
//! the directory, which is small.
//!
//! Knows only hashes and slots: the caller decides whether a slot has the wanted name. Never
//! shrinks. Splitting cannot separate equal hashes, so a segment of equal hashes grows instead.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::mem;

/// The number of an entry's place in the table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Slot(pub(super) u32);

impl Slot {
    /// No slot: the end of the list of vacant slots, and an empty place in the index.
    pub(super) const NONE: Self = Self(u32::MAX);

    pub(crate) fn new(number: u32) -> Self {
        Self(number)
    }
}

/// A full segment of this many pairs (4 KiB) is split; a smaller one doubles.
const SPLIT_PAIRS: usize = 512;

/// The directory doubles only while it has at most this many places per segment. Well spread
/// hashes stay far below. If many hashes share their top bits, their segments grow instead.
const DIRECTORY_SPREAD: usize = 2;

#[derive(Clone, Default)]
pub(super) struct Index {
    segments: Vec<Segment>,
    /// The segment of each value of the top `depth` bits. Empty while `depth` is 0, because one
    /// segment needs no directory and small tables are cloned often.
    directory: Vec<u32>,
    depth: u32,
}

impl Index {
    /// The first slot with this hash that `is_wanted`.
    pub(super) fn find(&self, hash: u32, is_wanted: impl Fn(Slot) -> bool) -> Option<Slot> {
        let segment = self.segments.get(self.segment_of(hash))?;
        segment.search(hash, is_wanted).map(|(_, slot)| slot)
    }

    /// Loads the places where the searches for these hashes begin.
    pub(super) fn touch(&self, hashes: &[u32]) {
        let seen = hashes.iter().fold(0, |seen, &hash| {
            let segment = self.segments.get(self.segment_of(hash));
            seen ^ segment
                .filter(|segment| segment.places() > 0)
                .map_or(0, |segment| segment.pair(segment.home(hash)).hash)
        });
        core::hint::black_box(seen);
    }

    /// Adds a pair, which must be new.
    pub(super) fn insert(&mut self, hash: u32, slot: Slot) {
        if self.segments.is_empty() {
            self.segments.push(Segment::default());
        }
        if self.segments[self.segment_of(hash)].is_full() {
            self.make_room(hash);
        }
        let id = self.segment_of(hash);
        self.segments[id].insert(Pair { hash, slot });
    }

    /// Removes a pair, which must exist.
    pub(super) fn remove(&mut self, hash: u32, slot: Slot) {
        let id = self.segment_of(hash);
        self.segments[id].remove(hash, slot);
    }

    /// Bytes on the heap.
    pub(super) fn heap_bytes(&self) -> usize {
        self.segments.iter().map(|segment| size_of_val(&*segment.lines)).sum::<usize>()
            + self.segments.capacity() * size_of::<Segment>()
            + self.directory.capacity() * size_of::<u32>()
    }

    fn place_of(&self, hash: u32) -> usize {
        // In 64 bits, because depth 0 shifts by the width of the hash.
        (u64::from(hash) >> (u32::BITS - self.depth)) as usize
    }

    fn segment_of(&self, hash: u32) -> usize {
        self.directory.get(self.place_of(hash)).map_or(0, |&id| id as usize)
    }

    /// Makes room for one more pair in the segment of `hash`.
    fn make_room(&mut self, hash: u32) {
        let id = self.segment_of(hash);
        let segment = &self.segments[id];
        let splits = segment.places() >= SPLIT_PAIRS
            && (segment.depth < self.depth
                || self.directory.len() <= DIRECTORY_SPREAD * self.segments.len());
        if splits {
            self.split(id, hash);
        } else {
            let mut grown = Segment::with_room(segment.len, segment.depth);
            segment.occupied().for_each(|pair| grown.insert(pair));
            self.segments[id] = grown;
        }
    }

    /// Splits segment `id`, the one of `hash`, by the first bit in which its hashes may differ.
    fn split(&mut self, id: usize, hash: u32) {
        let old = mem::take(&mut self.segments[id]);
        if old.depth == self.depth {
            self.double_directory();
        }
        let is_upper = |pair: &Pair| pair.hash << old.depth >> (u32::BITS - 1) == 1;
        let upper_len = old.occupied().filter(is_upper).count();
        let mut lower = Segment::with_room(old.len - upper_len, old.depth + 1);
        let mut upper = Segment::with_room(upper_len, old.depth + 1);
        for pair in old.occupied() {
            if is_upper(&pair) { upper.insert(pair) } else { lower.insert(pair) }
        }

        let upper_id = u32::try_from(self.segments.len()).expect("fewer segments than slots");
        self.segments[id] = lower;
        self.segments.push(upper);
        let run = 1 << (self.depth - old.depth);
        let start = self.place_of(hash) & !(run - 1);
        self.directory[start + run / 2..start + run].fill(upper_id);
    }

    fn double_directory(&mut self) {
        self.directory = match self.directory.as_slice() {
            [] => vec![0, 0],
            ids => {
                let mut doubled = Vec::with_capacity(2 * ids.len());
                doubled.extend(ids.iter().flat_map(|&id| [id, id]));
                doubled
            }
        };
        self.depth += 1;
    }
}

#[derive(Clone, Copy)]
struct Pair {
    hash: u32,
    slot: Slot,
}

impl Pair {
    const EMPTY: Self = Self { hash: 0, slot: Slot::NONE };

    fn is_empty(self) -> bool {
        self.slot == Slot::NONE
    }
}

/// Pairs in a cache line.
const LINE: usize = 8;

#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line([Pair; LINE]);

const _: () = assert!(size_of::<Line>() == 64, "a line is a cache line");

/// All pairs whose hashes share their top `depth` bits. The number of lines is zero or a power of
/// two. At least one place stays empty, so that probing ends.
#[derive(Clone, Default)]
struct Segment {
    lines: Box<[Line]>,
    len: usize,
    depth: u32,
}

impl Segment {
    /// Room for `len` pairs and a quarter more, so that a new segment is not full at once.
    fn with_room(len: usize, depth: u32) -> Self {
        let len_max = len + len / 4 + 1;
        let places = (len_max * 16).div_ceil(13).next_power_of_two().max(LINE);
        let lines = vec![Line([Pair::EMPTY; LINE]); places / LINE].into_boxed_slice();
        Self { lines, len: 0, depth }
    }

    const fn places(&self) -> usize {
        self.lines.len() * LINE
    }

    /// Where probing for a hash starts, in a segment that has places.
    const fn home(&self, hash: u32) -> usize {
        hash as usize & (self.places() - 1) & !(LINE - 1)
    }

    const fn after(&self, at: usize) -> usize {
        (at + 1) & (self.places() - 1)
    }

    /// The number of probing steps from one place to another.
    const fn distance(&self, from: usize, to: usize) -> usize {
        to.wrapping_sub(from) & (self.places() - 1)
    }

    const fn pair(&self, at: usize) -> Pair {
        self.lines[at / LINE].0[at % LINE]
    }

    const fn pair_mut(&mut self, at: usize) -> &mut Pair {
        &mut self.lines[at / LINE].0[at % LINE]
    }

    /// At 13 of 16 places: beyond that, probing becomes slow.
    const fn is_full(&self) -> bool {
        self.len >= self.places() * 13 / 16
    }

    fn occupied(&self) -> impl Iterator<Item = Pair> {
        let pairs = self.lines.iter().flat_map(|line| line.0);
        pairs.filter(|pair| !pair.is_empty())
    }

    /// The first slot with this hash that `is_wanted`, and its place.
    fn search(&self, hash: u32, is_wanted: impl Fn(Slot) -> bool) -> Option<(usize, Slot)> {
        if self.lines.is_empty() {
            return None;
        }
        let mut line = self.home(hash) / LINE;
        loop {
            let pairs = &self.lines[line].0;
            for (place, pair) in pairs.iter().enumerate() {
                if pair.hash == hash && !pair.is_empty() && is_wanted(pair.slot) {
                    return Some((line * LINE + place, pair.slot));
                }
            }
            // A line has no gaps, so its last place is empty unless the line is full.
            if pairs[LINE - 1].is_empty() {
                return None;
            }
            line = (line + 1) & (self.lines.len() - 1);
        }
    }

    fn insert(&mut self, pair: Pair) {
        let mut line = self.home(pair.hash) / LINE;
        self.len += 1;
        loop {
            if let Some(place) = self.lines[line].0.iter_mut().find(|place| place.is_empty()) {
                *place = pair;
                return;
            }
            line = (line + 1) & (self.lines.len() - 1);
        }
    }

    /// Moves later pairs back into the gap, so that no tombstones are needed.
    fn remove(&mut self, hash: u32, slot: Slot) {
        let found = self.search(hash, |other| other == slot);
        let (mut gap, _) = found.expect("every entry is indexed");
        let mut at = gap;
        loop {
            at = self.after(at);
            let pair = self.pair(at);
            if pair.is_empty() {
                break;
            }
            // A pair may move into the gap unless its probing starts after the gap.
            if self.distance(self.home(pair.hash), at) >= self.distance(gap, at) {
                *self.pair_mut(gap) = pair;
                gap = at;
            }
        }
        *self.pair_mut(gap) = Pair::EMPTY;
        self.len -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use proptest::collection::vec as vec_of;
    use proptest::prelude::*;

    fn slots(index: &Index, hash: u32) -> BTreeSet<Slot> {
        let found = core::cell::RefCell::new(BTreeSet::new());
        index.find(hash, |slot| {
            assert!(found.borrow_mut().insert(slot), "{slot:?} was found twice");
            false
        });
        found.into_inner()
    }

    #[test]
    fn pairs_fill_a_line_before_the_next_one() {
        let mut segment = Segment::with_room(2 * LINE, 0);
        for hash in (8..=16).rev() {
            segment.insert(Pair { hash, slot: Slot(hash) });
        }
        let hashes = |line: usize| segment.lines[line].0.map(|pair| pair.hash);
        assert_eq!(hashes(1), [15, 14, 13, 12, 11, 10, 9, 8]);
        assert_eq!(segment.pair(2 * LINE).hash, 16);
    }

    #[test]
    fn touching_an_index_without_places_is_harmless() {
        let mut index = Index::default();
        index.touch(&[0, u32::MAX]);
        index.segments.push(Segment::default());
        index.touch(&[0, u32::MAX]);
        assert_eq!(index.find(0, |_| true), None);
    }

    #[test]
    fn a_segment_of_equal_hashes_grows() {
        for hash in [0, 0x8000_0000, u32::MAX] {
            let mut index = Index::default();
            for number in 0..5000 {
                index.insert(hash, Slot(number));
            }
            assert_eq!(slots(&index, hash).len(), 5000);
            assert!(slots(&index, !hash).is_empty());
            assert!(index.heap_bytes() < 80_000, "{} bytes", index.heap_bytes());
            for number in (0..5000).step_by(2) {
                index.remove(hash, Slot(number));
            }
            assert_eq!(slots(&index, hash), (1..5000).step_by(2).map(Slot).collect());
        }
    }

    #[test]
    fn hashes_with_one_prefix_do_not_blow_the_directory_up() {
        let mut index = Index::default();
        let hash = |number: u32| (1 << 31 | number << 15) >> (number / 200);
        for number in 0..5000 {
            index.insert(hash(number), Slot(number));
        }
        let (places, segments) = (index.directory.len(), index.segments.len());
        assert!(places <= 4 * segments, "{places} places for {segments} segments");
        for number in 0..5000 {
            let slot = Slot(number);
            assert_eq!(index.find(hash(number), |found| found == slot), Some(slot));
        }
    }

    #[test]
    fn spread_hashes_split_segments_instead_of_growing_them() {
        let mut index = Index::default();
        for number in 0..100_000_u32 {
            index.insert(number.wrapping_mul(0x9e37_79b9), Slot(number));
        }
        assert!(index.segments.iter().all(|segment| segment.places() <= SPLIT_PAIRS));
        let len: usize = index.segments.iter().map(|segment| segment.len).sum();
        assert_eq!(len, 100_000);
    }

    /// Hashes of which many share their top bits or their low bits.
    fn hash() -> impl Strategy<Value = u32> {
        prop_oneof![
            0..4_u32,
            (0..8_u32).prop_map(|top| top << 29),
            (0..4096_u32).prop_map(|top| 0xabc0_0000 | top << 7),
            any::<u32>(),
        ]
    }

    proptest! {
        #[test]
        fn an_index_finds_every_pair_that_was_not_removed(
            steps in vec_of((hash(), 0..4_u8), 1..3000),
        ) {
            let mut index = Index::default();
            let mut model = BTreeSet::new();
            for (number, (hash, kind)) in (0..).zip(steps) {
                let first = model.range((hash, Slot(0))..=(hash, Slot::NONE)).next().copied();
                match (kind, first) {
                    (0, Some((hash, slot))) => {
                        index.remove(hash, slot);
                        model.remove(&(hash, slot));
                    }
                    _ => {
                        index.insert(hash, Slot(number));
                        model.insert((hash, Slot(number)));
                    }
                }
                let expected = model.range((hash, Slot(0))..=(hash, Slot::NONE));
                prop_assert_eq!(slots(&index, hash), expected.map(|&(_, slot)| slot).collect());
            }
            for &(hash, slot) in &model {
                prop_assert_eq!(index.find(hash, |found| found == slot), Some(slot));
            }
        }
    }
}
