//! The RESP commands of a client: requests to bytes, replies to values.
//!
//! Checks only the form of a reply. The engine bounds what a reply may promise. There is no
//! connection and no time here.

use std::num::NonZeroU8;
use std::time::Duration;

use paxoslease_core::{Drift, Label, MEMBERS_MAX, Name, Permits, Tenure, Ttl};
use paxoslease_holder::transport::Span;
use paxoslease_holder::{AskError, Change, LeaseInfo, Limit, Quarantine};
use paxoslease_wire::resp::{self, Value, put_array, put_bulk, put_bulk_integer};

use crate::builder;
use crate::list::Page;

/// How a node queues an acquire.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueOptions {
    pub(crate) wait_ms: u64,
    /// The node repeats it when it pushes the result.
    pub(crate) number: u64,
}

#[derive(Clone, Copy)]
pub(crate) enum Word<'a> {
    Text(&'a str),
    Number(u64),
}

pub(crate) fn put(out: &mut Vec<u8>, words: &[Word<'_>]) {
    put_array(out, words.len());
    for word in words {
        match word {
            Word::Text(text) => put_bulk(out, text.as_bytes()),
            Word::Number(number) => put_bulk_integer(out, *number),
        }
    }
}

pub(crate) fn put_acquire(
    out: &mut Vec<u8>,
    label: &Label,
    span: Span,
    permits: Option<Permits>,
    options: Option<QueueOptions>,
) {
    use Word::{Number, Text};
    let (name, holder) = (label.name().as_str(), label.holder().to_text());
    let mut words = vec![Text("LEASE.ACQUIRE"), Text(name), millis(span)];
    words.extend([Text("HOLDER"), Text(&holder)]);
    words.extend(span.lasts.map(|_| DURABLE));
    if let Some(permits) = permits {
        words.extend([Text("PERMITS"), Number(permits.count().get().into())]);
    }
    if let Some(QueueOptions { wait_ms, number }) = options {
        words.extend([Text("WAIT"), Number(wait_ms), Text("NOTIFY"), Number(number)]);
    }
    put(out, &words);
}

pub(crate) fn put_renew(out: &mut Vec<u8>, label: &Label, tenure: Tenure, span: Span) {
    let (name, fence) = (Word::Text(label.name().as_str()), Word::Number(tenure.fence()));
    let words = [Word::Text("LEASE.RENEW"), name, fence, millis(span), DURABLE];
    put(out, &words[..if span.lasts.is_some() { 5 } else { 4 }]);
}

const DURABLE: Word<'_> = Word::Text("DURABLE");

/// Zero for ever.
fn millis(span: Span) -> Word<'static> {
    Word::Number(match span.lasts {
        Some(lasts) => lasts.as_millis().unwrap_or(0),
        None => span.ttl.as_millis().into(),
    })
}

/// The reply to a renewal of a durable lease: its fence, which may be higher than before.
pub(crate) fn parse_kept(reply: Value<'_>) -> Option<Tenure> {
    let mut items = reply.items()?;
    let tenure = Tenure::from_fence(items.next()?.decimal()?)?;
    items.next()?.decimal().map(|_millis| tenure)
}

pub(crate) fn put_get(out: &mut Vec<u8>, name: &str) {
    put(out, &[Word::Text("LEASE.GET"), Word::Text(name)]);
}

pub(crate) fn put_status(out: &mut Vec<u8>) {
    put(out, &[Word::Text("CELL.STATUS")]);
}

/// Asks for the greeting again, which names the current members.
pub(crate) fn put_hello_again(out: &mut Vec<u8>) {
    put(out, &[Word::Text("HELLO")]);
}

/// Introduces the client. The token comes first: a node that requires one answers no other command
/// before. Each of token and name has a reply of its own, before and after the greeting.
pub(crate) fn put_hello(out: &mut Vec<u8>, token: Option<&str>, name: Option<&str>) {
    if let Some(token) = token {
        put(out, &[Word::Text("AUTH"), Word::Text(token)]);
    }
    put(out, &[Word::Text("HELLO"), Word::Text("3"), Word::Text("FOLLOW")]);
    if let Some(name) = name {
        put(out, &[Word::Text("CLIENT"), Word::Text("SETNAME"), Word::Text(name)]);
    }
}

/// Why a node refused a request, by the first word of its error.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    NotHeld,
    /// The lease is over, and it is not known which of several releases ended it.
    Unknown,
    /// The ttl is out of the cell's bounds.
    Ttl,
    /// The node is about to stop.
    Stopping,
    /// Another node may be able to serve the request.
    Elsewhere(AskError),
    /// Every node would refuse the request.
    Final(AskError),
}

