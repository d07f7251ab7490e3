//! The greeting that opens a connection, and the check of a peer's greeting.
//!
//! Each side sends its greeting first and then checks the peer's. Nodes that disagree about the
//! cell must never count each other's answers (invariant 5), nor hold a belief for longer than
//! other nodes exclude (invariant 2). The caller tells older boots of a node from newer ones.

use alloc::vec::Vec;
use core::time::Duration;

use paxoslease_core::{Birth, Cell, Drift, Durability, MEMBERS_MAX, NodeId, Text, Ttl};

use crate::bytes::{Cursor, put_text, put_u16, put_u32, put_u64};
use crate::frame::{Envelope, FrameKind, VERSION};
use crate::{DecodeError, DecodeError as E, ShardId};

/// The name of a cell: 1 to 64 bytes of UTF-8, so that nodes of two cells do not mix.
pub type CellName<'a> = Text<'a, 1, 64>;

/// The address at which clients reach a node; empty if there is none.
pub type ClientAddress<'a> = Text<'a, 0, 255>;

/// What the list of members in a node's settings means to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum ListUse {
    /// These are the members, for as long as the node runs. It has no data_dir.
    Fixed = 0,
    /// These nodes found the cell (U2).
    Founding = 1,
    /// First contact: the members are those of the configuration, which may change.
    Contact = 2,
    /// The node only proposes. It follows the members that it reaches.
    Follows = 3,
}

impl ListUse {
    const ALL: [Self; 4] = [Self::Fixed, Self::Founding, Self::Contact, Self::Follows];

    /// Whether two nodes must have the same list.
    const fn compares(self, other: Self) -> bool {
        matches!(
            (self, other),
            (Self::Fixed, Self::Fixed | Self::Follows)
                | (Self::Follows, Self::Fixed)
                | (Self::Founding, Self::Founding)
        )
    }

    const fn is_managed(self) -> bool {
        matches!(self, Self::Founding | Self::Contact)
    }
}

/// A node's greeting: its identity and its configuration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hello<'a> {
    /// The protocol version of the node.
    pub version: u8,
    /// The name of the node's cell.
    pub cell_name: CellName<'a>,
    /// The list of members in the node's settings, `max_lease` and drift.
    pub cell: Cell,
    /// What that list means to the node.
    pub list: ListUse,
    /// The node's id.
    pub node: NodeId,
    /// The ballot counter with which this start of the node began. It grows from start to start, so
    /// that peers drop the traffic of older starts (R5).
    pub boot: u64,
    /// The shard of the node that opened the connection.
    pub shard: ShardId,
    /// The birth of the node's data_dir; [`Birth::UNKNOWN`] without one.
    pub birth: Birth,
    /// The node's epoch.
    pub epoch: u32,
    /// Where clients reach the node.
    pub clients: ClientAddress<'a>,
    /// K14: where the members keep durable leases, by the node's settings.
    pub durable_leases: Durability,
}

