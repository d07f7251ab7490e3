//! `paxoslease lock`: a command that runs while a lease is held.

use std::future::IntoFuture as _;

use paxoslease_client::LeaseGuard;

use super::campaign::{Patience, win};
use super::events::Events;
use super::failure::Failure;
use super::supervise::{self, Job};
use super::{connect, supervise::policy};
use crate::args::LockArgs;
use crate::{Verdict, output};

pub(crate) fn run(args: LockArgs) -> anyhow::Result<Verdict> {
    let policy = policy(&args.loss, args.wish.ttl)?;
    let client = connect(&args.cell)?;
    let events = Events::begin()?;
    let patience = Patience::from(&args.wait);
    let won = win((&client, &events), &args.wish, patience, |wish| wish.into_future());
    let lease = pollster::block_on(won)?;
    let job = Job { command: &args.command, policy, endpoints: client.endpoints() };
    let ended = supervise::run(&job, &lease, &events);
    give_back(lease);
    ended.map(Verdict::Code)
}

/// Gives a lease back once its work has ended. Whatever comes of it, the lease is over in time.
pub(super) fn give_back(lease: LeaseGuard) {
    if lease.is_held()
        && let Err(error) = lease.release_blocking()
    {
        output::to_stderr(&format!("warning: {}\n", Failure::from(error)));
    }
}