impl Refusal {
    pub(crate) fn new(text: &[u8]) -> Self {
        let text = String::from_utf8_lossy(text);
        let (word, rest) = text.split_once(' ').unwrap_or((&text, ""));
        let rest = rest.to_owned();
        match word {
            "NOTHELD" => Self::NotHeld,
            "UNKNOWN" => Self::Unknown,
            "TTL" => Self::Ttl,
            "NOQUORUM" => Self::Elsewhere(AskError::NoQuorum(rest.into())),
            "QUARANTINE" => Self::Elsewhere(match Quarantine::parse(&rest) {
                Some(quarantine) => AskError::Quarantine(quarantine),
                None => AskError::NoQuorum(rest.into()),
            }),
            "STOPPING" => Self::Stopping,
            "BUSY" => Self::Final(busy(rest)),
            "NOTDURABLE" => Self::Final(AskError::NotDurable(rest)),
            "NOAUTH" | "WRONGPASS" => {
                // What follows the problem is advice for clients that speak RESP by hand.
                let problem = rest.split("; ").next().unwrap_or_default();
                Self::Final(AskError::Unauthenticated(problem.to_owned()))
            }
            "NOPERM" => Self::Final(AskError::Denied(rest)),
            _ => Self::Final(AskError::Protocol(text.into_owned())),
        }
    }

    /// The error of a request that concerns no lease of this client.
    pub(crate) fn into_ask_error(self) -> AskError {
        match self {
            Self::Elsewhere(error) | Self::Final(error) => error,
            Self::NotHeld => AskError::Protocol("NOTHELD for a request without a tenure".into()),
            Self::Unknown => AskError::Protocol("UNKNOWN for a request that ends no lease".into()),
            Self::Ttl => AskError::Protocol("TTL for a request without a ttl".into()),
            Self::Stopping => busy("it is stopping".into()),
        }
    }
}

/// A limit begins with its name and a colon.
fn busy(text: String) -> AskError {
    let named = text.split_once(": ");
    match named.and_then(|(name, problem)| Some((Limit::from_name(name)?, problem))) {
        Some((limit, problem)) => {
            AskError::Busy { limit: Some(limit), problem: problem.to_owned() }
        }
        None => AskError::Busy { limit: None, problem: text },
    }
}

/// How many members a node may report: those of both sets during a change.
const REPORTED_MAX: usize = 2 * MEMBERS_MAX;

/// What a node says about itself in its reply to HELLO.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Greeting {
    pub(crate) cell: String,
    pub(crate) node: u16,
    pub(crate) drift: Drift,
    pub(crate) max_lease: Ttl,
    /// The epoch of the members.
    pub(crate) epoch: u32,
    /// Where clients reach them, as far as the node knows.
    pub(crate) members: Vec<String>,
}

impl Greeting {
    /// # Errors
    /// When the server is not a PaxosLease node, or its clock drift is out of bounds.
    pub(crate) fn new(reply: Value<'_>) -> Result<Self, AskError> {
        let bad = |what: String| AskError::Protocol(what);
        if let Value::Error(text) = reply {
            return Err(Refusal::new(text).into_ask_error());
        }
        let server = reply.field(b"server").and_then(Value::bytes).unwrap_or_default();
        if server != b"paxoslease" {
            let server = String::from_utf8_lossy(server);
            return Err(bad(format!("the server calls itself {server:?}, not paxoslease")));
        }
        let number = |key: &str| {
            let found = reply.field(key.as_bytes()).and_then(Value::integer);
            let found = found.and_then(|number| u32::try_from(number).ok());
            found.ok_or_else(|| bad(format!("its greeting lacks {key}")))
        };
        let granularity = Duration::from_micros(u64::from(number("clock_granularity_us")?));
        let drift = Drift::new(number("clock_drift_ppm")?, granularity);
        let max_lease = Ttl::from_millis(number("max_lease_ms")?);
        let members = reply.field(b"members").and_then(Value::items);
        let members = members.ok_or_else(|| bad("its greeting lacks members".into()))?;
        Ok(Self {
            cell: text(reply.field(b"cell"))
                .ok_or_else(|| bad("its greeting lacks cell".into()))?,
            node: u16::try_from(number("node")?)
                .map_err(|_| bad("its node id is out of bounds".into()))?,
            drift: drift.ok_or_else(|| bad("its clocks drift too much for leases".into()))?,
            max_lease: max_lease.ok_or_else(|| bad("its max_lease is out of bounds".into()))?,
            epoch: number("epoch")?,
            // The client cannot dial an address that is not an endpoint.
            members: members
                .take(REPORTED_MAX)
                .filter_map(|address| builder::endpoint(&text(Some(address))?).ok())
                .collect(),
        })
    }
}

/// A grant as the node sent it. The engine has not checked it yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Granted {
    pub(crate) tenure: Tenure,
    pub(crate) ttl: Ttl,
    pub(crate) waited: Duration,
    /// The number of the permit, if the name is that of one.
    pub(crate) permit: Option<NonZeroU8>,
}

