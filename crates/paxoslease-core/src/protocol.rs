//! The protocol of the paper, with the rules of docs/protocol.md: ballots, acceptor, proposer,
//! holder, stable record and time.
//!
//! `register` and `round` apply the rules for one name and one round. `acceptor` and `proposer`
//! keep many of them. Waiting and turns between contenders are in `queueing`, tables in `storage`.

pub(crate) mod acceptor;
pub(crate) mod ballot;
pub(crate) mod belief;
pub(crate) mod proposer;
pub(crate) mod record;
pub(crate) mod register;
pub(crate) mod round;
pub(crate) mod time;
