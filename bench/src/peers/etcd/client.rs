//! Clients of etcd, each a task on the one thread of a load.
//!
//! Clients have a lease each, granted before anything counts, and their locks are keys attached to
//! it, put if they are absent. Where leases are renewed or filled, each name has a lease of its
//! own, as each holder has. A lock that is waited for follows etcd's own recipe, as `etcdctl lock`
//! does: a key under the lock's prefix, and a watch on the one created before.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use paxoslease_load::Workload;
use tokio::sync::{Barrier, oneshot};
use tokio::task::{JoinSet, spawn_local};
use tonic::Status;
use tonic::transport::Channel;

use super::super::measure::Measure;
use super::super::names::{Names, Spelling};
use super::super::{Load, Loaded};
use super::call::{Questions, answers, call, channel, questions};
use super::messages::*;
use paxoslease_rig::clock;

const TXN: &str = "/etcdserverpb.KV/Txn";
const RANGE: &str = "/etcdserverpb.KV/Range";
const DELETE: &str = "/etcdserverpb.KV/DeleteRange";
const GRANT: &str = "/etcdserverpb.Lease/LeaseGrant";
const REVOKE: &str = "/etcdserverpb.Lease/LeaseRevoke";
const KEEP_ALIVE: &str = "/etcdserverpb.Lease/LeaseKeepAlive";
const WATCH: &str = "/etcdserverpb.Watch/Watch";

/// A client's own lease outlives the load. Keeping it alive would cost etcd a little more.
pub(super) const CLIENT_TTL: Duration = Duration::from_secs(3600);
/// After a failure, so that failures do not become the load.
const PAUSE: Duration = Duration::from_millis(5);

/// What all clients share.
struct Shared {
    workload: Workload,
    ttl: Duration,
    /// What locks that are waited for begin with.
    queue: Vec<u8>,
    spelling: RefCell<Spelling>,
    names: RefCell<Names>,
    measure: RefCell<Measure>,
    /// Those that are used, then spare ones to members that are not spoken to unless one dies.
    channels: Vec<Channel>,
    watchers: Vec<Watcher>,
    /// Of the leases that are renewed, by their numbers.
    leases: RefCell<Vec<i64>>,
    cursor: Cell<u32>,
    /// All clients are.
    prepared: Barrier,
    started_at: Instant,
}

/// Puts a load on the members with these ports: connections to each in turn, and the spare ones
/// when one is gone.
pub(super) async fn run(load: &Load, ports: &[u16], spare: &[u16]) -> Result<Loaded> {
    let connections = load.connections.min(load.in_flight) as usize;
    let used = (0..connections).map(|link| ports[link % ports.len()]);
    let channels = used.chain(spare.iter().copied()).map(channel);
    let channels = channels.collect::<Result<Vec<Channel>, _>>()?;
    let leases = if let Workload::Renew { leases } = load.workload { leases } else { 0 };
    let is_handover = load.workload == Workload::Handover;
    let watched = if is_handover { &channels[..connections] } else { &[] };
    let shared = Rc::new(Shared {
        workload: load.workload,
        ttl: load.ttl,
        queue: format!("{}lock/", load.names).into_bytes(),
        spelling: RefCell::new(Spelling::new(&load.names)),
        names: RefCell::new(Names::new(load)),
        measure: RefCell::new(Measure::new(load)),
        watchers: watched.iter().map(Watcher::new).collect(),
        channels,
        leases: RefCell::new(vec![0; leases as usize]),
        cursor: Cell::new(0),
        prepared: Barrier::new(load.in_flight as usize),
        started_at: clock::now(),
    });
    match load.workload {
        Workload::Renew { .. } => {
            shared.each_lease(load.in_flight, connections, Step::Take).await?;
            shared.warm_up();
            let mut streams = JoinSet::new();
            for link in 0..connections {
                let clients = (link..load.in_flight as usize).step_by(connections).count();
                streams.spawn_local(Rc::clone(&shared).renew(link, clients));
            }
            join_all(streams).await?;
            shared.each_lease(load.in_flight, connections, Step::GiveBack).await?;
        }
        Workload::Pairs | Workload::Mixed { .. } | Workload::Handover | Workload::Fill => {
            let mut clients = JoinSet::new();
            for client in 0..load.in_flight {
                let channel = client as usize % connections;
                clients.spawn_local(Rc::clone(&shared).work(client, channel));
            }
            join_all(clients).await?;
        }
    }
    let shared = Rc::into_inner(shared).context("a client is still at work")?;
    Ok(shared.measure.into_inner().loaded())
}

