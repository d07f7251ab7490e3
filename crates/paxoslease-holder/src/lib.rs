//! What it means to hold a lease, the same for a node and for a client of a cell.
//!
//! - [`LeaseGuard`] is a lease that is held. [`Acquire`] asks for one. [`Grant`] is a lease without
//!   a guard.
//! - [`transport`] is what a node and a client build on: a [`transport::Ticket`] per lease, shared
//!   by its guard and the thread that serves it, and [`transport::Guards`], which decide when a
//!   lease is renewed and when it is lost.
//!
//! Whether a lease is held is computed by [`paxoslease_core::Belief`] alone, from a fresh reading
//! of the clock. This crate has no threads, no sockets and no timers of its own: a node or a client
//! brings a [`transport::Transport`].

mod acquire;
mod blocking;
mod error;
mod grant;
mod human;
mod lease;
mod limit;
mod members;
mod status;
pub mod transport;
mod watch;

pub use acquire::{Acquire, Acquiring, Detached};
pub use blocking::block_on;
pub use error::{AcquireError, AskError, LeaseLost, Quarantine, ReleaseError, RenewError};
pub use grant::Grant;
pub use human::{human_end, human_span};
pub use lease::{LeaseEnd, LeaseGuard, LeaseState, LeaseView};
pub use limit::Limit;
pub use members::{MembersChange, MembersError, MembersPlan, MembersRequest};
pub use paxoslease_core::{TextError, TtlError};
pub use status::{
    ChangeStatus, Membership, PeerStatus, QueuedName, Rates, Role, Status, UnknownRole,
};
pub use watch::{Change, Filter, LeaseInfo, Watch};
