//! Durable leases (protocol section 10, K1 to K14): leases that last longer than M, or for ever,
//! and leases whose holder set an earlier end.
//!
//! A durable name has a register on the disks of a majority. It is changed as in CASPaxos: ask a
//! majority, take the accepted value with the highest ballot, compute the next one, store it at a
//! majority. Ordinary leases have no register and do not write to the disk.

pub(crate) mod lasts;
pub(crate) mod value;
