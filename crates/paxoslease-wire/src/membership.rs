//! Encodes and decodes what deciders send to each other: one message per frame.
//!
//! Configurations and numbers go through the core's checked constructors. Spans are in whole
//! milliseconds, rounded so that no node acts too early: what is left is rounded up, and what has
//! passed is rounded down.

use alloc::vec::Vec;
use core::time::Duration;

use paxoslease_core::{
    Ballot, Birth, Configuration, DecisionNumber, MEMBERS_MAX, Member, Members, MembershipMessage,
    NodeId, PeerState, Ttl,
};

use crate::bytes::{Cursor, put_text, put_u16, put_u32, put_u64};
use crate::frame::{Envelope, FrameKind, VERSION};
use crate::{DecodeError, DecodeError as E};

mod tag {
    pub(super) const PREPARE: u8 = 1;
    pub(super) const PROMISE: u8 = 2;
    pub(super) const ACCEPT: u8 = 3;
    pub(super) const ACCEPTED: u8 = 4;
    pub(super) const REJECT: u8 = 5;
    pub(super) const LEARN: u8 = 6;
    pub(super) const CONFIG: u8 = 7;
    pub(super) const POLL: u8 = 8;
    pub(super) const STATE: u8 = 9;
}

/// Appends a message as one frame.
pub fn encode_membership(message: &MembershipMessage, out: &mut Vec<u8>) {
    use MembershipMessage as M;
    Envelope { version: VERSION, kind: FrameKind::Membership }.write(out, |out| match message {
        M::ConfPrepare { epoch, n } => put_numbered(out, tag::PREPARE, *epoch, *n),
        M::ConfPromise { epoch, n, accepted, top } => {
            put_numbered(out, tag::PROMISE, *epoch, *n);
            put_accepted(out, accepted.as_ref());
            put_u64(out, *top);
        }
        M::ConfAccept { epoch, n, value } => {
            put_numbered(out, tag::ACCEPT, *epoch, *n);
            put_configuration(out, value);
        }
        M::ConfAccepted { epoch, n } => put_numbered(out, tag::ACCEPTED, *epoch, *n),
        M::ConfReject { epoch, promised, wait } => {
            put_tagged(out, tag::REJECT, *epoch);
            put_option(out, promised.as_ref(), |out, n| put_number(out, *n));
            put_u32(out, millis_up(*wait));
        }
        M::Learn { epoch } => put_tagged(out, tag::LEARN, *epoch),
        M::Config(configuration) => {
            out.push(tag::CONFIG);
            put_configuration(out, configuration);
        }
        M::Poll { epoch, leads } => {
            put_tagged(out, tag::POLL, *epoch);
            out.push(u8::from(*leads));
        }
        M::State(state) => put_state(out, state),
    });
}

/// Reads exactly one frame.
///
/// # Errors
/// When the bytes are not one whole message of our version.
pub fn decode_membership(frame: &[u8]) -> Result<MembershipMessage, DecodeError> {
    use MembershipMessage as M;
    let (version, mut cursor) = Envelope::expect(FrameKind::Membership, frame)?;
    if version != VERSION {
        return Err(E::Version(version));
    }
    let cursor = &mut cursor;
    let message = match cursor.u8("message")? {
        tag::PREPARE => M::ConfPrepare { epoch: cursor.u32("epoch")?, n: number(cursor)? },
        tag::PROMISE => M::ConfPromise {
            epoch: cursor.u32("epoch")?,
            n: number(cursor)?,
            accepted: accepted(cursor)?,
            top: cursor.u64("top")?,
        },
        tag::ACCEPT => M::ConfAccept {
            epoch: cursor.u32("epoch")?,
            n: number(cursor)?,
            value: configuration(cursor)?,
        },
        tag::ACCEPTED => M::ConfAccepted { epoch: cursor.u32("epoch")?, n: number(cursor)? },
        tag::REJECT => M::ConfReject {
            epoch: cursor.u32("epoch")?,
            promised: option(cursor, number)?,
            wait: Duration::from_millis(cursor.u32("wait")?.into()),
        },
        tag::LEARN => M::Learn { epoch: cursor.u32("epoch")? },
        tag::CONFIG => M::Config(configuration(cursor)?),
        tag::POLL => M::Poll { epoch: cursor.u32("epoch")?, leads: flag(cursor)? },
        tag::STATE => M::State(state(cursor)?),
        other => return Err(E::UnknownMessage(other)),
    };
    cursor.end()?;
    Ok(message)
}

fn put_tagged(out: &mut Vec<u8>, tag: u8, epoch: u32) {
    out.push(tag);
    put_u32(out, epoch);
}

fn put_numbered(out: &mut Vec<u8>, tag: u8, epoch: u32, n: DecisionNumber) {
    put_tagged(out, tag, epoch);
    put_number(out, n);
}

pub(crate) fn put_option<T>(
    out: &mut Vec<u8>,
    value: Option<&T>,
    put: impl FnOnce(&mut Vec<u8>, &T),
) {
    out.push(u8::from(value.is_some()));
    if let Some(value) = value {
        put(out, value);
    }
}

pub(crate) fn option<'a, T>(
    cursor: &mut Cursor<'a>,
    read: impl FnOnce(&mut Cursor<'a>) -> Result<T, DecodeError>,
) -> Result<Option<T>, DecodeError> {
    if flag(cursor)? { read(cursor).map(Some) } else { Ok(None) }
}

