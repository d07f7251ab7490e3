//! Acquires without an answer: unsent, sent, or queued at a node.
//!
//! An acquire stays here while the client retries it at another node. Each sending has its own
//! number, so a late or repeated answer to an earlier sending grants nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use paxoslease_core::{Instant, Label, Permits};
use paxoslease_holder::transport::{AcquireRequest, Caller, Span, Ticket};
use paxoslease_holder::{AcquireError, AskError, LeaseInfo};

use super::Engine;
use super::protocol::QueueOptions;
use super::request::{NodeRequest, PendingRequest};

/// The longest wait that the client asks a node for: 49 days.
const WAIT_MS_MAX: u64 = u32::MAX as u64;

/// How many acquires the client queues at a node. A node counts them among the requests that one
/// connection may have in flight (10,000 by default), and refuses more, renewals included.
pub(super) const QUEUED_MAX: usize = 5000;

/// The pause before the client asks a cell without a majority again.
const ASK_AGAIN: Duration = Duration::from_millis(500);

/// How long a cell with a majority takes to tell who holds a lease, with much to spare. The client
/// asks so long before a wait ends, so that it can say why at the end of the wait, not later.
const ANSWER_TIME: Duration = Duration::from_secs(1);

/// Where an acquire stands at the node of the current session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum AcquireState {
    Unsent,
    Sent,
    /// The node has queued the acquire, and will push the grant.
    Queued,
    /// The node did not grant it and no longer waits. The client asks for the holder, for its
    /// error.
    Denied,
}

/// What the next alarm of an acquire is for, in this order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Alarm {
    /// The wait ends soon: ask who holds the lease.
    AskHolder,
    /// The wait is over: tell the caller, if the client knows why.
    EndWait,
    /// No answer came in time: tell the caller that.
    EndCaller,
    /// The caller has left, and the node should have answered: leave the node.
    LeaveNode,
}

/// The next alarm, and when it is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct NextAlarm {
    at: Instant,
    alarm: Alarm,
}

/// Why an acquire is not granted yet, by the last answer of a node.
#[derive(Clone, Debug)]
enum Obstacle {
    /// The node refused the request, for example without a majority.
    Refused(AskError),
    /// Another client held the lease at that time. The holder is a hint.
    Held { seen_at: Instant, holder: Option<LeaseInfo> },
}

impl Obstacle {
    fn into_error(self, now: Instant, name: &Label) -> AcquireError {
        match self {
            Self::Refused(error) => error.into(),
            Self::Held { seen_at, holder } => {
                let holder = holder.and_then(|holder| aged(holder, now.since(seen_at)));
                AcquireError::Held { name: name.name().to_string(), holder }
            }
        }
    }
}

/// The hint so much later; `None` if the lease should be over.
fn aged(mut holder: LeaseInfo, by: Duration) -> Option<LeaseInfo> {
    if holder.remaining < Duration::MAX {
        holder.remaining = holder.remaining.checked_sub(by)?;
    }
    Some(holder)
}

/// An acquire that has no answer yet.
pub(crate) struct PendingAcquire {
    /// Unique in this client.
    pub(super) id: u64,
    pub(super) label: Label,
    pub(super) span: Span,
    pub(super) permits: Option<Permits>,
    /// Whether the lease gets a guard.
    pub(super) renewed: bool,
    /// `None` when the caller has left: the client releases a grant then (P8).
    pub(super) caller: Option<Caller>,
    /// The end of the caller's wait.
    wait_until: Instant,
    /// When the client asks for the holder, so that it knows why a wait ends.
    ask_holder_at: Instant,
    is_holder_asked: bool,
    /// When the acquire fails unless a node has queued it.
    give_up_at: Instant,
    alarm: NextAlarm,
    state: AcquireState,
    /// Whether any node has ever queued it.
    was_queued: bool,
    /// How often the client has sent it; wraps around.
    sendings: u16,
    pub(super) sent_at: Instant,
    obstacle: Option<Obstacle>,
}

impl fmt::Debug for PendingAcquire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PendingAcquire({}, {:?}, {:?})", self.id, self.label, self.state)
    }
}

impl PendingAcquire {
    /// How a node queues this sending; `None` if the caller does not wait, or waits no longer.
    pub(super) fn queue_options(&self, now: Instant) -> Option<QueueOptions> {
        let millis = self.wait_until.since(now).as_millis();
        let wait_ms = u64::try_from(millis).unwrap_or(u64::MAX).min(WAIT_MS_MAX);
        (wait_ms > 0).then(|| QueueOptions { wait_ms, number: self.number() })
    }

