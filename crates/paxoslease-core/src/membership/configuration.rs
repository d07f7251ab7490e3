//! Configurations: who the members of a cell are, and which configuration may follow (C4).
//!
//! One function builds the successor of a configuration, for a coordinator's own proposal and for
//! the judgement of a value that a peer proposes. Epoch 0 is the list in the node's file, before
//! the cell is founded: its births are unknown, and its only successor lists the births (U2).

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Deref;

use crate::rules::{Rule, Rules};
use crate::{Ballot, Cell, MEMBERS_MAX, NodeId, Sets};

/// The longest address of a member, in bytes.
pub const ADDRESS_BYTES_MAX: usize = 255;

/// C11: the most epochs that a node catches up on at once. A change takes two epochs, and no single
/// message of a broken member uses up more than these.
pub const EPOCHS_MISSED_MAX: u32 = 1024;

/// 64 random bits that are made with a data_dir and kept in it. A node with another birth has lost
/// its disk, so it is not the member that is listed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Birth(pub u64);

impl Birth {
    /// Of the members in epoch 0. No data_dir has this birth.
    pub const UNKNOWN: Self = Self(0);
}

/// A member of a cell.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Member {
    /// The id, unique in the cell for ever.
    pub node: NodeId,
    /// The birth of its data_dir.
    pub birth: Birth,
    /// Where other nodes reach it.
    pub peer: Arc<str>,
}

/// A set of 1 to 9 members, in the order of their ids.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Members(Arc<[Member]>);

impl Members {
    /// Checks a set. The order does not matter.
    ///
    /// # Errors
    /// When there are none or too many, an id is listed twice, or an address is not valid.
    pub fn new(mut members: Vec<Member>) -> Result<Self, ChangeError> {
        if members.is_empty() || members.len() > MEMBERS_MAX {
            return Err(ChangeError::MemberCount(members.len()));
        }
        members.sort_unstable();
        if let Some(pair) = members.windows(2).find(|pair| pair[0].node == pair[1].node) {
            return Err(ChangeError::ListedTwice(pair[0].node));
        }
        let is_bad =
            |member: &&Member| member.peer.is_empty() || member.peer.len() > ADDRESS_BYTES_MAX;
        match members.iter().find(is_bad) {
            Some(member) => Err(ChangeError::Address(member.node)),
            None => Ok(Self(members.into())),
        }
    }

    /// The member with this id.
    #[must_use]
    pub fn find(&self, node: NodeId) -> Option<&Member> {
        self.iter().find(|member| member.node == node)
    }

    /// Whether more than half of the set has a property.
    pub fn majority(&self, has: impl FnMut(&&Member) -> bool) -> bool {
        self.iter().filter(has).count() * 2 > self.len()
    }

    fn births(&self) -> impl Iterator<Item = (NodeId, Birth)> {
        self.iter().map(|member| (member.node, member.birth))
    }
}

impl Deref for Members {
    type Target = [Member];

    fn deref(&self) -> &[Member] {
        &self.0
    }
}

/// The members of a cell in one epoch. In a *joint* epoch there are two sets: the old set confirms
/// leases, and the new set stores them.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Configuration {
    epoch: u32,
    old: Members,
    new: Option<Members>,
    era: u32,
    floor: Ballot,
    past: Arc<[(NodeId, Birth)]>,
}

/// What an administrator or a coordinator wants to be decided (C4).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Change {
    /// Opens a joint epoch that leads to these members.
    Begin(Members),
    /// Changes addresses only. In epoch 0 it founds the cell (U2).
    Same(Members),
    /// Closes a joint epoch: the new set becomes the members.
    End,
    /// Closes a joint epoch: the old set stays the members.
    Abort,
}

/// Why a change is not possible. Nothing was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChangeError {
    /// A set has 1 to 9 members.
    MemberCount(usize),
    /// An id is listed twice.
    ListedTwice(NodeId),
    /// An address is empty or too long.
    Address(NodeId),
    /// An id was used with another birth.
    DiskLost(NodeId),
    /// The birth of a new member is not known.
    BirthUnknown(NodeId),
    /// A member of both sets would have two addresses.
    AddressDiffers(NodeId),
    /// `Same` with other ids or births.
    OtherMembers,
    /// The members are these already.
    NothingChanges,
    /// Epoch 0 has no members yet.
    NotFounded,
    /// A joint epoch can only end or be aborted.
    ChangeUnderWay,
    /// There is no joint epoch to end or to abort.
    NoChangeUnderWay,
    /// This node does not vote on configurations.
    NotMember,
    /// Shards of this node are still in an older epoch.
    ChangingOver,
    /// The fields of a configuration contradict each other, or the epochs are used up.
    Inconsistent,
}

