//! One record for all shards of a node, and the shards that wait until it is durable.
//!
//! Each field of the node's record is the highest that a shard asked for. So the record on disk is
//! never below the ceilings that a shard uses: a shard does not use a raised ceiling before it is
//! confirmed, and stops using a ceiling before it asks to lower it (`Ceilings` in the core).

use paxoslease_core::Record;

/// The record that each shard asked for last.
#[derive(Clone, Debug)]
pub(crate) struct MergedRecord {
    asked: Vec<Record>,
    /// By shard, whether it waits for an answer.
    waiting: Vec<bool>,
}

/// A record to write, and the shards to answer then, each with what it asked for.
pub(crate) type Write = (Record, Vec<(usize, Record)>);

impl MergedRecord {
    /// All shards began with `start`, and use it until they ask for another record.
    pub(crate) fn new(shards: usize, start: Record) -> Self {
        Self { asked: vec![start; shards], waiting: vec![false; shards] }
    }

    pub(crate) fn ask(&mut self, shard: usize, record: Record) {
        self.asked[shard] = record;
        self.waiting[shard] = true;
    }

    /// The write for a shard failed.
    pub(crate) fn ask_again(&mut self, shard: usize) {
        self.waiting[shard] = true;
    }

    pub(crate) fn is_asked(&self) -> bool {
        self.waiting.contains(&true)
    }

    /// The next write. No shard waits afterwards.
    pub(crate) fn take(&mut self) -> Write {
        let waiting = (0..self.waiting.len()).filter(|shard| self.waiting[*shard]);
        let answers = waiting.map(|shard| (shard, self.asked[shard])).collect();
        self.waiting.fill(false);
        (self.merged(), answers)
    }

    fn merged(&self) -> Record {
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
            merged.ask(shard, asked);
            let write = (expected, vec![(shard, asked)]);
            assert_eq!(merged.take(), write, "shard {shard} asks for {asked:?}");
        }
    }
}
