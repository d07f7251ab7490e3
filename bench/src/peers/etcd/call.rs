//! Calls to etcd and streams of questions, over channels that are one connection each.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures_util::stream;
use prost::Message;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::task::spawn_local;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};
use tonic_prost::ProstCodec;

/// The shortest timeout of a call; the longest is twice that. etcd itself needs seven seconds to
/// give up a request that it forwarded to a dead leader.
const ANSWER_MAX: Duration = Duration::from_millis(500);
/// This many consecutive calls have different timeouts, so that calls that were lost together are
/// repeated one after the other, and one of them finds the new leader soon.
const STAGGERED: u32 = 16;

/// A channel that connects on first use.
pub(super) fn channel(port: u16) -> Result<Channel, tonic::transport::Error> {
    Ok(Endpoint::from_shared(format!("http://127.0.0.1:{port}"))?.connect_lazy())
}

pub(super) async fn call<Q, A>(
    channel: &Channel,
    path: &'static str,
    request: Q,
) -> Result<A, Status>
where
    Q: Message + Send + 'static,
    A: Message + Default + Send + 'static,
{
    static CALLS: AtomicU32 = AtomicU32::new(0);
    let mut grpc = Grpc::new(channel.clone());
    let answer = async {
        grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
        let path = PathAndQuery::from_static(path);
        grpc.unary(Request::new(request), path, ProstCodec::<Q, A>::default()).await
    };
    let turn = CALLS.fetch_add(1, Ordering::Relaxed) % STAGGERED;
    let answer = tokio::time::timeout(ANSWER_MAX + ANSWER_MAX / STAGGERED * turn, answer).await;
    Ok(answer.map_err(|_| Status::deadline_exceeded("no answer in time"))??.into_inner())
}

pub(super) trait Answer: Message + Default + Send + 'static {
    /// The number of the request that this answers, if it is final.
    fn settles(&self) -> Option<i64>;
}

/// The waiting tasks by request number, oldest first.
type Waiting<A> = Rc<RefCell<BTreeMap<i64, VecDeque<oneshot::Sender<A>>>>>;

/// A stream of requests, shared by all clients of a channel.
pub(super) struct Stream<Q, A> {
    requests: UnboundedSender<Q>,
    waiting: Waiting<A>,
}

impl<Q: Message + Send + 'static, A: Answer> Stream<Q, A> {
    pub(super) fn open(channel: &Channel, path: &'static str) -> Self {
        let (requests, receiver) = unbounded_channel();
        let waiting = Waiting::default();
        let (channel, woken) = (channel.clone(), Rc::clone(&waiting));
        spawn_local(async move {
            let read = Self::read(&channel, path, receiver, &woken).await;
            // Dropping the senders wakes the waiting tasks.
            woken.borrow_mut().clear();
            read
        });
        Self { requests, waiting }
    }

    async fn read(
        channel: &Channel,
        path: &'static str,
        requests: UnboundedReceiver<Q>,
        waiting: &Waiting<A>,
    ) -> Result<(), Status> {
        let mut grpc = Grpc::new(channel.clone());
        grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
        let requests = stream::unfold(requests, |mut requests| async {
            requests.recv().await.map(|request| (request, requests))
        });
        let codec = ProstCodec::<Q, A>::default();
        // etcd sends nothing before the first request.
        let opened = grpc.streaming(Request::new(requests), PathAndQuery::from_static(path), codec);
        let mut answers = opened.await?.into_inner();
        while let Some(answer) = answers.message().await? {
            let answer: A = answer;
            let waiter = answer.settles().and_then(|id| {
                let mut waiting = waiting.borrow_mut();
                let waiter = waiting.get_mut(&id)?.pop_front();
                if waiting[&id].is_empty() {
                    waiting.remove(&id);
                }
                waiter
            });
            // A task that no longer waits has reported a failure.
            let _gone = waiter.map(|waiter| waiter.send(answer));
        }
        Ok(())
    }

    /// Sends a request without an answer.
    pub(super) fn tell(&self, request: Q) {
        let _gone = self.requests.send(request);
    }

    /// Sends the request of this number and waits for its answer.
    pub(super) async fn ask(&self, id: i64, request: Q) -> Result<A, Status> {
        let (sender, answer) = oneshot::channel();
        self.waiting.borrow_mut().entry(id).or_default().push_back(sender);
        self.tell(request);
        answer.await.map_err(|_| Status::unavailable("the stream is gone"))
    }
}