async fn join_all(mut tasks: JoinSet<Result<()>>) -> Result<()> {
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(())
}

/// What is done to every lease before and after they are renewed.
#[derive(Clone, Copy)]
enum Step {
    Take,
    GiveBack,
}

impl Shared {
    fn now(&self) -> Duration {
        clock::now() - self.started_at
    }

    fn warm_up(&self) {
        self.measure.borrow_mut().warm_up(self.now());
    }

    fn name(&self, number: u32) -> Vec<u8> {
        self.spelling.borrow_mut().of(number).to_vec()
    }

    async fn grant(&self, channel: usize, ttl: Duration) -> Result<i64, Status> {
        // Whole seconds are the finest that it takes.
        let ttl_seconds = ttl.as_secs_f64().ceil() as i64;
        let question = LeaseGrantRequest { ttl_seconds };
        let granted: LeaseGrantResponse = call(&self.channels[channel], GRANT, question).await?;
        Ok(granted.id)
    }

    async fn revoke(&self, channel: usize, id: i64) -> Result<(), Status> {
        let _: Header = call(&self.channels[channel], REVOKE, LeaseRequest { id }).await?;
        Ok(())
    }

    /// The revision at which it was taken, unless it exists.
    async fn acquire(&self, channel: usize, key: &[u8], lease: i64) -> Result<Option<i64>, Status> {
        let put = PutRequest { key: key.to_vec(), value: Vec::new(), lease };
        let question = if_created_at(key, 0, Request::Put(put));
        let answer: TxnResponse = call(&self.channels[channel], TXN, question).await?;
        let revision = answer.header.unwrap_or_default().revision;
        Ok(answer.succeeded.then_some(revision))
    }

    async fn release(&self, channel: usize, key: &[u8], revision: i64) -> Result<bool, Status> {
        let delete = DeleteRequest { key: key.to_vec() };
        let question = if_created_at(key, revision, Request::Delete(delete));
        let answer: TxnResponse = call(&self.channels[channel], TXN, question).await?;
        Ok(answer.succeeded)
    }

