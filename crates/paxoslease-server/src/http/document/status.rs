//! The status of a cell as JSON. The holder's crate serialises it; a test compares the two.

#![expect(dead_code, reason = "describes what another crate serialises")]

use utoipa::ToSchema;

/// How this node sees itself and its cell.
#[derive(ToSchema)]
pub(in crate::http) struct CellStatus {
    /// The cell's name.
    cell: String,
    /// This node.
    node: u16,
    /// `member`, or `proposer`: it takes leases and votes on none.
    role: String,
    /// The members of the cell.
    members: Vec<u16>,
    /// The longest lease this cell grants.
    max_lease_ms: u64,
    /// Whether a majority of members that vote is reachable from here, this node included, and
    /// ballots can be issued.
    ready: bool,
    /// How long this node stays silent still after its restart.
    quarantine_remaining_ms: u64,
    peers: Vec<Peer>,
    /// Names this node's acceptor keeps, idle ones included.
    leases: u64,
    /// Heap bytes behind these.
    acceptor_bytes: u64,
    /// Requests here that wait for a lease.
    waiters: u64,
    /// Some of the names they wait for, the most wanted first.
    waiting: Vec<Wanted>,
    /// Leases held by guards of this process.
    guards: u64,
    /// Rounds in flight.
    rounds_in_flight: u64,
    rates: Rates,
    /// The longest a thread of this node took between two looks at its sockets, since the start.
    longest_turn_us: u64,
    /// How many threads share the names.
    shards: u16,
    /// What is wrong with the data folder, if anything.
    disk_problem: Option<String>,
    /// Why this node cannot begin rounds, if it cannot.
    ballot_problem: Option<String>,
    /// How much of the space of ballot counters is left: 1 for all of it, 0 for none.
    ballots_remaining_ratio: f64,
}

/// One peer, as seen from this node.
#[derive(ToSchema)]
struct Peer {
    node: u16,
    /// Where, for those this node knows an address of.
    address: Option<String>,
    /// Whether it is connected, with all its shards.
    up: bool,
    /// The way there and back, lately.
    rtt_us: Option<u64>,
    /// How long it stays silent still after its restart, by its own word.
    quarantine_remaining_ms: u64,
    /// What went wrong last, if it is not connected.
    problem: Option<String>,
}

/// A name that requests of this node wait for.
#[derive(ToSchema)]
struct Wanted {
    name: String,
    /// How many requests wait for it here.
    waiters: u64,
    /// Who holds it, as far as this node knows.
    holder: Option<String>,
    /// The fence of that tenure.
    fence: Option<String>,
}

/// What this node got done for its users lately, per second.
#[derive(ToSchema)]
struct Rates {
    acquires: u64,
    renewals: u64,
    releases: u64,
}
