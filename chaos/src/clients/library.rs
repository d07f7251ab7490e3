//! `paxoslease-client`, whose guards renew themselves.
//!
//! A belief is logged up to the end of the guard, less the time by which the library may release it
//! early (P6). After that, it is logged up to the last check that saw it held. Checks are most
//! frequent there, because an overlap would be there.

use std::future::{Future as _, IntoFuture as _};
use std::pin::pin;
use std::task::{Context as Task, Waker};
use std::time::Duration;

use anyhow::{Context as _, Result};
use paxoslease_client::{AcquireError, Client, LeaseGuard, ReleaseError};
use paxoslease_clock::machine_span;
use paxoslease_rig::clock;

use super::worker::{AcquirePlan, Ending, Held, Worker};
use crate::check::nanos;
use crate::log::{EndReason, Nanos, Operation, now};

/// The interval of checks of a guard.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// With this much of the lease left, checks have the second interval.
const NEAR: (Duration, Duration) = (Duration::from_millis(100), Duration::from_micros(500));
/// The library gives a lease up by this fraction of its ttl early, at most by this much.
const EARLY: (u32, Duration) = (50, Duration::from_millis(100));
/// Its timers may fire this much later, together with others.
const TOGETHER: Duration = Duration::from_millis(5);
/// The number of checks between writes to the store.
const LOOKS_PER_WRITE: u64 = 4;

/// Acquires, holds and releases without end.
pub(super) fn work(worker: &mut Worker) -> Result<()> {
    let options = &worker.options;
    let endpoints = options.endpoints.join(",");
    let client = Client::builder()
        .endpoints(&endpoints)
        .request_timeout(Duration::from_secs(3))
        .name(options.id.clone())
        .build()
        .context("cannot start the client")?;
    loop {
        let plan = worker.ask()?;
        let asked_at = now();
        match acquire(&client, &plan) {
            None => worker.failed(&plan.request, Operation::Acquire, "abandoned")?,
            Some(Err(AcquireError::Held { .. })) => {
                // The holder in the error was looked up later: a hint.
                worker.denied(&plan, asked_at, None)?;
            }
            Some(Err(error)) => {
                worker.failed(&plan.request, Operation::Acquire, error)?;
                worker.rest(20, 200);
            }
            Some(Ok(guard)) => {
                let held = worker.granted(&plan, guard.fence(), now());
                hold(worker, guard, held, &plan)?;
            }
        }
    }
}

/// `None` if the client left during the request.
fn acquire(client: &Client, plan: &AcquirePlan) -> Option<Result<LeaseGuard, AcquireError>> {
    let ttl = Duration::from_millis(plan.request.ttl_ms);
    let asking = match plan.request.wait_ms {
        0 => client.try_acquire(&plan.request.name, ttl),
        wait => client.acquire(&plan.request.name, ttl).wait(Duration::from_millis(wait)),
    };
    let asking = asking.holder(&plan.holder);
    let Ending::Abandon(after) = plan.ending else { return Some(asking.blocking()) };
    // The first poll sends the request. Dropping the future releases what is granted meanwhile.
    let mut asking = asking.into_future();
    let _pending = pin!(&mut asking).poll(&mut Task::from_waker(Waker::noop()));
    clock::sleep(after);
    None
}

/// The earliest end of a guard that had this much left at `at`: only an answer of the cell can end
/// it before.
fn certain_until(at: Nanos, remaining: Duration, ttl: Duration) -> Nanos {
    let early = (ttl / EARLY.0).min(EARLY.1) + TOGETHER;
    at + nanos(machine_span(remaining.saturating_sub(early)))
}

fn hold(worker: &mut Worker, guard: LeaseGuard, mut held: Held, plan: &AcquirePlan) -> Result<()> {
    // Logs the grant, even if its time is over.
    let mut seen_at = held.belief.from;
    worker.see(&mut held, seen_at, seen_at)?;
    let mut looks = 0_u64;
    loop {
        // The clock is read first: a lease that is held later was held then.
        let at = now();
        let remaining = guard.remaining();
        held.belief.renewals = guard.renewals();
        if remaining.is_zero() {
            let until = held.belief.until;
            // Only an answer of the cell ends it before its time.
            if now() < until {
                worker.over(&held, Operation::Renew, seen_at)?;
                worker.ended(&held, seen_at, EndReason::Lost)?;
            } else {
                worker.ended(&held, until, EndReason::Expired)?;
            }
            return worker.store_late(&held);
        }
        seen_at = at;
        worker.see(&mut held, at, certain_until(at, remaining, guard.ttl()))?;
        if at >= held.ends_at {
            break;
        }
        if looks.is_multiple_of(LOOKS_PER_WRITE) && guard.is_held() {
            worker.store(&held)?;
        }
        looks += 1;
        clock::sleep(if remaining < NEAR.0 { NEAR.1 } else { POLL_INTERVAL });
    }
    match held.ending {
        Ending::Crash => return worker.crash(&held),
        Ending::Forget | Ending::Abandon(_) => {
            worker.ended(&held, seen_at, EndReason::Released)?;
            drop(guard);
        }
        Ending::Release => {
            worker.ended(&held, seen_at, EndReason::Released)?;
            match guard.release_blocking() {
                Ok(()) => worker.released(&held)?,
                Err(ReleaseError::NotHeld { .. }) => {}
                Err(error) => worker.failed(&plan.request, Operation::Release, error)?,
            }
        }
    }
    worker.store_late(&held)?;
    worker.rest(0, 50);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_belief_extends_beyond_the_last_check() {
        let millis = Duration::from_millis;
        let until = |remaining, ttl| certain_until(7, millis(remaining), millis(ttl));
        assert_eq!(until(1500, 2000), 7 + 1_455_000_000);
        assert_eq!(until(50_000, 60_000), 7 + 49_895_000_000, "never more than 100 ms early");
        assert_eq!(until(30, 2000), 7, "here its thread may have given it up");
    }
}
