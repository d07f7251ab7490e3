//! Durable leases (protocol section 10, K1 to K14): leases that last longer than M, or for ever,
//! and leases whose holder set an earlier end.
//!
//! A durable name has a register on the disks of a majority. It is changed as in CASPaxos: ask a
//! majority, take the accepted value with the highest ballot, compute the next one, store it at a
//! majority. Ordinary leases have no register and do not write to the disk.
//!
//! `registers` is the acceptor's side table and `answering` its answers (K1 to K5). `change` is the
//! one way to change a register and `decide` computes what it stores (K6 to K9). `checking` is what
//! a member does by itself: it notices ends and repairs what other members missed.

pub(crate) mod answering;
pub(crate) mod change;
pub(crate) mod checking;
pub(crate) mod decide;
pub(crate) mod lasts;
pub(crate) mod message;
pub(crate) mod registers;
pub(crate) mod value;
