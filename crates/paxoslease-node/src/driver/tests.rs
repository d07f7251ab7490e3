//! A driver without a network.

use std::collections::BTreeMap;
use std::future::{Future, IntoFuture};
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::sync::Mutex;
use std::task::{Context, Poll};

use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use paxoslease_core::{Holder, Token};
use paxoslease_holder::transport::{Request, TicketPool, Transport};
use paxoslease_holder::{Acquire, AcquireError, Acquiring, AskError, LeaseGuard, Role};
use paxoslease_wire::{FrameWriter, Heartbeat, Hello, ListUse};

use super::*;
use crate::board::Disk;
use crate::clock::Clock;
use crate::config::Config;
use crate::node::{Run, make_driver};
use crate::stable::{Startup, Wishes};
use crate::tls::CurrentTls;

const TTL: Duration = Duration::from_secs(10);

/// The only member of its cell; in quarantine unless the cell is new.
pub(crate) fn only_member(clock: &Clock, new_cell: bool) -> Driver {
    let config = Config::new("test", 1).peer(1, "127.0.0.1:1").ephemeral().shards(1);
    let settings = config.settings().expect("valid");
    let wishes = Wishes { new_cell, ..settings.wishes(1, 1) };
    let startup = Startup::without_folder(&wishes);
    let board = Board::new(&settings, false, Disk::default(), CurrentTls::default());
    let run = Run { seed: 1, wall_counter: 1 };
    make_driver(&settings, &startup, 0, run, clock, Arc::new(board))
}

/// The metrics that `publish` publishes, as `name label-values`. Of a histogram, the first value.
pub(crate) fn published(publish: impl FnOnce()) -> BTreeMap<String, f64> {
    let recorder = DebuggingRecorder::new();
    metrics::with_local_recorder(&recorder, publish);
    let entries = recorder.snapshotter().snapshot().into_vec().into_iter();
    let entries = entries.map(|(key, _, _, value)| {
        let labels: Vec<&str> = key.key().labels().map(metrics::Label::value).collect();
        let value = match value {
            DebugValue::Counter(count) => count as f64,
            DebugValue::Gauge(value) => value.into_inner(),
            DebugValue::Histogram(values) => values.first().map_or(0.0, |value| value.into_inner()),
        };
        ([&[key.key().name()], &*labels].concat().join(" "), value)
    });
    entries.collect()
}

/// Sockets that lead nowhere and remember which connections were used and closed.
pub(crate) struct TestSockets {
    /// Bytes that they still take.
    pub(crate) room: usize,
    /// Whether the other end has the certificate of the node that it claims to be.
    pub(crate) is_proven: bool,
    pub(crate) closed: Vec<ConnId>,
    /// Connections that something was sent to, in order.
    pub(crate) sent: Vec<ConnId>,
    /// Addresses that were dialled, in order.
    pub(crate) dialled: Vec<String>,
}

impl Default for TestSockets {
    fn default() -> Self {
        let (closed, sent, dialled) = (Vec::new(), Vec::new(), Vec::new());
        Self { room: usize::MAX, is_proven: true, closed, sent, dialled }
    }
}

impl Connections for TestSockets {
    fn send(&mut self, conn: ConnId, bytes: &[u8]) -> usize {
        self.sent.push(conn);
        let taken = bytes.len().min(self.room);
        self.room -= taken;
        taken
    }

    fn close(&mut self, conn: ConnId) {
        self.closed.push(conn);
    }
}

impl Sockets for TestSockets {
    fn dial(&mut self, _: NodeId, address: &str) -> ConnId {
        self.dialled.push(address.to_owned());
        ConnId(0)
    }

    fn is_node(&self, _: ConnId, _: NodeId, _: Role) -> bool {
        self.is_proven
    }

    fn hand_over(&mut self, _: ConnId, _: u16) {}
}

/// Keeps the requests of handles for the test to pass on.
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

/// A driver at the time when it was made, and the handles of its process.
pub(crate) struct TestDriver {
    driver: Driver,
    pub(crate) now: Instant,
    sockets: TestSockets,
    carrier: Arc<Carrier>,
}

impl Deref for TestDriver {
    type Target = Driver;

    fn deref(&self) -> &Driver {
        &self.driver
    }
}

impl DerefMut for TestDriver {
    fn deref_mut(&mut self) -> &mut Driver {
        &mut self.driver
    }
}

impl TestDriver {
    pub(crate) fn new() -> Self {
        Self::of_cell(true)
    }

    fn of_cell(is_new: bool) -> Self {
        let clock = Clock::system();
        let (driver, now) = (only_member(&clock, is_new), clock.now());
        let (tickets, requests) = (TicketPool::default(), Mutex::default());
        let carrier = Arc::new(Carrier { clock, tickets, requests });
        let mut driver = Self { driver, now, sockets: TestSockets::default(), carrier };
        driver.tick_at(now);
        driver
    }