    /// One client from beginning to end.
    async fn work(self: Rc<Self>, client: u32, mut channel: usize) -> Result<()> {
        let lease = self.grant(channel, CLIENT_TTL).await?;
        // Nothing begins before all have their leases.
        if self.prepared.wait().await.is_leader() {
            self.warm_up();
        }
        loop {
            let began_at = self.now();
            if !self.measure.borrow_mut().begin(began_at) {
                break;
            }
            let number = self.names.borrow_mut().next(client);
            let worked = match self.workload {
                Workload::Handover => self.hand_over(client, channel, lease).await,
                Workload::Fill => self.take(channel, number).await.map(|(is_taken, _)| is_taken),
                Workload::Pairs | Workload::Mixed { .. } | Workload::Renew { .. } => {
                    self.pair(channel, number, lease).await
                }
            };
            let now = self.now();
            match worked {
                Ok(true) => self.measure.borrow_mut().succeeded(now - began_at, now),
                Ok(false) => self.measure.borrow_mut().refused(now),
                Err(status) => {
                    self.measure.borrow_mut().failed(status.message(), now);
                    channel = (channel + 1) % self.channels.len();
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
        // A member may be dead by now, and the lease is over some day.
        let _revoked = self.revoke(channel, lease).await;
        Ok(())
    }

    /// Whether it could be had.
    async fn pair(&self, channel: usize, number: u32, lease: i64) -> Result<bool, Status> {
        let key = self.name(number);
        let Some(revision) = self.acquire(channel, &key, lease).await? else { return Ok(false) };
        if self.release(channel, &key, revision).await? {
            return Ok(true);
        }
        Err(Status::failed_precondition("it was no longer held"))
    }

    /// Takes a name with a lease of its own. Says whether it could be had, and the lease.
    async fn take(&self, channel: usize, number: u32) -> Result<(bool, i64), Status> {
        let lease = self.grant(channel, self.ttl).await?;
        let key = self.name(number);
        Ok((self.acquire(channel, &key, lease).await?.is_some(), lease))
    }

    /// Does the same with every lease, so many at once.
    async fn each_lease(self: &Rc<Self>, clients: u32, channels: usize, step: Step) -> Result<()> {
        self.cursor.set(0);
        let mut tasks = JoinSet::new();
        for client in 0..clients as usize {
            let shared = Rc::clone(self);
            tasks.spawn_local(async move {
                let leases = shared.leases.borrow().len();
                while (shared.cursor.get() as usize) < leases {
                    let number = shared.cursor.replace(shared.cursor.get() + 1);
                    let channel = client % channels;
                    match step {
                        Step::Take => {
                            let (is_taken, lease) = shared.take(channel, number).await?;
                            if !is_taken {
                                bail!("lease {number} is held by another");
                            }
                            shared.leases.borrow_mut()[number as usize] = lease;
                        }
                        Step::GiveBack => {
                            let lease = shared.leases.borrow()[number as usize];
                            shared.revoke(channel, lease).await?;
                        }
                    }
                }
                Ok(())
            });
        }
        join_all(tasks).await
    }

    /// One stream of renewals, so many under way; answers come in the order of the questions.
    async fn renew(self: Rc<Self>, channel: usize, clients: usize) -> Result<()> {
        let (sender, receiver) = questions();
        let mut sent: VecDeque<(Duration, i64)> = VecDeque::with_capacity(clients);
        let mut stream = None;
        let mut receiver = Some(receiver);
        loop {
            let now = self.now();
            while sent.len() < clients && self.measure.borrow_mut().begin(now) {
                let number = self.names.borrow_mut().next(0);
                let id = self.leases.borrow()[number as usize];
                sender.send(LeaseRequest { id })?;
                sent.push_back((now, id));
            }
            if sent.is_empty() {
                return Ok(());
            }
            let answers = match (&mut stream, receiver.take()) {
                (Some(stream), _) => stream,
                (none, receiver) => {
                    let receiver = receiver.context("a stream is opened once")?;
                    let opened = answers(&self.channels[channel], KEEP_ALIVE, receiver).await?;
                    none.insert(opened)
                }
            };
            let answer: LeaseKeepAliveResponse =
                answers.message().await?.context("etcd ends a stream")?;
            let (sent_at, id) = sent.pop_front().context("an answer to nothing")?;
            if answer.id != id {
                bail!("etcd renews {} where {id} was to come", answer.id);
            }
            let now = self.now();
            if answer.ttl_seconds > 0 {
                self.measure.borrow_mut().succeeded(now - sent_at, now);
            } else {
                self.measure.borrow_mut().failed("the lease was over", now);
            }
        }
    }

    /// Waits for the lock that all want, and gives it back.
    async fn hand_over(&self, client: u32, channel: usize, lease: i64) -> Result<bool, Status> {
        let key = [self.queue.as_slice(), format!("{lease:x}").as_bytes()].concat();
        let put = PutRequest { key: key.clone(), value: Vec::new(), lease };
        let mut question = if_created_at(&key, 0, Request::Put(put));
        let first = Request::Range(self.in_queue(ASCEND, 0));
        question.success.push(RequestOp { request: Some(first) });
        let answer: TxnResponse = call(&self.channels[channel], TXN, question).await?;
        if !answer.succeeded {
            return Err(Status::already_exists("the key in the queue exists"));
        }
        let own = answer.header.unwrap_or_default().revision;
        let owner = answer.responses.iter().find_map(|response| response.range.as_ref());
        if owner.and_then(|range| range.kvs.first()).is_some_and(|kv| kv.create_revision != own) {
            self.wait_for_those_before(client, channel, own).await?;
        }
        self.measure.borrow_mut().granted(client, self.now());
        let question = DeleteRequest { key };
        let deleted: DeleteResponse = call(&self.channels[channel], DELETE, question).await?;
        if deleted.deleted == 1 {
            return Ok(true);
        }
        Err(Status::failed_precondition("it was no longer held"))
    }

    /// The first or last in the queue, of those created until then.
    fn in_queue(&self, sort_order: i32, max_create_revision: i64) -> RangeRequest {
        let mut range_end = self.queue.clone();
        if let Some(last) = range_end.last_mut() {
            *last += 1;
        }
        let (key, sort_target) = (self.queue.clone(), BY_CREATION);
        RangeRequest { key, range_end, limit: 1, sort_order, sort_target, max_create_revision }
    }

    async fn wait_for_those_before(
        &self,
        client: u32,
        channel: usize,
        own: i64,
    ) -> Result<(), Status> {
        loop {
            let question = self.in_queue(DESCEND, own - 1);
            let answer: RangeResponse = call(&self.channels[channel], RANGE, question).await?;
            let Some(before) = answer.kvs.into_iter().next() else { return Ok(()) };
            let revision = answer.header.unwrap_or_default().revision;
            let watcher = &self.watchers[channel % self.watchers.len()];
            // It existed at this revision, so what deletes it comes later. From here on, because
            // etcd looks at watches that begin in its past only every 100 ms.
            watcher.wait_for_deletion(client, before.key, revision + 1).await?;
        }
    }
}

/// One stream of watches, for all clients of a channel.
struct Watcher {
    requests: Questions<WatchRequest>,
    waiting: Rc<RefCell<BTreeMap<i64, oneshot::Sender<()>>>>,
    /// Watches so far: each has a number of its own.
    watches: Cell<i64>,
}

impl Watcher {
    fn new(channel: &Channel) -> Self {
        let (requests, receiver) = questions();
        let waiting = Rc::new(RefCell::new(BTreeMap::new()));
        let (channel, woken) = (channel.clone(), Rc::clone(&waiting));
        spawn_local(async move {
            let read = Self::read(&channel, receiver, &woken).await;
            // Those who wait are told by the end of what they wait on.
            woken.borrow_mut().clear();
            read
        });
        Self { requests, waiting, watches: Cell::new(0) }
    }

    async fn read(
        channel: &Channel,
        requests: tokio::sync::mpsc::UnboundedReceiver<WatchRequest>,
        waiting: &RefCell<BTreeMap<i64, oneshot::Sender<()>>>,
    ) -> Result<()> {
        let mut responses = answers(channel, WATCH, requests).await?;
        while let Some(response) = responses.message().await? {
            let response: WatchResponse = response;
            let is_deleted = response.events.iter().any(|event| event.kind == DELETED);
            if (is_deleted || response.canceled)
                && let Some(waiter) = waiting.borrow_mut().remove(&response.watch_id)
            {
                // Whoever no longer waits has failed and said so.
                let _gone = waiter.send(());
            }
        }
        Err(anyhow!("etcd ends a watch"))
    }

    async fn wait_for_deletion(
        &self,
        client: u32,
        key: Vec<u8>,
        start_revision: i64,
    ) -> Result<(), Status> {
        let watch_id = self.watches.get() + 1;
        self.watches.set(watch_id);
        let (sender, woken) = oneshot::channel();
        self.waiting.borrow_mut().insert(watch_id, sender);
        let create = Some(WatchCreate { key, start_revision, watch_id });
        let cancel = Some(WatchCancel { watch_id });
        let gone = |_| Status::unavailable(format!("the watch of client {client} is gone"));
        self.requests.send(WatchRequest { create, cancel: None }).map_err(|_| gone(()))?;
        woken.await.map_err(|_| gone(()))?;
        self.requests.send(WatchRequest { create: None, cancel }).map_err(|_| gone(()))
    }
}
