//! How names are divided into shards. Part of the protocol: all nodes of a cell must divide names
//! alike, or a shard would ask its peer about names that another shard keeps.

use paxoslease_core::Name;

/// One of the equal parts into which a node divides its names. A shard talks only to the shards of
/// other nodes with the same index.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ShardId {
    index: u16,
    count: u16,
}

impl ShardId {
    /// The only shard of a node that does not divide its names.
    pub const WHOLE: Self = Self { index: 0, count: 1 };

    /// `None` unless `index` is below `count`.
    #[must_use]
    pub const fn new(index: u16, count: u16) -> Option<Self> {
        if index < count { Some(Self { index, count }) } else { None }
    }

    /// The shard, of `count`, to which a name belongs: FNV-1a over its bytes, mixed and scaled. All
    /// permits of a semaphore belong to the same shard.
    ///
    /// # Panics
    /// When `count` is zero.
    #[must_use]
    pub fn of(name: Name<'_>, count: u16) -> Self {
        assert!(count > 0, "a node has at least one shard");
        if count == 1 {
            return Self::WHOLE;
        }
        let mut name = name;
        // A permit may have permits of its own, and all of these must stay together.
        while let Some((semaphore, _)) = name.as_permit() {
            name = semaphore;
        }
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        for byte in name.as_bytes() {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
        // FNV leaves the high bits of short names alike, and the high bits decide.
        hash = (hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let index = (u128::from(hash) * u128::from(count)) >> 64;
        Self { index: index as u16, count }
    }

    /// The shard's index, below [`Self::count`].
    #[must_use]
    pub const fn index(self) -> u16 {
        self.index
    }

    /// The number of shards of the node, at least 1.
    #[must_use]
    pub const fn count(self) -> u16 {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::vec;

    fn index_of(name: &str, count: u16) -> u16 {
        ShardId::of(Name::new(name).expect("a name"), count).index()
    }

    /// A change here is a change of the protocol.
    #[test]
    fn a_name_always_belongs_to_the_same_shard() {
        let names = ["a", "b", "master", "jobs/nightly", "shard/17"];
        assert_eq!(names.map(|name| index_of(name, 2)), [1, 0, 1, 0, 1]);
        assert_eq!(names.map(|name| index_of(name, 16)), [8, 4, 13, 4, 8]);
    }

    #[test]
    fn permits_belong_to_the_shard_of_their_semaphore() {
        for number in 1..=64 {
            for permit in [format!("b#{number}"), format!("b#{number}#7"), format!("b#2#{number}")]
            {
                assert_eq!(index_of(&permit, 16), index_of("b", 16), "{permit}");
            }
        }
    }

    #[test]
    fn names_spread_evenly() {
        for count in [2, 3, 8] {
            let mut names = vec![0_u32; usize::from(count)];
            for number in 0..8000 {
                names[usize::from(index_of(&format!("jobs/{number}"), count))] += 1;
            }
            let fair = 8000 / u32::from(count);
            assert!(names.iter().all(|n| n.abs_diff(fair) < fair / 5), "{names:?}");
        }
    }
}
