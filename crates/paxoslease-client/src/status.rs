//! The status that a node reports about itself and its cell: the fields that this client knows, and
//! all fields as received. Hints, a moment old when they are read.

use std::ops::Deref;
use std::time::Duration;

use paxoslease_holder::{PeerStatus, QueuedName, Rates, Status};
use serde::ser::{Serialize, SerializeMap, Serializer};

/// The status of a node, from [`crate::Client::status`].
///
/// It serialises all fields, known to this client or not.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct NodeStatus {
    /// The endpoint that the client asked.
    pub endpoint: String,
    /// The fields that this client knows. A field that the node did not send has its default.
    pub status: Status,
    /// All fields, in the order of the node.
    pub fields: Value,
}

impl Deref for NodeStatus {
    type Target = Status;

    fn deref(&self) -> &Status {
        &self.status
    }
}

/// A value that a node sent, of any type.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub enum Value {
    /// A null.
    Null,
    /// A boolean.
    Bool(bool),
    /// An integer.
    Integer(i64),
    /// A floating-point number.
    Double(f64),
    /// A string; invalid UTF-8 is replaced.
    Text(String),
    /// A list or set.
    List(Vec<Value>),
    /// A map, in the order of the node.
    Map(Vec<(String, Value)>),
}

impl Value {
    /// The value of `key`, if this is a map that has it.
    #[must_use]
    pub fn field(&self, key: &str) -> Option<&Self> {
        let Self::Map(pairs) = self else { return None };
        pairs.iter().find(|(known, _)| known == key).map(|(_, value)| value)
    }

    /// The string, if it is one.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        let Self::Text(text) = self else { return None };
        Some(text)
    }

    /// The integer, if it is one and not negative.
    #[must_use]
    pub fn as_u64(&self) -> Option<u64> {
        let Self::Integer(number) = self else { return None };
        u64::try_from(*number).ok()
    }

    /// The boolean; RESP2 sends 0 and 1 instead.
    #[must_use]
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Bool(truth) => Some(*truth),
            Self::Integer(number @ (0 | 1)) => Some(*number == 1),
            _ => None,
        }
    }

    /// The values of a list; empty for anything else.
    #[must_use]
    pub fn as_list(&self) -> &[Self] {
        if let Self::List(values) = self { values } else { &[] }
    }
}

impl NodeStatus {
    /// Reads the reply to CELL.STATUS. A field that is missing keeps its default: the hint of a
    /// newer or older node is better than no hint.
    pub(crate) fn new(endpoint: String, fields: Value) -> Self {
        let of = Fields(&fields);
        let list = |key| fields.field(key).map(Value::as_list).unwrap_or_default();
        let id = |value: &Value| value.as_u64().and_then(|id| u16::try_from(id).ok());
        let rates = fields.field("rates").map(|rates| Rates {
            acquires: Fields(rates).number("acquires"),
            renewals: Fields(rates).number("renewals"),
            releases: Fields(rates).number("releases"),
        });
        let status = Status {
            cell: of.text("cell").unwrap_or_default(),
            node: fields.field("node").and_then(id).unwrap_or_default(),
            role: of.text("role").and_then(|role| role.parse().ok()).unwrap_or_default(),
            members: list("members").iter().filter_map(id).collect(),
            max_lease: of.millis("max_lease_ms"),
            ready: of.truth("ready"),
            quarantine_remaining: of.millis("quarantine_remaining_ms"),
            peers: list("peers").iter().map(peer).collect(),
            leases: of.number("leases"),
            acceptor_bytes: of.number("acceptor_bytes"),
            waiters: of.number("waiters"),
            waiting: list("waiting").iter().map(queued).collect(),
            guards: of.number("guards"),
            rounds_in_flight: of.number("rounds_in_flight"),
            rates: rates.unwrap_or_default(),
            longest_turn: Duration::from_micros(of.number("longest_turn_us")),
            shards: u16::try_from(of.number("shards")).unwrap_or_default(),
            disk_problem: of.text("disk_problem"),
            ballot_problem: of.text("ballot_problem"),
            ballots_remaining_ratio: match fields.field("ballots_remaining_ratio") {
                Some(Value::Double(ratio)) => *ratio,
                _ => 0.0,
            },
        };
        Self { endpoint, status, fields }
    }
}

fn peer(fields: &Value) -> PeerStatus {
    let of = Fields(fields);
    PeerStatus {
        node: u16::try_from(of.number("node")).unwrap_or_default(),
        address: of.text("address"),
        up: of.truth("up"),
        rtt: fields.field("rtt_us").and_then(Value::as_u64).map(Duration::from_micros),
        quarantine_remaining: of.millis("quarantine_remaining_ms"),
        problem: of.text("problem"),
    }
}

fn queued(fields: &Value) -> QueuedName {
    let of = Fields(fields);
    QueuedName {
        name: of.text("name").unwrap_or_default(),
        waiters: of.number("waiters"),
        holder: of.text("holder"),
        fence: of.text("fence").and_then(|fence| fence.parse().ok()),
    }
}

/// A map that a node sent.
#[derive(Clone, Copy)]
struct Fields<'a>(&'a Value);

impl Fields<'_> {
    fn number(self, key: &str) -> u64 {
        self.0.field(key).and_then(Value::as_u64).unwrap_or_default()
    }

    fn millis(self, key: &str) -> Duration {
        Duration::from_millis(self.number(key))
    }

    fn text(self, key: &str) -> Option<String> {
        self.0.field(key).and_then(Value::as_str).map(str::to_owned)
    }

    fn truth(self, key: &str) -> bool {
        self.0.field(key).and_then(Value::as_bool).unwrap_or_default()
    }
}

impl Serialize for NodeStatus {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.fields.serialize(serializer)
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Bool(truth) => serializer.serialize_bool(*truth),
            Self::Integer(number) => serializer.serialize_i64(*number),
            Self::Double(number) => serializer.serialize_f64(*number),
            Self::Text(text) => serializer.serialize_str(text),
            Self::List(values) => serializer.collect_seq(values),
            Self::Map(pairs) => {
                let mut map = serializer.serialize_map(Some(pairs.len()))?;
                pairs.iter().try_for_each(|(key, value)| map.serialize_entry(key, value))?;
                map.end()
            }
        }
    }
}
