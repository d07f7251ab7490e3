//! Clients of etcd. Each request is a task on the one thread of a load.
//!
//! Each client has a lease from before the load, and its locks are keys attached to that lease, put
//! if they are absent. In loads that renew or fill, each name has its own lease. A waiting client
//! follows etcd's own recipe, like `etcdctl lock`: a key under the lock's prefix, and a watch on
//! the key created before.

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

/// The lease of a client outlives the load, so it needs no keep-alive.
pub(super) const CLIENT_TTL: Duration = Duration::from_secs(3600);
/// The pause after a failure.
const PAUSE: Duration = Duration::from_millis(5);

pub(super) struct EtcdClient(Rc<Shared>);

/// The state that the tasks of all slots share.
struct Shared {
    workload: Workload,
    ttl: Duration,
    /// The prefix of the keys of waiting clients.
    queue: Vec<u8>,
    names: RefCell<Names>,
    /// The used ones, then spare ones for when a member dies.
    channels: Vec<Channel>,
    keep_alive: Vec<Stream<LeaseIdRequest, LeaseKeepAliveResponse>>,
    watches: Vec<Stream<WatchRequest, WatchResponse>>,
    /// The number of the last watch.
    watched: Cell<i64>,
    slots: RefCell<Vec<Slot>>,
    /// How many slots have their lease.
    leased: Cell<usize>,
    outcomes: RefCell<VecDeque<(u32, Outcome)>>,
    heard: Rc<Notify>,
}

#[derive(Clone, Copy)]
struct Slot {
    channel: usize,
    /// Of the slot's client.
    lease: i64,
}

impl EtcdClient {
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

    /// Notified of each outcome, and when all clients have begun or ended.
    pub(super) fn heard(&self) -> Rc<Notify> {
        Rc::clone(&self.0.heard)
    }
}

impl Protocol for EtcdClient {
    fn queues(&self) -> bool {
        true
    }

    fn silence_max(&self) -> Duration {
        SILENCE_MAX
    }

    fn is_open(&self, _: Duration) -> bool {
        self.0.leased.get() == self.0.slots.borrow().len()
    }

    fn request(&mut self, slot: u32, number: u32, request: LeaseRequest, _: Duration) {
        let shared = Rc::clone(&self.0);
        spawn_local(async move {
            let outcome = match shared.carry_out(slot, number, request).await {
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
                // If the member is dead, the lease expires.
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
    /// Acquires the lease of the slot's client, with retries.
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

    async fn carry_out(
        &self,
        slot: u32,
        number: u32,
        request: LeaseRequest,
    ) -> Result<Outcome, Status> {
        let Slot { channel, lease } = self.slots.borrow()[slot as usize];
        let key = match self.workload {
            Workload::Handover => [&self.queue, format!("{lease:x}").as_bytes()].concat(),
            _ => self.names.borrow_mut().get(number).to_vec(),
        };
        let yes_if = |is_done| if is_done { Outcome::Yes(None) } else { Outcome::No };
        Ok(match (request, self.workload) {
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
                let message = DeleteRequest { key };
                let deleted: DeleteResponse =
                    call(&self.channels[channel], DELETE, message).await?;
                yes_if(deleted.deleted == 1)
            }
            (LeaseRequest::Release { fence }, _) => {
                let delete = DeleteRequest { key: key.clone() };
                let message = if_created_at(&key, fence.cast_signed(), Request::Delete(delete));
                let answer: TxnResponse = call(&self.channels[channel], TXN, message).await?;
                yes_if(answer.succeeded)
            }
        })
    }

    async fn grant(&self, channel: usize, ttl: Duration) -> Result<i64, Status> {
        // etcd takes whole seconds only.
        let ttl_seconds = ttl.as_secs_f64().ceil() as i64;
        let message = LeaseGrantRequest { ttl_seconds };
        let granted: LeaseGrantResponse = call(&self.channels[channel], GRANT, message).await?;
        Ok(granted.id)
    }

    async fn revoke(&self, channel: usize, id: i64) -> Result<(), Status> {
        let _: Header = call(&self.channels[channel], REVOKE, LeaseIdRequest { id }).await?;
        Ok(())
    }

    /// Creates a key, and returns its revision unless it existed.
    async fn put(&self, channel: usize, key: &[u8], lease: i64) -> Result<Option<i64>, Status> {
        let put = PutRequest { key: key.to_vec(), value: Vec::new(), lease };
        let message = if_created_at(key, 0, Request::Put(put));
        let answer: TxnResponse = call(&self.channels[channel], TXN, message).await?;
        let revision = answer.header.unwrap_or_default().revision;
        Ok(answer.succeeded.then_some(revision))
    }

    async fn enqueue(&self, channel: usize, key: Vec<u8>, lease: i64) -> Result<(), Status> {
        let put = PutRequest { key: key.clone(), value: Vec::new(), lease };
        let mut message = if_created_at(&key, 0, Request::Put(put));
        let first = Request::Range(self.in_queue(ASCEND, 0));
        message.success.push(RequestOp { request: Some(first) });
        let answer: TxnResponse = call(&self.channels[channel], TXN, message).await?;
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

    /// Requests the first or last key of the queue, up to a revision.
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
            let message = self.in_queue(DESCEND, own - 1);
            let answer: RangeResponse = call(&self.channels[channel], RANGE, message).await?;
            let Some(before) = answer.kvs.into_iter().next() else { return Ok(()) };
            let revision = answer.header.unwrap_or_default().revision;
            let watch_id = self.watched.get() + 1;
            self.watched.set(watch_id);
            // The key existed at this revision, so its deletion comes later. etcd serves watches
            // that begin in the past only every 100 ms.
            let create = WatchCreate { key: before.key, start_revision: revision + 1, watch_id };
            let stream = &self.watches[channel % self.watches.len()];
            stream.ask(watch_id, WatchRequest { create: Some(create), cancel: None }).await?;
            let cancel = Some(WatchCancel { watch_id });
            stream.tell(WatchRequest { create: None, cancel });
        }
    }
}
