//! A driver without a network.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Mutex;
use std::task::{Context, Poll};

use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use paxoslease_core::{Holder, Label, Token};
use paxoslease_wire::Heartbeat;

use super::*;
use crate::clock::Clock;
use crate::config::Config;
use crate::front::Waiting;
use crate::node::{Run, make_driver};
use crate::request::{CowLabel, ReplyTo};
use crate::stable::{Startup, Wishes};
use crate::tls::CurrentTls;
use paxoslease_holder::transport::{Request, TicketPool, Transport};
use paxoslease_holder::{Acquire, AskError};

/// The only member of a new cell.
pub(crate) fn alone(clock: &Clock) -> Driver {
    only_member(clock, true)
}

/// The only member of its cell; in quarantine unless the cell is new.
fn only_member(clock: &Clock, new_cell: bool) -> Driver {
    let config = Config::new("test", 1).peer(1, "127.0.0.1:1").ephemeral().shards(1);
    let settings = config.settings().expect("valid");
    let max_lease = settings.cell.max_lease();
    let wishes = Wishes { new_cell, reset: false, max_lease, counter: 1 };
    let startup = Startup::decide(None, None, wishes);
    let board = Board::new(&settings, Box::new(|| None), CurrentTls::default());
    let run = Run { seed: 1, wall_counter: 1 };
    make_driver(&settings, &startup, 0, run, clock, Arc::new(board))
}

/// For the only member of a cell, which dials no other node.
struct NoSockets;

impl Sockets for NoSockets {
    fn dial(&mut self, _: NodeId, _: &str) -> ConnId {
        unreachable!("there is no other node")
    }

    fn send(&mut self, _: ConnId, _: &[u8]) -> usize {
        unreachable!("there is no other node")
    }

    fn close(&mut self, _: ConnId) {}

    fn is_node(&self, _: ConnId, _: NodeId) -> bool {
        false
    }

    fn hand_over(&mut self, _: ConnId, _: u16) {}
}

/// Sockets of nodes that are not known yet. Counts those that the driver closed.
#[derive(Default)]
struct Strangers {
    closed: usize,
}

impl Sockets for Strangers {
    fn dial(&mut self, _: NodeId, _: &str) -> ConnId {
        unreachable!("there is no other member")
    }

    fn send(&mut self, _: ConnId, bytes: &[u8]) -> usize {
        bytes.len()
    }

    fn close(&mut self, _: ConnId) {
        self.closed += 1;
    }

    fn is_node(&self, _: ConnId, _: NodeId) -> bool {
        false
    }

    fn hand_over(&mut self, _: ConnId, _: u16) {}
}

fn held(driver: &Driver, now: Instant) -> usize {
    let shard = driver.shard();
    (0..shard.slot_count()).filter(|slot| shard.lease_in(now, *slot, |_| true).is_some()).count()
}

/// Keeps the requests of handles for the test to carry.
struct Carrier {
    clock: Clock,
    tickets: TicketPool,
    requests: Mutex<Vec<Request>>,
}

impl Transport for Carrier {
    fn ask(&self, _: Name<'_>, request: Request) -> Result<(), Request> {
        self.requests.lock().expect("one thread").push(request);
        Ok(())
    }

    fn clock(&self) -> &Clock {
        &self.clock
    }

    fn default_holder(&self) -> &'static str {
        "test"
    }

    fn tickets(&self) -> &TicketPool {
        &self.tickets
    }
}

#[test]
fn a_lease_granted_to_a_caller_that_left_is_given_back() {
    let clock = Clock::system();
    let (mut driver, now) = (alone(&clock), clock.now());
    driver.tick(&mut NoSockets, now);
    let (tickets, requests) = (TicketPool::default(), Mutex::default());
    let carrier = Arc::new(Carrier { clock, tickets, requests });
    let carry = |driver: &mut Driver| {
        for request in std::mem::take(&mut *carrier.requests.lock().expect("one thread")) {
            driver.command(now, Command::Serve(request));
        }
    };
    let transport: Arc<dyn Transport> = Arc::<Carrier>::clone(&carrier);
    let ttl = Duration::from_secs(10);
    let mut acquiring = Acquire::new(transport, "x", ttl, Duration::ZERO).into_future();
    let mut context = Context::from_waker(Waker::noop());
    assert!(Pin::new(&mut acquiring).poll(&mut context).is_pending());
    carry(&mut driver);
    assert_eq!(held(&driver, now), 1, "its own acceptor is a majority");
    drop(acquiring);
    carry(&mut driver);
    driver.act(now);
    driver.flush(&mut NoSockets);
    assert_eq!(held(&driver, now), 0);
    assert!(driver.callers.is_empty(), "nobody is waited for");
}

