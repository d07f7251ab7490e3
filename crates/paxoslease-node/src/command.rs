//! What a shard can be asked from outside its thread.

use paxoslease_core::{Label, Record};
use paxoslease_holder::transport::{Request, Subscription};
use paxoslease_holder::{AskError, LeaseInfo};

use crate::front::Letter;
use crate::status::ShardStatus;

pub(crate) enum Command {
    /// From a handle or a guard of this process.
    Request(Request),
    Inspect {
        label: Label,
        reply: oneshot::Sender<Result<Option<LeaseInfo>, AskError>>,
    },
    Watch(Subscription),
    /// Asked from another thread for a holder elsewhere.
    Letter(Letter),
    Status {
        reply: oneshot::Sender<ShardStatus>,
    },
    /// Answered once a majority can be reached.
    Ready {
        reply: oneshot::Sender<()>,
    },
    RecordWritten(Record),
    /// Hand over what is held, then leave.
    Stop,
}
