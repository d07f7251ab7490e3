//! What the judge knows of the members of a cell: the configuration of each epoch, and which nodes
//! still have the data folder that it lists.

use std::collections::BTreeMap;

use paxoslease_core::{Birth, Configuration, Member, Members, NodeId};

pub(crate) struct MembersSeen {
    /// The configuration that a node had in each epoch after the founding.
    configurations: BTreeMap<u32, Configuration>,
    /// By host: the birth of its data folder, since its last start.
    births: Vec<Birth>,
    /// How many members that had lost their data folder were removed.
    pub(crate) lost_and_removed: u64,
}

fn host_of(node: NodeId) -> usize {
    usize::from(node.get()) - 1
}

impl MembersSeen {
    pub(crate) fn new(nodes: usize) -> Self {
        let births = vec![Birth::UNKNOWN; nodes];
        Self { configurations: BTreeMap::new(), births, lost_and_removed: 0 }
    }

    pub(crate) fn started(&mut self, host: usize, birth: Birth) {
        self.births[host] = birth;
    }

    pub(crate) fn lost_disk(&mut self, host: usize) {
        self.births[host] = Birth::UNKNOWN;
    }

    /// A node has this configuration. Returns that of another node in the same epoch, if it is
    /// another one.
    pub(crate) fn found(&mut self, found: &Configuration) -> Option<&Configuration> {
        if found.epoch() == 0 {
            return None;
        }
        if !self.configurations.contains_key(&found.epoch()) {
            let is_gone = |member: &&Member| {
                !self.has_disk(member) && found.members().all(|kept| kept.node != member.node)
            };
            let before = self.latest().filter(|before| before.epoch() < found.epoch());
            let gone = before.map_or(0, |before| before.old().iter().filter(is_gone).count());
            self.lost_and_removed += gone as u64;
            self.configurations.insert(found.epoch(), found.clone());
        }
        self.configurations.get(&found.epoch()).filter(|known| *known != found)
    }

    /// How often the members were decided after the founding.
    pub(crate) fn changes(&self) -> u64 {
        self.configurations.len().saturating_sub(1) as u64
    }

    pub(crate) fn latest(&self) -> Option<&Configuration> {
        self.configurations.last_key_value().map(|(_, latest)| latest)
    }

    fn has_disk(&self, member: &Member) -> bool {
        self.births[host_of(member.node)] == member.birth
    }

    /// The hosts of the members.
    pub(crate) fn hosts(&self) -> Vec<usize> {
        let members = self.latest().into_iter().flat_map(Configuration::members);
        members.map(|member| host_of(member.node)).collect()
    }

    /// Whether a node is a member, with the data folder that it has.
    pub(crate) fn is_member(&self, host: usize) -> bool {
        let mut members = self.latest().into_iter().flat_map(Configuration::members);
        members.any(|member| host_of(member.node) == host && self.has_disk(member))
    }

    /// The members that have lost their data folders.
    pub(crate) fn lost(&self) -> Vec<u16> {
        let members = self.latest().into_iter().flat_map(Configuration::members);
        members.filter(|member| !self.has_disk(member)).map(|member| member.node.get()).collect()
    }

    /// Whether the members refuse a node: its id belongs to another data folder, for good (C9).
    pub(crate) fn is_refused(&self, host: usize) -> bool {
        let past = self.latest().map_or(&[][..], Configuration::past);
        past.iter().any(|(node, birth)| host_of(*node) == host && self.births[host] != *birth)
    }

    /// Whether a node may lose its data folder: the cell is founded, and a majority of each set of
    /// members keeps its folders. Without one, the cell could not go on.
    pub(crate) fn may_lose_disk(&self, host: usize) -> bool {
        let Some(latest) = self.latest() else { return false };
        let is_kept = |member: &&Member| host_of(member.node) != host && self.has_disk(member);
        let is_safe = |set: &Members| {
            set.iter().all(|member| host_of(member.node) != host) || set.majority(is_kept)
        };
        is_safe(latest.old()) && latest.new_set().is_none_or(is_safe)
    }
}
