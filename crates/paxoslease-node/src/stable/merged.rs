//! One record for all shards of a node.
//!
//! Each field of the node's record is the highest that a shard asked for. So the record on disk is
//! never below the ceilings that a shard uses: a shard does not use a raised ceiling before it is
//! confirmed, and stops using a ceiling before it asks to lower it (`Ceilings` in the core).

use paxoslease_core::Record;

/// The record that each shard asked for last.
#[derive(Clone, Debug)]
pub(crate) struct MergedRecord {
    asked: Vec<Record>,
}

impl MergedRecord {
    /// All shards began with `start`, and use it until they ask for another record.
    pub(crate) fn new(shards: usize, start: Record) -> Self {
        Self { asked: vec![start; shards] }
    }

    /// A shard asks for a record. Returns the node's record to write.
    pub(crate) fn ask(&mut self, shard: usize, record: Record) -> Record {
        self.asked[shard] = record;
        self.merged()
    }

    pub(crate) fn of(&self, shard: usize) -> Record {
        self.asked[shard]
    }

    pub(crate) fn merged(&self) -> Record {
        self.asked.iter().fold(Record::default(), |all, one| Record {
            ballot_ceiling: all.ballot_ceiling.max(one.ballot_ceiling),
            lease_ceiling: all.lease_ceiling.max(one.lease_ceiling),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stable::tests::record;

    #[test]
    fn a_ceiling_falls_only_when_all_shards_have_lowered_it() {
        let mut merged = MergedRecord::new(3, record(100, 60_000));
        for (shard, asked, expected) in [
            (0, record(200, 10), record(200, 60_000)),
            (0, record(50, 10), record(100, 60_000)),
            (1, record(100, 20), record(100, 60_000)),
            (2, record(100, 0), record(100, 20)),
            (1, record(70, 0), record(100, 10)),
            (0, record(50, 0), record(100, 0)),
            (2, record(60, 50), record(70, 50)),
        ] {
            assert_eq!(merged.ask(shard, asked), expected, "shard {shard} asks for {asked:?}");
        }
    }
}