    fn tick_at(&mut self, now: Instant) {
        self.driver.tick(&mut self.sockets, now);
    }

    /// Passes an acquire to the core.
    pub(crate) fn acquire(&mut self, name: &str, holder: &str, wait: Duration) {
        let name = Name::new(name).expect("a name");
        let holder = Holder::new(holder).expect("a holder");
        let acquire = paxoslease_core::Acquire { token: Token(0), name, holder, ttl: TTL, wait };
        self.driver.shard.acquire(self.now, acquire).expect("room");
    }

    /// A handle asks for a lease. Its request is not passed on yet.
    fn begin_acquire(&self, name: &str) -> Acquiring<LeaseGuard> {
        let transport: Arc<dyn Transport> = Arc::<Carrier>::clone(&self.carrier);
        let mut acquiring = Acquire::new(transport, name, TTL, Duration::ZERO).into_future();
        assert!(poll(&mut acquiring).is_pending());
        acquiring
    }

    /// Passes on the requests of handles.
    fn carry(&mut self) {
        for request in std::mem::take(&mut *self.carrier.requests.lock().expect("one thread")) {
            self.driver.command(self.now, Command::Serve(request));
        }
    }

    fn held(&self) -> usize {
        let (shard, now) = (self.shard(), self.now);
        let slots = 0..shard.slot_count();
        slots.filter(|slot| shard.lease_in(now, *slot, |_| true).is_some()).count()
    }
}

