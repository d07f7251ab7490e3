//! Every call that changes the core's [`Shard`], as a value that can be recorded and replayed.

use std::time::Duration;

use paxoslease_core::{
    Acquire, Ballot, CommandError, Event, Holder, Instant, Label, Lasts, MemberSet, Message, Name,
    NodeId, Record, Refusal, Renew, Shard, Tenure, Token, Transmit, Ttl,
};
use paxoslease_wire::{FrameReader, FrameWriter};
use serde::{Deserialize, Serialize};

use crate::line::Epoch;
use crate::register::StoredRegister;

/// One input. A message is a frame of its own, in hexadecimal digits. A reconnect has the members
/// whose connections are up again.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Input {
    Acquire { token: u64, name: String, holder: String, ttl: Duration, wait: Duration },
    Abandon { token: u64, name: String },
    Renew { token: u64, name: String, holder: String, tenure: u64, ttl: Duration },
    Release { token: u64, name: String, tenure: u64, patience: Duration },
    Inspect { token: u64, name: String },
    AcquireDurable { token: u64, name: String, holder: String, lasts: u64, wait: Duration },
    Keep { token: u64, name: String, holder: String, tenure: u64, lasts: u64 },
    ReleaseDurable { token: u64, name: String, tenure: u64, patience: Duration },
    DurableWritten { sequence: u64 },
    RestoreDurable(StoredRegister),
    DurableRoom(bool),
    Note { name: String, text: String },
    Message { from: u16, frame: String },
    Timeout,
    Sweep { slots_max: u32 },
    KeepUp { slots_max: u32 },
    Written { ballot_ceiling: u64, lease_ceiling: Option<u32> },
    Watched(bool),
    Learners(Vec<u16>),
    Reachable(Vec<u16>),
    Reconnect(Vec<u16>),
    RoundTrip(Duration),
    TurnTrip(Duration),
    ReclaimTrip(Duration),
    Counter(u64),
    CounterBound(u64),
    MembersAreFixed,
    Heard { from: u16, remembers: bool },
    Adopt { epoch: Epoch, floor: u64 },
}

/// What a call returned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Returned {
    Nothing,
    Asked(Result<(), CommandError>),
    WasOpen(bool),
    Handled(Result<(), Refusal>),
}

/// Everything that one input caused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Outputs {
    pub(crate) returned: Returned,
    pub(crate) transmits: Vec<Transmit>,
    pub(crate) events: Vec<Event>,
}

impl Outputs {
    pub(crate) fn drain(shard: &mut Shard, returned: Returned) -> Self {
        let transmits = std::iter::from_fn(|| shard.poll_transmit()).collect();
        let events = std::iter::from_fn(|| shard.poll_event()).collect();
        Self { returned, transmits, events }
    }

    /// The text in a trace. Empty if the input caused nothing.
    pub(crate) fn texts(&self) -> Vec<String> {
        let returned = match self.returned {
            Returned::Nothing | Returned::Asked(Ok(())) | Returned::Handled(Ok(())) => None,
            other => Some(format!("{other:?}")),
        };
        let transmits = self.transmits.iter().map(|transmit| format!("{transmit:?}"));
        let events = self.events.iter().map(|event| format!("{event:?}"));
        returned.into_iter().chain(transmits).chain(events).collect()
    }
}

impl Input {
    pub(crate) fn message(from: NodeId, message: &Message<'_>) -> Self {
        let mut writer = FrameWriter::new(from);
        assert!(writer.push(message), "an empty frame has room for any message");
        let digits = writer.finish(0).iter().map(|byte| format!("{byte:02x}"));
        Self::Message { from: from.get(), frame: digits.collect() }
    }

    pub(crate) fn written(record: Record) -> Self {
        Self::Written {
            ballot_ceiling: record.ballot_ceiling,
            lease_ceiling: record.lease_ceiling.map(Ttl::as_millis),
        }
    }

    /// The sender and the bytes of a message; `None` for other inputs and for invalid digits.
    pub(crate) fn frame(&self) -> Option<(NodeId, Vec<u8>)> {
        let Self::Message { from, frame } = self else { return None };
        let digit = |at: usize| u8::from_str_radix(frame.get(at..at + 2)?, 16).ok();
        let bytes = (0..frame.len()).step_by(2).map(digit).collect::<Option<_>>()?;
        Some((NodeId::new(*from)?, bytes))
    }

    /// Passes the input to a shard and collects the outputs. `None` when the input is invalid,
    /// because the trace is damaged or from another version.
    pub(crate) fn apply(&self, shard: &mut Shard, now: Instant) -> Option<Outputs> {
        let returned = self.call(shard, now)?;
        Some(Outputs::drain(shard, returned))
    }

