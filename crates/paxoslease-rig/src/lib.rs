//! Real processes on this machine, for benchmarks, chaos runs and tests: started, measured and
//! ended by their ids, with folders, ports and certificates of their own.
//!
//! Knows how to start and end a program, and nothing about what the program does.

mod certificates;
pub mod clock;
mod folder;
pub mod interrupt;
mod ports;
mod process;

pub use certificates::Certificates;
pub use folder::Folder;
pub use ports::free_ports;
pub use process::{Process, end_all, paxoslease_beside_this};
