//! The status that a node reports about itself and its cell: the fields that this client knows, and
//! all fields as received. Hints, a moment old when they are read.

use std::ops::Deref;
use std::time::Duration;

use paxoslease_holder::{ChangeStatus, PeerStatus, QueuedName, Rates, Status};
use serde::{Deserialize, Serialize, Serializer};
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
        let millis = |key| Duration::from_millis(field(&fields, key));
        let status = Status {
            cell: field(&fields, "cell"),
            node: field(&fields, "node"),
            role: field::<String>(&fields, "role").parse().unwrap_or_default(),
            members: list(&fields["members"]).iter().filter_map(parse).collect(),
            membership: parse(&fields["membership"]).unwrap_or_default(),
            epoch: field(&fields, "epoch"),
            change: Some(&fields["change"]).filter(|change| change.is_object()).map(change),
            clients: field(&fields, "clients"),
            max_lease: millis("max_lease_ms"),
            ready: field(&fields, "ready"),
            quarantine_remaining: millis("quarantine_remaining_ms"),
            has_record: parse(&fields["has_record"]).unwrap_or(true),
            peers: list(&fields["peers"]).iter().map(peer).collect(),
            leases: field(&fields, "leases"),
            acceptor_bytes: field(&fields, "acceptor_bytes"),
            durable: field(&fields, "durable"),
            durable_unsettled: field(&fields, "durable_unsettled"),
            durable_free: field(&fields, "durable_free"),
            waiters: field(&fields, "waiters"),
            waiting: list(&fields["waiting"]).iter().map(queued).collect(),
            guards: field(&fields, "guards"),
            rounds_in_flight: field(&fields, "rounds_in_flight"),
            rates: rates(&fields["rates"]),
            longest_turn: Duration::from_micros(field(&fields, "longest_turn_us")),
            shards: field(&fields, "shards"),
            disk_problem: field(&fields, "disk_problem"),
            ballot_problem: field(&fields, "ballot_problem"),
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
        node: field(fields, "node"),
        address: field(fields, "address"),
        up: field(fields, "up"),
        rtt: parse(&fields["rtt_us"]).map(Duration::from_micros),
        quarantine_remaining: Duration::from_millis(field(fields, "quarantine_remaining_ms")),
        problem: field(fields, "problem"),
        clients: field(fields, "clients"),
    }
}

fn change(fields: &Value) -> ChangeStatus {
    let ids = |key| list(&fields[key]).iter().filter_map(parse).collect();
    ChangeStatus {
        to: ids("to"),
        wait_remaining: Duration::from_millis(field(fields, "wait_remaining_ms")),
        registers: field(fields, "registers"),
        leads: field(fields, "leads"),
        adopted: ids("adopted"),
    }
}

fn queued(fields: &Value) -> QueuedName {
    QueuedName {
        name: field(fields, "name"),
        waiters: field(fields, "waiters"),
        holder: field(fields, "holder"),
        fence: field::<String>(fields, "fence").parse().ok(),
    }
}

fn rates(fields: &Value) -> Rates {
    Rates {
        acquires: field(fields, "acquires"),
        renewals: field(fields, "renewals"),
        releases: field(fields, "releases"),
    }
}

/// `None` for a value of another type.
fn parse<'a, T: Deserialize<'a>>(value: &'a Value) -> Option<T> {
    T::deserialize(value).ok()
}

fn field<'a, T: Deserialize<'a> + Default>(fields: &'a Value, key: &str) -> T {
    parse(&fields[key]).unwrap_or_default()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}