fn poll(acquiring: &mut Acquiring<LeaseGuard>) -> Poll<Result<LeaseGuard, AcquireError>> {
    Pin::new(acquiring).poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn a_lease_granted_to_a_caller_that_left_is_given_back() {
    let mut driver = TestDriver::new();
    let acquiring = driver.begin_acquire("x");
    driver.carry();
    assert_eq!(driver.held(), 1, "its own acceptor is a majority");
    drop(acquiring);
    driver.carry();
    let now = driver.now;
    driver.act(now);
    driver.flush(&mut TestSockets::default(), now);
    assert_eq!(driver.held(), 0);
    assert!(driver.callers.is_empty(), "no caller is left");
}

#[test]
fn ballots_are_above_the_start_of_a_peer_that_greeted() {
    let mut driver = TestDriver::new();
    let (now, boot, mut bytes) = (driver.now, driver.shard.counter() + 1000, Vec::new());
    let node = NodeId::new(2).expect("a node id");
    Hello { node, boot, ..driver.peers.identity.hello() }.encode(&mut bytes);
    let TestDriver { driver, sockets, .. } = &mut driver;
    driver.accepted(sockets, now, ConnId(7));
    assert_eq!(driver.received(sockets, now, ConnId(7), &bytes), bytes.len());
    assert_eq!(driver.shard.counter(), boot);
}

/// C1: such a frame is neither counted nor answered, and its sender keeps its connection.
#[test]
fn messages_of_another_epoch_are_dropped() {
    let mut driver = TestDriver::new();
    let (now, conn, peer) = (driver.now, ConnId(7), NodeId::new(2).expect("a node id"));
    let mut bytes = Vec::new();
    let own = driver.peers.identity.clone();
    Hello { node: peer, list: ListUse::Follows, ..own.hello() }.encode(&mut bytes);
    let TestDriver { driver, sockets, .. } = &mut driver;
    driver.accepted(sockets, now, conn);
    driver.received(sockets, now, conn, &bytes);
    let inspect = Message::Request(paxoslease_core::Request::Inspect {
        name: Name::new("x").expect("a name"),
        query: 1,
    });
    for (epoch, is_answered) in [(1, false), (0, true)] {
        let mut writer = FrameWriter::new(peer);
        writer.set_epoch(epoch);
        assert!(writer.push(&inspect));
        let before = driver.shard.dropped(Refusal::WrongEpoch);
        driver.received(sockets, now, conn, writer.finish(1));
        driver.act(now);
        assert_eq!(driver.shard.dropped(Refusal::WrongEpoch) - before, u64::from(!is_answered));
        sockets.sent.clear();
        driver.flush(sockets, now);
        assert_eq!(sockets.sent.contains(&conn), is_answered, "epoch {epoch}");
    }
    assert_eq!(sockets.closed, []);
}

#[test]
fn a_status_tells_the_queue_and_the_longest_turn() {
    let mut driver = TestDriver::new();
    for (holder, wait) in [("first", Duration::ZERO), ("second", TTL), ("third", TTL)] {
        driver.acquire("x", holder, wait);
    }
    driver.worked(Duration::from_millis(3));
    driver.worked(Duration::from_millis(1));
    let status = driver.status(driver.now);
    assert_eq!((status.leases, status.waiters, status.ready), (1, 2, true));
    assert_eq!(status.longest_turn, Duration::from_millis(3));
    let [queued] = &status.waiting[..] else { panic!("{:?}", status.waiting) };
    assert_eq!((&*queued.name, queued.waiters), ("x", 2));
    assert_eq!(queued.holder.as_deref(), Some("first"));
    assert!(queued.fence.is_some());
    let later = driver.now.after(Duration::from_secs(5));
    let since_the_tick = driver.uptime(later) - driver.uptime(driver.now);
    assert_eq!(since_the_tick, Duration::from_secs(5));
}

#[test]
fn a_pause_of_the_thread_is_counted() {
    let mut driver = TestDriver::new();
    let published = published(|| {
        driver.paused(Duration::from_secs(1));
        let now = driver.now;
        driver.publish(now);
    });
    assert_eq!(published["paxoslease_pauses_total"], 1.0);
}

#[test]
fn a_stranger_may_send_no_more_than_a_greeting() {
    let mut driver = TestDriver::new();
    let now = driver.now;
    // The beginning of a long frame.
    let mut bytes = Vec::new();
    Heartbeat::Ping { number: 1, quarantine_ms: 0, counter: 1, epoch: 0 }.encode(&mut bytes);
    bytes[..4].copy_from_slice(&60_000_u32.to_le_bytes());
    for (number, len) in [GREETING_LEN_MAX, GREETING_LEN_MAX + 1].into_iter().enumerate() {
        let (mut sockets, conn) = (TestSockets::default(), ConnId(number));
        driver.accepted(&mut sockets, now, conn);
        bytes.resize(len, 0);
        driver.received(&mut sockets, now, conn, &bytes);
        assert_eq!(sockets.closed.contains(&conn), len > GREETING_LEN_MAX, "{len} bytes");
    }
}

#[test]
fn a_member_in_quarantine_is_not_ready() {
    let mut driver = TestDriver::of_cell(false);
    let now = driver.now;
    let waiters = [oneshot::channel(), oneshot::channel()].map(|(reply, answer)| {
        driver.command(now, Command::Ready(reply));
        answer
    });
    driver.tick_at(now);
    assert!(!driver.status(now).ready);
    assert!(waiters.iter().all(|answer| answer.try_recv() == Err(oneshot::TryRecvError::Empty)));
    let over_at = now.after(driver.status(now).quarantine_remaining);
    driver.tick_at(over_at.after(Duration::from_secs(1)));
    assert!(waiters.iter().all(|answer| answer.try_recv() == Ok(())));
}

#[test]
fn an_acquire_without_a_majority_says_for_what_it_waits() {
    let mut driver = TestDriver::of_cell(false);
    let now = driver.now;
    assert_eq!(driver.next_wait_to_log(now), None, "there is no acquire");
    let _acquiring = driver.begin_acquire("x");
    driver.carry();
    let reason = driver.next_wait_to_log(now).expect("at once");
    assert!(reason.contains("this node has no record and votes in 60 s"), "{reason}");
    assert!(reason.contains("new_cell(true)"), "{reason}");
    assert_eq!(driver.next_wait_to_log(now.after(Duration::from_secs(9))), None);
    let reason = driver.next_wait_to_log(now.after(Duration::from_secs(10))).expect("again");
    assert!(reason.contains("votes in 50 s"), "{reason}");
    let mut voting = TestDriver::new();
    let _acquiring = voting.begin_acquire("x");
    voting.carry();
    let now = voting.now;
    assert_eq!(voting.next_wait_to_log(now), None, "it votes");
}

#[test]
fn a_node_that_leaves_refuses_new_requests() {
    let mut driver = TestDriver::new();
    let now = driver.now;
    driver.command(now, Command::Stop);
    let mut acquiring = driver.begin_acquire("x");
    driver.carry();
    driver.act(now);
    assert_eq!(driver.held(), 0);
    let Poll::Ready(Err(error)) = poll(&mut acquiring) else { panic!("it was not refused") };
    assert_eq!(error, AskError::Stopped.into());
}

#[test]
fn a_node_without_names_sweeps_every_half_second() {
    let mut driver = TestDriver::new();
    let sweeps_in_five_seconds = |driver: &mut TestDriver| {
        let (until, mut sweeps) = (driver.now.after(Duration::from_secs(5)), 0);
        while driver.next_at() <= until {
            driver.now = driver.next_at();
            sweeps += u32::from(driver.now >= driver.housekeeping_at);
            driver.tick_at(driver.now);
        }
        sweeps
    };
    assert_eq!(sweeps_in_five_seconds(&mut driver), 10);
    driver.acquire("x", "first", Duration::ZERO);
    let sweeps = sweeps_in_five_seconds(&mut driver);
    assert!(sweeps > 80, "{sweeps} sweeps while a name is held");
}
