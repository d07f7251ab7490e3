//! The slow road: Ethernet frames between two devices, each frame late by a time of its own. Those
//! sent one after another overtake each other where the spread is wider than the gap.
//!
//! Owns two TAP devices, a thread that reads each, and one that sends what is due. Deliberately
//! lacks loss: that is the filter's, at the place where frames arrive.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use paxoslease_sim::Rng;
use tun_rs::{DeviceBuilder, Layer, SyncDevice};

use super::Delay;
use crate::log::{Nanos, now};

/// What makes devices.
pub const TUN: &str = "/dev/net/tun";
/// Frames under way at once; more are lost, as in any queue.
const FRAMES_MAX: usize = 65_536;
/// The largest frame, with room for an offloaded one.
const FRAME_MAX: usize = 65_600;

/// A device that is an end of a cable; the other end is in our hands.
pub struct Tap(Arc<SyncDevice>);

impl Tap {
    /// A new one, in the namespace of this process.
    ///
    /// # Errors
    /// When the system refuses it.
    pub fn new(name: &str) -> Result<Self> {
        let device = DeviceBuilder::new().name(name).layer(Layer::L2).enable(false).build_sync();
        let device = device.with_context(|| format!("cannot make the device {name}"))?;
        Ok(Self(Arc::new(device)))
    }
}

/// Frames under way, by when they are due; the second number keeps them apart.
#[derive(Default)]
struct Road {
    frames: BTreeMap<(Nanos, u64), (Vec<u8>, Arc<SyncDevice>)>,
    delay: Option<Delay>,
    sent: u64,
}

type Shared = Arc<(Mutex<Road>, Condvar)>;

/// Both directions of one slow road. Its threads end when the devices are removed and this
/// process ends: they hold nothing else.
pub struct Relay(Shared);

impl Relay {
    /// Joins two devices.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub fn start(near: Tap, far: Tap, seed: u64) -> Result<Self> {
        let shared = Shared::default();
        let reader = |from: &Tap, to: &Tap, purpose| {
            let (from, to, shared) = (Arc::clone(&from.0), Arc::clone(&to.0), Arc::clone(&shared));
            let rng = Rng::new(seed, purpose);
            thread::Builder::new()
                .name("relay".to_owned())
                .spawn(move || read(&from, &to, &shared, rng))
        };
        reader(&near, &far, 1)?;
        reader(&far, &near, 2)?;
        let road = Arc::clone(&shared);
        thread::Builder::new().name("relay".to_owned()).spawn(move || send(&road))?;
        Ok(Self(shared))
    }

    /// How late frames are from now on.
    pub fn set(&self, delay: Option<Delay>) {
        lock(&self.0.0).delay = delay;
    }
}

fn lock(road: &Mutex<Road>) -> MutexGuard<'_, Road> {
    road.lock().unwrap_or_else(PoisonError::into_inner)
}

fn read(
    from: &SyncDevice,
    to: &Arc<SyncDevice>,
    (road, due): &(Mutex<Road>, Condvar),
    mut rng: Rng,
) {
    let mut buffer = vec![0; FRAME_MAX];
    // A device that is gone ends the thread.
    while let Ok(len) = from.recv(&mut buffer) {
        let mut road = lock(road);
        if road.frames.len() == FRAMES_MAX {
            continue;
        }
        // Without delay nothing should come here but what was flooded to all ports: the road is
        // closed then, or frames would go round in circles between two bridges.
        let Some(Delay { least, spread }) = road.delay else { continue };
        let late = least + Duration::from_nanos(rng.below(spread.as_nanos() as u64 + 1));
        road.sent += 1;
        let key = (now() + late.as_nanos() as u64, road.sent);
        road.frames.insert(key, (buffer[..len].to_vec(), Arc::clone(to)));
        due.notify_one();
    }
}

fn send((road, due): &(Mutex<Road>, Condvar)) {
    let mut guard = lock(road);
    loop {
        let Some((&(due_at, _), _)) = guard.frames.first_key_value() else {
            guard = due.wait(guard).unwrap_or_else(PoisonError::into_inner);
            continue;
        };
        let now = now();
        if now < due_at {
            let wait = Duration::from_nanos(due_at - now);
            (guard, _) = due.wait_timeout(guard, wait).unwrap_or_else(PoisonError::into_inner);
            continue;
        }
        let (_, (frame, to)) = guard.frames.pop_first().expect("looked at just now");
        drop(guard);
        // A full or vanished device loses a frame, as networks do.
        let _lost = to.send(&frame);
        guard = lock(road);
    }
}
