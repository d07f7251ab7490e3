//! The daemon: a [`paxoslease_node::Node`] that serves clients elsewhere.
//!
//! Protocol state is the node's. A lease belongs to whoever has its name and fence, not to a
//! connection, so nothing here has to outlive one.

pub mod http;
pub mod metrics;

mod access;
mod quota;
mod resp;
mod server;

pub use access::Gate;
pub use server::{Lasting, ReloadError, Reloaded, Server, StartError};