impl fmt::Display for ChangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MemberCount(0) => f.write_str("no member would be left: keep at least one"),
            Self::MemberCount(count) => {
                write!(f, "a cell has 1 to {MEMBERS_MAX} members, not {count}: list fewer")
            }
            Self::ListedTwice(node) => write!(f, "node {node} is listed twice: list it once"),
            Self::Address(node) => {
                write!(f, "node {node} needs an address of 1 to {ADDRESS_BYTES_MAX} bytes")
            }
            Self::DiskLost(node) => {
                write!(f, "node {node} lost the disk it was a member with: give it a new id")
            }
            Self::BirthUnknown(node) => {
                write!(f, "node {node} did not answer: start it and try again")
            }
            Self::AddressDiffers(node) => write!(
                f,
                "node {node} stays a member and would get another address: change its address \
                 first"
            ),
            Self::OtherMembers => f.write_str(
                "the list has other members than the cell: to change members, use add, remove, \
                 replace or set",
            ),
            Self::NothingChanges => f.write_str(
                "nothing would change: the cell has these members already. A node that lost \
                 its disk needs an id that was never used",
            ),
            Self::NotFounded => f.write_str(
                "the cell is not founded yet: start every member of its list, and try again",
            ),
            Self::ChangeUnderWay => {
                f.write_str("another change is under way: wait until it ends, or abort it")
            }
            Self::NoChangeUnderWay => {
                f.write_str("no change is under way: nothing to end or abort")
            }
            Self::NotMember => f.write_str("this node is not a member of the cell: ask a member"),
            Self::ChangingOver => {
                f.write_str("this node is still changing to the current members: try again")
            }
            Self::Inconsistent => f.write_str("the configuration contradicts itself"),
        }
    }
}

impl core::error::Error for ChangeError {}

impl Configuration {
    /// Epoch 0: the list in the node's file. Births in it are ignored.
    #[must_use]
    pub fn unfounded(list: &Members) -> Self {
        let unknown = |member: &Member| Member { birth: Birth::UNKNOWN, ..member.clone() };
        let old = Members(list.iter().map(unknown).collect());
        Self { epoch: 0, old, new: None, era: 0, floor: Ballot::ZERO, past: Arc::new([]) }
    }

    /// From the fields of a stored or received configuration.
    ///
    /// # Errors
    /// When they contradict each other.
    pub fn new(
        epoch: u32,
        (old, new): (Members, Option<Members>),
        era: u32,
        floor: Ballot,
        past: Vec<(NodeId, Birth)>,
    ) -> Result<Self, ChangeError> {
        let listed = || old.births().chain(new.iter().flat_map(Members::births));
        let is_founded = epoch > 0
            && listed().all(|member| past.contains(&member) && member.1 != Birth::UNKNOWN);
        let is_unfounded = epoch == 0
            && past.is_empty()
            && new.is_none()
            && listed().all(|(_, birth)| birth == Birth::UNKNOWN);
        let is_sorted = past.windows(2).all(|pair| pair[0].0 < pair[1].0);
        if !(is_founded || is_unfounded) || !is_sorted || era > epoch {
            return Err(ChangeError::Inconsistent);
        }
        Ok(Self { epoch, old, new, era, floor, past: past.into() })
    }

    /// How many configurations were decided before this one.
    #[must_use]
    pub const fn epoch(&self) -> u32 {
        self.epoch
    }

    /// The members; in a joint epoch the set that confirms leases.
    #[must_use]
    pub const fn old(&self) -> &Members {
        &self.old
    }

    /// In a joint epoch, the set that stores leases.
    #[must_use]
    pub const fn new_set(&self) -> Option<&Members> {
        self.new.as_ref()
    }

    /// The epoch since which records of leases count.
    #[must_use]
    pub const fn era(&self) -> u32 {
        self.era
    }

    /// Above every ballot that was granted in the epochs before the previous one.
    #[must_use]
    pub const fn floor(&self) -> Ballot {
        self.floor
    }

    /// Every id that was ever a member, with its birth, in the order of ids.
    #[must_use]
    pub fn past(&self) -> &[(NodeId, Birth)] {
        &self.past
    }

