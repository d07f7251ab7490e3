//! An acceptor's table: one cache line per name.
//!
//! Entries are in chunks that never move, and the index leads from a name's hash to the entry's
//! [`Slot`]. An entry keeps its slot until it is removed, so sweeps and listings go by slot number.
//! Growing takes no longer than allocating one chunk and splitting one index segment.
//!
//! Knows nothing of leases and time: the acceptor decides what is removed. The order of slots
//! depends only on the operations, never on the seed. Memory of removed entries is reused.

use alloc::vec::Vec;
use core::fmt;
use core::hash::Hasher;
use core::mem;

use foldhash::SharedSeed;
use foldhash::quality::FoldHasher;

use crate::protocol::register::Register;
use crate::storage::index::{Index, Slot};
use crate::{Ballot, Holder, Label, Name};

/// The chunk of a slot, and the place in it.
fn split(slot: Slot) -> (usize, usize) {
    (slot.0 as usize / CHUNK_SLOTS, slot.0 as usize % CHUNK_SLOTS)
}

/// The state of one name in an acceptor.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Entry {
    pub(crate) register: Register,
    /// Changed only by [`Table::relabel`], because the index uses its name.
    pub(crate) label: Label,
}

const _: () = assert!(size_of::<Entry>() == 64, "an entry is one cache line");

impl Entry {
    /// The content of a vacant slot: `promised` holds the number of the next vacant slot.
    fn vacant(next: Slot) -> Self {
        const PLACEHOLDER: Name<'_> = match Name::new("-") {
            Ok(name) => name,
            Err(_) => unreachable!(),
        };
        let promised = Ballot::from_u64(u64::from(next.0)).expect("32 bits fit into 63");
        let register = Register { promised, accepted: None };
        Self { register, label: Label::new(PLACEHOLDER, Holder::NONE) }
    }

    fn next_vacant(&self) -> Slot {
        Slot(u32::try_from(self.register.promised.as_u64()).expect("32 bits fit into it"))
    }
}

/// Entries by name.
#[derive(Clone)]
pub(crate) struct Table {
    seed: u64,
    // The fixed seed of foldhash is public, so a client could choose names that collide.
    seed_shared: SharedSeed,
    index: Index,
    chunks: Vec<Chunk>,
    vacant_first: Slot,
    len: usize,
    spilled_bytes: usize,
}

