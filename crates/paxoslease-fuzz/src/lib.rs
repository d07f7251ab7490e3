//! What the fuzz targets do with the bytes they are given: everything that reads bytes from
//! outside, and two that read bytes as what happens to a shard and to a cell.
//!
//! Each is a function that panics where something is wrong, so that libFuzzer (`fuzz/`) and an
//! ordinary test over the kept corpora run the same. Nothing here knows of either.

mod bytes;
mod cell;
mod client;
mod config;
mod http;
mod liars;
mod panics;
mod peer;
mod rig;
mod session;

pub use bytes::{frame, hello, resp, snapshot, stable};
pub use cell::{cell, cell_by};
pub use client::client;
pub use config::config;
pub use http::http;
pub use liars::shard;
pub use peer::peer;
pub use rig::is_served;
pub use session::session;

/// Something that takes bytes from outside.
pub type Body = fn(&[u8]);

/// Every target by the name of its corpus.
pub const TARGETS: [(&str, Body); 12] = [
    ("cell", cell),
    ("client", client),
    ("config", config),
    ("frame", frame),
    ("hello", hello),
    ("http", http),
    ("peer", peer),
    ("resp", resp),
    ("session", session),
    ("shard", shard),
    ("snapshot", snapshot),
    ("stable", stable),
];
