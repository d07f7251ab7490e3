//! One record for the shards of a node.
//!
//! Pure. The node's record is, field by field, the highest any shard asked for. So what is on disk
//! is never below what a shard goes by: a ceiling that it waits to see raised is not in use yet,
//! and one that it asked to lower is out of use already (`Ceilings` in the core).

use paxoslease_core::Record;

/// What each shard last asked for.
#[derive(Clone, Debug)]
pub(crate) struct MergedRecord {
    asked: Vec<Record>,
}

impl MergedRecord {
    /// For shards that all began with `start`: each goes by that until it asks for another.
    pub(crate) fn new(shards: usize, start: Record) -> Self {
        Self { asked: vec![start; shards] }
    }

    /// A shard asks for a record. Returns what is to be written for it.
    pub(crate) fn ask(&mut self, shard: usize, record: Record) -> Record {
        self.asked[shard] = record;
        self.merged()
    }

    /// What a shard asked for last.
    pub(crate) fn of(&self, shard: usize) -> Record {
        self.asked[shard]
    }

    /// The node's record.
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
    fn a_shard_that_has_not_asked_yet_keeps_the_ceilings_up() {
        let mut merged = MergedRecord::new(2, record(100, 60_000));
        assert_eq!(merged.ask(0, record(200, 1_000)), record(200, 60_000));
        assert_eq!(merged.ask(0, record(50, 0)), record(100, 60_000));
    }

    #[test]
    fn a_ceiling_falls_only_when_all_have_lowered_it() {
        let mut merged = MergedRecord::new(3, record(100, 60_000));
        assert_eq!(merged.ask(0, record(100, 10)), record(100, 60_000));
        assert_eq!(merged.ask(1, record(100, 20)), record(100, 60_000));
        assert_eq!(merged.ask(2, record(100, 0)), record(100, 20));
        assert_eq!(merged.ask(1, record(100, 0)), record(100, 10));
        assert_eq!(merged.ask(0, record(100, 0)), record(100, 0));
    }

    #[test]
    fn each_field_is_the_highest_on_its_own() {
        let mut merged = MergedRecord::new(2, record(0, 0));
        merged.ask(0, record(7, 10));
        assert_eq!(merged.ask(1, record(3, 50)), record(7, 50));
    }
}
