//! Clients of etcd, each request of theirs a task on the one thread of a load.
//!
//! Clients have a lease each, granted before the load begins, and their locks are keys attached to
//! it, put if they are absent. Where leases are renewed or filled, each name has a lease of its
//! own, as each holder has. A lock that is waited for follows etcd's own recipe, as `etcdctl lock`
//! does: a key under the lock's prefix, and a watch on the one created before.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use paxoslease_load::{LeaseRequest, Names, Outcome, Plan, Protocol, Workload};
use tokio::sync::Notify;
use tokio::task::spawn_local;
use tonic::Status;
use tonic::transport::Channel;

use super::super::SILENCE_MAX;
use super::call::{Stream, call, channel};
use super::messages::*;

/// A client's own lease outlives the load. Keeping it alive would cost etcd a little more.
pub(super) const CLIENT_TTL: Duration = Duration::from_secs(3600);
/// After a failure, so that failures do not become the load.
const PAUSE: Duration = Duration::from_millis(5);

/// The clients of one load.
pub(super) struct Client(Rc<Shared>);

/// What the tasks of all slots share.
struct Shared {
    workload: Workload,
    ttl: Duration,
    /// The keys of all clients that wait for a lock have this prefix.
    queue: Vec<u8>,
    names: RefCell<Names>,
    /// The used ones, then one to every member that is spoken to only when another dies.
    channels: Vec<Channel>,
    keep_alive: Vec<Stream<LeaseIdRequest, LeaseKeepAliveResponse>>,
    watches: Vec<Stream<WatchRequest, WatchResponse>>,
    /// Watches so far: each has a number of its own.
    watched: Cell<i64>,
    slots: RefCell<Vec<Slot>>,
    /// Slots that have a lease, and slots that have not yet given it back.
    leased: Cell<usize>,
    outcomes: RefCell<VecDeque<(u32, Outcome)>>,
    heard: Rc<Notify>,
}

#[derive(Clone, Copy)]
struct Slot {
    channel: usize,
    /// The client's own.
    lease: i64,
}

impl Client {
    /// Connections to the members with these ports in turn, and spare ones for when one is gone.
    pub(super) fn new(plan: &Plan, ports: &[u16], spare: &[u16]) -> anyhow::Result<Self> {
        let connections = plan.connections as usize;
        let used = (0..connections).map(|link| ports[link % ports.len()]);
        let channels = used.chain(spare.iter().copied()).map(channel);
        let channels = channels.collect::<Result<Vec<Channel>, _>>()?;
        let of = |is_wanted: bool| if is_wanted { &channels[..connections] } else { &[] };
        let renews = matches!(plan.workload, Workload::Renew { .. });
        let slot = |slot| Slot { channel: slot as usize % connections, lease: 0 };
        let shared = Rc::new(Shared {
            workload: plan.workload,
            ttl: plan.ttl,
            queue: format!("{}lock/", plan.names).into_bytes(),
            names: RefCell::new(Names::new(&plan.names)),
            keep_alive: of(renews)
                .iter()
                .map(|channel| Stream::open(channel, KEEP_ALIVE))
                .collect(),
            watches: of(plan.workload == Workload::Handover)
                .iter()
                .map(|channel| Stream::open(channel, WATCH))
                .collect(),
            watched: Cell::new(0),
            channels,
            slots: RefCell::new((0..plan.in_flight).map(slot).collect()),
            leased: Cell::new(0),
            outcomes: RefCell::new(VecDeque::new()),
            heard: Rc::new(Notify::new()),
        });
        for slot in 0..plan.in_flight {
            spawn_local(Rc::clone(&shared).open(slot));
        }
        Ok(Self(shared))
    }

    /// Notified whenever there is an outcome, or the clients may begin or end.
    pub(super) fn heard(&self) -> Rc<Notify> {
        Rc::clone(&self.0.heard)
    }
}

impl Protocol for Client {
    fn queues(&self) -> bool {
        true
    }

    fn silence_max(&self) -> Duration {
        SILENCE_MAX
    }

    fn is_open(&self, _: Duration) -> bool {
        self.0.leased.get() == self.0.slots.borrow().len()
    }

    fn request(&mut self, slot: u32, number: u32, ask: LeaseRequest, _: Duration) {
        let shared = Rc::clone(&self.0);
        spawn_local(async move {
            let outcome = match shared.carry_out(slot, number, ask).await {
                Ok(outcome) => outcome,
                Err(status) => {
                    shared.change_channel(slot);
                    tokio::time::sleep(PAUSE).await;
                    Outcome::Failed(status.message().into())
                }
            };
            shared.outcomes.borrow_mut().push_back((slot, outcome));
            shared.heard.notify_one();
        });
    }

    fn next_outcome(&mut self) -> Option<(u32, Outcome)> {
        self.0.outcomes.borrow_mut().pop_front()
    }

    fn close(&mut self) {
        for slot in 0..self.0.slots.borrow().len() {
            let shared = Rc::clone(&self.0);
            spawn_local(async move {
                let Slot { channel, lease } = shared.slots.borrow()[slot];
                // A member may be dead by now, and the lease is over some day.
                let _revoked = shared.revoke(channel, lease).await;
                shared.leased.set(shared.leased.get() - 1);
                shared.heard.notify_one();
            });
        }
    }

    fn is_closed(&self) -> bool {
        self.0.leased.get() == 0
    }
}

