//! The greeting that opens a connection, and what is wrong with a peer's.
//!
//! Both sides greet first and check what they hear: nodes that disagree about the cell must never
//! count each other's answers (invariant 5), nor believe for longer than others exclude
//! (invariant 2). Telling older boots of a node from newer ones is left to who keeps the
//! connections.

use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use paxoslease_core::{Cell, Drift, MEMBERS_MAX, NodeId, TextError, Ttl};

use crate::bytes::{Cursor, put_text, put_u16, put_u32, put_u64};
use crate::frame::{Envelope, FrameKind, VERSION};
use crate::{DecodeError, DecodeError as E, ShardId};

/// What a cell is called: 1 to 64 bytes of UTF-8, so that two cells are not mixed up.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CellName<'a>(&'a str);

impl<'a> CellName<'a> {
    /// The longest name, in bytes.
    pub const LEN_MAX: usize = 64;

    /// Checks the bounds.
    ///
    /// # Errors
    /// When the text is empty or too long.
    pub const fn new(text: &'a str) -> Result<Self, TextError> {
        match text.len() {
            0 => Err(TextError::Empty),
            len if len > Self::LEN_MAX => Err(TextError::TooLong { len, max: Self::LEN_MAX }),
            _ => Ok(Self(text)),
        }
    }

    fn from_bytes(bytes: &'a [u8]) -> Result<Self, TextError> {
        Self::new(core::str::from_utf8(bytes).map_err(|_| TextError::NotUtf8)?)
    }

    /// The text.
    #[must_use]
    pub const fn as_str(self) -> &'a str {
        self.0
    }
}

/// What a node does in the cell.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Role {
    /// It is an acceptor, and proposes for its clients.
    Member,
    /// It only proposes.
    Proposer,
}

/// A node's greeting: who it is and what it takes for granted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hello<'a> {
    /// The protocol version it speaks.
    pub version: u8,
    /// Which cell it belongs to.
    pub cell_name: CellName<'a>,
    /// Members, M and drift of that cell.
    pub cell: Cell,
    /// Who it is.
    pub node: NodeId,
    /// Numbers the starts of a node: the ballot counter it began with, which grows from start to
    /// start, so that peers drop traffic of older ones (R5).
    pub boot: u64,
    /// Which of its shards speaks.
    pub shard: ShardId,
}

impl<'a> Hello<'a> {
    /// What the node is in its own view of the cell.
    #[must_use]
    pub fn role(&self) -> Role {
        if self.cell.member(self.node).is_some() { Role::Member } else { Role::Proposer }
    }

    /// Appends the greeting as one frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        Envelope { version: self.version, kind: FrameKind::Hello }.write(out, |out| {
            let drift = self.cell.drift();
            let granularity = u32::try_from(drift.granularity().as_nanos())
                .expect("a cell's granularity is below its shortest lease");
            put_u16(out, self.node.get());
            put_u64(out, self.boot);
            put_u16(out, self.shard.index());
            put_u16(out, self.shard.count());
            put_u32(out, self.cell.max_lease().as_millis());
            put_u32(out, drift.ppm());
            put_u32(out, granularity);
            put_text(out, self.cell_name.as_str().as_bytes());
            out.push(self.cell.members().len() as u8);
            for member in self.cell.members() {
                put_u16(out, member.get());
            }
        });
    }

    /// Reads exactly one frame. Any version decodes, so that [`Self::check`] can name both; what a
    /// later one appends is skipped.
    ///
    /// # Errors
    /// When the bytes are not one whole greeting.
    pub fn decode(frame: &'a [u8]) -> Result<Self, DecodeError> {
        let (version, mut cursor) = Envelope::expect(FrameKind::Hello, frame)?;
        let node = cursor.u16("node")?;
        let node = NodeId::new(node).ok_or(E::Node(node))?;
        let boot = cursor.u64("boot")?;
        let (index, count) = (cursor.u16("shard index")?, cursor.u16("shard count")?);
        let shard = ShardId::new(index, count).ok_or(E::Shard { index, count })?;
        let max_lease = Ttl::from_millis(cursor.u32("max_lease")?).ok_or(E::MaxLeaseZero)?;
        let ppm = cursor.u32("drift")?;
        let granularity = Duration::from_nanos(cursor.u32("granularity")?.into());
        let drift = Drift::new(ppm, granularity).ok_or(E::DriftPpm(ppm))?;
        let cell_name = CellName::from_bytes(cursor.text("cell name")?).map_err(E::CellName)?;
        let cell = decode_cell(&mut cursor, max_lease, drift)?;
        if version <= VERSION {
            cursor.end()?;
        }
        Ok(Self { version, cell_name, cell, node, boot, shard })
    }

    /// Whether a node that greets like this may speak to the node that greets like `ours`.
    ///
    /// # Errors
    /// Says what differs, the most telling difference first.
    pub fn check(&self, ours: &Hello<'a>) -> Result<(), Refused<'a>> {
        let theirs = self;
        if theirs.version != ours.version {
            return Err(Refused::Version { ours: ours.version, theirs: theirs.version });
        }
        if theirs.cell_name != ours.cell_name {
            return Err(Refused::CellName { ours: ours.cell_name, theirs: theirs.cell_name });
        }
        if theirs.node == ours.node {
            return Err(Refused::SameNode(ours.node));
        }
        if theirs.cell.members() != ours.cell.members() {
            return Err(Refused::Members { ours: ours.cell, theirs: theirs.cell });
        }
        if theirs.cell.max_lease() != ours.cell.max_lease() {
            let (ours, theirs) = (ours.cell.max_lease(), theirs.cell.max_lease());
            return Err(Refused::MaxLease { ours, theirs });
        }
        if theirs.cell.drift() != ours.cell.drift() {
            return Err(Refused::Drift { ours: ours.cell.drift(), theirs: theirs.cell.drift() });
        }
        if theirs.shard != ours.shard {
            return Err(Refused::Shard { ours: ours.shard, theirs: theirs.shard });
        }
        Ok(())
    }
}

