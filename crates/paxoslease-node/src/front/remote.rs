//! Leases for holders elsewhere, asked for from threads that are none of the node's: what an HTTP
//! server needs. Futures run on any executor; dropping one takes its question back.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use paxoslease_core::{Holder, Label, Name};
use paxoslease_wire::ShardId;

use super::{Answer, Ask, Cursor, Filter, Letter, PageMax, Routed};
use crate::command::Command;
use crate::node::{Node, Shared};

/// Takes leases for holders elsewhere; from [`Node::remote`]. Answers are those of
/// [`super::Answer`].
#[derive(Clone)]
pub struct Remote {
    shared: Arc<Shared>,
}

impl std::fmt::Debug for Remote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Remote")
    }
}

impl Node {
    /// Takes leases for holders elsewhere, without guards.
    #[must_use]
    pub fn remote(&self) -> Remote {
        Remote { shared: Arc::clone(&self.shared) }
    }
}

/// Those elsewhere who wait for an answer.
#[derive(Default)]
pub(crate) struct Waiting(Mutex<Waiters>);

#[derive(Default)]
struct Waiters {
    /// By the number of their question; no number is used twice.
    by_ask: BTreeMap<u64, Waiter>,
    asks: u64,
}

enum Waiter {
    Asked(oneshot::Sender<Answer>),
    /// P8: an acquire nobody waits for any more; what it is granted is given back.
    Gone(Label),
}

impl Waiting {
    fn add(&self, reply: oneshot::Sender<Answer>) -> u64 {
        let mut waiters = self.lock();
        waiters.asks += 1;
        let ask = waiters.asks;
        waiters.by_ask.insert(ask, Waiter::Asked(reply));
        ask
    }

    /// P8: nobody waits for this acquire any more. `false` when it was answered before.
    fn leave(&self, ask: u64, label: &Label) -> bool {
        let mut waiters = self.lock();
        let Some(waiter) = waiters.by_ask.get_mut(&ask) else { return false };
        *waiter = Waiter::Gone(label.clone());
        true
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Waiters> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands an answer over. Gives back the name and fence of a lease that nobody wants.
    pub(crate) fn answer(&self, ask: u64, answer: Answer) -> Option<(Label, u64)> {
        let waiter = self.lock().by_ask.remove(&ask)?;
        match (waiter, answer) {
            (Waiter::Asked(reply), answer) => {
                // Whoever asks anything but an acquire may leave without a word.
                let _left = reply.send(answer);
                None
            }
            (Waiter::Gone(label), Answer::Granted { fence, .. }) => Some((label, fence)),
            (Waiter::Gone(_), _) => None,
        }
    }

    /// Hands over whatever was answered, where nobody else asks; see `Clients::settle`.
    #[cfg(any(test, feature = "test-util"))]
    pub(crate) fn settle(&self, driver: &mut crate::driver::Driver, now: super::Instant) {
        let mut answers = Vec::new();
        driver.act(now);
        driver.take_answers(&mut answers);
        for (from, answer) in answers {
            if let Some((label, fence)) = self.answer(from.ask, answer) {
                driver.give_back(now, label.name(), fence);
            }
        }
    }

    /// The node is gone: nobody is left waiting.
    pub(crate) fn close(&self) {
        let left = std::mem::take(&mut self.lock().by_ask);
        for waiter in left.into_values() {
            if let Waiter::Asked(reply) = waiter {
                let _left = reply.send(Answer::Stopping);
            }
        }
    }
}

impl Remote {
    /// As [`super::Desk::acquire`]. Dropping the future takes the wish back.
    pub fn acquire(
        &self,
        name: Name<'_>,
        holder: Holder<'_>,
        ttl: Duration,
        wait: Duration,
    ) -> Asking {
        let ask = Ask::Acquire { name, holder, ttl, wait };
        let mut asking = self.ask(name, ask);
        asking.acquires = Some(Label::new(name, Holder::NONE));
        asking
    }

    /// As [`super::Desk::renew`].
    pub fn renew(&self, name: Name<'_>, fence: u64, ttl: Duration) -> Asking {
        self.ask(name, Ask::Renew { name, fence, ttl })
    }

    /// As [`super::Desk::release`].
    pub fn release(&self, name: Name<'_>, fence: u64) -> Asking {
        self.ask(name, Ask::Release { name, fence })
    }

