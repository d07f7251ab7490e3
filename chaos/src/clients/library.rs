//! `paxoslease-client`, whose guards renew themselves.
//!
//! The library's thread may drop a belief at any moment, a little early and by a release (P6), so
//! a belief is logged up to the last instant at which `is_held` was seen to be true, and the guard
//! is looked at often: most often near its end, where an overlap would be.

use std::future::IntoFuture as _;
use std::task::{Context as Task, Waker};
use std::time::Duration;

use anyhow::{Context as _, Result};
use paxoslease_bench::clock;
use paxoslease_client::{AcquireError, Client, LeaseGuard, ReleaseError};

use super::scene::{Ending, Held, Scene, Wish};
use crate::log::{Deed, End, now};

/// How often a guard is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// What is left of a lease when it is looked at more often, and how often.
const NEAR: (Duration, Duration) = (Duration::from_millis(100), Duration::from_micros(500));
/// How many looks are between writes to the store.
const LOOKS_PER_WRITE: u64 = 4;

/// Asks, holds, gives back, for ever.
pub(super) fn work(scene: &mut Scene) -> Result<()> {
    let options = &scene.options;
    let endpoints = options.endpoints.join(",");
    let client = Client::builder()
        .endpoints(&endpoints)
        .request_timeout(Duration::from_secs(3))
        .name(options.id.clone())
        .start()
        .context("cannot start the client")?;
    loop {
        let wish = scene.ask()?;
        let asked_at = now();
        match acquire(&client, &wish) {
            None => scene.failed(&wish.ask, Deed::Acquire, "abandoned")?,
            Some(Err(AcquireError::Held { .. })) => {
                // Whom the error names was looked up afterwards: a hint.
                scene.denied(&wish, asked_at, None)?;
            }
            Some(Err(error)) => {
                scene.failed(&wish.ask, Deed::Acquire, error)?;
                scene.rest(20, 200);
            }
            Some(Ok(guard)) => {
                let held = scene.granted(&wish, guard.fence(), now());
                hold(scene, guard, held, &wish)?;
            }
        }
    }
}

/// `None` when the client left in the middle.
fn acquire(client: &Client, wish: &Wish) -> Option<Result<LeaseGuard, AcquireError>> {
    let ttl = Duration::from_millis(wish.ask.ttl_ms);
    let asking = match wish.ask.wait_ms {
        0 => client.try_acquire(&wish.ask.name, ttl),
        wait => client.acquire(&wish.ask.name, ttl).wait(Duration::from_millis(wait)),
    };
    let asking = asking.holder(&wish.holder);
    let Ending::Abandon(after) = wish.ending else { return Some(asking.blocking()) };
    // The first look sends it, and nobody takes another: what is granted meanwhile is given back
    // when the future is dropped.
    let mut asking = asking.into_future();
    let _pending = asking.as_mut().poll(&mut Task::from_waker(Waker::noop()));
    clock::sleep(after);
    None
}

fn hold(scene: &mut Scene, guard: LeaseGuard, mut held: Held, wish: &Wish) -> Result<()> {
    // That it was granted, even if there is nothing left to believe.
    let granted_at = held.belief.from;
    scene.see(&mut held, granted_at)?;
    let mut looks = 0_u64;
    loop {
        // The clock is read first: what is held later was held then.
        let at = now();
        let remaining = guard.remaining();
        held.belief.renewals = guard.renewals();
        if remaining.is_zero() {
            scene.ended(&held, held.belief.until, End::Lost)?;
            return scene.store_late(&held);
        }
        scene.see(&mut held, at)?;
        if at >= held.ends_at {
            break;
        }
        if looks.is_multiple_of(LOOKS_PER_WRITE) && guard.is_held() {
            scene.store(&held)?;
        }
        looks += 1;
        clock::sleep(if remaining < NEAR.0 { NEAR.1 } else { LOOK_EVERY });
    }
    match held.ending {
        Ending::Crash => return scene.crash(&held),
        Ending::Forget | Ending::Abandon(_) => {
            scene.ended(&held, held.belief.until, End::Released)?;
            drop(guard);
        }
        Ending::Release => {
            scene.ended(&held, held.belief.until, End::Released)?;
            match guard.release_blocking() {
                Ok(()) => scene.released(&held)?,
                Err(ReleaseError::NotHeld { .. }) => {}
                Err(error) => scene.failed(&wish.ask, Deed::Release, error)?,
            }
        }
    }
    scene.store_late(&held)?;
    scene.rest(0, 50);
    Ok(())
}
