//! The cell: its acceptors, and the other values that all its nodes agree on.
//!
//! The paper fixes the acceptors for good (section 2). Here they change from one epoch to the next:
//! a value of [`Cell`] describes one epoch. A quorum is a set of distinct acceptors of one epoch
//! (invariant 5). In a joint epoch it has a majority of the old set and a majority of the new one.

use core::fmt;
use core::time::Duration;

use crate::rules::{Rule, Rules};
use crate::{Drift, NodeId, Ttl};

/// The most acceptors that a set may have.
pub const MEMBERS_MAX: usize = 9;
/// The most acceptors in both sets of a joint epoch.
pub(crate) const PLACES_MAX: usize = 2 * MEMBERS_MAX;

/// The values that every node of a cell must agree on in one epoch.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Cell {
    members: [NodeId; PLACES_MAX],
    member_count: u8,
    old_count: u8,
    epoch: u32,
    era: u32,
    old_set: MemberSet,
    new_set: MemberSet,
    max_lease: Ttl,
    drift: Drift,
}

/// Why a configuration is not a valid cell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CellError {
    /// A cell has 1 to 9 acceptors.
    MemberCount(usize),
    /// A node is listed twice.
    DuplicateMember(NodeId),
    /// M is shorter than the shortest lease.
    MaxLeaseTooShort(Ttl),
    /// With this drift and granularity, the belief in a lease of the shortest ttl would be empty.
    DriftTooLarge(Drift),
}

impl fmt::Display for CellError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MemberCount(count) => {
                write!(f, "a cell has 1 to {MEMBERS_MAX} members, not {count}")
            }
            Self::DuplicateMember(node) => write!(f, "node {node} is listed twice"),
            Self::MaxLeaseTooShort(ttl) => {
                write!(f, "max_lease is {ttl}, at least {} expected", Ttl::MIN)
            }
            Self::DriftTooLarge(drift) => write!(
                f,
                "a drift of {} ppm and a granularity of {:?} leave nothing of a lease of {}",
                drift.ppm(),
                drift.granularity(),
                Ttl::MIN
            ),
        }
    }
}

impl core::error::Error for CellError {}

/// Why a ttl is out of bounds. Nothing was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TtlError {
    /// Below [`Ttl::MIN`].
    TooShort(Duration),
    /// Above M.
    TooLong {
        /// The requested ttl.
        asked: Duration,
        /// The bound M of this cell.
        max_lease: Ttl,
    },
}

impl fmt::Display for TtlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // Rust would call it 0ns.
            Self::TooShort(Duration::ZERO) => {
                write!(f, "a ttl of 0 is too short, at least {} expected", Ttl::MIN)
            }
            Self::TooShort(asked) => {
                write!(f, "a ttl of {asked:?} is too short, at least {} expected", Ttl::MIN)
            }
            Self::TooLong { asked, max_lease } => {
                write!(f, "a ttl of {asked:?} is longer than this cell's max_lease of {max_lease}")
            }
        }
    }
}

impl core::error::Error for TtlError {}

/// The two sets of a joint epoch, or one set twice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sets<'a> {
    /// The set that confirms rounds.
    pub old: &'a [NodeId],
    /// The set that stores what was confirmed; empty in a stable epoch.
    pub new: &'a [NodeId],
}

impl Cell {
    /// A cell whose members are fixed: epoch 0. The order of `members` does not matter.
    ///
    /// # Errors
    /// When there is no member, there are too many, or one is listed twice; or when M or the drift
    /// leaves no room for a lease.
    pub fn new(members: &[NodeId], max_lease: Ttl, drift: Drift) -> Result<Self, CellError> {
        if max_lease < Ttl::MIN {
            return Err(CellError::MaxLeaseTooShort(max_lease));
        }
        if drift.belief_span(Ttl::MIN).is_zero() {
            return Err(CellError::DriftTooLarge(drift));
        }
        let empty = Self {
            members: [NodeId::MAX; PLACES_MAX],
            member_count: 0,
            old_count: 0,
            epoch: 0,
            era: 0,
            old_set: MemberSet::EMPTY,
            new_set: MemberSet::EMPTY,
            max_lease,
            drift,
        };
        empty.in_epoch(0, 0, Sets { old: members, new: &[] })
    }