    /// The lease to look up when it was denied. All permits are held then, so any of them will do.
    fn held_label(&self) -> Label {
        let permit = self.permits.and_then(|permits| self.label.permit(permits.count()).ok());
        permit.unwrap_or_else(|| self.label.clone())
    }

    /// Whether the caller has left.
    pub(super) const fn is_abandoned(&self) -> bool {
        self.caller.is_none()
    }

    fn refuse(&mut self, error: AcquireError) {
        let waker = self.caller.take().and_then(|caller| caller.refuse(error));
        waker.into_iter().for_each(Waker::wake);
    }

    /// The number of the last sending, unique in this client.
    fn number(&self) -> u64 {
        self.id << 16 | u64::from(self.sendings)
    }

    /// Whether there is time for one more try.
    pub(super) fn has_time(&self, now: Instant) -> bool {
        now < self.ends_at()
    }

    /// When it ends without a grant: a node gets the request timeout even for an acquire that
    /// does not wait.
    fn ends_at(&self) -> Instant {
        self.give_up_at.max(self.wait_until)
    }

    /// Tells the caller. The refusal by a node explains more than "unreachable".
    pub(super) fn fail(mut self, error: AcquireError) {
        let obstacle = self.obstacle.take();
        self.refuse(match (error, obstacle) {
            (AcquireError::Ask(AskError::Unreachable { .. }), Some(Obstacle::Refused(refusal))) => {
                refusal.into()
            }
            (error, _) => error,
        });
    }

    /// When the caller gets an error without an answer of the cell: at the end of the wait, but a
    /// short wait does not shorten the time for the answer.
    fn end_caller_at(&self) -> Instant {
        self.wait_until.max(self.ask_holder_at.after(ANSWER_TIME))
    }

    /// When the client stops expecting that a node reports the end of the wait.
    fn leave_node_at(&self, request_timeout: Duration) -> Instant {
        self.wait_until.after(request_timeout)
    }
}

#[derive(Debug, Default)]
pub(super) struct Acquires {
    by_id: BTreeMap<u64, PendingAcquire>,
    /// All ids, by the times of their alarms.
    alarms: BTreeSet<(Instant, u64)>,
    /// The ids that the client retries later, by when.
    later: BTreeSet<(Instant, u64)>,
    request_timeout: Duration,
    /// How many are queued at the node.
    queued: usize,
    last_id: u64,
}

impl Acquires {
    pub(super) fn new(request_timeout: Duration) -> Self {
        Self { request_timeout, ..Self::default() }
    }

    /// Adds an unsent acquire and returns the request to send.
    pub(super) fn add(&mut self, now: Instant, request: AcquireRequest) -> PendingRequest {
        let AcquireRequest { caller, label, span, wait, permits, renewed } = request;
        self.last_id += 1;
        let id = self.last_id;
        caller.ticket().lock().slot = id;
        let ask_holder_at = now.after(wait.saturating_sub(ANSWER_TIME).max(wait / 2));
        let give_up_at = now.after(self.request_timeout);
        // Without a wait, the client asks for the holder once a node has denied the lease.
        let alarm = match wait {
            Duration::ZERO => NextAlarm { at: give_up_at, alarm: Alarm::LeaveNode },
            _ => NextAlarm { at: ask_holder_at, alarm: Alarm::AskHolder },
        };
        let acquire = PendingAcquire {
            id,
            label,
            span,
            permits,
            renewed,
            caller: Some(caller),
            wait_until: now.after(wait),
            ask_holder_at,
            is_holder_asked: false,
            give_up_at,
            alarm,
            state: AcquireState::Unsent,
            was_queued: false,
            sendings: 0,
            sent_at: Instant::ZERO,
            obstacle: None,
        };
        let pending = PendingRequest::new(NodeRequest::Acquire(id), acquire.ends_at());
        self.insert(acquire);
        pending
    }

