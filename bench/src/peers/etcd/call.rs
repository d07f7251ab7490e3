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

/// How long an answer may take at least, and up to twice as long: less than the seven seconds
/// after which etcd itself gives up what it had passed to a leader that died.
const ANSWER_MAX: Duration = Duration::from_millis(500);
/// Calls that were lost together come again one after the other, so that one of them finds the
/// new leader soon: of this many calls, each waits a little longer than the one before.
const STAGGERED: u32 = 16;

/// A connection to this port, once it is used.
pub(super) fn channel(port: u16) -> Result<Channel, tonic::transport::Error> {
    Ok(Endpoint::from_shared(format!("http://127.0.0.1:{port}"))?.connect_lazy())
}

/// One question, one answer.
pub(super) async fn call<Q, A>(
    channel: &Channel,
    path: &'static str,
    question: Q,
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
        grpc.unary(Request::new(question), path, ProstCodec::<Q, A>::default()).await
    };
    let turn = CALLS.fetch_add(1, Ordering::Relaxed) % STAGGERED;
    let answer = tokio::time::timeout(ANSWER_MAX + ANSWER_MAX / STAGGERED * turn, answer).await;
    Ok(answer.map_err(|_| Status::deadline_exceeded("no answer in time"))??.into_inner())
}

/// An answer on a stream.
pub(super) trait Answer: Message + Default + Send + 'static {
    /// The number of the question that this answer settles.
    fn settles(&self) -> Option<i64>;
}

/// By the number of the question, the tasks that wait for an answer, in the order they asked.
type Waiting<A> = Rc<RefCell<BTreeMap<i64, VecDeque<oneshot::Sender<A>>>>>;

/// A stream of questions, for all clients of a channel.
pub(super) struct Stream<Q, A> {
    questions: UnboundedSender<Q>,
    waiting: Waiting<A>,
}

impl<Q: Message + Send + 'static, A: Answer> Stream<Q, A> {
    pub(super) fn open(channel: &Channel, path: &'static str) -> Self {
        let (questions, receiver) = unbounded_channel();
        let waiting = Waiting::default();
        let (channel, woken) = (channel.clone(), Rc::clone(&waiting));
        spawn_local(async move {
            let read = Self::read(&channel, path, receiver, &woken).await;
            // Dropping the senders tells those who wait.
            woken.borrow_mut().clear();
            read
        });
        Self { questions, waiting }
    }

    async fn read(
        channel: &Channel,
        path: &'static str,
        questions: UnboundedReceiver<Q>,
        waiting: &Waiting<A>,
    ) -> Result<(), Status> {
        let mut grpc = Grpc::new(channel.clone());
        grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
        let questions = stream::unfold(questions, |mut questions| async {
            questions.recv().await.map(|question| (question, questions))
        });
        let codec = ProstCodec::<Q, A>::default();
        // etcd says nothing before it was asked something.
        let opened =
            grpc.streaming(Request::new(questions), PathAndQuery::from_static(path), codec);
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
            // A task that no longer waits has failed and said so.
            let _gone = waiter.map(|waiter| waiter.send(answer));
        }
        Ok(())
    }

    /// Sends a question that has no answer.
    pub(super) fn tell(&self, question: Q) {
        let _gone = self.questions.send(question);
    }

    /// Asks the question of this number and waits for its answer.
    pub(super) async fn ask(&self, id: i64, question: Q) -> Result<A, Status> {
        let (sender, answer) = oneshot::channel();
        self.waiting.borrow_mut().entry(id).or_default().push_back(sender);
        self.tell(question);
        answer.await.map_err(|_| Status::unavailable("the stream is gone"))
    }
}
