//! The daemon: a [`paxoslease_node::Node`] that serves clients in other processes.
//!
//! The node keeps all protocol state. A lease belongs to the client that has its name and fence,
//! not to a connection, so nothing in this crate outlives a connection.

pub mod http;
pub mod metrics;

mod access;
mod audit;
mod config;
mod durable;
mod limits;
mod quota;
mod resp;
mod server;
mod text;

pub use access::Gate;
pub use config::{
    Access, ClientTls, Config, ConfigError, NamePattern, PatternError, ServerLimits, ServerListen,
    TokenHash, TokenHashError, UnknownClientTls, UnknownVerb, Verb,
};
#[doc(hidden)]
pub use resp::front_ends;
pub use server::{Lasting, ReloadError, Reloaded, Server, StartError};
#[doc(hidden)]
pub use text::is_hidden;
