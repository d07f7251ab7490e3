//! A node without threads, sockets, files or a clock of its own: what a simulated world runs.
//!
//! The driver, the turns, the sessions, the data folder and the handles are those of a real node.
//! A world brings the network as [`Wire`], the disk as [`VolatileFiles`], the clock, and decides
//! when a shard has a turn and when a write is over. Hidden: this interface follows the world's
//! needs, without notice.

mod sockets;
mod writer;

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::task::Waker;

use paxoslease_core::{Birth, Configuration, Instant, NodeId, Record, Rules, Snapshot};
use paxoslease_holder::transport::Ticket;
use paxoslease_wire::StableRecord;

use crate::board::{Board, Disk};
use crate::clock::{Clock, wall_counter_at};
use crate::command::Command;
use crate::config::Config;
use crate::driver::{self, Driver};
use crate::front::{FrontEnd, Waiting};
use crate::mailbox::Mailbox;
use crate::node::{Node, Run, Shared, command_sender, make_driver};
pub use crate::stable::VolatileFiles;
use crate::stable::{Folder, HandedOver, Loaded, RunStart, StableError, Startup};
use crate::tls::CurrentTls;
use crate::turn::{Clients, Mailboxes, Post, Turn};
use sockets::{Lines, SimulatedSockets};
use writer::{LastError, WriteEnd, Writer};

/// One end of a simulated connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct EndId {
    /// The number of the connection.
    pub pipe: u64,
    /// 0 is the end that dialled.
    pub side: usize,
}

/// The port that a connection was made to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Port {
    /// For other nodes.
    Peers,
    /// For clients that speak RESP.
    Clients,
}

/// How a connection ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// The other side closed it, after everything that it sent.
    Closed,
    /// The connection was refused or cut.
    Reset,
}

/// What is new at one end of a connection.
#[derive(Clone, Debug)]
pub struct News {
    /// The end.
    pub end: EndId,
    /// The port of an accepted connection; [`Port::Peers`] where this node dialled.
    pub port: Port,
    /// Whether the other side has accepted it.
    pub established: bool,
    /// Whether there is room again after a short write.
    pub writable: bool,
    /// The bytes that arrived.
    pub bytes: Vec<u8>,
    /// Whether the connection ended.
    pub ended: Option<Ended>,
}

/// The simulated network, as one shard reaches it during a turn.
pub trait Wire {
    /// Begins to connect to a peer.
    fn dial(&mut self, address: &str) -> EndId;

    /// Sends what there is room for, and returns how many bytes that was.
    fn send(&mut self, end: EndId, bytes: &[u8]) -> usize;

    /// Closes an end.
    fn close(&mut self, end: EndId);

    /// Lets another shard read an end, first of all `unread` again.
    fn hand_over(&mut self, end: EndId, shard: u16, unread: &[u8]);

    /// Reports an end again, because the shard reads from it again.
    fn resume(&mut self, end: EndId);
}

/// Makes the front-end of each shard.
pub type FrontEnds = Box<dyn FnMut(u16) -> Box<dyn FrontEnd> + Send>;

/// How a process starts.
pub struct Start<'a> {
    /// The configuration of the node.
    pub config: &'a Config,
    /// The rules of the protocol that are switched on.
    pub rules: Rules,
    /// The disk of the host, if it has one.
    pub files: Option<&'a VolatileFiles>,
    /// The clock of the host.
    pub clock: Clock,
    /// The wall clock at the start, in milliseconds (R5).
    pub wall_millis: u64,
    /// The seed of all random delays.
    pub seed: u64,
    /// What serves clients, if the node serves any.
    pub front: Option<FrontEnds>,
    /// Called with the number of a shard that was posted something while it slept.
    pub bell: Arc<dyn Fn(usize) + Send + Sync>,
}

impl fmt::Debug for Start<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Start").field("config", &self.config).finish_non_exhaustive()
    }
}

/// What came of a turn.
#[derive(Clone, Copy, Debug)]
pub struct Turned {
    /// How many commands and messages the turn was for.
    pub work: u64,
    /// When the shard needs its next turn; `None` when it has had its last.
    pub next_at: Option<Instant>,
}

/// The running process of a node.
pub struct Process {
    node: Node,
    shards: Vec<Option<SimulatedShard>>,
    /// What the shards that left hand on (R4).
    snapshots: Vec<Option<Snapshot>>,
    writer: Option<Writer>,
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Process").field("node", &self.node).finish_non_exhaustive()
    }
}

struct SimulatedShard {
    driver: Driver,
    mailbox: Letterbox,
    clients: Clients<Infallible>,
    lines: Lines,
    is_leaving: bool,
}

/// Closes the mailbox of a shard that is gone.
struct Letterbox(Arc<Mailbox<Post<Infallible>>>);

