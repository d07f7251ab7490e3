//! The interface between the world and a lease algorithm, so that several algorithms run with the
//! same network, clocks, disks, clients and checker.
//!
//! An [`Algorithm`] creates a [`Process`] for each start of a node. A process is pure: every input
//! is a call, every effect is an [`Output`]. It sends bytes, not messages.

use std::collections::BTreeMap;
use std::time::Duration;

use paxoslease_core::{
    Ballot, Cell, DurableRegister, DurableWrite, Instant, Lasts, Name, NodeId, Rules, Shard,
    Tenure, Token, Ttl,
};

use crate::checker::Checks;
pub use crate::packet::Packet;
use crate::packet::describe;

/// A lease algorithm.
pub trait Algorithm {
    /// One run of one node.
    type Process: Process;

    /// Starts a node from the content of its disk.
    fn start(&self, boot: Boot<'_>) -> Self::Process;

    /// Describes a message in a few words, as a label for an arrow: `Propose 7.1`.
    fn describe(&self, bytes: &[u8]) -> String {
        describe(bytes)
    }

    /// The checks that apply: all of them, except those that the algorithm does not claim.
    fn checks(&self) -> Checks {
        Checks::ALL
    }

    /// The rules by which clients compute their beliefs.
    fn rules(&self) -> Rules {
        Rules::ALL
    }
}

/// The input of a start.
#[derive(Debug)]
pub struct Boot<'a> {
    /// The node's id. The node is an acceptor if the cell lists it.
    pub node: NodeId,
    /// The node's cell.
    pub cell: &'a Cell,
    /// The delays and bounds of the node.
    pub tuning: &'a Tuning,
    /// The seed of the node's random numbers.
    pub seed: u64,
    /// The current time on the node's clock.
    pub now: Instant,
    /// Whether the whole cell starts for the first time.
    pub new_cell: bool,
    /// The node's wall clock, in milliseconds. It does not go back across restarts.
    pub wall_millis: u64,
    /// The node's disk, if it has one.
    pub disk: Option<&'a mut Disk>,
}

/// Delays and bounds of every node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tuning {
    /// The longest time that a round waits for a majority.
    pub attempt_timeout: Duration,
    /// The shortest time that a round waits for a majority, however fast the network is.
    pub attempt_timeout_min: Duration,
    /// How long an acquire retries without a majority for or against it.
    pub request_timeout: Duration,
    /// The shortest time for which an acceptor keeps an idle entry.
    pub reclaim_after: Duration,
    /// The longest random delay before a node asks for a freed lease.
    pub stagger_max: Duration,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            attempt_timeout: Duration::from_millis(100),
            attempt_timeout_min: Duration::from_millis(10),
            request_timeout: Duration::from_secs(2),
            reclaim_after: Duration::from_secs(1),
            stagger_max: Duration::from_millis(1),
        }
    }
}

/// The files that survive a crash.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Disk {
    /// The last [`Output::Persist`] that reached the disk.
    pub record: Option<Vec<u8>>,
    /// The snapshot of a clean stop.
    pub snapshot: Option<Vec<u8>>,
    /// The registers of durable names.
    pub registers: BTreeMap<String, DurableRegister>,
}

impl Disk {
    /// A write of [`Output::Durable`] reached the disk.
    pub fn write(&mut self, write: DurableWrite) {
        match write {
            DurableWrite::Register(register) => {
                self.registers.insert(register.name().to_string(), register);
            }
            DurableWrite::Forget(label) => drop(self.registers.remove(label.name().as_str())),
            DurableWrite::Clear => self.registers.clear(),
            DurableWrite::Tick => {}
        }
    }
}

/// One run of one node, from a start to a stop or crash.
pub trait Process {
    /// A peer's message arrived.
    fn handle_message(&mut self, now: Instant, from: NodeId, bytes: &[u8]);

    /// The time of [`Self::next_timeout`] has come.
    fn handle_timeout(&mut self, now: Instant);

    /// Housekeeping, at regular intervals.
    fn handle_tick(&mut self, _now: Instant) {}

    /// The record of [`Output::Persist`] is durable.
    fn handle_persisted(&mut self, _now: Instant, _record: &[u8]) {}

