//! A peer that sends arbitrary bytes: a proposer-only node greets a real daemon and continues with
//! the input.
//!
//! If the first byte of the input is even, the rest is sent as it is. Otherwise the rest is the
//! messages of one frame with a valid envelope and header.

use std::sync::atomic::{AtomicU64, Ordering};

use paxoslease_core::{Birth, Cell, Drift, Ttl};
use paxoslease_node::Config;
use paxoslease_wire::{CellName, ClientAddress, FrameWriter, Hello, ListUse, ShardId, VERSION};

use crate::bytes::set_len;
use crate::daemon::{CELL, MAX_LEASE, REPLY_TIMEOUT, exchange, open_daemon};
use crate::shard::node;

/// Sends a greeting and the input, then closes its side.
pub fn peer(bytes: &[u8]) {
    let Some((kind, said)) = bytes.split_first() else { return };
    let mut out = Vec::new();
    hello().encode(&mut out);
    if kind % 2 == 0 {
        out.extend_from_slice(said);
    } else {
        let mut frame = FrameWriter::new(node(2)).finish(7).to_vec();
        frame.extend_from_slice(said);
        if set_len(&mut frame) {
            out.extend_from_slice(&frame);
        }
    }
    let reply = exchange(open_daemon().peers, &out, true, REPLY_TIMEOUT);
    assert!(!reply.is_whole() || !reply.bytes.is_empty(), "no greeting came back");
}

fn hello() -> Hello<'static> {
    /// Each connection has another boot: a daemon ignores an older one.
    static BOOTS: AtomicU64 = AtomicU64::new(1);
    let config = Config::new(CELL, 2);
    let drift = Drift::new(config.clock_drift_ppm, config.clock_granularity).expect("in bounds");
    let max_lease = Ttl::from_duration(MAX_LEASE).expect("in bounds");
    Hello {
        version: VERSION,
        cell_name: CellName::new(CELL).expect("in bounds"),
        cell: Cell::new(&[node(1)], max_lease, drift).expect("a cell of one"),
        node: node(2),
        boot: BOOTS.fetch_add(1, Ordering::Relaxed),
        shard: ShardId::WHOLE,
        list: ListUse::Follows,
        birth: Birth::UNKNOWN,
        epoch: 0,
        clients: ClientAddress::new("").expect("in bounds"),
        durable_leases: config.durable_leases,
    }
}
