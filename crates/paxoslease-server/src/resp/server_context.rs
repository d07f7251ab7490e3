//! What the sessions of all shards share: the configuration, bounds, and the gate.

use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::time::Duration;

use paxoslease_wire::resp::{Protocol, put_array, put_bulk, put_integer};

use super::redis::{Scripts, WAITS_MAX};
use crate::limits::WATCHERS_MAX;
use crate::{Config, Gate};

/// A client that reads nothing for this long, although there are bytes for it, is disconnected.
const SLOW_READER_AFTER: Duration = Duration::from_secs(60);

/// A client that has not finished a request this long after it began is disconnected.
const PARTIAL_REQUEST_AFTER: Duration = Duration::from_secs(30);

/// Where tokens are required, a client is disconnected that has sent none this long after it
/// connected or its token was removed.
const UNAUTHENTICATED_AFTER: Duration = Duration::from_secs(10);

pub(super) struct ServerContext {
    pub(super) config: Config,
    /// [`WATCHERS_MAX`], except in tests: patterns that all sessions of one shard watch.
    pub(super) watched_max: usize,
    /// [`WAITS_MAX`], except in tests: commands of one session that wait for a free lock.
    pub(super) waits_max: usize,
    /// [`SLOW_READER_AFTER`], except in tests, as the next two.
    pub(super) slow_reader_after: Duration,
    pub(super) partial_request_after: Duration,
    pub(super) unauthenticated_after: Duration,
    pub(super) gate: Gate,
    pub(super) connections: AtomicUsize,
    pub(super) ids: AtomicU64,
    /// The scripts of the Redis dialect.
    pub(super) scripts: Scripts,
    /// The most steps that a turn of any shard took.
    pub(super) turn_steps_max: AtomicUsize,
}

impl ServerContext {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            config: config.clone(),
            watched_max: WATCHERS_MAX as usize,
            waits_max: WAITS_MAX,
            slow_reader_after: SLOW_READER_AFTER,
            partial_request_after: PARTIAL_REQUEST_AFTER,
            unauthenticated_after: UNAUTHENTICATED_AFTER,
            gate: Gate::default(),
            connections: AtomicUsize::new(0),
            ids: AtomicU64::new(0),
            scripts: Scripts::default(),
            turn_steps_max: AtomicUsize::new(0),
        }
    }

    /// The reply to `HELLO`, with the epoch and where clients reach its members.
    pub(super) fn put_hello(
        &self,
        id: u64,
        (epoch, members): &(u32, Vec<&str>),
        protocol: Protocol,
        out: &mut Vec<u8>,
    ) {
        let millis = |span: Duration| i64::try_from(span.as_millis()).unwrap_or(i64::MAX);
        // Rounded up: a client that allows for a greater error believes for a shorter time.
        let micros_up =
            |span: Duration| i64::try_from(span.as_nanos().div_ceil(1000)).unwrap_or(i64::MAX);
        let node = &self.config.node;
        protocol.put_map(out, 14);
        let texts = [
            ("server", "paxoslease"),
            ("version", env!("CARGO_PKG_VERSION")),
            ("mode", "cell"),
            ("role", &node.role.to_string()),
            ("cell", &node.cell),
        ];
        for (key, text) in texts {
            put_bulk(out, key.as_bytes());
            put_bulk(out, text.as_bytes());
        }
        let numbers = [
            ("proto", i64::from(protocol.number())),
            ("id", id.cast_signed()),
            ("node", i64::from(node.node)),
            ("max_lease_ms", millis(node.max_lease)),
            ("clock_drift_ppm", i64::from(node.clock_drift_ppm)),
            ("clock_granularity_us", micros_up(node.clock_granularity)),
            ("epoch", i64::from(*epoch)),
        ];
        for (key, number) in numbers {
            put_bulk(out, key.as_bytes());
            put_integer(out, number);
        }
        put_bulk(out, b"members");
        put_array(out, members.len());
        members.iter().for_each(|address| put_bulk(out, address.as_bytes()));
        put_bulk(out, b"modules");
        put_array(out, 0);
    }
}