impl Granted {
    /// The items are fence, ttl, the time in the queue and, for a semaphore, the permit's name.
    pub(crate) fn new(mut items: resp::Items<'_>) -> Option<Self> {
        let mut number = || items.next()?.decimal();
        let tenure = Tenure::from_fence(number()?)?;
        // Zero for ever. The engine caps it by what it asked for.
        let ttl = parse_ttl(number()?).unwrap_or(Ttl::MAX);
        let waited = Duration::from_millis(number()?);
        let name = items.next().and_then(|name| Name::from_bytes(name.bytes()?).ok());
        let permit = name.and_then(Name::as_permit).map(|(_, number)| number);
        Some(Self { tenure, ttl, waited, permit })
    }
}

/// A ttl in milliseconds. A longer one than `Ttl::MAX` becomes that, and the engine caps it later.
pub(crate) fn parse_ttl(number: u64) -> Option<Ttl> {
    Ttl::from_millis(u32::try_from(number).unwrap_or(u32::MAX))
}

/// A message without a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Push {
    Granted(u64, Granted),
    /// The wait with this number is over.
    Timeout(u64),
    Change(Change),
    /// The members of the cell have changed.
    Members,
}

impl Push {
    /// `None` for a kind that this client does not know: a newer node may send more kinds.
    pub(crate) fn new(mut items: resp::Items<'_>) -> Option<Self> {
        let kind = items.next()?.bytes()?;
        match kind {
            b"lease.granted" => {
                let id = items.next()?.decimal()?;
                Some(Self::Granted(id, Granted::new(items)?))
            }
            b"lease.timeout" => Some(Self::Timeout(items.next()?.decimal()?)),
            b"cell.changed" => Some(Self::Members),
            b"lease.held" => {
                let (name, holder) = (text(items.next())?, text(items.next())?);
                let seen = lease_info(name, holder, items.next(), items.next())?;
                Some(Self::Change(Change::Held(seen)))
            }
            b"lease.freed" => Some(Self::Change(Change::Freed { name: text(items.next())? })),
            b"lease.expired" => {
                let name = text(items.next())?;
                let fence = items.next()?.decimal()?;
                Some(Self::Change(Change::Expired { name, fence }))
            }
            b"lease.missed" => {
                let count = items.next()?.decimal()?;
                Some(Self::Change(Change::Missed(count)))
            }
            _ => None,
        }
    }
}

fn text(value: Option<Value<'_>>) -> Option<String> {
    value?.bytes().map(|bytes| String::from_utf8_lossy(bytes).into_owned())
}

fn lease_info(
    name: String,
    holder: String,
    fence: Option<Value<'_>>,
    ttl_ms: Option<Value<'_>>,
) -> Option<LeaseInfo> {
    let ttl_ms = ttl_ms?;
    let remaining = match ttl_ms.integer() {
        Some(-1) => Duration::MAX,
        _ => Duration::from_millis(ttl_ms.decimal()?),
    };
    Some(LeaseInfo { name, holder, fence: fence?.decimal()?, remaining })
}

pub(crate) fn parse_get(name: &str, reply: Value<'_>) -> Result<Option<LeaseInfo>, AskError> {
    if reply == Value::Null {
        return Ok(None);
    }
    let holder = text(reply.field(b"holder")).unwrap_or_default();
    let found = lease_info(name.into(), holder, reply.field(b"fence"), reply.field(b"ttl_ms"));
    found.map(Some).ok_or_else(|| unexpected("LEASE.GET"))
}

pub(crate) fn parse_list(session: u64, reply: Value<'_>) -> Result<Page, AskError> {
    let bad = || unexpected("LEASE.LIST");
    let mut items = reply.items().ok_or_else(bad)?;
    let cursor = text(items.next()).ok_or_else(bad)?;
    let cursor = (cursor != "0").then(|| cursor.into());
    let entry = |entry: Value<'_>| {
        let field = |key: &[u8]| entry.field(key);
        let (name, holder) = (text(field(b"name"))?, text(field(b"holder"))?);
        lease_info(name, holder, field(b"fence"), field(b"ttl_ms"))
    };
    let entries = items.next().and_then(Value::items).ok_or_else(bad)?;
    let leases = entries.map(entry).collect::<Option<Vec<_>>>().ok_or_else(bad)?;
    Ok(Page { session, cursor, leases })
}

/// A copy of any reply. Invalid UTF-8 is replaced.
pub(crate) fn owned_value(value: Value<'_>) -> serde_json::Value {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match value {
        Value::Null => serde_json::Value::Null,
        Value::Boolean(truth) => truth.into(),
        Value::Integer(number) => number.into(),
        Value::Double(number) => number.into(),
        Value::Simple(bytes) | Value::Bulk(bytes) | Value::Error(bytes) => text(bytes).into(),
        Value::Array(items) | Value::Push(items) => items.map(owned_value).collect(),
        Value::Map(items) => {
            let pair = |(key, value): (Value<'_>, Value<'_>)| {
                (text(key.bytes().unwrap_or_default()), owned_value(value))
            };
            items.pairs().map(pair).collect()
        }
    }
}

pub(crate) fn unexpected(command: &str) -> AskError {
    AskError::Protocol(format!("the reply to {command} does not have its form"))
}
