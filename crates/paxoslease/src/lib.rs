#![doc = include_str!("../README.md")]

#[cfg(feature = "client")]
pub use paxoslease_client as client;
#[cfg(feature = "client")]
pub use paxoslease_client::{Client, Election, Leader, LeaderChange};
pub use paxoslease_holder::{
    Acquire, AcquireError, Acquiring, AskError, Change, Detached, Filter, Grant, LeaseEnd,
    LeaseGuard, LeaseInfo, LeaseLost, LeaseState, LeaseView, Limit, PeerStatus, Quarantine,
    QueuedName, Rates, ReleaseError, RenewError, Role, Status, TextError, TtlError, Watch,
    block_on,
};
#[cfg(feature = "node")]
pub use paxoslease_node as node;
#[cfg(feature = "node")]
pub use paxoslease_node::{Config, Node};
#[cfg(feature = "test-util")]
pub use paxoslease_world::TestCell;

/// The example about fences compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/fences.md")]
struct Fences;
