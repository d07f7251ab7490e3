//! Hostile peers: nodes that do not belong to the cell, and nodes of the cell that send nonsense.
//! Their messages are refused and counted, their memory is bounded, and the cell goes on.

#[path = "../cell/mod.rs"]
mod cell;

mod nonsense;
mod strangers;
mod support;
mod tls;
