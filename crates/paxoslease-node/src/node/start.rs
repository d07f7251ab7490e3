//! How a node comes up and goes down: settings, disk, sockets and threads, in an order that leaves
//! nothing behind when one of them fails.
//!
//! A thread of its own starts the shards, waits for them to end, and writes the snapshot (R4): so
//! a node that is merely dropped stops as cleanly as one that is shut down.

use std::io;
use std::net::{TcpListener, ToSocketAddrs};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use mio::Poll;
use paxoslease_core::{DeciderConfig, NodeId, Snapshot};
use paxoslease_holder::transport;
use paxoslease_wire::ShardId;

use super::{CommandSender, Node, Shared, Stopped};
use crate::board::{Board, Disk};
use crate::clock::{Clock, CounterBound, wall_counter};
use crate::command::Command;
use crate::config::{Config, ConfigError, Role, Settings};
use crate::driver::{Driver, Identity, PeerTimeouts, Peers};
use crate::event_loop::{Conns, EventLoop, Listener, Post, Writers, mailbox};
use crate::front::{Service, Waiting};
use crate::mailbox::Mailbox;
use crate::stable::{
    DurableFile, DurableFileWriter, DurableWorker, Folder, RecordWriter, RunStart, StableError,
    Startup,
};
use crate::tls::{CurrentTls, TlsError};
use crate::turn::{self, Clients};

/// Why a node did not start. Nothing runs. Nothing was changed on disk, unless the system refused a
/// thread at the very last: then the snapshot of the last stop is used up, and the next start waits
/// as if after a crash.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The configuration is not valid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The data folder cannot be used.
    #[error(transparent)]
    Stable(#[from] StableError),
    /// Certificate, key or authority cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// Peers cannot be listened for.
    #[error("cannot listen for peers on {address}: {source}{}", hint(source))]
    Listen {
        /// As `host:port`.
        address: String,
        /// The answer of the system.
        source: io::Error,
    },
    /// The system refused a thread, a poll or randomness.
    #[error("the system refused {what}: {source}")]
    System {
        /// The resource.
        what: &'static str,
        /// The answer of the system.
        source: io::Error,
    },
}

fn hint(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::AddrInUse => "; is another node running there?",
        io::ErrorKind::AddrNotAvailable => "; is it an address of this machine?",
        _ => "",
    }
}

fn refused(what: &'static str) -> impl FnOnce(io::Error) -> StartError {
    move |source| StartError::System { what, source }
}

pub(super) async fn start(
    config: Config,
    listener: Option<TcpListener>,
    service: Option<Service>,
) -> Result<Node, StartError> {
    let (reply, started) = oneshot::channel();
    let run = move || match Running::start(&config, listener, service) {
        Ok((node, running)) => {
            // If the caller has left, this is the node's last handle, and the node stops.
            drop(reply.send(Ok(node)));
            running.until_stopped();
        }
        Err(error) => {
            let _left = reply.send(Err(error));
        }
    };
    thread::Builder::new()
        .name("paxoslease-node".to_owned())
        .spawn(run)
        .map_err(refused("a thread"))?;
    let gone = || io::Error::other("the thread that starts the node panicked");
    started.await.unwrap_or_else(|_| Err(refused("a thread")(gone())))
}

/// A node's threads.
struct Running {
    node: NodeId,
    shards: Vec<JoinHandle<Option<Snapshot>>>,
    writers: Option<Writers>,
    waiting: Arc<Waiting>,
    stopped: Arc<Stopped>,
}

