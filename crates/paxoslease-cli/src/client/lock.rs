//! `paxoslease lock`: runs a command while it holds a lease.

use std::future::IntoFuture as _;
use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, select};
use paxoslease_client::{Acquire, LeaseGuard};

use super::alarm::{since_boot, sleep_until};
use super::campaign::win;
use super::connect;
use super::events::Events;
use super::failure::Failure;
use super::supervise::{self, Job, policy};
use crate::args::LockArgs;
use crate::{Verdict, output, trust};

pub(crate) fn run(mut args: LockArgs) -> anyhow::Result<Verdict> {
    // So the lease is kept even if this machine crashes, and not much longer if CMD is short.
    args.lease.ttl = args.keep.unwrap_or(args.lease.ttl);
    if let Some(line) = args.shell.take() {
        args.command = vec!["sh".into(), "-c".into(), line];
    }
    let policy = policy(&args.loss, args.lease.ttl)?;
    let client = connect(&args.cell)?;
    let events = Events::begin()?;
    let win = |args: &LockArgs, durable: Option<Duration>| {
        let won = win(&client, &events, &args.lease, &args.wait, |acquire| {
            durable.into_iter().fold(acquire, Acquire::durable).into_future()
        });
        paxoslease_client::block_on(won)
    };
    let mut won = win(&args, None);
    if let (Err(failure), Some(keep)) = (&won, args.keep)
        && failure.max_lease.is_some()
    {
        // Longer than any lease without a disk.
        won = win(&args, Some(keep));
    }
    let mut lease = won.map_err(|failure| match args.keep {
        Some(_) => failure.about("--ttl", "--keep"),
        None => failure,
    })?;
    let kept_until = since_boot().saturating_add(args.keep.unwrap_or_default());
    let environment = trust::environment(&args.cell.trust, args.pass_token);
    let endpoints = client.endpoints();
    let job = Job { command: &args.command, policy, endpoints, environment };
    let ended = supervise::run(&job, &mut lease, &events);
    if ended.is_ok() && since_boot() < kept_until {
        // The lease expires. Dropping the guard would release it.
        std::mem::forget(lease);
    } else {
        release(lease, &events, ended.is_ok());
    }
    ended.map(Verdict::Code)
}

/// How long to wait for the confirmation of a release after a signal, or if the cell did not renew
/// the lease.
const FLUSH: Duration = Duration::from_secs(1);

/// Releases a lease after its work has ended. A signal or a failure shortens the wait for the
/// confirmation: the lease ends in time anyway.
pub(super) fn release(lease: LeaseGuard, events: &Events, is_well: bool) {
    if !lease.is_held() {
        return;
    }
    let lease_left = lease.remaining();
    let released = paxoslease_client::block_on(async {
        let interrupted = async {
            if is_well {
                events.signal().await;
            }
            // The signal may have come before the release was sent.
            sleep_until(since_boot() + FLUSH.min(lease_left)).await;
        };
        match select(pin!(lease.release()), pin!(interrupted)).await {
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
