//! Delays Ethernet frames between two devices, each frame by a random time, so that frames overtake
//! each other.
//!
//! Owns two TAP devices, a thread that reads each, and one that sends frames when they are due.
//! Deliberately lacks loss, which nftables causes at the receiver.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use paxoslease_sim::Rng;
use tun_rs::{DeviceBuilder, Layer, SyncDevice};

use super::Delay;
use crate::log::{Nanos, now};

pub const TUN: &str = "/dev/net/tun";
/// The queue length; more frames are lost.
const FRAMES_MAX: usize = 65_536;
/// The largest frame, with room for an offloaded one.
const FRAME_MAX: usize = 65_600;

/// A TAP device: the harness reads and writes its frames.
pub struct Tap(Arc<SyncDevice>);

impl Tap {
    pub fn new(name: &str) -> Result<Self> {
        let device = DeviceBuilder::new().name(name).layer(Layer::L2).enable(false).build_sync();
        let device = device.with_context(|| format!("cannot make the device {name}"))?;
        Ok(Self(Arc::new(device)))
    }
}

/// Frames by due time; the second number makes keys unique.
#[derive(Default)]
struct DelayQueue {
    frames: BTreeMap<(Nanos, u64), (Vec<u8>, Arc<SyncDevice>)>,
    delay: Option<Delay>,
    sent: u64,
}

type Shared = Arc<(Mutex<DelayQueue>, Condvar)>;

/// Both directions between two devices. The threads end with the devices or this process.
pub struct Relay(Shared);

impl Relay {
    /// Connects two devices.
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
        let queue = Arc::clone(&shared);
        thread::Builder::new().name("relay".to_owned()).spawn(move || send(&queue))?;
        Ok(Self(shared))
    }

    /// Sets the delay of frames; `None` drops them.
    pub fn set(&self, delay: Option<Delay>) {
        lock(&self.0.0).delay = delay;
    }
}

fn lock(queue: &Mutex<DelayQueue>) -> MutexGuard<'_, DelayQueue> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

fn read(
    from: &SyncDevice,
    to: &Arc<SyncDevice>,
    (queue, due): &(Mutex<DelayQueue>, Condvar),
    mut rng: Rng,
) {
    let mut buffer = vec![0; FRAME_MAX];
    // The thread ends with its device.
    while let Ok(len) = from.recv(&mut buffer) {
        let mut queue = lock(queue);
        if queue.frames.len() == FRAMES_MAX {
            continue;
        }
        // Without a delay only flooded frames come here. They are dropped, or they would circulate
        // between two bridges.
        let Some(Delay { least, spread }) = queue.delay else { continue };
        let late = least + Duration::from_nanos(rng.below(spread.as_nanos() as u64 + 1));
        queue.sent += 1;
        let key = (now() + late.as_nanos() as u64, queue.sent);
        queue.frames.insert(key, (buffer[..len].to_vec(), Arc::clone(to)));
        due.notify_one();
    }
}

fn send((queue, due): &(Mutex<DelayQueue>, Condvar)) {
    let mut guard = lock(queue);
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
        // A full or removed device loses the frame.
        let _lost = to.send(&frame);
        guard = lock(queue);
    }
}