    /// The writes of [`Output::Durable`] up to this one are durable.
    fn handle_durable(&mut self, _now: Instant, _sequence: u64) {}

    /// A client sent a command for a lease. If it has an answer, that is [`Output::Answer`].
    fn handle_command(&mut self, now: Instant, token: Token, name: Name<'_>, command: Command);

    /// The next effect of the calls so far.
    fn poll_output(&mut self) -> Option<Output>;

    /// When the process needs its next [`Self::handle_timeout`].
    fn next_timeout(&self) -> Option<Instant>;

    /// What the node's acceptor stores for a name; `None` if the node is not an acceptor.
    fn view(&self, name: Name<'_>) -> Option<View>;

    /// The end of the acceptor's quarantine, if it is in quarantine.
    fn quarantine_until(&self, now: Instant) -> Option<Instant>;

    /// A clean stop.
    fn stop(self, _now: Instant, _disk: Option<&mut Disk>)
    where
        Self: Sized,
    {
    }

    /// The number of requests and rounds for which it keeps state.
    fn in_flight(&self) -> usize;
}

/// A command of a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the fields have the names of the core's")]
pub enum Command {
    /// Acquires a lease; `wait` is how long to wait while another client holds it.
    Acquire { ttl: Duration, wait: Duration },
    /// Renews a lease that was granted to the client.
    Renew { tenure: Tenure, ttl: Duration },
    /// Releases a lease that was granted to the client. The node repeats the release for
    /// `patience`: the lease has ended after that.
    Release { tenure: Tenure, patience: Duration },
    /// Acquires a durable lease (K9).
    AcquireDurable { lasts: Lasts, wait: Duration },
    /// Sets the end of a lease that was granted to the client (K8).
    Keep { tenure: Tenure, lasts: Lasts },
    /// Releases a lease whose end was set, or that was durable from the start (K8).
    ReleaseDurable { tenure: Tenure, patience: Duration },
    /// The client that sent the command with this token has disconnected (P8).
    Abandon,
}

/// An effect of a process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Output {
    /// Sends a message.
    Send(Packet),
    /// Writes its stable record.
    Persist(Vec<u8>),
    /// Writes to its file of durable leases.
    Durable(u64, Box<DurableWrite>),
    /// Answers a client.
    Answer(Token, Answer),
    /// Reports an answer to a request that was answered or abandoned before.
    Unasked(Token),
}

/// The answer to a command. For `ttl`, acceptors exclude other holders.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the fields have the names of the core's")]
pub enum Answer {
    /// The client holds the lease. The request waited for `waited` at the node before the round
    /// that won (T2).
    Granted { tenure: Tenure, ttl: Ttl, waited: Duration },
    /// Another client holds the lease.
    Denied,
    /// No majority of acceptors answered.
    NoQuorum,
    /// The lease was renewed, by a round that began at `started_at` on the node's clock. A holder
    /// embedded in the node counts from then. `None` if the algorithm has no such holders.
    Renewed { tenure: Tenure, ttl: Ttl, started_at: Option<Instant> },
    /// The end of the lease is set: it lasts this long from when the client asked. The tenure is
    /// the fence from now on.
    Kept { tenure: Tenure, lasts: Lasts },
    /// The client does not hold the lease any more.
    NotHeld,
    /// The lease was released.
    Released,
    /// The node refused the command.
    Refused,
}

/// What an acceptor stores for a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct View {
    /// The lowest ballot that a round for this name may have.
    pub promised: Ballot,
    /// The last accepted lease: its tenure, and its end on the acceptor's clock.
    pub accepted: Option<(Tenure, Instant)>,
}

impl View {
    /// What a shard's acceptor stores for a name; `None` if the node is not an acceptor.
    #[must_use]
    pub fn of(shard: &Shard, name: Name<'_>) -> Option<Self> {
        let (floor, register) = (shard.floor()?, shard.register(name).unwrap_or_default());
        let accepted = register.accepted.map(|it| (it.tenure, it.expires_at));
        Some(Self { promised: register.promised.max(floor), accepted })
    }
}
