//! Real processes on this machine, for benchmarks, chaos runs and tests: starts, measures and ends
//! them by their ids, with their own folders, ports and certificates. Also transcripts of tests.
#![expect(missing_docs, reason = "an API for this repository: no comment repeats a name")]

mod certificates;
pub mod clock;
mod folder;
pub mod interrupt;
mod ports;
mod process;
mod redis;
mod transcript;

pub use certificates::Certificates;
pub use folder::Folder;
pub use ports::free_ports;
pub use process::{Process, end_all, paxoslease_beside_this};
pub use redis::redis_server;
pub use transcript::check_transcript;