    fn call(&self, shard: &mut Shard, now: Instant) -> Option<Returned> {
        match self {
            Self::Acquire { token, name, holder, ttl, wait } => {
                let (token, ttl, wait) = (Token(*token), *ttl, *wait);
                let (name, holder) = (Name::new(name).ok()?, Holder::new(holder).ok()?);
                let acquire = Acquire { token, name, holder, ttl, wait };
                return Some(Returned::Asked(shard.acquire(now, acquire)));
            }
            Self::Renew { token, name, holder, tenure, ttl } => {
                let (token, tenure) = (Token(*token), Tenure::from_fence(*tenure)?);
                let (name, holder) = (Name::new(name).ok()?, Holder::new(holder).ok()?);
                let renew = Renew { token, name, holder, tenure, ttl: *ttl };
                return Some(Returned::Asked(shard.renew(now, renew)));
            }
            Self::Release { token, name, tenure, patience } => {
                let (name, tenure) = (Name::new(name).ok()?, Tenure::from_fence(*tenure)?);
                let asked = shard.release(now, Token(*token), name, tenure, *patience);
                return Some(Returned::Asked(asked));
            }
            Self::Inspect { token, name } => {
                let asked = shard.inspect(now, Token(*token), Name::new(name).ok()?);
                return Some(Returned::Asked(asked));
            }
            Self::AcquireDurable { token, name, holder, lasts, wait } => {
                let (token, ttl, wait) = (Token(*token), Duration::ZERO, *wait);
                let (name, holder) = (Name::new(name).ok()?, Holder::new(holder).ok()?);
                let acquire = Acquire { token, name, holder, ttl, wait };
                let lasts = Lasts::from_millis(*lasts)?;
                return Some(Returned::Asked(shard.acquire_durable(now, acquire, lasts)));
            }
            Self::Keep { token, name, holder, tenure, lasts } => {
                let label = Label::new(Name::new(name).ok()?, Holder::new(holder).ok()?);
                let (tenure, lasts) = (Tenure::from_fence(*tenure)?, Lasts::from_millis(*lasts)?);
                let asked = shard.keep(now, Token(*token), label, tenure, lasts);
                return Some(Returned::Asked(asked));
            }
            Self::ReleaseDurable { token, name, tenure, patience } => {
                let (name, tenure) = (Name::new(name).ok()?, Tenure::from_fence(*tenure)?);
                let asked = shard.release_durable(now, Token(*token), name, tenure, *patience);
                return Some(Returned::Asked(asked));
            }
            Self::DurableWritten { sequence } => shard.durable_written(now, *sequence),
            Self::RestoreDurable(register) => shard.restore_durable(now, register.parsed()?),
            Self::DurableRoom(has_room) => shard.set_durable_room(*has_room),
            Self::Note { name, text } => {
                shard.note(Name::new(name).ok()?, Holder::new(text).ok()?);
            }
            Self::Abandon { token, name } => {
                let was_open = shard.abandon(now, Name::new(name).ok()?, Token(*token));
                return Some(Returned::WasOpen(was_open));
            }
            Self::Message { .. } => {
                let (from, frame) = self.frame()?;
                let message = FrameReader::new(&frame).ok()?.next()?.ok()?;
                return Some(Returned::Handled(shard.handle_message(now, from, message)));
            }
            Self::Counter(counter) => {
                return Some(Returned::Handled(shard.observe_counter(*counter)));
            }
            Self::Timeout => shard.handle_timeout(now),
            Self::Sweep { slots_max } => shard.sweep(now, *slots_max),
            Self::KeepUp { slots_max } => shard.keep_up(now, *slots_max),
            Self::Written { ballot_ceiling, lease_ceiling } => {
                let lease_ceiling = lease_ceiling.and_then(Ttl::from_millis);
                shard
                    .record_written(now, Record { ballot_ceiling: *ballot_ceiling, lease_ceiling });
            }
            Self::Watched(watched) => shard.set_watched(*watched),
            Self::Learners(ids) => shard.set_learners(nodes(ids)?),
            Self::Reachable(ids) => shard.set_reachable(now, members(shard, ids)?),
            Self::Reconnect(ids) => shard.handle_reconnect(now, members(shard, ids)?),
            Self::RoundTrip(longest) => shard.set_round_trip(*longest),
            Self::TurnTrip(longest) => shard.set_turn_trip(*longest),
            Self::CounterBound(bound) => shard.set_counter_bound(*bound),
            Self::ReclaimTrip(longest) => shard.set_reclaim_trip(*longest),
            Self::MembersAreFixed => shard.members_are_fixed(),
            Self::Heard { from, remembers } => {
                shard.heard_counter(NodeId::new(*from)?, *remembers);
            }
            Self::Adopt { epoch, floor } => {
                let cell = epoch.cell(shard.config().cell)?;
                shard.adopt(now, cell, Ballot::from_u64(*floor)?);
            }
        }
        Some(Returned::Nothing)
    }
}

fn nodes(ids: &[u16]) -> Option<Vec<NodeId>> {
    ids.iter().map(|id| NodeId::new(*id)).collect()
}

fn members(shard: &Shard, ids: &[u16]) -> Option<MemberSet> {
    let cell = shard.config().cell;
    let members = nodes(ids)?.into_iter().filter_map(|node| cell.member(node));
    Some(members.fold(MemberSet::EMPTY, MemberSet::with))
}
