//! What the benchmark and the processes of its cell say to each other: a line of JSON each way.
//!
//! An order is answered when it was carried out, with [`Answer::Failed`] if it could not be.

use std::net::SocketAddr;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// What a process is told to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    Status,
    /// What it used of the machine so far.
    Usage,
    /// Acquire and release one name after the other on this thread, and time the acquires.
    Acquire {
        count: u32,
    },
    /// Answer pings on a thread of its own.
    Echo(Pinging),
    /// Ping the process that answers there, and time the answers.
    Ping {
        at: SocketAddr,
        count: u32,
        pinging: Pinging,
    },
    /// Acquire and release names until told to stop.
    StartLoad(Load),
    StopLoad,
    /// Acquire this many more leases, and hold them.
    Fill {
        leases: u32,
        ttl: Duration,
    },
    /// How many of those are held still.
    Held,
    /// Stop the node and leave.
    Shutdown,
}

/// How pings are sent: as the frames of an acquire are.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Pinging {
    pub(crate) ping_len: usize,
    pub(crate) pong_len: usize,
    /// How long to look before blocking.
    pub(crate) spin: Duration,
}

/// A closed loop: this many requests are always under way.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Load {
    pub(crate) in_flight: u32,
    /// How many names it goes round in.
    pub(crate) names: u32,
    pub(crate) ttl: Duration,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    Done,
    Failed(String),
    Echoing(SocketAddr),
    Timed(Spans),
    Loaded(Loaded),
    Status(NodeStatus),
    Usage(Usage),
    Held { held: u32, lost: u32 },
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct NodeStatus {
    pub(crate) quarantine_remaining: Duration,
    /// Peers it is connected to.
    pub(crate) peers_up: usize,
    pub(crate) leases: u64,
    pub(crate) acceptor_bytes: u64,
    pub(crate) longest_turn: Duration,
}

/// What a load came to.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Loaded {
    pub(crate) pairs: u64,
    pub(crate) failures: u64,
    pub(crate) took: Duration,
    /// The longest time without a successful acquire.
    pub(crate) gap: Duration,
    /// What the load itself cost, the node's threads not counted.
    pub(crate) cpu: Duration,
    /// From asking for a lease to having given it back, of a sample of the pairs.
    pub(crate) spans: Spans,
}

/// What a process used so far.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Usage {
    pub(crate) cpu: Duration,
    pub(crate) resident_bytes: u64,
    /// How often a thread of it went to sleep.
    pub(crate) sleeps: u64,
    /// Messages sent to peers.
    pub(crate) messages: u64,
    pub(crate) renewals: u64,
    pub(crate) pauses: u64,
}

/// How long something took, many times over.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Spans {
    pub(crate) p50: Duration,
    pub(crate) p99: Duration,
    pub(crate) max: Duration,
}

/// A histogram of nanoseconds, within a thousandth, up to a minute.
pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new_with_max(60_000_000_000, 3).expect("three digits are within bounds")
}

impl Spans {
    pub(crate) fn of(nanos: &Histogram<u64>) -> Self {
        let at = |quantile| Duration::from_nanos(nanos.value_at_quantile(quantile));
        Self { p50: at(0.5), p99: at(0.99), max: Duration::from_nanos(nanos.max()) }
    }
}
