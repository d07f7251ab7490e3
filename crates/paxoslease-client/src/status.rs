//! What a node says of itself and its cell: the fields this client knows, typed, and all of them
//! as they came. Hints, a moment old when they are read.

use std::time::Duration;

use serde::ser::{Serialize, SerializeMap, Serializer};

/// A node's view of its cell, from [`crate::Client::status`].
///
/// Serialises as everything the node said, known to this client or not.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct Status {
    /// Whom the client asked.
    pub endpoint: String,
    /// The cell's name.
    pub cell: String,
    /// The node that answered.
    pub node: u16,
    /// What it does in the cell: `member` or `proposer`.
    pub role: String,
    /// The members of the cell.
    pub members: Vec<u16>,
    /// The longest lease this cell grants.
    pub max_lease: Duration,
    /// Whether a majority of members is reachable from there.
    pub ready: bool,
    /// How long the node stays silent still after its restart.
    pub quarantine_remaining: Duration,
    /// Its peers.
    pub peers: Vec<PeerStatus>,
    /// Names its acceptor keeps, idle ones included.
    pub leases: u64,
    /// Requests there that wait for a lease.
    pub waiters: u64,
    /// Some of the names they wait for, the most wanted first.
    pub waiting: Vec<Wanted>,
    /// What the node got done for its users lately, per second.
    pub rates: Rates,
    /// What is wrong with its data folder, if anything.
    pub disk_problem: Option<String>,
    /// Everything it said, in its own order and words.
    pub fields: Value,
}

/// One peer, as seen from a node.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct PeerStatus {
    /// Which.
    pub node: u16,
    /// Where, for those the node knows an address of.
    pub address: Option<String>,
    /// Whether it is connected.
    pub up: bool,
    /// The way there and back, lately.
    pub rtt: Option<Duration>,
    /// How long it stays silent still after its restart, by its own word.
    pub quarantine_remaining: Duration,
    /// What went wrong last, if it is not connected.
    pub problem: Option<String>,
}

/// A name that requests of a node wait for.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Wanted {
    /// Which.
    pub name: String,
    /// How many requests wait for it there.
    pub waiters: u64,
    /// Who holds it, as far as that node knows.
    pub holder: Option<String>,
    /// The fence of that tenure.
    pub fence: Option<u64>,
}

/// What a node got done for its users, per second.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Rates {
    /// Leases granted.
    pub acquires: u64,
    /// Leases renewed.
    pub renewals: u64,
    /// Leases given back.
    pub releases: u64,
}

/// A value a node sent, for fields this client has no type for.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub enum Value {
    /// Nothing.
    Null,
    /// A truth value.
    Bool(bool),
    /// A whole number.
    Integer(i64),
    /// Any other number.
    Double(f64),
    /// A text; bytes that are no UTF-8 are replaced.
    Text(String),
    /// A list or set.
    List(Vec<Value>),
    /// A map, in the order it was sent.
    Map(Vec<(String, Value)>),
}

impl Value {
    /// What a map has under `key`.
    #[must_use]
    pub fn field(&self, key: &str) -> Option<&Self> {
        let Self::Map(pairs) = self else { return None };
        pairs.iter().find(|(known, _)| known == key).map(|(_, value)| value)
    }

    /// The text, if it is one.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        let Self::Text(text) = self else { return None };
        Some(text)
    }

    /// The number, if it is a whole one that is not negative.
    #[must_use]
    pub fn as_u64(&self) -> Option<u64> {
        let Self::Integer(number) = self else { return None };
        u64::try_from(*number).ok()
    }

    /// The truth value; RESP2 has only 0 and 1 for it.
    #[must_use]
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Bool(truth) => Some(*truth),
            Self::Integer(number @ (0 | 1)) => Some(*number == 1),
            _ => None,
        }
    }

    /// The list's values; none for anything else.
    #[must_use]
    pub fn as_list(&self) -> &[Self] {
        if let Self::List(values) = self { values } else { &[] }
    }
}

impl Status {
    /// Reads the reply to CELL.STATUS. What is missing stays empty: a hint of a newer or older
    /// node is better than none.
    pub(crate) fn new(endpoint: String, fields: Value) -> Self {
        let number = |key| fields.field(key).and_then(Value::as_u64).unwrap_or_default();
        let text = |key| fields.field(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let list = |key| fields.field(key).map(Value::as_list).unwrap_or_default();
        let id = |value: &Value| value.as_u64().and_then(|id| u16::try_from(id).ok());
        Self {
            endpoint,
            cell: text("cell"),
            node: fields.field("node").and_then(id).unwrap_or_default(),
            role: text("role"),
            members: list("members").iter().filter_map(id).collect(),
            max_lease: Duration::from_millis(number("max_lease_ms")),
            ready: fields.field("ready").and_then(Value::as_bool).unwrap_or_default(),
            quarantine_remaining: Duration::from_millis(number("quarantine_remaining_ms")),
            peers: list("peers").iter().map(PeerStatus::new).collect(),
            leases: number("leases"),
            waiters: number("waiters"),
            waiting: list("waiting").iter().map(Wanted::new).collect(),
            rates: fields.field("rates").map(Rates::new).unwrap_or_default(),
            disk_problem: fields.field("disk_problem").and_then(Value::as_str).map(str::to_owned),
            fields,
        }
    }
}

impl PeerStatus {
    fn new(fields: &Value) -> Self {
        let number = |key| fields.field(key).and_then(Value::as_u64);
        let text = |key| fields.field(key).and_then(Value::as_str).map(str::to_owned);
        Self {
            node: number("node").and_then(|id| u16::try_from(id).ok()).unwrap_or_default(),
            address: text("address"),
            up: fields.field("up").and_then(Value::as_bool).unwrap_or_default(),
            rtt: number("rtt_us").map(Duration::from_micros),
            quarantine_remaining: Duration::from_millis(
                number("quarantine_remaining_ms").unwrap_or_default(),
            ),
            problem: text("problem"),
        }
    }
}

impl Wanted {
    fn new(fields: &Value) -> Self {
        let text = |key| fields.field(key).and_then(Value::as_str);
        Self {
            name: text("name").unwrap_or_default().to_owned(),
            waiters: fields.field("waiters").and_then(Value::as_u64).unwrap_or_default(),
            holder: text("holder").map(str::to_owned),
            fence: text("fence").and_then(|fence| fence.parse().ok()),
        }
    }
}

impl Rates {
    fn new(fields: &Value) -> Self {
        let number = |key| fields.field(key).and_then(Value::as_u64).unwrap_or_default();
        Self {
            acquires: number("acquires"),
            renewals: number("renewals"),
            releases: number("releases"),
        }
    }
}

impl Serialize for Status {
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