    /// The cell of this epoch: its sets, and the other values of a cell as they were.
    #[must_use]
    pub fn cell(&self, cell: &Cell) -> Cell {
        let ids = |set: &Members| set.iter().map(|member| member.node).collect::<Vec<_>>();
        let (old, new) = (ids(&self.old), self.new.as_ref().map(ids).unwrap_or_default());
        let sets = Sets { old: &old, new: &new };
        cell.in_epoch(self.epoch, self.era, sets).expect("sets are checked")
    }

    /// Whether there are two sets.
    #[must_use]
    pub const fn is_joint(&self) -> bool {
        self.new.is_some()
    }

    /// The members of both sets. A member of both comes twice.
    pub fn members(&self) -> impl Iterator<Item = &Member> {
        self.old.iter().chain(self.new.iter().flat_map(|new| new.iter()))
    }

    /// Whether a node with this birth is a member. In epoch 0, no node is.
    #[must_use]
    pub fn is_member(&self, node: NodeId, birth: Birth) -> bool {
        self.members().any(|member| (member.node, member.birth) == (node, birth))
    }

    /// C3: whether this node votes on the next configuration. In epoch 0 any birth does.
    pub(crate) fn is_voter(&self, rules: Rules, (node, birth): (NodeId, Birth)) -> bool {
        let is_listed = |member: &Member| {
            let is_birth = member.birth == birth || member.birth == Birth::UNKNOWN;
            member.node == node && (is_birth || !rules.on(Rule::VoterIsTheBirthListed))
        };
        let new_votes = !rules.on(Rule::OldSetDecides);
        self.old.iter().any(is_listed) || new_votes && self.members().any(is_listed)
    }

    /// C3, U2: whether these voters decide the next configuration.
    pub(crate) fn is_quorum(&self, rules: Rules, voters: &BTreeSet<NodeId>) -> bool {
        let has_quorum = |set: &Members| {
            let votes = set.iter().filter(|member| voters.contains(&member.node)).count();
            if self.epoch == 0 && rules.on(Rule::FoundingIsUnanimous) {
                votes == set.len()
            } else if rules.on(Rule::DecisionNeedsMajority) {
                votes * 2 > set.len()
            } else {
                votes >= (set.len() / 2).max(1)
            }
        };
        let new_decides = !rules.on(Rule::OldSetDecides);
        has_quorum(&self.old) || new_decides && self.new.as_ref().is_some_and(has_quorum)
    }

    /// C4: the configuration that a change leads to.
    ///
    /// # Errors
    /// When the change is not legal in this epoch.
    pub fn after(&self, change: &Change, floor: Ballot) -> Result<Self, ChangeError> {
        if self.epoch == 0 && !matches!(change, Change::Same(_)) {
            return Err(ChangeError::NotFounded);
        }
        let (old, new, era) = match (change, &self.new) {
            (Change::Begin(_) | Change::Same(_), Some(_)) => {
                return Err(ChangeError::ChangeUnderWay);
            }
            (Change::End | Change::Abort, None) => return Err(ChangeError::NoChangeUnderWay),
            (Change::Begin(to), None) => {
                self.check_new(to)?;
                (self.old.clone(), Some(to.clone()), self.era)
            }
            (Change::Same(to), None) => {
                self.check_same(to)?;
                (to.clone(), None, self.era)
            }
            (Change::End, Some(to)) => (to.clone(), None, self.epoch),
            (Change::Abort, Some(_)) => (self.old.clone(), None, self.era),
        };
        let mut past = self.past.to_vec();
        past.extend(old.births().chain(new.iter().flat_map(Members::births)));
        past.sort_unstable();
        past.dedup();
        let epoch = self.epoch.checked_add(1).ok_or(ChangeError::Inconsistent)?;
        Self::new(epoch, (old, new), era, floor.max(self.floor), past)
    }

    /// Whether a value that a peer proposes may follow (C4).
    #[must_use]
    pub fn is_legal_successor(&self, value: &Self) -> bool {
        let changes = match &value.new {
            Some(to) => [Some(Change::Begin(to.clone())), None],
            None if self.is_joint() => [Some(Change::End), Some(Change::Abort)],
            None => [Some(Change::Same(value.old.clone())), None],
        };
        let after = |change: &Change| self.after(change, value.floor);
        changes.iter().flatten().any(|change| after(change).as_ref() == Ok(value))
    }

