//! What the world needs of a lease algorithm, so that several run on the same network, clocks,
//! disks, clients and checkers.
//!
//! An [`Algorithm`] makes a [`Process`] per node and start. A process is pure: everything that
//! happens is a call, everything it does is an [`Output`]. It sends bytes, not messages.

use std::rc::Rc;
use std::time::Duration;

use paxoslease_core::{Ballot, Cell, Instant, Name, NodeId, Rules, Tenure, Token, Ttl};

use crate::checker::Checks;

/// A lease algorithm.
pub trait Algorithm {
    /// One run of one node.
    type Process: Process;

    /// Starts a node, with whatever its disk says.
    fn start(&self, boot: Boot<'_>) -> Self::Process;

    /// A message in words, short enough to stand beside an arrow: `Propose 7.1`.
    fn describe(&self, bytes: &[u8]) -> String;

    /// What is to be checked: all of it, unless the algorithm does not even claim it.
    fn checks(&self) -> Checks {
        Checks::ALL
    }

    /// The rules clients count their beliefs by.
    fn rules(&self) -> Rules {
        Rules::ALL
    }
}

/// What a node knows when it starts.
#[derive(Debug)]
pub struct Boot<'a> {
    /// Which it is. An acceptor if the cell lists it.
    pub node: NodeId,
    /// Its cell.
    pub cell: &'a Cell,
    /// Delays and bounds.
    pub tuning: &'a Tuning,
    /// For what it draws.
    pub seed: u64,
    /// Its clock.
    pub now: Instant,
    /// Whether the whole cell starts for the first time.
    pub new_cell: bool,
    /// Its wall clock, in milliseconds; does not go back across restarts.
    pub wall_millis: u64,
    /// Its disk, if it has one.
    pub disk: Option<&'a mut Disk>,
}

/// Delays and bounds of every node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tuning {
    /// After this long without a majority a round is given up at the latest.
    pub attempt_timeout: Duration,
    /// And not before this, however fast the network is.
    pub attempt_timeout_min: Duration,
    /// How long an acquire goes on trying without a majority for or against it.
    pub request_timeout: Duration,
    /// How long an idle entry is kept at least.
    pub reclaim_after: Duration,
    /// How much nodes spread out when a lease is freed.
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

/// What survives a crash: two files.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Disk {
    /// The last [`Output::Persist`] that reached the disk.
    pub record: Option<Vec<u8>>,
    /// What a clean stop left.
    pub snapshot: Option<Vec<u8>>,
}

/// One run of one node, from a start to a stop or crash.
pub trait Process {
    /// A peer's message arrived.
    fn handle_message(&mut self, now: Instant, from: NodeId, bytes: &[u8]);

    /// The time of [`Self::next_timeout`] has come, or is past.
    fn handle_timeout(&mut self, now: Instant);

    /// Housekeeping, now and then.
    fn handle_tick(&mut self, now: Instant);

    /// What [`Output::Persist`] asked for is on disk.
    fn handle_persisted(&mut self, now: Instant, record: &[u8]);

    /// A client asks for something. Answered by [`Output::Answer`], or never.
    fn handle_command(&mut self, now: Instant, token: Token, command: Command<'_>);

    /// P8: the client that sent this is gone.
    fn handle_gone(&mut self, now: Instant, token: Token, name: Name<'_>);

    /// What it does next.
    fn poll_output(&mut self) -> Option<Output>;

    /// When it wants to be woken.
    fn next_timeout(&self) -> Option<Instant>;

    /// What its acceptor stores for a name; `None` in a node that is none.
    fn view(&self, name: Name<'_>) -> Option<View>;

    /// Whether its acceptor is silent because it may have forgotten leases, and until when.
    fn quarantine_until(&self, now: Instant) -> Option<Instant>;

    /// A clean stop.
    fn stop(self, now: Instant, disk: Option<&mut Disk>);

    /// Requests and rounds it still keeps something for.
    fn in_flight(&self) -> usize;
}

/// What a client asks of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Command<'a> {
    /// A lease.
    Acquire {
        /// Of what.
        name: Name<'a>,
        /// How long.
        ttl: Duration,
        /// How long to wait while somebody else holds it.
        wait: Duration,
    },
    /// More of a lease it was granted.
    Renew {
        /// Of what.
        name: Name<'a>,
        /// Which.
        tenure: Tenure,
        /// How long.
        ttl: Duration,
    },
    /// An end of a lease it was granted.
    Release {
        /// Of what.
        name: Name<'a>,
        /// Which.
        tenure: Tenure,
        /// After this long it is over anyway.
        patience: Duration,
    },
}

/// What a process does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Output {
    /// Sends a message.
    Send(Packet),
    /// Writes its stable record.
    Persist(Vec<u8>),
    /// Answers a client.
    Answer(Token, Answer),
}

/// A message, and as much about it as the world may know.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Packet {
    /// Whom to.
    pub to: NodeId,
    /// What kind, for scripts: `Propose`.
    pub kind: &'static str,
    /// Whether it is an acceptor's answer, which a quarantined one must not give.
    pub is_reply: bool,
    /// The sender's own round it belongs to.
    pub round: Option<Ballot>,
    /// The message itself.
    pub bytes: Rc<[u8]>,
}

/// What a client is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// The lease is the client's.
    Granted {
        /// Which; its number is the fence.
        tenure: Tenure,
        /// How long others are excluded.
        ttl: Ttl,
        /// How long the request waited at the node before the round that won (T2).
        waited: Duration,
    },
    /// Somebody else holds it.
    Denied,
    /// No majority.
    NoQuorum,
    /// The lease goes on.
    Renewed {
        /// Which.
        tenure: Tenure,
        /// How long others are excluded.
        ttl: Ttl,
        /// When the round that renewed it began on the node's clock, which a holder beside the
        /// node counts from; `None` where the algorithm has no such holders.
        started_at: Option<Instant>,
    },
    /// The lease is over.
    NotHeld,
    /// The release is done.
    Released,
    /// The node did not take the request.
    Refused,
}

/// What an acceptor stores for a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct View {
    /// What no round for this name may be below.
    pub promised: Ballot,
    /// The lease accepted last, and when it expires on this acceptor's clock.
    pub accepted: Option<(Tenure, Instant)>,
}
