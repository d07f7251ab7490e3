//! A node: the handle its users have, and how it starts and stops.

mod remote;
mod start;

use std::fmt;
use std::net::TcpListener;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use event_listener::Event;
use paxoslease_core::{Drift, Instant, Name};
use paxoslease_holder::transport::{TicketPool, Transport, subscribe};
use paxoslease_holder::{
    Acquire, AskError, Grant, LeaseInfo, ReleaseError, RenewError, Status, Watch, block_on,
    transport,
};
use paxoslease_wire::ShardId;

pub use remote::{Asking, Remote};
pub use start::StartError;
#[cfg(feature = "simulation")]
pub(crate) use start::command_sender;
#[cfg(any(test, feature = "simulation"))]
pub(crate) use start::{Run, make_driver};

use crate::board::{Board, join};
use crate::clock::Clock;
use crate::command::Command;
use crate::config::{Config, Settings, Tls};
use crate::front::{Filter, Service, Waiting};
use crate::request::{Answer, Request};
use crate::tls::{CurrentTls, TlsError};

/// A node of a cell: acceptor and proposer, or proposer only, on threads of its own.
///
/// Clones are handles to the same node. When the last handle and the last lease are dropped, the
/// node stops in the background; [`Self::shutdown`] does so and waits.
#[derive(Clone)]
pub struct Node {
    pub(crate) shared: Arc<Shared>,
}

/// Where a shard's commands go; gives them back when the shard is gone.
pub(crate) type CommandSender = Box<dyn Fn(Command) -> Result<(), Command> + Send + Sync>;

/// What handles, guards and futures of a node share.
pub(crate) struct Shared {
    pub(crate) settings: Settings,
    pub(crate) clock: Clock,
    /// By shard.
    pub(crate) senders: Vec<CommandSender>,
    pub(crate) default_holder: String,
    pub(crate) tickets: TicketPool,
    pub(crate) board: Arc<Board>,
    /// The callers on other threads that wait for an answer.
    pub(crate) waiting: Arc<Waiting>,
    pub(crate) tls: CurrentTls,
    pub(crate) stopped: Arc<Stopped>,
}

/// Whether everything of a node is over.
#[derive(Debug, Default)]
pub(crate) struct Stopped {
    done: Mutex<bool>,
    event: Event,
}

impl Stopped {
    pub(crate) fn set(&self) {
        *self.done.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.event.notify(usize::MAX);
    }

    fn is_set(&self) -> bool {
        *self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn wait(&self) {
        loop {
            let listener = self.event.listen();
            if self.is_set() {
                return;
            }
            listener.await;
        }
    }
}

impl Shared {
    pub(crate) fn new(
        settings: Settings,
        clock: Clock,
        senders: Vec<CommandSender>,
        default_holder: String,
        board: Arc<Board>,
    ) -> Self {
        Self {
            settings,
            clock,
            senders,
            default_holder,
            tickets: TicketPool::default(),
            board,
            waiting: Arc::default(),
            tls: CurrentTls::default(),
            stopped: Arc::default(),
        }
    }

    /// Sends a command to the shard a name belongs to.
    pub(crate) fn post(&self, name: Name<'_>, command: Command) -> Result<(), Command> {
        let shard = ShardId::of(name, self.settings.shards.get());
        (self.senders[usize::from(shard.index())])(command)
    }

    /// The node is gone: every caller that waits is told.
    #[cfg(feature = "simulation")]
    pub(crate) fn over(&self) {
        self.waiting.close();
        self.stopped.set();
    }

    pub(crate) fn stop(&self) {
        for send in &self.senders {
            // A shard that is gone has stopped.
            let _gone = send(Command::Stop);
        }
    }
}

impl Transport for Shared {
    fn ask(&self, name: Name<'_>, request: transport::Request) -> Result<(), transport::Request> {
        self.post(name, Command::Serve(request)).map_err(|refused| match refused {
            Command::Serve(request) => request,
            _ => unreachable!("a mailbox gives back what it was given"),
        })
    }

    fn clock(&self) -> &Clock {
        &self.clock
    }

    fn default_holder(&self) -> &str {
        &self.default_holder
    }

