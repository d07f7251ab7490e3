//! `paxoslease lock`: a command that runs while a lease is held.

use std::future::IntoFuture as _;
use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, select};
use paxoslease_client::LeaseGuard;

use super::alarm::{moment, since_boot};
use super::campaign::{Patience, win};
use super::connect;
use super::events::Events;
use super::failure::Failure;
use super::supervise::{self, Job, policy};
use crate::args::LockArgs;
use crate::{Verdict, output, trust};

pub(crate) fn run(args: LockArgs) -> anyhow::Result<Verdict> {
    let policy = policy(&args.loss, args.wish.ttl)?;
    let client = connect(&args.cell)?;
    let events = Events::begin()?;
    let patience = Patience::from(&args.wait);
    let won = win((&client, &events), &args.wish, patience, |wish| wish.into_future());
    let lease = pollster::block_on(won)?;
    let environment = trust::environment(&args.cell.trust, args.pass_token);
    let endpoints = client.endpoints();
    let job = Job { command: &args.command, policy, endpoints, environment };
    let ended = supervise::run(&job, &lease, &events);
    give_back(lease, &events, ended.is_ok());
    ended.map(Verdict::Code)
}

/// How long a cell may take to confirm when somebody is impatient.
const FLUSH: Duration = Duration::from_secs(1);

/// Gives a lease back once its work has ended. Who asks for the end meanwhile does not have to wait
/// for long: the lease is over in time anyhow.
pub(super) fn give_back(lease: LeaseGuard, events: &Events, is_well: bool) {
    if !lease.is_held() {
        return;
    }
    let released = pollster::block_on(async {
        let impatient = async {
            events.signal().await;
            // It may have come before a byte of the release was sent.
            moment(since_boot() + FLUSH).await;
        };
        match select(pin!(lease.release()), pin!(impatient)).await {
            Either::Left((released, _)) => released,
            Either::Right(_) => Ok(()),
        }
    });
    if let Err(error) = released
        && is_well
    {
        output::to_stderr(&format!("warning: {}\n", Failure::from(error)));
    }
}
