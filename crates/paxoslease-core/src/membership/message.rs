//! What deciders send to each other, write to disk and report to their node.

use alloc::vec::Vec;
use core::time::Duration;

use super::configuration::{Birth, Configuration};
use crate::{Ballot, NodeId, Token, Ttl};

/// The number of a coordinator's attempt to decide one epoch. No coordinator uses one twice: its
/// own vote is on disk first (C5). In epoch 0 a node that lost its disk may coordinate again, so
/// the number has the birth, too.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DecisionNumber {
    /// Grows with every attempt. Numbers are ordered by it first.
    pub counter: u64,
    /// The coordinator.
    pub node: NodeId,
    /// Its birth.
    pub birth: Birth,
}

/// A message between deciders. Numbers begin anew with each epoch, so replies carry the epoch, too.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum MembershipMessage {
    /// Phase 1 of a decision.
    ConfPrepare {
        /// The epoch to be decided.
        epoch: u32,
        /// The coordinator's number.
        n: DecisionNumber,
    },
    /// The voter has promised `n`.
    ConfPromise {
        /// The epoch to be decided.
        epoch: u32,
        /// The number that is promised.
        n: DecisionNumber,
        /// The value that the voter accepted last, and its number.
        accepted: Option<(DecisionNumber, Configuration)>,
        /// [`NodeView::top`] of the voter.
        top: u64,
    },
    /// Phase 2 of a decision.
    ConfAccept {
        /// The epoch to be decided.
        epoch: u32,
        /// The coordinator's number.
        n: DecisionNumber,
        /// What it proposes.
        value: Configuration,
    },
    /// The voter has accepted the value of `n`.
    ConfAccepted {
        /// The epoch to be decided.
        epoch: u32,
        /// The number of the value.
        n: DecisionNumber,
    },
    /// The voter refuses.
    ConfReject {
        /// The epoch to be decided.
        epoch: u32,
        /// The number that the voter has promised.
        promised: Option<DecisionNumber>,
        /// For how long the voter refuses End (C6, C10); zero if that is not the reason.
        wait: Duration,
    },
    /// Asks for a configuration.
    Learn {
        /// The lowest epoch that is of use.
        epoch: u32,
    },
    /// A configuration that was decided. No other is ever sent in this message.
    Config(Configuration),
    /// Asks for State.
    Poll {
        /// The sender's epoch.
        epoch: u32,
        /// Whether the sender coordinates the change under way.
        leads: bool,
    },
    /// The answer to Poll.
    State(PeerState),
}

/// What a node says of itself.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct PeerState {
    /// The epoch of its configuration.
    pub epoch: u32,
    /// Whether it votes on leases: it is a member, its shards have changed over to its epoch, and
    /// it is not in quarantine. In epoch 0, whether it founds the cell.
    pub voting: bool,
    /// What is left of its quarantine.
    pub quarantine_left: Duration,
    /// The longest lease that it had in use when its shards had changed over; `None` if none.
    pub longest: Option<Ttl>,
    /// How long all its shards have been in its epoch; `None` before that.
    pub in_epoch_for: Option<Duration>,
    /// C10: its [`NodeView::registers_left`].
    pub registers_left: u32,
    /// The nodes that it is connected to.
    pub reaches: Vec<NodeId>,
}

/// What a decider needs to know of its node, at every input that may lead to a vote.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct NodeView {
    /// The highest counter of any ballot that any shard promised, accepted or reclaimed. The caller
    /// reads it after all shards have changed over to the adopted configuration.
    pub top: u64,
    /// A1: [`Shard::counter_bound`](crate::Shard::counter_bound) of any shard.
    pub counter_bound: u64,
    /// C10, K13: the registers of durable leases that this node has not seen on the disks of a
    /// majority of the new set.
    pub registers_left: u32,
    /// What is left of the quarantine.
    pub quarantine_left: Duration,
    /// The nodes that this node is connected to.
    pub reaches: Vec<NodeId>,
}

impl Default for NodeView {
    /// Of a node that has done nothing, with the highest bound on counters.
    fn default() -> Self {
        Self {
            top: 0,
            counter_bound: Ballot::COUNTER_LIMIT,
            registers_left: 0,
            quarantine_left: Duration::ZERO,
            reaches: Vec::new(),
        }
    }
}

/// What a node has promised and accepted in the decision of the epoch after its own.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Vote {
    /// No lower number is promised or accepted any more.
    pub promised: Option<DecisionNumber>,
    /// The value that was accepted last, and its number.
    pub accepted: Option<(DecisionNumber, Configuration)>,
}

/// What a decider keeps on disk, beside the birth of the data_dir.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct StableConfiguration {
    /// The configuration that this node has adopted.
    pub configuration: Configuration,
    /// Its vote on the next one.
    pub vote: Vote,
}

/// C11: why a node does not believe a peer that tells a configuration. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ConfigRefusal {
    /// It lacks a member of the past that this node knows: two cells have the same name.
    OtherCell,
    /// The peer is not a member that this node knows, and not a new node in its own list.
    NotMember,
    /// No chain of legal changes leads to it, or too many epochs are between.
    NotSuccessor,
    /// Its floor would use up the ballots (A1).
    FloorTooHigh,
}

/// Work for the node, or the answer to an administrator.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum MembershipEvent {
    /// Make this durable in one write, with a `ballot_ceiling` of at least
    /// [`Record::above`](crate::Record::above) its floor (W2), which no later write lowers. Then
    /// call [`record_written`](crate::Decider::record_written). One write is in progress at a time.
    Persist(StableConfiguration),
    /// Every shard changes over to this configuration (C2). Then call
    /// [`shards_changed`](crate::Decider::shards_changed).
    Adopt(Configuration),
    /// A configuration was decided in which this node's id belongs to another birth. The node has
    /// not adopted it, and must serve nobody: it lost its disk, or its id was used before.
    DiskLost {
        /// The epoch of that configuration.
        epoch: u32,
    },
    /// This node believes that a configuration was decided, and begins to adopt it.
    Learnt {
        /// The node that told it; this node if it coordinated the decision.
        from: NodeId,
        /// The epoch of that configuration.
        epoch: u32,
    },
    /// A peer told a configuration, and this node did not believe it (C11).
    ConfigRefused {
        /// The peer.
        from: NodeId,
        /// The epoch of that configuration.
        epoch: u32,
        /// Why it was not believed.
        why: ConfigRefusal,
    },
    /// The change was decided and is the configuration of this epoch.
    Decided {
        /// The change that this answers.
        token: Token,
        /// The epoch that it led to.
        epoch: u32,
    },
    /// Another change was decided first. This one has no effect.
    Superseded {
        /// The change that this answers.
        token: Token,
        /// The epoch of the other change.
        epoch: u32,
    },
    /// No quorum answered in time. The change may still be decided later.
    NoQuorum {
        /// The change that this answers.
        token: Token,
    },
}