    /// The same cell in another epoch. Records count from `era` on (E2).
    ///
    /// # Errors
    /// When the old set is empty, or a set is too large or lists a node twice.
    pub fn in_epoch(mut self, epoch: u32, era: u32, sets: Sets<'_>) -> Result<Self, CellError> {
        let Sets { old, new } = sets;
        if old.is_empty() {
            return Err(CellError::MemberCount(0));
        }
        let mut count = 0;
        for set in [old, new] {
            if set.len() > MEMBERS_MAX {
                return Err(CellError::MemberCount(set.len()));
            }
            for (place, node) in set.iter().enumerate() {
                if set[..place].contains(node) {
                    return Err(CellError::DuplicateMember(*node));
                }
                if !self.members[..count].contains(node) {
                    self.members[count] = *node;
                    count += 1;
                }
            }
        }
        self.members[..count].sort_unstable();
        self.members[count..].fill(NodeId::MAX);
        (self.member_count, self.old_count) = (count as u8, old.len() as u8);
        (self.epoch, self.era) = (epoch, era);
        let all = |cell: &Self, set: &[NodeId]| {
            let members = set.iter().filter_map(|node| cell.member(*node));
            members.fold(MemberSet::EMPTY, MemberSet::with)
        };
        (self.old_set, self.new_set) = (all(&self, old), all(&self, new));
        Ok(self)
    }

    /// The number of the epoch; it grows with every decided configuration.
    #[must_use]
    pub const fn epoch(&self) -> u32 {
        self.epoch
    }

    /// The epoch since which records count (E2).
    #[must_use]
    pub const fn era(&self) -> u32 {
        self.era
    }

    /// Whether rounds need majorities of two sets.
    #[must_use]
    pub const fn is_joint(&self) -> bool {
        !self.new_set.is_empty()
    }

    /// The set that confirms rounds: all members, except in a joint epoch.
    #[must_use]
    pub const fn old_set(&self) -> MemberSet {
        self.old_set
    }

    /// The set that stores what the old set confirmed; empty in a stable epoch.
    #[must_use]
    pub const fn new_set(&self) -> MemberSet {
        self.new_set
    }

    /// The acceptors of both sets, in ascending order.
    #[must_use]
    pub fn members(&self) -> &[NodeId] {
        &self.members[..usize::from(self.member_count)]
    }

    /// The longest ttl that a client may ask for: the paper's M.
    #[must_use]
    pub const fn max_lease(&self) -> Ttl {
        self.max_lease
    }

    /// The assumptions about the clocks.
    #[must_use]
    pub const fn drift(&self) -> Drift {
        self.drift
    }

    /// How many acceptors of the old set make a majority of it: more than half, in even sets too.
    pub(crate) fn quorum(&self) -> u32 {
        self.majority_of(u32::from(self.old_count))
    }

    fn majority_of(&self, count: u32) -> u32 {
        if self.rules().on(Rule::QuorumIsMajority) { count / 2 + 1 } else { (count / 2).max(1) }
    }

    /// Whether a majority of the old set is in `set`.
    pub(crate) fn is_confirmed_by(&self, set: MemberSet) -> bool {
        set.within(self.old_set).len() >= self.quorum()
    }

    /// Whether a majority of the new set is in `set`; always in a stable epoch.
    pub(crate) fn is_stored_by(&self, set: MemberSet) -> bool {
        !self.is_joint() || set.within(self.new_set).len() >= self.majority_of(self.new_set.len())
    }

    /// Whether `set` has a majority of the old set, and of the new one in a joint epoch.
    #[must_use]
    pub fn is_quorum(&self, set: MemberSet) -> bool {
        self.is_confirmed_by(set) && self.is_stored_by(set)
    }

    /// The rules in force.
    #[must_use]
    pub const fn rules(&self) -> Rules {
        self.drift.rules()
    }

    pub(crate) const fn with_rules(self, rules: Rules) -> Self {
        Self { drift: self.drift.with_rules(rules), ..self }
    }

    /// A node as a set of one; `None` for a node that is not an acceptor of this cell.
    #[must_use]
    pub fn member(&self, node: NodeId) -> Option<MemberSet> {
        let place = self.members().iter().position(|member| *member == node)?;
        Some(MemberSet(1 << place))
    }