impl Shared {
    /// Gets the slot's own lease, however often that takes.
    async fn open(self: Rc<Self>, slot: u32) {
        loop {
            let Slot { channel, .. } = self.slots.borrow()[slot as usize];
            if let Ok(lease) = self.grant(channel, CLIENT_TTL).await {
                self.slots.borrow_mut()[slot as usize].lease = lease;
                self.leased.set(self.leased.get() + 1);
                self.heard.notify_one();
                return;
            }
            self.change_channel(slot);
            tokio::time::sleep(PAUSE).await;
        }
    }

    fn change_channel(&self, slot: u32) {
        let slot = &mut self.slots.borrow_mut()[slot as usize];
        slot.channel = (slot.channel + 1) % self.channels.len();
    }

    async fn carry_out(&self, slot: u32, number: u32, ask: LeaseRequest) -> Result<Outcome, Status> {
        let Slot { channel, lease } = self.slots.borrow()[slot as usize];
        let key = match self.workload {
            Workload::Handover => [&self.queue, format!("{lease:x}").as_bytes()].concat(),
            _ => self.names.borrow_mut().get(number).to_vec(),
        };
        let yes_if = |is_done| if is_done { Outcome::Yes(None) } else { Outcome::No };
        Ok(match (ask, self.workload) {
            (LeaseRequest::Acquire { .. }, Workload::Pairs | Workload::Mixed { .. }) => {
                match self.put(channel, &key, lease).await? {
                    Some(revision) => Outcome::Yes(Some(revision.cast_unsigned())),
                    None => Outcome::No,
                }
            }
            (LeaseRequest::Acquire { .. }, Workload::Renew { .. } | Workload::Fill) => {
                let lease = self.grant(channel, self.ttl).await?;
                match self.put(channel, &key, lease).await? {
                    Some(_) => Outcome::Yes(Some(lease.cast_unsigned())),
                    None => Outcome::No,
                }
            }
            (LeaseRequest::Acquire { .. }, Workload::Handover) => {
                self.enqueue(channel, key, lease).await?;
                Outcome::Yes(None)
            }
            (LeaseRequest::Renew { fence: id }, _) => {
                let stream = &self.keep_alive[channel % self.keep_alive.len()];
                let id = id.cast_signed();
                yes_if(stream.ask(id, LeaseIdRequest { id }).await?.ttl_seconds > 0)
            }
            (LeaseRequest::Release { fence }, Workload::Renew { .. }) => {
                self.revoke(channel, fence.cast_signed()).await?;
                Outcome::Yes(None)
            }
            (LeaseRequest::Release { .. }, Workload::Handover) => {
                let question = DeleteRequest { key };
                let deleted: DeleteResponse =
                    call(&self.channels[channel], DELETE, question).await?;
                yes_if(deleted.deleted == 1)
            }
            (LeaseRequest::Release { fence }, _) => {
                let delete = DeleteRequest { key: key.clone() };
                let question = if_created_at(&key, fence.cast_signed(), Request::Delete(delete));
                let answer: TxnResponse = call(&self.channels[channel], TXN, question).await?;
                yes_if(answer.succeeded)
            }
        })
    }

    async fn grant(&self, channel: usize, ttl: Duration) -> Result<i64, Status> {
        // etcd takes whole seconds only.
        let ttl_seconds = ttl.as_secs_f64().ceil() as i64;
        let question = LeaseGrantRequest { ttl_seconds };
        let granted: LeaseGrantResponse = call(&self.channels[channel], GRANT, question).await?;
        Ok(granted.id)
    }

    async fn revoke(&self, channel: usize, id: i64) -> Result<(), Status> {
        let _: Header = call(&self.channels[channel], REVOKE, LeaseIdRequest { id }).await?;
        Ok(())
    }

    /// The revision at which the key was created, unless it existed.
    async fn put(&self, channel: usize, key: &[u8], lease: i64) -> Result<Option<i64>, Status> {
        let put = PutRequest { key: key.to_vec(), value: Vec::new(), lease };
        let question = if_created_at(key, 0, Request::Put(put));
        let answer: TxnResponse = call(&self.channels[channel], TXN, question).await?;
        let revision = answer.header.unwrap_or_default().revision;
        Ok(answer.succeeded.then_some(revision))
    }

    /// Waits for the lock that all want.
    async fn enqueue(&self, channel: usize, key: Vec<u8>, lease: i64) -> Result<(), Status> {
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
            self.wait_for_those_before(channel, own).await?;
        }
        Ok(())
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

    async fn wait_for_those_before(&self, channel: usize, own: i64) -> Result<(), Status> {
        loop {
            let question = self.in_queue(DESCEND, own - 1);
            let answer: RangeResponse = call(&self.channels[channel], RANGE, question).await?;
            let Some(before) = answer.kvs.into_iter().next() else { return Ok(()) };
            let revision = answer.header.unwrap_or_default().revision;
            let watch_id = self.watched.get() + 1;
            self.watched.set(watch_id);
            // It existed at this revision, so what deletes it comes later. From here on, because
            // etcd looks at watches that begin in its past only every 100 ms.
            let create = WatchCreate { key: before.key, start_revision: revision + 1, watch_id };
            let stream = &self.watches[channel % self.watches.len()];
            stream.ask(watch_id, WatchRequest { create: Some(create), cancel: None }).await?;
            let cancel = Some(WatchCancel { watch_id });
            stream.tell(WatchRequest { create: None, cancel });
        }
    }
}
