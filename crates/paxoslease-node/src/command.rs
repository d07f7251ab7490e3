//! What a shard can be asked from outside its thread.

use std::sync::Arc;

use paxoslease_core::{Configuration, Record};
use paxoslease_holder::transport::{self, Subscription};

use crate::board::ShardStatus;
use crate::driver::ShardView;
use crate::request::{ReplyTo, Request};
use crate::stable::{Asked, DurableNews};

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
    /// The changes of registers up to this one are durable.
    DurableWritten(u64),
    /// Whether the disk has room for more durable leases (K14).
    DurableRoom(bool),
    /// The configuration and the vote that the first shard asked for are durable.
    ConfigurationWritten,
    /// C2: change over to this configuration, which is durable.
    Adopt(Arc<Configuration>),
    /// For the first shard: this shard has changed over, or its registers have moved.
    ShardChanged(u16, ShardView),
    /// Hand over what is held, then leave.
    Stop,
}

impl Command {
    /// The answer to a write, and the shard that it is for.
    pub(crate) fn written(asked: Asked) -> (usize, Self) {
        match asked {
            Asked::Ceilings(shard, record) => (shard, Self::RecordWritten(record)),
            Asked::Configuration => (0, Self::ConfigurationWritten),
        }
    }

    /// What is new about the file of durable leases, and which of that many shards are told.
    pub(crate) fn news(news: DurableNews, shards: usize) -> impl Iterator<Item = (usize, Self)> {
        let told = match news {
            DurableNews::Written { shard, .. } => usize::from(shard)..usize::from(shard) + 1,
            DurableNews::Room(_) => 0..shards,
        };
        told.map(move |shard| match news {
            DurableNews::Written { sequence, .. } => (shard, Self::DurableWritten(sequence)),
            DurableNews::Room(has_room) => (shard, Self::DurableRoom(has_room)),
        })
    }
}
