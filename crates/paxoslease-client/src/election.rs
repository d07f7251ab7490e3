//! Leader election: a lease whose holder text is the leader's address.
//!
//! The leader knows by its [`LeaseGuard`] that it leads. All others have hints.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use async_channel::Receiver;
use futures_core::Stream;
use paxoslease_holder::{AcquireError, AskError, LeaseGuard, LeaseInfo, block_on};

use crate::client::Client;
use crate::command::Command;

/// The default ttl of a leadership.
const TTL: Duration = Duration::from_secs(15);

/// An election among all candidates that campaign under the same name.
///
/// ```no_run
/// # extern crate paxoslease_client as paxoslease;
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use paxoslease::{Client, Election};
///
/// let client = Client::from_env()?;
/// let election = Election::new(&client, "scheduler").holder("10.0.0.7:9000");
/// let lease = election.campaign().await?; // Waits for its turn.
/// println!("leader with fence {}", lease.fence());
/// lease.lost().await; // Or lead until asked to stop, and then:
/// lease.release().await?; // the next candidate takes over at once.
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "an election does nothing until its methods are called"]
pub struct Election {
    client: Client,
    name: String,
    holder: Option<String>,
    ttl: Duration,
}

/// Who leads: a hint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Leader {
    /// The leader's holder text: by convention, where to reach it.
    pub holder: String,
    /// The fence of its tenure.
    pub fence: u64,
}

/// What an observer of an election is told: a hint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LeaderChange {
    /// This candidate leads.
    Elected(Leader),
    /// No candidate leads.
    Vacant,
}

impl From<LeaseInfo> for Leader {
    fn from(seen: LeaseInfo) -> Self {
        Self { holder: seen.holder, fence: seen.fence }
    }
}

impl Election {
    /// An election by this name.
    pub fn new(client: &Client, name: impl Into<String>) -> Self {
        Self { client: client.clone(), name: name.into(), holder: None, ttl: TTL }
    }

    /// The holder text of this candidate: by convention, where to reach it. `user@host:pid` by
    /// default.
    pub fn holder(mut self, holder: impl Into<String>) -> Self {
        self.holder = Some(holder.into());
        self
    }

    /// How long it takes until another candidate can lead when the leader dies; 15 s by default.
    pub const fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// Waits until this candidate leads, and returns the lease of the leader. Releasing or dropping
    /// the lease resigns. Cancel-safe: dropping the future withdraws.
    ///
    /// # Errors
    /// When no node answers at all, or the name, holder text or ttl is out of bounds.
    pub async fn campaign(&self) -> Result<LeaseGuard, AcquireError> {
        let mut acquire = self.client.acquire(&self.name, self.ttl);
        if let Some(holder) = &self.holder {
            acquire = acquire.holder(holder);
        }
        acquire.await
    }

    /// Like [`Self::campaign`], but blocks this thread.
    pub fn campaign_blocking(&self) -> Result<LeaseGuard, AcquireError> {
        block_on(self.campaign())
    }

    /// Who leads, as a majority reported it a moment ago: a hint.
    ///
    /// # Errors
    /// When no node answers.
    pub async fn leader(&self) -> Result<Option<Leader>, AskError> {
        Ok(self.client.get(&self.name).await?.map(Leader::from))
    }

    /// Like [`Self::leader`], but blocks this thread.
    pub fn leader_blocking(&self) -> Result<Option<Leader>, AskError> {
        block_on(self.leader())
    }

    /// Follows who leads. Hints, of which the observer keeps the latest only.
    pub fn observe(&self) -> Observer {
        // One place: a new change replaces one that the observer has not taken.
        let (changes, seen) = async_channel::bounded(1);
        let name = self.name.as_str().into();
        // A client that was shut down ends the stream at once.
        let _stopped = self.client.shared.post(Command::Observe { name, changes });
        Observer { seen: Box::pin(seen), _client: self.client.clone() }
    }
}

/// Who leads, as it changes, from [`Election::observe`].
#[derive(Debug)]
#[must_use = "dropping an observer ends it"]
pub struct Observer {
    seen: Pin<Box<Receiver<LeaderChange>>>,
    /// The client runs as long as the observer exists.
    _client: Client,
}

impl Observer {
    /// Waits for a change; `None` once the client is shut down, or no endpoint trusts it. The first
    /// answer comes as soon as a node has replied. Only the latest change counts: the observer
    /// skips older ones. Cancel-safe.
    pub async fn next(&mut self) -> Option<LeaderChange> {
        self.seen.recv().await.ok()
    }

    /// Like [`Self::next`], but blocks this thread.
    pub fn next_blocking(&mut self) -> Option<LeaderChange> {
        block_on(self.next())
    }
}

/// The same as [`Observer::next`].
impl Stream for Observer {
    type Item = LeaderChange;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.seen.as_mut().poll_next(context)
    }
}