fn decode_cell(cursor: &mut Cursor<'_>, max_lease: Ttl, drift: Drift) -> Result<Cell, DecodeError> {
    let count = usize::from(cursor.u8("member count")?);
    let mut members = [NodeId::MAX; MEMBERS_MAX];
    let Some(members) = members.get_mut(..count) else {
        return Err(E::Cell(paxoslease_core::CellError::MemberCount(count)));
    };
    for member in members.iter_mut() {
        let id = cursor.u16("member")?;
        *member = NodeId::new(id).ok_or(E::Member(id))?;
    }
    Cell::new(members, max_lease, drift).map_err(E::Cell)
}

/// Why a peer is not spoken to. Sent back as the text of a [`crate::Farewell`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused<'a> {
    /// It speaks another version of the protocol.
    Version {
        /// The version here.
        ours: u8,
        /// The version there.
        theirs: u8,
    },
    /// It belongs to another cell.
    CellName {
        /// The cell here.
        ours: CellName<'a>,
        /// The cell there.
        theirs: CellName<'a>,
    },
    /// It has our own id: a node met itself, or an id was given out twice.
    SameNode(NodeId),
    /// It counts other acceptors.
    Members {
        /// The cell here.
        ours: Cell,
        /// The cell there.
        theirs: Cell,
    },
    /// It has another M.
    MaxLease {
        /// M here.
        ours: Ttl,
        /// M there.
        theirs: Ttl,
    },
    /// It assumes something else of clocks.
    Drift {
        /// The assumption here.
        ours: Drift,
        /// The assumption there.
        theirs: Drift,
    },
    /// It divides names otherwise, or another part of it speaks: it would ask us about names that
    /// we do not keep.
    Shard {
        /// The shard here.
        ours: ShardId,
        /// The shard there.
        theirs: ShardId,
    },
}

impl fmt::Display for Refused<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version { ours, theirs } => {
                write!(f, "protocol version {ours} here, {theirs} there")
            }
            Self::CellName { ours, theirs } => {
                write!(f, "cell {:?} here, {:?} there", ours.as_str(), theirs.as_str())
            }
            Self::SameNode(node) => write!(f, "node {node} here and there"),
            Self::Members { ours, theirs } => {
                write!(f, "members {:?} here, {:?} there", ours.members(), theirs.members())
            }
            Self::MaxLease { ours, theirs } => {
                write!(f, "max_lease {ours} here, {theirs} there")
            }
            Self::Drift { ours, theirs } => write!(
                f,
                "clock drift {} ppm and granularity {:?} here, {} ppm and {:?} there",
                ours.ppm(),
                ours.granularity(),
                theirs.ppm(),
                theirs.granularity()
            ),
            Self::Shard { ours, theirs } => write!(
                f,
                "shard {} of {} here, {} of {} there; all nodes of a cell need the same number of shards",
                ours.index(),
                ours.count(),
                theirs.index(),
                theirs.count()
            ),
        }
    }
}

impl core::error::Error for Refused<'_> {}
