//! Peers that mean harm: strangers at the door, and members of the family that talk nonsense. What
//! they say is refused and counted, what is kept for them is bounded, and the cell goes on.

#[path = "../cell/mod.rs"]
mod cell;

mod nonsense;
mod strangers;
mod support;
mod tls;
