//! A peer that is let in and then says anything: a real daemon greets a node that only proposes,
//! which goes on with arbitrary bytes.
//!
//! An input whose first byte is even is what it says; else it is the messages of one frame whose
//! envelope and header are sound.

use std::sync::atomic::{AtomicU64, Ordering};

use paxoslease::Config;
use paxoslease_core::{Cell, Drift, NodeId, Ttl};
use paxoslease_wire::{CellName, FrameWriter, Hello, ShardId, VERSION};

use crate::bytes::set_len;
use crate::rig::{CELL, MAX_LEASE, PATIENCE, converse, rig};

/// What a node that belongs to the cell says to another, and then says no more.
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
    let heard = converse(rig().peers, &out, true, PATIENCE);
    assert!(!heard.is_whole() || !heard.bytes.is_empty(), "it was not even greeted");
}

fn hello() -> Hello<'static> {
    /// Each conversation is another boot: one that is over is not listened to again.
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
    }
}

fn node(id: u16) -> NodeId {
    NodeId::new(id).expect("in bounds")
}
