//! The hot paths. Each one prepares, then runs its operations within [`counted`]; only these count,
//! on any thread.

use std::hint::black_box;

use crate::rigs::acceptor::{Asked, scattered};
use crate::rigs::bytes::{
    BATCH, Messages, parse_replies, parse_requests, put_replies, put_requests,
};
use crate::rigs::cell::Rig;
use crate::rigs::names::Names;
use crate::rigs::served::Served;
use anyhow::Result;
use clap::ValueEnum;

use crate::worst;

const TABLE: u32 = 80_000;
/// Few, so that the cell soon knows all of them.
const NAMES: u32 = 1 << 10;
/// Operations until the cell knows every name and its buffers have grown.
const WARMING: u64 = 8 * NAMES as u64;
const IN_FLIGHT: u32 = 64;
const WAITERS: u32 = 16;

/// Callgrind finds this function by its name, so it must not be inlined.
#[inline(never)]
pub(crate) fn counted(work: &mut dyn FnMut()) {
    work();
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Path {
    /// Acquire and release in a cell of three, through the codec
    Pair,
    /// Renewal in a cell of three, through the codec
    Renewal,
    /// One name going from one client of a node to the next of 16, in a cell of three
    HandOver,
    /// Propose of a new name at an acceptor, its table growing
    Insert,
    /// The most that one of a million such inserts takes
    InsertWorst,
    /// Renew at an acceptor, at random
    Renew,
    /// A lease that expired, until it is reclaimed
    Sweep,
    /// A message written into a frame
    FrameEncode,
    /// A message read from a frame
    FrameDecode,
    /// A pipelined command taken apart
    RespRequest,
    /// A reply written
    RespReply,
    /// A reply taken apart
    RespAnswer,
    /// Acquire and release by RESP, from socket to socket, pipelined
    ServedPair,
    /// Renewal by RESP, from socket to socket, pipelined
    ServedRenewal,
}

impl Path {
    /// The name on the command line and in the record.
    pub(crate) fn name(self) -> String {
        let value = self.to_possible_value().expect("every path has a name");
        value.get_name().to_owned()
    }

    /// Enough operations to average their differences.
    pub(crate) const fn operations(self) -> u32 {
        match self {
            Self::Pair | Self::Renewal | Self::HandOver => 20_000,
            Self::Insert | Self::Renew | Self::Sweep => TABLE,
            Self::InsertWorst => 1,
            Self::FrameEncode | Self::FrameDecode => 1000 * BATCH,
            Self::RespRequest | Self::RespReply | Self::RespAnswer => 1000 * BATCH,
            Self::ServedPair | Self::ServedRenewal => 500 * BATCH,
        }
    }

    pub(crate) fn run(self) -> Result<()> {
        let batches = self.operations() / BATCH;
        match self {
            Self::Pair => self.drive(Rig::new(IN_FLIGHT, NAMES), 2),
            Self::Renewal => {
                let mut rig = Rig::new(IN_FLIGHT, NAMES);
                rig.hold_all_and_renew(IN_FLIGHT);
                self.drive(rig, 1);
            }
            Self::HandOver => self.drive(Rig::contended(WAITERS), 2),
            Self::Insert => {
                let (names, mut asked) = (Names::of(0..TABLE), Asked::new());
                counted(&mut || (0..names.len()).for_each(|at| asked.propose(&names, at)));
            }
            Self::InsertWorst => worst::insert(),
            Self::Renew => {
                let names = Names::of(0..TABLE);
                let mut asked = Asked::holding(&names);
                counted(&mut || {
                    for pick in scattered(TABLE).take(TABLE as usize) {
                        asked.renew(&names, pick as usize, pick);
                    }
                });
            }
            Self::Sweep => {
                let mut asked = Asked::with_expired(&Names::of(0..TABLE));
                counted(&mut || asked.sweep_twice(TABLE));
                assert_eq!(asked.shard().entries(), 0, "all are reclaimed");
            }
            Self::FrameEncode => {
                let mut messages = Messages::new();
                counted(&mut || (0..batches).for_each(|_| _ = black_box(messages.encode())));
            }
            Self::FrameDecode => {
                let mut messages = Messages::new();
                messages.encode();
                counted(&mut || (0..batches).for_each(|_| messages.decode()));
            }
            Self::RespRequest => {
                let mut bytes = Vec::new();
                put_requests(&mut bytes, &Names::of(0..BATCH));
                counted(&mut || (0..batches).for_each(|_| parse_requests(&bytes)));
            }
            Self::RespReply => {
                let mut bytes = Vec::new();
                counted(&mut || {
                    for _ in 0..batches {
                        bytes.clear();
                        put_replies(&mut bytes);
                    }
                });
            }
            Self::RespAnswer => {
                let mut bytes = Vec::new();
                put_replies(&mut bytes);
                counted(&mut || (0..batches).for_each(|_| parse_replies(&bytes)));
            }
            Self::ServedPair => {
                let serve = |served: &mut Served| served.acquire().and_then(|()| served.release());
                return served(Served::start()?, batches, serve);
            }
            Self::ServedRenewal => {
                let mut daemon = Served::start()?;
                daemon.acquire()?;
                return served(daemon, batches, Served::renew);
            }
        }
        Ok(())
    }

    fn drive(self, mut rig: Rig, answers_each: u64) {
        rig.run(answers_each * WARMING);
        counted(&mut || rig.run(answers_each * u64::from(self.operations())));
    }
}

fn served(
    mut daemon: Served,
    batches: u32,
    serve: impl Fn(&mut Served) -> Result<()>,
) -> Result<()> {
    // The first batches find everything empty.
    (0..10).try_for_each(|_| serve(&mut daemon))?;
    let mut outcome = Ok(());
    counted(&mut || outcome = (0..batches).try_for_each(|_| serve(&mut daemon)));
    daemon.stop();
    outcome
}
