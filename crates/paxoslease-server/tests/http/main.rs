//! HTTP as its users see it: real nodes, real sockets.

mod asking;
mod cell;
mod document;
mod leases;
mod leaving;
mod limits;
mod listing;
mod operating;
mod page;
mod refusals;
mod watching;
