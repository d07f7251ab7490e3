//! A PaxosLease node to embed in a service.
//!
//! The nodes of the service *are* the cell: each embeds a [`Node`], together they agree who holds
//! which lease, and no other service is needed.

mod acquire;
mod blocking;
mod clock;
mod command;
mod config;
mod driver;
mod error;
mod event_loop;
mod lease;
mod mailbox;
mod node;
mod stable;
mod status;
mod ticket;
mod tls;
mod watch;

pub use acquire::{Acquire, Acquiring};
pub use config::{
    AddressError, Config, ConfigError, DurationError, Limits, Listen, LoadError, Role, Timing, Tls,
    TomlError, UnknownRole, parse_duration,
};
pub use error::{AcquireError, AskError, ReleaseError};
pub use lease::{LeaseGuard, LeaseState};
pub use node::{Node, StartError};
pub use paxoslease_core::{TextError, TtlError};
pub use stable::StableError;
pub use status::{PeerStatus, Status};
pub use tls::TlsError;
pub use watch::{Change, Sighting, Watch};