    /// C11: whether a chain of legal successors may lead to this value. The values between are not
    /// known, so this checks what none of them can change. Any value may follow epoch 0, which
    /// knows nothing of the cell.
    #[must_use]
    pub fn may_lead_to(&self, value: &Self) -> bool {
        match value.epoch.saturating_sub(self.epoch) {
            0 => false,
            _ if self.epoch == 0 => true,
            1 => self.is_legal_successor(value),
            steps => {
                let has_members = |set: Option<&Members>| {
                    set.is_some_and(|set| set.births().eq(value.old.births()))
                };
                let is_of_era = if value.era == self.era {
                    // No change has ended since.
                    has_members(Some(&self.old))
                } else if value.era == self.epoch {
                    // Only the change of this epoch has.
                    has_members(self.new.as_ref())
                } else {
                    value.era > self.epoch && value.era < value.epoch
                };
                steps <= EPOCHS_MISSED_MAX
                    && is_of_era
                    && value.floor >= self.floor
                    && self.past.iter().all(|past| value.past.contains(past))
            }
        }
    }

    /// Whether `value` follows by [`Change::End`].
    pub(crate) fn ends_with(&self, value: &Self) -> bool {
        self.new.as_ref().is_some_and(|new| *new == value.old)
    }

    fn check_new(&self, to: &Members) -> Result<(), ChangeError> {
        for member in to.iter() {
            if member.birth == Birth::UNKNOWN {
                return Err(ChangeError::BirthUnknown(member.node));
            }
            let is_other = |past: &(NodeId, Birth)| past.0 == member.node && past.1 != member.birth;
            if self.past.iter().any(is_other) {
                return Err(ChangeError::DiskLost(member.node));
            }
            if self.old.find(member.node).is_some_and(|stays| stays != member) {
                return Err(ChangeError::AddressDiffers(member.node));
            }
        }
        if *to == self.old { Err(ChangeError::NothingChanges) } else { Ok(()) }
    }

