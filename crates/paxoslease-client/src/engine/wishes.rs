//! Wishes for leases, from the asking to the answer: unsent, under way, or queued at a node.
//!
//! A wish stays here while it is asked anew at another node. Each time it is sent it has another
//! number, so that a late or repeated answer to an earlier sending grants nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use paxoslease_core::{Instant, Label, Ttl};
use paxoslease_holder::transport::{Caller, Ticket};
use paxoslease_holder::{AcquireError, AskError, LeaseInfo};

use super::Engine;
use super::ask::{Ask, Question};

/// The longest a node is asked to let a wish wait: beyond the patience of anybody.
const WAIT_MS_MAX: u64 = u32::MAX as u64;

/// How many wishes a node is asked to wait for at once. Nodes count these among what one
/// connection may have under way (10,000 unless configured), and refuse more: renewals too.
pub(super) const QUEUED_MAX: usize = 5000;

/// How long to pause before a cell without a majority is asked again.
const ASK_AGAIN: Duration = Duration::from_millis(500);

/// How a wish stands with the node of this session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    Unsent,
    Sent,
    /// The node will say when it is granted.
    Queued,
}

/// An acquire.
pub(super) struct Wish {
    /// Unique in this client.
    pub(super) id: u64,
    pub(super) label: Label,
    pub(super) ttl: Ttl,
    pub(super) wait: Duration,
    /// `None` when the caller has left: a grant is to be released (P8).
    pub(super) caller: Option<Caller>,
    /// Whether the lease gets a guard.
    pub(super) renewed: bool,
}

impl Wish {
    /// Whether no caller waits for it any more.
    pub(super) const fn is_abandoned(&self) -> bool {
        self.caller.is_none()
    }

    fn refuse(&mut self, error: AcquireError) {
        let waker = self.caller.take().and_then(|caller| caller.refuse(error));
        waker.into_iter().for_each(Waker::wake);
    }
}

pub(crate) struct Wished {
    pub(super) wish: Wish,
    /// When it need not be waited for any more.
    wait_until: Instant,
    /// When it fails unless a node has begun to wait for it.
    give_up_at: Instant,
    place: Place,
    /// Whether any node has ever begun to wait for it.
    was_queued: bool,
    sendings: u16,
    pub(super) sent_at: Instant,
    /// What the last node said that could not.
    refusal: Option<AskError>,
}

impl fmt::Debug for Wished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Wished({}, {:?}, {:?})", self.wish.id, self.wish.label, self.place)
    }
}

impl Wished {
    /// How long a node should wait, and the number of this sending; `None` for not at all.
    pub(super) fn wait(&self, now: Instant) -> Option<(u64, u64)> {
        let millis = self.wait_until.since(now).as_millis();
        let millis = u64::try_from(millis).unwrap_or(u64::MAX).min(WAIT_MS_MAX);
        (millis > 0).then_some((millis, self.number()))
    }

    fn number(&self) -> u64 {
        self.wish.id << 16 | u64::from(self.sendings)
    }

    /// Whether there is time to ask once more.
    pub(super) fn has_time(&self, now: Instant) -> bool {
        now < self.give_up_at.max(self.wait_until)
    }

    /// A node that answered knows better why than those that did not.
    pub(super) fn fail(mut self, error: AcquireError) {
        self.wish.refuse(match (error, self.refusal) {
            (AcquireError::Ask(AskError::Unreachable { .. }), Some(refusal)) => refusal.into(),
            (error, _) => error,
        });
    }

    /// Somebody else has it.
    pub(super) fn held(self, holder: Option<LeaseInfo>) {
        let name = self.wish.label.name().to_string();
        self.fail(AcquireError::Held { name, holder });
    }

    /// Nobody could say who else has it. Without a majority that is no wonder, and perhaps nobody
    /// has it: then it was not refused for being held.
    pub(super) fn holder_unknown(self, error: AskError) {
        match error {
            AskError::Busy(_)
            | AskError::Unauthenticated(_)
            | AskError::Denied(_)
            | AskError::Name(_)
            | AskError::Protocol(_) => self.held(None),
            error => self.fail(error.into()),
        }
    }

    /// When to stop expecting a node to say that the wait is over.
    fn overdue_at(&self, request_timeout: Duration) -> Instant {
        self.wait_until.after(request_timeout)
    }
}