impl Drop for Letterbox {
    fn drop(&mut self) {
        drop(self.0.close());
    }
}

/// How many slots of its table a shard looks through in one turn, for all lists together.
pub const LIST_SLOTS_PER_TURN: usize = driver::LIST_SLOTS_PER_TURN as usize;

/// How many lists may wait for their turn in a shard.
pub const LISTS_WAITING_MAX: usize = driver::LISTS_WAITING_MAX;

/// Writes the ceilings of a stable record, as if the node had run before.
///
/// # Errors
/// When the disk fails.
pub fn write_record(
    files: &VolatileFiles,
    node: NodeId,
    record: Record,
) -> Result<(), Box<dyn std::error::Error>> {
    let mut folder = Folder::open_volatile(files, node)?;
    let record = match folder.load()? {
        Loaded::Fresh => StableRecord {
            birth: Birth(1),
            ceilings: record,
            configuration: None,
            has_durable: false,
        },
        Loaded::Record(before) => StableRecord { ceilings: record, ..before },
    };
    Ok(folder.write_record(&record)?)
}

/// About how many bytes a message has.
const MESSAGE_LEN: usize = 40;

impl Process {
    /// Starts a process with what the disk of its host holds.
    ///
    /// # Errors
    /// When the data folder cannot be used.
    ///
    /// # Panics
    /// When the configuration is not valid.
    pub fn start(start: Start<'_>) -> Result<Self, StableError> {
        let Start { config, rules, files, clock, wall_millis, seed, mut front, bell } = start;
        let mut settings = config.settings().expect("worlds have valid settings");
        settings.rules = rules;
        let wall_counter = wall_counter_at(wall_millis);
        let mut wishes = settings.wishes(wall_counter, seed);
        let start = files.map(|files| RunStart::in_boot(files.boot(), &clock));
        wishes.durable = start.and_then(|start| settings.durable_wish(start));
        let folder = files.map(|files| Folder::open_volatile(files, settings.node));
        let mut folder = folder.transpose()?;
        let startup = match &mut folder {
            Some(folder) => folder.start(&wishes)?,
            None => Startup::without_folder(&wishes),
        };
        let count = usize::from(settings.shards.get());
        let writer = folder.zip(startup.record());
        let writer = writer.map(|(folder, record)| Writer::new(folder, count, record));
        let last_error = writer.as_ref().map(Writer::last_error);
        let disk = Disk {
            record_problem: Box::new(move || last_error.as_ref().and_then(LastError::text)),
            ..Disk::default()
        };
        let board = Board::new(&settings, startup.has_record, disk, CurrentTls::default());
        let board = Arc::new(board);
        let waiting = Arc::<Waiting>::default();
        let new_mailbox = |shard| {
            let bell = Arc::clone(&bell);
            let mailbox = Mailbox::new(Box::new(move || bell(shard)));
            mailbox.fall_asleep();
            Arc::new(mailbox)
        };
        let mailboxes: Mailboxes<Infallible> = (0..count).map(new_mailbox).collect();
        let undone = Arc::default();
        let run = Run { seed, wall_counter };
        let new_shard = |(index, mailbox): (usize, &Arc<_>)| {
            let (own, board) = (index as u16, Arc::clone(&board));
            let front = front.as_mut().map(|make| make(own));
            let (waiting, undone) = (Arc::clone(&waiting), Arc::clone(&undone));
            Some(SimulatedShard {
                driver: make_driver(&settings, &startup, own, run, &clock, board),
                mailbox: Letterbox(Arc::clone(mailbox)),
                clients: Clients::new(own, front, mailboxes.clone(), waiting, undone),
                lines: Lines::default(),
                is_leaving: false,
            })
        };
        let shards = mailboxes.iter().enumerate().map(new_shard).collect();
        let senders = mailboxes.iter().map(command_sender).collect();
        let holder = format!("node-{}", settings.node);
        let mut shared = Shared::new(settings, clock, senders, holder, board);
        shared.waiting = waiting;
        let node = Node { shared: Arc::new(shared) };
        Ok(Self { node, shards, snapshots: Vec::new(), writer })
    }

    /// The handle of the node.
    #[must_use]
    pub const fn node(&self) -> &Node {
        &self.node
    }

    /// Begins a clean stop.
    pub fn request_stop(&self) {
        self.node.shared.stop();
    }

    /// How many shards the node has.
    #[must_use]
    pub const fn shards(&self) -> usize {
        self.shards.len()
    }

    /// The protocol's state in a shard that has not left, for checkers.
    #[must_use]
    pub fn core(&self, shard: usize) -> Option<&paxoslease_core::Shard> {
        Some(self.shards[shard].as_ref()?.driver.shard())
    }