    fn tickets(&self) -> &TicketPool {
        &self.tickets
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Node {
    /// Starts a node: opens its data folder, listens for peers, begins to connect. Does not wait
    /// for the cell; see [`Self::ready`].
    ///
    /// # Errors
    /// When the configuration is not valid, the data folder cannot be used, or the address to
    /// listen on is taken. Then nothing runs.
    pub async fn start(config: Config) -> Result<Self, StartError> {
        start::start(config, None, None).await
    }

    /// As [`Self::start`], blocking this thread.
    ///
    /// # Errors
    /// As for [`Self::start`].
    pub fn start_blocking(config: Config) -> Result<Self, StartError> {
        block_on(Self::start(config))
    }

    /// As [`Self::start`], with a socket that listens already. For services that are handed their
    /// sockets, and for tests that let the system choose a port.
    ///
    /// # Errors
    /// As for [`Self::start`].
    pub async fn start_on(config: Config, listener: TcpListener) -> Result<Self, StartError> {
        start::start(config, Some(listener), None).await
    }

    /// As [`Self::start`], with a front-end for clients on the shards' threads; and with a socket
    /// that listens for peers already, if there is one. For daemons.
    ///
    /// # Errors
    /// As for [`Self::start`].
    pub async fn start_with(
        config: Config,
        peers: Option<TcpListener>,
        service: Service,
    ) -> Result<Self, StartError> {
        start::start(config, peers, Some(service)).await
    }

    /// Acquires a lease. Waits as long as another holder has it, or no majority of the cell votes,
    /// and logs for what it waits. Options come before `await`:
    /// `node.acquire("jobs/nightly", ttl).holder("me").wait(Duration::from_secs(5)).await`.
    ///
    /// Cancel-safe: dropping the future cancels the acquire.
    pub fn acquire<'a>(&'a self, name: &'a str, ttl: Duration) -> Acquire<'a> {
        Acquire::new(self.transport(), name, ttl, Duration::MAX)
    }

    /// Acquires a lease without waiting: [`AcquireError::Held`](crate::AcquireError::Held) names
    /// another holder.
    pub fn try_acquire<'a>(&'a self, name: &'a str, ttl: Duration) -> Acquire<'a> {
        Acquire::new(self.transport(), name, ttl, Duration::ZERO)
    }

    fn transport(&self) -> Arc<dyn Transport> {
        Arc::<Shared>::clone(&self.shared)
    }

    /// Renews a lease that has no guard here, by its fence.
    ///
    /// # Errors
    /// When the tenure is over, or no majority answers.
    pub async fn renew(&self, name: &str, fence: u64, ttl: Duration) -> Result<Grant, RenewError> {
        transport::renew(&*self.shared, name, fence, ttl).await
    }

    /// Makes a tenure durable, and sets how long it lasts from now on; [`Duration::MAX`] for ever.
    /// It may have a guard here, which gives up its belief beyond that end first. The grant may
    /// have a higher fence, which replaces the one before.
    ///
    /// # Errors
    /// When the tenure is over, the members do not keep it, or no majority answers. Unless it is
    /// over, the end before or the new one may be in force: rely on the shorter time from now on,
    /// prolong the lease only by this method, and end it by [`Self::release_durable`].
    pub async fn keep(&self, name: &str, fence: u64, lasts: Duration) -> Result<Grant, RenewError> {
        transport::keep(&*self.shared, name, fence, lasts).await
    }

    /// Releases a lease that has no guard here, by its fence.
    ///
    /// # Errors
    /// When the tenure was over, or no majority confirmed.
    pub async fn release(&self, name: &str, fence: u64) -> Result<(), ReleaseError> {
        transport::release(&*self.shared, name, fence, false).await
    }

    /// As [`Self::release`], of a tenure for which a durable acquire or [`Self::keep`] may have got
    /// no answer.
    ///
    /// # Errors
    /// As for [`Self::release`].
    pub async fn release_durable(&self, name: &str, fence: u64) -> Result<(), ReleaseError> {
        transport::release(&*self.shared, name, fence, true).await
    }

    /// Asks a majority who holds a name. A hint: only the holder knows that it holds.
    ///
    /// # Errors
    /// When no majority answers.
    pub async fn inspect(&self, name: &str) -> Result<Option<LeaseInfo>, AskError> {
        let name = Name::new(name).map_err(AskError::Name)?;
        match self.remote().ask(Request::Inspect { lease: name.into() }).await {
            Answer::Inspected(seen) => Ok(seen.map(|seen| (*seen).into())),
            answer => {
                let no_majority = self.status_shown().map(|status| status.no_majority());
                Err(answer.into_ask_error(no_majority.unwrap_or(AskError::Stopped)))
            }
        }
    }

    /// Hints about leases of names that begin with `prefix`, as this node happens to see them. A
    /// member sees what it votes on; a node that only proposes hears of what members grant to
    /// their own users.
    pub fn watch(&self, prefix: &str) -> Watch {
        self.watch_filtered(prefix, Filter::ALL)
    }

    /// As [`Self::watch`], of the names that `filter` shows. For daemons.
    pub fn watch_filtered(&self, prefix: &str, filter: Filter) -> Watch {
        let (subscription, watch) = subscribe(prefix, filter, None);
        for send in &self.shared.senders {
            let _gone = send(Command::Watch(subscription.clone()));
        }
        watch
    }

    /// How this node sees itself and its cell.
    ///
    /// # Errors
    /// When the node was shut down.
    pub async fn status(&self) -> Result<Status, AskError> {
        let (mut answers, mut parts) = (Vec::new(), Vec::new());
        for send in &self.shared.senders {
            let (reply, answer) = oneshot::channel();
            send(Command::Status(reply)).map_err(|_| AskError::Stopped)?;
            answers.push(answer);
        }
        for answer in answers {
            parts.push(answer.await.map_err(|_| AskError::Stopped)?);
        }
        Ok(self.shared.board.describe(join(&parts)))
    }

    /// As [`Self::status`], but asks no shard: what they showed last, half a second ago at most. So
    /// it costs them nothing, however often it is called. A node of which a shard has shown nothing
    /// for five seconds is not ready.
    ///
    /// # Errors
    /// When the node was shut down.
    pub fn status_shown(&self) -> Result<Status, AskError> {
        if self.shared.stopped.is_set() {
            return Err(AskError::Stopped);
        }
        Ok(self.shared.board.seen(self.shared.clock.now()))
    }

    /// Waits until this node is ready: it votes, if it is a member, and reaches a majority of
    /// members that vote. What a rolling restart waits for. An acquire needs no such wait, since it
    /// waits itself. Cancel-safe.
    ///
    /// # Errors
    /// When the node was shut down.
    pub async fn ready(&self) -> Result<(), AskError> {
        for send in &self.shared.senders {
            let (reply, answer) = oneshot::channel();
            send(Command::Ready(reply)).map_err(|_| AskError::Stopped)?;
            answer.await.map_err(|_| AskError::Stopped)?;
        }
        Ok(())
    }

    /// Reads certificates and keys again, for connections to come; those that stand go on as they
    /// are. The files may be others than before. A node without TLS goes on without.
    ///
    /// # Errors
    /// When a file cannot be used. Then nothing is changed.
    pub fn reload_tls(&self, files: &Tls) -> Result<(), TlsError> {
        self.shared.tls.reload(files, self.shared.settings.identity())
    }

    /// How to answer clients in TLS as of now, on sockets that are not this node's. For daemons.
    #[must_use]
    pub fn tls_for_clients(&self) -> Option<Arc<rustls::ServerConfig>> {
        self.shared.tls.for_clients()
    }

    /// Which node this is.
    #[must_use]
    pub fn id(&self) -> u16 {
        self.shared.settings.node.get()
    }

    /// The clock that this node counts leases by.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.shared.clock.now()
    }

    /// How far clocks may be off in this cell, also those of holders elsewhere.
    #[must_use]
    pub fn drift(&self) -> Drift {
        self.shared.settings.cell.drift()
    }

    /// Hands over and stops: releases the leases of its guards (which are lost then), refuses
    /// the requests that wait, and writes the snapshot that lets the next start vote at once.
    /// Returns when all of that is done; without a majority to confirm the releases, half a second
    /// after the last sign of one. Cancel-safe: the stop goes on.
    pub async fn shutdown(&self) {
        self.shared.stop();
        self.shared.stopped.wait().await;
    }

    /// As [`Self::shutdown`], blocking this thread.
    pub fn shutdown_blocking(&self) {
        block_on(self.shutdown());
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let settings = &self.shared.settings;
        write!(f, "Node({} of {:?})", settings.node, settings.config.cell)
    }
}