#[derive(Debug, Default)]
pub(super) struct Wishes {
    by_id: BTreeMap<u64, Wished>,
    /// Those that wait for a while, by when that is surely over.
    overdue: BTreeSet<(Instant, u64)>,
    /// Those to be asked for once more, by when.
    later: BTreeSet<(Instant, u64)>,
    request_timeout: Duration,
    /// How many a node has begun to wait for.
    queued: usize,
}

impl Wishes {
    pub(super) fn add(&mut self, now: Instant, request_timeout: Duration, wish: Wish) -> u64 {
        self.request_timeout = request_timeout;
        let id = wish.id;
        let wished = Wished {
            wait_until: now.after(wish.wait),
            give_up_at: now.after(request_timeout),
            place: Place::Unsent,
            was_queued: false,
            sendings: 0,
            sent_at: Instant::ZERO,
            refusal: None,
            wish,
        };
        self.overdue.insert((wished.overdue_at(request_timeout), id));
        self.by_id.insert(id, wished);
        id
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// It is about to be sent. `None` when nobody wants it any more.
    pub(super) fn send(&mut self, id: u64, now: Instant) -> Option<&Wished> {
        let wished = self.by_id.get_mut(&id)?;
        wished.place = Place::Sent;
        wished.sendings = wished.sendings.wrapping_add(1);
        wished.sent_at = now;
        Some(wished)
    }

    pub(super) fn remember(&mut self, id: u64, error: &AskError) {
        if let Some(wished) = self.by_id.get_mut(&id) {
            wished.refusal = Some(error.clone());
        }
    }

    /// Whether the wish is the one that was sent then, and was not answered since.
    pub(super) fn is_open(&self, id: u64, sent_at: Instant) -> bool {
        let wished = self.by_id.get(&id);
        wished.is_some_and(|wished| wished.sent_at == sent_at && wished.place == Place::Sent)
    }

    /// A node has begun to wait for it. If nobody else does any more, gives the number it has
    /// there.
    fn queue(&mut self, id: u64) -> Option<u64> {
        let wished = self.by_id.get_mut(&id)?;
        wished.place = Place::Queued;
        wished.was_queued = true;
        wished.refusal = None;
        self.queued += 1;
        wished.wish.is_abandoned().then(|| wished.number())
    }

    /// Whether the node waits for as many as it should.
    pub(super) const fn are_full(&self) -> bool {
        self.queued >= QUEUED_MAX
    }

    /// Whether a node may have to wait for it.
    pub(super) fn waits(&self, id: u64, now: Instant) -> bool {
        self.by_id.get(&id).is_some_and(|wished| wished.wait(now).is_some())
    }

    /// The wish that was sent under this number, and not since.
    pub(super) fn sent_as(&self, number: u64) -> Option<u64> {
        let wished = self.by_id.get(&(number >> 16))?;
        (wished.number() == number && wished.place != Place::Unsent).then_some(wished.wish.id)
    }

    /// The connection is over: whether it is to be asked anew. What nobody wants any more went
    /// with the connection (P8).
    pub(super) fn ask_again(&mut self, id: u64) -> bool {
        let Some(wished) = self.by_id.get_mut(&id) else { return false };
        if wished.wish.is_abandoned() {
            self.remove(id);
            return false;
        }
        self.queued -= usize::from(wished.place == Place::Queued);
        wished.place = Place::Unsent;
        true
    }

    /// Those the node has begun to wait for, which are to be asked anew, in the order they came.
    pub(super) fn queued(&mut self) -> impl Iterator<Item = u64> {
        let queued = self.by_id.values().filter(|wished| wished.place == Place::Queued);
        let mut ids: Vec<u64> = queued.map(|wished| wished.wish.id).collect();
        ids.retain(|id| self.ask_again(*id));
        ids.into_iter()
    }

    /// Whether it waits on although no node can be reached: one that a node has answered before
    /// waits as long as it wanted to, others as long as a question may take if some node got to
    /// hear it.
    pub(super) fn outlasts(&self, id: u64, now: Instant, was_sent: bool) -> bool {
        self.by_id.get(&id).is_some_and(|wished| {
            let until = if wished.was_queued { wished.wait_until } else { wished.give_up_at };
            match wished.refusal {
                Some(_) => wished.has_time(now),
                None => (was_sent || wished.was_queued) && now < until,
            }
        })
    }

    /// The name of one that a node waits for.
    pub(super) fn queued_name(&self) -> Option<&str> {
        let mut all = self.by_id.values();
        let queued = all.find(|wished| wished.place == Place::Queued)?;
        Some(queued.wish.label.name().as_str())
    }

    pub(super) fn remove(&mut self, id: u64) -> Option<Wished> {
        let wished = self.by_id.remove(&id)?;
        self.queued -= usize::from(wished.place == Place::Queued);
        self.overdue.remove(&(wished.overdue_at(self.request_timeout), id));
        Some(wished)
    }

    /// One whose wait is long over, although nobody said so.
    fn overdue(&mut self, now: Instant) -> Option<Wished> {
        let &(at, id) = self.overdue.first()?;
        (at <= now).then(|| self.remove(id)).flatten()
    }

    pub(super) fn next_at(&self) -> Option<Instant> {
        let firsts = [self.overdue.first(), self.later.first()];
        firsts.into_iter().flatten().map(|(at, _)| *at).min()
    }

    /// Nobody gets a lease any more; what a node was asked for is to be given back.
    pub(super) fn turn_away(&mut self, error: &AskError) {
        self.overdue.clear();
        for wished in self.by_id.values_mut() {
            wished.wish.refuse(error.clone().into());
        }
        self.by_id.retain(|_, wished| wished.place != Place::Unsent);
    }
}

impl Engine {
    /// P8: nobody waits for it any more. If a node was asked, the wish stays until that answers:
    /// what it grants is to be given back.
    pub(super) fn abandon(&mut self, now: Instant, ticket: &Arc<Ticket>) {
        let id = ticket.lock().slot;
        let Some(wished) = self.wishes.by_id.get_mut(&id) else { return };
        let is_its = |caller: &mut Caller| Arc::ptr_eq(caller.ticket(), ticket);
        if wished.wish.caller.take_if(is_its).is_none() {
            return;
        }
        match wished.place {
            Place::Unsent => drop(self.wishes.remove(id)),
            // The answer is on its way.
            Place::Sent => {}
            Place::Queued => {
                let number = wished.number();
                self.ask(now, Question::Cancel(number));
            }
        }
    }