    fn insert(&mut self, acquire: PendingAcquire) {
        self.alarms.insert((acquire.alarm.at, acquire.id));
        self.by_id.insert(acquire.id, acquire);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// Marks it as sent now. `None` if it is gone.
    pub(super) fn send(&mut self, id: u64, now: Instant) -> Option<&PendingAcquire> {
        let acquire = self.by_id.get_mut(&id)?;
        if let Some(Obstacle::Refused(AskError::Unreachable { .. })) = acquire.obstacle {
            acquire.obstacle = None;
        }
        acquire.state = AcquireState::Sent;
        acquire.sendings = acquire.sendings.wrapping_add(1);
        acquire.sent_at = now;
        Some(acquire)
    }

    pub(super) fn remember(&mut self, id: u64, error: &AskError) {
        if let Some(acquire) = self.by_id.get_mut(&id) {
            acquire.obstacle = Some(Obstacle::Refused(error.clone()));
        }
    }

    /// No node is reachable. The refusal by a node explains more than that.
    pub(super) fn remember_unreachable(&mut self, id: u64, error: &AskError) {
        if let Some(acquire) = self.by_id.get_mut(&id) {
            acquire.obstacle.get_or_insert_with(|| Obstacle::Refused(error.clone()));
        }
    }

    /// Whether this sending is the last one, and without an answer.
    pub(super) fn is_open(&self, id: u64, sent_at: Instant) -> bool {
        let acquire = self.by_id.get(&id);
        acquire.is_some_and(|acquire| {
            acquire.sent_at == sent_at && acquire.state == AcquireState::Sent
        })
    }

    /// A node has queued it. Returns the number to cancel it by if its caller has left.
    fn queue(&mut self, id: u64) -> Option<u64> {
        let acquire = self.by_id.get_mut(&id)?;
        acquire.state = AcquireState::Queued;
        acquire.was_queued = true;
        acquire.obstacle = None;
        self.queued += 1;
        acquire.is_abandoned().then(|| acquire.number())
    }

    /// Whether no more acquires should be queued at the node.
    pub(super) const fn is_queue_full(&self) -> bool {
        self.queued >= QUEUED_MAX
    }

    /// Whether a node may queue it.
    pub(super) fn waits(&self, id: u64, now: Instant) -> bool {
        self.by_id.get(&id).is_some_and(|acquire| acquire.queue_options(now).is_some())
    }

    /// Whether a node has queued it, its caller waits, and the wait ends soon.
    fn ends_soon(&self, id: u64, now: Instant) -> bool {
        self.by_id.get(&id).is_some_and(|acquire| {
            let is_queued = acquire.state == AcquireState::Queued && !acquire.is_abandoned();
            is_queued && now >= acquire.ask_holder_at
        })
    }

    /// The lease to look up for the error of this acquire, if its caller still waits.
    pub(super) fn held_label(&self, id: u64) -> Option<Label> {
        let acquire = self.by_id.get(&id).filter(|acquire| !acquire.is_abandoned())?;
        Some(acquire.held_label())
    }

    /// The id of the acquire whose last sending has this number.
    pub(super) fn sent_as(&self, number: u64) -> Option<u64> {
        let acquire = self.by_id.get(&(number >> 16))?;
        (acquire.number() == number && acquire.state != AcquireState::Unsent).then_some(acquire.id)
    }

    /// Makes it unsent and returns whether the client has to send it again. An abandoned acquire
    /// ends with its connection (P8).
    pub(super) fn unsend(&mut self, id: u64) -> bool {
        let Some(acquire) = self.by_id.get_mut(&id) else { return false };
        if acquire.is_abandoned() {
            self.remove(id);
            return false;
        }
        self.queued -= usize::from(acquire.state == AcquireState::Queued);
        acquire.state = AcquireState::Unsent;
        // The next node tells the holder that this one sees.
        acquire.is_holder_asked = false;
        true
    }

    /// Makes the queued acquires unsent and returns their ids, oldest first.
    pub(super) fn unsend_queued(&mut self) -> impl Iterator<Item = u64> {
        let queued = self.by_id.values().filter(|acquire| acquire.state == AcquireState::Queued);
        let mut ids: Vec<u64> = queued.map(|acquire| acquire.id).collect();
        ids.retain(|id| self.unsend(*id));
        ids.into_iter()
    }

    /// Whether it stays although no node is reachable: until the end of its wait, if the client has
    /// ever sent it to a node.
    pub(super) fn outlasts(&self, id: u64, now: Instant, was_sent: bool) -> bool {
        self.by_id.get(&id).is_some_and(|acquire| {
            let was_sent = was_sent || acquire.was_queued || acquire.obstacle.is_some();
            was_sent && acquire.has_time(now)
        })
    }

    /// The name of any queued acquire.
    pub(super) fn queued_name(&self) -> Option<&str> {
        let mut all = self.by_id.values();
        let queued = all.find(|acquire| acquire.state == AcquireState::Queued)?;
        Some(queued.label.name().as_str())
    }

    pub(super) fn remove(&mut self, id: u64) -> Option<PendingAcquire> {
        let acquire = self.by_id.remove(&id)?;
        self.queued -= usize::from(acquire.state == AcquireState::Queued);
        self.alarms.remove(&(acquire.alarm.at, id));
        Some(acquire)
    }

    /// The acquire whose alarm is due, and what for.
    fn due(&self, now: Instant) -> Option<(u64, Alarm)> {
        let &(at, id) = self.alarms.first().filter(|(at, _)| *at <= now)?;
        let acquire = self.by_id.get(&id).filter(|acquire| acquire.alarm.at == at);
        Some((id, acquire.expect("every alarm has its acquire").alarm.alarm))
    }

    fn set_alarm(&mut self, id: u64, alarm: Alarm) {
        let Some(acquire) = self.by_id.get_mut(&id) else { return };
        self.alarms.remove(&(acquire.alarm.at, id));
        let at = match alarm {
            Alarm::AskHolder => acquire.ask_holder_at,
            Alarm::EndWait => acquire.wait_until,
            Alarm::EndCaller => acquire.end_caller_at(),
            Alarm::LeaveNode => acquire.leave_node_at(self.request_timeout),
        };
        acquire.alarm = NextAlarm { at, alarm };
        self.alarms.insert((at, id));
    }

    pub(super) fn next_at(&self) -> Option<Instant> {
        let firsts = [self.alarms.first(), self.later.first()];
        firsts.into_iter().flatten().map(|(at, _)| *at).min()
    }

    /// Fails all of them. Those that were sent stay, so that the client can release their grants.
    pub(super) fn refuse_all(&mut self, error: &AskError) {
        self.alarms.clear();
        for acquire in self.by_id.values_mut() {
            acquire.refuse(error.clone().into());
        }
        self.by_id.retain(|_, acquire| {
            matches!(acquire.state, AcquireState::Sent | AcquireState::Queued)
        });
    }
}

impl Engine {
    /// P8: the caller has left. An acquire that was sent stays until the node answers, because the
    /// client has to release what the node grants.
    pub(super) fn abandon(&mut self, now: Instant, ticket: &Arc<Ticket>) {
        let id = ticket.lock().slot;
        let Some(acquire) = self.acquires.by_id.get_mut(&id) else { return };
        let is_its = |caller: &mut Caller| Arc::ptr_eq(caller.ticket(), ticket);
        if acquire.caller.take_if(is_its).is_none() {
            return;
        }
        self.without_caller(now, id);
    }

