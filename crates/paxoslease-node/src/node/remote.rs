//! Requests for holders elsewhere, from threads that are not the node's own: what an HTTP server
//! needs. Futures run on any executor; dropping one withdraws its request.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use paxoslease_core::{Holder, Label};

use super::{Node, Shared};
use crate::command::Command;
use crate::request::{Answer, CowLabel, ReplyTo, Request};

/// Takes leases for holders elsewhere; from [`Node::remote`].
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

impl Remote {
    /// Passes a request to the shard that serves it. Dropping the future of an acquire withdraws
    /// the acquire.
    pub fn ask(&self, request: Request<'_>) -> Asking {
        let (reply, answer) = oneshot::channel();
        let id = self.shared.waiting.add(reply);
        let acquires = match &request {
            Request::Acquire { lease, .. } | Request::Try { lease, .. } => {
                Some(Label::new(lease.name(), Holder::NONE))
            }
            _ => None,
        };
        let shard = request.shard(self.shared.settings.shards.get());
        let command = Command::Request(remote(id), request.into_owned());
        let refused = match self.shared.senders.get(usize::from(shard)) {
            Some(send) => send(command).is_err().then_some(Answer::Stopping),
            None => Some(Answer::END_OF_LIST),
        };
        if let Some(refused) = refused {
            self.shared.waiting.answer(id, refused);
        }
        Asking { shared: Arc::clone(&self.shared), id, answer, acquires }
    }
}

const fn remote(id: u64) -> ReplyTo {
    ReplyTo { origin: ReplyTo::REMOTE, id }
}

/// The future of an [`Answer`].
#[must_use = "futures do nothing unless polled"]
pub struct Asking {
    shared: Arc<Shared>,
    id: u64,
    answer: oneshot::Receiver<Answer>,
    /// The name of an acquire, which has to be withdrawn when this is dropped.
    acquires: Option<Label>,
}

impl std::fmt::Debug for Asking {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Asking({})", self.id)
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
        if self.shared.waiting.leave(self.id, &label) {
            let request = Request::Abandon { lease: CowLabel::Owned(label.clone()) };
            // A shard that has ended has nothing to withdraw.
            let _gone = self.shared.post(label.name(), Command::Request(remote(self.id), request));
        } else if let Ok(Answer::Granted { tenure, .. }) = self.answer.try_recv() {
            // It was granted, but never polled.
            let remote = Remote { shared: Arc::clone(&self.shared) };
            let lease = label.name().into();
            drop(remote.ask(Request::Release { lease, fence: tenure.fence() }));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::TestCell;
    use crate::request::{Cursor, PageMax};
    use paxoslease_core::Name;
    use paxoslease_holder::{Filter, block_on};

    const TTL: Duration = Duration::from_secs(10);

    fn name(text: &str) -> Name<'_> {
        Name::new(text).expect("a name")
    }

    fn acquire(remote: &Remote, what: &str, holder: &str, wait: Duration) -> Asking {
        let lease = (name(what), Holder::new(holder).expect("a holder")).into();
        remote.ask(Request::Acquire { lease, ttl: TTL, wait })
    }

    fn take(remote: &Remote, what: &str) -> u64 {
        let answer = block_on(acquire(remote, what, "me", Duration::ZERO));
        let Answer::Granted { tenure, ttl, waited, .. } = answer else { panic!("{answer:?}") };
        assert_eq!((ttl.as_duration(), waited), (TTL, Duration::ZERO));
        tenure.fence()
    }

    fn renew(remote: &Remote, what: &str, fence: u64) -> Answer {
        block_on(remote.ask(Request::Renew { lease: name(what).into(), fence, ttl: TTL }))
    }

    fn release(remote: &Remote, what: &str, fence: u64) -> Answer {
        block_on(remote.ask(Request::Release { lease: name(what).into(), fence }))
    }

    fn inspect(remote: &Remote, what: &str) -> Answer {
        block_on(remote.ask(Request::Inspect { lease: name(what).into() }))
    }

