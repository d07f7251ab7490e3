//! Daemons in this process, as their clients see them over real sockets.

mod access;
mod client;
mod harness;
mod http;
mod resp;