#[test]
fn a_status_tells_the_queue_and_the_longest_turn() {
    let clock = Clock::system();
    let (mut driver, now) = (alone(&clock), clock.now());
    driver.tick(&mut NoSockets, now);
    let (ttl, token) = (Duration::from_secs(10), Token(0));
    for (holder, wait) in [("first", Duration::ZERO), ("second", ttl), ("third", ttl)] {
        let name = Name::new("x").expect("a name");
        let holder = Holder::new(holder).expect("a holder");
        let acquire = paxoslease_core::Acquire { token, name, holder, ttl, wait };
        driver.shard.acquire(now, acquire).expect("room");
    }
    driver.worked(Duration::from_millis(3));
    driver.worked(Duration::from_millis(1));
    let status = driver.status(now);
    assert_eq!((status.leases, status.waiters, status.ready), (1, 2, true));
    assert_eq!(status.longest_turn, Duration::from_millis(3));
    let [queued] = &status.waiting[..] else { panic!("{:?}", status.waiting) };
    assert_eq!((&*queued.name, queued.waiters), ("x", 2));
    assert_eq!(queued.holder.as_deref(), Some("first"));
    assert!(queued.fence.is_some());
    let later = now.after(Duration::from_secs(5));
    let since_the_tick = driver.uptime(later) - driver.uptime(now);
    assert_eq!(since_the_tick, Duration::from_secs(5));
}

#[test]
fn a_pause_of_the_thread_is_counted() {
    let clock = Clock::system();
    let (mut driver, now) = (alone(&clock), clock.now());
    let recorder = DebuggingRecorder::new();
    metrics::with_local_recorder(&recorder, || {
        driver.paused(Duration::from_secs(1));
        driver.publish(now);
    });
    let published = recorder.snapshotter().snapshot().into_vec();
    let pauses = published.iter().find(|entry| entry.0.key().name() == "paxoslease_pauses_total");
    assert_eq!(pauses.expect("published").3, DebugValue::Counter(1));
}

#[test]
fn a_stranger_may_send_no_more_than_a_greeting() {
    let clock = Clock::system();
    let (mut driver, now) = (alone(&clock), clock.now());
    // The beginning of a long frame.
    let mut bytes = Vec::new();
    Heartbeat::Ping { number: 1, quarantine_ms: 0, counter: 1 }.encode(&mut bytes);
    bytes[..4].copy_from_slice(&60_000_u32.to_le_bytes());
    for (conn, (len, closed)) in
        [(GREETING_LEN_MAX, 0), (GREETING_LEN_MAX + 1, 1)].iter().enumerate()
    {
        let (mut sockets, conn) = (Strangers::default(), ConnId(conn));
        driver.accepted(&mut sockets, now, conn);
        bytes.resize(*len, 0);
        driver.received(&mut sockets, now, conn, &bytes);
        assert_eq!(sockets.closed, *closed, "{len} bytes");
    }
}

#[test]
fn a_member_in_quarantine_is_not_ready() {
    let clock = Clock::system();
    let (mut driver, now) = (only_member(&clock, false), clock.now());
    let waiters = [oneshot::channel(), oneshot::channel()].map(|(reply, answer)| {
        driver.command(now, Command::Ready { reply });
        answer
    });
    driver.tick(&mut NoSockets, now);
    assert!(!driver.status(now).ready);
    assert!(waiters.iter().all(|answer| answer.try_recv() == Err(oneshot::TryRecvError::Empty)));
    let over_at = now.after(driver.status(now).quarantine_remaining);
    driver.tick(&mut NoSockets, over_at.after(Duration::from_secs(1)));
    assert!(waiters.iter().all(|answer| answer.try_recv() == Ok(())));
}

#[test]
fn a_node_that_leaves_refuses_new_requests() {
    let clock = Clock::system();
    let (mut driver, now) = (alone(&clock), clock.now());
    driver.tick(&mut NoSockets, now);
    driver.command(now, Command::Stop);
    let (tickets, requests) = (TicketPool::default(), Mutex::default());
    let carrier = Arc::new(Carrier { clock, tickets, requests });
    let transport: Arc<dyn Transport> = Arc::<Carrier>::clone(&carrier);
    let ttl = Duration::from_secs(10);
    let mut acquiring = Acquire::new(transport, "x", ttl, Duration::ZERO).into_future();
    let mut context = Context::from_waker(Waker::noop());
    assert!(Pin::new(&mut acquiring).poll(&mut context).is_pending());
    for request in std::mem::take(&mut *carrier.requests.lock().expect("one thread")) {
        driver.command(now, Command::Serve(request));
    }
    driver.act(now);
    assert_eq!(held(&driver, now), 0);
    let Poll::Ready(Err(error)) = Pin::new(&mut acquiring).poll(&mut context) else {
        panic!("it was not refused");
    };
    assert_eq!(error, AskError::Stopped.into());
}
