//! What a shard can be asked from outside its thread.

use std::sync::Arc;
use std::time::Duration;

use paxoslease_core::{Label, Record};

use crate::error::{AcquireError, AskError, ReleaseError};
use crate::front::Letter;
use crate::status::ShardStatus;
use crate::ticket::{Stage, Ticket};
use crate::watch::{Sighting, Subscription};

pub(crate) enum Command {
    /// Answered in the ticket.
    Acquire {
        ticket: Arc<Ticket>,
        label: Label,
        ttl: Duration,
        wait: Duration,
    },
    /// The caller of an acquire left.
    Abandon {
        ticket: Arc<Ticket>,
    },
    /// The holder dropped its belief. Answered in the ticket.
    Release {
        ticket: Arc<Ticket>,
    },
    Inspect {
        label: Label,
        reply: oneshot::Sender<Result<Option<Sighting>, AskError>>,
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

impl Command {
    /// Tells whoever waits that the shard is gone.
    pub(crate) fn refuse(self) {
        let (ticket, stage) = match self {
            Self::Acquire { ticket, .. } => (ticket, Stage::Refused(AcquireError::Stopped)),
            Self::Release { ticket } => (ticket, Stage::Released(Err(ReleaseError::Stopped))),
            // The other end of a dropped reply or subscription notices by itself; letters are
            // answered when the whole node has stopped.
            Self::Abandon { .. }
            | Self::Inspect { .. }
            | Self::Watch(_)
            | Self::Letter(_)
            | Self::Status { .. }
            | Self::Ready { .. }
            | Self::RecordWritten(_)
            | Self::Stop => return,
        };
        ticket.settle(stage);
    }
}
