//! `paxoslease-client`, whose guards renew themselves.
//!
//! A belief is logged up to the end that the guard itself gives it, less what the library's thread
//! may give it up early and give it back (P6). From there on it is logged up to the last instant at
//! which it was seen to be held, and looked at most often, for there an overlap would be.

use std::future::{Future as _, IntoFuture as _};
use std::pin::pin;
use std::task::{Context as Task, Waker};
use std::time::Duration;

use anyhow::{Context as _, Result};
use paxoslease_client::{AcquireError, Client, LeaseGuard, ReleaseError};
use paxoslease_clock::machine_span;
use paxoslease_rig::clock;

use super::scene::{Ending, Held, Scene, Wish};
use crate::check::nanos;
use crate::log::{Deed, End, Nanos, now};

/// How often a guard is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// What is left of a lease when it is looked at more often, and how often.
const NEAR: (Duration, Duration) = (Duration::from_millis(100), Duration::from_micros(500));
/// The library gives a lease up this share of its ttl early, at most this much, ...
const EARLY: (u32, Duration) = (50, Duration::from_millis(100));
/// ... and its alarms ring together with others up to so much later.
const TOGETHER: Duration = Duration::from_millis(5);
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
    let _pending = pin!(&mut asking).poll(&mut Task::from_waker(Waker::noop()));
    clock::sleep(after);
    None
}

/// Until when a guard is held for certain that was looked at then and had so much left: nothing but
/// the cell's word ends it before.
fn certain_until(at: Nanos, remaining: Duration, ttl: Duration) -> Nanos {
    let early = (ttl / EARLY.0).min(EARLY.1) + TOGETHER;
    at + nanos(machine_span(remaining.saturating_sub(early)))
}

fn hold(scene: &mut Scene, guard: LeaseGuard, mut held: Held, wish: &Wish) -> Result<()> {
    // That it was granted, even if there is nothing left to believe.
    let mut seen_at = held.belief.from;
    scene.see(&mut held, seen_at, seen_at)?;
    let mut looks = 0_u64;
    loop {
        // The clock is read first: what is held later was held then.
        let at = now();
        let remaining = guard.remaining();
        held.belief.renewals = guard.renewals();
        if remaining.is_zero() {
            let until = held.belief.until;
            // Only the cell's word ends it before its time.
            if now() < until {
                scene.over(&held, Deed::Renew, seen_at)?;
                scene.ended(&held, seen_at, End::Lost)?;
            } else {
                scene.ended(&held, until, End::Expired)?;
            }
            return scene.store_late(&held);
        }
        seen_at = at;
        scene.see(&mut held, at, certain_until(at, remaining, guard.ttl()))?;
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
            scene.ended(&held, seen_at, End::Released)?;
            drop(guard);
        }
        Ending::Release => {
            scene.ended(&held, seen_at, End::Released)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_belief_reaches_beyond_the_last_look_so_that_a_pause_or_a_crash_hides_nothing() {
        let millis = Duration::from_millis;
        let until = |remaining, ttl| certain_until(7, millis(remaining), millis(ttl));
        assert_eq!(until(1500, 2000), 7 + 1_455_000_000);
        assert_eq!(until(50_000, 60_000), 7 + 49_895_000_000, "never more than 100 ms early");
        assert_eq!(until(30, 2000), 7, "here its thread may have given it up");
    }
}