    /// The members as this node knows them, for checkers; `None` if their list is fixed, or the
    /// first shard has left.
    #[must_use]
    pub fn configuration(&self) -> Option<&Configuration> {
        self.shards[0].as_ref()?.driver.configuration()
    }

    /// The birth of the data folder; `None` if the first shard has left.
    #[must_use]
    pub fn birth(&self) -> Option<Birth> {
        Some(self.shards[0].as_ref()?.driver.birth())
    }

    /// Whether a shard was posted something that it has not taken yet.
    #[must_use]
    pub fn has_post(&self) -> bool {
        self.shards.iter().flatten().any(|shard| shard.mailbox.0.is_filled())
    }

    /// Whether a shard reads from this end now. It does not while a session is busy.
    #[must_use]
    pub fn reads(&self, shard: usize, end: EndId) -> bool {
        self.shards[shard].as_ref().is_some_and(|shard| shard.lines.reads(end))
    }

    /// One turn of a shard, with what is new at its connections. `None` when the shard has left.
    pub fn turn(
        &mut self,
        shard: usize,
        now: Instant,
        news: Vec<News>,
        wire: &mut dyn Wire,
    ) -> Option<Turned> {
        let state = self.shards[shard].as_mut().filter(|state| !state.is_leaving)?;
        let SimulatedShard { driver, mailbox, clients, lines, is_leaving } = state;
        let mut posts = Vec::new();
        mailbox.0.take(&mut posts);
        let bytes: usize = news.iter().map(|news| news.bytes.len()).sum();
        let work = (posts.len() + bytes / MESSAGE_LEN) as u64;
        let mut sockets = SimulatedSockets { lines, wire, news };
        Turn { now, driver, sockets: &mut sockets, clients }.run(&mut posts);
        if let Some(writer) = &mut self.writer {
            while let Some(record) = driver.next_record() {
                writer.ask(shard, record);
            }
            if let Some(configuration) = driver.next_configuration() {
                writer.ask_configuration(configuration);
            }
            let id = driver.shard_id();
            for (sequence, write) in driver.take_durable_writes() {
                writer.hand_over(HandedOver { shard: id, sequence, now, write });
            }
        }
        driver.wakers().for_each(Waker::wake);
        if driver.may_go(now, clients.are_done()) {
            *is_leaving = true;
            driver.act(now);
            driver.flush(&mut sockets, now);
            driver.wakers().for_each(Waker::wake);
            sockets.close_all();
            return Some(Turned { work, next_at: None });
        }
        let is_quiet = mailbox.0.fall_asleep();
        let next_at = if is_quiet { driver.next_at().min(clients.next_at()) } else { now };
        Some(Turned { work, next_at: Some(next_at) })
    }

    /// Removes a shard that has had its last turn. Returns whether it was the last one of the node.
    pub fn leave(&mut self, shard: usize, now: Instant) -> bool {
        if let Some(left) = self.shards[shard].take_if(|shard| shard.is_leaving) {
            self.snapshots.push(left.driver.stop(now));
        }
        self.shards.iter().all(Option::is_none)
    }

    /// Begins to write the record, if a shard asks for that and no write is under way.
    pub fn begin_write(&mut self) -> bool {
        let now = self.node.shared.clock.now();
        self.writer.as_mut().is_some_and(|writer| writer.begin(now))
    }

    /// The write under way is over, and the shards are told if it succeeded. Returns whether it
    /// did.
    pub fn end_write(&mut self) -> bool {
        let Some(writer) = &mut self.writer else { return true };
        let WriteEnd { answers, news, failed } = writer.end(self.node.shared.clock.now());
        let count = self.shards.len();
        let durable = news.into_iter().flat_map(|news| Command::news(news, count));
        for (shard, command) in answers.into_iter().map(Command::written).chain(durable) {
            if let Some(shard) = &self.shards[shard] {
                // A shard that left needs no answer.
                let _left = shard.mailbox.0.post(Post::Command(command));
            }
        }
        !failed
    }

    /// All shards have left: writes the snapshot. Without one, the next start is one after a crash.
    pub fn stop(self) {
        if let Some(writer) = self.writer {
            let _failed = writer.into_folder().write_snapshot(&self.snapshots);
        }
        self.node.shared.over();
    }

    /// Ends the process in the middle of what it did. With `writes`, a write under way happens, as
    /// far as the disk lets it. Returns the tickets of the leases that it held: their holders
    /// believe until their time is over.
    #[must_use]
    pub fn kill(mut self, writes: bool) -> Vec<Arc<Ticket>> {
        if let Some(writer) = self.writer.as_mut().filter(|_| writes) {
            let _told_no_more = writer.end(self.node.shared.clock.now());
        }
        let shards = self.shards.into_iter().flatten();
        let tickets = shards.flat_map(|shard| shard.driver.die()).collect();
        self.node.shared.over();
        tickets
    }
}