impl Running {
    fn start(
        config: &Config,
        listener: Option<TcpListener>,
        service: Option<Service>,
    ) -> Result<(Node, Self), StartError> {
        let settings = config.settings()?;
        #[cfg(feature = "chaos")]
        let settings = crate::chaos::with_rules(settings);
        let client_tls = service.as_ref().and_then(|service| service.client_tls);
        let tls = CurrentTls::load(config.tls.as_ref(), &config.cell, settings.identity())?;
        let tls = tls.with_clients(client_tls);
        let random = |what| getrandom::u64().map_err(io::Error::other).map_err(refused(what));
        let clock = Clock::system();
        let mut wishes = settings.wishes(wall_counter(), random("randomness")?);
        wishes.durable = settings.durable_wish(RunStart::of(&clock));
        let mut listener = listen(config, listener)?;
        let (clients, mut front, recorder) = match service {
            None => (None, None, None),
            Some(Service { clients, front, recorder, .. }) => (clients, Some(front), recorder),
        };
        let clients = clients.map(non_blocking).transpose();
        let mut clients = clients.map_err(refused("the clients' socket"))?;
        let seed = random("randomness")?;
        let count = usize::from(settings.shards.get());
        let event_queue = || refused("an event queue");
        let polls: Vec<Poll> =
            (0..count).map(|_| Poll::new()).collect::<io::Result<_>>().map_err(event_queue())?;
        let mailboxes: Vec<Arc<Mailbox<Post>>> = polls
            .iter()
            .map(|poll| mailbox(poll).map(Arc::new))
            .collect::<io::Result<_>>()
            .map_err(event_queue())?;
        // The folder comes last of what may be refused: opening it uses up the snapshot.
        let mut folder = match &config.data_dir {
            Some(path) => Some(Folder::open(path, settings.node)?),
            None => None,
        };
        let startup = match &mut folder {
            Some(folder) => folder.start(&wishes)?,
            None => Startup::without_folder(&wishes),
        };
        let node = settings.node;
        let span = tracing::info_span!("node", id = %node);
        span.in_scope(|| explain(config.role, &startup));
        let durable = folder.as_mut().and_then(Folder::take_durable);
        let durable = durable.map(|file| durable_writer(file, &mailboxes, &clock)).transpose()?;
        let durable = durable.map(Arc::new);
        let writer = writer(folder, &startup, &mailboxes)?;
        let writers = writer.map(|record| Writers { record, durable });
        let disk = disk_of(writers.as_ref());
        let board = Arc::new(Board::new(&settings, startup.has_record, disk, tls.clone()));
        let waiting = Arc::<Waiting>::default();
        let run = Run { seed, wall_counter: wishes.counter };
        let undone = Arc::default();
        let new_loop = |(index, poll): (usize, Poll)| {
            let registry = poll.registry().try_clone().map_err(event_queue())?;
            let (own, board) = (index as u16, Arc::clone(&board));
            let front = front.as_mut().map(|make| make(own));
            let not_tls = front.as_ref().map_or(&b""[..], |front| front.not_tls());
            let (waiting, undone) = (Arc::clone(&waiting), Arc::clone(&undone));
            Ok(EventLoop {
                conns: Conns::new(registry, tls.clone(), not_tls, mailboxes.clone(), index),
                poll,
                driver: make_driver(&settings, &startup, own, run, &clock, board),
                mailbox: Arc::clone(&mailboxes[index]),
                listener: listener.take().map(Listener::new),
                client_listener: clients.take().map(Listener::new),
                clients: Clients::new(own, front, mailboxes.clone(), waiting, undone),
                clock: clock.clone(),
                spin: config.spin.most(),
                disk: writers.clone(),
            })
        };
        let loops = polls.into_iter().enumerate().map(new_loop);
        let loops = loops.collect::<Result<_, StartError>>()?;
        let shards = spawn(node, loops, &mailboxes, recorder.as_ref())?;
        let senders = mailboxes.iter().map(command_sender).collect();
        let mut shared = Shared::new(settings, clock, senders, transport::default_holder(), board);
        (shared.waiting, shared.tls) = (Arc::clone(&waiting), tls);
        let stopped = Arc::clone(&shared.stopped);
        let running = Self { node, shards, writers, waiting, stopped };
        Ok((Node { shared: Arc::new(shared) }, running))
    }

