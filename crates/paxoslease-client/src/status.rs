//! The status that a node reports about itself and its cell: the fields that this client knows, and
//! all fields as received. Hints, a moment old when they are read.

use std::ops::Deref;
use std::time::Duration;

use paxoslease_holder::{PeerStatus, QueuedName, Rates, Status};
use serde::ser::{Serialize, Serializer};
use serde_json::Value;

/// The status of a node, from [`Client::status`](crate::Client::status).
///
/// It serialises all fields, known to this client or not.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct NodeStatus {
    /// The endpoint that the client asked.
    pub endpoint: String,
    /// The fields that this client knows. A field that the node did not send has its default.
    pub status: Status,
    /// All fields.
    pub fields: Value,
}

impl Deref for NodeStatus {
    type Target = Status;

    fn deref(&self) -> &Status {
        &self.status
    }
}

impl Serialize for NodeStatus {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.fields.serialize(serializer)
    }
}

impl NodeStatus {
    /// Reads the reply to CELL.STATUS. A field that is missing keeps its default: the hint of a
    /// newer or older node is better than no hint.
    pub(crate) fn new(endpoint: String, fields: Value) -> Self {
        let number = |key| number(&fields[key]);
        let text = |key| text(&fields[key]);
        let millis = |key| Duration::from_millis(number(key));
        let rates = &fields["rates"];
        let status = Status {
            cell: text("cell").unwrap_or_default(),
            node: id(&fields["node"]),
            role: text("role").and_then(|role| role.parse().ok()).unwrap_or_default(),
            members: list(&fields["members"]).iter().filter_map(member).collect(),
            max_lease: millis("max_lease_ms"),
            ready: fields["ready"].as_bool().unwrap_or_default(),
            quarantine_remaining: millis("quarantine_remaining_ms"),
            has_record: fields["has_record"].as_bool().unwrap_or(true),
            peers: list(&fields["peers"]).iter().map(peer).collect(),
            leases: number("leases"),
            acceptor_bytes: number("acceptor_bytes"),
            waiters: number("waiters"),
            waiting: list(&fields["waiting"]).iter().map(queued).collect(),
            guards: number("guards"),
            rounds_in_flight: number("rounds_in_flight"),
            rates: Rates {
                acquires: self::number(&rates["acquires"]),
                renewals: self::number(&rates["renewals"]),
                releases: self::number(&rates["releases"]),
            },
            longest_turn: Duration::from_micros(number("longest_turn_us")),
            shards: id(&fields["shards"]),
            disk_problem: text("disk_problem"),
            ballot_problem: text("ballot_problem"),
            ballots_remaining_ratio: fraction(&fields["ballots_remaining_ratio"]),
        };
        Self { endpoint, status, fields }
    }
}

/// RESP2 has no fractions, so nodes send them as text.
fn fraction(value: &Value) -> f64 {
    let from_text = || value.as_str().and_then(|text| text.parse().ok());
    value.as_f64().or_else(from_text).unwrap_or_default()
}

fn peer(fields: &Value) -> PeerStatus {
    PeerStatus {
        node: id(&fields["node"]),
        address: text(&fields["address"]),
        up: fields["up"].as_bool().unwrap_or_default(),
        rtt: fields["rtt_us"].as_u64().map(Duration::from_micros),
        quarantine_remaining: Duration::from_millis(number(&fields["quarantine_remaining_ms"])),
        problem: text(&fields["problem"]),
    }
}

fn queued(fields: &Value) -> QueuedName {
    QueuedName {
        name: text(&fields["name"]).unwrap_or_default(),
        waiters: number(&fields["waiters"]),
        holder: text(&fields["holder"]),
        fence: text(&fields["fence"]).and_then(|fence| fence.parse().ok()),
    }
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}

fn member(value: &Value) -> Option<u16> {
    u16::try_from(value.as_u64()?).ok()
}

fn id(value: &Value) -> u16 {
    member(value).unwrap_or_default()
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}
