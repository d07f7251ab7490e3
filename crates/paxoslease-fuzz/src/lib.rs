//! The fuzz targets: every decoder of bytes from outside, and three targets that read the input as
//! a sequence of steps for a shard, for a cell, and for the part of a node that learns its members.
//!
//! Each target is a function that panics when something is wrong, so that libFuzzer (`fuzz/`) and
//! an ordinary test over the kept corpora run the same code.

mod bytes;
mod cell;
mod client;
mod config;
mod daemon;
mod http;
mod members;
mod panics;
mod peer;
mod session;
mod shard;

pub use bytes::{frame, hello, resp, snapshot, stable};
pub use cell::{cell, cell_with_rules};
pub use client::client;
pub use config::config;
pub use daemon::daemons_answer;
pub use http::http;
pub use members::{FalseMembers, members, members_with_rules};
pub use peer::peer;
pub use session::session;
pub use shard::shard;

/// A fuzz target.
pub type Target = fn(&[u8]);

/// Every target with the name of its corpus.
pub const TARGETS: [(&str, Target); 13] = [
    ("cell", cell),
    ("client", client),
    ("config", config),
    ("frame", frame),
    ("hello", hello),
    ("http", http),
    ("members", members),
    ("peer", peer),
    ("resp", resp),
    ("session", session),
    ("shard", shard),
    ("snapshot", snapshot),
    ("stable", stable),
];