    /// A node has begun to wait for it.
    pub(super) fn queue(&mut self, now: Instant, id: u64) {
        if let Some(number) = self.wishes.queue(id) {
            self.ask(now, Question::Cancel(number));
        }
    }

    /// The node says that it waits no longer. What it granted before, it said before.
    pub(super) fn cancelled(&mut self, number: u64) {
        let id = self.wishes.sent_as(number);
        drop(id.and_then(|id| self.wishes.remove(id)));
    }

    /// A server that never says that a wait is over does not make it longer. The connection goes,
    /// and with it the wish at that node.
    pub(super) fn tend_wishes(&mut self, now: Instant) {
        while let Some(&(at, id)) = self.wishes.later.first()
            && at <= now
        {
            self.wishes.later.pop_first();
            if let Some(wished) = self.wishes.remove(id) {
                self.wish_again(wished);
            }
        }
        while let Some(wished) = self.wishes.overdue(now) {
            if wished.place != Place::Unsent {
                self.go_elsewhere("it does not say that a wait is over");
            }
            wished.fail(self.unanswered().into());
        }
    }

    /// No majority was found. A wish that waits goes on waiting, and is asked for in a while; one
    /// that does not is told.
    pub(super) fn no_majority(&mut self, now: Instant, id: u64, error: AskError) {
        self.wishes.remember(id, &error);
        if self.wishes.waits(id, now) && self.wishes.ask_again(id) {
            self.wishes.later.insert((now.after(ASK_AGAIN), id));
        } else {
            self.fail(Question::Acquire(id), error);
        }
    }

    /// Asks for it once more, at the end of the queue.
    pub(super) fn wish_again(&mut self, wished: Wished) {
        let (id, give_up_at) = (wished.wish.id, wished.give_up_at.max(wished.wait_until));
        self.wishes.overdue.insert((wished.overdue_at(self.request_timeout), id));
        self.wishes.by_id.insert(id, Wished { place: Place::Unsent, ..wished });
        self.pending.push_back(Ask::new(Question::Acquire(id), give_up_at));
    }
}
