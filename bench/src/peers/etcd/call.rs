//! Calls to etcd, over channels that are one connection each.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures_util::stream;
use prost::Message;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status, Streaming};
use tonic_prost::ProstCodec;

/// How long an answer may take at least, and up to twice as long: less than the seven seconds
/// after which etcd itself gives up what it had passed to a leader that died.
const ANSWER_MAX: Duration = Duration::from_millis(500);
/// Calls that were lost together come again one after the other, so that one of them finds the
/// new leader soon: every one of so many waits a little longer than the one before.
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

/// Questions that are sent as they come, on a stream.
pub(super) type Questions<Q> = UnboundedSender<Q>;

/// Opens a stream of questions. The answers are to be awaited by [`answers`].
pub(super) fn questions<Q>() -> (Questions<Q>, UnboundedReceiver<Q>) {
    unbounded_channel()
}

/// The answers to a stream of questions; etcd says nothing before it was asked something.
pub(super) async fn answers<Q, A>(
    channel: &Channel,
    path: &'static str,
    questions: UnboundedReceiver<Q>,
) -> Result<Streaming<A>, Status>
where
    Q: Message + Send + 'static,
    A: Message + Default + Send + 'static,
{
    let mut grpc = Grpc::new(channel.clone());
    grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
    let questions = stream::unfold(questions, |mut questions| async {
        questions.recv().await.map(|question| (question, questions))
    });
    let path = PathAndQuery::from_static(path);
    let codec = ProstCodec::<Q, A>::default();
    Ok(grpc.streaming(Request::new(questions), path, codec).await?.into_inner())
}