    /// The caller of this acquire has left, or was told that its wait is over.
    fn without_caller(&mut self, now: Instant, id: u64) {
        let Some(acquire) = self.acquires.by_id.get(&id) else { return };
        let number = acquire.number();
        match acquire.state {
            AcquireState::Unsent | AcquireState::Denied => drop(self.acquires.remove(id)),
            // The answer will come.
            AcquireState::Sent => self.acquires.set_alarm(id, Alarm::LeaveNode),
            AcquireState::Queued => {
                self.acquires.set_alarm(id, Alarm::LeaveNode);
                self.enqueue(now, NodeRequest::Cancel(number));
            }
        }
    }

    /// A node has queued the acquire.
    pub(super) fn queue(&mut self, now: Instant, id: u64) {
        if let Some(number) = self.acquires.queue(id) {
            self.enqueue(now, NodeRequest::Cancel(number));
        } else if self.acquires.ends_soon(id, now) {
            self.ask_holder(now, id);
        }
    }

    /// Asks for the holder, once.
    fn ask_holder(&mut self, now: Instant, id: u64) {
        let Some(acquire) = self.acquires.by_id.get_mut(&id) else { return };
        if !std::mem::replace(&mut acquire.is_holder_asked, true) {
            self.enqueue(now, NodeRequest::Holder(id));
        }
    }

    /// The node has cancelled a wait. A grant before that would have come before this answer.
    pub(super) fn cancelled(&mut self, number: u64) {
        let id = self.acquires.sent_as(number);
        drop(id.and_then(|id| self.acquires.remove(id)));
    }

