//! The cell: its acceptors, and the other values that all its nodes agree on.
//!
//! A cell never changes (paper, section 2: "the number of acceptors is fixed").
//! A quorum is a set of distinct acceptors of one configuration (invariant 5).

use core::fmt;
use core::time::Duration;

use crate::rules::{Rule, Rules};
use crate::{Drift, NodeId, Ttl};

/// The most acceptors that a cell may have.
pub const MEMBERS_MAX: usize = 9;

/// The values that every node of a cell must agree on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Cell {
    members: [NodeId; MEMBERS_MAX],
    member_count: u8,
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

impl Cell {
    /// Checks a configuration. The order of `members` does not matter.
    ///
    /// # Errors
    /// When there is no member, there are too many, or one is listed twice; or when M or the drift
    /// leaves no room for a lease.
    pub fn new(members: &[NodeId], max_lease: Ttl, drift: Drift) -> Result<Self, CellError> {
        if members.is_empty() || members.len() > MEMBERS_MAX {
            return Err(CellError::MemberCount(members.len()));
        }
        let mut sorted = [NodeId::MAX; MEMBERS_MAX];
        sorted[..members.len()].copy_from_slice(members);
        sorted[..members.len()].sort_unstable();
        if let Some(pair) = sorted[..members.len()].windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(CellError::DuplicateMember(pair[0]));
        }
        if max_lease < Ttl::MIN {
            return Err(CellError::MaxLeaseTooShort(max_lease));
        }
        if drift.belief_span(Ttl::MIN).is_zero() {
            return Err(CellError::DriftTooLarge(drift));
        }
        Ok(Self { members: sorted, member_count: members.len() as u8, max_lease, drift })
    }

    /// The acceptors, in ascending order.
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

    /// How many acceptors make a quorum: more than half, in even cells too.
    pub(crate) fn quorum(&self) -> u32 {
        let count = u32::from(self.member_count);
        if self.rules().on(Rule::QuorumIsMajority) { count / 2 + 1 } else { (count / 2).max(1) }
    }

    pub(crate) const fn rules(&self) -> Rules {
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

    /// All acceptors.
    #[must_use]
    pub const fn everyone(&self) -> MemberSet {
        MemberSet(((1u32 << self.member_count) - 1) as u16)
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
pub struct MemberSet(u16);

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