impl Table {
    /// An empty table without heap memory. With a secret `seed`, no client can choose names whose
    /// hashes collide.
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            seed,
            seed_shared: SharedSeed::from_u64(seed),
            index: Index::default(),
            chunks: Vec::new(),
            vacant_first: Slot::NONE,
            len: 0,
            spilled_bytes: 0,
        }
    }

    pub(crate) fn find(&self, name: Name<'_>) -> Option<Slot> {
        self.index.find(self.hash(name), |slot| self.entry(slot).label.name() == name)
    }

    /// Whether the index is larger than a core's own caches.
    pub(crate) fn is_large(&self) -> bool {
        self.len >= LARGE
    }

    /// Loads the parts of the index that looking up these names will read. The processor loads many
    /// of them at a time, while lookups one after the other wait for each.
    pub(crate) fn prefetch<'a>(&self, names: impl IntoIterator<Item = &'a [u8]>) {
        let mut names = names.into_iter();
        loop {
            let mut hashes = [0; PREFETCH_BATCH];
            let pairs = hashes.iter_mut().zip(names.by_ref());
            let len = pairs.map(|(hash, name)| *hash = self.hash_bytes(name)).count();
            self.index.touch(&hashes[..len]);
            if len < PREFETCH_BATCH {
                return;
            }
        }
    }

    /// Adds an entry, unmarked. The name must be new.
    pub(crate) fn insert(&mut self, label: Label, register: Register) -> Slot {
        debug_assert!(self.find(label.name()).is_none(), "{label:?} is not new");
        let hash = self.hash(label.name());
        self.spilled_bytes += label.heap_bytes();
        let slot = self.occupy(Entry { register, label });
        self.index.insert(hash, slot);
        self.len += 1;
        slot
    }

    /// Removes an entry. Its slot is the next one to be reused.
    pub(crate) fn remove(&mut self, slot: Slot) -> Entry {
        let hash = self.hash(self.entry(slot).label.name());
        self.index.remove(hash, slot);
        let vacant = Entry::vacant(mem::replace(&mut self.vacant_first, slot));
        let (chunk, at) = self.chunk_mut(slot);
        let entry = mem::replace(&mut chunk.entries[at], vacant);
        let (flags, bit) = chunk.flags_mut(at);
        flags.occupied &= !bit;
        flags.marked &= !bit;
        flags.dated &= !bit;
        self.spilled_bytes -= entry.label.heap_bytes();
        self.len -= 1;
        entry
    }

    /// The entry of an occupied slot.
    pub(crate) fn entry(&self, slot: Slot) -> &Entry {
        let (chunk, at) = split(slot);
        debug_assert!(self.get(slot).is_some(), "{slot:?} is vacant");
        &self.chunks[chunk].entries[at]
    }

    /// The entry of an occupied slot.
    pub(crate) fn entry_mut(&mut self, slot: Slot) -> &mut Entry {
        debug_assert!(self.get(slot).is_some(), "{slot:?} is vacant");
        let (chunk, at) = self.chunk_mut(slot);
        &mut chunk.entries[at]
    }

    /// The entry of any slot; `None` when it is vacant.
    pub(crate) fn get(&self, slot: Slot) -> Option<&Entry> {
        let (chunk, at) = split(slot);
        let chunk = self.chunks.get(chunk)?;
        let entry = chunk.entries.get(at)?;
        let (flags, bit) = chunk.flags(at);
        (flags.occupied & bit != 0).then_some(entry)
    }

    /// Replaces the label of an entry by another with the same name.
    pub(crate) fn relabel(&mut self, slot: Slot, label: Label) {
        debug_assert_eq!(self.entry(slot).label.name(), label.name(), "the index uses the name");
        self.spilled_bytes += label.heap_bytes();
        let old = mem::replace(&mut self.entry_mut(slot).label, label);
        self.spilled_bytes -= old.heap_bytes();
    }

    /// Marks an entry as idle. A sweep reclaims an entry that is still marked one pass later.
    pub(crate) fn mark(&mut self, slot: Slot) {
        debug_assert!(self.get(slot).is_some(), "{slot:?} is vacant");
        let (chunk, at) = self.chunk_mut(slot);
        let (flags, bit) = chunk.flags_mut(at);
        flags.marked |= bit;
    }

    /// The entry of an occupied slot, which is in use and so no longer marked.
    pub(crate) fn unmark(&mut self, slot: Slot) -> &mut Entry {
        debug_assert!(self.get(slot).is_some(), "{slot:?} is vacant");
        let (chunk, at) = self.chunk_mut(slot);
        let (flags, bit) = chunk.flags_mut(at);
        flags.marked &= !bit;
        &mut chunk.entries[at]
    }

    pub(crate) fn is_marked(&self, slot: Slot) -> bool {
        let (chunk, at) = split(slot);
        let (flags, bit) = self.chunks[chunk].flags(at);
        flags.marked & bit != 0
    }

    /// E1: the lease in this slot was stored in the joint epoch that began last.
    #[cold]
    pub(crate) fn date(&mut self, slot: Slot) {
        let (chunk, at) = self.chunk_mut(slot);
        let (flags, bit) = chunk.flags_mut(at);
        flags.dated |= bit;
    }

    pub(crate) fn is_dated(&self, slot: Slot) -> bool {
        let (chunk, at) = split(slot);
        let (flags, bit) = self.chunks[chunk].flags(at);
        flags.dated & bit != 0
    }

    /// A joint epoch begins: no lease was stored in it yet.
    pub(crate) fn undate(&mut self) {
        let flags = self.chunks.iter_mut().flat_map(|chunk| &mut chunk.flags);
        flags.for_each(|flags| flags.dated = 0);
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The number of slots, vacant ones included.
    pub(crate) fn slot_count(&self) -> u32 {
        let last = self.chunks.last().map_or(0, |chunk| chunk.entries.len());
        (self.chunks.len().saturating_sub(1) * CHUNK_SLOTS + last) as u32
    }

    /// Heap bytes of labels that do not fit into their entries.
    pub(crate) const fn spilled_bytes(&self) -> usize {
        self.spilled_bytes
    }

    /// Bytes on the heap. Visits every index segment, so it is too slow for every message.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.index.heap_bytes()
            + self.chunks.capacity() * size_of::<Chunk>()
            + self.chunks.iter().map(Chunk::heap_bytes).sum::<usize>()
            + self.spilled_bytes
    }

    pub(crate) fn hash(&self, name: Name<'_>) -> u32 {
        self.hash_bytes(name.as_bytes())
    }

    fn hash_bytes(&self, name: &[u8]) -> u32 {
        let mut hasher = FoldHasher::with_seed(self.seed, &self.seed_shared);
        hasher.write(name);
        hasher.finish() as u32
    }

    fn chunk_mut(&mut self, slot: Slot) -> (&mut Chunk, usize) {
        let (chunk, at) = split(slot);
        (&mut self.chunks[chunk], at)
    }

    /// Puts an entry into the slot that was vacated last, or into a new one.
    fn occupy(&mut self, entry: Entry) -> Slot {
        let slot = match self.vacant_first {
            Slot::NONE => self.push(entry),
            slot => {
                let (chunk, at) = self.chunk_mut(slot);
                let vacant = mem::replace(&mut chunk.entries[at], entry);
                self.vacant_first = vacant.next_vacant();
                slot
            }
        };
        let (chunk, at) = self.chunk_mut(slot);
        let (flags, bit) = chunk.flags_mut(at);
        flags.occupied |= bit;
        slot
    }

    fn push(&mut self, entry: Entry) -> Slot {
        let slot = Slot(self.slot_count());
        assert!(slot != Slot::NONE, "a table has fewer than 2^32 entries");
        let (chunk, _) = split(slot);
        if chunk == self.chunks.len() {
            let room = if chunk == 0 { 0 } else { CHUNK_SLOTS };
            self.chunks.push(Chunk::with_capacity(room));
        }
        self.chunks[chunk].push(entry);
        slot
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slots = (0..self.slot_count()).map(Slot);
        f.debug_set().entries(slots.filter_map(|slot| self.get(slot))).finish()
    }
}

