//! The daemon: a [`paxoslease::Node`] that serves clients elsewhere.
//!
//! Protocol state is the node's. A lease belongs to whoever has its name and fence, not to a
//! connection, so nothing here has to outlive one.

pub mod http;
pub mod metrics;

mod resp;
mod server;

pub use server::{Server, StartError};
