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
            Request::Acquire { lease, lasts, .. } => {
                let label = Label::new(lease.name(), Holder::NONE);
                Some(Asked { label, is_durable: lasts.is_some() })
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
    /// An acquire has to be withdrawn when this is dropped.
    acquires: Option<Asked>,
}

/// What was asked for.
struct Asked {
    label: Label,
    is_durable: bool,
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
        let Some(Asked { label, is_durable }) = self.acquires.take() else { return };
        if self.shared.waiting.leave(self.id, &label) {
            let request = Request::Abandon { lease: CowLabel::Owned(label.clone()) };
            // A shard that has ended has nothing to withdraw.
            let _gone = self.shared.post(label.name(), Command::Request(remote(self.id), request));
        } else if let Ok(answer) = self.answer.try_recv()
            && let Answer::Granted { tenure, .. } = answer
        {
            // It was granted, but never polled.
            let remote = Remote { shared: Arc::clone(&self.shared) };
            let label = answer.granted_label(&label).unwrap_or(label);
            let lease = label.name().into();
            let fence = tenure.fence();
            drop(remote.ask(Request::Release { lease, fence, is_durable }));
        }
    }
}