    /// As [`super::Desk::inspect`].
    pub fn inspect(&self, name: Name<'_>) -> Asking {
        self.ask(name, Ask::Inspect { name })
    }

    /// As [`super::Desk::list`], of all names.
    pub fn list(&self, cursor: Cursor, prefix: &str, max: PageMax) -> Asking {
        self.list_filtered(cursor, (prefix, &Filter::ALL), max)
    }

    /// As [`super::Desk::list`].
    pub fn list_filtered(
        &self,
        cursor: Cursor,
        (prefix, filter): (&str, &Filter),
        max: PageMax,
    ) -> Asking {
        self.put(cursor.shard, Ask::List { slot: cursor.slot, prefix, filter, max })
    }

    fn ask(&self, name: Name<'_>, ask: Ask<'_>) -> Asking {
        let shard = ShardId::of(name, self.shared.settings.shards.get());
        self.put(shard.index(), ask)
    }

    fn put(&self, shard: u16, question: Ask<'_>) -> Asking {
        let (reply, answer) = oneshot::channel();
        let ask = self.shared.waiting.add(reply);
        let from = Routed { origin: Routed::ELSEWHERE, ask };
        let command = Command::Letter(Letter::new(from, question));
        let refused = match self.shared.doors.get(usize::from(shard)) {
            Some(door) => door(command).is_err().then_some(Answer::Stopping),
            // Only a listing goes where its cursor says.
            None => Some(Answer::Listed { leases: Vec::new(), next: None }),
        };
        if let Some(refused) = refused {
            self.shared.waiting.answer(ask, refused);
        }
        Asking { shared: Arc::clone(&self.shared), ask, answer, acquires: None }
    }
}

/// The future of an [`Answer`].
#[must_use = "futures do nothing unless polled"]
pub struct Asking {
    shared: Arc<Shared>,
    ask: u64,
    answer: oneshot::Receiver<Answer>,
    /// The name, for an acquire that has to be taken back when this is dropped.
    acquires: Option<Label>,
}

impl std::fmt::Debug for Asking {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Asking({})", self.ask)
    }
}