/// From this many entries on, the index is larger than a core's own caches.
const LARGE: usize = 1 << 16;
/// Names that are prefetched together: more than a processor loads at a time.
pub(crate) const PREFETCH_BATCH: usize = 64;

/// Slots per chunk, 256 KiB of entries.
const CHUNK_SLOTS: usize = 4096;

/// All chunks except the last have all their slots. The first one grows by doubling, so that a
/// small table is small; later ones get all their memory at once and never move.
#[derive(Clone, Default)]
struct Chunk {
    entries: Vec<Entry>,
    flags: Vec<Flags>,
}

/// One bit each for 64 slots.
#[derive(Clone, Copy, Default)]
struct Flags {
    occupied: u64,
    marked: u64,
    dated: u64,
}

impl Chunk {
    fn with_capacity(slots: usize) -> Self {
        Self {
            entries: Vec::with_capacity(slots),
            flags: Vec::with_capacity(slots / u64::BITS as usize),
        }
    }

    fn push(&mut self, entry: Entry) {
        let len = self.entries.len();
        if len == self.entries.capacity() {
            // A clone has any capacity, and doubling it could exceed the size of a chunk.
            let capacity = (2 * len).clamp(2, CHUNK_SLOTS);
            self.entries.reserve_exact(capacity - len);
        }
        if len.is_multiple_of(u64::BITS as usize) {
            self.flags.push(Flags::default());
        }
        self.entries.push(entry);
    }

    fn flags(&self, at: usize) -> (&Flags, u64) {
        (&self.flags[at / u64::BITS as usize], 1 << (at % u64::BITS as usize))
    }

    fn flags_mut(&mut self, at: usize) -> (&mut Flags, u64) {
        (&mut self.flags[at / u64::BITS as usize], 1 << (at % u64::BITS as usize))
    }

    fn heap_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>() + self.flags.capacity() * size_of::<Flags>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use alloc::format;
    use alloc::string::String;
    use proptest::collection::vec as vec_of;
    use proptest::prelude::*;