    fn check_same(&self, to: &Members) -> Result<(), ChangeError> {
        let ids = |set: &Members| set.births().map(|(node, _)| node).collect::<Vec<_>>();
        if self.epoch == 0 {
            let unknown = to.iter().find(|member| member.birth == Birth::UNKNOWN);
            return match unknown {
                _ if ids(to) != ids(&self.old) => Err(ChangeError::OtherMembers),
                Some(member) => Err(ChangeError::BirthUnknown(member.node)),
                None => Ok(()),
            };
        }
        if !to.births().eq(self.old.births()) {
            return Err(ChangeError::OtherMembers);
        }
        if *to == self.old { Err(ChangeError::NothingChanges) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::membership::tests::{id, members};
    use alloc::string::ToString;
    use alloc::vec;

    fn founded(ids: &[u16]) -> Configuration {
        let list = members(ids);
        Configuration::unfounded(&list).after(&Change::Same(list), Ballot::ZERO).expect("legal")
    }

    #[test]
    fn a_change_goes_through_a_joint_epoch() {
        let a = founded(&[1, 2, 3]);
        let floor = Ballot::above_counter(7);
        let joint = a.after(&Change::Begin(members(&[2, 3, 4])), floor).expect("legal");
        assert!(joint.is_joint() && joint.epoch() == 2 && joint.era() == 0);
        assert_eq!(joint.old(), a.old());
        assert!(joint.is_member(id(4), Birth(104)) && !joint.is_member(id(4), Birth(5)));
        let b = joint.after(&Change::End, Ballot::ZERO).expect("legal");
        assert_eq!((b.epoch(), b.era(), b.floor()), (3, 2, floor));
        assert_eq!(*b.old(), members(&[2, 3, 4]));
        assert_eq!(b.past().len(), 4, "node 1 is remembered");
        let aborted = joint.after(&Change::Abort, Ballot::ZERO).expect("legal");
        assert_eq!((aborted.epoch(), aborted.era(), aborted.old()), (3, 0, a.old()));
        for value in [&b, &aborted] {
            assert!(joint.is_legal_successor(value) && !a.is_legal_successor(value));
        }
        assert!(joint.ends_with(&b) && !joint.ends_with(&aborted));
    }

    #[test]
    fn a_value_with_a_wrong_field_is_not_legal() {
        let a = founded(&[1, 2, 3]);
        let joint = a.after(&Change::Begin(members(&[2, 3, 4])), Ballot::ZERO).expect("legal");
        assert!(a.is_legal_successor(&joint));
        let floor = Ballot::above_counter(1);
        let raised = a.after(&Change::Begin(members(&[4])), floor).expect("legal");
        assert!(
            !raised.is_legal_successor(&Configuration { floor: Ballot::ZERO, ..raised.clone() })
        );
        for wrong in [
            Configuration { epoch: 3, ..joint.clone() },
            Configuration { era: 1, ..joint.clone() },
            Configuration { old: members(&[1, 2]), ..joint.clone() },
            Configuration { past: a.past.clone(), ..joint.clone() },
        ] {
            assert!(!a.is_legal_successor(&wrong), "{wrong:?}");
        }
    }

    #[test]
    fn the_founding_lists_every_member_with_its_birth() {
        let list = members(&[1, 2]);
        let zero = Configuration::unfounded(&list);
        assert!(!zero.is_member(id(1), Birth(101)), "the cell has no members yet");
        assert!(zero.is_voter(Rules::ALL, (id(1), Birth(101))));
        let after = |change| zero.after(&change, Ballot::ZERO).map(|value| value.epoch());
        assert_eq!(after(Change::Same(list.clone())), Ok(1));
        assert_eq!(after(Change::Same(zero.old.clone())), Err(ChangeError::BirthUnknown(id(1))));
        assert_eq!(after(Change::Same(members(&[1, 3]))), Err(ChangeError::OtherMembers));
        assert_eq!(after(Change::Begin(list)), Err(ChangeError::NotFounded));
        assert_eq!(after(Change::Abort), Err(ChangeError::NotFounded));
    }

    #[test]
    fn all_found_a_cell_and_a_majority_of_the_old_set_changes_it() {
        let voters = |ids: &[u16]| ids.iter().map(|node| id(*node)).collect::<BTreeSet<_>>();
        let zero = Configuration::unfounded(&members(&[1, 2, 3]));
        assert!(!zero.is_quorum(Rules::ALL, &voters(&[1, 2])));
        assert!(zero.is_quorum(Rules::ALL, &voters(&[1, 2, 3])));
        let a = founded(&[1, 2, 3]);
        let joint = a.after(&Change::Begin(members(&[4, 5])), Ballot::ZERO).expect("legal");
        assert!(joint.is_quorum(Rules::ALL, &voters(&[1, 3])));
        assert!(!joint.is_quorum(Rules::ALL, &voters(&[1, 4, 5])));
        assert!(!joint.is_voter(Rules::ALL, (id(4), Birth(104))));
    }

    #[test]
    fn errors_say_what_happened_and_what_to_do() {
        let a = founded(&[1, 2, 3]);
        let joint = a.after(&Change::Begin(members(&[1, 2])), Ballot::ZERO).expect("legal");
        let shrunk = joint.after(&Change::End, Ballot::ZERO).expect("legal");
        let with = |change: &dyn Fn(&mut Member)| {
            let mut list = members(&[1, 2, 3]).to_vec();
            change(&mut list[2]);
            Members::new(list).expect("valid")
        };
        let reborn = with(&|member| member.birth = Birth(7));
        let moved = with(&|member| member.peer = "elsewhere:1".into());
        let error = |from: &Configuration, change| {
            from.after(&change, Ballot::ZERO).expect_err("not legal").to_string()
        };
        let cases = [
            (error(&shrunk, Change::Begin(reborn)), "lost the disk"),
            (error(&a, Change::Begin(moved.clone())), "change its address first"),
            (error(&a, Change::Begin(members(&[1, 2, 3]))), "nothing would change"),
            (error(&a, Change::Same(members(&[1, 2, 3]))), "nothing would change"),
            (error(&a, Change::Same(members(&[1, 2]))), "use add, remove, replace or set"),
            (error(&joint, Change::Begin(members(&[4]))), "or abort it"),
            (error(&joint, Change::Same(moved.clone())), "or abort it"),
            (error(&a, Change::Abort), "no change is under way"),
            (Members::new(vec![]).expect_err("none").to_string(), "keep at least one"),
        ];
        for (error, text) in cases {
            assert!(error.contains(text), "{error}");
        }
        let twice = vec![a.old[0].clone(), a.old[0].clone()];
        assert_eq!(Members::new(twice), Err(ChangeError::ListedTwice(id(1))));
        let many = (1..=10).map(|node| members(&[node])[0].clone()).collect();
        assert_eq!(Members::new(many), Err(ChangeError::MemberCount(10)));
        assert_eq!(a.after(&Change::Same(moved.clone()), Ballot::ZERO).expect("legal").old, moved);
    }
}
