//! Many requests at once from one thread: a closed loop of futures, polled when they are woken.
//!
//! Deliberately no runtime: what is measured is the node, so the load has to be lean. A slot is
//! one future for the whole run, and waking it is a number in a list.

use std::cell::{Cell, RefCell};
use std::fmt::Write;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use hdrhistogram::Histogram;
use paxoslease::{LeaseGuard, Node};
use paxoslease_bench::clock::{now, thread_time};

use crate::orders::{Load, Loaded, Spans, histogram};

/// Who holds the leases: 16 bytes, as long as the figures are given for.
pub(crate) const HOLDER: &str = "holder-of-leases";
/// One pair in so many is timed where there are many.
const SAMPLED_EVERY: u64 = 8;

/// A name of 16 bytes in memory that is used again. Processes never share one.
pub(crate) fn write_name(name: &mut String, kind: &str, node: u16, number: u32) {
    name.clear();
    write!(name, "{kind}/{node}/{number:09}").expect("a string takes everything");
}

/// A load that runs on a thread of its own.
#[derive(Debug)]
pub(crate) struct Running {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Loaded>,
}

impl Running {
    pub(crate) fn start(node: Node, load: Load) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let run = move || run(&node, load, &told);
        let thread = thread::Builder::new().name("load".to_owned()).spawn(run)?;
        Ok(Self { stop, thread })
    }

    /// Ends it once every request under way is answered.
    pub(crate) fn stop(self) -> Result<Loaded> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| anyhow!("the load panicked"))
    }
}

struct Tally {
    pairs: u64,
    failures: u64,
    gap: Duration,
    acquired_at: Instant,
    nanos: Histogram<u64>,
}

fn run(node: &Node, load: Load, stop: &AtomicBool) -> Loaded {
    let began_at = now();
    let tally = RefCell::new(Tally {
        pairs: 0,
        failures: 0,
        gap: Duration::ZERO,
        acquired_at: began_at,
        nanos: histogram(),
    });
    let number = Cell::new(0);
    poll_all((0..load.in_flight).map(|_| pairs(node, load, &number, &tally, stop)));
    let Tally { pairs, failures, gap, acquired_at, nanos } = tally.into_inner();
    let took = began_at.elapsed();
    let gap = gap.max(acquired_at.elapsed());
    Loaded { pairs, failures, took, gap, cpu: thread_time(), spans: Spans::of(&nanos) }
}

/// One slot: acquires and releases one name after the other.
async fn pairs(
    node: &Node,
    load: Load,
    number: &Cell<u32>,
    tally: &RefCell<Tally>,
    stop: &AtomicBool,
) {
    let mut name = String::new();
    while !stop.load(Ordering::Relaxed) {
        let next = (number.get() + 1) % load.names;
        write_name(&mut name, "load", node.id(), number.replace(next));
        let asked_at = now();
        let Ok(lease) = node.acquire(&name, load.ttl).holder(HOLDER).await else {
            tally.borrow_mut().failures += 1;
            continue;
        };
        {
            let mut tally = tally.borrow_mut();
            let acquired_at = now();
            tally.gap = tally.gap.max(acquired_at - tally.acquired_at);
            tally.acquired_at = acquired_at;
        }
        let released = lease.release().await;
        let mut tally = tally.borrow_mut();
        match released {
            Ok(()) => tally.pairs += 1,
            Err(_) => tally.failures += 1,
        }
        if load.in_flight == 1 || tally.pairs.is_multiple_of(SAMPLED_EVERY) {
            tally.nanos.saturating_record(asked_at.elapsed().as_nanos() as u64);
        }
    }
}

/// Requests under way while leases are taken to be held.
const FILLING: u32 = 512;

/// Acquires leases and keeps them, beside those held already.
pub(crate) fn fill(
    node: &Node,
    held: &mut Vec<LeaseGuard>,
    leases: u32,
    ttl: Duration,
) -> Result<()> {
    let number = Cell::new(held.len() as u32);
    let leases = number.get() + leases;
    let held = RefCell::new(held);
    let failure = RefCell::new(None);
    poll_all((0..FILLING).map(|_| async {
        let mut name = String::new();
        while number.get() < leases && failure.borrow().is_none() {
            write_name(&mut name, "held", node.id(), number.replace(number.get() + 1));
            match node.acquire(&name, ttl).holder(HOLDER).await {
                Ok(lease) => held.borrow_mut().push(lease),
                Err(error) => *failure.borrow_mut() = Some(error),
            }
        }
    }));
    match failure.into_inner() {
        Some(error) => bail!("after {} leases: {error}", held.into_inner().len()),
        None => Ok(()),
    }
}

/// Waits for one future on this thread.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let output = Cell::new(None);
    poll_all(std::iter::once(async { output.set(Some(future.await)) }));
    output.into_inner().expect("it was polled to its end")
}

/// Which futures were woken.
struct Woken {
    slots: Mutex<Vec<usize>>,
    sleeper: Thread,
}

struct Slot {
    index: usize,
    woken: Arc<Woken>,
}

impl Wake for Slot {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let mut slots = self.woken.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.push(self.index);
        let first = slots.len() == 1;
        drop(slots);
        if first {
            self.woken.sleeper.unpark();
        }
    }
}

/// Polls futures to their end, all on this thread.
fn poll_all<F: Future<Output = ()>>(futures: impl Iterator<Item = F>) {
    let mut futures: Vec<Option<Pin<Box<F>>>> = futures.map(|f| Some(Box::pin(f))).collect();
    let all = (0..futures.len()).collect();
    let woken = Arc::new(Woken { slots: Mutex::new(all), sleeper: thread::current() });
    let slot = |index| Waker::from(Arc::new(Slot { index, woken: Arc::clone(&woken) }));
    let wakers: Vec<Waker> = (0..futures.len()).map(slot).collect();
    let mut left = futures.len();
    let mut turn = Vec::new();
    while left > 0 {
        std::mem::swap(&mut *woken.slots.lock().unwrap_or_else(PoisonError::into_inner), &mut turn);
        if turn.is_empty() {
            thread::park();
        }
        for index in turn.drain(..) {
            let Some(future) = &mut futures[index] else { continue };
            if future.as_mut().poll(&mut Context::from_waker(&wakers[index])) != Poll::Pending {
                futures[index] = None;
                left -= 1;
            }
        }
    }
}