    /// Retries acquires that are due, and ends waits: a node that does not report the end of a wait
    /// does not make the wait longer.
    pub(super) fn check_acquires(&mut self, now: Instant) {
        while let Some(&(at, id)) = self.acquires.later.first()
            && at <= now
        {
            self.acquires.later.pop_first();
            if let Some(acquire) = self.acquires.remove(id) {
                self.retry_acquire(acquire);
            }
        }
        while let Some((id, alarm)) = self.acquires.due(now) {
            match alarm {
                Alarm::AskHolder => {
                    self.acquires.set_alarm(id, Alarm::EndWait);
                    if self.acquires.ends_soon(id, now) {
                        self.ask_holder(now, id);
                    }
                }
                Alarm::EndWait => self.end_wait(now, id),
                Alarm::EndCaller => self.end_unanswered(now, id),
                Alarm::LeaveNode => self.end_at_node(now, id),
            }
        }
    }

    /// The wait is over. The caller is told why, if the client knows it.
    fn end_wait(&mut self, now: Instant, id: u64) {
        let Some(acquire) = self.acquires.by_id.get_mut(&id) else { return };
        let Some(obstacle) = acquire.obstacle.take() else {
            return self.acquires.set_alarm(id, Alarm::EndCaller);
        };
        let error = obstacle.into_error(now, &acquire.label);
        acquire.refuse(error);
        self.without_caller(now, id);
    }

    /// The wait is over, and the cell has not told why. A node that is connected lacks a majority.
    fn end_unanswered(&mut self, now: Instant, id: u64) {
        let is_connected = self.session.is_some();
        let error = if is_connected { AskError::NO_MAJORITY } else { self.unanswered() };
        let Some(acquire) = self.acquires.by_id.get_mut(&id) else { return };
        acquire.refuse(error.into());
        self.without_caller(now, id);
    }

    /// The node has not answered for too long. The client closes the connection, which ends the
    /// acquire at the node.
    fn end_at_node(&mut self, now: Instant, id: u64) {
        let Some(acquire) = self.acquires.by_id.get(&id) else { return };
        if acquire.state == AcquireState::Denied {
            return self.end_unanswered(now, id);
        }
        if acquire.state != AcquireState::Unsent {
            self.leave_node("it does not say that a wait is over");
        }
        self.fail(now, NodeRequest::Acquire(id), self.unanswered());
    }

    /// A lease was not granted, and its caller does not wait any longer.
    pub(super) fn denied(&mut self, now: Instant, mut acquire: PendingAcquire) {
        let id = acquire.id;
        let is_known = acquire.obstacle.is_some();
        acquire.state = AcquireState::Denied;
        self.acquires.insert(acquire);
        if is_known {
            self.end_wait(now, id);
        } else {
            self.ask_holder(now, id);
        }
    }

    /// A majority says who holds the lease, if any client does.
    pub(super) fn holder_seen(&mut self, now: Instant, id: u64, holder: Option<LeaseInfo>) {
        self.meet(now, id, Obstacle::Held { seen_at: now, holder });
    }

    /// The request for the holder failed. Without a majority the lease may be free, so the error
    /// is not `Held` then.
    pub(super) fn holder_unknown(&mut self, now: Instant, id: u64, error: AskError) {
        let obstacle = match error {
            AskError::Busy { .. }
            | AskError::Unauthenticated(_)
            | AskError::Denied(_)
            | AskError::Name(_)
            | AskError::Protocol(_) => Obstacle::Held { seen_at: now, holder: None },
            error => Obstacle::Refused(error),
        };
        self.meet(now, id, obstacle);
    }

    /// The client knows why the acquire is not granted. Its caller is told at the end of the wait.
    fn meet(&mut self, now: Instant, id: u64, obstacle: Obstacle) {
        let Some(acquire) = self.acquires.by_id.get_mut(&id) else { return };
        acquire.obstacle = Some(obstacle);
        if acquire.state == AcquireState::Denied || acquire.alarm.alarm == Alarm::EndCaller {
            self.end_wait(now, id);
        }
    }

    /// The node has no majority. An acquire that waits is retried later; any other one fails.
    pub(super) fn no_majority(&mut self, now: Instant, id: u64, error: AskError) {
        self.acquires.remember(id, &error);
        if self.acquires.waits(id, now) && self.acquires.unsend(id) {
            self.acquires.later.insert((now.after(ASK_AGAIN), id));
        } else {
            self.fail(now, NodeRequest::Acquire(id), error);
        }
    }

    /// Sends it once more, after all pending requests.
    pub(super) fn retry_acquire(&mut self, acquire: PendingAcquire) {
        let (id, give_up_at) = (acquire.id, acquire.ends_at());
        self.acquires.insert(PendingAcquire { state: AcquireState::Unsent, ..acquire });
        self.push(PendingRequest::new(NodeRequest::Acquire(id), give_up_at));
    }
}