pub(crate) fn flag(cursor: &mut Cursor<'_>) -> Result<bool, DecodeError> {
    match cursor.u8("flag")? {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(E::Flags(other)),
    }
}

fn node(cursor: &mut Cursor<'_>) -> Result<NodeId, DecodeError> {
    let id = cursor.u16("node")?;
    NodeId::new(id).ok_or(E::Member(id))
}

pub(crate) fn put_number(out: &mut Vec<u8>, n: DecisionNumber) {
    put_u64(out, n.counter);
    put_u16(out, n.node.get());
    put_u64(out, n.birth.0);
}

pub(crate) fn number(cursor: &mut Cursor<'_>) -> Result<DecisionNumber, DecodeError> {
    let counter = cursor.u64("counter")?;
    Ok(DecisionNumber { counter, node: node(cursor)?, birth: Birth(cursor.u64("birth")?) })
}

pub(crate) fn put_accepted(out: &mut Vec<u8>, accepted: Option<&(DecisionNumber, Configuration)>) {
    put_option(out, accepted, |out, (n, value)| {
        put_number(out, *n);
        put_configuration(out, value);
    });
}

pub(crate) fn accepted(
    cursor: &mut Cursor<'_>,
) -> Result<Option<(DecisionNumber, Configuration)>, DecodeError> {
    option(cursor, |cursor| Ok((number(cursor)?, configuration(cursor)?)))
}

pub(crate) fn put_configuration(out: &mut Vec<u8>, configuration: &Configuration) {
    put_u32(out, configuration.epoch());
    put_u32(out, configuration.era());
    put_u64(out, configuration.floor().as_u64());
    put_members(out, configuration.old());
    put_option(out, configuration.new_set(), put_members);
    put_u16(out, configuration.past().len() as u16);
    for (node, birth) in configuration.past() {
        put_u16(out, node.get());
        put_u64(out, birth.0);
    }
}

pub(crate) fn configuration(cursor: &mut Cursor<'_>) -> Result<Configuration, DecodeError> {
    let (epoch, era) = (cursor.u32("epoch")?, cursor.u32("era")?);
    let floor = cursor.u64("floor")?;
    let floor = Ballot::from_u64(floor).ok_or(E::Ballot(floor))?;
    let sets = (members(cursor)?, option(cursor, members)?);
    let count = cursor.u16("past")?;
    let mut past = Vec::new();
    for _ in 0..count {
        past.push((node(cursor)?, Birth(cursor.u64("birth")?)));
    }
    Configuration::new(epoch, sets, era, floor, past).map_err(E::Configuration)
}

fn put_members(out: &mut Vec<u8>, members: &Members) {
    out.push(members.len() as u8);
    for Member { node, birth, peer } in members.iter() {
        put_u16(out, node.get());
        put_u64(out, birth.0);
        put_text(out, peer.as_bytes());
    }
}

fn members(cursor: &mut Cursor<'_>) -> Result<Members, DecodeError> {
    let count = usize::from(cursor.u8("member count")?);
    let mut members: Vec<Member> = Vec::with_capacity(count.min(MEMBERS_MAX));
    for _ in 0..count {
        let (node, birth) = (node(cursor)?, Birth(cursor.u64("birth")?));
        let peer = address(cursor)?;
        if members.last().is_some_and(|last| last.node >= node) {
            return Err(E::MembersUnordered(node));
        }
        members.push(Member { node, birth, peer: peer.into() });
    }
    Members::new(members).map_err(E::Configuration)
}

fn address<'a>(cursor: &mut Cursor<'a>) -> Result<&'a str, DecodeError> {
    core::str::from_utf8(cursor.text("address")?).map_err(|_| E::NotUtf8("address"))
}

fn put_state(out: &mut Vec<u8>, state: &PeerState) {
    put_tagged(out, tag::STATE, state.epoch);
    out.push(u8::from(state.voting));
    put_u32(out, millis_up(state.quarantine_left));
    put_u32(out, state.longest.map_or(0, Ttl::as_millis));
    put_option(out, state.in_epoch_for.as_ref(), |out, span| {
        put_u64(out, u64::try_from(span.as_millis()).unwrap_or(u64::MAX));
    });
    put_u32(out, state.registers_left);
    put_u16(out, state.reaches.len() as u16);
    for node in &state.reaches {
        put_u16(out, node.get());
    }
}

fn state(cursor: &mut Cursor<'_>) -> Result<PeerState, DecodeError> {
    let epoch = cursor.u32("epoch")?;
    let voting = flag(cursor)?;
    let quarantine_left = Duration::from_millis(cursor.u32("quarantine")?.into());
    let longest = Ttl::from_millis(cursor.u32("longest")?);
    let in_epoch_for = option(cursor, |cursor| cursor.u64("time").map(Duration::from_millis))?;
    let registers_left = cursor.u32("registers")?;
    let mut reaches = Vec::new();
    for _ in 0..cursor.u16("reaches")? {
        let node = node(cursor)?;
        if reaches.last().is_some_and(|last| *last >= node) {
            return Err(E::MembersUnordered(node));
        }
        reaches.push(node);
    }
    Ok(PeerState { epoch, voting, quarantine_left, longest, in_epoch_for, registers_left, reaches })
}

fn millis_up(span: Duration) -> u32 {
    u32::try_from(span.as_nanos().div_ceil(1_000_000)).unwrap_or(u32::MAX)
}