    /// Waits for the shards to end, then leaves their leases to the next start.
    fn until_stopped(mut self) {
        let _entered = tracing::info_span!("node", id = %self.node).entered();
        let mut snapshots = Vec::new();
        for shard in self.shards.drain(..) {
            // A shard that panicked has logged that, and its state cannot be trusted.
            snapshots.push(shard.join().unwrap_or(None));
        }
        let Some(Writers { record, durable }) = self.writers.take() else { return };
        if let Some(durable) = durable.and_then(Arc::into_inner) {
            durable.stop();
        }
        if let Some(writer) = Arc::into_inner(record) {
            match writer.stop().write_snapshot(&snapshots) {
                Ok(true) => {
                    tracing::info!("stopped; the snapshot lets the next start vote at once");
                }
                Ok(false) => tracing::info!("stopped without a snapshot"),
                Err(error) => {
                    tracing::error!(%error, "no snapshot: the next start waits in quarantine");
                }
            }
        }
    }
}

/// Logs how the node starts.
fn explain(role: Role, startup: &Startup) {
    match role {
        Role::Member => startup.log(),
        Role::Proposer if startup.record().is_none() => tracing::warn!(
            "no data folder: after a restart, exclusion depends on a wall clock that never goes \
             back. Set data_dir"
        ),
        Role::Proposer => {}
    }
}

/// Starts the threads of all shards, or of none.
fn spawn(
    node: NodeId,
    loops: Vec<EventLoop>,
    mailboxes: &[Arc<Mailbox<Post>>],
    recorder: Option<&Arc<dyn metrics::Recorder + Send + Sync>>,
) -> Result<Vec<JoinHandle<Option<Snapshot>>>, StartError> {
    let mut threads = Vec::new();
    for (index, event_loop) in loops.into_iter().enumerate() {
        let span = tracing::info_span!("node", id = %node, shard = index);
        let recorder = recorder.cloned();
        let run = move || {
            let run = || span.in_scope(|| event_loop.run());
            match recorder {
                Some(recorder) => metrics::with_local_recorder(&*recorder, run),
                None => run(),
            }
        };
        let name = format!("paxoslease-{node}.{index}");
        match thread::Builder::new().name(name).spawn(run) {
            Ok(thread) => threads.push(thread),
            Err(error) => {
                for (thread, mailbox) in threads.into_iter().zip(mailboxes) {
                    // The thread has ended, by itself or with a panic.
                    let _left = mailbox.post(Post::Command(Command::Stop));
                    let _gone = thread.join();
                }
                return Err(refused("a thread")(error));
            }
        }
    }
    Ok(threads)
}

/// Ends every wait for this node, also if a start fails half-way or the thread panics.
impl Drop for Running {
    fn drop(&mut self) {
        self.waiting.close();
        self.stopped.set();
    }
}

/// What distinguishes one run of a node from another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    /// The seed of every random delay.
    pub(crate) seed: u64,
    /// R5: the wall clock at the start.
    pub(crate) wall_counter: u64,
}

/// One shard of a node, without its thread and its sockets.
pub(crate) fn make_driver(
    settings: &Settings,
    startup: &Startup,
    index: u16,
    run: Run,
    clock: &Clock,
    board: Arc<Board>,
) -> Driver {
    let count = settings.shards.get();
    let shard_id = ShardId::new(index, count).expect("one of them");
    let now = clock.now();
    let Run { seed, wall_counter } = run;
    let core_config = settings.core_config(seed, index);
    let shard = startup.shard(core_config, now, |name| ShardId::of(name, count) == shard_id);
    #[cfg(feature = "trace")]
    let shard = crate::trace::begin(shard, startup, index, now);
    let membership = &startup.membership;
    let identity = Identity {
        cell_name: settings.config.cell.clone(),
        durable_leases: settings.config.durable_leases,
        settings: settings.cell,
        list: membership.list,
        cell: shard.config().cell,
        node: settings.node,
        birth: membership.birth,
        boot: startup.counter(),
        shard: shard_id,
        clients: settings.config.client_address.clone().unwrap_or_default(),
    };
    let timeouts = PeerTimeouts {
        heartbeat: settings.config.timing.heartbeat,
        peer_timeout: settings.config.timing.peer_timeout,
        queue_bytes_max: settings.config.limits.peer_queue_bytes,
    };
    let members = settings.peers().map(|(node, address)| (node, address.to_owned()));
    let seed = seed.wrapping_add(u64::from(index));
    let mut peers = Peers::new(identity, timeouts, members, seed, now);
    let configuration = &membership.stable.configuration;
    if configuration.epoch() > 0 {
        peers.follow(now, configuration, shard.config().cell, shard.counter());
    }
    let bound = CounterBound::new(now, wall_counter, shard.counter());
    let mut driver = Driver::new(shard, bound, peers, seed, now, board);
    if index == 0 {
        let drift = settings.cell.drift();
        let mut config = DeciderConfig::new(settings.node, membership.birth, drift, seed);
        config.rules = settings.rules;
        config.contacts = settings.peers().map(|(node, _)| node).collect();
        driver.start_decisions(now, config, membership, startup.record().is_some());
    }
    driver
}