    /// All acceptors, of both sets.
    #[must_use]
    pub const fn everyone(&self) -> MemberSet {
        self.old_set.with(self.new_set)
    }

    /// The same nodes in another epoch's cell, as far as it lists them.
    pub(crate) fn moved(&self, set: MemberSet, to: &Self) -> MemberSet {
        let members = self.nodes(set).filter_map(|node| to.member(node));
        members.fold(MemberSet::EMPTY, MemberSet::with)
    }

    /// The nodes in a set.
    pub fn nodes(&self, set: MemberSet) -> impl Iterator<Item = NodeId> + '_ {
        self.members()
            .iter()
            .enumerate()
            .filter(move |(place, _)| set.0 & (1 << place) != 0)
            .map(|(_, node)| *node)
    }

    /// Checks a ttl that a client asked for.
    ///
    /// # Errors
    /// When it is shorter than [`Ttl::MIN`] or longer than M.
    pub fn ttl(&self, asked: Duration) -> Result<Ttl, TtlError> {
        if asked < Ttl::MIN.as_duration() {
            return Err(TtlError::TooShort(asked));
        }
        match Ttl::from_duration(asked) {
            Some(ttl) if ttl <= self.max_lease => Ok(ttl),
            _ => Err(TtlError::TooLong { asked, max_lease: self.max_lease }),
        }
    }
}

/// A set of acceptors of one cell.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct MemberSet(u32);

impl MemberSet {
    /// The empty set.
    pub const EMPTY: Self = Self(0);

    /// The number of acceptors in the set.
    #[must_use]
    pub const fn len(self) -> u32 {
        crate::bits::count_ones(self.0)
    }

    /// Whether the set has no acceptor.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether every acceptor of `other` is in this set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    pub(crate) const fn has_place(self, place: usize) -> bool {
        self.0 & (1 << place) != 0
    }

    pub(crate) const fn at_place(place: usize) -> Self {
        Self(1 << place)
    }

    /// The union of both sets.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The intersection of both sets.
    #[must_use]
    pub(crate) const fn within(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// This set without the acceptors of `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(ids: &[u16]) -> alloc::vec::Vec<NodeId> {
        ids.iter().map(|id| NodeId::new(*id).expect("in bounds")).collect()
    }

    fn cell(ids: &[u16]) -> Result<Cell, CellError> {
        Cell::new(&nodes(ids), Ttl::from_millis(60_000).expect("not zero"), Drift::NONE)
    }

    #[test]
    fn a_quorum_is_more_than_half_in_odd_and_even_cells() {
        let quorum = |count: u16| {
            let ids: alloc::vec::Vec<u16> = (1..=count).collect();
            cell(&ids).expect("valid").quorum()
        };
        assert_eq!([1, 2, 3, 4, 5, 6, 7, 8, 9].map(quorum), [1, 2, 2, 3, 3, 4, 4, 5, 5]);
    }

    #[test]
    fn impossible_cells_are_refused() {
        assert_eq!(cell(&[]), Err(CellError::MemberCount(0)));
        assert_eq!(cell(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]), Err(CellError::MemberCount(10)));
        assert_eq!(cell(&[3, 1, 3]), Err(CellError::DuplicateMember(nodes(&[3])[0])));
        let short = Ttl::from_millis(49).expect("not zero");
        assert_eq!(
            Cell::new(&nodes(&[1]), short, Drift::NONE),
            Err(CellError::MaxLeaseTooShort(short))
        );
        let drift = Drift::new(0, Duration::from_millis(50)).expect("in bounds");
        assert_eq!(Cell::new(&nodes(&[1]), Ttl::MAX, drift), Err(CellError::DriftTooLarge(drift)));
    }

    #[test]
    fn members_are_found_in_any_order_of_the_list() {
        let cell = cell(&[30, 10, 20]).expect("valid");
        let set = cell.member(nodes(&[20])[0]).expect("a member");
        assert_eq!(cell.nodes(set).collect::<alloc::vec::Vec<_>>(), nodes(&[20]));
        assert_eq!(cell.member(nodes(&[40])[0]), None);
        assert_eq!(cell.everyone().len(), 3);
    }
}
