//! What a shard can be asked from outside its thread.

use paxoslease_core::Record;
use paxoslease_holder::transport::{self, Subscription};

use crate::board::ShardStatus;
use crate::request::{ReplyTo, Request};

pub(crate) enum Command {
    /// A request of another thread, for a holder elsewhere.
    Request(ReplyTo, Request<'static>),
    /// A request of a handle or a guard of this process.
    Serve(transport::Request),
    Watch(Subscription),
    Status(oneshot::Sender<ShardStatus>),
    /// Answered once a majority can be reached.
    Ready(oneshot::Sender<()>),
    RecordWritten(Record),
    /// Hand over what is held, then leave.
    Stop,
}
