//! Node ids, ballots and tenures.
//!
//! A ballot is `counter << 10 | node`. It is globally unique because node ids are, and increases
//! per node because counters do (paper, section 2). The stable record keeps counters across
//! restarts (`record.rs`) and replaces the restart counter of the paper.

use core::fmt;
use core::num::NonZeroU64;

/// A node of the cell, 1 to 1023. Acceptors and nodes that only propose share this range.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(u16);

impl NodeId {
    /// The largest id that fits into a ballot.
    pub const MAX: Self = Self(1023);

    /// `None` for zero and for ids above [`Self::MAX`].
    #[must_use]
    pub const fn new(id: u16) -> Option<Self> {
        if id == 0 || id > Self::MAX.0 { None } else { Some(Self(id)) }
    }

    /// The id as a number.
    #[must_use]
    pub const fn get(self) -> u16 {
        self.0
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "n{}", self.0)
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// A ballot number, 63 bits. [`Ballot::ZERO`] is below every ballot a node issues.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Ballot(u64);

impl Ballot {
    /// Below every issued ballot; the promise of a blank acceptor.
    pub const ZERO: Self = Self(0);
    /// The largest counter that fits into a ballot.
    pub const COUNTER_MAX: u64 = (1 << 53) - 1;
    /// No counter above this is issued, promised or learnt (A1). The wall clock of R5 reaches it in
    /// the year 2220.
    pub const COUNTER_LIMIT: u64 = Self::COUNTER_MAX / 10 * 9;

    /// The ballot of a node with this counter.
    ///
    /// # Panics
    /// When `counter` exceeds [`Self::COUNTER_MAX`]. That would be a bug here: counters stay below
    /// [`Self::COUNTER_LIMIT`].
    #[must_use]
    pub const fn new(counter: u64, node: NodeId) -> Self {
        assert!(counter <= Self::COUNTER_MAX, "counters stay below the limit");
        Self(counter << 10 | node.0 as u64)
    }

    /// From a number; `None` above 63 bits.
    #[must_use]
    pub const fn from_u64(number: u64) -> Option<Self> {
        if number >> 63 != 0 { None } else { Some(Self(number)) }
    }

    /// As a number.
    #[must_use]
    pub const fn as_u64(self) -> u64 {
        self.0
    }

    /// The issuing node's counter.
    #[must_use]
    pub const fn counter(self) -> u64 {
        self.0 >> 10
    }

    /// The issuing node; `None` for [`Self::ZERO`] and other numbers that no node issues.
    #[must_use]
    pub const fn node(self) -> Option<NodeId> {
        NodeId::new((self.0 & 0x3ff) as u16)
    }

    /// Above every ballot with this counter, below every ballot with the next.
    #[must_use]
    pub const fn above_counter(counter: u64) -> Self {
        assert!(counter < Self::COUNTER_MAX, "counters stay below the limit");
        Self((counter + 1) << 10)
    }

    /// The lowest number above this one.
    #[must_use]
    pub(crate) const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Debug for Ballot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.counter(), self.0 & 0x3ff)
    }
}

impl fmt::Display for Ballot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// One holding of one name, identified by the ballot of the round that began it. Its number is the
/// fence. A renewal has another ballot and keeps the tenure.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tenure(NonZeroU64);

impl Tenure {
    /// The tenure that a round begins; `None` for a ballot that no node issues.
    #[must_use]
    pub const fn of(ballot: Ballot) -> Option<Self> {
        match (ballot.node(), NonZeroU64::new(ballot.0)) {
            (Some(_), Some(number)) => Some(Self(number)),
            _ => None,
        }
    }

    /// From a fence that a client sent; `None` for a number that names no tenure.
    #[must_use]
    pub const fn from_fence(fence: u64) -> Option<Self> {
        match Ballot::from_u64(fence) {
            Some(ballot) => Self::of(ballot),
            None => None,
        }
    }

    /// The ballot of the round that began it.
    #[must_use]
    pub const fn ballot(self) -> Ballot {
        Ballot(self.0.get())
    }

    /// The fencing token.
    #[must_use]
    pub const fn fence(self) -> u64 {
        self.0.get()
    }
}

impl fmt::Debug for Tenure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "t{:?}", self.ballot())
    }
}

impl fmt::Display for Tenure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ballots_order_by_counter_then_node() {
        let n = |id| NodeId::new(id).expect("in bounds");
        assert!(Ballot::new(1, n(1023)) < Ballot::new(2, n(1)));
        assert!(Ballot::new(2, n(1)) < Ballot::new(2, n(2)));
        assert_eq!(Ballot::new(7, n(3)).counter(), 7);
        assert_eq!(Ballot::new(7, n(3)).node(), Some(n(3)));
    }

    #[test]
    fn numbers_that_no_node_issues_name_no_tenure() {
        assert_eq!(Tenure::from_fence(0), None);
        assert_eq!(Tenure::from_fence(1 << 10), None, "node 0");
        assert_eq!(Tenure::from_fence(u64::MAX), None, "above 63 bits");
        assert!(Tenure::from_fence(1 << 10 | 1).is_some());
    }

    #[test]
    fn node_ids_are_one_to_1023() {
        assert_eq!(NodeId::new(0), None);
        assert_eq!(NodeId::new(1024), None);
        assert_eq!(NodeId::new(1023), Some(NodeId::MAX));
    }
}