/// Listens for peers. A proposer does not listen, and a cell of one need not.
fn listen(
    config: &Config,
    given: Option<TcpListener>,
) -> Result<Option<mio::net::TcpListener>, StartError> {
    let Some(address) = config.listen_for_peers() else { return Ok(None) };
    let bound = match given {
        Some(listener) => Ok(listener),
        None => address
            .to_socket_addrs()
            .and_then(|found| TcpListener::bind(found.collect::<Vec<_>>().as_slice())),
    };
    let refused = |source| StartError::Listen { address: address.to_owned(), source };
    bound.and_then(non_blocking).map(Some).map_err(refused)
}

fn writer(
    folder: Option<Folder>,
    startup: &Startup,
    mailboxes: &[Arc<Mailbox<Post>>],
) -> Result<Option<Arc<RecordWriter>>, StartError> {
    let (Some(folder), Some(record)) = (folder, startup.record()) else { return Ok(None) };
    let shards = mailboxes.to_vec();
    let on_written = move |asked| {
        let (shard, command) = Command::written(asked);
        // A shard that left needs no answer.
        let _left = shards[shard].post(Post::Command(command));
    };
    let writer = RecordWriter::spawn(folder, mailboxes.len(), record, Box::new(on_written));
    Ok(Some(Arc::new(writer.map_err(refused("a thread"))?)))
}

fn durable_writer(
    file: DurableFile,
    mailboxes: &[Arc<Mailbox<Post>>],
    clock: &Clock,
) -> Result<DurableFileWriter, StartError> {
    let worker = DurableWorker::new(file, mailboxes.len());
    let shards = mailboxes.to_vec();
    let on_news = move |news| {
        for (shard, command) in Command::news(news, shards.len()) {
            // A shard that left needs no news.
            let _left = shards[shard].post(Post::Command(command));
        }
    };
    let writer = DurableFileWriter::spawn(worker, clock.clone(), Box::new(on_news));
    writer.map_err(refused("a thread"))
}

/// What the writers say.
fn disk_of(writers: Option<&Writers>) -> Disk {
    let mut disk = Disk::default();
    if let Some(Writers { record, durable }) = writers {
        disk.record_problem = Box::new(record.problem());
        if let Some(durable) = durable {
            let status = durable.status();
            disk.durable_problem = Box::new(move || status().problem);
            disk.write_times = Box::new(durable.write_times());
        }
    }
    disk
}

pub(crate) fn command_sender<S: Send + 'static>(
    mailbox: &Arc<Mailbox<turn::Post<S>>>,
) -> CommandSender {
    let mailbox = Arc::clone(mailbox);
    Box::new(move |command| match mailbox.post(turn::Post::Command(command)) {
        Err(turn::Post::Command(command)) => Err(command),
        _ => Ok(()),
    })
}

fn non_blocking(listener: TcpListener) -> io::Result<mio::net::TcpListener> {
    listener.set_nonblocking(true)?;
    Ok(mio::net::TcpListener::from_std(listener))
}