    fn list(remote: &Remote, cursor: Cursor, prefix: &str) -> Answer {
        let (prefix, max) = (prefix.into(), PageMax::leases(7));
        block_on(remote.ask(Request::List { cursor, prefix, filter: Filter::ALL, max }))
    }

    #[test]
    fn a_tenure_is_renewed_and_released_through_any_node() {
        let cell = TestCell::new(3);
        let remotes = [1, 2, 3].map(|id| cell.node(id).remote());
        let fence = take(&remotes[0], "x");
        let renewed = renew(&remotes[1], "x", fence);
        assert!(matches!(renewed, Answer::Renewed { ttl, .. } if ttl.as_duration() == TTL));
        let Answer::Held(by) = block_on(acquire(&remotes[2], "x", "", Duration::ZERO)) else {
            panic!("it is held")
        };
        assert_eq!((by.tenure.fence(), by.label.holder().as_str()), (fence, "me"));
        let Answer::Inspected(Some(seen)) = inspect(&remotes[2], "x") else { panic!("it is held") };
        assert_eq!(seen.tenure.fence(), fence);
        let released = Answer::Released { held: true, confirmed: true };
        assert_eq!(release(&remotes[2], "x", fence), released);
        assert_eq!(renew(&remotes[0], "x", fence), Answer::NotHeld);
        assert!(take(&remotes[1], "x") > fence);
    }

    #[test]
    fn fences_that_no_tenure_has_are_not_held() {
        let cell = TestCell::new(1);
        let remote = cell.node(1).remote();
        for fence in [0, 1, u64::MAX] {
            assert_eq!(renew(&remote, "x", fence), Answer::NotHeld);
            let never = Answer::Released { held: false, confirmed: true };
            assert_eq!(release(&remote, "x", fence), never);
        }
    }

    #[test]
    fn a_caller_that_stops_waiting_leaves_the_queue() {
        let cell = TestCell::new(3);
        let remote = cell.node(1).remote();
        let fence = take(&remote, "x");
        let waits = acquire(&remote, "x", "", Duration::from_secs(60));
        // The shard serves requests in their order, so its answer to this one comes later.
        inspect(&remote, "x");
        assert_eq!(block_on(cell.node(1).status()).expect("it runs").waiters, 1);
        drop(waits);
        inspect(&remote, "x");
        assert_eq!(block_on(cell.node(1).status()).expect("it runs").waiters, 0);
        release(&remote, "x", fence);
        assert!(take(&cell.node(2).remote(), "x") > fence, "no other caller took it meanwhile");
    }

    #[test]
    fn a_grant_that_was_never_polled_is_released() {
        let cell = TestCell::new(3);
        let remote = cell.node(1).remote();
        let unseen = acquire(&remote, "x", "", Duration::ZERO);
        take(&remote, "y");
        inspect(&remote, "x");
        drop(unseen);
        inspect(&remote, "x");
        take(&cell.node(2).remote(), "x");
    }

    #[test]
    fn a_list_has_all_leases_a_page_at_a_time() {
        let cell = TestCell::new(3);
        let remote = cell.node(2).remote();
        for number in 0..50 {
            take(&remote, &format!("a/{number:02}"));
            take(&remote, &format!("b/{number:02}"));
        }
        let (mut names, mut cursor, mut pages) = (Vec::new(), Some(Cursor::START), 0);
        while let Some(at) = cursor {
            let Answer::Listed { leases, next } = list(&remote, at, "b/") else {
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
        assert_eq!(list(&remote, nowhere, ""), nothing);
    }

    #[test]
    fn no_caller_waits_for_a_node_that_is_gone() {
        let cell = TestCell::new(3);
        let (first, second) = (cell.node(1).remote(), cell.node(2).remote());
        take(&second, "x");
        let waits = acquire(&first, "x", "", Duration::from_secs(60));
        cell.kill(1);
        assert_eq!(block_on(waits), Answer::Stopping);
        assert_eq!(inspect(&first, "x"), Answer::Stopping);
        // This must not look like a list without leases.
        assert_eq!(list(&first, Cursor::START, ""), Answer::Stopping);
    }
}
