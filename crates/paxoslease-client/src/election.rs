//! Electing a leader: a lease whose holder text is the leader's address.
//!
//! The leader knows that it leads by its [`LeaseGuard`]; everybody else has hints.

use std::time::Duration;

use paxoslease_holder::block_on;
use tokio::sync::watch;

use crate::client::Client;
use crate::command::Command;
use paxoslease_holder::LeaseGuard;
use paxoslease_holder::LeaseInfo;
use paxoslease_holder::{AcquireError, AskError, ReleaseError};

/// How long a leadership lasts unless it is renewed, if nothing else is said.
const TTL: Duration = Duration::from_secs(15);

/// An election among everybody who campaigns under the same name.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use paxoslease_client::{Client, Election};
///
/// let client = Client::from_env()?;
/// let election = Election::new(&client, "scheduler").holder("10.0.0.7:9000");
/// let leadership = election.campaign().await?; // Waits for its turn.
/// println!("leader with fence {}", leadership.guard().fence());
/// leadership.guard().lost().await; // Or lead until asked to stop, and then:
/// leadership.resign().await?; // the next candidate takes over at once.
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "an election does nothing until somebody campaigns or looks"]
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

    /// What others see of this candidate once it leads, by convention where to reach it;
    /// `user@host:pid` unless told otherwise.
    pub fn holder(mut self, holder: impl Into<String>) -> Self {
        self.holder = Some(holder.into());
        self
    }

    /// How long it takes until somebody else can lead when the leader dies; 15 s unless told
    /// otherwise.
    pub const fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// Waits until this candidate leads. Cancel-safe: dropping the future withdraws.
    ///
    /// # Errors
    /// When nobody answers at all, or something is out of bounds.
    pub async fn campaign(&self) -> Result<Leadership, AcquireError> {
        let wish = self.client.acquire(&self.name, self.ttl);
        let guard = match &self.holder {
            Some(holder) => wish.holder(holder),
            None => wish,
        };
        Ok(Leadership { guard: guard.await? })
    }

    /// As [`Self::campaign`], blocking this thread.
    ///
    /// # Errors
    /// As for [`Self::campaign`].
    pub fn campaign_blocking(&self) -> Result<Leadership, AcquireError> {
        block_on(self.campaign())
    }

    /// Who leads, as a majority said a moment ago: a hint.
    ///
    /// # Errors
    /// When nobody answers.
    pub async fn leader(&self) -> Result<Option<Leader>, AskError> {
        Ok(self.client.get(&self.name).await?.map(Leader::from))
    }

    /// As [`Self::leader`], blocking this thread.
    ///
    /// # Errors
    /// As for [`Self::leader`].
    pub fn leader_blocking(&self) -> Result<Option<Leader>, AskError> {
        block_on(self.leader())
    }

    /// Follows who leads: hints, the latest only.
    pub fn observe(&self) -> Observer {
        let (leader, seen) = watch::channel(None);
        let name = self.name.as_str().into();
        // A client that was shut down ends the stream at once.
        let _stopped = self.client.shared.post(Command::Observe { name, leader });
        Observer { seen, _client: self.client.clone() }
    }
}

/// Leading, from [`Election::campaign`]. Dropping it resigns in the background.
#[derive(Debug)]
#[must_use = "a leadership that is dropped is given up at once"]
pub struct Leadership {
    guard: LeaseGuard,
}

impl Leadership {
    /// The lease behind it: whether it is held, its fence, and when it is lost.
    pub const fn guard(&self) -> &LeaseGuard {
        &self.guard
    }

    /// Stops leading, and hands over: the next candidate leads at once.
    ///
    /// # Errors
    /// As for [`LeaseGuard::release`]. It does not lead any more in any case.
    pub async fn resign(self) -> Result<(), ReleaseError> {
        self.guard.release().await
    }

    /// As [`Self::resign`], blocking this thread.
    ///
    /// # Errors
    /// As for [`Self::resign`].
    pub fn resign_blocking(self) -> Result<(), ReleaseError> {
        block_on(self.resign())
    }
}

/// Who leads, as it changes, from [`Election::observe`].
#[derive(Debug)]
#[must_use = "an observer that is dropped sees nothing"]
pub struct Observer {
    seen: watch::Receiver<Option<Leader>>,
    /// A client goes on as long as somebody observes.
    _client: Client,
}

impl Observer {
    /// Waits for a change and says who leads now, if anybody is known to; `None` once the client
    /// is shut down, or no endpoint trusts it. The first answer comes as soon as a node was asked.
    /// Changes nobody waited for are skipped: it is always the latest. Cancel-safe.
    pub async fn next(&mut self) -> Option<Option<Leader>> {
        self.seen.changed().await.ok()?;
        Some(self.seen.borrow_and_update().clone())
    }

    /// As [`Self::next`], blocking this thread.
    pub fn next_blocking(&mut self) -> Option<Option<Leader>> {
        block_on(self.next())
    }
}
