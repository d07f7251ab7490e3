//! PaxosLease as a pure state machine.
#![no_std]
extern crate alloc;

mod ballot;
mod cell;
mod message;
mod rules;
mod text;
mod time;

pub use ballot::{Ballot, NodeId, Tenure};
pub use cell::{Cell, CellError, MEMBERS_MAX, MemberSet, TtlError};
pub use message::{Hint, Message, Reply, Request, Seen};
pub use rules::{Rule, Rules};
pub use text::{Holder, Label, Name, TextError};
pub use time::{Drift, Instant, Ttl};