impl Future for Asking {
    type Output = Answer;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answer> {
        match Pin::new(&mut self.answer).poll(context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(answer) => {
                self.acquires = None;
                Poll::Ready(answer.unwrap_or(Answer::Stopping))
            }
        }
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        let Some(label) = self.acquires.take() else { return };
        if self.shared.waiting.leave(self.ask, &label) {
            let from = Routed { origin: Routed::ELSEWHERE, ask: self.ask };
            let letter = Letter::new(from, Ask::Abandon { name: label.name() });
            // A shard that is gone has nothing to take back.
            let _gone = self.shared.post(label.name(), Command::Letter(letter));
        } else if let Ok(Answer::Granted { fence, .. }) = self.answer.try_recv() {
            // Granted, and nobody looked.
            let remote = Remote { shared: Arc::clone(&self.shared) };
            drop(remote.release(label.name(), fence));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TestCell;
    use paxoslease_holder::block_on;

    const TTL: Duration = Duration::from_secs(10);

    fn name(text: &str) -> Name<'_> {
        Name::new(text).expect("a name")
    }

    fn granted(answer: Answer) -> u64 {
        let Answer::Granted { fence, ttl, waited } = answer else { panic!("{answer:?}") };
        assert_eq!((ttl, waited), (TTL, Duration::ZERO));
        fence
    }

    fn take(remote: &Remote, what: &str) -> u64 {
        let holder = Holder::new("me").expect("a holder");
        granted(block_on(remote.acquire(name(what), holder, TTL, Duration::ZERO)))
    }

    #[test]
    fn a_tenure_is_renewed_and_released_through_any_node() {
        let cell = TestCell::new(3);
        let remotes = [1, 2, 3].map(|id| cell.node(id).remote());
        let fence = take(&remotes[0], "x");
        let renewed = block_on(remotes[1].renew(name("x"), fence, TTL));
        assert_eq!(renewed, Answer::Renewed { ttl: TTL });
        let Answer::Held(by) =
            block_on(remotes[2].acquire(name("x"), Holder::NONE, TTL, Duration::ZERO))
        else {
            panic!("it is held")
        };
        assert_eq!((by.tenure.fence(), by.label.holder().as_str()), (fence, "me"));
        let Answer::Inspected(Some(seen)) = block_on(remotes[2].inspect(name("x"))) else {
            panic!("it is held")
        };
        assert_eq!(seen.tenure.fence(), fence);
        let released = Answer::Released { held: true, confirmed: true };
        assert_eq!(block_on(remotes[2].release(name("x"), fence)), released);
        assert_eq!(block_on(remotes[0].renew(name("x"), fence, TTL)), Answer::NotHeld);
        assert!(take(&remotes[1], "x") > fence);
    }

    #[test]
    fn numbers_that_no_tenure_has_are_not_held() {
        let cell = TestCell::new(1);
        let remote = cell.node(1).remote();
        for fence in [0, 1, u64::MAX] {
            assert_eq!(block_on(remote.renew(name("x"), fence, TTL)), Answer::NotHeld);
            let never = Answer::Released { held: false, confirmed: true };
            assert_eq!(block_on(remote.release(name("x"), fence)), never);
        }
    }

    #[test]
    fn whoever_stops_waiting_leaves_the_queue() {
        let cell = TestCell::new(3);
        let remote = cell.node(1).remote();
        let fence = take(&remote, "x");
        let waits = remote.acquire(name("x"), Holder::NONE, TTL, Duration::from_secs(60));
        // Its turn comes in the shard's thread; asking something else waits for that.
        block_on(remote.inspect(name("x")));
        assert_eq!(block_on(cell.node(1).status()).expect("it runs").waiters, 1);
        drop(waits);
        block_on(remote.inspect(name("x")));
        assert_eq!(block_on(cell.node(1).status()).expect("it runs").waiters, 0);
        block_on(remote.release(name("x"), fence));
        assert!(take(&cell.node(2).remote(), "x") > fence, "nobody took it meanwhile");
    }

    #[test]
    fn a_grant_nobody_looked_at_is_given_back() {
        let cell = TestCell::new(3);
        let remote = cell.node(1).remote();
        let unseen = remote.acquire(name("x"), Holder::NONE, TTL, Duration::ZERO);
        take(&remote, "y");
        block_on(remote.inspect(name("x")));
        drop(unseen);
        block_on(remote.inspect(name("x")));
        take(&cell.node(2).remote(), "x");
    }

    #[test]
    fn a_listing_goes_through_everything_a_page_at_a_time() {
        let cell = TestCell::new(3);
        let remote = cell.node(2).remote();
        for number in 0..50 {
            take(&remote, &format!("a/{number:02}"));
            take(&remote, &format!("b/{number:02}"));
        }
        let (mut names, mut cursor, mut pages) = (Vec::new(), Some(Cursor::START), 0);
        while let Some(at) = cursor {
            let Answer::Listed { leases, next } =
                block_on(remote.list(at, "b/", PageMax::leases(7)))
            else {
                panic!("a listing")
            };
            assert!(leases.len() <= 7);
            names.extend(leases.iter().map(|seen| seen.label.name().to_string()));
            (cursor, pages) = (next, pages + 1);
        }
        names.sort_unstable();
        let expected: Vec<String> = (0..50).map(|number| format!("b/{number:02}")).collect();
        assert_eq!(names, expected);
        assert!(pages >= 7);
        let nowhere = "99999999999".parse().expect("a cursor");
        let nothing = Answer::Listed { leases: Vec::new(), next: None };
        assert_eq!(block_on(remote.list(nowhere, "", PageMax::leases(7))), nothing);
    }

    #[test]
    fn nobody_waits_for_a_node_that_is_gone() {
        let cell = TestCell::new(3);
        let (first, second) = (cell.node(1).remote(), cell.node(2).remote());
        take(&second, "x");
        let waits = first.acquire(name("x"), Holder::NONE, TTL, Duration::from_secs(60));
        cell.kill(1);
        assert_eq!(block_on(waits), Answer::Stopping);
        assert_eq!(block_on(first.inspect(name("x"))), Answer::Stopping);
        // That is not the same as nothing held.
        assert_eq!(block_on(first.list(Cursor::START, "", PageMax::leases(7))), Answer::Stopping);
    }
}
