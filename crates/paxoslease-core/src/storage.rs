//! Compact memory for many names: an acceptor's table, its index, and the texts in it.
//!
//! Knows nothing of leases and time.

mod index;
pub(crate) mod permits;
pub(crate) mod table;
pub(crate) mod text;

pub(crate) use index::Slot;