impl<'a> Hello<'a> {
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
            put_text(out, self.cell_name.as_bytes());
            out.push(self.cell.members().len() as u8);
            for member in self.cell.members() {
                put_u16(out, member.get());
            }
            out.push(self.list as u8);
            put_u64(out, self.birth.0);
            put_u32(out, self.epoch);
            put_text(out, self.clients.as_bytes());
            out.push(number_of(self.durable_leases));
        });
    }

    /// Reads exactly one frame. Every version decodes, so that [`Self::check`] can report both
    /// versions. Fields that a later version appended are skipped.
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
        let number = cursor.u8("use of the list")?;
        let list = ListUse::ALL.into_iter().find(|list| *list as u8 == number);
        let list = list.ok_or(E::Flags(number))?;
        let (birth, epoch) = (Birth(cursor.u64("birth")?), cursor.u32("epoch")?);
        let clients = ClientAddress::from_bytes(cursor.text("client address")?);
        let clients = clients.map_err(E::ClientAddress)?;
        let number = cursor.u8("durable leases")?;
        let durable_leases = DURABILITIES.into_iter().find(|one| number_of(*one) == number);
        let durable_leases = durable_leases.ok_or(E::Flags(number))?;
        if version <= VERSION {
            cursor.end()?;
        }
        Ok(Self {
            version,
            cell_name,
            cell,
            list,
            node,
            boot,
            shard,
            birth,
            epoch,
            clients,
            durable_leases,
        })
    }

    /// Whether the node that sent this greeting may talk to the node that sent `ours`.
    ///
    /// # Errors
    /// The first difference, in order of importance.
    #[expect(clippy::result_large_err, reason = "once per connection")]
    pub fn check(&self, ours: &Hello<'a>) -> Result<(), Refused<'a>> {
        let theirs = self;
        let (cell, their_cell) = (ours.cell, theirs.cell);
        Differ::check(ours.version, theirs.version).map_err(Refused::Version)?;
        Differ::check(ours.cell_name, theirs.cell_name).map_err(Refused::CellName)?;
        if theirs.node == ours.node {
            return Err(Refused::SameNode(ours.node));
        }
        if ours.list.is_managed() && theirs.list == ListUse::Fixed {
            return Err(Refused::NoFolder { without: theirs.node });
        }
        if theirs.list.is_managed() && ours.list == ListUse::Fixed {
            return Err(Refused::NoFolder { without: ours.node });
        }
        if ours.list.compares(theirs.list) && their_cell.members() != cell.members() {
            return Err(Refused::Members(Differ { ours: cell, theirs: their_cell }));
        }
        Differ::check(cell.max_lease(), their_cell.max_lease()).map_err(Refused::MaxLease)?;
        Differ::check(cell.drift(), their_cell.drift()).map_err(Refused::Drift)?;
        Differ::check(ours.durable_leases, theirs.durable_leases)
            .map_err(Refused::DurableLeases)?;
        Differ::check(ours.shard, theirs.shard).map_err(Refused::Shard)
    }
}

const DURABILITIES: [Durability; 3] = [Durability::Disk, Durability::Volatile, Durability::Refused];

const fn number_of(durability: Durability) -> u8 {
    match durability {
        Durability::Disk => 0,
        Durability::Volatile => 1,
        Durability::Refused => 2,
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

/// Two values that must be equal and are not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Differ<T> {
    /// The value here.
    pub ours: T,
    /// The value there.
    pub theirs: T,
}

impl<T: PartialEq> Differ<T> {
    fn check(ours: T, theirs: T) -> Result<(), Self> {
        if ours == theirs { Ok(()) } else { Err(Self { ours, theirs }) }
    }
}

/// Why a node refuses a peer's greeting: the text of a [`crate::Farewell`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the message of an error says what it is")]
pub enum Refused<'a> {
    #[error("protocol version {} here, {} there", .0.ours, .0.theirs)]
    Version(Differ<u8>),
    #[error("cell {:?} here, {:?} there", .0.ours, .0.theirs)]
    CellName(Differ<CellName<'a>>),
    /// The peer has our own id: a node connected to itself, or two nodes share an id.
    #[error("node id {0} both here and there")]
    SameNode(NodeId),
    #[error("members {:?} here, {:?} there", .0.ours.members(), .0.theirs.members())]
    Members(Differ<Cell>),
    #[error("node {without} is a member without a data_dir; give one to all members, or to none")]
    NoFolder { without: NodeId },
    #[error("max_lease {} here, {} there", .0.ours, .0.theirs)]
    MaxLease(Differ<Ttl>),
    #[error(
        "clock drift {} ppm and granularity {:?} here, {} ppm and {:?} there",
        .0.ours.ppm(), .0.ours.granularity(), .0.theirs.ppm(), .0.theirs.granularity()
    )]
    Drift(Differ<Drift>),
    #[error("durable_leases {} here, {} there", .0.ours, .0.theirs)]
    DurableLeases(Differ<Durability>),
    /// The peer has another number of shards, or another of its shards connected. It would ask us
    /// about names that this shard does not keep.
    #[error(
        "shard {} of {} here, {} of {} there; all nodes of a cell need the same number of shards",
        .0.ours.index(), .0.ours.count(), .0.theirs.index(), .0.theirs.count()
    )]
    Shard(Differ<ShardId>),
}
