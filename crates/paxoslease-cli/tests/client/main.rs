//! The commands that talk to a cell: the real binary against real cells.

mod cell;
mod elect;
mod hold;
mod look;
mod lose;
mod options;
mod secure;
mod status;
#[path = "../node/support.rs"]
mod support;
mod tenure;
mod terminal;
mod trust;
