//! The handle of a client: how it starts, what it can do, how it stops.

use std::fmt;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use paxoslease_clock::Clock;
use paxoslease_core::{Holder, Label, Name, Tenure};
use paxoslease_holder::transport::{self, Request, TicketPool, Transport, subscribe};
use paxoslease_holder::{
    Acquire, AskError, Filter, Grant, LeaseInfo, MembersError, MembersPlan, MembersRequest,
    ReleaseError, RenewError, Watch, block_on,
};
use tokio::sync::mpsc::{self, UnboundedSender};

use crate::builder::{self, Builder};
use crate::command::{Command, Query, Release, ReleaseReply, Reply};
use crate::driver;
use crate::error::StartError;
use crate::list::List;
use crate::status::NodeStatus;

/// The environment variable [`Client::from_env`] reads.
const ENDPOINTS_VARIABLE: &str = "PAXOSLEASE_ENDPOINTS";

/// A client of a cell, on a thread of its own.
///
/// Clones are handles to the same client. When the last handle, guard and watch is dropped, the
/// thread releases what is left and ends. [`Self::shutdown`] does the same and waits for it, as a
/// program should before it exits.
#[derive(Clone)]
pub struct Client {
    pub(crate) shared: Arc<Shared>,
}

/// What handles, guards and futures of a client share.
pub(crate) struct Shared {
    pub(crate) clock: Clock,
    pub(crate) default_holder: String,
    endpoints: Vec<String>,
    commands: UnboundedSender<Command>,
    tickets: TicketPool,
}

impl Shared {
    pub(crate) fn new(
        clock: Clock,
        endpoints: Vec<String>,
        commands: UnboundedSender<Command>,
    ) -> Self {
        let (default_holder, tickets) = (transport::default_holder(), TicketPool::default());
        Self { clock, default_holder, endpoints, commands, tickets }
    }

    /// Sends a command to the client's thread; gives it back when the thread is gone.
    pub(crate) fn post(&self, command: Command) -> Result<(), Command> {
        self.commands.send(command).map_err(|error| error.0)
    }

    /// Sends a command and waits for the reply.
    pub(crate) async fn ask<T, E: From<AskError>>(
        &self,
        command: impl FnOnce(Reply<T, E>) -> Command,
    ) -> Result<T, E> {
        let (reply, answer) = oneshot::channel();
        self.post(command(reply)).map_err(|_| E::from(AskError::Stopped))?;
        answer.await.unwrap_or_else(|_| Err(E::from(AskError::Stopped)))
    }
}