    fn name(text: &str) -> Name<'_> {
        Name::new(text).unwrap()
    }

    fn label(text: &str, holder: &str) -> Label {
        Label::new(name(text), Holder::new(holder).unwrap())
    }

    fn register(promised: u64) -> Register {
        Register { promised: Ballot::from_u64(promised).unwrap(), accepted: None }
    }

    /// 16 bytes, like `HOLDER`: the sizes that the memory figures refer to.
    fn name_of(number: u64) -> String {
        format!("lease/{number:010}")
    }

    const HOLDER: &str = "holder-of-leases";

    fn add(table: &mut Table, number: u64) -> Slot {
        table.insert(label(&name_of(number), HOLDER), register(number))
    }

    #[test]
    fn a_fresh_table_owns_no_heap() {
        let table = Table::new(1);
        assert_eq!((table.heap_bytes(), table.len(), table.slot_count()), (0, 0, 0));
        assert_eq!(table.find(name("a")), None);
        assert_eq!(table.get(Slot(0)), None);
    }

    #[test]
    fn a_table_of_two_is_small() {
        let mut table = Table::new(1);
        table.insert(label("a", ""), register(1));
        table.insert(label("b", ""), register(2));
        let cloned = table.clone();
        assert!(cloned.heap_bytes() <= 320, "{} bytes", cloned.heap_bytes());
        assert_eq!(cloned.find(name("b")), Some(Slot(1)));
    }

    #[test]
    fn a_growing_table_takes_at_most_88_bytes_per_entry() {
        let mut table = Table::new(7);
        for number in 0..300_000 {
            assert_eq!(add(&mut table, number), Slot(number as u32));
            if number >= 100_000 && number % 1000 == 0 {
                let each = table.heap_bytes() / table.len();
                assert!(each <= 88, "{each} bytes each at {number}");
            }
        }
        for number in 0..300_000 {
            let slot = table.find(name(&name_of(number))).unwrap();
            assert_eq!(table.entry(slot).register, register(number));
        }
        assert_eq!(table.find(name(&name_of(300_000))), None);
    }

    #[test]
    fn slots_of_removed_entries_are_reused() {
        const COUNT: u64 = 10_000;
        let mut table = Table::new(7);
        (0..COUNT).for_each(|number| _ = add(&mut table, number));
        let heap_bytes = table.heap_bytes();
        for number in 0..COUNT {
            let entry = table.remove(Slot(number as u32));
            assert_eq!(entry.label, label(&name_of(number), HOLDER));
            assert_eq!(table.find(name(&name_of(number))), None);
        }
        assert!(table.is_empty());
        assert!((0..table.slot_count()).all(|number| table.get(Slot(number)).is_none()));
        (0..COUNT).for_each(|number| _ = add(&mut table, number));
        assert_eq!((table.slot_count(), table.heap_bytes()), (COUNT as u32, heap_bytes));
        assert_eq!(table.insert(label("one more", ""), register(0)), Slot(COUNT as u32));
    }

    #[test]
    fn a_mark_stays_until_unmark_or_removal() {
        let mut table = Table::new(7);
        for number in 0..5000 {
            let slot = add(&mut table, number);
            if number % 3 == 0 {
                table.mark(slot);
            }
        }
        for number in 0..5000 {
            assert_eq!(table.is_marked(Slot(number)), number % 3 == 0);
        }
        table.unmark(Slot(0));
        assert!(!table.is_marked(Slot(0)) && table.is_marked(Slot(3)));
        table.remove(Slot(4998));
        let slot = table.insert(label("fresh", ""), register(0));
        assert!(slot == Slot(4998) && !table.is_marked(slot));
    }

    #[test]
    fn a_clone_grows_like_its_original() {
        let mut table = Table::new(7);
        for number in 0..9000 {
            if matches!(number, 3 | 3000 | 5000) {
                table = table.clone();
            }
            add(&mut table, number);
        }
        let first = table.chunks[0].entries.capacity();
        assert_eq!((table.chunks.len(), first), (3, CHUNK_SLOTS));
        assert!((0..9000).all(|number| table.find(name(&name_of(number))).is_some()));
    }

    #[test]
    fn prefetch_reads_all_names_and_changes_nothing() {
        let mut table = Table::new(7);
        for entries in [0, 1, 1000] {
            (table.len() as u64..entries).for_each(|number| _ = add(&mut table, number));
            let before = (format!("{table:?}"), table.heap_bytes());
            for count in [0, 1, PREFETCH_BATCH, PREFETCH_BATCH + 1, 2 * PREFETCH_BATCH] {
                let texts: Vec<String> = (0..count as u64).map(name_of).collect();
                let mut names = texts.iter().map(String::as_bytes);
                table.prefetch(&mut names);
                assert_eq!(names.len(), 0, "{count} names for {entries} entries");
            }
            assert_eq!((format!("{table:?}"), table.heap_bytes()), before);
        }
    }

    #[test]
    fn slots_do_not_depend_on_the_seed() {
        let mut tables = [Table::new(1), Table::new(u64::MAX)];
        for number in 0..2000 {
            for table in &mut tables {
                let slot = add(table, number);
                if number % 5 == 0 {
                    table.remove(slot);
                }
            }
        }
        assert_eq!(format!("{:?}", tables[0]), format!("{:?}", tables[1]));
        let hashes = tables.map(|table| table.hash(name("a")));
        assert_ne!(hashes[0], hashes[1]);
    }

    #[derive(Clone, Debug)]
    enum TableStep {
        Insert(u16, String),
        Remove(u16),
        Relabel(u16, String),
        SetPromised(u16, u32),
    }

    fn steps(names: u16) -> impl Strategy<Value = Vec<TableStep>> {
        let holder = || prop_oneof!["[a-z]{0,6}", "[a-z]{30,60}"];
        let step = prop_oneof![
            4 => (0..names, holder()).prop_map(|(key, holder)| TableStep::Insert(key, holder)),
            2 => (0..names).prop_map(TableStep::Remove),
            1 => (0..names, holder()).prop_map(|(key, holder)| TableStep::Relabel(key, holder)),
            1 => (0..names, any::<u32>()).prop_map(|(key, to)| TableStep::SetPromised(key, to)),
        ];
        vec_of(step, 1..4000)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn a_table_behaves_like_a_map(
            seed: u64,
            steps in prop_oneof![steps(12), steps(20_000)],
        ) {
            let mut table = Table::new(seed);
            let mut model = BTreeMap::<String, (String, Register)>::new();
            for step in steps {
                let (TableStep::Insert(key, _) | TableStep::Remove(key) | TableStep::Relabel(key, _)
                    | TableStep::SetPromised(key, _)) = step;
                let text = format!("name {key}");
                let found = table.find(name(&text));
                prop_assert_eq!(found.is_some(), model.contains_key(&text));
                match (step, found) {
                    (TableStep::Insert(_, holder), None) => {
                        let new = register(u64::from(key));
                        table.insert(label(&text, &holder), new);
                        model.insert(text, (holder, new));
                    }
                    (TableStep::Remove(_), Some(slot)) => {
                        let entry = table.remove(slot);
                        let (holder, old) = model.remove(&text).unwrap();
                        prop_assert_eq!(entry.label, label(&text, &holder));
                        prop_assert_eq!(entry.register, old);
                    }
                    (TableStep::Relabel(_, holder), Some(slot)) => {
                        table.relabel(slot, label(&text, &holder));
                        model.get_mut(&text).unwrap().0 = holder;
                    }
                    (TableStep::SetPromised(_, to), Some(slot)) => {
                        table.entry_mut(slot).register = register(u64::from(to));
                        model.get_mut(&text).unwrap().1 = register(u64::from(to));
                    }
                    _ => {}
                }
                prop_assert_eq!(table.len(), model.len());
            }
            let by_slot = (0..table.slot_count()).filter_map(|number| table.get(Slot(number)));
            let entries: BTreeMap<_, _> = by_slot
                .map(|Entry { register, label }| {
                    (label.name().as_str().into(), (label.holder().to_text().into(), *register))
                })
                .collect();
            let spilled: usize = model
                .iter()
                .map(|(text, (holder, _))| label(text, holder).heap_bytes())
                .sum();
            prop_assert_eq!(entries, model);
            prop_assert_eq!(table.spilled_bytes, spilled);
        }
    }
}
