//! One record for all shards of a node and for its configuration, and who waits until it is
//! durable.
//!
//! Each ceiling of the node's record is the highest that a shard asked for. So the record on disk
//! is never below the ceilings that a shard uses: a shard does not use a raised ceiling before it
//! is confirmed, and stops using a ceiling before it asks to lower it (`Ceilings` in the core).

use paxoslease_core::{Record, StableConfiguration};
use paxoslease_wire::StableRecord;

/// The record that each shard asked for last, and the configuration.
#[derive(Clone, Debug)]
pub(crate) struct MergedRecord {
    start: StableRecord,
    asked: Vec<Record>,
    /// By shard, whether it waits for an answer.
    waiting: Vec<bool>,
    /// Whether the configuration waits.
    is_decided: bool,
}

/// Who asked for a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Asked {
    /// A shard, for these ceilings.
    Ceilings(usize, Record),
    /// The node's part in decisions about members, for its configuration and vote.
    Configuration,
}

/// A record to write, and who is answered then.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Write {
    pub(crate) record: StableRecord,
    pub(crate) answers: Vec<Asked>,
}

impl MergedRecord {
    /// All shards began with `start`, and use its ceilings until they ask for others.
    pub(crate) fn new(shards: usize, start: StableRecord) -> Self {
        let (asked, waiting) = (vec![start.ceilings; shards], vec![false; shards]);
        Self { start, asked, waiting, is_decided: false }
    }

    pub(crate) fn ask(&mut self, shard: usize, record: Record) {
        self.asked[shard] = record;
        self.waiting[shard] = true;
    }

    /// W1, W2: a vote or a configuration to write.
    pub(crate) fn ask_configuration(&mut self, configuration: StableConfiguration) {
        self.start.configuration = Some(configuration);
        self.is_decided = true;
    }

    /// The write for this one failed.
    pub(crate) fn ask_again(&mut self, asked: Asked) {
        match asked {
            Asked::Ceilings(shard, _) => self.waiting[shard] = true,
            Asked::Configuration => self.is_decided = true,
        }
    }

    pub(crate) fn is_asked(&self) -> bool {
        self.is_decided || self.waiting.contains(&true)
    }

    /// The next write. Nobody waits afterwards.
    pub(crate) fn take(&mut self) -> Write {
        let waiting = (0..self.waiting.len()).filter(|shard| self.waiting[*shard]);
        let ceilings = waiting.map(|shard| Asked::Ceilings(shard, self.asked[shard]));
        let decided = self.is_decided.then_some(Asked::Configuration);
        let answers = ceilings.chain(decided).collect();
        self.waiting.fill(false);
        self.is_decided = false;
        Write { record: StableRecord { ceilings: self.merged(), ..self.start.clone() }, answers }
    }

    /// The ballot ceiling never falls below that of W2: once it has adopted, a shard relies on it.
    fn merged(&self) -> Record {
        let floor = self.start.configuration.as_ref().map(|stable| stable.configuration.floor());
        let ballot_ceiling = floor.map_or(0, Record::above);
        let least = Record { ballot_ceiling, lease_ceiling: None };
        self.asked.iter().fold(least, |all, one| Record {
            ballot_ceiling: all.ballot_ceiling.max(one.ballot_ceiling),
            lease_ceiling: all.lease_ceiling.max(one.lease_ceiling),
        })
    }
}

#[cfg(test)]
mod tests {
    use paxoslease_core::{Ballot, Birth, Change, Configuration, Member, Members, NodeId, Vote};

    use super::*;
    use crate::stable::tests::{record, stable_record};

    #[test]
    fn a_ceiling_falls_only_when_all_shards_have_lowered_it() {
        let mut merged = MergedRecord::new(3, stable_record(record(100, 60_000)));
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
            let write = merged.take();
            assert_eq!(write.record.ceilings, expected, "shard {shard} asks for {asked:?}");
            assert_eq!(write.answers, [Asked::Ceilings(shard, asked)]);
        }
    }

    #[test]
    fn the_ballot_ceiling_stays_above_the_floor_of_the_members() {
        let node = NodeId::new(1).expect("in bounds");
        let member = Member { node, birth: Birth(7), peer: "a:1".into() };
        let list = Members::new(vec![member]).expect("valid");
        let floor = Ballot::above_counter(1000);
        let configuration = Configuration::unfounded(&list).after(&Change::Same(list), floor);
        let configuration = configuration.expect("legal");
        let above = Record::above(configuration.floor());
        let mut merged = MergedRecord::new(2, stable_record(record(100, 0)));
        let vote = Vote::default();
        merged.ask_configuration(StableConfiguration { configuration, vote });
        let write = merged.take();
        assert_eq!(write.answers, [Asked::Configuration]);
        assert_eq!(write.record.ceilings.ballot_ceiling, above);
        // A shard that has not adopted it yet asks for less.
        merged.ask(0, record(200, 10));
        merged.ask(1, record(200, 10));
        assert_eq!(merged.take().record.ceilings, record(above, 10));
        merged.ask_again(Asked::Configuration);
        assert!(merged.is_asked());
    }
}