impl Transport for Shared {
    fn ask(&self, _: Name<'_>, request: Request) -> Result<(), Request> {
        self.post(Command::Request(request)).map_err(|refused| match refused {
            Command::Request(request) => request,
            _ => unreachable!("the channel gives back what it was given"),
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

impl Client {
    /// The default settings, to change before [`Builder::build`].
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// A client of the cell with these endpoints, `host:port` separated by commas. It connects
    /// with the first request.
    ///
    /// # Errors
    /// When an endpoint is not valid, or the system has no thread left.
    pub fn new(endpoints: &str) -> Result<Self, StartError> {
        Self::builder().endpoints(endpoints).build()
    }

    /// A client of the cell whose endpoints are in `PAXOSLEASE_ENDPOINTS`; `127.0.0.1:7400` when
    /// that is not set.
    ///
    /// # Errors
    /// Those of [`Self::new`].
    pub fn from_env() -> Result<Self, StartError> {
        let given = std::env::var(ENDPOINTS_VARIABLE);
        Self::new(given.as_deref().unwrap_or("127.0.0.1:7400"))
    }

    pub(crate) fn start(config: Builder) -> Result<Self, StartError> {
        let failed = |error: &dyn fmt::Display| StartError::Thread(error.to_string());
        let clock = Clock::system();
        let (commands, receiver) = mpsc::unbounded_channel();
        let shared = Shared::new(clock.clone(), config.endpoints.clone(), commands);
        let seed = getrandom::u64().map_err(|error| failed(&error))?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| failed(&error))?;
        let run = move || driver::run(runtime, config, clock, receiver, seed);
        let thread = thread::Builder::new().name("paxoslease-client".into()).spawn(run);
        thread.map_err(|error| failed(&error))?;
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Acquires a lease. Waits as long as another client holds it, or no majority of the cell is
    /// reachable. Options come before `await`:
    /// `client.acquire("jobs/nightly", ttl).holder("me").wait(Duration::from_secs(5)).await`.
    ///
    /// A wait that ends without a majority ends with [`AskError::NoQuorum`] or
    /// [`AskError::Quarantine`], not with [`AcquireError::Held`](crate::AcquireError::Held). To get
    /// these errors at once, call [`Self::try_acquire`] first. If no node answers at all, that is
    /// an error at once: the endpoints may be wrong.
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

    /// Renews a tenure that was granted to this holder, here or in another process. Never renew a
    /// tenure that a hint has shown: it belongs to its holder. A [`LeaseGuard`](crate::LeaseGuard)
    /// renews itself.
    ///
    /// # Errors
    /// When that tenure is over, the ttl is out of bounds, or no node answers. The end of the lease
    /// is the same as before then.
    pub async fn renew(&self, name: &str, fence: u64, ttl: Duration) -> Result<Grant, RenewError> {
        transport::renew(&*self.shared, name, fence, ttl).await
    }

    /// Like [`Self::renew`], but blocks this thread.
    pub fn renew_blocking(
        &self,
        name: &str,
        fence: u64,
        ttl: Duration,
    ) -> Result<Grant, RenewError> {
        block_on(self.renew(name, fence, ttl))
    }

    /// Makes a tenure that was granted to this holder durable, and sets how long it lasts from now
    /// on: longer than the cell's `max_lease`, shorter than before, or [`Duration::MAX`] for ever.
    /// The lease is on the disks of a majority, and outlives this process and every crash. A holder
    /// that sets an earlier end must not rely on the lease beyond it from now on; the belief of a
    /// guard of this client ends by itself, and the guard prolongs the lease by the same time.
    ///
    /// The grant may have a higher fence, which replaces the one before.
    ///
    /// # Errors
    /// When that tenure is over, the members do not keep it, or no node answers. Unless it is over,
    /// the end before or the new one may be in force: rely on the shorter time from now on, prolong
    /// the lease only by this method, and end it by [`Self::release_durable`].
    pub async fn keep(&self, name: &str, fence: u64, lasts: Duration) -> Result<Grant, RenewError> {
        transport::keep(&*self.shared, name, fence, lasts).await
    }

    /// Like [`Self::keep`], but blocks this thread.
    pub fn keep_blocking(
        &self,
        name: &str,
        fence: u64,
        lasts: Duration,
    ) -> Result<Grant, RenewError> {
        block_on(self.keep(name, fence, lasts))
    }

    /// Releases a tenure that was granted to this holder, here or in another process. The holder
    /// must have stopped using the lease before. A [`LeaseGuard`](crate::LeaseGuard) does all that.
    ///
    /// # Errors
    /// When that tenure was over, or no node confirmed. The lease is not held in any case.
    pub async fn release(&self, name: &str, fence: u64) -> Result<(), ReleaseError> {
        transport::release(&*self.shared, name, fence, false).await
    }

    /// Like [`Self::release`], but blocks this thread.
    pub fn release_blocking(&self, name: &str, fence: u64) -> Result<(), ReleaseError> {
        block_on(self.release(name, fence))
    }

    /// Like [`Self::release`], of a tenure for which a durable acquire or [`Self::keep`] may have
    /// got no answer: what is still on its way has no effect after this release.
    ///
    /// # Errors
    /// Those of [`Self::release`].
    pub async fn release_durable(&self, name: &str, fence: u64) -> Result<(), ReleaseError> {
        transport::release(&*self.shared, name, fence, true).await
    }

    /// Like [`Self::release_durable`], but blocks this thread.
    pub fn release_durable_blocking(&self, name: &str, fence: u64) -> Result<(), ReleaseError> {
        block_on(self.release_durable(name, fence))
    }

    /// Releases the tenure of another holder, by an operator: with a token, that requires `admin`.
    /// The fence is that of a hint, such as [`Self::get`].
    ///
    /// This breaks the promise of one holder. The old holder learns of it only when it renews, and
    /// believes in its lease until then, or until its belief ends. The next holder has a higher
    /// fence, so a store that checks fences refuses the old holder after the next one wrote.
    ///
    /// # Errors
    /// When that tenure was over, the token lacks `admin`, or no node confirmed. A release that no
    /// node confirmed may still happen.
    pub async fn force_release(&self, name: &str, fence: u64) -> Result<(), ReleaseError> {
        let name = Name::new(name).map_err(AskError::Name)?;
        let Some(tenure) = Tenure::from_fence(fence) else {
            return Err(ReleaseError::NotHeld { name: name.to_string(), fence });
        };
        let label = Label::new(name, Holder::NONE);
        let command = |reply| {
            let reply = ReleaseReply::Caller(reply);
            let is_durable = false;
            Command::ForceRelease(Release { label, tenure, forced: true, is_durable, reply })
        };
        self.shared.ask(command).await
    }

    /// Like [`Self::force_release`], but blocks this thread.
    pub fn force_release_blocking(&self, name: &str, fence: u64) -> Result<(), ReleaseError> {
        block_on(self.force_release(name, fence))
    }

    /// The holder of a name, as a majority reported it a moment ago. A hint: only the holder knows
    /// that it holds.
    ///
    /// # Errors
    /// When no node answers.
    pub async fn get(&self, name: &str) -> Result<Option<LeaseInfo>, AskError> {
        Name::new(name).map_err(AskError::Name)?;
        let name = name.into();
        self.shared.ask(|reply| Command::Query(Query::Get { name, reply })).await
    }

    /// Like [`Self::get`], but blocks this thread.
    pub fn get_blocking(&self, name: &str) -> Result<Option<LeaseInfo>, AskError> {
        block_on(self.get(name))
    }

    /// The leases of names that begin with `prefix`, as one node sees them, page by page. Hints.
    /// A star at the end is ignored: `jobs/*` is the same as `jobs/`.
    pub fn list(&self, prefix: &str) -> List {
        List::new(self.clone(), prefix)
    }

    /// Follows leases of names that begin with `prefix`, as one node sees them. Hints. A star at
    /// the end is ignored. When its connection breaks, the watch reports that and continues at
    /// another node.
    pub fn watch(&self, prefix: &str) -> Watch {
        // The client runs as long as the watch exists.
        let kept = Arc::<Shared>::clone(&self.shared);
        let (subscription, watch) = subscribe(prefix, Filter::ALL, Some(kept));
        // A client that was shut down ends the watch at once.
        let _stopped = self.shared.post(Command::Watch(subscription));
        watch
    }

    /// The cell as seen by the node that this client is connected to.
    ///
    /// # Errors
    /// When no node answers.
    pub async fn status(&self) -> Result<NodeStatus, AskError> {
        self.shared.ask(|reply| Command::Query(Query::Status { reply })).await
    }

    /// Like [`Self::status`], but blocks this thread.
    pub fn status_blocking(&self) -> Result<NodeStatus, AskError> {
        block_on(self.status())
    }

    /// The cell as seen by the node at this endpoint. Uses a connection of its own.
    ///
    /// # Errors
    /// When that node does not answer.
    pub async fn status_of(&self, endpoint: &str) -> Result<NodeStatus, AskError> {
        let endpoint = builder::endpoint(endpoint).map_err(|error| AskError::Unreachable {
            endpoints: vec![endpoint.to_owned()],
            problem: error.to_string(),
        })?;
        self.shared.ask(|reply| Command::StatusOf { endpoint, reply }).await
    }

    /// Like [`Self::status_of`], but blocks this thread.
    pub fn status_of_blocking(&self, endpoint: &str) -> Result<NodeStatus, AskError> {
        block_on(self.status_of(endpoint))
    }

    /// The cell as seen by one of its members. Asks the endpoints in their order, and then the
    /// members that these name. If no member answers, the status of a node that did.
    ///
    /// # Errors
    /// When no node answers.
    pub async fn member_status(&self) -> Result<NodeStatus, AskError> {
        self.shared.ask(|reply| Command::MemberStatus { reply }).await
    }

    /// Like [`Self::member_status`], but blocks this thread.
    pub fn member_status_blocking(&self) -> Result<NodeStatus, AskError> {
        block_on(self.member_status())
    }

    /// Changes the members of the cell, by an administrator: with a token, that requires `admin`.
    /// One request to one node, a member if one answers. Returns once the change has begun, or at
    /// once if it is only to be checked. [`Self::member_status`] tells how far it is.
    ///
    /// # Errors
    /// When the change is not possible, or no node answers. A request that was sent and not
    /// answered may still begin the change.
    pub async fn members(&self, request: MembersRequest) -> Result<MembersPlan, MembersError> {
        self.shared.ask(|reply| Command::Members { request, reply }).await
    }

    /// Like [`Self::members`], but blocks this thread.
    pub fn members_blocking(&self, request: MembersRequest) -> Result<MembersPlan, MembersError> {
        block_on(self.members(request))
    }

    /// The configured endpoints, in the order in which the client tries them for its first contact.
    #[must_use]
    pub fn endpoints(&self) -> &[String] {
        &self.shared.endpoints
    }

    /// The holder text of leases that set none: `user@host:pid`.
    #[must_use]
    pub fn default_holder(&self) -> &str {
        &self.shared.default_holder
    }

    /// Releases every lease of a guard (the guards are lost then), fails pending acquires, and ends
    /// the client's thread. Returns when that is done, or after the request timeout if no node
    /// confirms. Cancel-safe: the shutdown continues without its future.
    pub async fn shutdown(&self) {
        let _stopped = self.shared.post(Command::Stop);
        self.shared.commands.closed().await;
    }

    /// Like [`Self::shutdown`], but blocks this thread.
    pub fn shutdown_blocking(&self) {
        block_on(self.shutdown());
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Client({})", self.shared.endpoints.join(","))
    }
}
